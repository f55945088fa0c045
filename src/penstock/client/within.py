"""Sends and acks in a transaction of the caller's own: they commit with what else is in it, or not at all.

Only a client of the database itself can do that, `penstock.connect("postgresql://…")`: the caller's connection must be
to the same database. A transport that can is a `Within`.

A connection is psycopg's, of either face, or SQLAlchemy's over psycopg. What the client does with it is to run
statements; beginning and ending the transaction stays with the caller. An asynchronous connection belongs to the event
loop it was made in, so it goes with the asynchronous client.
"""

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, runtime_checkable

from penstock.client.errors import NotTransactional, StaleReceipt
from penstock.client.transport import Transport
from penstock.wire.frames import Held

# What callers give; whose it is, is found out where it is used.
Connection = Any


@runtime_checkable
class Within(Protocol):
    async def send_within(self, connection: Connection, queue: str, frame: bytes) -> Sequence[str]:
        """Send what a frame says. The ids are good once the caller commits."""
        ...

    async def ack_within(self, connection: Connection, queue: str, held: Sequence[Held]) -> bool:
        """Ack messages; if the lease of any has ended, return False, and the transaction cannot commit any more."""
        ...

    def transaction(self, *, is_threaded: bool, queue: str | None = None) -> AbstractAsyncContextManager[Connection]:
        """Lend a connection in a transaction, which is committed at the end, or rolled back on an exception.

        It is to the database that ``queue`` is in, which has to be said if there are several. With ``is_threaded`` it
        is of psycopg's synchronous face.
        """
        ...


def within_of(transport: Transport) -> Within:
    if isinstance(transport, Within):
        return transport
    raise NotTransactional(
        "a transaction takes a client of the database itself: penstock.connect('postgresql://…')", code="bad_request"
    )


async def ack_within(within: Within, connection: Connection, queue: str, held: Sequence[Held]) -> None:
    """Ack messages in a transaction, or raise `StaleReceipt`; then the transaction has failed, too."""
    if not await within.ack_within(connection, queue, held):
        raise StaleReceipt(
            f"a lease of messages in {queue!r} has ended, so the transaction cannot commit",
            code="stale_receipt",
            status=409,
        )
