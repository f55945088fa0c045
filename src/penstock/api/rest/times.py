"""Seconds and RFC 3339 outside, whole milliseconds inside."""

from datetime import UTC, datetime
from functools import lru_cache

from penstock.api.rest.errors import bad_field
from penstock.contract.limits import DURATION_MS_MAX

_MS_MAX = 253_402_300_799_999


@lru_cache(maxsize=4_096)
def instant(at_ms: int) -> str:
    """Return an instant as text. Messages of a batch share their times, so the text is made once.

    >>> instant(1_000_000_000_123)
    '2001-09-09T01:46:40.123Z'
    """
    # Not from a float, which is not exact to the millisecond.
    seconds, ms = divmod(at_ms, 1_000)
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S") + f".{ms:03}Z"


def maybe_instant(at_ms: int | None) -> str | None:
    return None if not at_ms else instant(at_ms)


def read_instant(value: str | float, field: str) -> int:
    """Return the milliseconds of an instant: RFC 3339, or seconds since 1970.

    >>> read_instant("2001-09-09T01:46:40.123Z", "at"), read_instant(1.5, "at")
    (1000000000123, 1500)
    """
    if isinstance(value, str):
        try:
            found = datetime.fromisoformat(value)
        except ValueError:
            raise bad_field(f"{value[:100]!r} is not an RFC 3339 time such as 2027-01-31T12:00:00Z", field) from None
        if found.tzinfo is None:
            raise bad_field(f"{value!r} does not say its time zone; end it with Z or an offset", field)
        at_ms = round(found.timestamp() * 1_000)
    else:
        at_ms = round(value * 1_000) if abs(value) < _MS_MAX else -1
    if not 0 <= at_ms <= _MS_MAX:
        raise bad_field(f"{field} is outside the years 1970 to 9999", field)
    return at_ms


def milliseconds(seconds: float) -> int:
    """Return seconds that were checked already as milliseconds; more than nothing is not nothing."""
    ms = round(seconds * 1_000)
    return 1 if not ms and seconds > 0 else min(ms, DURATION_MS_MAX)


def seconds(ms: int) -> float:
    """Return milliseconds as seconds, whole where they are.

    >>> seconds(30_000), seconds(1_500)
    (30, 1.5)
    """
    return ms // 1_000 if ms % 1_000 == 0 else ms / 1_000
