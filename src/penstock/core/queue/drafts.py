"""What drafts must be before a queue looks at them, and what is wrong with them if they are not.

The checks of every send are few and in columns. Which draft breaks a limit, and
whether a value is of the wrong kind at all, is looked for only when it is known
that something is wrong: `fault` explains a `TypeError` met on the way.
"""

from collections.abc import Callable, Sequence
from typing import Any

from penstock.contract.limits import DELIVERIES_MAX, DURATION_MS_MAX, NAME_BYTES_MAX
from penstock.contract.messages import TIERS
from penstock.core.queue.message import Drafts
from penstock.frame import Blobs, Buffer

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
