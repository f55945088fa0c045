"""`application/vnd.penstock.frame`: whole batches as columns, for the SDK.

A body of this type is a head, for some kinds a text, and a frame of `frame.py`.
Everything is little-endian; the first byte is the kind, the second the version.

    SEND     kind 1 · version · flags u16 · epoch u32 · sender u64 · sequence u64
             bodies * · (tiers B) · (delay_ms q) · (visible_at_ms q) · (groups *) · (dedup_ids *) · (attributes *) ·
             (deliveries_max I)
    SENT     kind 2 · version · flags u16 · queue u32
             keys Q, of messages whose first queue this is; or ids *
    LEASED   kind 3 · version · flags u16 · queue u32 · lease u64 · token u64 · until_ms i64
             (keys Q or ids *) · bodies * · tiers B · deliveries I · sent_at_ms q · (groups *) · (attributes *) ·
             (errors *) · (origin queue * · origin sent_at_ms q · origin deliveries I)
    SETTLE   kind 4 · version · flags u16 · text bytes u32 · time_ms i64, and the text: the error of a release; flag 1
             is "to the dead letters", flag 2 "the delivery does not count"
             lease Q · token Q · rows *, a bitmap: bit i of it is message i of the lease
    SETTLED  kind 5 · version · flags u16 · 0 u32
             rows *: the bitmap of what was done, for each lease that was asked about
    BOTH     kind 6 · version · flags u16 · bytes of SETTLED u32
             a SETTLED, and a LEASED unless no message was there: the answer to a SETTLE that asks for messages, too

Columns in brackets are there if their flag is. A flag that is not known, a kind or a
version of the future and anything else that `encode_…` would not write raises `BadFrame`.

One receipt stands for a lease, with a bit for each of its messages. No object is made for
a message unless the application looks at it.
"""

import struct
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import NamedTuple

from penstock.frame import BadFrame, Buffer, Column, pack, unpack

FRAME_TYPE = "application/vnd.penstock.frame"
VERSION = 1
SEND, SENT, LEASED, SETTLE, SETTLED, BOTH = range(1, 7)

_SEND = struct.Struct("<BBHIQQ")
_SENT = struct.Struct("<BBHI")
_LEASED = struct.Struct("<BBHIQQq")
_SETTLE = struct.Struct("<BBHIq")
_HAS_SENDER = 1 << 15
_HAS_TEXT_IDS = 1 << 15
_HAS_ORIGINS = 1 << 3
# The kinds of the columns in brackets, in the order of their flags.
_SEND_OPTIONAL = b"Bqq***I"
_NO_TIME = -1
_IS_REJECTED, _IS_UNTOUCHED = 1, 2


class Sender(NamedTuple):
    """The sender, and which of its sends this is."""

    id: int
    epoch: int
    sequence: int


@dataclass(slots=True, kw_only=True)
class SendFrame:
    """Messages to be sent, as columns; None where no message has any. A delay or time of 0, and b"", is none."""

    bodies: Sequence[Buffer]
    tiers: bytes | None = None
    delay_ms: Sequence[int] | None = None
    visible_at_ms: Sequence[int] | None = None
    groups: Sequence[Buffer] | None = None
    dedup_ids: Sequence[Buffer] | None = None
    # Each the JSON text of an object.
    attributes: Sequence[Buffer] | None = None
    deliveries_max: Sequence[int] | None = None
    sender: Sender | None = None


@dataclass(slots=True)
class Ids:
    """Ids of messages: keys in one first queue, or texts. Each text is made when it is asked for."""

    queue: int
    keys: Sequence[int] | None
    texts: Sequence[Buffer] | None = None

    def __len__(self) -> int:
        rows = self.keys if self.keys is not None else self.texts
        return 0 if rows is None else len(rows)

    def __getitem__(self, row: int) -> str:
        if self.keys is not None:
            return f"{self.queue:x}-{self.keys[row]:x}"
        assert self.texts is not None
        return str(self.texts[row], "ascii")


@dataclass(slots=True, kw_only=True)
class LeasedFrame:
    """Messages of one lease, as columns."""

    lease: int
    token: int
    until_ms: int
    ids: Ids
    bodies: Sequence[Buffer]
    tiers: Buffer
    deliveries: Sequence[int]
    sent_at_ms: Sequence[int]
    groups: Sequence[Buffer] | None = None
    attributes: Sequence[Buffer] | None = None
    errors: Sequence[Buffer] | None = None
    # Where each came from: the name of its first queue (b"" if it is gone, or if it was sent here), when it was sent
    # there (0 if it was sent here), and its deliveries before it came.
    origins: tuple[Sequence[Buffer], Sequence[int], Sequence[int]] | None = None


class Held(NamedTuple):
    """Some messages of a lease: bit i of ``rows`` is message i."""

    lease: int
    token: int
    rows: int


@dataclass(slots=True)
class SettleFrame:
    """What to ack, release or extend; ``time_ms`` is a delay or a new length of the lease, None if it is not said."""

    held: Sequence[Held]
    time_ms: int | None = None
    text: str = ""
    # Of a release: straight to the dead letters.
    is_rejected: bool = False
    # Of a release: this delivery does not count.
    is_untouched: bool = False


def encode_send(send: SendFrame) -> bytes:
    columns: list[Column] = [send.bodies]
    optional: tuple[Column | None, ...] = (
        send.tiers,
        None if send.delay_ms is None else array("q", send.delay_ms),
        None if send.visible_at_ms is None else array("q", send.visible_at_ms),
        send.groups,
        send.dedup_ids,
        send.attributes,
        None if send.deliveries_max is None else array("I", send.deliveries_max),
    )
    flags = 0
    for bit, column in enumerate(optional):
        if column is not None:
            flags |= 1 << bit
            columns.append(column)
    sender = send.sender or Sender(0, 0, 0)
    flags |= _HAS_SENDER if send.sender is not None else 0
    return _SEND.pack(SEND, VERSION, flags, sender.epoch, sender.id, sender.sequence) + pack(columns)


def with_sender(send: bytes, sender: Sender) -> bytes:
    """Return what `encode_send` made, as a send of this sender: columns are laid out once for both."""
    _, _, flags, *_ = _SEND.unpack_from(send)
    head = _SEND.pack(SEND, VERSION, flags | _HAS_SENDER, sender.epoch, sender.id, sender.sequence)
    return b"".join((head, memoryview(send)[_SEND.size :]))


def decode_send(data: Buffer) -> SendFrame:
    view = memoryview(data)
    _, _, flags, epoch, sender, sequence = _head(_SEND, view, SEND)
    kinds, bits = _optional(flags & ~_HAS_SENDER, _SEND_OPTIONAL)
    columns = unpack(view[_SEND.size :], b"*" + kinds)
    found = dict(zip(bits, columns[1:], strict=True))
    return SendFrame(
        bodies=columns[0],
        tiers=bytes(found[0]) if 0 in found else None,
        delay_ms=found.get(1),
        visible_at_ms=found.get(2),
        groups=found.get(3),
        dedup_ids=found.get(4),
        attributes=found.get(5),
        deliveries_max=found.get(6),
        sender=Sender(sender, epoch, sequence) if flags & _HAS_SENDER else None,
    )


def encode_sent(ids: Ids) -> bytes:
    flags, column = (_HAS_TEXT_IDS, ids.texts or ()) if ids.keys is None else (0, array("Q", ids.keys))
    return _SENT.pack(SENT, VERSION, flags, ids.queue) + pack([column])


def decode_sent(data: Buffer) -> Ids:
    view = memoryview(data)
    _, _, flags, queue = _head(_SENT, view, SENT)
    if flags & _HAS_TEXT_IDS:
        return Ids(queue, None, *unpack(view[_SENT.size :], b"*"))
    return Ids(queue, *unpack(view[_SENT.size :], b"Q"))


def encode_leased(leased: LeasedFrame) -> bytes:
    ids = leased.ids
    flags, keys = (_HAS_TEXT_IDS, ids.texts or ()) if ids.keys is None else (0, array("Q", ids.keys))
    deliveries, sent_at_ms = array("I", leased.deliveries), array("q", leased.sent_at_ms)
    columns: list[Column] = [keys, leased.bodies, memoryview(leased.tiers), deliveries, sent_at_ms]
    for bit, texts in enumerate((leased.groups, leased.attributes, leased.errors)):
        if texts is not None:
            flags |= 1 << bit
            columns.append(texts)
    if leased.origins is not None:
        flags |= _HAS_ORIGINS
        queues, origin_sent_at_ms, origin_deliveries = leased.origins
        columns += [queues, array("q", origin_sent_at_ms), array("I", origin_deliveries)]
    head = _LEASED.pack(LEASED, VERSION, flags, ids.queue, leased.lease, leased.token, leased.until_ms)
    return head + pack(columns)


def decode_leased(data: Buffer) -> LeasedFrame:
    view = memoryview(data)
    _, _, flags, queue, lease, token, until_ms = _head(_LEASED, view, LEASED)
    kinds, bits = _optional(flags & ~_HAS_TEXT_IDS, b"****")
    ids_kind, origin_kinds = b"*" if flags & _HAS_TEXT_IDS else b"Q", b"qI" if flags & _HAS_ORIGINS else b""
    columns = unpack(view[_LEASED.size :], ids_kind + b"*BIq" + kinds + origin_kinds)
    found = dict(zip(bits, columns[5:], strict=False))
    return LeasedFrame(
        lease=lease,
        token=token,
        until_ms=until_ms,
        ids=Ids(queue, None, columns[0]) if flags & _HAS_TEXT_IDS else Ids(queue, columns[0]),
        bodies=columns[1],
        tiers=columns[2],
        deliveries=columns[3],
        sent_at_ms=columns[4],
        groups=found.get(0),
        attributes=found.get(1),
        errors=found.get(2),
        origins=(columns[-3], columns[-2], columns[-1]) if flags & _HAS_ORIGINS else None,
    )


def encode_settle(settle: SettleFrame) -> bytes:
    text = settle.text.encode(errors="replace")
    time_ms = _NO_TIME if settle.time_ms is None else settle.time_ms
    leases, tokens, rows = zip(*settle.held, strict=True) if settle.held else ((), (), ())
    flags = _IS_REJECTED * settle.is_rejected | _IS_UNTOUCHED * settle.is_untouched
    head = _SETTLE.pack(SETTLE, VERSION, flags, len(text), time_ms)
    return head + text + pack([array("Q", leases), array("Q", tokens), _bitmaps(rows)])


def decode_settle(data: Buffer) -> SettleFrame:
    view = memoryview(data)
    _, _, flags, text_bytes, time_ms = _head(_SETTLE, view, SETTLE)
    end = _SETTLE.size + text_bytes
    if flags & ~(_IS_REJECTED | _IS_UNTOUCHED) or time_ms < _NO_TIME or end > len(view):
        raise BadFrame("the head of the frame is not one of this version")
    try:
        text = str(view[_SETTLE.size : end], "utf-8")
    except UnicodeDecodeError:
        raise BadFrame("the error text is not UTF-8") from None
    leases, tokens, bitmaps = unpack(view[end:], b"QQ*")
    held = list(map(Held, leases, tokens, map(_number, bitmaps)))
    is_rejected, is_untouched = bool(flags & _IS_REJECTED), bool(flags & _IS_UNTOUCHED)
    return SettleFrame(held, None if time_ms == _NO_TIME else time_ms, text, is_rejected, is_untouched)


def encode_settled(done: Sequence[int]) -> bytes:
    return _SENT.pack(SETTLED, VERSION, 0, 0) + pack([_bitmaps(done)])


def decode_settled(data: Buffer) -> list[int]:
    view = memoryview(data)
    _head(_SENT, view, SETTLED)
    return list(map(_number, *unpack(view[_SENT.size :], b"*")))


def encode_both(settled: bytes, leased: bytes) -> bytes:
    """Return two frames as one; ``leased`` is empty if there was no message."""
    return b"".join((_SENT.pack(BOTH, VERSION, 0, len(settled)), settled, leased))


def decode_both(data: Buffer) -> tuple[list[int], LeasedFrame | None]:
    view = memoryview(data)
    _, _, flags, settled_bytes = _head(_SENT, view, BOTH)
    end = _SENT.size + settled_bytes
    if flags or end > len(view):
        raise BadFrame("the head of the frame is not one of this version")
    return decode_settled(view[_SENT.size : end]), decode_leased(view[end:]) if end < len(view) else None


def _bitmaps(numbers: Sequence[int]) -> list[bytes]:
    return [rows.to_bytes((rows.bit_length() + 7) // 8, "little") for rows in numbers]


_number = partial(int.from_bytes, byteorder="little")


def _head(head: struct.Struct, view: memoryview, kind: int) -> tuple[int, ...]:
    if len(view) < head.size:
        raise BadFrame(f"{len(view)} bytes; the head of this frame has {head.size}")
    found: tuple[int, ...] = head.unpack_from(view)
    if found[0] != kind or found[1] != VERSION:
        raise BadFrame(f"a frame of kind {found[0]}, version {found[1]}; wanted is kind {kind}, version {VERSION}")
    return found


@cache
def _optional(flags: int, kinds: bytes) -> tuple[bytes, tuple[int, ...]]:
    """The kinds of the columns that flags say are there, and the bit of each."""
    if flags >> len(kinds):
        raise BadFrame(f"flags of the future: {flags:#x}")
    bits = tuple(bit for bit in range(len(kinds)) if flags >> bit & 1)
    return bytes(kinds[bit] for bit in bits), bits
