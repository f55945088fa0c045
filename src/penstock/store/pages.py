"""Pages of a queue as programs read them: columns, one row for each message.

    page = await store.history("orders", HistoryRange(most=10_000))           settled messages
    while page.next_offset < page.end_offset: …   again with from_offset=page.next_offset

    page = await store.live("orders", most=10_000)                            all that is in a queue now
    while page.next: …   again with after=page.next

No row is an object. A column is a view of numbers, as wide as its kind says, and has the layout of an Arrow
array; words that repeat are coded, as Arrow's dictionaries are.

A live page is one look, at `seen_at_ms`. It says which numbers of which lanes it has looked at: one of them is live
if it is in the page, and settled if it is not. So a program that has the history too can account for every number
that was ever given.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from penstock.contract.limits import HISTORY_ROWS_MAX
from penstock.frame import Blobs
from penstock.store.ids import ColumnIds


class HistorySpan(NamedTuple):
    """What is kept of the history of a shard: from one offset on, and for now before the other."""

    shard: int
    first_kept_offset: int
    end_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryRange:
    """Which rows a page may have. A number out of its bounds is a `ValueError`."""

    most: int
    # One that an earlier page gave; None for the first that is kept.
    from_offset: int | None = None
    # The page ends before it.
    until_offset: int | None = None
    # Only messages that were settled then or later.
    from_ms: int | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.most <= HISTORY_ROWS_MAX:
            raise ValueError(f"most is {self.most}; it must be from 1 to HISTORY_ROWS_MAX ({HISTORY_ROWS_MAX})")
        for name, offset in (("from_offset", self.from_offset), ("until_offset", self.until_offset)):
            if offset is not None and offset < 0:
                raise ValueError(f"{name} is {offset}; it must not be negative")


@dataclass(frozen=True, slots=True)
class Coded:
    """A column of words that repeat: row i is ``words[codes[i]]``. Code 0 is the empty word."""

    codes: memoryview
    words: Blobs

    def __getitem__(self, row: int) -> memoryview:
        return self.words[self.codes[row]]


@dataclass(frozen=True, slots=True)
class HistoryPage:
    """Some rows in the order they were settled, or nearly. A column that is None has nothing in any row."""

    # Where the page begins, and where to go on: asking from there gives exactly what follows. Offsets rise, in steps
    # that mean nothing.
    offset: int
    next_offset: int
    # What is kept begins and, for now, ends here. A page may be short, even empty, before the end.
    first_kept_offset: int
    end_offset: int

    # Of the queue each message left: I. The name it had then is in `names`.
    queue: memoryview
    # Of the queue each message was first sent to, I; the tier it was sent at, B; its number there, Q.
    home: memoryview
    sent_tier: memoryview
    number: memoryview
    # The tier it was served at last, or waited in if it never was: B.
    tier: memoryview
    # Of the first send; in this queue, 0 if it never was leased here; each q.
    sent_at_ms: memoryview
    first_leased_ms: memoryview
    last_leased_ms: memoryview
    settled_at_ms: memoryview
    # With those before a move: I.
    deliveries: memoryview
    # The numbers of `core.queue.settlements.Ending`: B.
    ending: memoryview
    # Where each row is in the history: q.
    offsets: memoryview
    names: Mapping[int, str]
    # The place of each in the queue it left, number << 3 | lane there: Q. None if none was moved: then it is that
    # of its own number and `sent_tier`.
    key: memoryview | None = None
    group: Coded | None = None
    # In UTF-8.
    error: Coded | None = None
    # The numbers of `BodyState`, B, and what a queue with `full` history keeps.
    body_state: memoryview | None = None
    body: Blobs | None = None
    attributes: Blobs | None = None

    def __len__(self) -> int:
        return len(self.ending)

    def key_of(self, row: int) -> int:
        return self.number[row] << 3 | self.sent_tier[row] if self.key is None else self.key[row]

    @property
    def ids(self) -> Sequence[str]:
        return ColumnIds(self.home, self.sent_tier, self.number)


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
    # Every message that was settled before the look is told of below this offset of the history; None if it was
    # not asked for, or the history has no room to write it.
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
