"""Whether messages were served as soon as the queue promises, and whether a tier was starved.

The promise (`core/fairness.py`): a message without a group that finds p messages of its tier waiting is
among the next (p + 1) · W / w + 5 that are leased. From the history:

    p        of its tier: came before it, less those first received, or gone unreceived, before it came; and of those
             received while it waited, each with a group, since groups take turns, and each time one was received again
    leases   of the queue: first received after it came and before it was received itself

Both are told from running sums. A queue's time is cut into buckets; what lies before a bucket is one
number, so a bucket is looked at by itself (`signals_lines`) and no queue has to be sorted as a whole.

Within one millisecond the order is not known, and the doubt is for the queue: what was received in the
millisecond in which a message came or was received is not held against it.

What the history does not tell: that a message rested (a delay, a schedule, a backoff), that a queue was
paused, that others aged or were escalated into its tier, and receipts between the first and the last. The
first three can make a breach of what is none; the last one can hide some.
"""

from itertools import chain
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as f

from penstock.core.fairness import TIERS
from penstock.pipeline.signals.lines import OUTPUT, served

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import Column, DataFrame

    from penstock.pipeline.signals.lines import Before


def totals(steps: "DataFrame", bucket_ms: int, *more: str, cuts: "DataFrame | None" = None) -> "DataFrame":
    """How many joined the line, less those that left it, and how many were leased, by queue, tier and bucket.

    `since_ms` is when the first of those came that left. With ``cuts`` (see `breaches`) only what happened from a cut
    on is told; of stays that moved, everything.
    """
    is_left = f.col("event") == 1
    is_leased = is_left & f.col("received_ms").isNotNull()
    at_ms = f.when(is_left, left_ms()).otherwise(f.col("came_ms"))
    events = steps.where(f.col("came_ms").isNotNull()).withColumn("event", f.explode(f.array(f.lit(0), f.lit(1))))
    if cuts is not None:
        events = events.join(f.broadcast(cuts), "queue").where(f.col("moves") | (at_ms >= f.col("whole_from_ms")))
    return events.groupBy("queue", "tier", _bucket(at_ms, bucket_ms).alias("bucket"), *more).agg(
        f.sum(f.when(is_left, -1).otherwise(1)).alias("line"),
        f.sum(f.when(is_leased, _turns()).otherwise(0)).alias("turn"),
        f.count_if(is_leased).alias("lease"),
        f.min(f.when(is_left, f.col("came_ms"))).alias("since_ms"),
    )


def breaches(steps: "DataFrame", known: "Before", *, cuts: "DataFrame | None" = None) -> "DataFrame":
    """The messages that were served later than promised, with what they met and what the bound was.

    ``known`` is made of `totals`, and of the weights of the queues that promise anything. ``cuts`` has, by queue,
    `judged_from_ms`: only messages that left the line from then on are judged; and `whole_from_ms`, where a bucket
    begins: all stays are there that came or left from then on. The judged ones have come since.
    """
    weights = f.create_map(*chain.from_iterable(_weights(known))) if known.queues else f.lit(None)
    bound = (
        f.ceil(
            (f.col("ahead") + 1)
            * f.aggregate("weights", f.lit(0), lambda total, weight: total + weight)
            / f.get("weights", f.col("tier"))
        )
        + TIERS
    )
    return (
        _in_buckets(steps.where(f.col("queue").isin(list(known.queues))), known.bucket_ms, cuts)
        .mapInArrow(served(known), OUTPUT)
        # Of a message that is told in parts, its own lease is one of those it is served within.
        .groupBy("queue", "queue_id", "key", "tier", "came_ms", "received_ms")
        .agg(
            (f.max("ahead") + f.sum("turns")).alias("ahead"),
            f.greatest(f.sum("passed"), f.lit(0)).alias("passed"),
        )
        .withColumn("leases", f.col("passed") + 1)
        .withColumn("weights", weights[f.col("queue")])
        .withColumn("bound", bound)
        .where(f.col("leases") > f.col("bound"))
        .select("queue", "queue_id", "key", "tier", "came_ms", "received_ms", "ahead", "leases", "bound")
    )


def is_asked() -> "Column":
    """Whether a stay is one that the bound is for."""
    return ~f.col("is_grouped") & f.col("came_ms").isNotNull() & f.col("received_ms").isNotNull()


def starved(filled: Any, together: Any) -> Any:
    """The windows in which messages of a tier waited from the first moment to the last, others were received, and
    none of them was."""
    others = together.loc[together["received"] > 0, ["queue", "window", "received"]]
    # None was received, so whoever waits at the end and at the start without a gap between is the same message.
    gone = filled["called"] - filled["received"]
    waited = filled[(filled["received"] == 0) & (filled["waiting_before"] - gone > 0)]
    found = waited[["queue", "tier", "window", "waiting"]].merge(others, on=["queue", "window"])
    return found.rename(columns={"received": "others_received"})


def _in_buckets(steps: "DataFrame", bucket_ms: int, cuts: "DataFrame | None") -> "DataFrame":
    """Each message in the bucket it came in and in the one it left in, and all of a bucket in one place."""
    buckets = f.array_distinct(f.array(_bucket(f.col("came_ms"), bucket_ms), _bucket(left_ms(), bucket_ms)))
    placed = steps.where(f.col("came_ms").isNotNull()).select(
        *("queue", "queue_id", "key", "tier", "came_ms"),
        left_ms().alias("left_ms"),
        _turns().alias("turns"),
        f.col("received_ms").isNotNull().alias("is_received"),
        is_asked().alias("is_asked"),
        f.explode(buckets).alias("bucket"),
    )
    if cuts is not None:
        placed = (
            placed.join(f.broadcast(cuts), "queue")
            .where(f.col("bucket") * bucket_ms >= f.col("whole_from_ms"))
            .withColumn("is_asked", f.col("is_asked") & (f.col("left_ms") >= f.col("judged_from_ms")))
            .drop("whole_from_ms", "judged_from_ms")
        )
    return placed.repartition("queue", "bucket")


def left_ms() -> "Column":
    """When it left the line, received or not."""
    return f.coalesce("received_ms", "settled_ms")


def _turns() -> "Column":
    """How many leases of its tier a message may take that those waiting before another do not explain."""
    return f.coalesce("retries", f.lit(0)).cast("bigint") + f.col("is_grouped").cast("bigint")


def _bucket(at_ms: "Column", bucket_ms: int) -> "Column":
    return f.floor(at_ms / bucket_ms)


def _weights(known: "Before") -> "Iterator[tuple[Column, Column]]":
    for queue, weights in zip(known.queues, known.weights.tolist(), strict=True):
        yield f.lit(queue), f.array(*map(f.lit, weights))
