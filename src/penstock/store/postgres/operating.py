"""What operators decide: which queues there are, who goes first, what is tried again."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field

from penstock.contract.limits import AUDIT_MAX, REASON_CHARACTERS_MAX
from penstock.contract.names import check_name, is_dead_letters
from penstock.contract.queue_settings import BadSettings, QueueSettings
from penstock.runtime.interface import Dice
from penstock.store.errors import DeadLettersShared
from penstock.store.ids import message_id
from penstock.store.interface import EscalationOrder, Outcome, Redrive, RedriveOrder
from penstock.store.postgres.columns import SENT_AS
from penstock.store.postgres.database import Database
from penstock.store.postgres.known import KnownQueue
from penstock.store.postgres.messages import identities
from penstock.store.postgres.noting import call_noted
from penstock.store.postgres.registry import Registry
from penstock.store.postgres.settling import text

_PLANNED_MOST = 10_000
# Up to so many dead letters are counted each time; a larger count is kept for about ten times as long as it took.
COUNTED_EACH_TIME = 2_000
_COUNTED_PER_MS = 100


def check_settings(queue: str, settings: QueueSettings) -> None:
    if settings.retention_ms and settings.delay_ms >= settings.retention_ms:
        raise BadSettings(
            f"delay_ms is {settings.delay_ms}; it has to be below retention_ms, which is {settings.retention_ms}: "
            "messages would expire before they are due"
        )
    if settings.dead_letters == queue:
        raise BadSettings(f"dead_letters is {queue!r}; a queue is not its own")
    if settings.dead_letters:
        check_name(settings.dead_letters, field="dead_letters")
    elif is_dead_letters(queue) and settings.deliveries_max:
        raise BadSettings(
            f"deliveries_max is {settings.deliveries_max}; dead letters are not buried again: "
            "let it be 0, or say in dead_letters where to"
        )


async def check_unshared(database: Database, grave: str, apart_from: Sequence[int]) -> None:
    others = await database.ask("others_that_bury", grave, SENT_AS["integer[]"](apart_from))
    if others:
        raise DeadLettersShared(f"{others[0][0]!r} buries in {grave!r}, too; nothing was deleted")


async def escalate(
    database: Database,
    known: KnownQueue,
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
class Plan:
    """Keys here and ids, by the name of the queue they go to; and the ids of those that have none."""

    keys: dict[str, list[int]] = field(default_factory=dict)
    ids: dict[int, str] = field(default_factory=dict)
    without_origin: list[str] = field(default_factory=list)
    # The names of queues without room for more.
    full: dict[str, None] = field(default_factory=dict)


class Redriving:
    def __init__(self, database: Database, registry: Registry, period: int, dice: Dice) -> None:
        self._database = database
        self._registry = registry
        self._period = period
        self._dice = dice

    async def redrive(self, known: KnownQueue, order: RedriveOrder, *, now_ms: int) -> Redrive:
        plan = await self._plan(known, order)
        went = plan.keys if order.is_dry_run else await self._move(known, plan, now_ms)
        moved = {name: [plan.ids[key] for key in keys] for name, keys in went.items() if keys}
        count = sum(map(len, moved.values()))
        there = await self._count(known, gone=0 if order.is_dry_run else count, now_ms=now_ms)
        remaining = max(0, there - count) if order.is_dry_run else there
        return Redrive(moved, plan.without_origin, remaining, list(plan.full))

    async def _count(self, known: KnownQueue, *, gone: int, now_ms: int) -> int:
        """Return how many dead letters are left. Very many are counted now and then, not at every step of a redrive."""
        if now_ms < known.moved_here_until_ms:
            known.moved_here = max(0, known.moved_here - gone)
        else:
            ((known.moved_here,),) = await self._database.ask("dead_letter_count", queue=known.number)
            is_large = known.moved_here > COUNTED_EACH_TIME
            known.moved_here_until_ms = now_ms + known.moved_here // _COUNTED_PER_MS if is_large else 0
        return known.moved_here

    async def _plan(self, known: KnownQueue, order: RedriveOrder) -> Plan:
        plan = Plan()
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
        self, known: KnownQueue, order: RedriveOrder
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
        known = await self._registry.get(queue, is_fresh=True)
        size_max = known.settings.size_max
        if not size_max:
            return 2**40
        ((left,),) = await self._database.ask("room_left", known.number)
        return max(0, int(left))

    async def _move(self, known: KnownQueue, plan: Plan, now_ms: int) -> dict[str, list[int]]:
        went: dict[str, list[int]] = {}
        for name, keys in plan.keys.items():
            target = await self._registry.get(name)
            values = (
                known.number, known.version, target.number, target.version, now_ms, keys,
                target.settings.size_max or None, known.settings.is_fifo, target.settings.is_fifo, known.history,
                self._period,
            )  # fmt: skip
            ((moved,),) = await call_noted(
                self._database, ("redrive", values), operation=self._dice.token(), now_ms=now_ms
            )
            known.drained.add(len(moved), now_ms)
            went[name] = [key for key in keys if key in set(moved)]
        return went
