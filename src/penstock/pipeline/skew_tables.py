"""Who has most of it: how messages, handling time and retries are spread over groups, tiers, shards and attributes.

    costs           what each value of each dimension costs, in sums; one pass over the rows for all dimensions
    concentration   for each dimension of each queue: the top one, the top ten, the Gini coefficient
    heaviest        the values with the greatest part of anything

A dimension is a name and a column. Groups, tiers and attributes are compared within a queue; queues and
shards with each other, so `queue` is null for them. A value that is null belongs to nobody and is left out.

The Gini coefficient is 0 if all have the same and comes near 1 if one has all. It is computed from how many
values have each number of messages, so a million groups are not sorted for it.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as f

from penstock.pipeline.signals.stays import HANDLED

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

# Compared with each other, not within a queue.
ACROSS = ("queue", "shard")
_KEYS = ("dimension", "queue")
_SUMS = ("messages", "handling_ms", "retries", "buried", "wait_ms", "waits")
# What `costs` gives, as Spark takes a schema.
COSTS = ", ".join(("dimension STRING, queue STRING, value STRING", *(f"{name} BIGINT" for name in _SUMS)))


def costs(steps: "DataFrame", dimensions: "Mapping[str, Column]") -> "DataFrame":
    """What each value costs: messages, the time they were handled, retries, dead letters, waits."""
    values = f.array(
        *[
            f.struct(
                f.lit(name).alias("dimension"),
                (f.lit(None).cast("string") if name in ACROSS else f.col("queue")).alias("queue"),
                column.cast("string").alias("value"),
            )
            for name, column in dimensions.items()
        ]
    )
    is_handled = f.col("outcome").isin(*HANDLED) & f.col("last_ms").isNotNull()
    handling_ms = f.when(is_handled, f.greatest(f.col("settled_ms") - f.col("last_ms"), f.lit(0)))
    wait_ms = f.when(f.col("came_ms").isNotNull(), f.col("received_ms") - f.col("came_ms"))
    return (
        steps.select(
            f.explode(values).alias("of"),
            handling_ms.alias("handling_ms"),
            wait_ms.alias("wait_ms"),
            "retries",
            "outcome",
        )
        .where(f.col("of.value").isNotNull())
        .groupBy("of.dimension", "of.queue", "of.value")
        .agg(
            f.count("*").alias("messages"),
            f.coalesce(f.sum("handling_ms"), f.lit(0)).alias("handling_ms"),
            f.coalesce(f.sum("retries"), f.lit(0)).alias("retries"),
            f.sum((f.col("outcome") == "buried").cast("int")).alias("buried"),
            f.coalesce(f.sum("wait_ms"), f.lit(0)).alias("wait_ms"),
            f.count("wait_ms").alias("waits"),
        )
    )


def added(costs: "DataFrame") -> "DataFrame":
    """What values cost that are told of several times, each in one row."""
    return costs.groupBy(*_KEYS, "value").agg(*[f.sum(name).alias(name) for name in _SUMS])


def with_means(costs: "DataFrame") -> "DataFrame":
    """Add how long a message of each value waited, in the mean; null if nobody knows of any."""
    mean = f.when(f.col("waits") > 0, f.col("wait_ms") / f.col("waits"))
    return costs.withColumn("wait_ms_mean", mean).drop("wait_ms", "waits")


def concentration(costs: "DataFrame") -> "DataFrame":
    """For each dimension of each queue: how many values, how much the first have, and how uneven it is."""
    by_size = Window.partitionBy(*_KEYS).orderBy(f.desc("messages"), "value")
    top = (
        costs.withColumn("rank", f.row_number().over(by_size))
        .where(f.col("rank") <= 10)
        .groupBy(*_KEYS)
        .agg(
            f.sum(f.when(f.col("rank") == 1, f.col("messages"))).alias("top_1"),
            f.sum("messages").alias("top_10"),
        )
    )
    totals = costs.groupBy(*_KEYS).agg(
        f.count("*").alias("values"),
        f.sum("messages").alias("messages"),
        f.sum("handling_ms").alias("handling_ms"),
        f.sum("retries").alias("retries"),
        f.percentile("wait_ms_mean", 0.5).alias("wait_ms_median"),
    )
    whole = _same(totals, _same(top, _gini(costs)))
    return whole.select(
        *_KEYS,
        "values",
        "messages",
        "handling_ms",
        "retries",
        (f.col("top_1") / f.col("messages")).alias("top_1_share"),
        (f.col("top_10") / f.col("messages")).alias("top_10_share"),
        "gini",
        "wait_ms_median",
    )


def heaviest(costs: "DataFrame", concentration: "DataFrame", count: int) -> "DataFrame":
    """The values that have the greatest part of messages, of handling time or of retries, ranked from 1 on."""

    def part(name: str) -> "Column":
        return f.when(f.col(f"all_{name}") > 0, f.col(name) / f.col(f"all_{name}")).otherwise(0.0)

    totals = concentration.select(
        *_KEYS,
        "values",
        "wait_ms_median",
        *[f.col(name).alias(f"all_{name}") for name in ("messages", "handling_ms", "retries")],
    )
    greatest = f.greatest("message_share", "handling_share", "retry_share")
    order = Window.partitionBy(*_KEYS).orderBy(f.desc(greatest), f.desc("messages"), "value")
    return (
        _same(costs, f.broadcast(totals))
        .withColumn("message_share", part("messages"))
        .withColumn("handling_share", part("handling_ms"))
        .withColumn("retry_share", part("retries"))
        .withColumn("rank", f.row_number().over(order))
        .where(f.col("rank") <= count)
        .withColumn(
            "times_median", f.when(f.col("wait_ms_median") > 0, f.col("wait_ms_mean") / f.col("wait_ms_median"))
        )
        .select(
            *(*_KEYS, "rank", "value", "values", "messages", "handling_ms", "retries", "buried"),
            *("message_share", "handling_share", "retry_share", "wait_ms_mean", "times_median"),
        )
    )


def _gini(costs: "DataFrame") -> "DataFrame":
    """From how many values have each number of messages: the poorer come first, and have the lower ranks."""
    poorer = Window.partitionBy(*_KEYS).orderBy("messages").rowsBetween(Window.unboundedPreceding, -1)
    sizes = costs.groupBy(*_KEYS, "messages").agg(f.count("*").alias("many"))
    ranks = f.col("many") * f.col("below") + f.col("many") * (f.col("many") + 1) / 2
    summed = (
        sizes.withColumn("below", f.coalesce(f.sum("many").over(poorer), f.lit(0)))
        .groupBy(*_KEYS)
        .agg(
            f.sum(ranks * f.col("messages")).alias("weighed"),
            f.sum(f.col("many") * f.col("messages")).alias("whole"),
            f.sum("many").alias("count"),
        )
    )
    gini = 2 * f.col("weighed") / (f.col("count") * f.col("whole")) - (f.col("count") + 1) / f.col("count")
    return summed.select(*_KEYS, gini.alias("gini"))


def _same(left: "DataFrame", right: "DataFrame") -> "DataFrame":
    """Join on the dimension and the queue, which may be null on both sides."""
    other = right.withColumnsRenamed({key: f"other_{key}" for key in _KEYS})
    is_same = (f.col("dimension") == f.col("other_dimension")) & f.col("queue").eqNullSafe(f.col("other_queue"))
    return left.join(other, is_same).drop("other_dimension", "other_queue")
