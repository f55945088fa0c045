"""What a shard is: its queues and where their bodies are, as a function of its journal.

`apply` is the only thing that changes it, in the process that serves the shard and
in the one that makes its snapshots alike. Nothing here waits, and nothing decides.
That process imports this module, so it imports no more than both need.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from penstock.contract.limits import GIB, MIB
from penstock.contract.queue_settings import DAY_MS, MINUTE_MS
from penstock.core.queue.events import (
    Arrived,
    Buried,
    Copied,
    Event,
    Opened,
    QueueCreated,
    QueueDeleted,
    Redriven,
    Sent,
)
from penstock.core.queue.message import Run
from penstock.core.queue.queue import Queue
from penstock.log import record
from penstock.log.settings import LogSettings
from penstock.store.embedded.body_index import BodyIndex, Stored, move, stored_bytes
from penstock.store.embedded.event_codec import decode


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionLimits:
    # Bodies of the last sends, in memory.
    hot_bytes: int = 64 * MIB
    # Two, so that a damaged one is an annoyance: the journal goes back to the older. One where nothing is ever damaged.
    snapshots: int = 2
    # A snapshot may take one part of the time of a processor to so many parts without.
    rest_factor: int = 9
    # How long, and how much of it, history is kept: whole segments go when either is exceeded.
    history_ms: int = 7 * DAY_MS
    history_bytes: int = 10 * GIB
    # Believe a clock that is far ahead of the journals, and let messages expire by it (`shard_set.py`).
    trusts_clock: bool = False


ON_DISK = RetentionLimits()

# Where the disk is memory, what is dead must go soon, and reading back costs next to nothing.
IN_MEMORY = RetentionLimits(hot_bytes=MIB, snapshots=1, rest_factor=1, history_ms=10 * MINUTE_MS, history_bytes=8 * MIB)
IN_MEMORY_JOURNAL = LogSettings(sync="os", segment_bytes_max=4 * MIB, spare_bytes=0)
IN_MEMORY_UPKEEP_MS = 100


class MovedMessages(NamedTuple):
    """Messages that came to a queue from another, by the event at an offset."""

    offset: int
    into: int
    runs: tuple[Run, ...]


class ShardState:
    __slots__ = ("queues", "places", "numbers", "names", "next_queue", "newest_ms", "moves", "changed")

    def __init__(self) -> None:
        self.queues: dict[int, Queue] = {}
        self.places: dict[int, BodyIndex] = {}
        self.numbers: dict[str, int] = {}
        self.names: dict[int, str] = {}
        # Numbers of queues are never used again: ids of messages name them.
        self.next_queue = 1
        self.newest_ms = 0
        # Messages that got another queue and number since the last snapshot, which has them by their old ones.
        self.moves: list[MovedMessages] = []
        # The numbers of queues that something has happened to since `maintenance.py` last asked.
        self.changed: set[int] = set()

    def apply(self, event: Event, offset: int, size_bytes: int = 0) -> None:
        """Change as the event at this offset of the journal says; ``size_bytes`` is that of the bodies in it."""
        if event.at_ms > self.newest_ms:  # noqa: PLR1730 - on the way of every event.
            self.newest_ms = event.at_ms
        change = _CHANGES.get(type(event))
        if change is None:
            self.changed.add(event.queue)  # type: ignore[union-attr]
            self.queues[event.queue].apply(event)  # type: ignore[union-attr]
        else:
            change(self, event, offset, size_bytes)

    def _sent(self, event: Sent | Arrived, offset: int, size_bytes: int) -> None:
        self.changed.add(event.queue)
        self.places[event.queue].sent(event, offset, size_bytes)
        self.queues[event.queue].apply(event)

    def _opened(self, event: Opened, _offset: int, _size_bytes: int) -> None:
        self.changed.update(self.queues)
        for queue in self.queues.values():
            queue.apply(event)

    def _moved(self, event: Buried | Redriven, offset: int, _size_bytes: int) -> None:
        runs = tuple(move(event, self.places[event.queue], self.places[event.into]))
        self.moves.append(MovedMessages(offset, event.into, runs))
        self.changed.update((event.queue, event.into))
        self.queues[event.queue].apply(event)
        self.queues[event.into].apply(event)

    def _copied(self, event: Copied, offset: int, size_bytes: int) -> None:
        self.places[event.queue].copied(event, offset, size_bytes)

    def _created(self, event: QueueCreated, _offset: int, _size_bytes: int) -> None:
        queue = Queue(event.queue)
        queue.apply(event)
        self.put(queue, event.name, BodyIndex())

    def _deleted(self, event: QueueDeleted, _offset: int, _size_bytes: int) -> None:
        del self.queues[event.queue], self.places[event.queue]
        del self.numbers[self.names.pop(event.queue)]

    def put(self, queue: Queue, name: str, places: BodyIndex) -> None:
        """Have a queue that is there already."""
        number = queue.state.queue
        self.changed.add(number)
        self.queues[number] = queue
        self.places[number] = places
        self.numbers[name] = number
        self.names[number] = name
        self.next_queue = max(self.next_queue, number + 1)


# What is more than a change of one queue. By type, because the way of every event comes through here.
_CHANGES: dict[type[Event], Callable[[ShardState, Any, int, int], None]] = {
    Sent: ShardState._sent,
    Arrived: ShardState._sent,
    Opened: ShardState._opened,
    Buried: ShardState._moved,
    Redriven: ShardState._moved,
    Copied: ShardState._copied,
    QueueCreated: ShardState._created,
    QueueDeleted: ShardState._deleted,
}


class JournalHasHole(Exception):
    """Events were lost to damage: the queues cannot be what they were. Nothing was changed."""


class JournalEvent(NamedTuple):
    """An event, its offset, and how large the bodies in it are."""

    event: Event
    offset: int
    size_bytes: int


def entries(batch: memoryview) -> Iterator[JournalEvent]:
    header = record.header(batch)
    if header.is_hole:
        lost = f"offsets {header.base_offset} to {header.next_offset - 1}"
        raise JournalHasHole(f"the journal has lost {lost} to a repair; what its queues held cannot be known")
    for offset, entry in enumerate(record.records(batch), start=header.base_offset):
        event, bodies, attributes = decode(entry.key, entry.value)
        yield JournalEvent(event, offset, 0 if bodies is None else stored_bytes(bodies, attributes))


def stored(batch: memoryview, offset: int) -> Stored:
    """Return the bodies that the record at ``offset`` brought."""
    found = enumerate(record.records(batch), start=record.header(batch).base_offset)
    entry = next(entry for at, entry in found if at == offset)
    event, bodies, attributes = decode(entry.key, entry.value)
    assert bodies is not None
    return Stored(tiers_of(event), bodies, attributes)


def tiers_of(event: Event) -> bytes:
    """Return by which tier each body of a record is counted."""
    if isinstance(event, Sent | Arrived):
        return event.tiers
    assert isinstance(event, Copied)
    return b"".join(bytes((lane,)) * length for lane, _, length in event.runs)
