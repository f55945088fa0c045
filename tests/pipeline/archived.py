"""A small archive, as the archive job leaves it: for the jobs that read one, quickly."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
from pyarrow import compute
from pyspark.sql import DataFrame, SparkSession

from penstock.pipeline.archive.files import ARCHIVED, DEAD_LETTERS_SCHEMA, write_file, write_rows
from penstock.pipeline.archive.position import position_name
from penstock.pipeline.locations import DEAD_LETTERS, MESSAGES
from penstock.pipeline.tables import DAY, Table, is_table
from tests.pipeline.rows import history


def archive(rows: DataFrame, root: Path, queues: Mapping[str, Any] | None = None) -> str:
    """Write an archive of these rows, or add to one, and say what its server said of the queues."""
    table = Table.begin(f"{root}/{MESSAGES}", ARCHIVED, described={"shards": [0]}, partition_by=[DAY])
    begins = table.position(position_name(0)) or 0
    found = rows.drop("id").toArrow().cast(pa.schema([ARCHIVED.field(name) for name in rows.columns if name != "id"]))
    # What is added later stands further up, as in every history.
    offsets = compute.add(found["offset"], begins)
    found = found.set_column(found.column_names.index("offset"), ARCHIVED.field("offset"), offsets)
    files = write_rows(found, table.location) if len(found) else []
    end = compute.max(offsets).as_py() + 1 if len(found) else begins
    table.commit(files, positions={position_name(0): end})
    if queues is not None:
        (root / "queues.json").write_text(json.dumps(queues))
    return str(root)


def grow(spark: SparkSession, root: Path, rows: Sequence[Mapping[str, Any]]) -> str:
    """Add rows to an archive, or begin one."""
    return archive(history(spark, rows), root)


def put_letters(root: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write the dead letters that there are now."""
    table = Table.begin(f"{root}/{DEAD_LETTERS}", DEAD_LETTERS_SCHEMA, described={})
    found = pa.Table.from_pylist(list(rows), schema=DEAD_LETTERS_SCHEMA)
    table.commit([write_file(found, table.location)], positions={}, replaces=True)


def files_of(root: Path) -> list[Path]:
    """Return the files that the archive names now."""
    if not is_table(f"{root}/{MESSAGES}"):
        return []
    return [root / MESSAGES / path for path in Table.open(f"{root}/{MESSAGES}").files()]


def rows_of(root: Path, columns: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """Return what a reader of Delta finds."""
    dataset = Table.open(f"{root}/{MESSAGES}").delta.to_pyarrow_dataset()
    found: list[dict[str, Any]] = dataset.to_table(columns=columns).to_pylist()
    return found
