"""Writes a batch as Parquet files that do not count yet, and reads back what they hold.

What is read back is what will be named: files that Spark cannot read again are never committed.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.pipeline.archive.commit import Staged
from penstock.pipeline.archive.manifest import BrokenArchive, Offsets, text_of
from penstock.pipeline.archive.rows import FOLDERS, as_archived, contents
from penstock.pipeline.schemas import HISTORY, ddl

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row

FILE_ROWS_MAX = 2_000_000
SCHEMA = f"{ddl(HISTORY)}, `id` STRING, `day` STRING"


def stage(history: "DataFrame", where: str, *, offsets_from: Offsets, offsets_to: Offsets) -> list[Staged]:
    """Write rows below ``where`` and return the files; a row outside of the offsets is an error."""
    rows = as_archived(history)
    written = rows.write.option("compression", "zstd").option("maxRecordsPerFile", FILE_ROWS_MAX)
    written.mode("overwrite").partitionBy(*FOLDERS).parquet(where)
    back = history.sparkSession.read.schema(SCHEMA).parquet(where)
    found = contents(back).collect()
    for row in found:
        _check(row, offsets_from, offsets_to)
    return [
        _staged(path, [row for row in found if row["path"] == path]) for path in sorted({row["path"] for row in found})
    ]


def _check(row: "Row", offsets_from: Offsets, offsets_to: Offsets) -> None:
    shard = str(row["shard"])
    first, last = row["first_offset"], row["last_offset"]
    if not offsets_from.get(shard, 0) <= first <= last < offsets_to.get(shard, 0):
        raise BrokenArchive(
            f"shard {shard} gave rows at offsets {first} to {last}, but was asked for those from "
            f"{offsets_from.get(shard)} on and before {offsets_to.get(shard)}; nothing of this batch is archived"
        )


def _staged(path: str, rows: Sequence["Row"]) -> Staged:
    return Staged(
        # Its own name and those of its folders.
        path="/".join(path.rsplit("/", len(FOLDERS) + 1)[1:]),
        bytes=rows[0]["bytes"],
        rows=sum(row["rows"] for row in rows),
        settled_from=text_of(min(row["settled_from_ms"] for row in rows)),
        settled_to=text_of(max(row["settled_to_ms"] for row in rows)),
    )
