"""Receiving: columns from the store become messages in JSON, MessagePack, or a frame.

A receipt is opaque text for a client and three numbers for the server: lease, token and row, in hexadecimal.
"""

import re
from base64 import b64encode
from collections.abc import Sequence
from itertools import repeat
from typing import Any

import msgspec
from msgspec import UNSET

from penstock.api.rest.errors import bad_field
from penstock.api.rest.request import Answer, Decoder, Format, Request, instant, lease_ms
from penstock.api.rest.send import check_frames_only, ids_frame
from penstock.broker.access import Role
from penstock.contract.messages import PRIORITIES
from penstock.core.queue.message import Receipt
from penstock.store.interface import Delivery, Past
from penstock.wire import frames
from penstock.wire.frames import FRAME_TYPE, LeasedFrame
from penstock.wire.messages import Lease, Nothing, Received, ReceivedMany

NEVER_CACHED = ((b"cache-control", b"no-store"),)

_read = Decoder(Lease)
_read_json = msgspec.json.decode
# Attributes are written by us or checked by us, so this is how the mark looks, and no value can look like it.
_JSON_MARK = b'"content_type":"application/json"'


async def lease_by_get(request: Request) -> Answer:
    return await _lease(request, request.query(Lease))


async def lease_by_post(request: Request) -> Answer:
    asked: Lease = request.query(Lease)
    if request.headers.get(b"content-length", b"0") != b"0" or b"transfer-encoding" in request.headers:
        asked = await request.body(_read, may_be_empty=True)
    return await _lease(request, asked)


async def _lease(request: Request, asked: Lease) -> Answer:
    check_frames_only(request.form)
    queue = await request.queue(Role.RECEIVE)
    want = 1 if isinstance(asked.limit, msgspec.UnsetType) else asked.limit
    length_ms = None if isinstance(asked.visibility_timeout, msgspec.UnsetType) else lease_ms(asked.visibility_timeout)
    if isinstance(asked.wait_s, msgspec.UnsetType) or not asked.wait_s:
        delivery = await request.queues.lease(queue, want=want, lease_ms=length_ms)
    else:
        delivery = await _wait(request, queue, want, length_ms, int(asked.wait_s * 1_000))
    if request.form is Format.FRAME:
        return _frame(delivery)
    if asked.limit is not UNSET:
        value: object = ReceivedMany([] if delivery is None else received(delivery, request.form))
    else:
        value = Nothing() if delivery is None else received(delivery, request.form)[0]
    return Answer(value, headers=NEVER_CACHED)


async def _wait(request: Request, queue: str, want: int, length_ms: int | None, wait_ms: int) -> Delivery | None:
    presence = request.presence()
    try:
        with request.queues.polls.one(request.caller):
            delivery = await request.queues.lease(
                queue, want=want, lease_ms=length_ms, wait_ms=wait_ms, presence=presence
            )
    finally:
        await presence.end()
    if delivery is None:
        request.service.access.check_good(request.caller)
    return delivery


def _frame(delivery: Delivery | None) -> Answer:
    if delivery is None:
        return Answer(b"", status=204, headers=NEVER_CACHED, content_type=FRAME_TYPE.encode())
    frame = LeasedFrame(
        lease=delivery.lease,
        token=delivery.token,
        until_ms=delivery.until_ms,
        ids=ids_frame(delivery.ids),
        bodies=delivery.bodies,
        tiers=delivery.tiers,
        deliveries=delivery.deliveries,
        sent_at_ms=delivery.sent_at_ms,
        groups=delivery.groups,
        attributes=delivery.attributes,
        errors=None if delivery.errors is None else [error.encode() for error in delivery.errors],
        origins=None if delivery.pasts is None else _origins(delivery.pasts),
    )
    return Answer(frames.encode_leased(frame), headers=NEVER_CACHED, content_type=FRAME_TYPE.encode())


def _origins(pasts: Sequence[Past | None]) -> tuple[list[bytes], list[int], list[int]]:
    return (
        [b"" if past is None or past.queue is None else past.queue.encode() for past in pasts],
        [0 if past is None else past.sent_at_ms for past in pasts],
        [0 if past is None else past.deliveries for past in pasts],
    )


def received(delivery: Delivery, form: Format) -> list[Received]:
    until = instant(delivery.until_ms)
    proofs = receipt_texts(delivery.lease, delivery.token, len(delivery))
    columns = zip(
        delivery.ids,
        proofs,
        delivery.bodies,
        delivery.attributes or repeat(b""),
        delivery.tiers,
        delivery.deliveries,
        map(instant, delivery.sent_at_ms),
        strict=False,
    )
    found = []
    for message_id, receipt, body, attributes, tier, deliveries, sent_at in columns:
        data, encoded = show_body(body, attributes, form)
        message = Received(
            message_id=message_id,
            receipt=receipt,
            data=data,
            data_base64=encoded,
            priority=PRIORITIES[tier],
            tier=tier,
            attributes=show_attributes(attributes, form),
            delivery_count=deliveries,
            sent_at=sent_at,
            invisible_until=until,
        )
        found.append(message)
    if delivery.groups is not None or delivery.errors is not None or delivery.pasts is not None:
        _tell_more(found, delivery)
    return found


def _tell_more(found: list[Received], delivery: Delivery) -> None:
    """Add the fields that most messages do not have."""
    for row, message in enumerate(found):
        if delivery.groups is not None and delivery.groups[row]:
            message.group = bytes(delivery.groups[row]).decode(errors="replace")
        if delivery.errors is not None and delivery.errors[row]:
            message.last_error = delivery.errors[row]
        if delivery.pasts is not None:
            show_past(message, delivery.pasts[row])


def show_body(body: memoryview, attributes: bytes | memoryview, form: Format) -> tuple[Any, Any]:
    """Return `data` and `data_base64`, one of them unset."""
    if form is Format.MSGPACK:
        return bytes(body), None
    try:
        text = str(body, "utf-8")
    except UnicodeDecodeError:
        return UNSET, b64encode(body).decode()
    if len(attributes) and _JSON_MARK in bytes(attributes):
        try:
            return _read_json(text), None
        except (msgspec.DecodeError, RecursionError):
            # The sender marked it as JSON, and it is not.
            return text, None
    return text, None


def show_attributes(attributes: bytes | memoryview, form: Format) -> Any:
    if not len(attributes):
        return {}
    return msgspec.Raw(attributes) if form is not Format.MSGPACK else _read_json(attributes)


def show_past(message: Any, past: Past | None) -> None:
    if past is not None:
        message.origin_queue = past.queue
        message.first_sent_at = instant(past.sent_at_ms)
        message.earlier_deliveries = past.deliveries


_RECEIPT = re.compile(r"([0-9a-f]{1,16})-([0-9a-f]{1,16})-([0-9a-f]{1,4})")

# As they are written, for most rows there are.
_ROWS = {f"{row:x}": row for row in range(1_000)}


def receipt_texts(lease: int, token: int, count: int) -> list[str]:
    """Return the receipts of a lease.

    >>> texts(3, 255, 2)
    ['3-ff-0', '3-ff-1']
    """
    front = f"{lease:x}-{token:x}-"
    return [front + f"{row:x}" for row in range(count)]


def read_receipt(text: str, field: str) -> Receipt:
    found = _RECEIPT.fullmatch(text)
    if found is None:
        raise bad_field(f"{text[:64]!r} is not a receipt; give back what came with the message", field)
    return Receipt(int(found[1], 16), int(found[2], 16), int(found[3], 16))


def read_receipts(found: Sequence[str]) -> list[Receipt]:
    """Read receipts; most are of the same few leases, so those are read once."""
    leases: dict[str, Receipt] = {}
    receipts = []
    for row, text in enumerate(found):
        front, _, last = text.rpartition("-")
        known = leases.get(front)
        if known is None or last not in _ROWS:
            known = leases[front] = read_receipt(text, f"receipts[{row}]")
            receipts.append(known)
        else:
            receipts.append(Receipt(known.lease, known.token, _ROWS[last]))
    return receipts
