"""The words of a queue: tiers, runs of numbers, drafts, receipts.

A message has no object of its own. Inside a queue it is a *number*, consecutive
per lane; a lane is one queue and the tier at which its messages were sent. What
travels is batch-shaped: columns with one row for each message.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple


class Tier(IntEnum):
    """How urgent a message is: five classes, 0 first."""

    CRITICAL = 0
    HIGH = 1
    NORMAL = 2
    LOW = 3
    BACKGROUND = 4


class Run(NamedTuple):
    """Consecutive numbers of one lane: `length` messages from `first` on."""

    lane: int
    first: int
    length: int


class Sender(NamedTuple):
    """Who sends, and which send of theirs this is: how a repeated send is known."""

    id: int
    epoch: int
    sequence: int


class Origin(NamedTuple):
    """Where a moved message comes from: its first queue, which its id names, and its life until the move."""

    queue: int
    lane: int
    number: int
    sent_at_ms: int
    deliveries: int


class Receipt(NamedTuple):
    """The right to settle one message: opaque outside, nothing to sign, unguessable.

    ``row`` counts the messages of the lease in the order of its runs.
    """

    lease: int
    token: int
    row: int


def masks(receipts: Iterable[Receipt]) -> dict[tuple[int, int], int]:
    """Gather receipts by lease and token, each with the bitmap of its rows.

    >>> masks([Receipt(1, 7, 0), Receipt(2, 9, 3), Receipt(1, 7, 2)])
    {(1, 7): 5, (2, 9): 8}
    """
    gathered: dict[tuple[int, int], int] = {}
    for lease, token, row in receipts:
        gathered[lease, token] = gathered.get((lease, token), 0) | 1 << row
    return gathered


@dataclass(frozen=True, slots=True, kw_only=True)
class Drafts:
    """Messages not yet numbered, as columns. A column that is None is the same for all: the default."""

    bodies: Sequence[bytes | memoryview]
    # One byte for each message.
    tiers: bytes | None = None
    visible_at_ms: Sequence[int] | None = None
    # b"" where a message has no group, id or attributes.
    groups: Sequence[bytes] | None = None
    dedup_ids: Sequence[bytes] | None = None
    attributes: Sequence[bytes] | None = None
    # 0 where the queue's own limit holds.
    deliveries_max: Sequence[int] | None = None

    def __len__(self) -> int:
        return len(self.bodies)
