"""What is due without anyone asking: spent messages go to the dead letters, old ones go.

Into a queue of the same shard a burial is one event and happens at once. Elsewhere
it is a move (`moves.py`), and whoever asks for it waits.
"""

import asyncio
from collections.abc import Callable
from dataclasses import replace

from penstock.contract.limits import EVENT_RUNS_MAX, MOVE_MESSAGES_MAX
from penstock.contract.queue_settings import DEAD_LETTER_SETTINGS
from penstock.core.queue import Queue
from penstock.log.interface import LogBusy, LogFull
from penstock.store.embedded.asking import grave_of, room_of
from penstock.store.embedded.moves import Moves
from penstock.store.embedded.shard import Fact, Shard
from penstock.store.embedded.shards import Shards

BURIED_BYTES = MOVE_MESSAGES_MAX * 6_000 + 16_384
EXPIRED_BYTES = 1_000_000


class Tidying:
    def __init__(self, shards: Shards, moves: Moves) -> None:
        self._shards = shards
        self._moves = moves
        # Told the names of a queue and of its dead letters when these are full.
        self.tell_full: Callable[[str, str], None] = lambda *_: None
        # The numbers of queues whose dead letters are full.
        self._stuck: set[int] = set()

    async def tidy(self) -> None:
        """Tidy all queues. A journal without room holds up only what needs it; then this raises in the end."""
        self._shards.look_at_clock()
        refusals: list[LogBusy | LogFull] = []
        for shard in self._shards.all:
            for queue in list(shard.memory.queues.values()):
                try:
                    await self._tidy(shard, queue)
                except (LogBusy, LogFull) as refusal:
                    refusals.append(refusal)
        await self._shards.settled()
        if refusals:
            raise refusals[0]

    async def _tidy(self, shard: Shard, queue: Queue) -> None:
        await self._moves.finish(shard, queue)
        while shard.has(queue) and await self.bury(shard, queue):
            pass
        cursor = 0
        while shard.has(queue) and (cursor := self._expire(shard, queue, cursor)):
            await shard.settled()
            # Nothing may have been written, and there may be many rows.
            await asyncio.sleep(0)

    async def bury(self, shard: Shard, queue: Queue) -> bool:
        """Move some spent messages to the dead letters, and return whether any went."""
        has_gone = self.bury_at_once(shard, queue)
        if has_gone is None:
            has_gone = await self._bury_elsewhere(shard, queue)
        await shard.settled()
        return has_gone

    def bury_at_once(self, shard: Shard, queue: Queue) -> bool | None:
        """As `bury`, without waiting for anything. None if it cannot be done so.

        The queue for dead letters is made when it is first needed, beside the queue that needs it.
        """
        shard.keep_up(queue)
        queue.advance(shard.now_ms())
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
                shard.write(space, [Fact(event)])
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
            return shard.has(queue) and bool(self.bury_at_once(shard, queue))
        target = elsewhere.queue(name)
        has_gone = await self._moves.bury(shard, queue, into=target.state.queue, room=room_of(target))
        if shard.has(queue):
            self._look_at_room(shard, queue, name, is_full=bool(queue.state.spent) and not room_of(target))
        return has_gone

    def _expire(self, shard: Shard, queue: Queue, cursor: int) -> int:
        """Let go of some messages that are too old, and return where to go on; 0 if there are no more."""
        with shard.log.reserve(EXPIRED_BYTES, from_spare=True) as space:
            swept = queue.expire(now_ms=shard.now_ms(), cursor=cursor)
            if swept.event is None:
                return swept.cursor
            shard.write(space, [Fact(swept.event)])
            # There may be more runs than one event holds: again from here, and from 1, for slot 0 is nobody's.
            return swept.cursor if len(swept.event.runs) < EVENT_RUNS_MAX else max(1, cursor)
