"""Sending: drafts in JSON, MessagePack or a frame become columns."""

from array import array
from base64 import b64decode
from collections.abc import Callable, Sequence
from hashlib import blake2b
from math import isfinite
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from penstock.api.rest.errors import Refused, bad_field
from penstock.api.rest.request import Answer, Decoder, Format, Request, milliseconds, read_instant, sent_format
from penstock.broker.access import Role
from penstock.contract.limits import (
    ATTRIBUTES_BYTES_MAX,
    ATTRIBUTES_MAX,
    DELIVERIES_MAX,
    DURATION_MS_MAX,
    NAME_BYTES_MAX,
    REQUEST_MESSAGES_MAX,
)
from penstock.contract.messages import PRIORITIES
from penstock.core.queue.message import BodyTooLarge, Drafts, Sender
from penstock.core.queue.queue import QueueFull
from penstock.store.ids import MessageIds
from penstock.wire import frames, messages
from penstock.wire.frames import FRAME_TYPE, Ids, SendFrame
from penstock.wire.messages import JSON_CONTENT, Attributes, Draft, Sent

TIERS_BY_NAME = {name: tier for tier, name in enumerate(PRIORITIES)} | {str(tier): tier for tier in range(5)}
_NORMAL = 2
# The attributes of a message that is JSON, and has no others.
_JSON_ONLY = b'{"content_type":"%s"}' % JSON_CONTENT.encode()


class OneOrMany(Draft, omit_defaults=True, forbid_unknown_fields=True, kw_only=True):
    """A send: one draft, or a list of drafts. One type, because one decoder is faster than a union."""

    messages: list[Draft] | UnsetType = UNSET


_read = Decoder(OneOrMany)
_json = msgspec.json.Encoder().encode
_read_attributes = msgspec.json.Decoder(messages.Attributes).decode
_KEY_BYTES_MAX = 256


async def send(request: Request) -> Answer:
    queue = await request.queue(Role.SEND)
    raw = await request.bytes()
    form = sent_format(request.headers.get(b"content-type"))
    if form is Format.FRAME:
        return await _send_frame(request, queue, raw)
    asked: OneOrMany = _read.decode(raw, form)
    is_many = not isinstance(asked.messages, UnsetType)
    drafts = drafts_of(_many(asked) if is_many else [asked], request.queues.now_ms, is_many=is_many)
    ids = await _send(request, queue, drafts, _sender_of_key(request), is_many=is_many)
    value: object = messages.SentMany([Sent(each) for each in ids]) if is_many else Sent(ids[0])
    return Answer(value, status=201)


async def _send(request: Request, queue: str, drafts: Drafts, sender: Sender | None, *, is_many: bool) -> Sequence[str]:
    request.messages = len(drafts)
    try:
        ids = await request.queues.send(queue, drafts, sender=sender)
    except BodyTooLarge as error:
        detail = f"{error.size_bytes} bytes; max_message_bytes of the queue is {error.limit_bytes}"
        field = f"messages[{error.row}].data" if is_many else "data"
        raise Refused("message_too_large", detail, field=field, limit=error.limit_bytes) from None
    except QueueFull as error:
        size_max = (await request.queues.placement.of(queue).describe(queue)).settings.size_max
        retry_after_s = error.retry_after_ms / 1_000
        raise Refused(
            "queue_full", str(error), field="queue_size", limit=size_max, retry_after_s=retry_after_s
        ) from None
    if len(ids) != len(drafts):
        # What was sent is not kept beside the key, so this much can be known.
        detail = f"the key was used for a send of {len(ids)} messages; this one has {len(drafts)}"
        raise Refused("key_reused", detail, field="Idempotency-Key")
    return ids


def _many(asked: OneOrMany) -> list[Draft]:
    assert not isinstance(asked.messages, UnsetType)
    beside = [name for name in Draft.__struct_fields__ if getattr(asked, name) is not UNSET]
    if beside:
        raise bad_field(f"{beside[0]!r} belongs into each of the messages, not beside them", beside[0])
    if not 1 <= len(asked.messages) <= REQUEST_MESSAGES_MAX:
        raise bad_field(
            f"{len(asked.messages)} messages; a send has 1 to {REQUEST_MESSAGES_MAX}", "messages", REQUEST_MESSAGES_MAX
        )
    return asked.messages


def drafts_of(asked: Sequence[Draft], now_ms: Callable[[], int], *, is_many: bool) -> Drafts:
    """Return drafts as columns; a column that no draft uses is left out."""
    places = [f"messages[{row}]." for row in range(len(asked))] if is_many else [""]
    bodies, are_json = zip(*map(_read_body, asked, places), strict=True)
    if all(map(_is_plain, asked)):
        # The way of most sends: data, and nothing else said.
        marks = [_JSON_ONLY if is_json else b"" for is_json in are_json] if any(are_json) else None
        return Drafts(bodies=bodies, attributes=marks)
    rows = [_Row(*each) for each in zip(asked, places, are_json, strict=True)]
    return Drafts(
        bodies=bodies,
        tiers=bytes([row.tier for row in rows]) if any(row.tier != _NORMAL for row in rows) else None,
        visible_at_ms=_column([row.visible_at_ms(now_ms) for row in rows]),
        groups=_column([row.group for row in rows]),
        dedup_ids=_column([row.dedup_id for row in rows]),
        attributes=_column([row.attributes for row in rows]),
        deliveries_max=_column([row.deliveries_max for row in rows]),
    )


def _is_plain(draft: Draft) -> bool:
    return (
        draft.priority is UNSET
        and draft.delay_s is UNSET
        and draft.scheduled_at is UNSET
        and draft.dedup_id is UNSET
        and draft.group is UNSET
        and draft.attributes is UNSET
        and draft.max_deliveries is UNSET
    )


def _column(values: list[Any]) -> list[Any] | None:
    return values if any(values) else None


class _Row:
    """What else is said about one draft, checked; ``place`` says where it is, for errors."""

    __slots__ = ("tier", "group", "dedup_id", "attributes", "deliveries_max", "_draft", "_place")

    def __init__(self, draft: Draft, place: str, is_json: bool) -> None:
        self._draft = draft
        self._place = place
        self.tier = _NORMAL if draft.priority is UNSET else read_priority(draft.priority, place + "priority")
        self.group = b"" if isinstance(draft.group, UnsetType) else _text(draft.group, place + "group")
        self.dedup_id = b"" if isinstance(draft.dedup_id, UnsetType) else _text(draft.dedup_id, place + "dedup_id")
        self.attributes = _JSON_ONLY if is_json else b""
        if not isinstance(draft.attributes, UnsetType) and draft.attributes:
            self.attributes = _attributes(draft.attributes, place + "attributes", is_json=is_json)
        self.deliveries_max = 0 if isinstance(draft.max_deliveries, UnsetType) else draft.max_deliveries

    def visible_at_ms(self, now_ms: Callable[[], int]) -> int:
        delay_s, scheduled_at = self._draft.delay_s, self._draft.scheduled_at
        if isinstance(scheduled_at, UnsetType):
            return 0 if isinstance(delay_s, UnsetType) or not delay_s else now_ms() + milliseconds(delay_s)
        if delay_s is not UNSET:
            raise bad_field("delay_s and scheduled_at are both there; send one of them", self._place + "scheduled_at")
        at_ms = read_instant(scheduled_at, self._place + "scheduled_at")
        return _check_near(at_ms, now_ms(), self._place + "scheduled_at")


def _attributes(attributes: Attributes, place: str, *, is_json: bool) -> bytes:
    if not _is_finite(attributes):
        raise bad_field("an attribute is a number that is not finite, and JSON has none", place)
    found = _json({"content_type": JSON_CONTENT, **attributes} if is_json else attributes)
    if len(found) > ATTRIBUTES_BYTES_MAX:
        raise bad_field(
            f"{len(found)} bytes of attributes; the limit is {ATTRIBUTES_BYTES_MAX}", place, ATTRIBUTES_BYTES_MAX
        )
    return found


def _read_body(draft: Draft, place: str) -> tuple[bytes, bool]:
    """Return the body of a draft, and whether it is a JSON value that is no text."""
    data, encoded = draft.data, draft.data_base64
    if not isinstance(encoded, UnsetType):
        if data is not UNSET:
            raise bad_field("data and data_base64 are both there; send one of them", place + "data_base64")
        try:
            return b64decode(encoded, validate=True), False
        except ValueError as error:
            raise bad_field(f"data_base64 is not base64: {error}", place + "data_base64") from None
    if isinstance(data, str):
        return data.encode(errors="surrogatepass"), False
    if isinstance(data, bytes | memoryview | bytearray):
        return bytes(data), False
    if data is None or data is UNSET:
        raise bad_field("a message needs data: text or any other JSON value but null", place + "data")
    return _encode(data, place), True


def _encode(data: Any, place: str) -> bytes:
    """Return a value as JSON; MessagePack has values that JSON has not."""
    try:
        found = _json(data)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise bad_field(f"data has no JSON text: {error}", place + "data") from None
    if b"null" in found and not _is_finite(data):
        # The receiver would get null.
        raise bad_field("data has a number that is not finite, and JSON has none", place + "data")
    return found


def _is_finite(value: Any) -> bool:
    """Whether all numbers in a value are finite."""
    pending = [value]
    while pending:
        found = pending.pop()
        if isinstance(found, float) and not isfinite(found):
            return False
        if isinstance(found, dict):
            pending.extend(found.values())
        elif isinstance(found, list):
            pending.extend(found)
    return True


def _check_near(at_ms: int, now_ms: int, place: str) -> int:
    if at_ms > now_ms + DURATION_MS_MAX:
        raise bad_field("that is more than 366 days from now", place, DURATION_MS_MAX // 1_000)
    return at_ms


def read_priority(value: str | int | UnsetType, place: str) -> int:
    """Return the tier of a priority: a name in any case, or a number.

    >>> read_priority("high", "priority"), read_priority(4, "priority")
    (1, 4)
    """
    tier = TIERS_BY_NAME.get(str(value).upper())
    if tier is None or isinstance(value, bool):
        raise bad_field(f"{str(value)[:40]!r} is no priority; there are {', '.join(PRIORITIES)}, or 0 to 4", place)
    return tier


def _text(text: str, place: str) -> bytes:
    try:
        found = text.encode()
    except UnicodeEncodeError:
        raise bad_field("a lone surrogate is not text", place) from None
    if len(found) > NAME_BYTES_MAX:
        raise bad_field(f"{len(found)} bytes; the limit is {NAME_BYTES_MAX}", place, NAME_BYTES_MAX)
    return found


def _sender_of_key(request: Request) -> Sender | None:
    """An `Idempotency-Key` is a sender with one send: a repeated key is a repeat of that send.

    Each API key has senders of its own. Otherwise one client could use up the keys of another.
    """
    key = request.headers.get(b"idempotency-key")
    if key is None:
        return None
    if not 1 <= len(key) <= _KEY_BYTES_MAX:
        raise bad_field(
            f"Idempotency-Key has {len(key)} bytes; it may have 1 to {_KEY_BYTES_MAX}",
            "Idempotency-Key",
            _KEY_BYTES_MAX,
        )
    digest = blake2b(key, digest_size=8, key=blake2b(request.caller.name.encode()).digest()).digest()
    return Sender(int.from_bytes(digest, "little"), 0, 0)


async def _send_frame(request: Request, queue: str, raw: bytes) -> Answer:
    frame = frames.decode_send(raw)
    if not 1 <= len(frame.bodies) <= REQUEST_MESSAGES_MAX:
        raise bad_field(
            f"{len(frame.bodies)} messages; a send has 1 to {REQUEST_MESSAGES_MAX}", "messages", REQUEST_MESSAGES_MAX
        )
    sender = _sender_of_key(request) if frame.sender is None else Sender(*frame.sender)
    ids = await _send(request, queue, drafts_of_frame(frame, request.queues.now_ms), sender, is_many=True)
    return Answer(frames.encode_sent(ids_frame(ids)), status=201, content_type=FRAME_TYPE.encode())


def drafts_of_frame(frame: SendFrame, now_ms: Callable[[], int]) -> Drafts:
    """Return what a frame of the SDK asks to be sent, checked as far as that needs no queue."""
    if frame.attributes is not None:
        _check_attributes(frame.attributes)
    _check_columns(frame)
    return Drafts(
        bodies=frame.bodies,
        tiers=frame.tiers,
        visible_at_ms=None if frame.delay_ms is None and frame.visible_at_ms is None else _times(frame, now_ms),
        groups=None if frame.groups is None else list(map(bytes, frame.groups)),
        dedup_ids=None if frame.dedup_ids is None else list(map(bytes, frame.dedup_ids)),
        attributes=frame.attributes,
        deliveries_max=frame.deliveries_max,
    )


def _check_columns(frame: SendFrame) -> None:
    """Check each column of a frame against its limits. Only if one is beyond is the row looked for."""
    columns: tuple[tuple[str, Sequence[int] | None, int], ...] = (
        ("priority", frame.tiers, len(PRIORITIES) - 1),
        ("group", None if frame.groups is None else [*map(len, frame.groups)], NAME_BYTES_MAX),
        ("dedup_id", None if frame.dedup_ids is None else [*map(len, frame.dedup_ids)], NAME_BYTES_MAX),
        ("max_deliveries", frame.deliveries_max, DELIVERIES_MAX),
    )
    for name, column, most in columns:
        if column is not None and max(column) > most:
            row, value = next((row, value) for row, value in enumerate(column) if value > most)
            raise bad_field(f"{value}; the limit is {most}", f"messages[{row}].{name}", most)


def _times(frame: SendFrame, now_ms: Callable[[], int]) -> Sequence[int]:
    now, none = now_ms(), array("q", bytes(8 * len(frame.bodies)))
    times = []
    for row, (delay_ms, at_ms) in enumerate(zip(frame.delay_ms or none, frame.visible_at_ms or none, strict=True)):
        if delay_ms < 0 or at_ms < 0:
            raise bad_field("a time before 1970, or a delay below 0", f"messages[{row}].delay_s")
        times.append(_check_near(at_ms or (now + delay_ms if delay_ms else 0), now, f"messages[{row}].delay_s"))
    return times


def _check_attributes(attributes: Sequence[bytes | bytearray | memoryview]) -> None:
    """Others will read them as JSON, so that is what they have to be."""
    for row, text in enumerate(attributes):
        if not len(text):
            continue
        place = f"messages[{row}].attributes"
        if len(text) > ATTRIBUTES_BYTES_MAX:
            raise bad_field(f"{len(text)} bytes; the limit is {ATTRIBUTES_BYTES_MAX}", place, ATTRIBUTES_BYTES_MAX)
        try:
            found = _read_attributes(text)
        except (msgspec.DecodeError, RecursionError) as error:
            raise bad_field(f"not a JSON object of attributes: {error}", place) from None
        if len(found) > ATTRIBUTES_MAX:
            raise bad_field(f"{len(found)} attributes; the limit is {ATTRIBUTES_MAX}", place, ATTRIBUTES_MAX)


def ids_frame(ids: Sequence[str]) -> Ids:
    if isinstance(ids, MessageIds):
        return Ids(ids.queue, ids.messages)
    return Ids(0, None, [each.encode() for each in ids])


def check_frames_only(form: Format) -> None:
    if form is Format.ARROW:
        raise Refused("not_acceptable", "Arrow is for history; accept application/json", field="Accept")
