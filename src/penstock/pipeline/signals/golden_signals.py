"""The tables of traffic, latency, errors and saturation, and what of them is kept for the next run.

    state: facts ─┐
    new stays ────┼─▶ facts ─▶ figures ─▶ tables
    moved stays ──┘

Facts are sums by window, so those of the state and those of new stays are added. Tenants are told apart by rank, and
ranks change: more of them are kept apart than are told, as *candidates*, and the facts of a candidate that is
not among the first are put with the others only when tables are made.
"""

from typing import TYPE_CHECKING, Any

import pandas  # type: ignore[import-untyped]
import pyarrow  # type: ignore[import-untyped]

from penstock.pipeline.signals import bounds, facts, stays, tables
from penstock.pipeline.signals import counts as counting
from penstock.pipeline.signals.facts import By
from penstock.pipeline.signals.figures import Figures, figures_of
from penstock.pipeline.signals.inputs import Given, Keep, Unfit
from penstock.pipeline.signals.windows import Windows
from penstock.pipeline.states import kept

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FACTS, PAIRS, TENANTS, CANDIDATES = "facts", "pairs", "tenants", "candidates"
# So many times as many tenants are kept apart as are told apart.
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


def golden(spark: "SparkSession", given: Given, windows: Windows, tenants: int, keep: Keep) -> tuple[Tables, Tables]:
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
    return {name: tables.as_arrow(frame) for name, frame in _made(figures, ages, windows, top, tenants).items()}, state


def _tenants(spark: "SparkSession", given: Given, tenants: int, keep: Keep) -> tuple[Any, Tables]:
    """Return the tenants that are told apart, as pandas has them, None if there are none; and what is kept of all."""
    if not given.has_tenants:
        return None, {TENANTS: _nothing(_TENANTS, spark), CANDIDATES: _TOP.empty_table()}
    counts = keep(stays.tenant_counts(given.steps, "moves"))
    before = given.start.table(spark, TENANTS, _TENANTS)
    largest = stays.top_tenants(before.union(counts.select(*before.columns)), tenants * _CANDIDATES)
    found = largest.toArrow().to_pandas()
    top = found[found["tenant_rank"] <= tenants]
    candidates = _candidates(found, given)
    if len(top.merge(candidates, on=["queue", "tenant"])) < len(top):
        raise Unfit("a tenant is among the largest now that was not near them then")
    plain = before.union(counts.where("NOT moves").select(*before.columns))
    summed = plain.groupBy("queue", "tenant").agg({"messages": "sum"}).toDF(*before.columns)
    kept_candidates = pyarrow.Table.from_pandas(candidates, _TOP, preserve_index=False)
    return top, {TENANTS: kept(summed), CANDIDATES: kept_candidates}


def _candidates(largest: Any, given: Given) -> Any:
    """Whose facts are kept apart: those of before, and whoever is large now and was not there then."""
    if given.start.known is None:
        return largest[_TOP.names]
    known = given.start.known.tables[CANDIDATES].to_pandas()
    there = given.start.known.tables[TENANTS].to_pandas()[["queue", "tenant"]]
    both = largest.merge(pandas.concat([there, known[["queue", "tenant"]]]).drop_duplicates(), "left", indicator="was")
    fresh = both[both["was"] == "left_only"]
    # Behind the numbers that are taken.
    number = fresh["tenant_rank"] + int(known["tenant_rank"].max() if len(known) else 0)
    return pandas.concat([known, fresh.assign(tenant_rank=number)[_TOP.names]])


def _nothing(schema: str, spark: "SparkSession") -> Any:
    return spark.createDataFrame([], schema).toArrow()


def _ranks(top: Any, candidates: pyarrow.Table) -> Any:
    """Which rank a candidate has that is told apart: queue, part, rank."""
    both = candidates.to_pandas().merge(top, on=["queue", "tenant"], suffixes=("", "_now"))
    ranks = both.rename(columns={"tenant_rank": "part", "tenant_rank_now": "rank"})[["queue", "part", "rank"]]
    return ranks.astype({"part": "int32", "rank": "int32"})


def _ages(given: Given, windows: Windows) -> tuple[Any, pyarrow.Table]:
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
    starved = bounds.starved(tiers, queues)
    starved["window_start"] = starved["window"] * windows.size_ms * 1_000
    found = {
        "range": figures.of_all(),
        "queues": figures.of_queues(queues),
        "queue_windows": figures.of_queue_windows(queues.merge(oldest, on=["queue", "window"], how="left")),
        "tiers": figures.of_parts(By.TIER, tiers),
        "tier_windows": figures.of_part_windows(By.TIER, tiers.merge(ages, on=["queue", "tier", "window"], how="left")),
        "starvation": starved[["queue", "tier", "window_start", "waiting", "others_received"]],
    }
    if top is not None:
        levels = figures.levels(By.TENANT)
        for name, made in (("tenants", figures.of_parts), ("tenant_windows", figures.of_part_windows)):
            found[name] = tables.with_tenant_names(made(By.TENANT, levels), top, tenants)
    return found
