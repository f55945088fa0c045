"""The tables `bounds` and `breaches`: the messages that were received later than the weights promise.

The promise (`core/queue/fairness.py`): a message without a group that finds p messages of its tier waiting is among the
next (p + 1) · W / w + 5 that are leased. From the history:

    p        of its tier: came before it, less those first received, or gone unreceived, before it came; and of those
             received while it waited, each with a group, since groups take turns, and each time one was received again
    leases   of the queue: first received after it came and before it was received itself

Both follow from running sums. A queue's time is cut into buckets. What lies before a bucket is one number, so a
bucket is looked at by itself (`lines`) and no queue has to be sorted as a whole.

Within one millisecond the order is not known, and the doubt is for the queue: what was received in the millisecond in
which a message came or was received is not held against it.

The history does not tell that a message rested (a delay, a schedule, a backoff), that a queue was paused, that others
aged or were escalated into its tier, nor the receipts between the first and the last. The first three can make a
breach of what is none. The last one can hide some.

Whether a message was late depends on those that were in line before it, and they may be settled much later. So a new
row can change what was told of the past, but only from the moment on at which it came (`SignalsInput.touched`):

    whole from        judged from                                    now
        │                 │                                           │
    ────┴─────────────────┴───────────────────────────────────────────▶  the time of a queue
    totals of the state   │  rows, read again if they are not new
    breaches of the state ┘  judged again

Messages that left the line before the second moment are judged already. Those that left it later have come since the
first one, and sums say which messages were in line then. Both moments are different for each queue. A queue without
new rows is not looked at.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pandas  # type: ignore[import-untyped]
import pyarrow  # type: ignore[import-untyped]
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from penstock.core.queue.fairness import TIERS
from penstock.pipeline.queue_info import Sharing
from penstock.pipeline.signals.counts import Windows
from penstock.pipeline.signals.inputs import SEEN, Keep, SignalsInput, read_again
from penstock.pipeline.signals.lines import OUTPUT, Before, before, served
from penstock.pipeline.signals.stays import is_asked, left_ms


def totals(steps: DataFrame, bucket_ms: int, *more: str, cuts: DataFrame | None = None) -> DataFrame:
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


def breaches(steps: DataFrame, known: Before, *, cuts: DataFrame | None = None) -> DataFrame:
    """The messages that were served later than promised, with what they met and what the bound was.

    ``known`` is made of `totals`, and of the weights of the queues that promise anything. ``cuts`` has, by queue,
    `judged_from_ms`: only messages that left the line from then on are judged; and `whole_from_ms`, where a bucket
    begins: all stays are there that came or left from then on. The judged ones have come since.
    """
    by_queue = zip(known.queues, known.weights.tolist(), strict=True)
    pairs = [column for queue, each in by_queue for column in (f.lit(queue), f.array(*map(f.lit, each)))]
    weights = f.create_map(*pairs) if pairs else f.lit(None)
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


def _in_buckets(steps: DataFrame, bucket_ms: int, cuts: DataFrame | None) -> DataFrame:
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


def _turns() -> Column:
    """How many leases of its tier a message may take that those waiting before another do not explain."""
    return f.coalesce("retries", f.lit(0)).cast("bigint") + f.col("is_grouped").cast("bigint")


def _bucket(at_ms: Column, bucket_ms: int) -> Column:
    return f.floor(at_ms / bucket_ms)


WORST = 20
TOTALS, LATE = "totals", "late"
_BOUNDS = pyarrow.schema(
    [
        ("queue", pyarrow.string()),
        ("tier", pyarrow.int32()),
        ("weight", pyarrow.int32()),
        ("weights_total", pyarrow.int32()),
        ("weights_from", pyarrow.string()),
        ("is_strict", pyarrow.bool_()),
        ("checked", pyarrow.int64()),
        ("breaches", pyarrow.int64()),
        ("times_bound_max", pyarrow.float64()),
    ]
)
_BREACHES = pyarrow.schema(
    [
        ("queue", pyarrow.string()),
        ("tier", pyarrow.int32()),
        ("id", pyarrow.string()),
        ("came_at", pyarrow.timestamp("us", "UTC")),
        ("received_at", pyarrow.timestamp("us", "UTC")),
        ("ahead", pyarrow.int64()),
        ("leases", pyarrow.int64()),
        ("bound", pyarrow.int64()),
        ("times_bound", pyarrow.float64()),
    ]
)
_LATE = (
    "queue STRING, queue_id INT, key BIGINT, tier INT, came_ms BIGINT, received_ms BIGINT, ahead BIGINT, "
    "leases BIGINT, bound BIGINT, id STRING"
)
_CUTS = "queue STRING, whole_from_ms BIGINT, judged_from_ms BIGINT"
# Into about so many buckets the range is cut for running sums, so that no queue is sorted as a whole.
_BUCKETS = 400
_SUMS = ["queue", "tier", "bucket", "line", "turn", "lease"]


class Cut(NamedTuple):
    whole_from_ms: int
    judged_from_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Promises:
    bounds: pyarrow.Table
    breaches: pyarrow.Table
    # For the state: sums by window of what never moved, and all breaches.
    totals: pyarrow.Table
    late: DataFrame
    # How many rows were read that were known.
    rows_again: int


def bucket_ms_of(windows: Windows) -> int:
    """About as many buckets as are wanted, and each of whole windows, or a window of whole buckets.

    >>> [bucket_ms_of(Windows(size_ms, 0, count - 1)) for size_ms, count in ((60_000, 3), (1_000, 5_000), (1_000, 3))]
    [1000, 12000, 1000]
    """
    if windows.count >= _BUCKETS:
        return windows.size_ms * (windows.count // _BUCKETS)
    seconds, parts = windows.size_ms // 1_000, _BUCKETS // windows.count
    return windows.size_ms // max(part for part in range(1, min(parts, seconds) + 1) if seconds % part == 0)


def promises(
    spark: SparkSession, given: SignalsInput, windows: Windows, promised: Mapping[str, Sharing], keep: Keep
) -> Promises:
    weights = {queue: found.weights for queue, found in promised.items() if not found.is_strict}
    totals = _totals(given, windows)
    touched = {queue: at_ms for queue, at_ms in given.touched.items() if queue in weights}
    line = _Line(weights, windows, bucket_ms_of(windows), _cuts(touched, totals, windows))
    again = _again(spark, given, line.cuts)
    again = None if again is None else keep(again)
    late = keep(_late(spark, given, again, line, totals.known))
    of_bounds, of_breaches = _tables(given, promised, late)
    return Promises(
        bounds=of_bounds,
        breaches=of_breaches,
        totals=totals.plain,
        late=late,
        rows_again=0 if again is None else again.count(),
    )


class _Line(NamedTuple):
    """How the time of the queues is cut that are looked at."""

    weights: Mapping[str, Sequence[int]]
    windows: Windows
    bucket_ms: int
    cuts: Mapping[str, Cut]


class _Totals(NamedTuple):
    # By window: of what never moved, as it was known and as it is now; and of all.
    known: Any
    plain: pyarrow.Table
    every: Any


def _totals(given: SignalsInput, windows: Windows) -> _Totals:
    new = totals(given.steps, windows.size_ms, "moves").toArrow().to_pandas()
    state = given.start.known
    known = state.tables[TOTALS].to_pandas() if state else new[:0].drop(columns="moves")
    every = pandas.concat([known, new.drop(columns="moves")])
    plain = pandas.concat([known, new[~new["moves"].astype(bool)].drop(columns="moves")])
    sums = dict.fromkeys(_SUMS[3:], "sum")
    plain = plain.groupby(_SUMS[:3], as_index=False).agg({**sums, "since_ms": "min"})
    kinds = [("queue", pyarrow.string()), ("tier", pyarrow.int32())]
    kinds += [(name, pyarrow.int64()) for name in (*_SUMS[2:], "since_ms")]
    return _Totals(known, pyarrow.Table.from_pandas(plain, pyarrow.schema(kinds), preserve_index=False), every)


def _cuts(touched: Mapping[str, int], totals: _Totals, windows: Windows) -> dict[str, Cut]:
    # Where both a window and a bucket begin: one of them is of whole ones of the other.
    unit_ms = max(windows.size_ms, bucket_ms_of(windows))
    found = {}
    for queue, at_ms in touched.items():
        every = totals.every
        # Messages that left the line since then are judged; all rows are needed from when those came.
        left = every[(every["queue"] == queue) & (every["bucket"] >= at_ms // windows.size_ms)]["since_ms"].dropna()
        first_ms = min(at_ms, int(left.min())) if len(left) else at_ms
        found[queue] = Cut(first_ms // unit_ms * unit_ms, at_ms)
    return found


def _again(spark: SparkSession, given: SignalsInput, cuts: Mapping[str, Cut]) -> DataFrame | None:
    """Stays that are known and were in a line when something new came; None if there are none."""
    begins: dict[str, int] = {}
    for row in given.start.known.tables[SEEN].to_pylist() if given.start.known else ():
        if cut := cuts.get(row["queue"]):
            begin_ms = cut.whole_from_ms - row["behind_ms"]
            if begin_ms <= row["last_ms"]:
                begins[row["queue"]] = min(begin_ms, begins.get(row["queue"], begin_ms))
    return read_again(spark, given, sorted(begins), min(begins.values())) if begins else None


def _late(spark: SparkSession, given: SignalsInput, again: DataFrame | None, line: _Line, known: Any) -> DataFrame:
    """All breaches: those that are known and stay, and those that are found now."""
    was = given.start.table(spark, LATE, _LATE)
    if not line.cuts:
        return was
    cuts = spark.createDataFrame([(queue, *cut) for queue, cut in line.cuts.items()], _CUTS)
    steps = given.steps if again is None else given.steps.unionByName(again)
    steps = steps.where(f.col("queue").isin(list(line.cuts)))
    new = totals(steps, line.bucket_ms, cuts=cuts).toArrow().to_pandas()[_SUMS]
    summed = _from_cuts(pandas.concat([new, _until_cuts(known, line)]), line)
    lines = before(summed, {queue: line.weights[queue] for queue in line.cuts}, line.bucket_ms)
    found = _named(breaches(steps, lines, cuts=cuts), given)
    stays = f.col("judged_from_ms").isNull() | (f.col("received_ms") < f.col("judged_from_ms"))
    return found.union(was.join(f.broadcast(cuts), "queue", "left").where(stays).select(*found.columns))


def _until_cuts(known: Any, line: _Line) -> Any:
    """The sums of the state, up to where all rows are there."""
    ends = known["queue"].map({queue: cut.whole_from_ms for queue, cut in line.cuts.items()})
    # A queue that is not looked at has no end, and nothing is less than that.
    rows = known[known["bucket"] * line.windows.size_ms < ends][_SUMS]
    return rows.assign(bucket=rows["bucket"] * line.windows.size_ms // line.bucket_ms)


def _from_cuts(summed: Any, line: _Line) -> pyarrow.Table:
    """What was before all rows are there is one number, in the bucket before."""
    first = summed["queue"].map({queue: cut.whole_from_ms // line.bucket_ms - 1 for queue, cut in line.cuts.items()})
    clipped = summed.assign(bucket=summed["bucket"].clip(lower=first))
    kinds = [("queue", pyarrow.string()), *((name, pyarrow.int64()) for name in _SUMS[1:])]
    return pyarrow.Table.from_pandas(clipped, pyarrow.schema(kinds), preserve_index=False)


def _named(late: DataFrame, given: SignalsInput) -> DataFrame:
    """Add ids: at home it is made of the place in the queue, and those that are elsewhere have moved."""
    moved = given.steps.where(f.col("moves")).select("queue_id", "key", f.col("id").alias("own_id"))
    at_home = f.concat_ws("-", f.lower(f.hex("queue_id")), f.lower(f.hex("key")))
    named = late.join(moved, ["queue_id", "key"], "left").withColumn("id", f.coalesce("own_id", at_home))
    return named.select(*(each.split()[0] for each in _LATE.split(", ")))


def _tables(
    given: SignalsInput, promised: Mapping[str, Sharing], late: DataFrame
) -> tuple[pyarrow.Table, pyarrow.Table]:
    excess = (f.col("leases") / f.col("bound")).alias("times_bound")
    by_tier = late.groupBy("queue", "tier").agg(f.count("*").alias("breaches"), f.max(excess).alias("worst"))
    told = {(row.queue, row.tier): row for row in by_tier.collect()}
    rows = []
    for seen in given.seen:
        at, found = (seen["queue"], seen["tier"]), promised[seen["queue"]]
        if seen["checked"]:
            rows.append(
                {
                    "queue": at[0],
                    "tier": at[1],
                    "weight": found.weights[at[1]],
                    "weights_total": sum(found.weights),
                    "weights_from": found.source,
                    "is_strict": found.is_strict,
                    "checked": 0 if found.is_strict else seen["checked"],
                    "breaches": told[at].breaches if at in told else 0,
                    "times_bound_max": told[at].worst if at in told else None,
                }
            )
    of_bounds = pyarrow.Table.from_pylist(rows, schema=_BOUNDS)
    if not told:
        return of_bounds, _BREACHES.empty_table()
    came, received = (
        f.timestamp_millis("came_ms").alias("came_at"),
        f.timestamp_millis("received_ms").alias("received_at"),
    )
    worst = late.orderBy(f.desc(excess), "queue", "queue_id", "key").limit(WORST)
    listed = worst.select("queue", "tier", "id", came, received, "ahead", "leases", "bound", excess)
    order = [("times_bound", "descending"), ("queue", "ascending"), ("id", "ascending")]
    return of_bounds, listed.toArrow().cast(_BREACHES).sort_by(order)
