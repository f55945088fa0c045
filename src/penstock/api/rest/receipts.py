"""Receipts as text: opaque to whoever gets them, three numbers to us."""

import re
from collections.abc import Sequence

from penstock.api.rest.errors import bad_field
from penstock.core.message import Receipt

_RECEIPT = re.compile(r"([0-9a-f]{1,16})-([0-9a-f]{1,16})-([0-9a-f]{1,4})")


def texts(lease: int, token: int, count: int) -> list[str]:
    """Return the receipts of a lease.

    >>> texts(3, 255, 2)
    ['3-ff-0', '3-ff-1']
    """
    front = f"{lease:x}-{token:x}-"
    return [front + f"{row:x}" for row in range(count)]


def read(text: str, field: str) -> Receipt:
    found = _RECEIPT.fullmatch(text)
    if found is None:
        raise bad_field(f"{text[:64]!r} is not a receipt; give back what came with the message", field)
    return Receipt(int(found[1], 16), int(found[2], 16), int(found[3], 16))


def read_all(found: Sequence[str]) -> list[Receipt]:
    return [read(text, f"receipts[{row}]") for row, text in enumerate(found)]
