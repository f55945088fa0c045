"""Receiving: leased messages, with the attributes that were asked for.

A message that REST sent as bytes has no text. It is returned as base64, and one more
message attribute, `penstock.encoding`, marks it.

A visibility timeout of zero is a lease of one millisecond. The answer waits for its end, so that an
immediate second receive returns the same message, on a fast machine too.
"""

import asyncio
from base64 import b64encode
from collections.abc import Iterator
from contextlib import nullcontext
from typing import NamedTuple

from penstock.api.sqs import message_attributes
from penstock.api.sqs.errors import OVER_LIMIT, Refused, invalid
from penstock.api.sqs.message_attributes import TRACE, SqsMetadata
from penstock.api.sqs.queue_attributes import ATTRIBUTES, WAIT, kept_of, unknown
from penstock.api.sqs.receipt_handles import handle_text, message_uuid, sequence_number
from penstock.api.sqs.request import REMEMBERED_MS, Answered, Attempts, CachedQueue, Request, check_between, check_name
from penstock.api.sqs.shapes import (
    Message,
    MessageAttributeValue,
    ReceiveMessageRequest,
    ReceiveMessageResult,
)
from penstock.broker.queues import Queues
from penstock.core.queue.message import Receipt, Receipts
from penstock.store.errors import QueueNotFound
from penstock.store.interface import Delivery, Outcome

MESSAGES_MAX = 10
WAIT_S_MAX = 20
VISIBILITY_S_MAX = 43_200
IN_FLIGHT_MAX = 120_000
ENCODING = "penstock.encoding"
# A lease has some length.
_SHORTEST_MS = 1
_ALL = "All"
_SYSTEM = (
    "SenderId",
    "SentTimestamp",
    "ApproximateReceiveCount",
    "ApproximateFirstReceiveTimestamp",
    "SequenceNumber",
    "MessageDeduplicationId",
    "MessageGroupId",
    TRACE,
    "DeadLetterQueueSourceArn",
)


# What an answer takes beside its bodies.
_MESSAGE_BYTES = 1_024


class Attempt(NamedTuple):
    """One receive with a `ReceiveRequestAttemptId`: a repeat, after a lost answer, returns the same messages.

    This holds for five minutes, as long as the lease of every message of the first answer lasts. All leases are then
    renewed for the visibility timeout. Otherwise the repeat is an ordinary receive.
    """

    queue: int
    id: str

    async def again(self, attempts: Attempts, queues: Queues, queue: str, *, lease_ms: int) -> list[Message] | None:
        """Return the earlier answer with its leases renewed; None if a lease has ended."""
        known = attempts.answers.get(self)
        if known is None or queues.now_ms() >= known.at_ms + REMEMBERED_MS:
            return None
        outcomes = await queues.extend(queue, known.receipts, lease_ms=lease_ms)
        if outcomes.count(Outcome.DONE) == len(known.receipts):
            return known.messages
        attempts.forget(self)
        return None

    def remember(self, attempts: Attempts, receipts: Receipts, messages: list[Message], *, now_ms: int) -> None:
        size = sum(len(each.body) + _MESSAGE_BYTES for each in messages)
        attempts.remember(self, Answered(receipts, messages, size, now_ms))


async def receive_message(request: Request, asked: ReceiveMessageRequest) -> ReceiveMessageResult:
    name = request.name(asked.queue_url)
    check_between("MaxNumberOfMessages", asked.max_number_of_messages, 1, MESSAGES_MAX)
    check_between(
        "WaitTimeSeconds",
        asked.wait_time_seconds,
        0,
        WAIT_S_MAX,
        reason=f"Must be >= 0 and <= {WAIT_S_MAX}, if provided.",
    )
    check_between("VisibilityTimeout", asked.visibility_timeout, 0, VISIBILITY_S_MAX)
    names = _system_names(asked)
    queue = await request.service.queue(name)
    attempt = _attempt(queue, asked)
    if attempt is not None:
        lease_ms = _lease_ms(asked) or queue.settings.lease_ms
        again = await attempt.again(request.service.attempts, request.queues, name, lease_ms=lease_ms)
        if again is not None:
            return ReceiveMessageResult(again)
    delivery = await _lease(request, queue, asked)
    if delivery is None:
        return ReceiveMessageResult()
    if (_lease_ms(asked) or queue.settings.lease_ms) == _SHORTEST_MS:
        # A millisecond more: timers of the loop may be early by a part of one.
        await asyncio.sleep((delivery.until_ms - request.queues.now_ms() + 1) / 1_000)
    messages = list(_messages(request, queue, delivery, names, asked.message_attribute_names))
    if attempt is not None:
        attempt.remember(request.service.attempts, delivery.receipts(), messages, now_ms=request.queues.now_ms())
    return ReceiveMessageResult(messages)


def _attempt(queue: CachedQueue, asked: ReceiveMessageRequest) -> Attempt | None:
    said = asked.receive_request_attempt_id
    if not said:
        return None
    if not queue.settings.is_fifo:
        reason = "The request include parameter that is not valid for this queue type."
        raise invalid("ReceiveRequestAttemptId", said, reason)
    check_name("ReceiveRequestAttemptId", said)
    return Attempt(queue.number, said)


async def _lease(request: Request, queue: CachedQueue, asked: ReceiveMessageRequest) -> Delivery | None:
    wait_s = asked.wait_time_seconds
    if wait_s is None:
        wait_s = int(kept_of(queue.settings).attributes.get(WAIT, "0"))
    if await _has_too_many_in_flight(request, queue):
        if queue.settings.is_fifo:
            # As AWS has it: no error, and nothing to work on.
            return None
        raise Refused(OVER_LIMIT, f"Too many messages in flight: {IN_FLIGHT_MAX} at most.")
    try:
        with request.queues.polls.one(request.caller) if wait_s else nullcontext():
            delivery = await request.queues.lease(
                queue.name,
                want=asked.max_number_of_messages or 1,
                lease_ms=_lease_ms(asked),
                wait_ms=1_000 * wait_s,
                presence=request.presence if wait_s else None,
            )
    except QueueNotFound:
        request.service.forget(queue.name)
        raise
    finally:
        await request.presence.end()
    if delivery is None:
        request.service.access.check_good(request.caller)
    return delivery


def _lease_ms(asked: ReceiveMessageRequest) -> int | None:
    return None if asked.visibility_timeout is None else 1_000 * asked.visibility_timeout or _SHORTEST_MS


async def _has_too_many_in_flight(request: Request, queue: CachedQueue) -> bool:
    """Whether AWS's limit of messages in flight is reached. They are counted only if that is possible."""
    total = request.queues.traffic.totals.get(queue.name)
    if total is None or total.received - total.acked - total.released < IN_FLIGHT_MAX:
        return False
    return (await request.queues.placement.of(queue.name).counts(queue.name)).leased >= IN_FLIGHT_MAX


def _system_names(asked: ReceiveMessageRequest) -> set[str]:
    """Return the system attributes that are asked for, under their older name or their newer one."""
    names = {*asked.attribute_names, *asked.message_system_attribute_names}
    for name in names:
        # The older parameter has the type of attributes of a queue, so those are let pass.
        if name != _ALL and name not in _SYSTEM and name not in ATTRIBUTES:
            raise unknown(name)
    return set(_SYSTEM) if _ALL in names else names


def _messages(
    request: Request, queue: CachedQueue, delivery: Delivery, names: set[str], attribute_names: list[str]
) -> Iterator[Message]:
    leased_at_s = request.queues.now_ms() // 1_000
    for row, (message, body) in enumerate(zip(delivery.ids, delivery.bodies, strict=True)):
        kept = b"" if delivery.attributes is None else delivery.attributes[row]
        attributes, beside = message_attributes.recall(kept)
        text, raw = _text(body), body
        if text is None:
            raw = memoryview(b64encode(body))
            text = str(raw, "ascii")
            attributes |= {ENCODING: MessageAttributeValue(data_type="String", string_value="base64")}
        told = message_attributes.chosen(attributes, attribute_names)
        yield Message(
            message_id=message_uuid(message),
            receipt_handle=handle_text(
                queue.number, Receipt(delivery.lease, delivery.token, row), leased_at_s, message
            ),
            md5_of_body=message_attributes.md5_of_body(raw),
            body=text,
            attributes=_system(request, queue, delivery, row, beside, names) if names else {},
            md5_of_message_attributes=message_attributes.md5_of_attributes(told),
            message_attributes=told,
        )


def _text(body: memoryview) -> str | None:
    """Return a body as text, None for one that has none that SQS may carry."""
    try:
        text = str(body, "utf-8")
    except UnicodeDecodeError:
        return None
    return text if text and message_attributes.is_allowed(text) else None


def _system(
    request: Request, queue: CachedQueue, delivery: Delivery, row: int, beside: SqsMetadata, names: set[str]
) -> dict[str, str]:
    past = delivery.pasts[row] if delivery.pasts is not None else None
    sent_at_ms, deliveries, source = delivery.sent_at_ms[row], delivery.deliveries[row], ""
    if past is not None and past.queue != queue.name:
        # A dead letter keeps when it was sent and how often it was received.
        sent_at_ms, deliveries = past.sent_at_ms, past.deliveries + deliveries
        source = "" if past.queue is None else request.arn(past.queue)
    firsts = delivery.first_leased_at_ms
    found = {
        "SenderId": request.account.id,
        "SentTimestamp": str(sent_at_ms),
        "ApproximateReceiveCount": str(deliveries),
        "ApproximateFirstReceiveTimestamp": str(firsts[row] if firsts is not None else request.queues.now_ms()),
        "MessageGroupId": delivery.groups[row].decode(errors="replace") if delivery.groups is not None else "",
        "MessageDeduplicationId": beside.dedup_id,
        "SequenceNumber": sequence_number(delivery.ids[row]) if queue.settings.is_fifo else "",
        TRACE: beside.trace,
        "DeadLetterQueueSourceArn": source,
    }
    return {name: value for name, value in found.items() if value and name in names}
