"""What became of messages that left a queue: one settlement for each stretch that an event settled alike."""

from array import array
from enum import IntEnum
from typing import NamedTuple


class Ending(IntEnum):
    ACKED = 1
    BURIED = 2
    EXPIRED = 3
    PURGED = 4
    REDRIVEN = 5
    DELETED = 6
    MOVED = 7


class Settlement(NamedTuple):
    """Consecutive messages that one event settled alike."""

    # Number of the queue where they were settled.
    queue: int
    # `number << 3 | lane` there of the first; the others follow with the next numbers of the lane.
    key: int
    count: int  # type: ignore[assignment]
    # Identity of the first: queue, lane and number in its first queue; the others follow.
    home: int
    lane: int
    number: int
    tier: int
    group: bytes
    # One time for all, or marks: the first number (in `queue`) of each mark, and its time. A number's
    # time is that of the last mark at or below it.
    sent_at_ms: "int | tuple[array[int], array[int]]"
    # 0 if never.
    first_leased_ms: int
    last_leased_ms: int
    settled_at_ms: int
    deliveries: int
    ending: Ending
    error: str
