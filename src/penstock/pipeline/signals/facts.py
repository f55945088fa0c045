"""What the rows say, added up: the one pass over all of them that every table of the signals comes from.

Each stay is up to seven events. They are counted by window, kind and class of span, once for the tier of the
message and once for its tenant, so that nothing is as large as tiers times tenants:

    came       sent, or moved in                    received   known when it came, or not
    begun      received for the last time           settled    by outcome, known or not, held or not
    wait       came → first received                handling   last received → settled
    total      came → settled

What a message was is in the kind, and not in a column for each claim: so Spark adds up the same few columns for
all of them, and compiles one query. What comes of it has a row for each window and kind, and is finished on the
driver (`signals_counts`, `signals_spans`, `signals`), where nothing has to be compiled.
"""

from enum import IntEnum
from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from penstock.contract.messages import OUTCOMES
from penstock.pipeline.signals.spans import SHARES, class_of
from penstock.pipeline.signals.stays import HANDLED, NO_TENANT

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from penstock.pipeline.signals.windows import Windows


class Kind(IntEnum):
    SENT = 0
    MOVED_IN = 1
    RECEIVED = 2
    # Nobody knows when it came.
    RECEIVED_UNKNOWN = 3
    BEGUN = 4
    WAIT = 5
    HANDLING = 6
    TOTAL = 7
    # And above: 4 · place of the outcome in `OUTCOMES`, 2 if it is known when it came, 1 if it was ever received.
    SETTLED = 16


class By(IntEnum):
    TIER = 0
    TENANT = 1


class Level(IntEnum):
    """Over what was added up, as Spark numbers it: a bit for each of `_KEYS` that is left out."""

    WINDOW = 0b00000
    PART = 0b00010
    QUEUE_WINDOW = 0b00100
    QUEUE = 0b00110
    ALL = 0b10110


SPANS = {"wait": Kind.WAIT, "handling": Kind.HANDLING, "total": Kind.TOTAL}
_KEYS = ("queue", "by", "part", "window", "kind")
# What `added` gives, as Spark takes a schema.
FACTS = (
    "queue STRING, by INT, part INT, window BIGINT, kind INT, class_ms BIGINT, events BIGINT, left_ms BIGINT, "
    "span_ms BIGINT, longest_ms BIGINT, retries BIGINT"
)
_CAME, _RECEIVED, _BEGUN, _SETTLED, _WAIT, _HANDLING, _TOTAL = _EVENTS = range(7)


def facts(steps: "DataFrame", windows: "Windows", *more: str, has_tenants: bool) -> "DataFrame":
    """How many events there are, by queue, tier or tenant, window, kind and class of span, and by ``more`` columns."""
    events = [f.lit(by * len(_EVENTS) + event) for by in range(1 + has_tenants) for event in _EVENTS]
    part = f.when(f.col("by") == By.TIER, f.col("tier"))
    if has_tenants:
        part = part.otherwise(f.col("tenant_rank"))
    every = steps.withColumn("number", f.explode(f.array(*events)))
    placed = (
        every.withColumn("by", f.floor(f.col("number") / len(_EVENTS)).cast("int"))
        .withColumn("event", f.col("number") % len(_EVENTS))
        .select("queue", "by", part.alias("part"), "event", *more, *_columns())
        .where(f.col("at_ms").isNotNull())
        .withColumn("window", windows.number(f.col("at_ms")))
        # A range is chosen by the time of settling: a wait that ended before it is no part of it.
        .where((f.col("event") < _WAIT) | (f.col("window") >= windows.first))
    )
    is_settled = f.col("event") == _SETTLED
    return placed.groupBy(*more, *_KEYS, class_of(f.col("span_ms")).alias("class_ms")).agg(
        f.count("*").alias("events"),
        f.sum(windows.left_ms(f.col("at_ms"))).alias("left_ms"),
        f.sum("span_ms").alias("span_ms"),
        f.max("span_ms").alias("longest_ms"),
        f.sum(f.when(is_settled, f.col("retries")).otherwise(0)).alias("retries"),
    )


def added(facts: "DataFrame") -> "DataFrame":
    """Facts that are told of several times, each in one row."""
    sums = [f.sum(name).alias(name) for name in ("events", "left_ms", "span_ms")]
    longest = f.max("longest_ms").alias("longest_ms")
    return facts.groupBy(*_KEYS, "class_ms").agg(*sums, longest, f.sum("retries").alias("retries"))


def with_ranks(facts: "DataFrame", ranks: "DataFrame", count: int) -> "DataFrame":
    """Give tenants other ranks: ``ranks`` has queue, part and the new rank of those that stay among the first.

    All others are put together as ``count`` + 1; messages of nobody stay what they are.
    """
    is_other = (f.col("by") == By.TENANT) & (f.col("part") != NO_TENANT)
    part = f.when(is_other, f.coalesce("rank", f.lit(count + 1))).otherwise(f.col("part")).alias("part")
    every = [part if name == "part" else f.col(name) for name in facts.columns]
    return facts.join(f.broadcast(ranks), ["queue", "part"], "left").select(*every)


def figures(facts: "DataFrame") -> "DataFrame":
    """The facts of each window, part, queue and of all, with the percentiles of their spans."""
    shares = f.array(*[f.lit(share) for share in SHARES.values()])
    sets = [
        _KEYS,
        ("queue", "by", "part", "kind"),
        ("queue", "by", "window", "kind"),
        ("queue", "by", "kind"),
        ("by", "kind"),
    ]
    # Where there is no class there are no percentiles: null.
    found = f.percentile("class_ms", shares, f.col("events")).alias("shares")
    sums = [f.sum(name).alias(name) for name in ("events", "left_ms", "span_ms", "retries")]
    return facts.groupingSets(sets, *_KEYS).agg(
        f.grouping_id().cast("int").alias("level"), *sums, f.max("longest_ms").alias("longest_ms"), found
    )


def pairs(steps: "DataFrame", windows: "Windows", *more: str) -> "DataFrame":
    """In which windows stays began and ended, and when the first of each pair of windows came; also by ``more``."""
    return (
        steps.where(f.col("came_ms").isNotNull())
        .withColumn("begin", windows.number(f.col("came_ms")))
        .withColumn("end", windows.number(f.col("settled_ms")))
        .where(f.col("begin") < f.col("end"))
        .groupBy("queue", "tier", "begin", "end", *more)
        .agg(f.min("came_ms").alias("came_ms"))
    )


def _columns() -> "list[Column]":
    """Kind, time and span of an event; without a time, it has not happened."""
    is_known, is_held = f.col("came_ms").isNotNull(), f.col("received_ms").isNotNull()
    is_handled = f.col("outcome").isin(*HANDLED)
    outcome = f.array_position(f.lit(list(OUTCOMES)), f.col("outcome")).cast("int") - 1
    settled = Kind.SETTLED + outcome * 4 + is_known.cast("int") * 2 + is_held.cast("int")
    kinds = {
        _CAME: f.when(f.col("is_home"), f.lit(int(Kind.SENT))).otherwise(int(Kind.MOVED_IN)),
        _RECEIVED: f.when(is_known, f.lit(int(Kind.RECEIVED))).otherwise(int(Kind.RECEIVED_UNKNOWN)),
        _BEGUN: f.lit(int(Kind.BEGUN)),
        _SETTLED: settled,
        _WAIT: f.lit(int(Kind.WAIT)),
        _HANDLING: f.lit(int(Kind.HANDLING)),
        _TOTAL: f.lit(int(Kind.TOTAL)),
    }
    times = {
        _CAME: f.col("came_ms"),
        _RECEIVED: f.col("received_ms"),
        _BEGUN: f.when(is_handled & is_held, f.col("last_ms")),
        _SETTLED: f.col("settled_ms"),
        _WAIT: f.when(is_known, f.col("received_ms")),
        _HANDLING: f.when(is_handled & f.col("last_ms").isNotNull(), f.col("settled_ms")),
        _TOTAL: f.when(is_handled & is_known, f.col("settled_ms")),
    }
    spans = {
        _WAIT: f.col("received_ms") - f.col("came_ms"),
        _HANDLING: f.col("settled_ms") - f.col("last_ms"),
        _TOTAL: f.col("settled_ms") - f.col("came_ms"),
    }
    # Clocks of two machines may differ: nothing takes less than no time.
    span_ms = f.when(f.col("event") >= _WAIT, f.greatest(_of_event(spans), f.lit(0)))
    return [
        _of_event(kinds).alias("kind"),
        _of_event(times).alias("at_ms"),
        span_ms.alias("span_ms"),
        f.col("retries"),
    ]


def _of_event(columns: "dict[int, Column]") -> "Column":
    (first, column), *more = columns.items()
    chosen = f.when(f.col("event") == first, column)
    for event, other in more:
        chosen = chosen.when(f.col("event") == event, other)
    return chosen
