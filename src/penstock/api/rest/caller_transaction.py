"""Frames of the SDK that become part of a caller's transaction: decoded here, and passed to the store.

There is no HTTP request, as the caller is in the same process. Errors have the same words as over HTTP.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from penstock.api.rest.errors import encode_problem, problem_of
from penstock.api.rest.send import drafts_of_frame
from penstock.core.queue.message import Drafts, HeldReceipts, Receipt
from penstock.wire.frames import Held, decode_send


class Transactions(Protocol):
    async def send(self, connection: object, queue: str, drafts: Drafts) -> Sequence[str]: ...

    async def ack(self, connection: object, queue: str, receipts: Sequence[Receipt]) -> bool: ...


async def send(
    transactions: Transactions, connection: object, queue: str, frame: bytes, now_ms: Callable[[], int]
) -> Sequence[str]:
    return await transactions.send(connection, queue, drafts_of_frame(decode_send(frame), now_ms))


async def ack(transactions: Transactions, connection: object, queue: str, held: Sequence[Held]) -> bool:
    receipts = HeldReceipts({(lease, token): rows for lease, token, rows in held})
    return await transactions.ack(connection, queue, receipts)


def answer_of(error: Exception) -> tuple[int, bytes] | None:
    """Return the status and the body that an error would be answered with; None for a bug of the server."""
    found = problem_of(error)
    return None if found is None else (found.status, encode_problem(found)[0])
