"""The peer of the store: a queue table in SQLite, the durable queue in one process that needs no server.

    tasks ──▶ calls ──▶ one thread: BEGIN · their statements · COMMIT ──▶ answers

    send    INSERT
    lease   UPDATE … RETURNING of the oldest that are ready
    ack     DELETE of what the token still holds

WAL and `synchronous=FULL`, so a commit is an fsync and promises what our answer
does. It does less than the store: no priorities, no retries, no lapsing of
leases, one queue. What makes it fast is all there: prepared statements (the
cache of `sqlite3`), `executemany`, an index that leads straight to the oldest
ready message, a page cache that holds the whole backlog, and, if asked, one
transaction for all calls that wait.
"""

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, closing
from pathlib import Path
from queue import Empty, SimpleQueue
from time import time_ns
from typing import NamedTuple, TypeVar, cast

from penstock.core.queue.message import Drafts

T = TypeVar("T")

_SETUP = (
    "PRAGMA journal_mode = WAL",
    "PRAGMA synchronous = FULL",
    "PRAGMA cache_size = -65536",
    "CREATE TABLE message (id INTEGER PRIMARY KEY, state INTEGER, token INTEGER, until_ms INTEGER, body BLOB)",
    "CREATE INDEX oldest ON message (state, id)",
)
_SEND = "INSERT INTO message (state, body) VALUES (0, ?)"
_LEASE = """
UPDATE message SET state = 1, token = ?, until_ms = ?
 WHERE id IN (SELECT id FROM message WHERE state = 0 ORDER BY id LIMIT ?)
RETURNING id, token, body
"""
_ACK = "DELETE FROM message WHERE id = ? AND token = ?"
_LEASE_MS = 30_000

# Something to do in the thread, and whom to tell.
Call = tuple[Callable[[], object], "asyncio.Future[object]"]


class Leased(NamedTuple):
    """Id, token and body of each message."""

    rows: list[tuple[int, int, bytes]]

    @property
    def bodies(self) -> list[bytes]:
        return [body for _, _, body in self.rows]

    def receipts(self) -> list[tuple[int, int]]:
        return [(message, token) for message, token, _ in self.rows]


class SqliteQueue:
    """One queue table and its writer. The names of queues are there for the looks only."""

    def __init__(self, connection: sqlite3.Connection, *, shares_commits: bool) -> None:
        self._connection = connection
        self._shares_commits = shares_commits
        self._loop = asyncio.get_running_loop()
        self._calls: SimpleQueue[Call | None] = SimpleQueue()
        self._token = 0

    async def send(self, _queue: str, drafts: Drafts, /) -> None:
        rows = [(body,) for body in drafts.bodies]
        await self._call(lambda: self._all(_SEND, rows))

    async def lease(self, _queue: str, /, *, want: int) -> Leased:
        self._token += 1
        values = (self._token, time_ns() // 1_000_000 + _LEASE_MS, want)
        return Leased(await self._call(lambda: self._connection.execute(_LEASE, values).fetchall()))

    async def ack(self, _queue: str, receipts: Sequence[tuple[int, int]], /) -> None:
        await self._call(lambda: self._all(_ACK, receipts))

    def _all(self, statement: str, rows: Sequence[tuple[object, ...]]) -> None:
        # The cursor ends here: one that another thread lets go of resets a statement that may be running again.
        self._connection.executemany(statement, rows).close()

    async def _call(self, work: Callable[[], T]) -> T:
        future: asyncio.Future[object] = self._loop.create_future()
        self._calls.put((work, future))
        return cast(T, await future)

    def stop(self) -> None:
        self._calls.put(None)

    def write(self) -> None:
        """Do what is called for until `stop`. Runs in the one thread that writes."""
        is_stopped = False
        while not is_stopped and (call := self._calls.get()) is not None:
            calls = [call]
            while self._shares_commits and not is_stopped:
                try:
                    more = self._calls.get_nowait()
                except Empty:
                    break
                is_stopped = more is None
                if more is not None:
                    calls.append(more)
            self._commit(calls)

    def _commit(self, calls: Sequence[Call]) -> None:
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            answers = [work() for work, _ in calls]
            self._connection.execute("COMMIT")
        except sqlite3.Error as error:
            self._loop.call_soon_threadsafe(_refuse, calls, error)
        else:
            self._loop.call_soon_threadsafe(_answer, calls, answers)


def _answer(calls: Sequence[Call], answers: Sequence[object]) -> None:
    for (_, future), answer in zip(calls, answers, strict=True):
        if not future.done():
            future.set_result(answer)


def _refuse(calls: Sequence[Call], error: Exception) -> None:
    for _, future in calls:
        if not future.done():
            future.set_exception(error)


@asynccontextmanager
async def opened(folder: Path, *, shares_commits: bool) -> AsyncIterator[SqliteQueue]:
    path = folder / "queue.db"
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as connection:
        for statement in _SETUP:
            connection.execute(statement)
        table = SqliteQueue(connection, shares_commits=shares_commits)
        thread = threading.Thread(target=table.write, daemon=True)
        thread.start()
        try:
            yield table
        finally:
            table.stop()
            await asyncio.to_thread(thread.join)
