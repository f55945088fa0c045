"""What operators decide: who goes first, what is tried again, which queue goes.

The shape is that of every verb: reserve, decide, write, wait, answer. Where the size
of what is written depends on what is decided, deciding comes first: it changes
nothing, and nothing awaits before the write.
"""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

from penstock.contract.limits import REASON_CHARACTERS_MAX, TURN_MESSAGES
from penstock.core.queue import queries
from penstock.core.queue.events import Redriven
from penstock.core.queue.queries import MessageView
from penstock.core.queue.queue import Queue
from penstock.core.queue.rows import RESTING, WAITING
from penstock.core.queue.state import State
from penstock.store.embedded.cross_shard_moves import EVENT_BYTES, ROW_BYTES, CrossShardMoves
from penstock.store.embedded.queries import find_holders, grave_of, id_of, key_of, present, room_of
from penstock.store.embedded.shard import JournalEntry, Shard
from penstock.store.embedded.shard_set import ShardSet
from penstock.store.errors import DeadLettersShared
from penstock.store.interface import EscalationOrder, Outcome, Redrive, RedriveOrder, Remains, check_ids

RUN_BYTES = 16
# With a full queue ahead, no more dead letters than this are passed over in search of some that can go elsewhere.
_BLOCKED_MAX = 10_000
# So many dead letters are looked at before a list of all of them is made.
_STEP_ROWS = 1_000


async def delete(shards: ShardSet, moves: CrossShardMoves, queue: str, *, with_dead_letters: bool) -> Remains:
    async with moves.lock, shards.answer:
        await moves.settle_arrived()
        shard = await shards.at(queue)
        state = shard.queue(queue).state
        grave = grave_of(queue, state)
        buried = shards.number_of(grave)
        if buried is None:
            await _remove(shards, [queue])
            return Remains(None, 0, is_deleted=False)
        if with_dead_letters:
            _check_unshared(shards, grave, {state.queue, buried})
        count = shards.queue(grave).state.live
        await _remove(shards, [queue, grave] if with_dead_letters else [queue])
        return Remains(grave, count, is_deleted=with_dead_letters)


async def _remove(shards: ShardSet, names: Sequence[str]) -> None:
    """Delete queues: those of the first one's shard in one batch, those of another when that is durable."""
    for shard in dict.fromkeys(map(shards.find, names)):
        assert shard is not None
        here = [name for name in names if name in shard.memory.numbers]
        with shard.log.reserve(EVENT_BYTES * len(here), from_spare=True) as space:
            shard.write(space, [shards.deleted(shard, name) for name in here])
        await shard.settled()


def _check_unshared(shards: ShardSet, grave: str, apart_from: set[int]) -> None:
    for shard in shards.all:
        for name, number in shard.memory.numbers.items():
            if number not in apart_from and grave_of(name, shard.memory.queues[number].state) == grave:
                raise DeadLettersShared(f"{name!r} buries in {grave!r}, too; nothing was deleted")


async def cancel(shard: Shard, queue: str, message_id: str) -> bool:
    check_ids([message_id])
    async with shard.answer:
        found = present(shard, queue)
        key = key_of(found.state, message_id)
        with shard.log.reserve(EVENT_BYTES + RUN_BYTES, from_spare=True) as space:
            event = None if key is None else found.cancel(key, now_ms=shard.now_ms())
            if event is None:
                return False
            shard.write(space, [JournalEntry(event)])
            return True


async def escalate(shard: Shard, queue: str, ids: Sequence[str], order: EscalationOrder) -> list[Outcome]:
    check_ids(ids)
    await find_holders(shard, queue)
    async with shard.answer:
        found = present(shard, queue)
        now_ms = shard.now_ms()
        if order.until_ms and order.until_ms <= now_ms:
            raise ValueError(f"until_ms is {order.until_ms}; that has passed")
        keys = [key_of(found.state, each) for each in ids]
        known = [key for key in keys if key is not None]
        event = found.escalate(
            known,
            order.tier,
            now_ms=now_ms,
            until_ms=order.until_ms,
            lowers=order.lowers,
            actor=_text(order.actor),
            reason=_text(order.reason),
        )
        moved: set[int] = set()
        if event is not None:
            size = EVENT_BYTES + RUN_BYTES * len(event.runs) + len(event.actor.encode()) + len(event.reason.encode())
            with shard.log.reserve(size) as space:
                shard.write(space, [JournalEntry(event)])
            moved = {number << 3 | lane for lane, first, count in event.runs for number in range(first, first + count)}
        stayed = [key for key in known if key not in moved]
        unchanged = {key for key in stayed if found.pending_tier(key) >= 0}
        rest = [key for key in stayed if key not in unchanged]
        there = {key for key in rest if key in found.state.rows.index} | set(queries.holders(found.state, rest))
        found_as = dict.fromkeys(there, Outcome.NOT_PENDING)
        found_as |= dict.fromkeys(unchanged, Outcome.UNCHANGED) | dict.fromkeys(moved, Outcome.DONE)
        return [Outcome.UNKNOWN if key is None else found_as.get(key, Outcome.UNKNOWN) for key in keys]


def _text(text: str) -> str:
    # Lone surrogates come with names of files, and no text on a disk may have them.
    return text[:REASON_CHARACTERS_MAX].encode(errors="replace").decode()


@dataclass(slots=True)
class RedrivePlan:
    """Keys by the name of the queue they go to, and the ids of those that have none."""

    keys: dict[str, list[int]] = field(default_factory=dict)
    without_origin: list[str] = field(default_factory=list)
    # The names of queues without room for more.
    full: dict[str, None] = field(default_factory=dict)


async def redrive(shards: ShardSet, moves: CrossShardMoves, dead_letters: str, order: RedriveOrder) -> Redrive:
    if order.into == dead_letters:
        raise ValueError(f"target_queue is {dead_letters!r}, the queue they are in; name another one")
    async with shards.answer:
        shard = await shards.at(dead_letters)
        queue = present(shard, dead_letters)
        state = queue.state
        plan = await _plan(shards, shard, queue, order)
        ids = {key: id_of(state, key) for keys in plan.keys.values() for key in keys}
        went = plan.keys if order.is_dry_run else await _move(shards, moves, shard, queue, plan)
        moved = {name: [ids[key] for key in keys] for name, keys in went.items() if keys}
        remaining = len(state.rows.origins) - (len(ids) if order.is_dry_run else 0)
        return Redrive(moved, plan.without_origin, remaining, list(plan.full))


async def _plan(shards: ShardSet, shard: Shard, queue: Queue, order: RedriveOrder) -> RedrivePlan:
    """Choose what goes where, in turns; what has changed since it was looked at is left out when it is moved."""
    plan = RedrivePlan()
    rooms = {} if order.into is None else {order.into: room_of(shards.queue(order.into))}
    left = order.most
    for nth, slot in enumerate(_dead_letters(queue.state, order.ids), start=1):
        if nth % TURN_MESSAGES == 0:
            await asyncio.sleep(0)
        if not left or not shard.has(queue) or (plan.full and nth > _BLOCKED_MAX):
            break
        seen = _redrivable(queue.state, slot, has_target=order.into is not None)
        if seen is None or seen.origin is None:
            continue
        target = order.into or shards.name_of(seen.origin.queue)
        if target is None:
            plan.without_origin += [id_of(queue.state, seen.message)] * (len(plan.without_origin) < order.most)
            continue
        if target not in rooms:
            rooms[target] = room_of(shards.queue(target))
        if rooms[target]:
            rooms[target] -= 1
            left -= 1
            plan.keys.setdefault(target, []).append(seen.message)
        else:
            plan.full[target] = None
    return plan


def _redrivable(state: State, slot: int, *, has_target: bool) -> MessageView | None:
    """Return a dead letter that may go, if it is still there."""
    came_from = state.rows.origins.get(slot)
    if came_from is None:
        return None
    # What came back to its own queue is at home.
    if came_from.queue == state.queue and not has_target:
        return None
    return queries.look_at_row(state, slot) if state.rows.state[slot] in {WAITING, RESTING} else None


def _dead_letters(state: State, ids: Sequence[str] | None) -> Iterator[int]:
    """Yield the rows that are meant, in the order of their coming or of their ids; the queue may change meanwhile."""
    origins = state.rows.origins
    if ids is None:
        # A step of a redrive needs few, and there may be a million.
        first = list(islice(origins, _STEP_ROWS))
        yield from first
        if len(first) == _STEP_ROWS:
            passed = set(first)
            yield from (slot for slot in list(origins) if slot not in passed)
        return
    keys = [key for each in dict.fromkeys(ids) if (key := key_of(state, each)) is not None]
    # Whatever has an origin is a row; to look for others would be to search all leases.
    yield from [slot for key in keys if (slot := state.rows.index.get(key, 0)) in origins]


async def _move(
    shards: ShardSet, moves: CrossShardMoves, shard: Shard, queue: Queue, plan: RedrivePlan
) -> dict[str, list[int]]:
    """Move what stays in the shard in one batch, then the others; return what went."""
    if not shard.has(queue):
        return {}
    into = {name: number for name in plan.keys if (number := shards.number_of(name)) is not None}
    decided = {
        name: queue.redrive(into=into[name], now_ms=shard.now_ms(), most=min(len(keys), room), only=keys)
        for name, keys in plan.keys.items()
        if name in shard.memory.numbers and (room := room_of(shard.queue(name)))
    }
    events = {name: event for name, event in decided.items() if event is not None}
    if events:
        with shard.log.reserve(sum(map(_size, events.values()))) as space:
            shard.write(space, [JournalEntry(event) for event in events.values()])
    went = {name: [run.first << 3 | run.lane for run in event.runs] for name, event in events.items()}
    for name, keys in plan.keys.items():
        if name in into and name not in shard.memory.numbers:
            went[name] = await moves.redrive(shard, queue, keys, into=into[name])
    return went


def _size(event: Redriven) -> int:
    texts = sum(map(len, event.groups)) + sum(len(error.encode()) for error in event.errors)
    return EVENT_BYTES + ROW_BYTES * len(event.runs) + texts
