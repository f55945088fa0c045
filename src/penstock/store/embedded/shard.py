"""A journal and the queues it remembers.

    reserve ──▶ decide (core) ──▶ append ──▶ apply ──▶ wait ──▶ answer
                └──────── no await: nothing comes between ────────────┘

Laws of this file
-----------------
1. State changes only by `write`: events are appended and applied in one go. What
   is in memory is therefore always what a replay of the journal would give. The
   append is first: a batch too large for the journal then changes nothing. Before the
   shard serves, the leases begin again in a thread.
2. One decision is one record batch under one CRC: a move between two queues of
   the shard is there wholly or not at all.
3. No answer before the journal is durable up to its tail at the moment of the
   decision, also if the decision wrote nothing: what it was based on must not
   be undone by a crash.
4. No step of the loop takes longer the more there is. A queue in which too much is due
   at once is put behind its time, and catches up in turns (`CaughtUp`); what a purge or
   a deletion leaves is written to the history and freed in turns. Turns are in the journal where they
   change state: a replay goes the same way.
5. Time never goes back: it is the runtime's clock, moved forward if the journal
   already knows a later time, and back while the clock is doubted (`shard_set.py`).
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import NamedTuple

from penstock.contract.limits import KIB, TURN_ROWS
from penstock.contract.queue_settings import History as HistoryKept
from penstock.core.queue.events import Acked, Buried, Event, Opened, QueueCreated, Redriven
from penstock.core.queue.message import Run
from penstock.core.queue.queries import WAKING
from penstock.core.queue.queue import Queue
from penstock.core.queue.settlements import SETTLING, Everything, Settlement, settlements
from penstock.frame import Blobs
from penstock.log import record
from penstock.log.interface import Log, LogBusy, LogFull, Reservation
from penstock.log.writer_queue import off_loop
from penstock.runtime.interface import Runtime
from penstock.store.embedded.body_index import BodyCache, Span, Stored, pick
from penstock.store.embedded.event_codec import encode
from penstock.store.embedded.history_writer import Contents, History, QueueInfo
from penstock.store.embedded.shard_state import ON_DISK, RetentionLimits, ShardState, entries, stored, tiers_of
from penstock.store.errors import QueueNotFound

# What is read is walked in one step, so as much as 4,000 batches of a small lease.
READ_BYTES = 256 * KIB
# So much of a journal is applied in a turn: a batch of a thousand small messages, or many short events.
REPLAY_TURN_BYTES = 8 * KIB
# A turn is short, and its event some tens of bytes.
TURN_BYTES = 1_000
# How long a queue that is behind waits for room in the journal.
NO_ROOM_S = 0.2


class DurableAnswer:
    """Around a decision: its answer or refusal is given only when the journal is durable up to its tail.

    A refusal rests on what was decided before it: "there is no such queue" must not
    be undone by a crash that undoes the deletion.
    """

    __slots__ = ("_log",)

    def __init__(self, log: Log) -> None:
        self._log = log

    async def __aenter__(self) -> None:
        return None

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._log.wait_durable(self._log.end_offset)


class JournalEntry(NamedTuple):
    """An event to be written, with the columns that the core never sees."""

    event: Event
    bodies: Blobs | None = None
    attributes: Blobs | None = None


class Shard:
    def __init__(self, runtime: Runtime, log: Log, memory: ShardState, keep: RetentionLimits = ON_DISK) -> None:
        self._runtime = runtime
        self._handling = runtime.timings.handling
        self.log = log
        self.answer = DurableAnswer(log)
        self.memory = memory
        self.history: History | None = None
        self.hot = BodyCache(keep.hot_bytes)
        self.readers = Readers()
        # Told the names of queues in which something may be leasable now.
        self.watchers: list[Callable[[str], None]] = []
        # How far time is moved forward; the same in all shards of a store.
        self.ahead_ms = 0
        # Given work that is done in turns; each turn says after how many seconds the next one may come.
        self.in_turns: Callable[[Iterator[float]], None] = lambda _: None

    async def replay(self, offset: int) -> None:
        """Become what the journal says from ``offset`` on, in turns: health is asked for meanwhile."""
        done_bytes = 0
        while offset < self.log.durable_offset:
            for batch in await self.log.read(offset, bytes_max=READ_BYTES):
                for event, at, size_bytes in entries(batch):
                    if type(event) is Opened:
                        await self._open(event, at)
                    else:
                        self._apply(event, at, size_bytes)
                offset = record.header(batch).next_offset
                done_bytes += len(batch)
                if done_bytes >= REPLAY_TURN_BYTES:
                    done_bytes = 0
                    await asyncio.sleep(0)

    async def take_over(self, ahead_ms: int) -> None:
        """Begin to serve, at a time that is so far from the clock's: leases start again at their full length.

        A queue in which too much ended while no server was there catches up in turns, as it would have with one;
        so does one that was behind when the last server was killed.
        """
        self.ahead_ms = ahead_ms
        for queue in self.memory.queues.values():
            if queue.state.is_behind:
                self.in_turns(self._catching_up(queue))
            else:
                self.keep_up(queue)
        opened = Opened(self.now_ms())
        with self.log.reserve(1_000, from_spare=True) as space:
            batch = record.encode_one(*encode(*JournalEntry(opened)), at_ms=max(self.memory.newest_ms, opened.at_ms))
            offset = self.log.append(batch, space)
        await self._open(opened, offset)
        await self.settled()

    async def _open(self, event: Opened, offset: int) -> None:
        """Apply an event that touches every lease, in a thread: health is asked for meanwhile, and nothing else."""
        await off_loop(self._runtime.workers, lambda: self._apply(event, offset, 0))

    def now_ms(self) -> int:
        return self._runtime.clock.now_ms() + self.ahead_ms

    def queue(self, name: str) -> Queue:
        number = self.memory.numbers.get(name)
        if number is None:
            raise QueueNotFound(f"there is no queue {name!r}")
        queue = self.memory.queues[number]
        self.keep_up(queue)
        return queue

    def keep_up(self, queue: Queue) -> None:
        """Put a queue behind its time if too much is due in it; to be called before it is moved to the present."""
        state = queue.state
        # Most queues have too little in them, and are not even asked what is due.
        if (state.leased > TURN_ROWS or len(state.rows.index) > TURN_ROWS) and queue.is_overdue(
            self.now_ms(), TURN_ROWS
        ):
            try:
                self._turn(queue, 0)
            except (LogBusy, LogFull):
                # Then it has to be done at once.
                return
            self.in_turns(self._catching_up(queue))

    def _catching_up(self, queue: Queue) -> Iterator[float]:
        while self.has(queue) and queue.state.is_behind:
            try:
                self._turn(queue, TURN_ROWS)
            except (LogBusy, LogFull):
                yield NO_ROOM_S
            else:
                yield 0

    def _turn(self, queue: Queue, most: int) -> None:
        with self.log.reserve(TURN_BYTES, from_spare=True) as space:
            self.write(space, [JournalEntry(queue.catch_up(now_ms=self.now_ms(), most=most))])

    def let_go(self, everything: Everything) -> None:
        """Free what a purge or a deletion left, now that the history has it."""
        self.in_turns(0 for _ in everything.take_apart())

    def has(self, queue: Queue) -> bool:
        """Whether a queue met before an await has not been deleted since."""
        return self.memory.queues.get(queue.state.queue) is queue

    def write(self, space: Reservation, facts: Sequence[JournalEntry]) -> None:
        """Append what was decided and apply it, as one batch within a reservation."""
        # Not behind what is there: a log is searched by time.
        at_ms = max(self.memory.newest_ms, facts[-1].event.at_ms)
        if len(facts) == 1:
            batch = record.encode_one(*encode(*facts[0]), at_ms=at_ms)
        else:
            batch = record.encode([encode(*fact) for fact in facts], at_ms=at_ms)
        woken = self._woken(facts) if self.watchers else ()
        first = self.log.append(batch, space)
        for offset, (event, bodies, attributes) in enumerate(facts, start=first):
            size_bytes = 0
            if bodies is not None:
                kept = Stored(tiers_of(event), bodies, attributes)
                self.hot.put(offset, kept)
                size_bytes = kept.size_bytes
            self._apply(event, offset, size_bytes)
        for name in woken:
            for wake in self.watchers:
                wake(name)

    def _woken(self, facts: Sequence[JournalEntry]) -> list[str]:
        """Return the queues in which these events may make something leasable, as they are named before they happen."""
        names: list[str] = []
        memory = self.memory
        for event, _, _ in facts:
            wakes = WAKING.get(type(event))
            if wakes is None:
                continue
            if isinstance(event, QueueCreated):
                names.append(event.name)
                continue
            number: int = event.queue  # type: ignore[union-attr]
            if wakes(memory.queues[number].state, event):
                names.append(memory.names[number])
            if isinstance(event, Buried | Redriven):
                names.append(memory.names[event.into])
        return names

    def _apply(self, event: Event, offset: int, size_bytes: int) -> None:
        if type(event) is Acked:
            # Asked before the event is applied: it is then that the queue still knows.
            leased_at_ms = self.memory.queues[event.queue].state.leases.leased_at_ms[event.lease & 0xFFFF_FFFF]
            self._handling.add((event.at_ms - leased_at_ms) / 1_000, event.mask.bit_count())
        history = self.history
        if history is not None:
            if type(event) in SETTLING:
                # Asked before the event is applied: it is then that the queue still knows.
                queue = self.memory.queues[event.queue]  # type: ignore[union-attr]
                history.follow(offset, settlements(queue.state, event))
            else:
                # It settles nothing: there is nothing else to tell.
                history.followed = max(history.followed, offset + 1)
        self.memory.apply(event, offset, size_bytes)

    def about(self, number: int) -> QueueInfo | None:
        """Tell the history of a queue: its name, and how to read bodies if it keeps them."""
        name = self.memory.names[number]
        if self.memory.queues[number].state.settings.history is not HistoryKept.FULL:
            return QueueInfo(name)
        # Not looked up when they are read: the queue may be deleted by then.
        places = self.memory.places[number]

        async def read(settlement: Settlement, start: int, count: int) -> Contents:
            run = Run(settlement.key & 7, (settlement.key >> 3) + start, count)
            with self.readers.current:
                return await self.bodies(places.spans([run]))

        return QueueInfo(name, read)

    async def settled(self) -> None:
        """Return when everything decided so far is durable."""
        await self.log.wait_durable(self.log.end_offset)

    def told_offset(self) -> int:
        """Up to where the journal is no longer needed for the history."""
        return self.log.durable_offset if self.history is None else self.history.covered

    async def tell_history(self) -> bool:
        """Have the history tell of everything so far, and return whether there was room for it.

        Of a queue that was deleted nothing is copied forward, and yet its last rows may need its bodies.
        """
        if self.history is None:
            return True
        end = self.log.end_offset
        await self.history.flush()
        return self.history.covered >= end

    async def bodies(self, spans: Sequence[Span]) -> tuple[Sequence[memoryview], Sequence[memoryview] | None]:
        """Return bodies and, if any of them has some, attributes."""
        if len(spans) == 1:
            return await self._bodies_of(spans[0])
        bodies: list[memoryview] = []
        attributes: list[memoryview] = []
        has_attributes = False
        for record_offset, tier, nth, length in spans:
            found = self.hot.get(record_offset) or await self.stored(record_offset)
            rows = found.rows(tier, nth, length)
            bodies += pick(found.bodies, rows)
            attributes += pick(found.attributes, rows)
            has_attributes |= found.attributes is not None
        return bodies, attributes if has_attributes else None

    async def _bodies_of(self, span: Span) -> tuple[Sequence[memoryview], Sequence[memoryview] | None]:
        """The way of a healthy delivery: all of it is in one record."""
        offset, tier, nth, length = span
        found = self.hot.get(offset) or await self.stored(offset)
        rows = found.rows(tier, nth, length)
        return pick(found.bodies, rows), None if found.attributes is None else pick(found.attributes, rows)

    async def stored(self, offset: int) -> Stored:
        """Return the bodies of a record, from memory or from the journal."""
        found = self.hot.get(offset)
        if found is None:
            (batch, *_) = await self.log.read(offset, bytes_max=1)
            found = stored(batch, offset)
            self.hot.put(offset, found)
        return found


class Readings:
    """A context manager around looking up a place and reading what is there; many may be within at the same time."""

    __slots__ = ("count", "empty")

    def __init__(self) -> None:
        self.count = 0
        self.empty: asyncio.Future[None] | None = None

    def __enter__(self) -> None:
        self.count += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.count -= 1
        if not self.count and self.empty is not None and not self.empty.done():
            self.empty.set_result(None)


class Readers:
    """The readings that go on, by rounds: `last` waits for all that had begun when it was called.

    A verb that hands out messages looks up where their bodies are, waits for the
    journal, and only then reads. In between, the bodies may have been copied to
    another place, and the old one is dropped only after `last`.
    """

    __slots__ = ("current",)

    def __init__(self) -> None:
        # Those that begin now.
        self.current = Readings()

    async def last(self) -> None:
        done, self.current = self.current, Readings()
        if done.count:
            done.empty = asyncio.get_running_loop().create_future()
            await done.empty
