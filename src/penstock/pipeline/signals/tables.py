"""The tables of traffic, latency, errors and saturation, and what of them is kept for the next run.

    state: facts ─┐
    new stays ────┼─▶ facts ─▶ figures ─▶ tables
    moved stays ──┘

The columns of a table, in order, are the contract of `docs/reference/signals.md`.

Facts are sums by window, so those of the state and those of new stays are added. One answer of Spark
(`counts.figures`) holds all levels, and each table is made of some of its rows. Tenants are told apart by rank, and
ranks change. So more of them are kept apart than are shown, as *candidates*. The facts of a candidate that is not
among the first are put with the others only when tables are made.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy
import pandas  # type: ignore[import-untyped]
import pyarrow  # type: ignore[import-untyped]
import pyarrow.compute  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from penstock.pipeline.incremental import kept
from penstock.pipeline.signals import counts, stays
from penstock.pipeline.signals import counts as counting
from penstock.pipeline.signals import counts as facts
from penstock.pipeline.signals.counts import COUNTED, MEASURES, SPANS, By, Level, Windows, span_names
from penstock.pipeline.signals.inputs import Keep, SignalsInput, StateMismatch

RATES = ("sent", "moved_in", "received", "settled")
LEVELS = ("depth", "waiting", "in_flight_min", "in_flight_max")
_KINDS = {
    **dict.fromkeys(("queue", "tenant"), pyarrow.string()),
    **dict.fromkeys(("tier", "tenant_rank"), pyarrow.int32()),
    **dict.fromkeys((*COUNTED, *LEVELS, "depth_max", "oldest_age_ms", "others_received"), pyarrow.int64()),
    **dict.fromkeys((f"{measure}_ms_max" for measure in MEASURES), pyarrow.int64()),
    "is_others": pyarrow.bool_(),
    "window_start": pyarrow.timestamp("us", "UTC"),
}


def of_windows(levels: Any, spans: Any, keys: Sequence[str], windows: Windows) -> Any:
    """One row for each of ``keys`` and window: traffic, errors, latency and saturation."""
    size_s = windows.size_ms / 1_000
    whole = levels.merge(spans, on=[*keys, "window"], how="left")
    busy_mean = whole["busy_before"] + whole["busy_left"] / windows.size_ms
    busiest = busy_mean.groupby([whole[key] for key in keys]).transform("max")
    start_ms = whole["window"] * windows.size_ms
    made = whole.assign(
        window_start=start_ms * 1_000,
        window_s=size_s,
        **{f"{name}_per_s": whole[name] / size_s for name in RATES},
        dead_letter_rate=_rate(whole, "buried"),
        depth_mean=whole["depth_before"] + whole["depth_left"] / windows.size_ms,
        busy_mean=busy_mean,
        utilisation=(busy_mean / busiest).where(busiest > 0),
    )
    columns = [*keys, "window_start", "window_s", *_traffic(), *LEVELS, "depth_mean", "busy_mean", "utilisation"]
    if "oldest_ms" in whole.columns:
        made["oldest_age_ms"] = start_ms + windows.size_ms - whole["oldest_ms"]
        columns.append("oldest_age_ms")
    return made[columns]


def of_range(levels: Any, spans: Any, keys: Sequence[str], windows: Windows) -> Any:
    """One row for each of ``keys``: the whole range in figures."""
    range_ms = windows.size_ms * windows.count
    seconds = range_ms / 1_000
    busy_mean = levels["busy_before"] + levels["busy_left"] / windows.size_ms
    by_keys = levels.assign(busy=busy_mean).groupby(list(keys), as_index=False)
    summed = by_keys[[*COUNTED, "busy_before", "busy_left"]].sum()
    # Of whole numbers: a sum of fractions would depend on the order in which they are added.
    busy_ms = summed["busy_before"] * windows.size_ms + summed["busy_left"]
    whole = summed.assign(
        depth_max=by_keys["depth"].max()["depth"],
        busy_mean=busy_ms / range_ms,
        busy_mean_max=by_keys["busy"].max()["busy"],
        **{f"{name}_per_s": summed[name] / seconds for name in RATES},
        dead_letter_rate=_rate(summed, "buried"),
    ).merge(spans, on=list(keys), how="left")
    return whole[[*keys, *_traffic(), "depth_max", "busy_mean", "busy_mean_max"]]


def with_tenant_names(table: Any, top: Any, count: int) -> Any:
    """Give ranks their names: null for messages without a tenant, and for all others beyond the top."""
    named = table.merge(top[["queue", "tenant_rank", "tenant"]], on=["queue", "tenant_rank"], how="left")
    named["is_others"] = named["tenant_rank"] > count
    rest = [name for name in table.columns if name not in {"queue", "tenant_rank"}]
    return named[["queue", "tenant_rank", "tenant", "is_others", *rest]]


def as_arrow(frame: Any) -> pyarrow.Table:
    """The rows in the order of their keys, with the kinds of the contract: the same rows are the same file."""
    keys = [name for name in ("queue", "tier", "tenant_rank", "window_start") if name in frame.columns]
    ordered = frame.sort_values(keys) if keys else frame
    kinds = [(name, _KINDS.get(name, pyarrow.float64())) for name in ordered.columns]
    arrays = [pyarrow.array(ordered[name], kind, from_pandas=True) for name, kind in kinds]
    return pyarrow.Table.from_arrays(arrays, schema=pyarrow.schema(kinds))


def _traffic() -> list[str]:
    return [*COUNTED, *(f"{name}_per_s" for name in RATES), "dead_letter_rate", *span_names()]


def _rate(whole: Any, name: str) -> Any:
    return whole[name] / whole["settled"].where(whole["settled"] > 0, numpy.nan)


def starved(filled: Any, together: Any) -> Any:
    """The windows in which messages of a tier waited from the first moment to the last, others were received, and
    none of them was."""
    others = together.loc[together["received"] > 0, ["queue", "window", "received"]]
    # None was received, so what waits at the start and at the end, without a gap between, is the same message.
    gone = filled["called"] - filled["received"]
    waited = filled[(filled["received"] == 0) & (filled["waiting_before"] - gone > 0)]
    found = waited[["queue", "tier", "window", "waiting"]].merge(others, on=["queue", "window"])
    return found.rename(columns={"received": "others_received"})


NAMES = {By.TIER: "tier", By.TENANT: "tenant_rank"}


@dataclass(frozen=True, slots=True)
class Figures:
    rows: Any
    windows: Windows

    def levels(self, by: By) -> Any:
        """What happened in each window of each tier or tenant, and what was there at its end."""
        name = NAMES[by]
        return counts.filled(counts.counts(self._of(by, Level.WINDOW), name), name, self.windows)

    def of_all(self) -> Any:
        return self._spans(By.TIER, Level.ALL, "by").drop(columns="by")

    def of_queues(self, queues: Any) -> Any:
        """One row for each queue; ``queues`` are the levels of tiers, put together."""
        return of_range(queues, self._spans(By.TIER, Level.QUEUE, "queue"), ["queue"], self.windows)

    def of_queue_windows(self, queues: Any) -> Any:
        found = self._spans(By.TIER, Level.QUEUE_WINDOW, "queue", "window")
        return of_windows(queues, found, ["queue"], self.windows)

    def of_parts(self, by: By, levels: Any) -> Any:
        """One row for each tier or tenant of a queue."""
        found = self._spans(by, Level.PART, "queue", "part").rename(columns={"part": NAMES[by]})
        return of_range(levels, found, ["queue", NAMES[by]], self.windows)

    def of_part_windows(self, by: By, levels: Any) -> Any:
        found = self._spans(by, Level.WINDOW, "queue", "part", "window").rename(columns={"part": NAMES[by]})
        return of_windows(levels, found, ["queue", NAMES[by]], self.windows)

    def _spans(self, by: By, level: Level, *keys: str) -> Any:
        return counts.percentiles(self._of(by, level), SPANS, keys)

    def _of(self, by: By, level: Level) -> Any:
        return self.rows[(self.rows["by"] == by) & (self.rows["level"] == level)]


def figures_of(table: pyarrow.Table, windows: Windows) -> Figures:
    """Take what Spark answered; each percentile gets a column of its own."""
    for at, word in enumerate(counts.SHARES):
        table = table.append_column(word, pyarrow.compute.list_element(table["shares"], at))
    return Figures(table.drop_columns("shares").to_pandas(), windows)


FACTS, PAIRS, TENANTS, CANDIDATES = "facts", "pairs", "tenants", "candidates"
# This many times as many tenants are kept as are shown.
_CANDIDATES = 3
# The number of all that are not, far behind those that have one.
_OTHERS = 2**31 - 1
_TENANTS = "queue STRING, tenant STRING, messages BIGINT"
_TOP = pyarrow.schema([("queue", pyarrow.string()), ("tenant", pyarrow.string()), ("tenant_rank", pyarrow.int32())])
_PAIRS = pyarrow.schema(
    [("queue", pyarrow.string()), ("tier", pyarrow.int32())]
    + [(name, pyarrow.int64()) for name in ("begin", "end", "came_ms")]
)

Tables = dict[str, Any]


def golden_signals(
    spark: SparkSession, given: SignalsInput, windows: Windows, tenants: int, keep: Keep
) -> tuple[Tables, Tables]:
    """Return the tables, and the tables of the state; of the latter, None for what is too much to keep."""
    top, state = _tenants(spark, given, tenants, keep)
    steps = given.steps
    if top is not None:
        ranked = spark.createDataFrame(state[CANDIDATES])
        steps = stays.with_rank(steps, ranked, _OTHERS - 1)
    new = keep(facts.facts(steps, windows, "moves", has_tenants=top is not None))
    known = given.start.table(spark, FACTS, facts.FACTS)
    every = known.union(new.select(*known.columns))
    if top is not None:
        every = facts.with_ranks(every, spark.createDataFrame(_ranks(top, state[CANDIDATES])), tenants)
    figures = figures_of(facts.figures(every).toArrow(), windows)
    state[FACTS] = kept(facts.added(known.union(new.where("NOT moves").select(*known.columns))))
    ages, state[PAIRS] = _ages(given, windows)
    return {name: as_arrow(frame) for name, frame in _made(figures, ages, windows, top, tenants).items()}, state


def _tenants(spark: SparkSession, given: SignalsInput, tenants: int, keep: Keep) -> tuple[Any, Tables]:
    """Return the tenants that are shown, as pandas has them, None if there are none; and what is kept of all."""
    if not given.has_tenants:
        return None, {TENANTS: spark.createDataFrame([], _TENANTS).toArrow(), CANDIDATES: _TOP.empty_table()}
    counts = keep(stays.tenant_counts(given.steps, "moves"))
    before = given.start.table(spark, TENANTS, _TENANTS)
    largest = stays.top_tenants(before.union(counts.select(*before.columns)), tenants * _CANDIDATES)
    found = largest.toArrow().to_pandas()
    top = found[found["tenant_rank"] <= tenants]
    candidates = _candidates(found, given)
    if len(top.merge(candidates, on=["queue", "tenant"])) < len(top):
        raise StateMismatch("a tenant is among the largest now that was not near them then")
    plain = before.union(counts.where("NOT moves").select(*before.columns))
    summed = plain.groupBy("queue", "tenant").agg({"messages": "sum"}).toDF(*before.columns)
    kept_candidates = pyarrow.Table.from_pandas(candidates, _TOP, preserve_index=False)
    return top, {TENANTS: kept(summed), CANDIDATES: kept_candidates}


def _candidates(largest: Any, given: SignalsInput) -> Any:
    """The tenants whose facts are kept apart: those of before, and those that are large now and were not there then."""
    if given.start.known is None:
        return largest[_TOP.names]
    known = given.start.known.tables[CANDIDATES].to_pandas()
    there = given.start.known.tables[TENANTS].to_pandas()[["queue", "tenant"]]
    both = largest.merge(pandas.concat([there, known[["queue", "tenant"]]]).drop_duplicates(), "left", indicator="was")
    fresh = both[both["was"] == "left_only"]
    # Behind the numbers that are taken.
    number = fresh["tenant_rank"] + int(known["tenant_rank"].max() if len(known) else 0)
    return pandas.concat([known, fresh.assign(tenant_rank=number)[_TOP.names]])


def _ranks(top: Any, candidates: pyarrow.Table) -> Any:
    """Which rank a candidate has that is shown: queue, part, rank."""
    both = candidates.to_pandas().merge(top, on=["queue", "tenant"], suffixes=("", "_now"))
    ranks = both.rename(columns={"tenant_rank": "part", "tenant_rank_now": "rank"})[["queue", "part", "rank"]]
    return ranks.astype({"part": "int32", "rank": "int32"})


def _ages(given: SignalsInput, windows: Windows) -> tuple[Any, pyarrow.Table]:
    """When the oldest of each window came, and what is kept to tell it again."""
    new = facts.pairs(given.steps, windows, "moves").toArrow().to_pandas()
    known = given.start.known.tables[PAIRS].to_pandas() if given.start.known else new[:0]
    every = pandas.concat([known[_PAIRS.names], new[_PAIRS.names]])
    plain = pandas.concat([known[_PAIRS.names], new[~new["moves"].astype(bool)][_PAIRS.names]])
    plain = plain.groupby(_PAIRS.names[:-1], as_index=False)["came_ms"].min()
    kept_pairs = pyarrow.Table.from_pandas(plain, _PAIRS, preserve_index=False)
    return counting.oldest(every.reset_index(drop=True), windows), kept_pairs


def _made(figures: Figures, ages: Any, windows: Windows, top: Any, tenants: int) -> Tables:
    tiers = figures.levels(By.TIER)
    queues = counting.together(tiers)
    oldest = ages.groupby(["queue", "window"], as_index=False)["oldest_ms"].min()
    starvation = starved(tiers, queues)
    starvation["window_start"] = starvation["window"] * windows.size_ms * 1_000
    found = {
        "range": figures.of_all(),
        "queues": figures.of_queues(queues),
        "queue_windows": figures.of_queue_windows(queues.merge(oldest, on=["queue", "window"], how="left")),
        "tiers": figures.of_parts(By.TIER, tiers),
        "tier_windows": figures.of_part_windows(By.TIER, tiers.merge(ages, on=["queue", "tier", "window"], how="left")),
        "starvation": starvation[["queue", "tier", "window_start", "waiting", "others_received"]],
    }
    if top is not None:
        levels = figures.levels(By.TENANT)
        for name, made in (("tenants", figures.of_parts), ("tenant_windows", figures.of_part_windows)):
            found[name] = with_tenant_names(made(By.TENANT, levels), top, tenants)
    return found
