"""Message ids and receipt handles as SQS has them: opaque to a client, numbers to the server.

    id       a UUID of version 8: number of the first queue (32 bits), key (64 bits), the rest 0
    handle   base64 of: version, queue, lease, token, row, when it was leased, first queue, key

Ids are UUIDs because some clients parse them as UUIDs. The id of a message in REST is the
same two numbers, and each can be made from the other. A handle names its message even when
its lease has ended, because AWS answers differently for a message that is gone and for one
that is back in its queue.
"""

from base64 import urlsafe_b64encode
from binascii import a2b_base64
from struct import Struct
from typing import NamedTuple

from penstock.core.queue.message import Receipt

_HANDLE = Struct(">BIQQHIIQ")
_VERSION = 1
_HANDLE_CHARACTERS = len(urlsafe_b64encode(bytes(_HANDLE.size)))
# The two characters that a URL cannot have, and what stands for them; the former are none of a handle.
_STANDARD = bytes.maketrans(b"-_+/", b"+/  ")
_SEQUENCE_FIRST = 10**19


class Handle(NamedTuple):
    """What a receipt handle says."""

    queue: int
    receipt: Receipt
    leased_at_s: int
    home: int
    key: int

    @property
    def message(self) -> str:
        """The id of the message, as the store has it. Few who settle need it."""
        return f"{self.home:x}-{self.key:x}"


def handle_text(queue: int, receipt: Receipt, leased_at_s: int, message: str) -> str:
    home, key = _numbers(message)
    raw = _HANDLE.pack(_VERSION, queue, receipt.lease, receipt.token, receipt.row, leased_at_s & 0xFFFF_FFFF, home, key)
    return urlsafe_b64encode(raw).decode()


def read_handle(text: str) -> Handle | None:
    """Return the fields of a handle, None for a text that is no handle.

    >>> read_handle(handle_text(7, Receipt(3, 255, 9), 1_700_000_000, "1f-2a"))
    Handle(queue=7, receipt=Receipt(lease=3, token=255, row=9), leased_at_s=1700000000, home=31, key=42)
    >>> read_handle("nonsense") is None
    True
    """
    if len(text) != _HANDLE_CHARACTERS or not text.isascii():
        return None
    try:
        raw = a2b_base64(text.encode().translate(_STANDARD), strict_mode=True)
    except ValueError:
        return None
    if len(raw) != _HANDLE.size:
        return None
    version, queue, lease, token, row, leased_at_s, home, key = _HANDLE.unpack(raw)
    if version != _VERSION:
        return None
    return Handle(queue, Receipt(lease, token, row), leased_at_s, home, key)


def message_uuid(message: str) -> str:
    """Return the id of a message as a UUID.

    >>> message_uuid("1f-2a")
    '0000001f-0000-8000-8000-0000a8000000'
    """
    home, key = _numbers(message)
    last = (key & 0xF_FFFF_FFFF) << 26
    return (
        f"{home:08x}-{key >> 48:04x}-8{key >> 36 & 0xFFF:03x}-{0x8000 | last >> 48:04x}-{last & 0xFFFF_FFFF_FFFF:012x}"
    )


def message_of_uuid(text: str) -> str:
    """Return the id that a message has in the store, and in REST.

    >>> message_of_uuid(message_uuid("1f-7fffffffffffffff"))
    '1f-7fffffffffffffff'
    """
    digits = int(text.replace("-", ""), 16)
    home, high, middle = digits >> 96, digits >> 80 & 0xFFFF, digits >> 64 & 0xFFF
    return f"{home:x}-{high << 48 | middle << 36 | digits >> 26 & 0xF_FFFF_FFFF:x}"


def sequence_number(message: str) -> str:
    """Return the sequence number of a message on a FIFO queue: it rises among messages of one tier.

    >>> sequence_number("1f-2a")
    '10000000000000000042'
    """
    return str(_SEQUENCE_FIRST + _numbers(message)[1])


def queue_number(queue_id: str) -> int:
    """Return the number in the id of a queue, which no other queue ever has.

    >>> queue_number("q_1f")
    31
    """
    return int(queue_id.partition("_")[2], 16)


def _numbers(message: str) -> tuple[int, int]:
    # It comes from the store, or from a handle that was made of one.
    home, _, key = message.partition("-")
    return int(home, 16), int(key, 16)
