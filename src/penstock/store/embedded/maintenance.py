"""What is due by time alone: spent messages go to the dead letters, old ones expire.

Into a queue of the same shard a burial is one event and happens at once. Elsewhere
it is a move (`cross_shard_moves.py`), and the caller waits for it.
"""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from heapq import heapify, heappop, heappush

from penstock.contract.limits import MOVE_MESSAGES_MAX
from penstock.contract.queue_settings import DEAD_LETTER_SETTINGS
from penstock.core.queue.queue import ExpirySweep, Queue
from penstock.core.queue.timer_wheel import NEVER
from penstock.log.interface import LogBusy, LogFull
from penstock.store.embedded.cross_shard_moves import CrossShardMoves
from penstock.store.embedded.queries import grave_of, room_of
from penstock.store.embedded.shard import JournalEntry, Shard
from penstock.store.embedded.shard_set import ShardSet

BURIED_BYTES = MOVE_MESSAGES_MAX * 6_000 + 16_384
EXPIRED_BYTES = 1_000_000
# Queues looked at before others have their turn.
TURN_QUEUES = 100


class Maintenance:
    def __init__(self, shards: ShardSet, moves: CrossShardMoves) -> None:
        self._shards = shards
        self._moves = moves
        # Told the names of a queue and of its dead letters when these are full.
        self.tell_full: Callable[[str, str], None] = lambda *_: None
        # The numbers of queues whose dead letters are full.
        self._stuck: set[int] = set()
        # When a queue is to be looked at though nothing happens to it, by its number; and those times as a heap.
        self._looks_ms: dict[int, int] = {}
        self._timers: list[tuple[int, int]] = []

    async def tidy(self) -> None:
        """Tidy all queues. A journal without room holds up only what needs it; then this raises in the end."""
        self._shards.look_at_clock()
        refusals: list[LogBusy | LogFull] = []
        for nth, number in enumerate(self._due(), start=1):
            shard = self._shards.of(number)
            queue = shard.memory.queues.get(number)
            if queue is not None:
                try:
                    await self._tidy(shard, queue)
                except (LogBusy, LogFull) as refusal:
                    shard.memory.changed.add(number)
                    refusals.append(refusal)
            if nth % TURN_QUEUES == 0:
                await asyncio.sleep(0)
        await self._shards.settled()
        if refusals:
            raise refusals[0]

    def _due(self) -> list[int]:
        """Return the numbers of the queues that something has happened to, or is due in."""
        due: set[int] = set()
        for shard in self._shards.all:
            due |= shard.memory.changed
            shard.memory.changed = set()
        now_ms, timers = self._shards.all[0].now_ms(), self._timers
        while timers and timers[0][0] <= now_ms:
            at_ms, number = heappop(timers)
            # A queue that was looked at since has another timer.
            if self._looks_ms.get(number) == at_ms:
                del self._looks_ms[number]
                due.add(number)
        return sorted(due)

    async def _tidy(self, shard: Shard, queue: Queue) -> None:
        await self._moves.finish(shard, queue)
        while shard.has(queue) and await self.bury(shard, queue):
            pass
        while shard.has(queue) and not queue.state.is_behind and queue.state.dedup.next_ms() <= shard.now_ms():
            queue.advance(shard.now_ms())
            await asyncio.sleep(0)
        cursor, oldest_ms, is_searched = 0, NEVER, False
        while shard.has(queue) and not is_searched:
            swept = self._expire(shard, queue, cursor)
            cursor, oldest_ms, is_searched = swept.cursor, min(oldest_ms, swept.oldest_ms), not swept.cursor
            if swept.event is not None or cursor:
                await shard.settled()
                # Nothing may have been written, and there may be many rows.
                await asyncio.sleep(0)
        self._look_again(shard, queue, oldest_ms)

    def _look_again(self, shard: Shard, queue: Queue, oldest_ms: int) -> None:
        """Set the timer of a queue in which something may become due without a request."""
        state, number = queue.state, queue.state.queue
        # What could not go waits for room elsewhere, which comes without a word.
        is_stuck = bool(state.spent) or state.moves.pending is not None
        at_ms = 0 if is_stuck else min(state.due_ms, oldest_ms + state.settings.retention_ms)
        if not shard.has(queue) or at_ms >= NEVER:
            self._looks_ms.pop(number, None)
        elif self._looks_ms.get(number) != at_ms:
            self._looks_ms[number] = at_ms
            heappush(self._timers, (at_ms, number))
            if len(self._timers) > 2 * len(self._looks_ms) + TURN_QUEUES:
                self._timers = [(at_ms, number) for number, at_ms in self._looks_ms.items()]
                heapify(self._timers)

    async def bury(self, shard: Shard, queue: Queue) -> bool:
        """Move some spent messages to the dead letters, and return whether any went."""
        shard.keep_up(queue)
        has_gone = self.bury_at_once(shard, queue)
        if has_gone is None:
            has_gone = await self._bury_elsewhere(shard, queue)
        await shard.settled()
        return has_gone

    def bury_at_once(self, shard: Shard, queue: Queue) -> bool | None:
        """As `bury`, without waiting for anything, of a queue that has kept up. None if it cannot be done so.

        The queue for dead letters is made when it is first needed, beside the queue that needs it.
        """
        queue.state.advance(shard.now_ms())
        if not queue.state.spent:
            return False
        name = grave_of(shard.memory.names[queue.state.queue], queue.state)
        if name not in shard.memory.numbers and (self._shards.find(name) or not self._shards.is_free(name, shard)):
            return None
        with shard.log.reserve(BURIED_BYTES, from_spare=True) as space:
            if name not in shard.memory.numbers:
                size_max = queue.state.settings.size_max
                shard.write(
                    space, [self._shards.created(shard, name, replace(DEAD_LETTER_SETTINGS, size_max=size_max))]
                )
            target = shard.queue(name)
            room = min(room_of(target), MOVE_MESSAGES_MAX)
            event = queue.bury(into=target.state.queue, room=room, now_ms=shard.now_ms())
            if event is not None:
                shard.write(space, [JournalEntry(event)])
            self._look_at_room(shard, queue, name, is_full=event is None)
            return event is not None

    def _look_at_room(self, shard: Shard, queue: Queue, dead_letters: str, *, is_full: bool) -> None:
        """Tell that messages cannot be buried, once until some can be again."""
        number = queue.state.queue
        if not is_full:
            self._stuck.discard(number)
        elif number not in self._stuck:
            self._stuck.add(number)
            self.tell_full(shard.memory.names[number], dead_letters)

    async def _bury_elsewhere(self, shard: Shard, queue: Queue) -> bool:
        name = grave_of(shard.memory.names[queue.state.queue], queue.state)
        elsewhere = self._shards.find(name)
        if elsewhere is None:
            # It was deleted a moment ago, in another shard.
            await self._shards.free(name)
            if not shard.has(queue):
                return False
            shard.keep_up(queue)
            return bool(self.bury_at_once(shard, queue))
        target = elsewhere.queue(name)
        has_gone = await self._moves.bury(shard, queue, into=target.state.queue, room=room_of(target))
        if shard.has(queue):
            self._look_at_room(shard, queue, name, is_full=bool(queue.state.spent) and not room_of(target))
        return has_gone

    def _expire(self, shard: Shard, queue: Queue, cursor: int) -> ExpirySweep:
        """Drop some messages that are too old."""
        with shard.log.reserve(EXPIRED_BYTES, from_spare=True) as space:
            swept = queue.expire(now_ms=shard.now_ms(), cursor=cursor)
            if swept.event is not None:
                shard.write(space, [JournalEntry(swept.event)])
            return swept
