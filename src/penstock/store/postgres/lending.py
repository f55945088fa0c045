"""Connections lent to programs, each in a transaction: for work that is to commit together with its ack.

They are not those of the store. Whoever has one may keep it for as long as the work takes, and the store must go on
meanwhile. At most as many are kept open as were in use at once.
"""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus

from penstock.store.postgres.reach import Reached, answered_within, bounded
from penstock.store.postgres.within import InThread

Async = psycopg.AsyncConnection[Any]
Plain = psycopg.Connection[Any]

# How long one that was kept may take to say that it is still there.
_ANSWER_S = 5.0


class Lending:
    def __init__(self, url: str, *, is_pooled: bool, in_thread: InThread) -> None:
        self._url = bounded(url)
        self._in_thread = in_thread
        self._prepare_threshold = None if is_pooled else 5
        self._free: list[Async] = []
        self._free_plain: list[Plain] = []

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Async]:
        """Lend a connection; commit at the end, or roll back on an exception."""
        async with AsyncExitStack() as stack:
            connection = await self._begun()
            stack.push_async_callback(self._give_back, connection)
            await stack.enter_async_context(connection.transaction())
            yield connection

    @asynccontextmanager
    async def plain_transaction(self) -> AsyncIterator[Plain]:
        """Lend one of the synchronous face, to be used in a thread."""
        connection = await self._begun_plain()
        try:
            yield connection
            await self._in_thread(connection.commit)
        except BaseException:
            # The thread it was lent to may have it still: to close it takes no lock, and rolls back.
            connection.close()
            raise
        if _is_idle(connection):
            self._free_plain.append(connection)
        else:
            connection.close()

    async def _begun(self) -> Async:
        """Return a connection that answers: one that was kept may be to a server that has gone since."""
        while self._free:
            connection = self._free.pop()
            try:
                with answered_within(connection, _ANSWER_S):
                    await connection.execute("SELECT")
            except psycopg.OperationalError:
                await connection.close()
            else:
                return connection
        return await self._connect()

    async def _begun_plain(self) -> Plain:
        while self._free_plain:
            connection = self._free_plain.pop()
            try:
                with answered_within(connection, _ANSWER_S):
                    await self._in_thread(connection.execute, "SELECT")
            except psycopg.OperationalError:
                connection.close()
            else:
                return connection
        return await self._in_thread(self._connect_plain)

    async def _give_back(self, connection: Async) -> None:
        if _is_idle(connection):
            self._free.append(connection)
        else:
            await connection.close()

    async def close(self) -> None:
        while self._free:
            await self._free.pop().close()
        while self._free_plain:
            self._free_plain.pop().close()

    async def _connect(self) -> Async:
        return await Reached.connect(self._url, autocommit=True, prepare_threshold=self._prepare_threshold)

    def _connect_plain(self) -> Plain:
        return psycopg.connect(self._url, prepare_threshold=self._prepare_threshold)


def _is_idle(connection: Async | Plain) -> bool:
    return not connection.closed and connection.info.transaction_status == TransactionStatus.IDLE
