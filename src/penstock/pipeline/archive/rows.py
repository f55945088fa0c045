"""Rows of a history as an archive keeps them, and what its files hold.

A file has the rows of one queue and one day, sorted by tier and time: who looks for one
tier, or for an hour of it, reads the row groups that have it.
"""

from typing import TYPE_CHECKING

from penstock.pipeline.locations import with_id
from penstock.pipeline.schemas import HISTORY

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# The folders a file is in, from the outside in.
FOLDERS = ("queue", "day")
_SORTED = ("queue", "day", "tier", "settled_at", "shard", "offset")


def as_archived(history: "DataFrame") -> "DataFrame":
    """Rows of a history with `id` and `day`, those of one queue and day together and in the order of a file.

    The day is that of `settled_at`, in UTC as the session is. Spark is asked to balance the
    parts: many small days share one, and a day that is too large for one has several.
    """
    from pyspark.sql import functions as f  # noqa: PLC0415

    day = f.date_format("settled_at", "yyyy-MM-dd").alias("day")
    rows = with_id(history).select(*(column.name for column in HISTORY), "id", day)
    return rows.hint("rebalance", *(f.col(name) for name in FOLDERS)).sortWithinPartitions(*_SORTED)


def contents(archived: "DataFrame") -> "DataFrame":
    """One row for each file and shard: how many rows it has, their times and their offsets."""
    from pyspark.sql import functions as f  # noqa: PLC0415

    file = (f.col("_metadata.file_path").alias("path"), f.col("_metadata.file_size").alias("bytes"))
    return (
        archived.select(*file, "shard", "settled_at", "offset")
        .groupBy("path", "bytes", "shard")
        .agg(
            f.count("*").alias("rows"),
            # As numbers: a timestamp would be collected in the time zone of whoever collects it.
            f.unix_millis(f.min("settled_at")).alias("settled_from_ms"),
            f.unix_millis(f.max("settled_at")).alias("settled_to_ms"),
            f.min("offset").alias("first_offset"),
            f.max("offset").alias("last_offset"),
        )
    )
