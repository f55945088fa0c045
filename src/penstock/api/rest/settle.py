"""Settling: receipts, or one bitmap for each lease, are acked, released or extended."""

import re
from collections.abc import Sequence

from msgspec import UNSET, Struct, UnsetType

from penstock.api.rest.errors import Refused, bad_field
from penstock.api.rest.request import Answer, Decoder, Format, Request, lease_ms, milliseconds, sent_format
from penstock.broker.access import Role
from penstock.broker.queues import MessageNotFound
from penstock.contract.limits import DURATION_MS_MAX, LEASE_MESSAGES_MAX, LEASE_MS_MAX, REQUEST_MESSAGES_MAX
from penstock.core.queue.message import HeldReceipts, Receipt, Receipts
from penstock.store.interface import Outcome, Release
from penstock.wire import frames, messages
from penstock.wire.frames import FRAME_TYPE, SettleFrame
from penstock.wire.messages import Acked, Acks, Cancelled, Extensions, Releases, Settled, SettledMany

_read_acks = Decoder(Acks)
_read_releases = Decoder(Releases)
_read_extensions = Decoder(Extensions)
_LEASES_MAX = REQUEST_MESSAGES_MAX


class AckQuery(Struct, forbid_unknown_fields=True):
    receipt: messages.Receipt | UnsetType = UNSET


async def ack(request: Request) -> Answer:
    queue = await request.queue(Role.RECEIVE)
    raw, form = await request.bytes(), sent_format(request.headers.get(b"content-type"))
    if form is Format.FRAME:
        settle = read_frame(raw)
        wanted = receipts_of(settle)
        return _framed(settled_frame(settle, wanted, await request.queues.ack(queue, wanted)))
    asked: Acks = _read_acks.decode(raw, form)
    outcomes = await request.queues.ack(queue, read_receipts(asked.receipts))
    return Answer(settled("acked", asked.receipts, outcomes))


async def release(request: Request) -> Answer:
    queue = await request.queue(Role.RECEIVE)
    raw, form = await request.bytes(), sent_format(request.headers.get(b"content-type"))
    if form is Format.FRAME:
        settle = read_frame(raw)
        _check_time(settle, DURATION_MS_MAX)
        wanted = receipts_of(settle)
        how = Release(
            delay_ms=settle.time_ms,
            error=settle.text,
            is_rejected=settle.is_rejected,
            is_untouched=settle.is_untouched,
        )
        return _framed(settled_frame(settle, wanted, await request.queues.release(queue, wanted, how)))
    asked: Releases = _read_releases.decode(raw, form)
    delay_ms = None if isinstance(asked.delay_s, UnsetType) else milliseconds(asked.delay_s)
    proofs = read_receipts(asked.receipts)
    how = Release(delay_ms=delay_ms, error=asked.error, is_rejected=asked.reject, is_untouched=not asked.count_delivery)
    return Answer(settled("released", asked.receipts, await request.queues.release(queue, proofs, how)))


async def extend(request: Request) -> Answer:
    queue = await request.queue(Role.RECEIVE)
    raw, form = await request.bytes(), sent_format(request.headers.get(b"content-type"))
    if form is Format.FRAME:
        settle = read_frame(raw)
        if settle.time_ms is None:
            raise bad_field("an extension needs its length", "time_ms")
        _check_time(settle, LEASE_MS_MAX)
        wanted = receipts_of(settle)
        outcomes = await request.queues.extend(queue, wanted, lease_ms=settle.time_ms or 1)
        return _framed(settled_frame(settle, wanted, outcomes))
    asked: Extensions = _read_extensions.decode(raw, form)
    length_ms = lease_ms(asked.visibility_timeout)
    outcomes = await request.queues.extend(queue, read_receipts(asked.receipts), lease_ms=length_ms)
    return Answer(settled("extended", asked.receipts, outcomes))


async def ack_one(request: Request) -> Answer:
    """Ack one message: with its receipt if there is one, or whatever lease holds it."""
    queue, message_id = await request.queue(Role.RECEIVE), request.parameter("message_id")
    asked: AckQuery = request.query(AckQuery)
    if isinstance(asked.receipt, UnsetType):
        await request.queues.ack_by_id(queue, message_id)
        return Answer(Acked(message_id, deleted=True))
    receipt = read_receipt(asked.receipt, "receipt")
    seen = await request.queues.placement.of(queue).look(queue, message_id)
    if seen is None:
        raise MessageNotFound(f"there is no message {message_id[:64]!r} in {queue!r}")
    if await request.queues.placement.of(queue).receipts(queue, [message_id]) != [receipt]:
        raise Refused("stale_receipt", f"the receipt is not that of the lease that holds {message_id[:64]!r}")
    if await request.queues.ack(queue, [receipt]) != [Outcome.DONE]:
        raise Refused("stale_receipt", f"the lease of {message_id[:64]!r} has ended")
    return Answer(Acked(message_id, deleted=True))


async def cancel(request: Request) -> Answer:
    queue, message_id = await request.queue(Role.SEND), request.parameter("message_id")
    await request.queues.cancel(queue, message_id)
    return Answer(Cancelled(message_id, cancelled=True))


def settled(done: str, texts: Sequence[str], outcomes: Sequence[Outcome]) -> SettledMany:
    results = [
        Settled(text, done if outcome is Outcome.DONE else "stale")
        for text, outcome in zip(texts, outcomes, strict=True)
    ]
    return SettledMany(outcomes.count(Outcome.DONE), results)


def read_frame(raw: bytes) -> SettleFrame:
    settle = frames.decode_settle(raw)
    if not 1 <= len(settle.held) <= _LEASES_MAX:
        raise bad_field(f"{len(settle.held)} leases; there may be 1 to {_LEASES_MAX}", "leases", _LEASES_MAX)
    bitmaps = [held.rows for held in settle.held]
    rows = sum(map(int.bit_count, bitmaps))
    if not 1 <= rows <= LEASE_MESSAGES_MAX or max(map(int.bit_length, bitmaps)) > LEASE_MESSAGES_MAX:
        raise bad_field(f"{rows} messages; there may be 1 to {LEASE_MESSAGES_MAX}", "rows", LEASE_MESSAGES_MAX)
    return settle


def _check_time(settle: SettleFrame, ms_max: int) -> None:
    if settle.time_ms is not None and settle.time_ms > ms_max:
        raise bad_field(f"{settle.time_ms} ms; the limit is {ms_max}", "time_ms", ms_max)


def receipts_of(settle: SettleFrame) -> Sequence[Receipt]:
    if len(settle.held) == 1:
        lease, token, rows = settle.held[0]
        if rows & (rows + 1) == 0:
            # All of a lease, from its first message on: nothing is made for each.
            return Receipts(lease, token, rows.bit_length())
    held: dict[tuple[int, int], int] = {}
    for lease, token, rows in settle.held:
        held[lease, token] = held.get((lease, token), 0) | rows
    return HeldReceipts(held)


def settled_frame(settle: SettleFrame, wanted: Sequence[Receipt], outcomes: Sequence[Outcome]) -> bytes:
    if outcomes.count(Outcome.DONE) == len(outcomes):
        done = [held.rows for held in settle.held]
    else:
        found: dict[tuple[int, int], int] = {}
        for (lease, token, row), outcome in zip(wanted, outcomes, strict=True):
            if outcome is Outcome.DONE:
                found[lease, token] = found.get((lease, token), 0) | 1 << row
        done = [found.get((held.lease, held.token), 0) & held.rows for held in settle.held]
    return frames.encode_settled(done)


def _framed(frame: bytes) -> Answer:
    return Answer(frame, content_type=FRAME_TYPE.encode())


_RECEIPT = re.compile(r"([0-9a-f]{1,16})-([0-9a-f]{1,16})-([0-9a-f]{1,4})")

# As they are written, for most rows there are.
_ROWS = {f"{row:x}": row for row in range(1_000)}


def read_receipt(text: str, field: str) -> Receipt:
    found = _RECEIPT.fullmatch(text)
    if found is None:
        raise bad_field(f"{text[:64]!r} is not a receipt; give back what came with the message", field)
    return Receipt(int(found[1], 16), int(found[2], 16), int(found[3], 16))


def read_receipts(found: Sequence[str], field: str = "receipts") -> list[Receipt]:
    """Read receipts; most are of the same few leases, so those are read once."""
    leases: dict[str, Receipt] = {}
    receipts = []
    for row, text in enumerate(found):
        front, _, last = text.rpartition("-")
        known = leases.get(front)
        if known is None or last not in _ROWS:
            known = leases[front] = read_receipt(text, f"{field}[{row}]")
            receipts.append(known)
        else:
            receipts.append(Receipt(known.lease, known.token, _ROWS[last]))
    return receipts
