"""Which messages were worked on already, remembered in PostgreSQL: for workers on any number of machines.

It is for work whose effects are elsewhere, and that must not be done twice though its message may be delivered twice.
Work that writes to the same database needs none of it: `transactional=True` acks in its very transaction.

Needs psycopg, `pip install 'penstock[postgres]'`. The table is made when it is first used; the clock is the
database's, since machines disagree. What is done is durable before it counts as done, as far as the database syncs.

A connection that has broken, or whose database says nothing for some seconds, is opened again, and the statement is run
once more. To say anything twice is to say it once; only a claim whose answer was lost counts as another's until it
lapses, so that nothing is begun twice.
"""

import asyncio
import os
import secrets
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import psycopg
from psycopg import pq, sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from penstock.client.idempotency import EXPIRY_S, ClaimResult

TABLE = "penstock_seen"
_SWEEP_S = 60.0
# How long a statement may take: each is about one row, or about expired rows.
ANSWER_S = 10.0
# The same as in `store/postgres/connection.py`, which the client may not import.
_BOUNDS: dict[str, int] = {
    "connect_timeout": 10,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 15_000,
}

# Of two that make it at once the second waits for the first and finds it made. To find it needs no right to make one.
_MAKE = """
DO $$
BEGIN
    IF to_regclass({name}) IS NULL THEN
        CREATE TABLE IF NOT EXISTS {table} (
            key text PRIMARY KEY,
            -- Who works on it; NULL once it is done.
            owner text,
            -- When the claim lapses, or the memory expires: seconds since 1970.
            until_s float8 NOT NULL
        );
    END IF;
EXCEPTION
    WHEN unique_violation OR duplicate_table THEN NULL;
END
$$
"""
_NOW = "coalesce(%(now_s)s::float8, extract(epoch FROM clock_timestamp())::float8)"
# Takes the key if there is no row, or one whose time is over; a row that still counts is left as it is, and returned.
_BEGIN = f"""
WITH taken AS (
    INSERT INTO {{table}} AS seen (key, owner, until_s) VALUES (%(key)s, %(owner)s, {_NOW} + %(claim_s)s)
        ON CONFLICT (key) DO UPDATE SET owner = %(owner)s, until_s = excluded.until_s WHERE seen.until_s <= {_NOW}
    RETURNING 'begun' AS standing
)
SELECT standing FROM taken
 UNION ALL
SELECT CASE WHEN owner IS NULL THEN 'done' ELSE 'taken' END FROM {{table}} WHERE key = %(key)s
 LIMIT 1
"""
_EXTEND = f"UPDATE {{table}} SET until_s = {_NOW} + %(claim_s)s WHERE key = %(key)s AND owner = %(owner)s"
_FINISH = f"""
INSERT INTO {{table}} (key, owner, until_s) VALUES (%(key)s, NULL, {_NOW} + %(expiry_s)s)
    ON CONFLICT (key) DO UPDATE SET owner = NULL, until_s = excluded.until_s
"""
_FORGET = "DELETE FROM {table} WHERE key = %(key)s AND owner = %(owner)s"
_SWEEP = f"DELETE FROM {{table}} WHERE until_s <= {_NOW}"


class PostgresIdempotencyStore:
    """In a table of PostgreSQL. ``table`` may name a schema, as `shop.seen`. Tests give ``clock``, ``answer_s``."""

    def __init__(
        self,
        dsn: str,
        expiry_s: float = EXPIRY_S,
        *,
        table: str = TABLE,
        clock: Callable[[], float] | None = None,
        answer_s: float = ANSWER_S,
    ) -> None:
        self._dsn = bounded(dsn)
        self._answer_s = answer_s
        self._expiry_s = expiry_s
        self._table = sql.Identifier(*table.split("."))
        self._clock = clock
        self._owner = secrets.token_hex(8)
        self._connection: psycopg.AsyncConnection[Any] | None = None
        self._opening = asyncio.Lock()
        # How often it was in vain to connect.
        self._failures = 0
        self._sweeps_at_s = 0.0

    async def begin(self, key: str, claim_s: float) -> ClaimResult:
        now_s = asyncio.get_running_loop().time()
        if now_s >= self._sweeps_at_s:
            self._sweeps_at_s = now_s + _SWEEP_S
            await self._run(_SWEEP)
        row = await self._run(_BEGIN, key=key, claim_s=claim_s)
        # Its owner gave it up between the two reads: the next worker may claim it.
        return ClaimResult(row[0]) if row is not None else ClaimResult.TAKEN

    async def extend(self, key: str, claim_s: float) -> None:
        await self._run(_EXTEND, key=key, claim_s=claim_s)

    async def finish(self, key: str) -> None:
        await self._run(_FINISH, key=key, expiry_s=self._expiry_s)

    async def forget(self, key: str) -> None:
        await self._run(_FORGET, key=key)

    async def close(self) -> None:
        if self._connection is not None:
            await self._connection.close()
            self._connection = None

    async def _run(self, statement: str, **said: object) -> tuple[Any, ...] | None:
        now_s = None if self._clock is None else self._clock()
        values = {"owner": self._owner, "now_s": now_s, **said}
        connection = await self._open()
        try:
            return await self._ask(connection, statement, values)
        except psycopg.OperationalError:
            if not connection.closed:
                raise
        # It may have been broken for long without notice.
        return await self._ask(await self._open(), statement, values)

    async def _ask(
        self, connection: psycopg.AsyncConnection[Any], statement: str, values: dict[str, object] | None = None
    ) -> tuple[Any, ...] | None:
        with _answered_within(connection, self._answer_s):
            composed = sql.SQL(statement).format(table=self._table, name=sql.Literal(self._table.as_string()))
            cursor = await connection.execute(composed, values)
            return await cursor.fetchone() if cursor.description else None

    async def _open(self) -> psycopg.AsyncConnection[Any]:
        failures = self._failures
        async with self._opening:
            if self._connection is not None and not self._connection.closed:
                return self._connection
            if failures != self._failures:
                # The callers that wait would get the same answer, one after the other.
                raise psycopg.OperationalError("the database could not be reached a moment ago")
            try:
                self._connection = await self._connected()
            except psycopg.Error:
                self._failures += 1
                raise
            return self._connection

    async def _connected(self) -> psycopg.AsyncConnection[Any]:
        # Nothing is prepared, so that a pooler may be in between.
        connection = await psycopg.AsyncConnection.connect(self._dsn, autocommit=True, prepare_threshold=None)
        try:
            await self._ask(connection, _MAKE)
        except BaseException:
            await connection.close()
            raise
        return connection


def bounded(dsn: str) -> str:
    """Return a connection string that notices a dead server. Settings in ``dsn`` or in the environment win.

    >>> bounded("postgresql://db?connect_timeout=3&tcp_user_timeout=0").removeprefix("connect_timeout=3 host=db ")
    'tcp_user_timeout=0 client_encoding=UTF8 keepalives_idle=10 keepalives_interval=5 keepalives_count=3'
    """
    said = {each.keyword.decode() for each in pq.Conninfo.get_defaults() if each.val} | set(conninfo_to_dict(dsn))
    # Texts are read as texts, also from a database that has not said how its own are written (SQL_ASCII).
    return make_conninfo(
        dsn, client_encoding="UTF8", **{name: value for name, value in _BOUNDS.items() if name not in said}
    )


@contextmanager
def _answered_within(connection: psycopg.AsyncConnection[Any], wait_s: float) -> Iterator[None]:
    """Break a connection from our side if this takes longer, so that its statement fails."""
    timer = asyncio.get_running_loop().call_later(wait_s, _hang_up, connection)
    try:
        yield
    except psycopg.OperationalError:
        # The driver asks once more after a cancellation, and what that fails with must not hide it.
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise asyncio.CancelledError from None
        raise
    finally:
        timer.cancel()


def _hang_up(connection: psycopg.AsyncConnection[Any]) -> None:
    if not connection.closed:
        with suppress(OSError), socket.socket(fileno=os.dup(connection.fileno())) as own:
            own.shutdown(socket.SHUT_RDWR)
