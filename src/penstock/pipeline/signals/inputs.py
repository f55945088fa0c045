"""What the signals of a run are made of: stays that are new, those of messages that moved, and what was added up.

    history since the last run ─┬─▶ plain stays ─┐
                                └─▶ moved ──┐    ├─▶ steps, each with `moves`
    state: moved ──────────────────────────┴────┘

A stay that never moved tells all of itself: what it adds to sums is added once, and the sums are kept. Stays of
messages that moved are kept as rows and worked out again by each run, since the row before one may come after it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import pyarrow  # type: ignore[import-untyped]
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from penstock.contract.history_columns import columns_of, ddl
from penstock.pipeline.incremental import PreviousRun, part_of
from penstock.pipeline.job import JobFailed
from penstock.pipeline.locations import HistoryLocation, read_history, text_of
from penstock.pipeline.signals import stays

MOVED, SEEN = "moved", "seen"
Keep = Callable[[DataFrame], DataFrame]
_SUMMED, _LEAST, _MOST = ("rows", "tenants", "checked"), ("came", "received", "settled"), ("last_ms", "behind_ms")
_SEEN = pyarrow.schema(
    [("queue", pyarrow.string()), ("tier", pyarrow.int32())]
    + [(name, pyarrow.int64()) for name in (*_SUMMED, *_LEAST, *_MOST)]
)
# By which a stay in a line is known.
_IN_LINE = ("queue", "queue_id", "key", "tier", "is_grouped", "came_ms", "received_ms", "settled_ms", "retries")

Seen = dict[str, Any]


class StateMismatch(Exception):
    """What was kept does not fit what is new. Everything must be computed again; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalsInput:
    place: HistoryLocation
    tenant: str
    start: PreviousRun
    # New stays and all that moved; `moves` says which.
    steps: DataFrame
    # Rows of the history that moved, those that are new.
    moved: DataFrame
    # By queue and tier: all stays, and those that never moved.
    seen: Sequence[Seen]
    plain: Sequence[Seen]
    # By queue: from when on its line is not what the last run saw; a queue that is not there is as it was.
    touched: Mapping[str, int]

    @property
    def rows(self) -> int:
        return sum(row["rows"] for row in self.seen)

    @property
    def has_tenants(self) -> bool:
        return any(row["tenants"] for row in self.seen)

    def plain_table(self) -> pyarrow.Table:
        return pyarrow.Table.from_pylist(list(self.plain), schema=_SEEN)


def read_input(
    spark: SparkSession, place: HistoryLocation, tenant: str, start: PreviousRun, keep: Keep
) -> SignalsInput:
    """Read what is new, once, and look at it."""
    columns, whose = stays.columns_of(tenant), stays.tenant_of(tenant)
    # A message comes to a queue from another one, so all are read, and then those that were asked for are kept.
    rows = keep(read_history(spark, replace(place, queues=()), columns, part=start.part))
    before = start.table(spark, MOVED, ddl(columns_of(columns)))
    moved = rows.where(stays.is_moved())
    elsewhere = keep(stays.steps_of_moved(before.union(moved), whose))
    steps = _chosen(stays.steps_of_plain(rows, whose), place).withColumn("moves", f.lit(False))
    steps = steps.union(_chosen(elsewhere, place).withColumn("moves", f.lit(True)))
    new = _seen(steps)
    known = start.known.tables[SEEN].to_pylist() if start.known else []
    changed = _changed(elsewhere, stays.steps_of_moved(before, whose) if start.known else None)
    moves = [row.asDict() for row in _chosen(changed, place).groupBy("queue").agg(_touched_ms()).collect()]
    return SignalsInput(
        place=place,
        tenant=tenant,
        start=start,
        steps=steps,
        moved=moved,
        seen=_merged([*known, *new]),
        plain=_merged([*known, *(row for row in new if not row["moves"])]),
        touched=_earliest([*moves, *(row for row in new if not row["moves"])]),
    )


def read_again(spark: SparkSession, given: SignalsInput, queues: Sequence[str], since_ms: int) -> DataFrame:
    """Return stays that never moved, of some queues and settled since then, out of what earlier runs have read."""
    assert given.start.known is not None
    place = given.place
    since = place.since if place.since and instant_ms(place.since) >= since_ms else text_of(max(since_ms, 0))
    there = replace(place, queues=queues, since=since)
    columns = stays.columns_of(given.tenant)
    rows = read_history(spark, there, columns, part=part_of(given.start.known.extent))
    return stays.steps_of_plain(rows, stays.tenant_of(given.tenant)).withColumn("moves", f.lit(False))


def instant_ms(text: str) -> int:
    """Return a time that a user typed, in milliseconds since 1970."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise JobFailed(f"{text!r} is no time: write it as 2026-03-01T12:00:00Z") from None
    return int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1_000)


def _chosen(given: DataFrame, place: HistoryLocation) -> DataFrame:
    return given.where(f.col("queue").isin(list(place.queues))) if place.queues else given


def _seen(given: DataFrame) -> list[Seen]:
    """How many stays each queue and tier has, how many of them have a tenant and a bound, and from when to when."""
    latest = f.greatest("came_ms", stays.left_ms())
    figures = (
        f.count("*").alias("rows"),
        f.count("tenant").alias("tenants"),
        f.count_if(stays.is_asked()).alias("checked"),
        *(f.min(f"{name}_ms").alias(name) for name in _LEAST),
        f.max("settled_ms").alias("last_ms"),
        # Clocks of two machines may differ: by how much something happened after the end of its stay.
        f.greatest(f.max(latest - f.col("settled_ms")), f.lit(0)).alias("behind_ms"),
        _touched_ms(),
    )
    return [row.asDict() for row in given.groupBy("queue", "tier", "moves").agg(*figures).collect()]


def _touched_ms() -> Any:
    return f.min(f.when(f.col("came_ms").isNotNull(), f.least("came_ms", stays.left_ms()))).alias("touched_ms")


def _earliest(rows: Sequence[Seen]) -> dict[str, int]:
    found: dict[str, int] = {}
    for row in rows:
        if row["touched_ms"] is not None:
            found[row["queue"]] = min(row["touched_ms"], found.get(row["queue"], row["touched_ms"]))
    return found


def _changed(after: DataFrame, before: DataFrame | None) -> DataFrame:
    """Stays of messages that moved which are new, or otherwise than they were, or no more."""
    now = after.select(*_IN_LINE)
    if before is not None:
        then = before.select(*_IN_LINE)
        now = now.exceptAll(then).union(then.exceptAll(now))
    return now.where(f.col("came_ms").isNotNull())


def _merged(rows: Sequence[Seen]) -> list[Seen]:
    """Add up what is said of one queue and tier."""
    found: dict[tuple[str, int], Seen] = {}
    for row in rows:
        here = found.setdefault((row["queue"], row["tier"]), {"queue": row["queue"], "tier": row["tier"]})
        for names, together in ((_SUMMED, sum), (_LEAST, min), (_MOST, max)):
            for name in names:
                here[name] = _of_known(together, [here.get(name), row[name]])
    return [found[key] for key in sorted(found)]


def _of_known(together: Callable[[list[int]], int], values: Sequence[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return together(known) if known else None
