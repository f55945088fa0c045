"""What is in a queue now, as it is read by whoever wants all of it: columns, one row for each message.

    page = await store.live("orders", most=10_000)
    while page.next: …   again with after=page.next

A page is one look, at `seen_at_ms`. It says which numbers of which lanes it has looked at:
one of them is live if it is in the page, and settled if it is not. So whoever has the
history too can account for every number that was ever given.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from penstock.frame import Blobs
from penstock.store.history import Coded
from penstock.store.ids import ColumnIds


class NumberRange(NamedTuple):
    """Numbers of a lane: from one on, and before the other."""

    lane: int
    first: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LivePage:
    """Some messages by lane and number. A column that is None has nothing in any row."""

    queue: str
    queue_number: int
    shard: int
    seen_at_ms: int
    ranges: Sequence[NumberRange]
    # For each lane, the number that the next message gets; seen at the same moment.
    next_numbers: Sequence[int]
    # What to ask for the following page with; "" when there is none.
    next: str
    # Every message that was settled before the look is told of below this offset of the history; None if nobody
    # asked, or the history has no room to write it.
    history_offset: int | None

    # The queue of the first send, I; the tier of it, B; the number there, Q.
    home: memoryview
    sent_tier: memoryview
    number: memoryview
    # The place in this queue, number << 3 | lane: Q.
    key: memoryview
    tier: memoryview
    # The numbers of `core.queue.rows.STATES`: B.
    place: memoryview
    # Of the first send, q; with the deliveries before a move, I.
    sent_at_ms: memoryview
    deliveries: memoryview
    group: Coded | None
    # In UTF-8.
    error: Coded | None
    # None if they were not asked for; no attributes if no message has any.
    body: Blobs | None
    attributes: Blobs | None
    # Whether a number may have been given to a message that never was, because its send was undone.
    may_skip_numbers: bool = False

    def __len__(self) -> int:
        return len(self.key)

    @property
    def ids(self) -> Sequence[str]:
        return ColumnIds(self.home, self.sent_tier, self.number)
