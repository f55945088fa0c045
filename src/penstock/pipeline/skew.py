"""The job `skew`: what has most of the messages, of the work and of the failures, and what to do about it.

    history since the last run ─┬─▶ plain: costs ─┐
                                └─▶ moved ──┐     ├─▶ concentration, heaviest ─▶ findings
    state: costs, moved ───────────────────┴──────┘

A finding is a value that has much more than an even part. What is much is in one table below.

Costs are sums, so those of the state and those of new rows are added. A message that moved has a row for each queue
it left, and they need not come in order: such rows are kept, and their costs are worked out again.

    costs           what each value of each dimension costs, in sums; one pass over the rows for all dimensions
    concentration   for each dimension of each queue: the top one, the top ten, the Gini coefficient
    heaviest        the values with the greatest part of anything

A dimension is a name and a column. Groups, tiers and attributes are compared within a queue. Queues and shards are
compared with each other, so `queue` is null for them. A value that is null is left out.

The Gini coefficient is 0 if all have the same and comes near 1 if one has all. It is computed from how many values
have each number of messages, so a million groups are not sorted for it.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as f

from penstock.contract.history_columns import columns_of, ddl
from penstock.contract.messages import Tier
from penstock.pipeline.incremental import PreviousRun, begin, kept, leave
from penstock.pipeline.job import JobFailed, NoRows, Outcome, Progress, Table, counted
from penstock.pipeline.locations import HistoryLocation, read_history
from penstock.pipeline.reports.folder import results, settle_folder, write_rows
from penstock.pipeline.reports.html import share, short
from penstock.pipeline.signals.stays import COLUMNS, HANDLED, is_moved, steps_of_moved, steps_of_plain, tenant_of

_HEAVIEST = pa.schema(
    [
        *((name, pa.string()) for name in ("dimension", "queue", "value")),
        *((name, pa.int64()) for name in ("rank", "values", "messages", "handling_ms", "retries", "buried")),
        *((name, pa.float64()) for name in ("message_share", "handling_share", "retry_share")),
        *((name, pa.float64()) for name in ("wait_ms_mean", "times_median")),
    ]
)
# Compared with each other, not within a queue.
ACROSS = ("queue", "shard")
_KEYS = ("dimension", "queue")
_SUMS = ("messages", "handling_ms", "retries", "buried", "wait_ms", "waits")
# What `costs` gives, as Spark takes a schema.
COSTS = ", ".join(("dimension STRING, queue STRING, value STRING", *(f"{name} BIGINT" for name in _SUMS)))


def costs_of(steps: DataFrame, dimensions: Mapping[str, Column]) -> DataFrame:
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


def added_costs(costs: DataFrame) -> DataFrame:
    """Add up the costs of values that have several rows, one row for each."""
    return costs.groupBy(*_KEYS, "value").agg(*[f.sum(name).alias(name) for name in _SUMS])


def with_means(costs: DataFrame) -> DataFrame:
    """Add how long a message of each value waited, in the mean; null if no wait is known."""
    mean = f.when(f.col("waits") > 0, f.col("wait_ms") / f.col("waits"))
    return costs.withColumn("wait_ms_mean", mean).drop("wait_ms", "waits")


def concentration_of(costs: DataFrame) -> DataFrame:
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


def heaviest_of(costs: DataFrame, concentration: DataFrame, count: int) -> DataFrame:
    """The values that have the greatest part of messages, of handling time or of retries, ranked from 1 on."""

    def part(name: str) -> Column:
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


def _gini(costs: DataFrame) -> DataFrame:
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


def _same(left: DataFrame, right: DataFrame) -> DataFrame:
    """Join on the dimension and the queue, which may be null on both sides."""
    other = right.withColumnsRenamed({key: f"other_{key}" for key in _KEYS})
    is_same = (f.col("dimension") == f.col("other_dimension")) & f.col("queue").eqNullSafe(f.col("other_queue"))
    return left.join(other, is_same).drop("other_dimension", "other_queue")


HEAVIEST = 20
# A part that is worth a word, and how many times an even part, or its part of the messages, it has to be.
_MUCH, _TIMES = 0.1, 3.0
# Of shards, which should be even: how many times an even part is uneven.
_UNEVEN = 1.5
# From here on nearly everything is urgent.
_NEARLY_ALL = 0.8
_SLOW_TIMES = 2.0
# What a state keeps.
_COSTS, _MOVED = "costs", "moved"


@dataclass(frozen=True, slots=True, kw_only=True)
class SkewOptions:
    place: HistoryLocation
    out: str = ""
    # Names of attributes to look at as well.
    attributes: Sequence[str] = ()
    # Whether the whole history is read, also if the last run has left a state.
    full_refresh: bool = False

    @property
    def resting(self) -> dict[str, Any]:
        """What a state rests on, beside the place."""
        return {"job": "skew", "attributes": list(self.attributes)}

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the history that are read."""
        return (*COLUMNS, "shard", *(["attributes"] if self.attributes else []))

    @property
    def more(self) -> list[Column]:
        """The columns of a stay beside those that all jobs use."""
        named = [tenant_of(f"attribute:{name}").alias(f"attribute:{name}") for name in self.attributes]
        return [f.col("shard"), f.col("sent_tier"), *named]


Row = dict[str, Any]


def run(spark: SparkSession, options: SkewOptions, progress: Progress) -> Outcome:
    _check(options)
    if options.out:
        settle_folder(options.out)
    progress.step("Looking at what is new")
    start = begin(options.place, options.out, options.resting, full_refresh=options.full_refresh)
    with ExitStack() as persisted:

        def keep(frame: DataFrame) -> DataFrame:
            persisted.callback(frame.persist(StorageLevel.DISK_ONLY).unpersist)
            return frame

        progress.step("Reading history")
        rows = read_history(spark, replace(options.place, queues=()), options.columns, part=start.part)
        moved = keep(rows.where(is_moved()))
        plain = keep(_plain(spark, options, start, rows))
        costs = keep(with_means(added_costs(plain.union(_moved(spark, options, start, moved)))))
        spread = concentration_of(costs)
        concentration = _sorted(spread.collect())
        count = sum(row["messages"] for row in concentration if row["dimension"] == "queue")
        progress.rows(count - start.rows_known, total=count - start.rows_known)
        progress.step("Ranking")
        heaviest = _sorted(heaviest_of(costs, spread, HEAVIEST).collect())
        tables = {_COSTS: kept(plain), _MOVED: start.grown(_MOVED, moved)} if options.out and count else {}
        state = start.grown_state(count, tables) if tables else None
    if not count:
        raise NoRows(f"{options.place.shown} has no settled messages of this range and these queues: choose others")
    found = findings(heaviest, concentration)
    if options.out:
        with results(options.out) as folder:
            for name, table in (("heaviest", heaviest), ("concentration", concentration), ("findings", found)):
                (folder / f"{name}.json").write_text(json.dumps(table, indent=2, ensure_ascii=False) + "\n")
                write_rows(folder / f"{name}.csv", table[0] if table else [], table)
            pq.write_table(pa.Table.from_pylist(heaviest, _HEAVIEST), folder / "heaviest.parquet", compression="zstd")
            if state is not None:
                leave(folder, options.place, options.resting, state)
    told = start.told(count - start.rows_known, is_kept=state is not None or not options.out)
    return _outcome(options, count, found, concentration, start, told)


def _plain(spark: SparkSession, options: SkewOptions, start: PreviousRun, rows: DataFrame) -> DataFrame:
    """What the messages cost that never moved: those that are known, and those that are new."""
    new = _chosen(steps_of_plain(rows, tenant_of("group"), *options.more), options)
    return added_costs(start.table(spark, _COSTS, COSTS).union(costs_of(new, _dimensions(options))))


def _moved(spark: SparkSession, options: SkewOptions, start: PreviousRun, new: DataFrame) -> DataFrame:
    """What those cost that moved: the row before one may have come after it, so it is worked out from all of them."""
    every = start.table(spark, _MOVED, ddl(columns_of(options.columns))).union(new)
    told = steps_of_moved(every, tenant_of("group"), *options.more)
    return costs_of(_chosen(told, options), _dimensions(options))


def findings(heaviest: Sequence[Row], concentration: Sequence[Row]) -> list[Row]:
    """What stands out, the heaviest first, each with a sentence that says what it is and what to do."""
    uneven = {(row["dimension"], row["queue"]): row for row in concentration}
    found = []
    for row in heaviest:
        for kind, part, suggestion in _about(row):
            found.append(
                {
                    "kind": kind,
                    "dimension": row["dimension"],
                    "queue": row["queue"],
                    "value": row["value"],
                    "share": part,
                    "gini": uneven[row["dimension"], row["queue"]]["gini"],
                    "suggestion": suggestion,
                }
            )
    return sorted(found, key=lambda each: (-each["share"], each["dimension"], each["queue"] or "", each["value"]))


def _about(row: Row) -> Iterator[tuple[str, float, str]]:
    if row["dimension"] == "tier":
        yield from _about_tier(row)
    elif row["dimension"] == "shard":
        yield from _about_shard(row)
    elif row["dimension"] != "queue":
        yield from _about_value(row)


def _about_value(row: Row) -> Iterator[tuple[str, float, str]]:
    """A group, or a value of an attribute."""
    name = f"{row['dimension']} {row['value']} of {row['queue']}"
    messages, handling, retries = row["message_share"], row["handling_share"], row["retry_share"]
    if messages >= _MUCH and messages >= _TIMES / row["values"]:
        yield "hot", messages, f"{name} has {share(messages)} of the messages{_slowness(row)}"
    if handling >= _MUCH and handling >= _TIMES * messages:
        yield (
            "heavy",
            handling,
            (
                f"{name} takes {share(handling)} of the handling time with {share(messages)} of the messages: "
                "give it a queue and workers of its own, or make its messages smaller"
            ),
        )
    if retries >= _MUCH and retries >= _TIMES * messages:
        yield (
            "failing",
            retries,
            (
                f"{name} causes {share(retries)} of the retries with {share(messages)} of the messages: "
                "see with penstock pipeline triage why it fails"
            ),
        )


def _slowness(row: Row) -> str:
    times = row["times_median"]
    if times is None or times < _SLOW_TIMES:
        return ", and waits no longer than others: nothing has to be done, but watch it"
    waits = f" and waits {short(times)} × longer than the median"
    if row["dimension"] == "group":
        return (
            f"{waits}: groups take turns, and on a FIFO queue a group is served one at a time. "
            "Split it into several groups, by something that need not stay in order"
        )
    return f"{waits}: if it is also the group, split it; otherwise give it a group, so that others get their turn"


def _about_tier(row: Row) -> Iterator[tuple[str, float, str]]:
    tier = Tier(int(row["value"]))
    if tier <= Tier.HIGH and row["message_share"] >= _NEARLY_ALL:
        yield (
            "urgent",
            row["message_share"],
            (
                f"{share(row['message_share'])} of the messages of {row['queue']} are sent as {tier.name}: "
                "where nearly everything is urgent, nothing is. Send at NORMAL what can wait"
            ),
        )


def _about_shard(row: Row) -> Iterator[tuple[str, float, str]]:
    if row["values"] > 1 and row["message_share"] >= _UNEVEN / row["values"]:
        yield (
            "uneven",
            row["message_share"],
            (
                f"shard {row['value']} has {share(row['message_share'])} of the messages of {row['values']} shards: "
                "a queue lives in one shard, so split the busiest queue into several, or use fewer shards"
            ),
        )


def _check(options: SkewOptions) -> None:
    for name in options.attributes:
        if not name or set("'\"\\") & set(name):
            raise JobFailed(f"--attribute is {name!r}; it is a name without quotes")


def _chosen(given: DataFrame, options: SkewOptions) -> DataFrame:
    # As in signals: a message comes from other queues, so all are read.
    return given.where(f.col("queue").isin(list(options.place.queues))) if options.place.queues else given


def _dimensions(options: SkewOptions) -> dict[str, Column]:
    # The tier it was sent at: aging, escalations and the head of a FIFO group make a message more urgent by itself.
    columns = {"group": f.col("tenant"), "tier": f.col("sent_tier"), "queue": f.col("queue"), "shard": f.col("shard")}
    return columns | {f"attribute:{name}": f.col(f"`attribute:{name}`") for name in options.attributes}


def _sorted(rows: Sequence[Any]) -> list[Row]:
    found = [row.asDict() for row in rows]
    return sorted(found, key=lambda row: (row["dimension"], row["queue"] or "", row.get("rank", 0)))


def _outcome(
    options: SkewOptions, rows: int, found: Sequence[Row], concentration: Sequence[Row], start: PreviousRun, told: str
) -> Outcome:
    spread: list[list[str | int | float | None]] = [
        [
            row["dimension"],
            row["queue"],
            row["values"],
            share(row["top_1_share"]),
            share(row["top_10_share"]),
            short(row["gini"]),
        ]
        for row in concentration
    ]
    suggested: list[list[str | int | float | None]] = [[row["kind"], row["suggestion"]] for row in found]
    sentence = (
        f"{counted(rows, 'settled message')}; {counted(len(found), 'thing stands', 'things stand')} out."
        if found
        else f"{counted(rows, 'settled message is', 'settled messages are')} spread well."
    )
    return Outcome(
        sentence=f"{sentence} {told}",
        tables=[
            Table("How it is spread", ("dimension", "queue", "values", "top 1", "top 10", "Gini"), spread),
            *([Table("What stands out", ("kind", "suggestion"), suggested)] if suggested else []),
        ],
        written=[options.out] if options.out else [],
        figures={"rows": rows, "findings": len(found), **start.counts(rows - start.rows_known)},
    )
