"""The words of a queue: tiers, runs of numbers, drafts, receipts.

A message has no object of its own. Inside a queue it is a *number*, consecutive
per lane; a lane is one queue and the tier at which its messages were sent. What
travels is batch-shaped: columns with one row for each message.

The checks of every send are few and in columns. Which draft breaks a limit, and whether a value is of the wrong kind at
all, is looked for only when it is known that something is wrong: `fault` explains a `TypeError` met on the way.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, overload

from penstock.contract.limits import DELIVERIES_MAX, DURATION_MS_MAX, LEASE_MESSAGES_MAX, NAME_BYTES_MAX
from penstock.contract.messages import TIERS
from penstock.frame import Blobs, Buffer


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


_TIERS = bytes(range(TIERS))


class BadDraft(ValueError):
    """A draft breaks a limit, or is not what a draft is made of; the message names it."""


class BodyTooLarge(BadDraft):
    """A body is larger than its queue takes."""

    def __init__(self, row: int, *, size_bytes: int, limit_bytes: int) -> None:
        super().__init__(f"the body of draft {row} has {size_bytes} bytes; body_bytes_max is {limit_bytes}")
        self.row = row
        self.size_bytes = size_bytes
        self.limit_bytes = limit_bytes


class DueTooLate(BadDraft):
    """A message is to be delivered only after it would have expired."""

    def __init__(self, row: int, *, retention_ms: int) -> None:
        super().__init__(
            f"draft {row} is due later than the queue keeps messages: retention_ms, counted from now, is {retention_ms}"
        )
        self.row = row
        self.retention_ms = retention_ms


def check_bodies(bodies: Sequence[Buffer], bytes_max: int) -> None:
    """Raise `BodyTooLarge` for the first body that is; the rest of the way is for plain sends too, so it is short."""
    if isinstance(bodies, Blobs) and bodies.size_bytes <= bytes_max:
        # All together are not too large, so none is.
        return
    if bodies and max(map(len, bodies)) > bytes_max:
        row, size_bytes = next((row, len(body)) for row, body in enumerate(bodies) if len(body) > bytes_max)
        raise BodyTooLarge(row, size_bytes=size_bytes, limit_bytes=bytes_max)


def check(drafts: Drafts, now_ms: int, retention_ms: int) -> None:
    """Raise `BadDraft` for whatever a draft may have besides its body."""
    _check_lengths(drafts)
    if drafts.tiers is not None and drafts.tiers.translate(None, _TIERS):
        raise BadDraft(f"there is no tier {max(drafts.tiers)}")
    if drafts.groups is not None and max(map(len, drafts.groups)) > NAME_BYTES_MAX:
        raise BadDraft(f"a group is longer than {NAME_BYTES_MAX} bytes")
    if drafts.dedup_ids is not None and max(map(len, drafts.dedup_ids)) > NAME_BYTES_MAX:
        raise BadDraft(f"an id is longer than {NAME_BYTES_MAX} bytes")
    if drafts.visible_at_ms is not None and max(drafts.visible_at_ms) > now_ms + DURATION_MS_MAX:
        raise BadDraft(f"a message is delayed by more than {DURATION_MS_MAX} ms")
    if retention_ms and drafts.visible_at_ms is not None and max(drafts.visible_at_ms) >= now_ms + retention_ms:
        row = next(row for row, at_ms in enumerate(drafts.visible_at_ms) if at_ms >= now_ms + retention_ms)
        raise DueTooLate(row, retention_ms=retention_ms)
    if drafts.deliveries_max is not None:
        least, most = min(drafts.deliveries_max), max(drafts.deliveries_max)
        if least < 0 or most > DELIVERIES_MAX:
            raise BadDraft(f"a message asks for {least if least < 0 else most} deliveries, not 0 to {DELIVERIES_MAX}")


def _check_lengths(drafts: Drafts) -> None:
    count = len(drafts.bodies)
    if not count:
        raise BadDraft("a send has at least one message")
    optional = (drafts.groups, drafts.dedup_ids, drafts.attributes, drafts.visible_at_ms, drafts.deliveries_max)
    for column in (drafts.tiers, *optional):
        if column is not None and len(column) != count:
            raise BadDraft(f"a column has {len(column)} rows, and there are {count} messages")


def fault(drafts: Drafts) -> BadDraft | None:
    """Return which field of which draft is of the wrong kind, None if all are of the right one."""
    tiers: object = drafts.tiers
    if tiers is not None and not isinstance(tiers, bytes):
        return BadDraft(f"tiers is a {_kind(tiers)}; it is bytes, one for each draft")
    for name, fits, kind in _COLUMNS:
        column = getattr(drafts, name)
        if column is None and name != "bodies":
            continue
        if isinstance(column, str | bytes | bytearray) or not isinstance(column, Sequence):
            return BadDraft(f"{name} is a {_kind(column)}; it is a sequence with one for each draft, {kind}")
        for row, value in enumerate(column):
            if not fits(value):
                found = hex(value) if isinstance(value, int) else f"a {_kind(value)}"
                return BadDraft(f"{name} of draft {row} is {found}; it is {kind}")
    return None


def _is_bytes(value: object) -> bool:
    return isinstance(value, bytes | bytearray) or (isinstance(value, memoryview) and value.contiguous)


def _is_name(value: object) -> bool:
    return isinstance(value, bytes)


def _is_number(value: object) -> bool:
    return isinstance(value, int) and -(2**63) <= value < 2**63


def _kind(value: object) -> str:
    return type(value).__name__


_COLUMNS: tuple[tuple[str, Callable[[Any], bool], str], ...] = (
    ("bodies", _is_bytes, "bytes"),
    ("groups", _is_name, "bytes"),
    ("dedup_ids", _is_name, "bytes"),
    ("attributes", _is_bytes, "bytes"),
    ("visible_at_ms", _is_number, "a whole number of 64 bits"),
    ("deliveries_max", _is_number, "a whole number of 64 bits"),
)
