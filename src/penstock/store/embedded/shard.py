"""A journal and the queues it remembers.

    reserve ──▶ decide (core) ──▶ append ──▶ apply ──▶ wait ──▶ answer
                └──────── no await: nobody else comes between ────────┘

Laws of this file
-----------------
1. State changes only by `write`: events are appended and applied in one go. What
   is in memory is therefore always what a replay of the journal would give. The
   append is first: a batch too large for the journal then changes nothing.
2. One decision is one record batch under one CRC: a move between two queues of
   the shard is there wholly or not at all.
3. No answer before the journal is durable up to its tail at the moment of the
   decision, also if the decision wrote nothing: what it was based on must not
   be undone by a crash.
4. Time never goes back: it is the runtime's clock, moved forward if the journal
   already knows a later time.
"""

from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import NamedTuple

from penstock.core.events import Buried, Event, Opened, QueueCreated, QueueDeleted, Redriven, Sent
from penstock.core.limits import MIB
from penstock.core.queue import Queue
from penstock.log import record
from penstock.log.frame import Blobs
from penstock.log.interface import Log, Reservation
from penstock.runtime.interface import Runtime
from penstock.store.embedded.bodies import Hot, Places, Stored, move
from penstock.store.embedded.codec import decode, encode
from penstock.store.interface import QueueNotFound

READ_BYTES = 4 * MIB
HOT_BYTES_MAX = 64 * MIB


class JournalHasHole(Exception):
    """Events were lost to damage: the queues cannot be what they were. Nothing was changed."""


class Answer:
    """Around a decision: whatever comes of it, a refusal too, is told only when the journal is durable up to its tail.

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


class Fact(NamedTuple):
    """An event to be written, with the columns that the core never sees."""

    event: Event
    bodies: Blobs | None = None
    attributes: Blobs | None = None


class Shard:
    def __init__(self, runtime: Runtime, log: Log) -> None:
        self._runtime = runtime
        self.log = log
        self.answer = Answer(log)
        self.queues: dict[int, Queue] = {}
        self.places: dict[int, Places] = {}
        self.numbers: dict[str, int] = {}
        self.names: dict[int, str] = {}
        # Numbers of queues are never used again: ids of messages name them.
        self.next_queue = 1
        self.hot = Hot(HOT_BYTES_MAX)
        self._newest_ms = 0
        self._ahead_ms = 0

    async def replay(self) -> None:
        """Become what the journal says, and take over: leases begin anew."""
        offset = self.log.start_offset
        while offset < self.log.durable_offset:
            for batch in await self.log.read(offset, bytes_max=READ_BYTES):
                for offset, event in _events(batch):
                    self._apply(event, offset)
                offset = record.header(batch).next_offset
        self._ahead_ms = max(0, self._newest_ms - self._runtime.clock.now_ms())
        opened = Opened(self.now_ms())
        with self.log.reserve(1_000, from_spare=True) as space:
            self.write(space, [Fact(opened)])
        await self.settled()

    def now_ms(self) -> int:
        return self._runtime.clock.now_ms() + self._ahead_ms

    def queue(self, name: str) -> Queue:
        number = self.numbers.get(name)
        if number is None:
            raise QueueNotFound(f"there is no queue {name!r}")
        return self.queues[number]

    def has(self, queue: Queue) -> bool:
        """Whether a queue met before an await has not been deleted since."""
        return self.queues.get(queue.state.queue) is queue

    def write(self, space: Reservation, facts: Sequence[Fact]) -> None:
        """Append what was decided and apply it, as one batch within a reservation."""
        at_ms = max(self._newest_ms, *(fact.event.at_ms for fact in facts))
        first = self.log.append(record.encode([encode(*fact) for fact in facts], at_ms=at_ms), space)
        for offset, fact in enumerate(facts, start=first):
            if isinstance(fact.event, Sent):
                assert fact.bodies is not None
                self.hot.put(offset, Stored(fact.event.tiers, fact.bodies, fact.attributes))
            self._apply(fact.event, offset)

    async def settled(self) -> None:
        """Return when everything decided so far is durable."""
        await self.log.wait_durable(self.log.end_offset)

    def _apply(self, event: Event, offset: int) -> None:
        self._newest_ms = max(self._newest_ms, event.at_ms)
        match event:
            case Opened():
                for queue in self.queues.values():
                    queue.apply(event)
            case QueueCreated():
                self._add(event)
            case QueueDeleted():
                self._remove(event)
            case Buried() | Redriven():
                move(event, self.places[event.queue], self.places[event.into])
                self.queues[event.queue].apply(event)
                self.queues[event.into].apply(event)
            case Sent():
                self.places[event.queue].sent(event, offset)
                self.queues[event.queue].apply(event)
            case _:
                self.queues[event.queue].apply(event)

    def _add(self, event: QueueCreated) -> None:
        queue = Queue(event.queue)
        queue.apply(event)
        self.queues[event.queue] = queue
        self.places[event.queue] = Places()
        self.numbers[event.name] = event.queue
        self.names[event.queue] = event.name
        self.next_queue = max(self.next_queue, event.queue + 1)

    def _remove(self, event: QueueDeleted) -> None:
        del self.queues[event.queue], self.places[event.queue]
        del self.numbers[self.names.pop(event.queue)]

    async def stored(self, offset: int) -> Stored:
        """Return the frame of a send, from memory or from the journal."""
        found = self.hot.get(offset)
        if found is None:
            (batch, *_) = await self.log.read(offset, bytes_max=1)
            found = _stored(batch, offset)
            self.hot.put(offset, found)
        return found


def _events(batch: memoryview) -> Iterator[tuple[int, Event]]:
    header = record.header(batch)
    if header.is_hole:
        lost = f"offsets {header.base_offset} to {header.next_offset - 1}"
        raise JournalHasHole(f"the journal has lost {lost} to a repair; what its queues held cannot be known")
    for offset, entry in enumerate(record.records(batch), start=header.base_offset):
        yield offset, decode(entry.key, entry.value).event


def _stored(batch: memoryview, offset: int) -> Stored:
    entries = enumerate(record.records(batch), start=record.header(batch).base_offset)
    entry = next(entry for at, entry in entries if at == offset)
    event, bodies, attributes = decode(entry.key, entry.value)
    assert isinstance(event, Sent)
    assert bodies is not None
    return Stored(event.tiers, bodies, attributes)
