"""Batches of a journal as events."""

from collections.abc import Iterator
from typing import NamedTuple

from penstock.core.queue.events import Arrived, Copied, Event, Sent
from penstock.log import record
from penstock.store.embedded.bodies import Stored, stored_bytes
from penstock.store.embedded.codec import decode


class JournalHasHole(Exception):
    """Events were lost to damage: the queues cannot be what they were. Nothing was changed."""


class Entry(NamedTuple):
    """An event, its offset, and how large the bodies in it are."""

    event: Event
    offset: int
    size_bytes: int


def entries(batch: memoryview) -> Iterator[Entry]:
    header = record.header(batch)
    if header.is_hole:
        lost = f"offsets {header.base_offset} to {header.next_offset - 1}"
        raise JournalHasHole(f"the journal has lost {lost} to a repair; what its queues held cannot be known")
    for offset, entry in enumerate(record.records(batch), start=header.base_offset):
        event, bodies, attributes = decode(entry.key, entry.value)
        yield Entry(event, offset, 0 if bodies is None else stored_bytes(bodies, attributes))


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
