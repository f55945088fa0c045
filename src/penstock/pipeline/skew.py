"""The job `skew`: who has most of the messages, of the work and of the failures, and what to do about it.

    history since the last run ─┬─▶ plain: costs ─┐
                                └─▶ moved ──┐     ├─▶ concentration, heaviest ─▶ findings
    state: costs, moved ───────────────────┴──────┘

A finding is a value that has much more than an even part. What is much is in one table below.

Costs are sums, so those of the state and those of new rows are added. A message that moved has a row for each queue it
left, and they need not come in order: such rows are kept, and their costs worked out anew.
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark import StorageLevel
from pyspark.sql import functions as f

from penstock.contract.messages import Tier
from penstock.pipeline import skew_tables
from penstock.pipeline.job import JobFailed, Outcome, Progress, Table, counted
from penstock.pipeline.locations import Place, read_history
from penstock.pipeline.reports.folder import results, settle_folder, write_rows
from penstock.pipeline.reports.html import share, short
from penstock.pipeline.schemas import columns_of, ddl
from penstock.pipeline.signals.stays import COLUMNS, is_moved, steps_of_moved, steps_of_plain, tenant_of
from penstock.pipeline.states import Start, State, begin, kept, leave

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

DIMENSIONS = ("group", "tier", "queue", "shard")
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
    place: Place
    out: str = ""
    # Names of attributes to look at as well.
    attributes: Sequence[str] = ()
    # Whether the whole history is read, also if the last run has left a state.
    is_anew: bool = False

    @property
    def resting(self) -> dict[str, Any]:
        """What a state rests on, beside the place."""
        return {"job": "skew", "attributes": list(self.attributes)}

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the history that are read."""
        return (*COLUMNS, "shard", *(["attributes"] if self.attributes else []))

    @property
    def more(self) -> "list[Column]":
        """What is told of a stay beside what all jobs know."""
        named = [tenant_of(f"attribute:{name}").alias(f"attribute:{name}") for name in self.attributes]
        return [f.col("shard"), f.col("sent_tier"), *named]


Row = dict[str, Any]


def run(spark: "SparkSession", options: SkewOptions, progress: Progress) -> Outcome:
    _check(options)
    if options.out:
        settle_folder(options.out)
    progress.step("Looking at what is new")
    start = begin(spark, options.place, options.out, options.resting, is_anew=options.is_anew)
    with ExitStack() as persisted:

        def keep(frame: "DataFrame") -> "DataFrame":
            persisted.callback(frame.persist(StorageLevel.DISK_ONLY).unpersist)
            return frame

        progress.step("Reading history")
        rows = read_history(spark, replace(options.place, queues=()), options.columns, part=start.part)
        moved = keep(rows.where(is_moved()))
        plain = keep(_plain(spark, options, start, rows))
        costs = keep(skew_tables.with_means(skew_tables.added(plain.union(_moved(spark, options, start, moved)))))
        spread = skew_tables.concentration(costs)
        concentration = _sorted(spread.collect())
        count = sum(row["messages"] for row in concentration if row["dimension"] == "queue")
        progress.rows(count - start.rows_known, total=count - start.rows_known)
        progress.step("Ranking")
        heaviest = _sorted(skew_tables.heaviest(costs, spread, HEAVIEST).collect())
        state = _state(start, count, plain, moved) if options.out and count else None
    if not count:
        raise JobFailed(f"{options.place.shown} has no settled messages of this range and these queues: choose others")
    found = findings(heaviest, concentration)
    if options.out:
        with results(options.out) as folder:
            _write(folder, {"heaviest": heaviest, "concentration": concentration, "findings": found})
            if state is not None:
                leave(folder, options.place, options.resting, state)
    told = start.told(count - start.rows_known, is_kept=state is not None or not options.out)
    return _outcome(options, count, found, concentration, start, told)


def _plain(spark: "SparkSession", options: SkewOptions, start: Start, rows: "DataFrame") -> "DataFrame":
    """What the messages cost that never moved: those that are known, and those that are new."""
    new = _chosen(steps_of_plain(rows, tenant_of("group"), *options.more), options)
    return skew_tables.added(
        start.table(spark, _COSTS, skew_tables.COSTS).union(skew_tables.costs(new, _dimensions(options)))
    )


def _moved(spark: "SparkSession", options: SkewOptions, start: Start, new: "DataFrame") -> "DataFrame":
    """What those cost that moved: the row before one may have come after it, so it is worked out from all of them."""
    every = start.table(spark, _MOVED, ddl(columns_of(options.columns))).union(new)
    told = steps_of_moved(every, tenant_of("group"), *options.more)
    return skew_tables.costs(_chosen(told, options), _dimensions(options))


def _state(start: Start, count: int, plain: "DataFrame", moved: "DataFrame") -> State | None:
    """What the next run goes on from; None if that is too much."""
    tables = {_COSTS: kept(plain), _MOVED: start.grown(_MOVED, moved)}
    if any(table is None for table in tables.values()):
        return None
    return State(extent=start.extent, rows=count, tables=tables)


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


def _chosen(given: "DataFrame", options: SkewOptions) -> "DataFrame":
    # As in signals: a message comes from other queues, so all are read.
    return given.where(f.col("queue").isin(list(options.place.queues))) if options.place.queues else given


def _dimensions(options: SkewOptions) -> "dict[str, Column]":
    # The tier it was sent at: aging, escalations and the head of a FIFO group make a message more urgent by itself.
    columns = {"group": f.col("tenant"), "tier": f.col("sent_tier"), "queue": f.col("queue"), "shard": f.col("shard")}
    return columns | {f"attribute:{name}": f.col(f"`attribute:{name}`") for name in options.attributes}


def _sorted(rows: Sequence[Any]) -> list[Row]:
    found = [row.asDict() for row in rows]
    return sorted(found, key=lambda row: (row["dimension"], row["queue"] or "", row.get("rank", 0)))


def _write(folder: Path, tables: dict[str, list[Row]]) -> None:
    for name, rows in tables.items():
        (folder / f"{name}.json").write_text(json.dumps(rows, indent=2, ensure_ascii=False) + "\n")
        write_rows(folder / f"{name}.csv", rows[0] if rows else [], rows)


def _outcome(
    options: SkewOptions, rows: int, found: Sequence[Row], concentration: Sequence[Row], start: Start, told: str
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
