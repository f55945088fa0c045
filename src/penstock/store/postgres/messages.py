"""Rows of the database as messages, for whoever looks at them one by one."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from penstock.core.queue.rows import STATES
from penstock.store.ids import Identity, message_id, parse, queue_id
from penstock.store.interface import Message, Past

_RESTING = STATES.index("resting")

# From the number of a queue to its name, None if it is deleted.
NameOf = Callable[[int], str | None]


class Row(NamedTuple):
    """One live message, as the statements that look at messages return it first of all."""

    key: int
    place: int
    tier: int
    sent_at_ms: int
    deliveries: int
    visible_at_ms: int
    group: bytes | None
    error: str | None
    home: int | None
    home_key: int | None
    home_sent_at_ms: int | None
    home_deliveries: int | None
    is_escalated: bool
    # None if a text is sought that is not in it.
    body: bytes | None
    attributes: bytes | None


def message(queue: int, row: Row, name_of: NameOf) -> Message:
    past = None
    if row.home is not None:
        assert row.home_sent_at_ms is not None
        assert row.home_deliveries is not None
        past = Past(name_of(row.home), queue_id(row.home), row.home_sent_at_ms, row.home_deliveries)
    return Message(
        id=id_of(queue, row),
        body=memoryview(row.body or b""),
        attributes=memoryview(row.attributes or b""),
        place=STATES[row.place],
        tier=row.tier,
        sent_tier=row.key & 7,
        sent_at_ms=row.sent_at_ms,
        deliveries=row.deliveries,
        visible_at_ms=row.visible_at_ms if row.place == _RESTING else None,
        group=row.group or b"",
        error=row.error or "",
        past=past,
        is_escalated=row.is_escalated,
    )


def id_of(queue: int, row: Row) -> str:
    if row.home is None:
        return message_id(queue, row.key)
    assert row.home_key is not None
    return message_id(row.home, row.home_key)


def identities(ids: Sequence[str]) -> list[tuple[int, int] | None]:
    """Return the number of the first queue and the key there for each id, None for a text that is none."""
    return [None if found is None else pair(found) for found in map(parse, ids)]


def pair(identity: Identity) -> tuple[int, int] | None:
    key = identity.number << 3 | identity.lane
    return (identity.queue, key) if identity.queue < 2**31 and key < 2**63 else None
