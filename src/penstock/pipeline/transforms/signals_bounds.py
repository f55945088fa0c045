"""Whether messages were served as soon as the queue promises, and whether a tier was starved.

The promise (`core/fairness.py`): a message without a group that finds p messages of its tier waiting is
among the next (p + 1) · W / w + 5 that are leased. From the history:

    p        of its tier: came before it, less those first received, or gone unreceived, before it came
    leases   of the queue: first received after it came and before it was received itself

Both are told from running sums. A queue's time is cut into buckets; what lies before a bucket is one
number, so a bucket is summed by itself and no queue has to be sorted as a whole.

Within one millisecond the order is not known, and the doubt is for the queue: what was received in the
millisecond in which a message came or was received is not held against it.

What the history does not tell: that a message rested (a delay, a schedule, a backoff), that a queue was
paused, that others aged or were escalated into its tier, and receipts between the first and the last. The
first three can make a breach of what is none; the last one can hide some.
"""

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as f

from penstock.core.fairness import TIERS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

# In an order of whole numbers: in each millisecond first those that come, then those that leave the line.
_CAME, _CALLED = 0, 1


def breaches(steps: "DataFrame", weights: "DataFrame", bucket_ms: int) -> "DataFrame":
    """The messages that were served later than promised, with what they met and what the bound was.

    ``weights`` has a row for each queue and tier that promises anything: queue, tier, weight, total.
    """
    events = _events(steps.join(f.broadcast(weights.select("queue").distinct()), "queue"), bucket_ms)
    served = _served(_with_sums(events))
    bound = f.ceil((f.col("ahead") + 1) * f.col("total") / f.col("weight")) + TIERS
    return (
        served.join(f.broadcast(weights), ["queue", "tier"])
        .withColumn("bound", bound)
        .where(f.col("leases") > f.col("bound"))
        .select("queue", "queue_id", "key", "tier", "came_ms", "received_ms", "ahead", "leases", "bound")
    )


def checked(steps: "DataFrame") -> "DataFrame":
    """How many messages there are that the bound is for, by queue and tier."""
    return steps.where(_is_asked()).groupBy("queue", "tier").agg(f.count("*").alias("checked"))


def starved(filled: "DataFrame", together: "DataFrame") -> "DataFrame":
    """The windows in which messages of a tier waited from the first moment to the last, others were received, and
    none of them was."""
    others = together.select("queue", "window", f.col("received").alias("others_received"))
    # None was received, so whoever waits at the end and at the start without a gap between is the same message.
    gone = f.col("called") - f.col("received")
    return (
        filled.where((f.col("received") == 0) & (f.col("waiting_before") - gone > 0))
        .join(others.where(f.col("others_received") > 0), ["queue", "window"])
        .select("queue", "tier", "window", "waiting", "others_received")
    )


def _is_asked() -> "Column":
    return ~f.col("is_grouped") & f.col("came_ms").isNotNull() & f.col("received_ms").isNotNull()


def _events(steps: "DataFrame", bucket_ms: int) -> "DataFrame":
    """Two for each message: it joins the line, and it leaves it, received or not."""
    known = steps.where(f.col("came_ms").isNotNull()).withColumn("is_asked", _is_asked())
    shared = ("queue", "queue_id", "key", "tier", "is_asked", "came_ms", "received_ms")
    left_ms = f.coalesce("received_ms", "settled_ms")
    came = known.select(*shared, f.lit(_CAME).alias("kind"), f.col("came_ms").alias("at_ms"))
    called = known.select(*shared, f.lit(_CALLED).alias("kind"), left_ms.alias("at_ms"))
    return (
        came.union(called)
        .withColumn("bucket", f.floor(f.col("at_ms") / bucket_ms))
        .withColumn("order", f.col("at_ms") * 2 + f.col("kind"))
        .withColumn("line", f.when(f.col("kind") == _CAME, 1).otherwise(-1))
        .withColumn("lease", ((f.col("kind") == _CALLED) & f.col("received_ms").isNotNull()).cast("int"))
    )


def _with_sums(events: "DataFrame") -> "DataFrame":
    """Add `ahead`, who is in line before this one, and `leases_before` and `leases_upto`, the leases of the queue."""
    totals = events.groupBy("queue", "tier", "bucket").agg(f.sum("line").alias("line"), f.sum("lease").alias("lease"))
    line, leases = _before(totals, "line", "tier"), _before(totals, "lease")
    in_line = Window.partitionBy("queue", "bucket", "tier").orderBy("order", "key")
    in_queue = Window.partitionBy("queue", "bucket").orderBy("order")
    first = Window.unboundedPreceding
    # In steps of two from one millisecond to the next: a lease before this millisecond, and up to its end.
    sums = (
        events.withColumn("ahead", f.sum("line").over(in_line.rowsBetween(first, -1)))
        .withColumn("leases_before", f.sum("lease").over(in_queue.rangeBetween(first, -2)))
        .withColumn("leases_upto", f.sum("lease").over(in_queue.rangeBetween(first, 1)))
        .where("is_asked")
        .join(f.broadcast(line), ["queue", "tier", "bucket"])
        .join(f.broadcast(leases), ["queue", "bucket"])
    )
    return (
        sums.withColumn("ahead", f.coalesce("ahead", f.lit(0)) + f.col("line_carried"))
        .withColumn("leases_before", f.coalesce("leases_before", f.lit(0)) + f.col("lease_carried"))
        .withColumn("leases_upto", f.coalesce("leases_upto", f.lit(0)) + f.col("lease_carried"))
    )


def _before(totals: "DataFrame", name: str, *more: str) -> "DataFrame":
    """The sum of all buckets before each."""
    earlier = Window.partitionBy("queue", *more).orderBy("bucket").rowsBetween(Window.unboundedPreceding, -1)
    summed = totals.groupBy("queue", *more, "bucket").agg(f.sum(name).alias(name))
    return summed.select(
        "queue", *more, "bucket", f.coalesce(f.sum(name).over(earlier), f.lit(0)).alias(f"{name}_carried")
    )


def _served(sums: "DataFrame") -> "DataFrame":
    """Put the two events of each message together; its own lease is one of those it is served within."""
    is_came = f.col("kind") == _CAME
    passed = f.when(is_came, -f.col("leases_upto")).otherwise(f.col("leases_before"))
    return (
        sums.groupBy("queue", "queue_id", "key", "tier", "came_ms", "received_ms")
        .agg(f.max(f.when(is_came, f.col("ahead"))).alias("ahead"), f.greatest(f.sum(passed), f.lit(0)).alias("passed"))
        .withColumn("leases", f.col("passed") + 1)
    )
