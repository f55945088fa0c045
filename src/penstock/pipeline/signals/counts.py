"""What happened in each window of time, as numbers that can be added: over tiers, over tenants, over queues.

One pass over all rows gives the facts that every table of the signals is made of. Each stay is up to seven events.
Spark counts them by window, kind and class of span, once for the tier of the message and once for its tenant, so that
nothing is as large as tiers times tenants:

    came       sent, or moved in                    received   known when it came, or not
    begun      received for the last time           settled    by outcome, known or not, held or not
    wait       came → first received                in the window in which it was received
    handling   last received → settled              acked and buried only, in the window in which it was settled
    total      came → settled                       the same

What a message was is in the kind, and not in a column for each claim. So Spark adds up the same few columns for all
of them and compiles one query. The result has a row for each window and kind. The driver finishes it with pandas,
where nothing has to be compiled.

Spans are whole milliseconds. Below 128 ms they count as they are. Above, there are 64 classes for each doubling, and
a class counts as its middle. So a percentile is within 0.8 % of the exact one (linear between neighbours, as numpy
has it); mean and maximum are exact. Unlike sketches, classes do not depend on how the rows were dealt to the
machines: the same rows give the same report. Classes of tiers and windows add up to those of the queue, so the rows
are read once for all.

Levels (how many are there) are sums of what came and went. Of each event the time from it to the end of its window is
counted too. So a level's mean over a window is exact, and no row is ever sorted for it:

    level at the end  = level at the start + came − went
    mean              = level at the start + (time left of those that came − of those that went) / window

What lies before the first window is counted into one more window before it: it was there at the start.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy
import pandas  # type: ignore[import-untyped]
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from penstock.contract.messages import OUTCOMES
from penstock.pipeline.signals.stays import HANDLED, NO_TENANT


@dataclass(frozen=True, slots=True)
class Windows:
    """Windows of one size, by number: window n begins n · size after 1970. Both ends are meant."""

    size_ms: int
    first: int
    last: int

    @property
    def count(self) -> int:
        return self.last - self.first + 1

    def number(self, at_ms: Column) -> Column:
        """In which window a moment is; one before the first stands for all before."""
        return f.greatest(f.floor(at_ms / self.size_ms), f.lit(self.first - 1))

    def left_ms(self, at_ms: Column) -> Column:
        return self.size_ms - f.pmod(at_ms, f.lit(self.size_ms))


MEASURES = ("wait", "handling", "total")
SHARES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
EXACT_MS = 128
_CLASSES_PER_DOUBLING = 64


def class_of(span_ms: Column) -> Column:
    """The middle of the class of a span, rounded down; spans below `EXACT_MS` are their own."""
    doublings = f.floor(f.log2(f.greatest(span_ms, f.lit(1)) / _CLASSES_PER_DOUBLING))
    width = f.pow(f.lit(2), doublings).cast("bigint")
    middle = span_ms - span_ms % width + f.floor(width / 2)
    return f.when(span_ms < EXACT_MS, span_ms).otherwise(middle)


def span_names() -> list[str]:
    """The columns of percentiles, in order."""
    return [f"{measure}_ms_{word}" for measure in MEASURES for word in (*SHARES, "max", "mean")]


def percentiles(figures: Any, kinds: Mapping[str, int], keys: Sequence[str]) -> Any:
    """Percentiles, mean and maximum of each measure, by ``keys``; null where there is no span.

    ``figures`` are those of one level, as pandas has them; ``kinds`` is the kind of each measure.
    """
    by_measure = [_spans_of(figures[figures["kind"] == kinds[measure]], measure, keys) for measure in MEASURES]
    whole = by_measure[0]
    for other in by_measure[1:]:
        whole = whole.merge(other, on=list(keys), how="outer")
    return whole


def _spans_of(rows: Any, measure: str, keys: Sequence[str]) -> Any:
    """A percentile is never above the greatest: the middle of a class may be."""
    made = rows[list(keys)].copy()
    for word in SHARES:
        made[f"{measure}_ms_{word}"] = numpy.minimum(rows[word], rows["longest_ms"])
    made[f"{measure}_ms_max"] = rows["longest_ms"]
    made[f"{measure}_ms_mean"] = rows["span_ms"] / rows["events"]
    return made


class Kind(IntEnum):
    SENT = 0
    MOVED_IN = 1
    RECEIVED = 2
    # Its arrival is not known.
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


def facts(steps: DataFrame, windows: Windows, *more: str, has_tenants: bool) -> DataFrame:
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


def added(facts: DataFrame) -> DataFrame:
    """Add up facts that have several rows, one row for each."""
    sums = [f.sum(name).alias(name) for name in ("events", "left_ms", "span_ms")]
    longest = f.max("longest_ms").alias("longest_ms")
    return facts.groupBy(*_KEYS, "class_ms").agg(*sums, longest, f.sum("retries").alias("retries"))


def with_ranks(facts: DataFrame, ranks: DataFrame, count: int) -> DataFrame:
    """Give tenants other ranks: ``ranks`` has queue, part and the new rank of those that stay among the first.

    All others are put together as ``count`` + 1; messages without a tenant stay what they are.
    """
    is_other = (f.col("by") == By.TENANT) & (f.col("part") != NO_TENANT)
    part = f.when(is_other, f.coalesce("rank", f.lit(count + 1))).otherwise(f.col("part")).alias("part")
    every = [part if name == "part" else f.col(name) for name in facts.columns]
    return facts.join(f.broadcast(ranks), ["queue", "part"], "left").select(*every)


def figures(facts: DataFrame) -> DataFrame:
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


def pairs(steps: DataFrame, windows: Windows, *more: str) -> DataFrame:
    """In which windows stays began and ended, and when the first of each pair of windows came; also by ``more``."""
    return (
        steps.where(f.col("came_ms").isNotNull())
        .withColumn("begin", windows.number(f.col("came_ms")))
        .withColumn("end", windows.number(f.col("settled_ms")))
        .where(f.col("begin") < f.col("end"))
        .groupBy("queue", "tier", "begin", "end", *more)
        .agg(f.min("came_ms").alias("came_ms"))
    )


def _columns() -> list[Column]:
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


def _of_event(columns: dict[int, Column]) -> Column:
    (first, column), *more = columns.items()
    chosen = f.when(f.col("event") == first, column)
    for event, other in more:
        chosen = chosen.when(f.col("event") == event, other)
    return chosen


# Events of each window.
COUNTED = ("sent", "moved_in", "received", "settled", *OUTCOMES, "retries", "unknown_arrivals")
# What levels are made of; `…_left` is the time left of the window, in milliseconds, summed.
_MOVING = (
    *("came", "came_left", "gone", "gone_left", "called", "begun", "begun_left", "ended", "ended_left"),
    *("held", "freed"),
)


def counts(figures: Any, by: str) -> Any:
    """What happened, by queue, ``by`` and window: a column for each of `COUNTED`, and for what levels are made of."""
    claims = _claims(figures["kind"].to_numpy())
    events, left_ms = figures["events"].to_numpy(), figures["left_ms"].to_numpy()
    made = {"queue": figures["queue"], by: figures["part"], "window": figures["window"]}
    made |= {name: numpy.where(claim, events, 0) for name, claim in claims.items()}
    made |= {
        f"{name}_left": numpy.where(claim, left_ms, 0) for name, claim in claims.items() if f"{name}_left" in _MOVING
    }
    made["retries"] = figures["retries"]
    return pandas.DataFrame(made).groupby(["queue", by, "window"], as_index=False).sum()


def filled(counted: Any, by: str, windows: Windows) -> Any:
    """For each queue and ``by`` all windows, also those in which nothing happened, with the levels at their ends."""
    keys = ["queue", by, "window"]
    parts = counted[["queue", by]].drop_duplicates()
    every = numpy.arange(windows.first - 1, windows.last + 1)
    grid = parts.loc[parts.index.repeat(len(every))].assign(window=numpy.tile(every, len(parts)))
    whole = counted.set_index(keys)[[*COUNTED, *_MOVING]].reindex(pandas.MultiIndex.from_frame(grid), fill_value=0)
    leveled = _levels(whole.reset_index(), ["queue", by])
    return leveled[leveled["window"] >= windows.first].reset_index(drop=True)


def together(filled: Any) -> Any:
    """The same for whole queues: everything here can be added."""
    return filled.drop(columns="tier").groupby(["queue", "window"], as_index=False).sum()


def oldest(pairs: Any, windows: Windows) -> Any:
    """When the oldest message came that was in the queue at the end of a window, by queue, tier and window.

    Pairs of windows in the order of coming: each answers for the windows that no older one reaches, so each window
    is told once.
    """
    ordered = pairs.sort_values(["queue", "tier", "came_ms", "end"], ascending=[True, True, True, False])
    lines = ordered.groupby(["queue", "tier"])
    told = ordered.assign(reached=lines["end"].cummax()).groupby(["queue", "tier"])["reached"].shift(1)
    first = numpy.maximum(ordered["begin"], told.fillna(windows.first).astype("int64")).clip(lower=windows.first)
    is_told = first < ordered["end"]
    ordered, first = ordered[is_told], first[is_told].to_numpy()
    spread = ordered["end"].to_numpy() - first
    # The windows of each pair, one after another: how far each row is from the first of its pair.
    behind = numpy.arange(spread.sum()) - numpy.repeat(numpy.cumsum(spread) - spread, spread)
    rows = ordered.loc[ordered.index.repeat(spread), ["queue", "tier", "came_ms"]].reset_index(drop=True)
    return rows.rename(columns={"came_ms": "oldest_ms"}).assign(window=numpy.repeat(first, spread) + behind)


def _claims(kind: Any) -> dict[str, Any]:
    """Of which events each column is the number."""
    is_settled = kind >= Kind.SETTLED
    outcome, is_known, is_held = (kind - Kind.SETTLED) // 4, is_settled & (kind & 2 > 0), is_settled & (kind & 1 > 0)
    is_received = (kind == Kind.RECEIVED) | (kind == Kind.RECEIVED_UNKNOWN)
    is_handled = numpy.isin(outcome, [OUTCOMES.index(each) for each in HANDLED])
    return {
        "sent": kind == Kind.SENT,
        "moved_in": kind == Kind.MOVED_IN,
        "received": is_received,
        "settled": is_settled,
        **{each: is_settled & (outcome == at) for at, each in enumerate(OUTCOMES)},
        "unknown_arrivals": is_settled & ~is_known,
        "came": (kind == Kind.SENT) | (kind == Kind.MOVED_IN),
        "gone": is_known,
        # Those that left without ever having been received have waited until then.
        "called": (kind == Kind.RECEIVED) | (is_known & ~is_held),
        "begun": kind == Kind.BEGUN,
        "ended": is_held & is_handled,
        "held": is_received,
        "freed": is_held,
    }


def _levels(whole: Any, keys: list[str]) -> Any:
    lines = [whole[key] for key in keys]

    def level(plus: str, minus: str) -> Any:
        return (whole[plus] - whole[minus]).groupby(lines).cumsum()

    depth, waiting, busy = level("came", "gone"), level("came", "called"), level("begun", "ended")
    return whole.assign(
        depth=depth,
        waiting=waiting,
        in_flight_max=level("held", "freed"),
        in_flight_min=busy,
        # At the start, and what was added over the window.
        depth_before=depth - whole["came"] + whole["gone"],
        waiting_before=waiting - whole["came"] + whole["called"],
        busy_before=busy - whole["begun"] + whole["ended"],
        depth_left=whole["came_left"] - whole["gone_left"],
        busy_left=whole["begun_left"] - whole["ended_left"],
    )
