"""Messages to send, checked and laid out as columns.

A body is bytes, text, or anything else as its JSON, which is marked as such by the attribute `content_type`. The
other fields of a message are an `Extras`; most messages have none, and cost no object but their body.

Everything that can be known to be wrong is refused here, before it is gathered with what others send. What only the
server knows, such as the largest body a queue takes, is left to it.
"""

from base64 import b64decode
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import msgspec
from msgspec import UNSET

from penstock.client.errors import BadRequest, TooLarge, bad_field
from penstock.contract.limits import (
    ATTRIBUTES_BYTES_MAX,
    ATTRIBUTES_MAX,
    BODY_BYTES_MAX,
    DELIVERIES_MAX,
    DURATION_MS_MAX,
    LEASE_MS_MAX,
    NAME_BYTES_MAX,
)
from penstock.contract.messages import PRIORITIES
from penstock.frame import Buffer
from penstock.wire.frames import Sender, SendFrame, encode_send
from penstock.wire.messages import JSON_CONTENT, Draft

DELAY_S_MAX = DURATION_MS_MAX // 1_000
LEASE_S_MAX = LEASE_MS_MAX // 1_000
NORMAL = PRIORITIES.index("NORMAL")

_encode_json = msgspec.json.Encoder().encode
_TIERS = {name: tier for tier, name in enumerate(PRIORITIES)}
_JSON_MARK = b'{"content_type":"%s"}' % JSON_CONTENT.encode()


class Extras(NamedTuple):
    """The fields of a message beside its body; 0 and b"" for those that are not set."""

    tier: int = NORMAL
    delay_ms: int = 0
    visible_at_ms: int = 0
    group: bytes = b""
    dedup_id: bytes = b""
    attributes: bytes = b""
    deliveries_max: int = 0


PLAIN = Extras()
_JSON = PLAIN._replace(attributes=_JSON_MARK)

# A body and the other fields; None if none is set.
Row = tuple[bytes, Extras | None]


def plain_row(data: object) -> Row:
    """Return a message that has only data."""
    if type(data) is bytes:
        body, extras = data, None
    else:
        body, is_json = _body(data)
        extras = _JSON if is_json else None
    if len(body) > BODY_BYTES_MAX:
        raise _too_large(len(body))
    return body, extras


def full_row(  # noqa: PLR0913 - a message has many fields.
    data: object,
    *,
    priority: str | int | None = None,
    delay_s: float | None = None,
    scheduled_at: str | float | datetime | None = None,
    dedup_id: str | None = None,
    group: str | None = None,
    attributes: Mapping[str, str | int | float | bool] | None = None,
    max_deliveries: int | None = None,
) -> Row:
    """Return a message, or raise `BadRequest` with the name of the field that is wrong."""
    body, plain = plain_row(data)
    if delay_s is not None and scheduled_at is not None:
        raise bad_field("scheduled_at", "delay_s and scheduled_at are both there; give one of them")
    extras = Extras(
        tier=NORMAL if priority is None else tier_of(priority),
        delay_ms=0 if delay_s is None else milliseconds(delay_s, field="delay_s", seconds_max=DELAY_S_MAX),
        visible_at_ms=0 if scheduled_at is None else instant_ms(scheduled_at, field="scheduled_at"),
        group=b"" if group is None else _name(group, "group"),
        dedup_id=b"" if dedup_id is None else _name(dedup_id, "dedup_id"),
        attributes=_attributes(attributes or {}, is_json=plain is not None),
        deliveries_max=0 if max_deliveries is None else _deliveries(max_deliveries),
    )
    return body, None if extras == PLAIN else extras


def row_of(item: object) -> Row:
    """Return what stands in the list of a `send_many`: data, or a draft."""
    if not isinstance(item, Draft):
        return plain_row(item)
    said = {name: getattr(item, name) for name in Draft.__struct_fields__}
    said = {name: value for name, value in said.items() if value is not UNSET}
    encoded = said.pop("data_base64", None)
    if encoded is not None:
        if "data" in said:
            raise bad_field("data_base64", "data and data_base64 are both there; give one of them")
        try:
            said["data"] = b64decode(encoded, validate=True)
        except ValueError:
            raise bad_field("data_base64", "data_base64 is not base64") from None
    if "data" not in said:
        raise bad_field("data", "a draft needs data")
    return full_row(**said)


class Drafts:
    """Messages to be sent, as columns: ``extras`` is None if none of them has other fields than its body."""

    __slots__ = ("bodies", "extras")

    def __init__(self, bodies: Sequence[Buffer], extras: Sequence[Extras | None] | None) -> None:
        self.bodies = bodies
        self.extras = extras

    @classmethod
    def of(cls, items: Sequence[object]) -> "Drafts":
        """Check the items of a `send_many`. The field of an error names the item."""
        if set(map(type, items)) <= {bytes}:
            if max(map(len, items), default=0) > BODY_BYTES_MAX:  # type: ignore[arg-type] # All are bytes.
                raise _too_large(max(map(len, items)))  # type: ignore[arg-type]
            return cls(items, None)  # type: ignore[arg-type]
        bodies: list[Buffer] = []
        extras: list[Extras | None] = []
        for position, item in enumerate(items):
            try:
                body, more = row_of(item)
            except (BadRequest, TooLarge) as error:
                error.field = f"messages[{position}].{error.field}"
                raise
            bodies.append(body)
            extras.append(more)
        return cls(bodies, extras if any(extras) else None)

    def __len__(self) -> int:
        return len(self.bodies)

    def part(self, start: int, stop: int) -> "Drafts":
        if start == 0 and stop == len(self.bodies):
            return self
        return Drafts(self.bodies[start:stop], None if self.extras is None else self.extras[start:stop])

    @property
    def has_groups(self) -> bool:
        return self.extras is not None and any(each is not None and each.group for each in self.extras)

    def encode(self, sender: Sender | None) -> bytes:
        """Return the frame of a send."""
        if self.extras is None:
            return encode_send(SendFrame(bodies=self.bodies, sender=sender))
        rows = [each or PLAIN for each in self.extras]
        tiers, delays, times, groups, dedup_ids, attributes, deliveries = zip(*rows, strict=True)
        return encode_send(
            SendFrame(
                bodies=self.bodies,
                tiers=bytes(tiers) if tiers.count(NORMAL) != len(tiers) else None,
                delay_ms=delays if any(delays) else None,
                visible_at_ms=times if any(times) else None,
                groups=groups if any(groups) else None,
                dedup_ids=dedup_ids if any(dedup_ids) else None,
                attributes=attributes if any(attributes) else None,
                deliveries_max=deliveries if any(deliveries) else None,
                sender=sender,
            )
        )


def is_number(value: object, kind: type[int] | type[float]) -> bool:
    """Whether this is a number; a bool is one to Python, but not here."""
    return isinstance(value, int if kind is int else (int, float)) and not isinstance(value, bool)


def tier_of(priority: str | int) -> int:
    """Return the tier of a priority: a name in any case, or a number.

    >>> tier_of("high"), tier_of(4)
    (1, 4)
    """
    tier = _TIERS.get(priority.upper(), -1) if isinstance(priority, str) else priority
    if not is_number(tier, int) or not 0 <= tier < len(PRIORITIES):
        raise bad_field("priority", f"priority is {priority!r}; allowed are {', '.join(PRIORITIES)} and 0 to 4")
    return tier


def milliseconds(seconds: float, *, field: str, seconds_max: float) -> int:
    """Return seconds as milliseconds; more than nothing is not nothing."""
    if not is_number(seconds, float) or not 0 <= seconds <= seconds_max:
        raise bad_field(
            field, f"{field} is {seconds!r}; allowed are 0 to {int(seconds_max):,} seconds", limit=seconds_max
        )
    return round(seconds * 1_000) or (1 if seconds > 0 else 0)


def instant_ms(instant: str | float | datetime, *, field: str) -> int:
    """Return the milliseconds since 1970 of an instant.

    >>> instant_ms("2001-09-09T01:46:40.123Z", field="at"), instant_ms(1.5, field="at")
    (1000000000123, 1500)
    """
    if isinstance(instant, str):
        try:
            instant = datetime.fromisoformat(instant)
        except ValueError:
            raise bad_field(field, f"{field} is {instant!r}; an instant is such as 2027-01-31T12:00:00Z") from None
    if isinstance(instant, datetime):
        if instant.tzinfo is None:
            raise bad_field(field, f"{field} is {instant.isoformat()} and does not say its time zone")
        instant = instant.timestamp()
    if not is_number(instant, float) or not 0 <= instant < 253_402_300_800:
        raise bad_field(field, f"{field} is {instant!r}; it is in the years 1970 to 9999")
    return round(instant * 1_000)


def _body(data: object) -> tuple[bytes, bool]:
    """Return the bytes of a body, and whether they are JSON that we made."""
    if isinstance(data, str):
        try:
            return data.encode(), False
        except UnicodeEncodeError:
            raise bad_field("data", "data has a lone surrogate, which is not text") from None
    if isinstance(data, bytes | bytearray | memoryview):
        return bytes(data), False
    if data is None:
        raise bad_field("data", "data is None; send bytes, text, or a JSON value but null")
    try:
        return _encode_json(data), True
    except (TypeError, ValueError, RecursionError) as error:
        raise bad_field("data", f"data of the type {type(data).__name__} cannot be written as JSON: {error}") from None


def _name(text: str, field: str) -> bytes:
    try:
        name = str.encode(text)
    except (UnicodeEncodeError, TypeError):
        name = b""
    if not 1 <= len(name) <= NAME_BYTES_MAX:
        raise bad_field(field, f"{field} is text of 1 to {NAME_BYTES_MAX} bytes", limit=NAME_BYTES_MAX)
    return name


def _deliveries(count: int) -> int:
    if not is_number(count, int) or not 1 <= count <= DELIVERIES_MAX:
        raise bad_field(
            "max_deliveries", f"max_deliveries is {count!r}; allowed are 1 to {DELIVERIES_MAX:,}", limit=DELIVERIES_MAX
        )
    return count


def _attributes(attributes: Mapping[Any, Any], *, is_json: bool) -> bytes:
    if is_json:
        attributes = {"content_type": JSON_CONTENT} | dict(attributes)
    if not attributes:
        return b""
    if len(attributes) > ATTRIBUTES_MAX:
        raise bad_field(
            "attributes", f"{len(attributes)} attributes; the limit is {ATTRIBUTES_MAX}", limit=ATTRIBUTES_MAX
        )
    for name, value in attributes.items():
        if not isinstance(name, str) or not isinstance(value, str | int | float | bool):
            raise bad_field("attributes", f"attribute {name!r} is {value!r}; it is text, a number, or true or false")
    try:
        text = _encode_json(attributes)
    except (TypeError, ValueError, UnicodeEncodeError) as error:
        raise bad_field("attributes", f"attributes cannot be written as JSON: {error}") from None
    if len(text) > ATTRIBUTES_BYTES_MAX:
        raise bad_field(
            "attributes",
            f"{len(text)} bytes of attributes; the limit is {ATTRIBUTES_BYTES_MAX}",
            limit=ATTRIBUTES_BYTES_MAX,
        )
    return text


def _too_large(size: int) -> TooLarge:
    return TooLarge(
        f"data has {size} bytes; a body has at most {BODY_BYTES_MAX}",
        code="message_too_large",
        status=413,
        field="data",
        limit=BODY_BYTES_MAX,
    )
