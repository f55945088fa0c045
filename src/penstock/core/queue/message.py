"""The words of a queue: tiers, runs of numbers, drafts, receipts.

A message has no object of its own. Inside a queue it is a *number*, consecutive
per lane; a lane is one queue and the tier at which its messages were sent. What
travels is batch-shaped: columns with one row for each message.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, overload

from penstock.contract.limits import LEASE_MESSAGES_MAX
from penstock.frame import Buffer


class Run(NamedTuple):
    """Consecutive numbers of one lane: `length` messages from `first` on."""

    lane: int
    first: int
    length: int


# `Run` of a tuple of three, at less than half the price: for code that makes one for each batch.
run_of = partial(tuple.__new__, Run)


def keys_of(tiers: bytes, firsts: Sequence[int]) -> list[int]:
    """Return the keys that messages of these tiers have, numbered in each from ``firsts`` on.

    >>> keys_of(bytes([2, 2, 0]), [7, 0, 1, 0, 0])
    [10, 18, 56]
    """
    if tiers and tiers.count(tiers[0]) == len(tiers):
        first = firsts[tiers[0]] << 3 | tiers[0]
        return list(range(first, first + 8 * len(tiers), 8))
    following = [first << 3 | tier for tier, first in enumerate(firsts)]
    keys: list[int] = []
    for tier in tiers:
        key = following[tier]
        keys.append(key)
        following[tier] = key + 8
    return keys


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


class Audit(NamedTuple):
    """One escalation, as it is read back."""

    at_ms: int
    actor: str
    reason: str
    tier: int
    until_ms: int
    runs: tuple[Run, ...]


class Receipt(NamedTuple):
    """The right to settle one message: opaque outside, nothing to sign, unguessable.

    ``row`` counts the messages of the lease in the order of its runs.
    """

    lease: int
    token: int
    row: int


class Receipts(Sequence[Receipt]):
    """All receipts of one lease, in the order of its messages; each is made only when it is looked at."""

    __slots__ = ("lease", "token", "length")

    def __init__(self, lease: int, token: int, length: int) -> None:
        self.lease = lease
        self.token = token
        self.length = length

    def __len__(self) -> int:
        return self.length

    @overload
    def __getitem__(self, row: int) -> Receipt: ...

    @overload
    def __getitem__(self, row: slice) -> list[Receipt]: ...

    def __getitem__(self, row: int | slice) -> Receipt | list[Receipt]:
        rows = range(self.length)[row]
        if isinstance(rows, int):
            return Receipt(self.lease, self.token, rows)
        return [Receipt(self.lease, self.token, each) for each in rows]


class HeldReceipts(Sequence[Receipt]):
    """Receipts of several leases, for each the rows as the bits of a mask; each is made only when it is looked at."""

    __slots__ = ("held", "length")

    def __init__(self, held: dict[tuple[int, int], int]) -> None:
        # By lease and token.
        self.held = held
        self.length = sum(map(int.bit_count, held.values()))

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[Receipt]:
        for (lease, token), mask in self.held.items():
            for row in range(mask.bit_length()):
                if mask >> row & 1:
                    yield Receipt(lease, token, row)

    @overload
    def __getitem__(self, row: int) -> Receipt: ...

    @overload
    def __getitem__(self, row: slice) -> list[Receipt]: ...

    def __getitem__(self, row: int | slice) -> Receipt | list[Receipt]:
        return list(self)[row]


def masks(receipts: Sequence[Receipt]) -> dict[tuple[int, int], int]:
    """Return the rows of each lease, by its id and token, as the bits of a mask; rows that cannot be are left out.

    >>> masks([Receipt(1, 7, 0), Receipt(2, 9, 3), Receipt(1, 7, 2)])
    {(1, 7): 5, (2, 9): 8}
    """
    if isinstance(receipts, Receipts):
        return {(receipts.lease, receipts.token): (1 << receipts.length) - 1}
    if isinstance(receipts, HeldReceipts):
        return receipts.held
    found: dict[tuple[int, int], int] = {}
    for lease, token, row in receipts:
        if 0 <= row < LEASE_MESSAGES_MAX:
            found[lease, token] = found.get((lease, token), 0) | 1 << row
    return found


def as_runs(messages: Iterable[int]) -> tuple[Run, ...]:
    """Keys as runs, each once and in order."""
    runs: list[Run] = []
    for message in sorted(set(messages), key=lambda message: (message & 7, message >> 3)):
        lane, number = message & 7, message >> 3
        if runs and runs[-1].lane == lane and runs[-1].first + runs[-1].length == number:
            runs[-1] = Run(lane, runs[-1].first, runs[-1].length + 1)
        else:
            runs.append(Run(lane, number, 1))
    return tuple(runs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Drafts:
    """Messages not yet numbered, as columns. A column that is None is the same for all: the default."""

    bodies: Sequence[Buffer]
    # One byte for each message.
    tiers: bytes | None = None
    visible_at_ms: Sequence[int] | None = None
    # b"" where a message has no group, id or attributes.
    groups: Sequence[bytes] | None = None
    dedup_ids: Sequence[bytes] | None = None
    attributes: Sequence[Buffer] | None = None
    # 0 where the queue's own limit holds.
    deliveries_max: Sequence[int] | None = None

    def __len__(self) -> int:
        return len(self.bodies)
