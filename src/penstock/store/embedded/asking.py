"""What can be asked of the queues of a shard. Nothing here writes, and every answer is durable."""

import asyncio
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import chain, takewhile

from penstock.contract.limits import TURN_ROWS
from penstock.contract.names import dead_letters_of
from penstock.core.queue import queries
from penstock.core.queue.explain import explain as explain_core
from penstock.core.queue.message import Receipt, Run
from penstock.core.queue.queries import wakes_at_ms as wakes_at_ms_of
from penstock.core.queue.queue import Queue
from penstock.core.queue.state import State
from penstock.store.embedded.naming import id_of, key_of
from penstock.store.embedded.shard import Shard
from penstock.store.embedded.shards import Shards
from penstock.store.ids import queue_id
from penstock.store.interface import Bound, Counts, Description, Escalation, Explained, check_ids, check_most

UNBOUNDED = 2**40


def present(shard: Shard, queue: str) -> Queue:
    """Return a queue, moved to the present."""
    found = shard.queue(queue)
    found.advance(shard.now_ms())
    return found


async def queues(shards: Shards, *, prefix: str, after: str, most: int) -> list[str]:
    check_most(most)
    async with shards.answer:
        names = sorted(chain.from_iterable(shard.memory.numbers for shard in shards.all))
        first = max(bisect_right(names, after), bisect_left(names, prefix))
        return list(takewhile(lambda name: name.startswith(prefix), names[first : first + most]))


async def counts(shard: Shard, queue: str) -> Counts:
    async with shard.answer:
        state = present(shard, queue).state
        found = queries.counts(state)
        oldest = tuple(queries.oldest_sent_at_ms(state))
        delayed, stuck_since_ms = found.resting + found.moving, queries.spent_since_ms(state)
        noisy = queries.noisy(state)
        return Counts(found.ready, found.leased, delayed, oldest, found.spent, stuck_since_ms, *noisy)


def wakes_at_ms(shard: Shard, queue: str) -> int | None:
    return wakes_at_ms_of(present(shard, queue).state)


async def describe(shards: Shards, queue: str) -> Description:
    async with shards.answer:
        state = present(await shards.at(queue), queue).state
        grave = grave_of(queue, state)
        shard = shards.find(grave)
        grave_id = None if shard is None else queue_id(shard.queue(grave).state.queue)
        return Description(
            queue=queue,
            id=queue_id(state.queue),
            settings=state.settings,
            created_at_ms=state.created_at_ms or None,
            dead_letters=None if grave_id is None else grave,
            dead_letters_id=grave_id,
            bounds=tuple(Bound(*bound) for bound in queries.bounds(state, state.now_ms)),
        )


def grave_of(queue: str, state: State) -> str:
    """Return the name of the queue that a queue buries in."""
    return state.settings.dead_letters or dead_letters_of(queue)


def room_of(target: Queue) -> int:
    """Return how many messages may be moved into a queue."""
    size_max = target.state.settings.size_max
    return max(0, size_max - target.state.live) if size_max else UNBOUNDED


async def find_holders(shard: Shard, queue: str) -> None:
    """Have leases found by their messages from now on; the first time that is long work, done in turns."""
    # Whoever asks next says that there is no such queue, when that is durable.
    while (number := shard.memory.numbers.get(queue)) is not None:
        if shard.memory.queues[number].state.leases.make_index(TURN_ROWS):
            return
        await asyncio.sleep(0)


async def explain(shard: Shard, queue: str, message_id: str) -> Explained | None:
    await find_holders(shard, queue)
    async with shard.answer:
        state = present(shard, queue).state
        message = key_of(state, message_id)
        explanation = None if message is None else explain_core(state, message)
        if explanation is None:
            return None
        leases = explanation.leases_bound
        bound = None if leases is None else Bound(leases, state.started.ms_for(leases, state.now_ms))
        return Explained(message_id, explanation, bound)


async def receipts(shard: Shard, queue: str, ids: Sequence[str], *, outlives: bool = False) -> list[Receipt | None]:
    check_ids(ids)
    await find_holders(shard, queue)
    async with shard.answer:
        state = present(shard, queue).state
        keys = [key_of(state, each) for each in ids]
        known = [key for key in keys if key is not None]
        held = queries.holders(state, known)
        if outlives:
            held |= queries.late_holders(state, known)
        return [_receipt(state, held[key]) if key in held else None for key in keys]


def _receipt(state: State, held: tuple[int, int]) -> Receipt:
    lease, row = held
    return Receipt(lease, state.leases.token[state.leases.find(lease)], row)


async def audit(shard: Shard, queue: str, *, most: int) -> list[Escalation]:
    check_most(most)
    async with shard.answer:
        state = present(shard, queue).state
        newest = list(state.audit)[: -most - 1 : -1]
        return [
            Escalation(each.at_ms, each.actor, each.reason, each.tier, each.until_ms, _ids_of_runs(state, each.runs))
            for each in newest
        ]


def _ids_of_runs(state: State, runs: Sequence[Run]) -> list[str]:
    return [id_of(state, number << 3 | lane) for lane, first, count in runs for number in range(first, first + count)]
