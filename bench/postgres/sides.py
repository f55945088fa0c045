"""What is compared: a queue in a database, as its own client would use it.

A side is made once in a database and opened by every process of a crowd. Its `Client` speaks in batches; what
`lease` returns is for `ack` alone, and has a length. Nothing waits for messages.
"""

import os
from collections.abc import AsyncIterator, Sequence, Sized
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

import psycopg
from psycopg.abc import Buffer
from psycopg.adapt import Loader

QUEUE = "orders"
BODY_BYTES = 256
LEASE_S = 300


class Client(Protocol):
    async def send(self, count: int) -> None: ...

    async def lease(self, want: int) -> Sized: ...

    async def ack(self, leased: Any) -> None: ...


class Side(Protocol):
    @property
    def name(self) -> str: ...

    async def make(self, dsn: str) -> None:
        """Make its tables and its one queue in an empty database."""
        ...

    def opened(self, dsn: str) -> AbstractAsyncContextManager[Client]: ...


class _AsItCame(Loader):
    """JSON as bytes: what a consumer makes of a body is not the queue's business."""

    def load(self, data: Buffer) -> bytes:
        return bytes(data)


class PgmqClient:
    """PGMQ's functions as its Python client calls them, but bodies are neither dumped nor parsed on the way."""

    def __init__(self, connection: psycopg.AsyncConnection[Any]) -> None:
        self._connection = connection
        # A JSON text of as many bytes as our bodies have.
        self._body = '"' + os.urandom(BODY_BYTES // 2 - 1).hex() + '"'

    async def send(self, count: int) -> None:
        if count == 1:
            question, body = "SELECT pgmq.send(%s, %s::jsonb)", self._body
            await self._connection.execute(question, (QUEUE, body))
            return
        await self._connection.execute("SELECT pgmq.send_batch(%s, %s::jsonb[])", (QUEUE, [self._body] * count))

    async def lease(self, want: int) -> Sequence[tuple[int, bytes]]:
        question = "SELECT msg_id, message FROM pgmq.read(%s, %s, %s)"
        return await (await self._connection.execute(question, (QUEUE, LEASE_S, want))).fetchall()

    async def ack(self, leased: Sequence[tuple[int, bytes]]) -> None:
        if len(leased) == 1:
            await self._connection.execute("SELECT pgmq.delete(%s, %s::bigint)", (QUEUE, leased[0][0]))
            return
        await self._connection.execute("SELECT pgmq.delete(%s, %s::bigint[])", (QUEUE, [row[0] for row in leased]))


class Pgmq:
    name = "PGMQ"

    def __init__(self, sql: Path) -> None:
        self._sql = sql

    async def make(self, dsn: str) -> None:
        async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
            await connection.execute(self._sql.read_bytes())
            await connection.execute("SELECT pgmq.create(%s)", (QUEUE,))

    @asynccontextmanager
    async def opened(self, dsn: str) -> AsyncIterator[PgmqClient]:
        async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
            connection.adapters.register_loader("jsonb", _AsItCame)
            yield PgmqClient(connection)


def pgmq() -> Pgmq | None:
    """PGMQ, if its SQL file was named."""
    named = os.environ.get("PGMQ_SQL", "")
    return Pgmq(Path(named)) if named else None


PGMQ_MISSING = "PGMQ is left out: name its file pgmq.sql in the variable PGMQ_SQL to compare with it"
