"""Idempotency stores: they remember which messages are done, so that a second delivery is not worked on again.

    begin ──► BEGUN ──work──► finish ──► remembered until it expires
          ──► DONE: it was finished before
          ──► TAKEN: another worker has claimed it; the claim expires unless it is extended

A mark is set after the work and before the ack. Between the work and the mark a crash leaves neither, and the message
is worked on again: to be sure, the work itself has to be a transaction with the mark in it. Without a crash, two
workers never both do the work of one key, as long as the one that has begun extends its claim.
"""

import asyncio
import secrets
import sqlite3
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from enum import Enum
from pathlib import Path
from typing import Protocol, TypeVar

T = TypeVar("T")

EXPIRY_S = 3_600.0
MOST = 100_000
_SWEEP_S = 60.0
_BUSY_S = 30.0


class ClaimResult(Enum):
    BEGUN = "begun"
    DONE = "done"
    TAKEN = "taken"


class IdempotencyStore(Protocol):
    """Remembers keys. Each object is one worker to it: what one has begun is taken for the others."""

    async def begin(self, key: str, claim_s: float) -> ClaimResult:
        """Claim a key for ``claim_s``, unless it is done or another worker has claimed it."""
        ...

    async def extend(self, key: str, claim_s: float) -> None:
        """Claim what was begun for ``claim_s`` from now on."""
        ...

    async def finish(self, key: str) -> None:
        """Remember that it is done. Returns when that is as durable as it can be."""
        ...

    async def forget(self, key: str) -> None:
        """Give the claim up: the work has failed, and any worker may try again."""
        ...

    async def close(self) -> None: ...


class MemoryIdempotencyStore:
    """In the memory of this process, for one worker or several that share it. The oldest of too many are forgotten."""

    def __init__(
        self, expiry_s: float = EXPIRY_S, *, most: int = MOST, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._expiry_s = expiry_s
        self._most = most
        self._clock = clock
        # When each expires, oldest first.
        self._done: OrderedDict[str, float] = OrderedDict()
        self._claims: dict[str, float] = {}

    def __len__(self) -> int:
        return len(self._done)

    async def begin(self, key: str, claim_s: float) -> ClaimResult:
        now_s = self._clock()
        self._expire(now_s)
        if key in self._done:
            return ClaimResult.DONE
        if self._claims.get(key, now_s) > now_s:
            return ClaimResult.TAKEN
        self._claims[key] = now_s + claim_s
        return ClaimResult.BEGUN

    async def extend(self, key: str, claim_s: float) -> None:
        if key in self._claims:
            self._claims[key] = self._clock() + claim_s

    async def finish(self, key: str) -> None:
        self._claims.pop(key, None)
        self._done[key] = self._clock() + self._expiry_s
        self._done.move_to_end(key)
        while len(self._done) > self._most:
            self._done.popitem(last=False)

    async def forget(self, key: str) -> None:
        self._claims.pop(key, None)

    async def close(self) -> None:
        """There is nothing to close."""

    def _expire(self, now_s: float) -> None:
        while self._done:
            key, expires_s = next(iter(self._done.items()))
            if expires_s > now_s:
                return
            del self._done[key]


_SCHEMA = """
CREATE TABLE IF NOT EXISTS seen (
    key TEXT PRIMARY KEY,
    -- Who works on it; NULL once it is done.
    owner TEXT,
    -- When the claim lapses, or the memory expires: seconds since 1970.
    until_s REAL NOT NULL
) WITHOUT ROWID
"""
# Takes the key if there is no row, or one whose time is over; a row that still counts is left as it is.
_BEGIN = """
INSERT INTO seen (key, owner, until_s) VALUES (:key, :owner, :until_s)
    ON CONFLICT (key) DO UPDATE SET owner = :owner, until_s = :until_s WHERE seen.until_s <= :now_s
"""
_EXTEND = "UPDATE seen SET until_s = :until_s WHERE key = :key AND owner = :owner"
_FINISH = """
INSERT INTO seen (key, owner, until_s) VALUES (:key, NULL, :until_s)
    ON CONFLICT (key) DO UPDATE SET owner = NULL, until_s = :until_s
"""
_FORGET = "DELETE FROM seen WHERE key = :key AND owner = :owner"


class SqliteIdempotencyStore:
    """In a file of SQLite, for all workers of one machine. What is done is on the disk before it counts as done.

    A thread of its own does the waiting. The file is made when it is first used.
    """

    def __init__(self, path: str | Path, expiry_s: float = EXPIRY_S, *, clock: Callable[[], float] = time.time) -> None:
        self._path = str(path)
        self._expiry_s = expiry_s
        self._clock = clock
        self._owner = secrets.token_hex(8)
        self._thread: ThreadPoolExecutor | None = None
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._swept_s = float("-inf")

    async def begin(self, key: str, claim_s: float) -> ClaimResult:
        return await self._run(lambda: self._begin(key, claim_s))

    async def extend(self, key: str, claim_s: float) -> None:
        values = {"key": key, "owner": self._owner, "until_s": self._clock() + claim_s}
        await self._run(lambda: self._write(_EXTEND, values))

    async def finish(self, key: str) -> None:
        values = {"key": key, "until_s": self._clock() + self._expiry_s}
        await self._run(lambda: self._write(_FINISH, values))

    async def forget(self, key: str) -> None:
        values = {"key": key, "owner": self._owner}
        await self._run(lambda: self._write(_FORGET, values))

    async def close(self) -> None:
        if self._thread is not None:
            await self._run(self._close)
            self._thread.shutdown()
            self._thread = None

    async def _run(self, work: Callable[[], T]) -> T:
        with self._lock:
            if self._thread is None:
                self._thread = ThreadPoolExecutor(1, thread_name_prefix="penstock-idempotency")
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def _begin(self, key: str, claim_s: float) -> ClaimResult:
        connection, now_s = self._open(), self._clock()
        if now_s - self._swept_s > _SWEEP_S:
            self._swept_s = now_s
            connection.execute("DELETE FROM seen WHERE until_s <= ?", (now_s,))
        values = {"key": key, "owner": self._owner, "until_s": now_s + claim_s, "now_s": now_s}
        if connection.execute(_BEGIN, values).rowcount:
            return ClaimResult.BEGUN
        row = connection.execute("SELECT owner FROM seen WHERE key = ?", (key,)).fetchone()
        return ClaimResult.DONE if row is not None and row[0] is None else ClaimResult.TAKEN

    def _write(self, statement: str, values: Mapping[str, object]) -> None:
        self._open().execute(statement, values)

    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            # Each statement is a transaction of its own.
            connection = sqlite3.connect(self._path, timeout=_BUSY_S, isolation_level=None)
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute(_SCHEMA)
            self._connection = connection
        return self._connection

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
