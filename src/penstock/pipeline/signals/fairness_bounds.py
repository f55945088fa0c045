"""The tables `bounds` and `breaches`: who was served later than the weights promise.

Whether a message was depends on others: on those that were in line before it, and they may be settled much later. So a
new row can change what was told of the past, but only from the moment on at which it came (`Given.touched`):

    whole from        judged from                                    now
        │                 │                                           │
    ────┴─────────────────┴───────────────────────────────────────────▶  the time of a queue
    totals of the state   │  rows, read again if they are not new
    breaches of the state ┘  judged anew

Messages that left the line before the second moment are judged already. Those that left it later have come since the
first one; who was in line then is known from sums. Both moments are different for each queue, and a queue of which
nothing is new is not looked at.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import pandas  # type: ignore[import-untyped]
import pyarrow  # type: ignore[import-untyped]
from pyspark.sql import functions as f

from penstock.pipeline.signals import bounds
from penstock.pipeline.signals.inputs import SEEN, Given, Keep, read_again
from penstock.pipeline.signals.lines import before
from penstock.pipeline.signals.windows import Windows
from penstock.pipeline.weights import Sharing

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

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
    late: "DataFrame"
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
    spark: "SparkSession", given: Given, windows: Windows, promised: Mapping[str, Sharing], keep: Keep
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


def _totals(given: Given, windows: Windows) -> _Totals:
    new = bounds.totals(given.steps, windows.size_ms, "moves").toArrow().to_pandas()
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
        # Whoever left the line since then is judged; since when they were in it, all rows are needed.
        left = every[(every["queue"] == queue) & (every["bucket"] >= at_ms // windows.size_ms)]["since_ms"].dropna()
        first_ms = min(at_ms, int(left.min())) if len(left) else at_ms
        found[queue] = Cut(first_ms // unit_ms * unit_ms, at_ms)
    return found


def _again(spark: "SparkSession", given: Given, cuts: Mapping[str, Cut]) -> "DataFrame | None":
    """Stays that are known and were in a line when something new came; None if there are none."""
    begins: dict[str, int] = {}
    for row in given.start.known.tables[SEEN].to_pylist() if given.start.known else ():
        if cut := cuts.get(row["queue"]):
            begin_ms = cut.whole_from_ms - row["behind_ms"]
            if begin_ms <= row["last_ms"]:
                begins[row["queue"]] = min(begin_ms, begins.get(row["queue"], begin_ms))
    return read_again(spark, given, sorted(begins), min(begins.values())) if begins else None


def _late(spark: "SparkSession", given: Given, again: "DataFrame | None", line: _Line, known: Any) -> "DataFrame":
    """All breaches: those that are known and stay, and those that are found now."""
    was = given.start.table(spark, LATE, _LATE)
    if not line.cuts:
        return was
    cuts = spark.createDataFrame([(queue, *cut) for queue, cut in line.cuts.items()], _CUTS)
    steps = given.steps if again is None else given.steps.unionByName(again)
    steps = steps.where(f.col("queue").isin(list(line.cuts)))
    new = bounds.totals(steps, line.bucket_ms, cuts=cuts).toArrow().to_pandas()[_SUMS]
    summed = _from_cuts(pandas.concat([new, _until_cuts(known, line)]), line)
    lines = before(summed, {queue: line.weights[queue] for queue in line.cuts}, line.bucket_ms)
    found = _named(bounds.breaches(steps, lines, cuts=cuts), given)
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


def _named(late: "DataFrame", given: Given) -> "DataFrame":
    """Add ids: at home it is made of the place in the queue, and those that are elsewhere have moved."""
    moved = given.steps.where(f.col("moves")).select("queue_id", "key", f.col("id").alias("own_id"))
    at_home = f.concat_ws("-", f.lower(f.hex("queue_id")), f.lower(f.hex("key")))
    named = late.join(moved, ["queue_id", "key"], "left").withColumn("id", f.coalesce("own_id", at_home))
    return named.select(*(each.split()[0] for each in _LATE.split(", ")))


def _tables(given: Given, promised: Mapping[str, Sharing], late: "DataFrame") -> tuple[pyarrow.Table, pyarrow.Table]:
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
