"""The shards of a store: which shard has a queue, and what time it is.

A queue is made in the shard that its name falls to, or beside the queue whose dead
letters it is for, and stays there however many shards there are later: it is found
by looking.

Laws of this file
-----------------
1. A name is that of one queue in all shards. A name that a deletion set free is used
   in another shard only when the deletion is durable: a crash must not leave two.
2. The number of a queue says which shard it was made in, so no two queues ever have
   the same.
3. That there is no such queue is known when all shards are durable.
4. All shards have one time: what one has told must not be in the future of another.

The time is the clock's, unless the clock has leapt ahead of all that the journals know.
A clock that is set wrong by days would let every waiting message expire, and what is
expired is gone. So a store that opens compares the clock with the newest time in its
journals and with the time at which they were closed. If the clock is far ahead, it is
*doubted*: time goes on from where it stood, as if the store had never been down, and
nothing grows old faster than it is seen to.

The doubt ends when the clock comes back near to the time of the store, or with a start
that is set to trust the clock. Waiting does not end it: a clock that is wrong stays
wrong.

    known ──────▶ time of the store          known: the newest time in the journals
                        │ ≤ CLOCK_LEAP_MS_MAX
                        ▼
    clock       trusted │ doubted ──▶
"""

import re
from collections.abc import Callable
from dataclasses import replace
from types import TracebackType
from zlib import crc32

from penstock.contract.limits import CLOCK_LEAP_MS_MAX, QUEUES_MADE_MAX, SHARDS_MAX
from penstock.contract.queue_settings import QueueSettings
from penstock.core.queue.events import QueueCreated, QueueDeleted
from penstock.core.queue.queue import Queue
from penstock.log.inventory import listed
from penstock.log.settings import LogSettings, leave_free_bytes
from penstock.log.writer_queue import off_loop
from penstock.runtime.interface import Disk, Runtime
from penstock.store.embedded.shard import JournalEntry, Shard
from penstock.store.embedded.shard_lifecycle import Folders, ShardLifecycle
from penstock.store.embedded.shard_state import RetentionLimits
from penstock.store.errors import QueueNotFound
from penstock.telemetry import STORE_CLOCK_DOUBTED, STORE_CLOCK_TRUSTED

JOURNAL = "journal"
SNAPSHOTS = "snapshots"
HISTORY = "history"
# How far up in the number of a queue that of its shard stands.
SHARD_SHIFT = QUEUES_MADE_MAX.bit_length()

_OF_SHARD = re.compile(rf"(?:{JOURNAL}|{SNAPSHOTS}|{HISTORY})(?:-([1-9][0-9]*))?")


class TooFewShards(ValueError):
    """There are journals of more shards than were asked for, and nothing may be left out."""


class TooManyQueues(Exception):
    """A shard has made as many queues as it has numbers for."""


class ShardSet:
    def __init__(self, running: list[ShardLifecycle]) -> None:
        self.running = running
        self.all = [each.shard for each in running]
        self.answer = DurableAnswers(self)
        # Names of deleted queues, and up to where whose journal must be durable before another shard may have them.
        self._freed: dict[str, tuple[Shard, int]] = {}
        self.time: StoreClock

    @classmethod
    async def open(
        cls, runtime: Runtime, folder: str, settings: LogSettings, *, count: int, keep: RetentionLimits, upkeep_ms: int
    ) -> "ShardSet":
        if not 1 <= count <= SHARDS_MAX:
            raise ValueError(f"shards is {count}; it must be from 1 to SHARDS_MAX ({SHARDS_MAX})")
        there = await off_loop(runtime.workers, lambda: count_shards(runtime.disk, folder))
        leaving_room = await off_loop(runtime.workers, lambda: _leaving_room(runtime.disk, folder, settings))
        if there > count:
            raise TooFewShards(f"{folder} has {there} shards, and was to be opened with {count}; queues are in all")
        running: list[ShardLifecycle] = []
        try:
            for index in range(count):
                folders = folders_of(folder, index)
                each = await ShardLifecycle.open(runtime, folders, leaving_room, keep=keep)
                running.append(each)
                memory = each.shard.memory
                memory.next_queue = max(memory.next_queue, index << SHARD_SHIFT | 1)
        except BaseException:
            for each in running:
                await each.close()
            raise
        shards = cls(running)
        try:
            await shards._take_over(runtime, upkeep_ms, trusts_clock=keep.trusts_clock)
        except BaseException:
            await shards.close()
            raise
        return shards

    async def _take_over(self, runtime: Runtime, upkeep_ms: int, *, trusts_clock: bool) -> None:
        known_ms = max(each.known_ms for each in self.running)
        self.time = StoreClock(runtime, known_ms, trusts_clock=trusts_clock)
        ahead_ms = self.time.ahead_ms
        for each in self.running:
            await each.take_over(ahead_ms, upkeep_ms=upkeep_ms)

    def look_at_clock(self) -> None:
        """See whether a clock that was doubted can be believed again; to be called from time to time."""
        if self.time.look():
            for shard in self.all:
                shard.ahead_ms = self.time.ahead_ms

    async def close(self) -> None:
        for each in self.running:
            await each.close()

    def find(self, queue: str) -> Shard | None:
        """Return the shard that has a queue of this name."""
        for shard in self.all:
            if queue in shard.memory.numbers:
                return shard
        return None

    async def at(self, queue: str) -> Shard:
        """Return the shard that has a queue, at once; raise `QueueNotFound` when it is sure that there is none."""
        shard = self.find(queue)
        if shard is None:
            await self.settled()
            raise QueueNotFound(f"there is no queue {queue!r}")
        return shard

    async def named(self, number: int | None) -> str:
        """Return the name of the queue of this number, at once; raises `QueueNotFound` when that is durable.

        What is then asked of the queue waits until it is durable.
        """
        name = None if number is None else self.name_of(number)
        if name is None:
            await self.settled()
            raise QueueNotFound("there is no queue of this id")
        return name

    def running_of(self, shard: Shard) -> ShardLifecycle:
        return self.running[self.all.index(shard)]

    def watch(self, wake: Callable[[str], None]) -> None:
        for shard in self.all:
            shard.watchers.append(wake)

    def home(self, queue: str) -> Shard:
        """Return the shard in which a queue of this name is made."""
        return self.all[crc32(queue.encode()) % len(self.all)]

    def of(self, number: int) -> Shard:
        """Return the shard in which the queue of this number was made, and is if it is still there."""
        return self.all[number >> SHARD_SHIFT]

    def name_of(self, number: int) -> str | None:
        shard = number >> SHARD_SHIFT
        return self.all[shard].memory.names.get(number) if shard < len(self.all) else None

    def number_of(self, queue: str) -> int | None:
        shard = self.find(queue)
        return None if shard is None else shard.memory.numbers[queue]

    def queue(self, name: str) -> Queue:
        """Return a queue that is there; raises `QueueNotFound`."""
        shard = self.find(name)
        if shard is None:
            raise QueueNotFound(f"there is no queue {name!r}")
        return shard.queue(name)

    def is_free(self, name: str, shard: Shard) -> bool:
        """Whether this shard may use a name that no queue has."""
        freed = self._freed.get(name)
        return freed is None or freed[0] is shard or freed[0].log.durable_offset >= freed[1]

    async def free(self, name: str) -> None:
        """Return when any shard may use a name, unless a queue has it then."""
        freed = self._freed.get(name)
        if freed is not None:
            await freed[0].log.wait_durable(freed[1])

    def created(self, shard: Shard, name: str, settings: QueueSettings) -> JournalEntry:
        assert self.find(name) is None
        assert self.is_free(name, shard)
        number = shard.memory.next_queue
        if self.of(number) is not shard:
            raise TooManyQueues(f"this shard has made QUEUES_MADE_MAX ({QUEUES_MADE_MAX}) queues")
        return JournalEntry(QueueCreated(number, shard.now_ms(), name, settings.to_json()))

    def deleted(self, shard: Shard, name: str) -> JournalEntry:
        """Return the fact that deletes a queue, which is about to be written."""
        self._freed = {each: freed for each, freed in self._freed.items() if freed[0].log.durable_offset < freed[1]}
        self._freed[name] = shard, shard.log.end_offset + 1
        return JournalEntry(QueueDeleted(shard.memory.numbers[name], shard.now_ms()))

    async def settled(self) -> None:
        """Return when everything decided so far is durable."""
        ends = [(shard.log, shard.log.end_offset) for shard in self.all]
        for log, end in ends:
            await log.wait_durable(end)


class DurableAnswers:
    """As that of a shard, for what was decided by several."""

    __slots__ = ("_shards",)

    def __init__(self, shards: ShardSet) -> None:
        self._shards = shards

    async def __aenter__(self) -> None:
        return None

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._shards.settled()


def _leaving_room(disk: Disk, folder: str, settings: LogSettings) -> LogSettings:
    disk.make_folder(folder)
    return replace(settings, leave_free_bytes=leave_free_bytes(disk.space(folder).total_bytes))


def folders_of(folder: str, index: int) -> Folders:
    """Return where a shard of the store in a folder keeps what.

    >>> folders_of("data", 0).journal, folders_of("data", 2).journal
    ('data/journal', 'data/journal-2')
    """
    ending = f"-{index}" if index else ""
    return Folders(*(f"{folder}/{name}{ending}" for name in (JOURNAL, SNAPSHOTS, HISTORY)))


def count_shards(disk: Disk, folder: str) -> int:
    """Return how many shards there are in a folder, by the highest; one of which anything is there or listed counts."""
    names = [*disk.names(folder), *listed(disk, folder)] if disk.exists(folder) else []
    found = [_OF_SHARD.fullmatch(name) for name in names]
    return max((int(match[1] or 0) + 1 for match in found if match is not None), default=0)


class StoreClock:
    """How far the time of a store is from its runtime's clock. The same for all shards."""

    def __init__(self, runtime: Runtime, known_ms: int, *, trusts_clock: bool) -> None:
        self._runtime = runtime
        now_ms = runtime.clock.now_ms()
        self.is_doubted = known_ms > 0 and not trusts_clock and now_ms - known_ms > CLOCK_LEAP_MS_MAX
        # Less than 0 only while the clock is doubted, or was wrong at the start.
        self.ahead_ms = known_ms - now_ms if self.is_doubted else max(0, known_ms - now_ms)
        if self.is_doubted:
            runtime.log_event(
                STORE_CLOCK_DOUBTED, clock_ms=now_ms, newest_ms=known_ms, ahead_s=(now_ms - known_ms) // 1_000
            )

    def look(self) -> bool:
        """Look at the clock again if it is doubted, and say whether `ahead_ms` has changed."""
        if not self.is_doubted:
            return False
        right_ms = self._runtime.wall_ms() - self._runtime.clock.now_ms()
        if right_ms - self.ahead_ms > CLOCK_LEAP_MS_MAX:
            return False
        self.is_doubted = False
        # Never back: leases and delays that have ended stay so.
        self.ahead_ms = max(self.ahead_ms, right_ms)
        self._runtime.log_event(STORE_CLOCK_TRUSTED, clock_ms=self._runtime.wall_ms())
        return True
