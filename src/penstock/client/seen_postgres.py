"""Which messages were worked on already, remembered in PostgreSQL: for workers on any number of machines.

It is for work whose effects are elsewhere, and that must not be done twice though its message may be delivered twice.
Work that writes to the same database needs none of it: `transactional=True` acks in its very transaction.

Needs psycopg, `pip install 'penstock[postgres]'`. The table is made when it is first used; the clock is the
database's, since machines disagree. What is done is durable before it counts as done, as far as the database syncs.
"""

import asyncio
import secrets
from collections.abc import Callable
from typing import Any

import psycopg
from psycopg import sql

from penstock.client.seen import EXPIRY_S, Standing

TABLE = "penstock_seen"
_SWEEP_S = 60.0

# Two who make it at once would fail one another without the lock.
_MAKE = """
DO $$
BEGIN
    PERFORM pg_advisory_xact_lock(hashtext('penstock.seen'));
    CREATE TABLE IF NOT EXISTS {table} (
        key text PRIMARY KEY,
        -- Who works on it; NULL once it is done.
        owner text,
        -- When the claim lapses, or the memory expires: seconds since 1970.
        until_s float8 NOT NULL
    );
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


class PostgresSeen:
    """In a table of PostgreSQL. ``table`` may name a schema, as `shop.seen`; ``clock`` is for tests."""

    def __init__(
        self, dsn: str, expiry_s: float = EXPIRY_S, *, table: str = TABLE, clock: Callable[[], float] | None = None
    ) -> None:
        self._dsn = dsn
        self._expiry_s = expiry_s
        self._table = sql.Identifier(*table.split("."))
        self._clock = clock
        self._owner = secrets.token_hex(8)
        self._connection: psycopg.AsyncConnection[Any] | None = None
        self._opening = asyncio.Lock()
        self._sweeps_at_s = 0.0

    async def begin(self, key: str, claim_s: float) -> Standing:
        now_s = asyncio.get_running_loop().time()
        if now_s >= self._sweeps_at_s:
            self._sweeps_at_s = now_s + _SWEEP_S
            await self._run(_SWEEP)
        row = await self._run(_BEGIN, key=key, claim_s=claim_s)
        # Whoever had it gave it up between the two looks; so it is free for whoever comes next.
        return Standing(row[0]) if row is not None else Standing.TAKEN

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
        connection = await self._open()
        now_s = None if self._clock is None else self._clock()
        values = {"owner": self._owner, "now_s": now_s, **said}
        cursor = await connection.execute(self._composed(statement), values)
        return await cursor.fetchone() if cursor.description else None

    async def _open(self) -> psycopg.AsyncConnection[Any]:
        async with self._opening:
            if self._connection is None or self._connection.closed:
                # Nothing is prepared, so that a pooler may be in between.
                self._connection = await psycopg.AsyncConnection.connect(
                    self._dsn, autocommit=True, prepare_threshold=None
                )
                await self._connection.execute(self._composed(_MAKE))
            return self._connection

    def _composed(self, statement: str) -> sql.Composed:
        return sql.SQL(statement).format(table=self._table)
