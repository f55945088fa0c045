"""The table of an archive: two that write it, a loss of power, a kill at any moment, and its readers."""

import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import duckdb
import polars
import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from deltalake import DeltaTable, Field
from deltalake.schema import PrimitiveType
from pyspark.sql import SparkSession

from bench.pipeline_data import write_history
from penstock.pipeline.archive.files import ARCHIVED, write_rows
from penstock.pipeline.archive.position import position_name
from penstock.pipeline.job import JobFailed
from penstock.pipeline.locations import MESSAGES, HistoryLocation, read_history
from penstock.pipeline.tables import DAY, LOG, AnotherWriter, Table, UnreadableTable, is_table
from tests.pipeline.rows import at

BATCH_ROWS = 10


def rows(numbers: range) -> Any:
    """Return rows of two queues and two days."""
    said = [
        {
            "queue": ("orders", "mail")[number % 2],
            "first_queue": 1,
            "sent_tier": 2,
            "number": number,
            "settled_at": at(0 if number % 3 else 86_400),
            "shard": 0,
            "offset": number,
        }
        for number in numbers
    ]
    names = [name for name in ARCHIVED.names if name not in {"id", DAY}]
    return pa.Table.from_pylist(said, schema=pa.schema([ARCHIVED.field(name) for name in names]))


def begin(root: Path) -> Table:
    return Table.begin(f"{root}/{MESSAGES}", ARCHIVED, described={"shards": [0]}, partition_by=[DAY])


def add(table: Table) -> None:
    """Archive the next batch, as the job does."""
    start = table.position(position_name(0)) or 0
    files = write_rows(rows(range(start, start + BATCH_ROWS)), table.location)
    table.commit(files, positions={position_name(0): start + BATCH_ROWS})


def offsets_of(root: Path) -> list[int]:
    found = DeltaTable(f"{root}/{MESSAGES}").to_pyarrow_dataset().to_table(columns=["offset"])
    return sorted(found["offset"].to_pylist())


def test_an_archiver_that_planned_before_another_committed_is_refused(tmp_path: Path) -> None:
    slow = begin(tmp_path)
    add(slow)
    quick = Table.open(slow.location)
    add(quick)

    with pytest.raises(AnotherWriter, match="two are at work"):
        add(slow)
    assert offsets_of(tmp_path) == list(range(2 * BATCH_ROWS))

    # Whoever plans anew goes on from there.
    add(Table.open(slow.location))
    assert offsets_of(tmp_path) == list(range(3 * BATCH_ROWS))


def test_an_archiver_goes_on_while_its_table_is_compacted(tmp_path: Path) -> None:
    table = begin(tmp_path)
    add(table)
    add(table)
    other = Table.open(table.location)
    assert other.delta.optimize.compact()["numFilesRemoved"] == 4
    add(table)

    assert offsets_of(tmp_path) == list(range(3 * BATCH_ROWS))
    assert Table.open(table.location).position(position_name(0)) == 3 * BATCH_ROWS


def test_an_archiver_goes_on_after_rows_were_deleted_while_it_was_at_work(tmp_path: Path) -> None:
    table = begin(tmp_path)
    add(table)
    Table.open(table.location).delta.delete("queue = 'mail'")
    add(table)

    assert offsets_of(tmp_path) == [*range(0, BATCH_ROWS, 2), *range(BATCH_ROWS, 2 * BATCH_ROWS)]


def test_what_a_commit_names_is_durable_before_it_and_the_commit_when_it_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, survived = tmp_path / "archive", tmp_path / "survived"
    synced: list[tuple[Path, int]] = []
    sync = os.fsync

    def recorded(descriptor: int) -> None:
        sync(descriptor)
        log = root / MESSAGES / LOG
        synced.append((Path(f"/proc/self/fd/{descriptor}").readlink(), len(list(log.glob("*.json")))))

    monkeypatch.setattr(os, "fsync", recorded)
    table = begin(root)
    add(table)
    monkeypatch.undo()

    for path in map(Path, table.delta.file_uris()):
        for each in (path, path.parent, root / MESSAGES):
            # The log had its first entry only: the table without rows.
            assert (each, 1) in synced
    # All that was not synced is gone with the power.
    for path, _ in synced:
        if path.is_file():
            (survived / path.relative_to(root)).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, survived / path.relative_to(root))
    assert offsets_of(survived) == list(range(BATCH_ROWS))
    assert {root / MESSAGES / LOG, root / MESSAGES, root} <= {path for path, _ in synced}


@pytest.mark.slow
def test_archivers_that_are_killed_at_any_moment_leave_each_row_once(tmp_path: Path) -> None:
    check_after_kills(tmp_path, kills=6, rows=20_000, seed=7)


def check_after_kills(folder: Path, *, kills: int, rows: int, seed: int) -> None:
    """Archive a history while archivers are killed; `killed` looks at the table after each."""
    data, root = folder / "data", folder / "archive"
    write_history(data, rows, seed=3, rows_per_frame=100)
    command = [sys.executable, "-m", "tests.pipeline.archive.killed", str(data), str(root), str(kills), str(seed)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert done.returncode == 0, f"seed {seed}: {done.stderr}"
    archived = Table.open(str(root)).delta.to_pyarrow_table(columns=["shard", "offset"]).to_pylist()
    assert len(archived) == rows
    assert len({(row["shard"], row["offset"]) for row in archived}) == rows


def test_all_readers_see_each_row_once_while_an_archiver_writes(spark: SparkSession, tmp_path: Path) -> None:
    table = begin(tmp_path)
    where = table.location
    add(table)
    dead = write_rows(rows(range(BATCH_ROWS)), where)
    assert dead, "files of an archiver that was killed before its commit"

    def by_duckdb_dataset() -> list[int]:
        # By a column that the log tells nothing of.
        archived = duckdb.from_arrow(DeltaTable(where).to_pyarrow_dataset()).filter("number >= 0")
        return [row[0] for row in archived.select('"offset"').fetchall()]

    def by_duckdb_files() -> list[int]:
        found = duckdb.read_parquet(DeltaTable(where).file_uris())
        return [row[0] for row in found.select('"offset"').fetchall()]

    def by_polars() -> list[int]:
        return list(polars.scan_delta(where).filter(polars.col("number") >= 0).select("offset").collect()["offset"])

    def by_spark() -> list[int]:
        return [row[0] for row in read_history(spark, HistoryLocation(where=str(tmp_path)), ("offset",)).collect()]

    for number, read in enumerate((by_duckdb_dataset, by_duckdb_files, by_polars, by_spark), start=2):
        add(table)
        assert Counter(read()) == Counter(range(number * BATCH_ROWS)), read.__name__
    assert offsets_of(tmp_path) == list(range(5 * BATCH_ROWS))


def test_a_folder_of_links_to_the_files_that_count_has_each_row_once(tmp_path: Path) -> None:
    table = begin(tmp_path / "an archive")
    add(table)
    add(table)
    table.delta.optimize.compact()
    write_rows(rows(range(BATCH_ROWS)), table.location)
    plain = tmp_path / "plain"

    # As `docs/how-to/archive-history.md` has it.
    paths = [unquote(uri) for uri in DeltaTable(table.location).file_uris()]
    for path in map(Path, paths):
        day = plain / path.parent.name
        day.mkdir(parents=True, exist_ok=True)
        os.link(path, day / path.name)

    wanted = sorted((f"2026-03-0{1 if number % 3 else 2}", number) for number in range(2 * BATCH_ROWS))
    for files in (paths, f"{plain}/**/*.parquet"):
        found = duckdb.read_parquet(files, hive_partitioning=True).select('day, "offset"').fetchall()
        assert sorted((str(day), offset) for day, offset in found) == wanted
    listed = duckdb.read_parquet(f"{table.location}/day=*/*.parquet")
    assert len(listed.fetchall()) > 2 * BATCH_ROWS, "the folder of the table has more than what counts"


def test_a_table_with_a_new_column_is_read_by_jobs_that_do_not_know_it(spark: SparkSession, tmp_path: Path) -> None:
    table = begin(tmp_path)
    add(table)
    old = DeltaTable(table.location)
    table.delta.alter.add_columns([Field("country", PrimitiveType("string"))])
    add(Table.open(table.location))

    assert old.to_pyarrow_dataset().count_rows() == BATCH_ROWS
    found = read_history(spark, HistoryLocation(where=str(tmp_path)))
    assert "country" not in found.columns
    assert sorted(row["offset"] for row in found.collect()) == list(range(2 * BATCH_ROWS))
    assert DeltaTable(table.location).to_pyarrow_dataset().to_table(columns=["country"])["country"].null_count == 20


def test_a_table_that_a_list_of_files_does_not_show_is_refused(tmp_path: Path) -> None:
    for number, (name, said) in enumerate(
        (("delta.columnMapping.mode", "columnMapping"), ("delta.enableDeletionVectors", "deletionVectors"))
    ):
        where = str(tmp_path / str(number))
        value = "name" if "Mapping" in name else "true"
        DeltaTable.create(where, ARCHIVED, configuration={name: value})
        with pytest.raises(UnreadableTable, match=f"has the feature {said}"):
            Table.open(where)


def test_what_is_no_table_is_named_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / LOG).mkdir()
    # That is what a kill leaves of a table that was being made.
    assert not is_table(str(tmp_path))
    (tmp_path / LOG / f"{0:020}.json").write_text("nonsense")
    with pytest.raises(JobFailed, match="cannot be read as a Delta table"):
        Table.open(str(tmp_path))
