"""Messages on their way to a queue of another shard: to the dead letters, and back.

    source   Moving ─ durable ─┐                        ┌─ Moved ─ durable
    target                     └─ Arrived ─ durable ────┘

No event is in two journals, so a move takes three. A crash may fall between any
two of them; the next opening of the store does the rest.

Laws of this file
-----------------
1. `Arrived` is written when `Moving` is durable: otherwise a crash could leave the
   messages in both queues.
2. `Moved` is written when `Arrived` is durable: otherwise a crash could leave them
   in none.
3. A move arrives once: the target knows the highest sequence of each source and
   takes none again. So every step may be repeated when in doubt.
4. One move is under way at a time. A queue is deleted while none is, and when what
   has arrived in it has been settled where it came from: otherwise a crash could
   bring back what was deleted with it.
5. If the target is gone, the messages go back to where they were.

What stays half done, because a journal is full or a caller was cancelled, is
finished by the next `tidy`. Until then the messages are on their way: no consumer gets them.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

from penstock.contract.limits import MOVE_BYTES_MAX, MOVE_MESSAGES_MAX
from penstock.core.queue import queries
from penstock.core.queue.events import Moving
from penstock.core.queue.message import Run
from penstock.core.queue.queries import PendingMove
from penstock.core.queue.queue import Queue
from penstock.core.queue.rows import key
from penstock.core.queue.state import State
from penstock.frame import Blobs
from penstock.log.interface import LogBusy, LogFull
from penstock.store.embedded.shard import JournalEntry, Shard
from penstock.store.embedded.shard_set import ShardSet

# What an event takes besides its rows.
EVENT_BYTES = 1_024
# What a message takes besides its texts.
ROW_BYTES = 128
NOTHING = memoryview(b"")


@dataclass(frozen=True, slots=True)
class MoveBodies:
    """Bodies of some messages by their keys, and the attributes of those that have any."""

    bodies: dict[int, memoryview]
    attributes: dict[int, memoryview]


class CrossShardMoves:
    def __init__(self, shards: ShardSet) -> None:
        self._shards = shards
        self.lock = asyncio.Lock()

    def is_idle(self, queue: Queue) -> bool:
        """Whether a move from a queue may begin at once."""
        return not self.lock.locked() and queue.state.moves.pending is None

    async def bury(self, shard: Shard, queue: Queue, *, into: int, room: int) -> bool:
        """Move some spent messages, and return whether any went."""
        most = min(room, MOVE_MESSAGES_MAX)
        return bool(await self._move(shard, queue, lambda: _spent(queue.state, most), into=into, is_redrive=False))

    async def redrive(self, shard: Shard, queue: Queue, keys: Sequence[int], *, into: int) -> list[int]:
        """Move some dead letters, and return the keys of those that went."""
        index = queue.state.rows.index
        moved: dict[int, None] = {}

        def left() -> list[int]:
            # Whatever is no row by now was settled meanwhile.
            return [each for each in keys if each not in moved and each in index][:MOVE_MESSAGES_MAX]

        while went := await self._move(shard, queue, left, into=into, is_redrive=True):
            moved |= dict.fromkeys(went)
        return list(moved)

    async def _move(
        self, shard: Shard, queue: Queue, choose: Callable[[], list[int]], *, into: int, is_redrive: bool
    ) -> list[int]:
        async with self.lock:
            await self._finish(shard, queue)
            if not shard.has(queue):
                return []
            with shard.readers.current:
                cargo = await _load(shard, queue, choose())
            if not shard.has(queue) or into not in self._shards.of(into).memory.queues:
                return []
            event = _decide(shard, queue, cargo, into=into, is_redrive=is_redrive)
            if event is None:
                return []
            with shard.log.reserve(EVENT_BYTES + ROW_BYTES * len(event.runs), from_spare=True) as space:
                shard.write(space, [JournalEntry(event)])
            is_done = await self._complete(shard, queue, cargo)
            return _keys(event.runs) if is_done else []

    async def resume(self) -> None:
        """Do the rest of what a crash left half done, as far as there is room for it."""
        for shard in self._shards.all:
            for queue in _on_the_way(shard):
                try:
                    await self.finish(shard, queue)
                except (LogBusy, LogFull):
                    continue

    async def finish(self, shard: Shard, queue: Queue) -> None:
        """Do the rest of a move, if one is on its way."""
        if queue.state.moves.pending is not None:
            async with self.lock:
                await self._finish(shard, queue)

    async def settle_arrived(self) -> None:
        """Settle what has arrived where it came from. The caller has the lock and is about to delete a queue."""
        for shard in self._shards.all:
            for queue in _on_the_way(shard):
                if self._has_arrived(queue):
                    await self._finish(shard, queue)

    async def _finish(self, shard: Shard, queue: Queue) -> None:
        move = queries.moving(queue.state)
        if move is None or not shard.has(queue):
            return
        cargo = None
        if not self._has_arrived(queue):
            with shard.readers.current:
                cargo = await _load(shard, queue, move.messages, bytes_max=None)
        if shard.has(queue):
            await self._complete(shard, queue, cargo)

    def _has_arrived(self, queue: Queue) -> bool:
        pending = queue.state.moves.pending
        if pending is None:
            return False
        target = self._shards.of(pending.into).memory.queues.get(pending.into)
        return target is not None and target.state.moves.arrived.get(queue.state.queue, 0) >= pending.sequence

    async def _complete(self, shard: Shard, queue: Queue, cargo: MoveBodies | None) -> bool:
        """Take a move that was begun to its end, and return whether the messages went."""
        await shard.settled()
        if not shard.has(queue):
            return False
        move = queries.moving(queue.state)
        assert move is not None
        target = self._shards.of(move.into)
        is_there = move.into in target.memory.queues
        if is_there and cargo is not None:
            _arrive(target, queue, move, cargo)
        await target.settled()
        if not shard.has(queue):
            return is_there
        with shard.log.reserve(EVENT_BYTES, from_spare=True) as space:
            event = queue.end_move(is_done=is_there, now_ms=shard.now_ms())
            assert event is not None
            shard.write(space, [JournalEntry(event)])
        await shard.settled()
        return is_there


def _on_the_way(shard: Shard) -> list[Queue]:
    """Return the queues that have a move on its way."""
    return [queue for queue in shard.memory.queues.values() if queue.state.moves.pending is not None]


def _arrive(target: Shard, queue: Queue, move: PendingMove, cargo: MoveBodies) -> None:
    bodies = [cargo.bodies[each] for each in move.messages]
    attributes = [cargo.attributes.get(each, NOTHING) for each in move.messages] if cargo.attributes else None
    texts = [*bodies, *(attributes or ()), *move.groups, *(error.encode() for error in move.errors)]
    size = EVENT_BYTES + ROW_BYTES * len(bodies) + sum(map(len, texts))
    target.keep_up(target.memory.queues[move.into])
    with target.log.reserve(size) as space:
        columns = move.tiers, move.origins, move.groups, move.errors
        event = target.memory.queues[move.into].arrive(
            queue.state.queue, move.sequence, *columns, now_ms=target.now_ms()
        )
        if event is not None:
            extra = None if attributes is None else Blobs.of(attributes)
            target.write(space, [JournalEntry(event, Blobs.of(bodies), extra)])


def _decide(shard: Shard, queue: Queue, cargo: MoveBodies, *, into: int, is_redrive: bool) -> Moving | None:
    """Begin a move of what is loaded, or of nothing if other messages are to go first by now."""
    only = cargo.bodies.keys() if is_redrive else None
    now_ms = shard.now_ms()
    event = queue.start_move(into=into, most=len(cargo.bodies), now_ms=now_ms, is_redrive=is_redrive, only=only)
    return event if event is not None and set(_keys(event.runs)) <= cargo.bodies.keys() else None


async def _load(
    shard: Shard, queue: Queue, keys: Sequence[int], *, bytes_max: int | None = MOVE_BYTES_MAX
) -> MoveBodies:
    """Read messages until they are as large as may go at once; the first always may."""
    places = shard.memory.places[queue.state.queue]
    spans = [places.span(each & 7, each >> 3) for each in keys]
    bodies: dict[int, memoryview] = {}
    attributes: dict[int, memoryview] = {}
    size = 0
    for each, span in zip(keys, spans, strict=True):
        (body,), extra = await shard.bodies([span])
        size += len(body) + (0 if extra is None else len(extra[0]))
        if bodies and bytes_max is not None and size > bytes_max:
            break
        bodies[each] = body
        if extra is not None:
            attributes[each] = extra[0]
    return MoveBodies(bodies, attributes)


def _spent(state: State, most: int) -> list[int]:
    return [key(state.rows.lane[slot], state.rows.number[slot]) for slot in islice(state.spent, most)]


def _keys(runs: Iterable[Run]) -> list[int]:
    return [key(run.lane, run.first) for run in runs]
