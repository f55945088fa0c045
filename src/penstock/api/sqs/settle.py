"""Settling: delete messages, or change their visibility, by their receipt handles.

What AWS does with a handle whose lease has ended depends on the kind of the queue and on
the state of the message:

    delete    standard: works until the message is received again; after that it has no effect, and is no error
              FIFO: an error, unless the message is gone
    change    works on a message that is in flight, also with an older handle of it, and on one whose time has
              passed and that was not received again; otherwise an error, which depends on whether it is gone
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from penstock.api.sqs.errors import MESSAGE_NOT_INFLIGHT, RECEIPT_HANDLE_IS_INVALID, Refused, invalid, missing
from penstock.api.sqs.receipt_handles import Handle, read_handle
from penstock.api.sqs.receive import VISIBILITY_S_MAX
from penstock.api.sqs.request import CachedQueue, Request, check_batch, check_between, failed_entry
from penstock.api.sqs.shapes import (
    BatchResultErrorEntry,
    ChangeMessageVisibilityBatchRequest,
    ChangeMessageVisibilityBatchRequestEntry,
    ChangeMessageVisibilityBatchResult,
    ChangeMessageVisibilityBatchResultEntry,
    ChangeMessageVisibilityRequest,
    DeleteMessageBatchRequest,
    DeleteMessageBatchRequestEntry,
    DeleteMessageBatchResult,
    DeleteMessageBatchResultEntry,
    DeleteMessageRequest,
    Nothing,
)
from penstock.store.interface import Outcome, Release

Entry = TypeVar("Entry", DeleteMessageBatchRequestEntry, ChangeMessageVisibilityBatchRequestEntry)
Outcomes = list[Refused | None]


async def delete_message(request: Request, asked: DeleteMessageRequest) -> Nothing:
    name = request.name(asked.queue_url)
    if not asked.receipt_handle:
        raise missing("ReceiptHandle")
    queue = await request.service.queue(name)
    _raise_first(await _delete(request, queue, [_handle(queue, asked.receipt_handle)], [asked]))
    return Nothing()


async def delete_message_batch(request: Request, asked: DeleteMessageBatchRequest) -> DeleteMessageBatchResult:
    result = DeleteMessageBatchResult()
    for entry in await _settle(request, asked, asked.entries, _delete, result.failed):
        result.successful.append(DeleteMessageBatchResultEntry(id=entry.id))
    return result


async def change_message_visibility(request: Request, asked: ChangeMessageVisibilityRequest) -> Nothing:
    name = request.name(asked.queue_url)
    if not asked.receipt_handle:
        raise missing("ReceiptHandle")
    _check_visibility(asked)
    queue = await request.service.queue(name)
    _raise_first(await _change(request, queue, [_handle(queue, asked.receipt_handle)], [asked]))
    return Nothing()


async def change_message_visibility_batch(
    request: Request, asked: ChangeMessageVisibilityBatchRequest
) -> ChangeMessageVisibilityBatchResult:
    result = ChangeMessageVisibilityBatchResult()
    for entry in await _settle(request, asked, asked.entries, _change, result.failed):
        result.successful.append(ChangeMessageVisibilityBatchResultEntry(id=entry.id))
    return result


async def _settle(
    request: Request,
    asked: DeleteMessageBatchRequest | ChangeMessageVisibilityBatchRequest,
    entries: Sequence[Entry],
    verb: Callable[[Request, CachedQueue, list[Handle], Sequence[Entry]], Awaitable[Outcomes]],
    failed: list[BatchResultErrorEntry],
) -> list[Entry]:
    """Return the entries of a batch that are done, and add the others to ``failed``."""
    name = request.name(asked.queue_url)
    check_batch(entries, f"{type(asked).__name__}Entry")
    queue = await request.service.queue(name)
    good: list[Entry] = []
    handles: list[Handle] = []
    for entry in entries:
        try:
            if isinstance(entry, ChangeMessageVisibilityBatchRequestEntry):
                _check_visibility(entry)
            handles.append(_handle(queue, entry.receipt_handle))
            good.append(entry)
        except Refused as error:
            failed.append(failed_entry(entry, error))
    outcomes = await verb(request, queue, handles, good)
    failed += [failed_entry(entry, error) for entry, error in zip(good, outcomes, strict=True) if error is not None]
    return [entry for entry, error in zip(good, outcomes, strict=True) if error is None]


def _check_visibility(entry: ChangeMessageVisibilityBatchRequestEntry) -> int:
    if entry.visibility_timeout is None:
        raise missing("VisibilityTimeout")
    check_between("VisibilityTimeout", entry.visibility_timeout, 0, VISIBILITY_S_MAX)
    return entry.visibility_timeout


def _handle(queue: CachedQueue, text: str) -> Handle:
    handle = read_handle(text)
    if handle is None or handle.queue != queue.number:
        raise Refused(
            RECEIPT_HANDLE_IS_INVALID, f'The input receipt handle "{text[:200]}" is not a valid receipt handle.'
        )
    return handle


async def _delete(
    request: Request, queue: CachedQueue, handles: list[Handle], entries: Sequence[DeleteMessageBatchRequestEntry]
) -> Outcomes:
    if not handles:
        return []
    outcomes = await request.queues.ack(queue.name, [handle.receipt for handle in handles], outlives=True)
    found: Outcomes = [None] * len(handles)
    if not queue.settings.is_fifo:
        return found
    for row, outcome in enumerate(outcomes):
        if outcome is not Outcome.DONE and await _is_there(request, queue, handles[row]):
            found[row] = invalid("ReceiptHandle", entries[row].receipt_handle, "The receipt handle has expired.")
    return found


async def _change(
    request: Request,
    queue: CachedQueue,
    handles: list[Handle],
    entries: Sequence[ChangeMessageVisibilityBatchRequestEntry],
) -> Outcomes:
    found: Outcomes = [None] * len(handles)
    by_timeout: dict[int, list[int]] = {}
    for row, (handle, entry) in enumerate(zip(handles, entries, strict=True)):
        seconds = entry.visibility_timeout or 0
        if request.queues.now_ms() // 1_000 - handle.leased_at_s + seconds > VISIBILITY_S_MAX:
            reason = f"Total VisibilityTimeout for the message is beyond the limit [{VISIBILITY_S_MAX} seconds]"
            found[row] = invalid("VisibilityTimeout", seconds, reason)
        else:
            by_timeout.setdefault(seconds, []).append(row)
    for seconds, rows in by_timeout.items():
        outcomes = await _hold(request, queue, [handles[row] for row in rows], seconds)
        for row, outcome in zip(rows, outcomes, strict=True):
            if outcome is not Outcome.DONE:
                found[row] = await _change_by_message(request, queue, handles[row], entries[row])
    return found


async def _hold(
    request: Request, queue: CachedQueue, handles: list[Handle], seconds: int, *, outlives: bool = False
) -> list[Outcome]:
    receipts = [handle.receipt for handle in handles]
    if seconds:
        return await request.queues.extend(queue.name, receipts, lease_ms=1_000 * seconds, outlives=outlives)
    return await request.queues.release(queue.name, receipts, Release(delay_ms=0))


async def _change_by_message(
    request: Request, queue: CachedQueue, handle: Handle, entry: ChangeMessageVisibilityBatchRequestEntry
) -> Refused | None:
    """Change the visibility of a message by a handle that does not hold it."""
    seconds = entry.visibility_timeout or 0
    (receipt,) = await request.queues.placement.of(queue.name).receipts(queue.name, [handle.message], outlives=True)
    if receipt is not None:
        held = handle._replace(receipt=receipt)
        outcomes = await _hold(request, queue, [held], seconds, outlives=True)
        if outcomes == [Outcome.DONE]:
            return None
    if await _is_there(request, queue, handle):
        if not seconds:
            # It is visible already.
            return None
        return Refused(MESSAGE_NOT_INFLIGHT, "The message referred to isn't in flight.")
    reason = "Message does not exist or is not available for visibility timeout change."
    return invalid("ReceiptHandle", entry.receipt_handle, reason)


async def _is_there(request: Request, queue: CachedQueue, handle: Handle) -> bool:
    return await request.queues.placement.of(queue.name).look(queue.name, handle.message) is not None


def _raise_first(outcomes: Outcomes) -> None:
    if outcomes[0] is not None:
        raise outcomes[0]
