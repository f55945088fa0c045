"""The upkeep of an archive: what goes, what stays, and what is said of it. No Spark runs here."""

import os
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from penstock.cli import app
from penstock.pipeline.archive import upkeep
from penstock.pipeline.archive.files import write_rows
from penstock.pipeline.archive.position import position_name
from penstock.pipeline.archive.upkeep import Chosen
from penstock.pipeline.job import JobFailed
from penstock.pipeline.locations import MESSAGES
from penstock.pipeline.tables import Table
from tests.pipeline.archive.test_table import add, begin, offsets_of, rows
from tests.pipeline.archived import put_letters, rows_of


def files_in(root: Path) -> set[Path]:
    return set((root / MESSAGES).rglob("*.parquet"))


def age(paths: set[Path], hours: float) -> None:
    """Make files as old as that."""
    then = time.time() - hours * 3_600
    for path in paths:
        os.utime(path, (then, then))


def test_a_compaction_keeps_rows_and_position_and_its_old_files_go_with_vacuum(tmp_path: Path) -> None:
    table = begin(tmp_path)
    for _ in range(3):
        add(table)
    small = files_in(tmp_path)
    done = upkeep.compact(str(tmp_path))

    assert done.figures == {"files_before": 6, "files_after": 2}
    assert offsets_of(tmp_path) == list(range(30))
    assert files_in(tmp_path) > small
    assert upkeep.compact(str(tmp_path)).sentence == "Nothing to put together."
    assert upkeep.vacuum(str(tmp_path)).figures == {"files": 0}
    assert Table.open(f"{tmp_path}/{MESSAGES}").position(position_name(0)) == 30


def test_vacuum_takes_files_of_killed_runs_when_they_are_old_and_no_others(tmp_path: Path) -> None:
    table = begin(tmp_path)
    add(table)
    named = files_in(tmp_path)
    write_rows(rows(range(10)), table.location)
    lost = files_in(tmp_path) - named
    write_rows(rows(range(10)), table.location)
    under_way = files_in(tmp_path) - named - lost
    age(lost | named, 25)

    with pytest.raises(JobFailed, match="it is 24 at least"):
        upkeep.vacuum(str(tmp_path), timedelta(hours=1))
    assert upkeep.vacuum(str(tmp_path), timedelta(hours=24), is_dry_run=True).sentence == "2 files would be removed."
    assert upkeep.vacuum(str(tmp_path), timedelta(hours=24)).sentence == "2 files were removed."
    assert files_in(tmp_path) == named | under_way
    assert offsets_of(tmp_path) == list(range(10))


def test_days_that_are_too_old_are_taken_away_and_the_archiver_goes_on(tmp_path: Path) -> None:
    table = begin(tmp_path)
    add(table)
    now = datetime(2026, 3, 12, tzinfo=UTC)
    assert upkeep.expire(str(tmp_path), 10, now=now, is_dry_run=True).figures == {"rows": 6, "days": 1}
    done = upkeep.expire(str(tmp_path), 10, now=now)
    add(table)

    assert done.sentence.startswith("6 rows of 1 day before 2026-03-02 were taken away.")
    assert len(offsets_of(tmp_path)) == 4 + 10
    assert {str(row["day"]) for row in rows_of(tmp_path, ["day", "offset"]) if row["offset"] < 10} == {"2026-03-02"}


def traces(root: Path, word: bytes) -> list[Path]:
    """Return files in which a text stands; the table is written without packing it away for this."""
    import pyarrow.parquet as pq  # type: ignore[import-untyped]

    return [
        path
        for path in root.rglob("*.parquet")
        if word in b" ".join(str(row).encode() for row in pq.ParquetFile(path).read().to_pylist())
    ]


def test_a_deletion_leaves_no_trace_of_a_group_in_any_file_and_says_what_is_gone(tmp_path: Path) -> None:
    table = begin(tmp_path)
    found = rows(range(10))
    groups = ["anna" if number in {1, 2, 7} else "o'neill" for number in range(10)]
    found = found.set_column(found.column_names.index("group"), "group", [groups])
    table.commit(write_rows(found, table.location), positions={position_name(0): 10})
    put_letters(
        tmp_path, [{"id": "1-2", "queue": "orders.dead", "group": "anna"}, {"id": "1-a", "queue": "orders.dead"}]
    )
    upkeep.compact(str(tmp_path))
    assert traces(tmp_path, b"anna")

    dry = upkeep.delete(str(tmp_path), Chosen(groups=["anna"]), is_dry_run=True)
    done = upkeep.delete(str(tmp_path), Chosen(groups=["anna"]))
    table = Table.open(table.location)
    add(table)

    assert dry.figures["rows"] == done.figures["rows"] == 4
    assert list(done.tables[0].rows) == [
        ("messages", "mail", 2),
        ("messages", "orders", 1),
        ("dead_letters", "orders.dead", 1),
    ]
    assert traces(tmp_path, b"anna") == []
    assert offsets_of(tmp_path) == [0, 3, 4, 5, 6, 8, 9, *range(10, 20)]
    assert upkeep.delete(str(tmp_path), Chosen(groups=["o'neill"], ids=["1-2"])).figures["rows"] == 7
    assert upkeep.delete(str(tmp_path), Chosen(queues=["orders", "mail"])).figures["rows"] == 10


def test_a_deletion_says_what_it_cannot_reach(tmp_path: Path) -> None:
    table = begin(tmp_path)
    add(table)
    write_rows(rows(range(10)), table.location)

    done = upkeep.delete(str(tmp_path), Chosen(queues=["mail"]))
    assert "2 files of killed runs may have such rows still" in done.sentence
    with pytest.raises(JobFailed, match="say what to delete"):
        upkeep.delete(str(tmp_path), Chosen())


def test_upkeep_is_typed_on_the_command_line(tmp_path: Path) -> None:
    table = begin(tmp_path)
    add(table)
    add(table)

    def said(*words: str) -> tuple[int, str]:
        ended: Any = CliRunner().invoke(app, ["pipeline", words[0], str(tmp_path), *words[1:]])
        return ended.exit_code, " ".join(ended.output.split())

    assert said("archive-compact") == (0, "Put 4 files together into 2. The small ones go with the next vacuum.")
    assert said("archive-vacuum", "--older-than", "24") == (0, "0 files were removed.")
    assert "20 rows of 2 days" in said("archive-expire", "--days", "1", "--dry-run")[1]
    assert said("archive-delete", "--queue", "mail")[0] == 0
    assert said("archive-delete") == (65, "say what to delete: --id, --group or --queue")
    assert offsets_of(tmp_path) == list(range(0, 20, 2))
