"""Receiving: columns from the store become messages in JSON, MessagePack, or a frame.

A receipt is opaque text for a client and three numbers for the server: lease, token and row, in hexadecimal.
"""

from base64 import b64encode
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, nullcontext
from itertools import repeat
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from penstock.api.front import ClientPresence
from penstock.api.rest import settle
from penstock.api.rest.request import Answer, Decoder, Format, Request, instant, lease_ms, sent_format
from penstock.api.rest.send import check_frames_only, ids_frame
from penstock.broker.access import Role
from penstock.contract.messages import PRIORITIES
from penstock.store.interface import Delivery, Past
from penstock.wire import frames
from penstock.wire.frames import FRAME_TYPE, LeasedFrame, SettleFrame
from penstock.wire.messages import AckAndLease, Lease, Nothing, Received, ReceivedMany, SettledMany

NEVER_CACHED = ((b"cache-control", b"no-store"),)

_read = Decoder(AckAndLease)
_read_json = msgspec.json.decode
# Attributes are written by us or checked by us, so this is how the mark looks, and no value can look like it.
_JSON_MARK = b'"content_type":"application/json"'


async def lease_by_get(request: Request) -> Answer:
    return await _lease(request, request.query(Lease))


async def lease_by_post(request: Request) -> Answer:
    asked: Lease = request.query(Lease)
    if request.headers.get(b"content-length", b"0") == b"0" and b"transfer-encoding" not in request.headers:
        return await _lease(request, asked)
    raw = await request.bytes()
    form = sent_format(request.headers.get(b"content-type"), has_body=bool(raw))
    if form is Format.FRAME:
        # What to ack is a frame; what to receive is in the query.
        return await _ack_and_lease(request, asked, settle.read_frame(raw))
    both: AckAndLease = _read.decode(raw or b"{}", form)
    return await _lease(request, both) if isinstance(both.ack, UnsetType) else await _ack_and_lease(request, both)


async def _lease(request: Request, asked: Lease) -> Answer:
    check_frames_only(request.form)
    queue = await request.queue(Role.RECEIVE)
    want, length_ms, wait_ms = _wanted(asked)
    if wait_ms:
        async with _waiting(request) as presence:
            delivery = await request.queues.lease(
                queue, want=want, lease_ms=length_ms, wait_ms=wait_ms, presence=presence
            )
        if delivery is None:
            request.service.access.check_good(request.caller)
    else:
        delivery = await request.queues.lease(queue, want=want, lease_ms=length_ms)
    if request.form is not Format.FRAME:
        return Answer(_value(delivery, asked, request.form, UNSET), headers=NEVER_CACHED)
    frame = b"" if delivery is None else _frame(delivery)
    return Answer(frame, status=200 if frame else 204, headers=NEVER_CACHED, content_type=FRAME_TYPE.encode())


async def _ack_and_lease(request: Request, asked: Lease, frame: SettleFrame | None = None) -> Answer:
    """Ack what is in the frame, or in `ack`, and then lease. What is answered has the form of the acks."""
    check_frames_only(request.form)
    queue = await request.queue(Role.RECEIVE)
    want, length_ms, wait_ms = _wanted(asked)
    texts = asked.ack if isinstance(asked, AckAndLease) and not isinstance(asked.ack, UnsetType) else []
    receipts = settle.read_receipts(texts, "ack") if frame is None else settle.receipts_of(frame)
    async with _waiting(request) if wait_ms else nullcontext() as presence:
        outcomes, delivery = await request.queues.ack_and_lease(
            queue, receipts, want=want, lease_ms=length_ms, wait_ms=wait_ms, presence=presence
        )
    if frame is None:
        acked = settle.settled("acked", texts, outcomes)
        return Answer(_value(delivery, asked, request.form, acked), headers=NEVER_CACHED)
    done = settle.settled_frame(frame, receipts, outcomes)
    both = frames.encode_both(done, b"" if delivery is None else _frame(delivery))
    return Answer(both, headers=NEVER_CACHED, content_type=FRAME_TYPE.encode())


def _wanted(asked: Lease) -> tuple[int, int | None, int]:
    """Return how many messages are wanted, for how long, and for how long the request may wait for them."""
    want = 1 if isinstance(asked.limit, UnsetType) else asked.limit
    length_ms = None if isinstance(asked.visibility_timeout, UnsetType) else lease_ms(asked.visibility_timeout)
    return want, length_ms, 0 if isinstance(asked.wait_s, UnsetType) else int(asked.wait_s * 1_000)


@asynccontextmanager
async def _waiting(request: Request) -> AsyncIterator[ClientPresence]:
    presence = request.presence()
    try:
        with request.queues.polls.one(request.caller):
            yield presence
    finally:
        await presence.end()


def _value(delivery: Delivery | None, asked: Lease, form: Format, acked: SettledMany | UnsetType) -> object:
    messages = [] if delivery is None else received(delivery, form)
    if asked.limit is not UNSET:
        return ReceivedMany(messages, acked)
    if not messages:
        return Nothing(acked=acked)
    messages[0].acked = acked
    return messages[0]


def _frame(delivery: Delivery) -> bytes:
    leased = LeasedFrame(
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
    return frames.encode_leased(leased)


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


def receipt_texts(lease: int, token: int, count: int) -> list[str]:
    """Return the receipts of a lease.

    >>> texts(3, 255, 2)
    ['3-ff-0', '3-ff-1']
    """
    front = f"{lease:x}-{token:x}-"
    return [front + f"{row:x}" for row in range(count)]
