"""What happened in each window of time, as numbers that can be added: over tiers, over tenants, over queues.

Levels (how many are there) are sums of what came and went. Of each event not only the number is
counted but also the time from it to the end of its window: so a level's mean over a window is exact,
and no row is ever sorted for it:

    level at the end  = level at the start + came − went
    mean              = level at the start + (time left of those that came − of those that went) / window

What lies before the first window is counted into one more window before it: it was there at the start.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as f

from penstock.pipeline.transforms.signals_steps import HANDLED, OUTCOMES

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

# Events of each window.
COUNTED = ("sent", "moved_in", "received", "settled", *OUTCOMES, "retries", "unknown_arrivals")
# What levels are made of; `…_left` is the time left of the window, in milliseconds, summed.
_MOVING = (
    *("came", "came_left", "gone", "gone_left", "called", "begun", "begun_left", "ended", "ended_left"),
    *("held", "freed"),
)


@dataclass(frozen=True, slots=True)
class Windows:
    """Windows of one size, by number: window n begins n · size after 1970. Both ends are meant."""

    size_ms: int
    first: int
    last: int

    @property
    def count(self) -> int:
        return self.last - self.first + 1

    def number(self, at_ms: "Column") -> "Column":
        """In which window a moment is; one before the first stands for all before."""
        return f.greatest(f.floor(at_ms / self.size_ms), f.lit(self.first - 1))

    def left_ms(self, at_ms: "Column") -> "Column":
        return self.size_ms - f.pmod(at_ms, f.lit(self.size_ms))


def counts(steps: "DataFrame", windows: Windows) -> "DataFrame":
    """What happened, by queue, tier, tenant and window."""
    is_known, is_held = f.col("came_ms").isNotNull(), f.col("received_ms").isNotNull()
    is_handled = f.col("outcome").isin(*HANDLED) & is_held
    parts = [
        _counted(
            steps,
            windows,
            "came_ms",
            {"sent": f.col("is_home"), "moved_in": ~f.col("is_home"), "came": f.lit(True)},
        ),
        _counted(steps, windows, "received_ms", {"received": f.lit(True), "called": is_known, "held": f.lit(True)}),
        _counted(steps.where(is_handled), windows, "last_ms", {"begun": f.lit(True)}),
        _counted(
            steps,
            windows,
            "settled_ms",
            {
                "settled": f.lit(True),
                **{outcome: f.col("outcome") == outcome for outcome in OUTCOMES},
                "unknown_arrivals": ~is_known,
                "gone": is_known,
                # Those that left without ever having been received have waited until then.
                "called": is_known & ~is_held,
                "ended": is_handled,
                "freed": is_held,
            },
            retries=f.sum("retries"),
        ),
    ]
    whole = reduce(lambda left, right: left.unionByName(right, allowMissingColumns=True), parts)
    sums = [f.coalesce(f.sum(name), f.lit(0)).alias(name) for name in (*COUNTED, *_MOVING)]
    return whole.groupBy("queue", "tier", "tenant_rank", "window").agg(*sums)


def filled(counted: "DataFrame", by: str, windows: Windows) -> "DataFrame":
    """For each queue and ``by`` all windows, also those in which nothing happened, with the levels at their ends."""
    sums = [f.sum(name).alias(name) for name in (*COUNTED, *_MOVING)]
    summed = counted.groupBy("queue", by, "window").agg(*sums)
    every = f.explode(f.sequence(f.lit(windows.first - 1), f.lit(windows.last)).cast("array<bigint>"))
    grid = summed.select("queue", by).distinct().withColumn("window", every)
    whole = grid.join(summed, ["queue", by, "window"], "left").na.fill(0)
    return _levels(whole, by).where(f.col("window") >= windows.first)


def together(filled: "DataFrame") -> "DataFrame":
    """The same for whole queues: everything here can be added."""
    keys = ("queue", "window")
    return filled.groupBy(*keys).agg(
        *[f.sum(name).alias(name) for name in filled.columns if name not in (*keys, "tier")]
    )


def _levels(whole: "DataFrame", by: str) -> "DataFrame":
    so_far = Window.partitionBy("queue", by).orderBy("window")

    def level(plus: str, minus: str) -> "Column":
        return f.sum(f.col(plus) - f.col(minus)).over(so_far)

    return (
        whole.withColumn("depth", level("came", "gone"))
        .withColumn("waiting", level("came", "called"))
        .withColumn("in_flight_max", level("held", "freed"))
        .withColumn("in_flight_min", level("begun", "ended"))
        # At the start, and what was added over the window.
        .withColumn("depth_before", f.col("depth") - f.col("came") + f.col("gone"))
        .withColumn("waiting_before", f.col("waiting") - f.col("came") + f.col("called"))
        .withColumn("busy_before", f.col("in_flight_min") - f.col("begun") + f.col("ended"))
        .withColumn("depth_left", f.col("came_left") - f.col("gone_left"))
        .withColumn("busy_left", f.col("begun_left") - f.col("ended_left"))
    )


def _counted(
    steps: "DataFrame", windows: Windows, at: str, claims: "Mapping[str, Column]", **more: "Column"
) -> "DataFrame":
    """Count by the window of one moment; what ``_MOVING`` wants the time left of is summed as well."""
    left = windows.left_ms(f.col(at))
    sums = [f.sum(claim.cast("int")).alias(name) for name, claim in claims.items()]
    sums += [
        f.sum(f.when(claim, left)).alias(f"{name}_left") for name, claim in claims.items() if f"{name}_left" in _MOVING
    ]
    sums += [column.alias(name) for name, column in more.items()]
    placed = steps.where(f.col(at).isNotNull()).withColumn("window", windows.number(f.col(at)))
    return placed.groupBy("queue", "tier", "tenant_rank", "window").agg(*sums)


def oldest(steps: "DataFrame", windows: Windows) -> "DataFrame":
    """When the oldest message came that was in the queue at the end of a window, by queue, tier and window.

    Stays that begin and end in the same windows are one pair, told by the first that came. Pairs in the order
    of coming: each answers for the windows that no older one reaches, so each window is told once.
    """
    older = (
        Window.partitionBy("queue", "tier").orderBy("came_ms", f.desc("end")).rowsBetween(Window.unboundedPreceding, -1)
    )
    pairs = (
        steps.where(f.col("came_ms").isNotNull())
        .withColumn("begin", windows.number(f.col("came_ms")))
        .withColumn("end", windows.number(f.col("settled_ms")))
        .where(f.col("begin") < f.col("end"))
        .groupBy("queue", "tier", "begin", "end")
        .agg(f.min("came_ms").alias("came_ms"))
        .withColumn("told", f.coalesce(f.max("end").over(older), f.lit(windows.first)))
        .withColumn("from", f.greatest("begin", "told", f.lit(windows.first)))
    )
    return pairs.where(f.col("from") < f.col("end")).select(
        "queue",
        "tier",
        f.explode(f.sequence("from", f.col("end") - 1)).alias("window"),
        f.col("came_ms").alias("oldest_ms"),
    )
