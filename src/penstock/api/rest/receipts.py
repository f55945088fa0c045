"""Receipts as text: opaque to whoever gets them, three numbers to us."""

import re
from collections.abc import Sequence

from penstock.api.rest.errors import bad_field
from penstock.core.message import Receipt

_RECEIPT = re.compile(r"([0-9a-f]{1,16})-([0-9a-f]{1,16})-([0-9a-f]{1,4})")

# As they are written, for most rows there are.
_ROWS = {f"{row:x}": row for row in range(1_000)}


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
    """Read receipts; most are of the same few leases, so those are read once."""
    leases: dict[str, Receipt] = {}
    receipts = []
    for row, text in enumerate(found):
        front, _, last = text.rpartition("-")
        known = leases.get(front)
        if known is None or last not in _ROWS:
            known = leases[front] = read(text, f"receipts[{row}]")
            receipts.append(known)
        else:
            receipts.append(Receipt(known.lease, known.token, _ROWS[last]))
    return receipts
