"""The job `quality`: of each queue how many rows there are, what is missing in them, and what cannot be.

It says how far the rows of a history can be trusted as data. Whether all messages are in it is what `audit` says.
"""

from typing import TYPE_CHECKING

import pyarrow.parquet  # type: ignore[import-untyped]
from pyspark.sql import functions as f

from penstock.pipeline.job import Outcome, Progress, Table, counted
from penstock.pipeline.locations import HistoryLocation, read_history
from penstock.pipeline.reports.folder import results, settle_folder, write_table

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_COLUMNS = ("queue", "shard", "offset", "sent_at", "first_received_at", "settled_at", "group", "error")
_SHOWN = ("queue", "rows", "doubled", "never_received", "without_group", "with_error", "impossible_times")


def quality_of(rows: "DataFrame") -> "DataFrame":
    """Return a row for each queue: rows, rows with the same offset, nulls, and times in an order that cannot be."""

    def having(condition: "Column") -> "Column":
        return f.sum(condition.cast("bigint"))

    is_impossible = (f.col("settled_at") < f.col("sent_at")) | (
        f.coalesce(f.col("settled_at") < f.col("first_received_at"), f.lit(False))
    )
    return rows.groupBy("queue").agg(
        f.count("*").alias("rows"),
        (f.count("*") - f.countDistinct("shard", "offset")).alias("doubled"),
        having(f.col("first_received_at").isNull()).alias("never_received"),
        having(f.col("group").isNull()).alias("without_group"),
        having(f.col("error").isNotNull()).alias("with_error"),
        having(is_impossible).alias("impossible_times"),
        f.min("settled_at").alias("first_settled_at"),
        f.max("settled_at").alias("last_settled_at"),
    )


def run(spark: "SparkSession", place: HistoryLocation, out: str, progress: Progress) -> Outcome:
    settle_folder(out)
    progress.step("Reading history")
    rows = read_history(spark, place, _COLUMNS)
    if place.queues:
        rows = rows.where(f.col("queue").isin(list(place.queues)))
    found = quality_of(rows).orderBy("queue").toArrow()
    progress.step("Writing")
    with results(out) as folder:
        pyarrow.parquet.write_table(found, folder / "quality.parquet", compression="zstd")
        write_table(folder / "quality.csv", found)
    queues = found.select(list(_SHOWN)).to_pylist()
    count = sum(each["rows"] for each in queues)
    bad = sum(each["doubled"] + each["impossible_times"] for each in queues)
    wrong = f"{counted(bad, 'row is', 'rows are')} doubled or of times that cannot be" if bad else "none is doubled"
    return Outcome(
        sentence=f"{counted(count, 'row')} of {counted(len(queues), 'queue')}; {wrong}.",
        tables=[Table("Quality", _SHOWN, [[each[name] for name in _SHOWN] for each in queues])],
        written=[out],
        is_good=not bad,
        figures={"rows": count, "wrong": bad},
    )
