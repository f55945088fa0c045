"""Sending: a message or a batch of them becomes drafts, and each answer has its digests.

A batch is one send of the store. Of its entries those that cannot be sent fail by
themselves; what is wrong with the request as a whole refuses all of it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from penstock.api.sqs import message_attributes
from penstock.api.sqs.errors import (
    BATCH_REQUEST_TOO_LONG,
    INVALID_MESSAGE_CONTENTS,
    INVALID_PARAMETER_VALUE,
    MISSING_PARAMETER,
    Refused,
    invalid,
    missing,
)
from penstock.api.sqs.message_attributes import PRIORITY
from penstock.api.sqs.queue_attributes import MESSAGE_BYTES_MAX, SCOPE, kept_of
from penstock.api.sqs.receipt_handles import message_uuid, sequence_number
from penstock.api.sqs.request import CachedQueue, Request, check_batch, check_between, check_name, failed_entry
from penstock.api.sqs.shapes import (
    SendMessageBatchRequest,
    SendMessageBatchRequestEntry,
    SendMessageBatchResult,
    SendMessageBatchResultEntry,
    SendMessageRequest,
    SendMessageResult,
)
from penstock.contract.messages import PRIORITIES
from penstock.contract.queue_settings import DedupScope
from penstock.core.queue.message import Drafts
from penstock.store.errors import QueueNotFound

DELAY_S_MAX = 900
_DELAY_REASON = f"DelaySeconds must be >= 0 and <= {DELAY_S_MAX}."
_NORMAL = PRIORITIES.index("NORMAL")
_TIERS = {name: tier for tier, name in enumerate(PRIORITIES)} | {str(tier): tier for tier in range(len(PRIORITIES))}
NO_DEDUP_ID = (
    "The queue should either have ContentBasedDeduplication enabled or MessageDeduplicationId provided explicitly"
)
_OTHER_KIND = "The request include parameter that is not valid for this queue type."


@dataclass(slots=True)
class Row:
    """A message that may be sent to its queue."""

    body: bytes
    attributes: bytes
    tier: int
    visible_at_ms: int
    group: bytes
    dedup_id: bytes
    digests: tuple[str, str, str]


@dataclass(slots=True)
class Checked:
    """What can be said of a message without its queue."""

    body: bytes
    size_bytes: int
    tier: int
    trace: str


async def send_message(request: Request, asked: SendMessageRequest) -> SendMessageResult:
    name = request.name(asked.queue_url)
    checked = _check(asked)
    queue = await request.service.queue(name)
    row = _row(request, queue, asked, checked)
    (message,) = await _send(request, queue, [row])
    return SendMessageResult(**_told(queue, row, message))


async def send_message_batch(request: Request, asked: SendMessageBatchRequest) -> SendMessageBatchResult:
    name = request.name(asked.queue_url)
    check_batch(asked.entries, "SendMessageBatchRequestEntry")
    queue = await request.service.queue(name)
    result, rows, total = SendMessageBatchResult(), {}, 0
    for entry in asked.entries:
        try:
            checked = _check(entry)
            total += checked.size_bytes
            rows[entry.id] = _row(request, queue, entry, checked)
        except Refused as error:
            if error.kind is MISSING_PARAMETER or error.message == NO_DEDUP_ID:
                # As AWS has it: a batch in which one lacks what all must have is wrong as a whole.
                raise Refused(INVALID_PARAMETER_VALUE, error.message) from None
            result.failed.append(failed_entry(entry, error))
    if total > MESSAGE_BYTES_MAX:
        raise Refused(
            BATCH_REQUEST_TOO_LONG,
            f"Batch requests cannot be longer than {MESSAGE_BYTES_MAX} bytes. You have sent {total} bytes.",
        )
    if rows:
        for (entry_id, row), message in zip(
            rows.items(), await _send(request, queue, list(rows.values())), strict=True
        ):
            result.successful.append(SendMessageBatchResultEntry(id=entry_id, **_told(queue, row, message)))
    return result


async def _send(request: Request, queue: CachedQueue, rows: list[Row]) -> Sequence[str]:
    drafts = Drafts(
        bodies=[row.body for row in rows],
        tiers=bytes([row.tier for row in rows]) if any(row.tier != _NORMAL for row in rows) else None,
        visible_at_ms=_column([row.visible_at_ms for row in rows]),
        groups=_column([row.group for row in rows]),
        dedup_ids=_column([row.dedup_id for row in rows]),
        attributes=_column([row.attributes for row in rows]),
    )
    try:
        return await request.queues.send(queue.name, drafts)
    except QueueNotFound:
        request.service.forget(queue.name)
        raise


def _column(values: list[Any]) -> list[Any] | None:
    return values if any(values) else None


def _told(queue: CachedQueue, row: Row, message: str) -> dict[str, str]:
    body, attributes, system = row.digests
    return {
        "md5_of_message_body": body,
        "md5_of_message_attributes": attributes,
        "md5_of_message_system_attributes": system,
        "message_id": message_uuid(message),
        "sequence_number": sequence_number(message) if queue.settings.is_fifo else "",
    }


def _check(entry: SendMessageBatchRequestEntry) -> Checked:
    """Check what does not depend on the queue."""
    if not entry.message_body:
        raise missing("MessageBody")
    check_between("DelaySeconds", entry.delay_seconds, 0, DELAY_S_MAX, reason=_DELAY_REASON)
    if entry.message_group_id:
        check_name("MessageGroupId", entry.message_group_id)
    if entry.message_deduplication_id is not None:
        check_name("MessageDeduplicationId", entry.message_deduplication_id)
    size = message_attributes.check(entry.message_attributes)
    trace = message_attributes.check_system(entry.message_system_attributes)
    body = message_attributes.check_text_bytes(entry.message_body)
    if body is None:
        raise Refused(
            INVALID_MESSAGE_CONTENTS,
            "Invalid characters found. Valid unicode characters are #x9 | #xA | #xD | #x20 to #xD7FF | "
            "#xE000 to #xFFFD | #x10000 to #x10FFFF.",
        )
    return Checked(body, len(body) + size, _tier(entry), trace)


def _tier(entry: SendMessageBatchRequestEntry) -> int:
    said = entry.message_attributes.get(PRIORITY)
    if said is None:
        return _NORMAL
    tier = _TIERS.get((said.string_value or "").upper())
    if tier is None:
        raise invalid(PRIORITY, said.string_value, f"It is one of {', '.join(PRIORITIES)}, or 0 to 4.")
    return tier


def _row(request: Request, queue: CachedQueue, entry: SendMessageBatchRequestEntry, checked: Checked) -> Row:
    settings = queue.settings
    if checked.size_bytes > settings.body_bytes_max:
        raise Refused(
            INVALID_PARAMETER_VALUE,
            "One or more parameters are invalid. "
            f"Reason: Message must be shorter than {settings.body_bytes_max} bytes.",
        )
    if entry.delay_seconds and 0 < settings.retention_ms <= 1_000 * entry.delay_seconds:
        # By the numbers alone: the core counts from its own now, which may be a millisecond later.
        raise Refused(
            INVALID_PARAMETER_VALUE,
            "One or more parameters are invalid. "
            f"Reason: DelaySeconds must be less than {settings.retention_ms // 1_000}, as long as messages are kept.",
        )
    dedup_id, group = _dedup_id(queue, entry, checked.body), entry.message_group_id or ""
    attributes = message_attributes.keep(
        entry.message_attributes, trace=checked.trace or request.trace, dedup_id=dedup_id
    )
    visible_at_ms = 0 if entry.delay_seconds is None else request.queues.now_ms() + 1_000 * entry.delay_seconds
    if settings.is_fifo:
        # Order is the queue's own: its delay holds for all.
        visible_at_ms = 0
    return Row(
        checked.body,
        attributes,
        checked.tier,
        visible_at_ms,
        group.encode(),
        _scoped(queue, group, dedup_id),
        (
            message_attributes.md5_of_body(checked.body),
            message_attributes.md5_of_attributes(entry.message_attributes),
            message_attributes.md5_of_attributes(entry.message_system_attributes),
        ),
    )


def _dedup_id(queue: CachedQueue, entry: SendMessageBatchRequestEntry, body: bytes) -> str:
    """Return the deduplication id of a message, "" on a standard queue; refuse an id where there is none, or none."""
    said = entry.message_deduplication_id
    if not queue.settings.is_fifo:
        if said:
            raise invalid("MessageDeduplicationId", said, _OTHER_KIND)
        if entry.message_group_id is not None:
            # A FIFO queue misses an empty group; a standard queue, which needs none, refuses it.
            check_name("MessageGroupId", entry.message_group_id)
        return ""
    if not entry.message_group_id:
        raise missing("MessageGroupId")
    if entry.delay_seconds:
        raise invalid("DelaySeconds", entry.delay_seconds, _OTHER_KIND)
    if said:
        return said
    if queue.settings.dedup_scope is not DedupScope.CONTENT:
        raise Refused(INVALID_PARAMETER_VALUE, NO_DEDUP_ID)
    return sha256(body).hexdigest()


def _scoped(queue: CachedQueue, group: str, dedup_id: str) -> bytes:
    """Return the id as the store compares it: by itself, or with its group and the last purge, which makes it long."""
    kept = kept_of(queue.settings)
    is_by_group = kept.attributes.get(SCOPE) == "messageGroup"
    if not dedup_id or not (is_by_group or kept.purged_at_ms):
        return dedup_id.encode()
    # A purge forgets the ids before it, as AWS's does: with its time in them, those after it are others.
    where = f"{len(group)}:{group}" if is_by_group else ""
    when = f"{kept.purged_at_ms}," if kept.purged_at_ms else ""
    return sha256(f"{when}{where}{dedup_id}".encode()).hexdigest().encode()
