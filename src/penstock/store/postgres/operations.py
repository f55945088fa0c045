"""What operators do: escalate messages, redrive dead letters, and keep track of running redrives.

`PostgresRedrives` keeps the tasks in a table and satisfies `store.interface.KeptRedrives`. Each of its verbs is one
statement that is safe to repeat, so a lost answer is simply asked for again. The row of a redrive names its runner:
taking over and noting progress check that in the same statement.
"""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import psycopg

from penstock.contract.limits import AUDIT_MAX, REASON_CHARACTERS_MAX, REDRIVES_KEPT_MAX, REDRIVES_MAX
from penstock.runtime.interface import Dice
from penstock.store.errors import StoreRefuses
from penstock.store.ids import message_id
from penstock.store.interface import LOST_MS, EscalationOrder, KeptRedrive, Outcome, Redrive, RedriveOrder
from penstock.store.postgres.array_codec import SENT_AS
from penstock.store.postgres.database import Database
from penstock.store.postgres.queries import identities
from penstock.store.postgres.queue_admin import call_noted
from penstock.store.postgres.queue_cache import CachedQueue, QueueCache
from penstock.store.postgres.settle import text

_PLANNED_MOST = 10_000
# Up to so many dead letters are counted each time; a larger count is kept for about ten times as long as it took.
COUNTED_EACH_TIME = 2_000
_COUNTED_PER_MS = 100


async def cancel(
    database: Database, known: CachedQueue, message_id: str, *, now_ms: int, operation: int, period: int
) -> bool:
    (identity,) = identities([message_id])
    if identity is None:
        return False
    values = known.number, known.version, now_ms, *identity, known.settings.is_fifo, known.history, period
    ((is_gone,),) = await call_noted(database, ("cancel", values), operation=operation, now_ms=now_ms)
    return bool(is_gone)


async def escalate(
    database: Database,
    known: CachedQueue,
    ids: Sequence[str],
    order: EscalationOrder,
    *,
    now_ms: int,
    operation: int,
) -> list[Outcome]:
    if order.until_ms and order.until_ms <= now_ms:
        raise ValueError(f"until_ms is {order.until_ms}; that has passed")
    named = {each: pair for each, pair in zip(ids, identities(ids), strict=True) if pair is not None}
    pairs = list(named.values())
    values = (
        known.number, known.version, now_ms, list(named), [home for home, _ in pairs], [key for _, key in pairs],
        order.tier, order.until_ms, text(order.actor, REASON_CHARACTERS_MAX, database.encoding),
        text(order.reason, REASON_CHARACTERS_MAX, database.encoding), known.settings.is_fifo, AUDIT_MAX,
        order.lowers,
    )  # fmt: skip
    ((moved, unchanged, others),) = await call_noted(database, ("escalate", values), operation=operation, now_ms=now_ms)
    if order.until_ms:
        known.soon(order.until_ms)
    found = dict.fromkeys(others or (), Outcome.NOT_PENDING)
    found |= dict.fromkeys(unchanged or (), Outcome.UNCHANGED) | dict.fromkeys(moved or (), Outcome.DONE)
    return [found.get(each, Outcome.UNKNOWN) for each in ids]


@dataclass(slots=True)
class RedrivePlan:
    """Keys here and ids, by the name of the queue they go to; and the ids of those that have none."""

    keys: dict[str, list[int]] = field(default_factory=dict)
    ids: dict[int, str] = field(default_factory=dict)
    without_origin: list[str] = field(default_factory=list)
    # The names of queues without room for more.
    full: dict[str, None] = field(default_factory=dict)


class RedriveSteps:
    def __init__(self, database: Database, cache: QueueCache, period: int, dice: Dice) -> None:
        self._database = database
        self._cache = cache
        self._period = period
        self._dice = dice

    async def redrive(self, known: CachedQueue, order: RedriveOrder, *, now_ms: int) -> Redrive:
        plan = await self._plan(known, order)
        went = plan.keys if order.is_dry_run else await self._move(known, plan, now_ms)
        moved = {name: [plan.ids[key] for key in keys] for name, keys in went.items() if keys}
        count = sum(map(len, moved.values()))
        there = await self._count(known, gone=0 if order.is_dry_run else count, now_ms=now_ms)
        remaining = max(0, there - count) if order.is_dry_run else there
        return Redrive(moved, plan.without_origin, remaining, list(plan.full))

    async def _count(self, known: CachedQueue, *, gone: int, now_ms: int) -> int:
        """Return how many dead letters are left. Very many are counted now and then, not at every step of a redrive."""
        if now_ms < known.moved_here_until_ms:
            known.moved_here = max(0, known.moved_here - gone)
        else:
            ((known.moved_here,),) = await self._database.ask("dead_letter_count", queue=known.number)
            is_large = known.moved_here > COUNTED_EACH_TIME
            known.moved_here_until_ms = now_ms + known.moved_here // _COUNTED_PER_MS if is_large else 0
        return known.moved_here

    async def _plan(self, known: CachedQueue, order: RedriveOrder) -> RedrivePlan:
        plan = RedrivePlan()
        rooms = {} if order.into is None else {order.into: await self._room(order.into)}
        left = order.most
        async for key, home, home_key, name, number in self._dead_letters(known, order):
            if not left:
                break
            target, found = order.into or name, message_id(home, home_key)
            if target is None:
                plan.without_origin += [found] * (len(plan.without_origin) < order.most)
                continue
            if number == known.number and order.into is None:
                # What came back to its own queue is at home.
                continue
            if target not in rooms:
                rooms[target] = await self._room(target)
            if rooms[target]:
                rooms[target] -= 1
                left -= 1
                plan.keys.setdefault(target, []).append(key)
                plan.ids[key] = found
            else:
                plan.full[target] = None
        return plan

    async def _dead_letters(
        self, known: CachedQueue, order: RedriveOrder
    ) -> AsyncIterator[tuple[int, int, int, str | None, int]]:
        if order.ids is not None:
            pairs = [pair for pair in identities(order.ids) if pair is not None]
            homes, keys = [home for home, _ in pairs], [key for _, key in pairs]
            named = {"homes": SENT_AS["integer[]"](homes), "keys": SENT_AS["bigint[]"](keys)}
            for row in await self._database.ask("dead_letters_named", queue=known.number, **named):
                yield row
            return
        # As many as are wanted, and more only behind those that stay.
        after, most, seen = -1, order.most, 0
        while seen < _PLANNED_MOST:
            rows = await self._database.ask("dead_letters", queue=known.number, after=after, most=most)
            for *row, after in rows:  # noqa: B007 - where the next page begins.
                yield tuple(row)
            if len(rows) < most:
                return
            seen += len(rows)
            most = min(2 * most, _PLANNED_MOST)

    async def _room(self, queue: str) -> int:
        known = await self._cache.get(queue, is_fresh=True)
        size_max = known.settings.size_max
        if not size_max:
            return 2**40
        ((left,),) = await self._database.ask("room_left", known.number)
        return max(0, int(left))

    async def _move(self, known: CachedQueue, plan: RedrivePlan, now_ms: int) -> dict[str, list[int]]:
        went: dict[str, list[int]] = {}
        for name, keys in plan.keys.items():
            target = await self._cache.get(name)
            values = (
                known.number, known.version, target.number, target.version, now_ms, keys,
                target.settings.size_max or None, known.settings.is_fifo, target.settings.is_fifo, known.history,
                self._period,
            )  # fmt: skip
            ((moved,),) = await call_noted(
                self._database, ("redrive", values), operation=self._dice.token(), now_ms=now_ms
            )
            known.drained.add(len(moved), now_ms)
            self._cache.tally(known.number).redriven += len(moved)
            went[name] = [key for key in keys if key in set(moved)]
        return went


class PostgresRedrives:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def begin(self, redrive: KeptRedrive, *, runner: int) -> bool:
        begun = await self._ask(
            "begin_redrive",
            id=redrive.id,
            queue=redrive.queue,
            order=redrive.order,
            state=redrive.state,
            progress=redrive.progress,
            now_ms=redrive.started_at_ms,
            runner=runner,
            running_max=REDRIVES_MAX,
            kept_max=REDRIVES_KEPT_MAX,
        )
        return bool(begun)

    async def note(self, redrive: KeptRedrive, *, runner: int, now_ms: int) -> bool | None:
        noted = await self._ask(
            "note_redrive",
            id=redrive.id,
            state=redrive.state,
            progress=redrive.progress,
            ended_at_ms=redrive.ended_at_ms,
            runner=runner,
            now_ms=now_ms,
        )
        return bool(noted[0][0]) if noted else None

    async def hold(self, *, runner: int, now_ms: int, takes_over: bool) -> list[KeptRedrive]:
        rows = await self._ask(
            "hold_redrives", runner=runner, now_ms=now_ms, lost_ms=now_ms - LOST_MS, takes_over=takes_over
        )
        return [_kept(row) for row in rows]

    async def let_go(self, *, runner: int) -> None:
        await self._ask("let_go_of_redrives", runner=runner)

    async def stop(self, queue: str, task_id: str, *, state: str, now_ms: int) -> None:
        await self._ask("stop_redrive", id=task_id, queue=queue, stopped=state, now_ms=now_ms, lost_ms=now_ms - LOST_MS)

    async def of(self, queue: str) -> list[KeptRedrive]:
        return [_kept(row) for row in await self._ask("list_redrives", queue=queue)]

    async def find(self, queue: str, task_id: str) -> KeptRedrive | None:
        # No text of a database has a NUL.
        rows = [] if "\0" in task_id else await self._ask("find_redrive", queue=queue, id=task_id)
        return _kept(rows[0]) if rows else None

    async def _ask(self, name: str, **named: Any) -> list[Any]:
        try:
            return await self._database.ask(name, **named)
        except psycopg.Error as error:
            # The caller notes again after any error; a redrive does not fail because of it.
            raise StoreRefuses(f"the database did not do this: {error}") from error


def _kept(row: Any) -> KeptRedrive:
    task_id, queue, order, state, progress, started_at_ms, ended_at_ms, is_to_stop = row
    return KeptRedrive(
        id=task_id,
        queue=queue,
        order=order,
        state=state,
        progress=progress,
        started_at_ms=started_at_ms,
        ended_at_ms=ended_at_ms,
        is_to_stop=is_to_stop,
    )
