"""An empty schema for each test, without making one: what the test before has left is removed."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import psycopg

from penstock.store.postgres import migrate
from penstock.store.postgres.database import Database, PostgresSettings
from tests.postgres.servers import shared_server
from tests.postgres.waiting import is_found
from tests.waiting import eventually, wait_until

_TABLES = (
    "ready", "marked", "leased", "lease", "line", "tenant", "tenant_held", "dedup", "sender", "sent", "operation",
    "escalation", "history", "redrive", "queue_lock", "server", "room", "purge", "tally", "frame", "topic_producer",
    "topic_partition", "topic_cleaning", "topic", "committed_offset", "consumer_group",
)  # fmt: skip
# Who has left is noticed by the database a moment later; a test that waits longer for it has failed.
_LEFT_S_MAX = 60.0
# Every store that is there has one.
_PRESENT = "SELECT 1 FROM penstock.server WHERE penstock.is_connected(server)"


def shared_settings(which: int = 0) -> PostgresSettings:
    """Make a database with our schema, once for all tests of this process; another one for another number."""
    return _made(which)


@cache
def _made(_which: int) -> PostgresSettings:
    # Nothing is waited for that only a crash of PostgreSQL could lose: no story has one, and there are thousands of
    # commits. What is promised about crashes is tested where there are some.
    url = shared_server().new_database() + "&options=-c%20synchronous_commit%3Doff"
    settings = PostgresSettings(url=url, may_lose=True)

    async def make() -> None:
        connection = await Database(settings).connect()
        await migrate.migrate(connection, settings.schema)
        await connection.close()

    # A test may have a loop of its own running already.
    with ThreadPoolExecutor(1) as thread:
        thread.submit(lambda: asyncio.run(make())).result()
    return settings


def empty_schema(which: int = 0) -> PostgresSettings:
    """Return where to find a schema that has nothing in it, and where no store of the test before is seen any more."""
    settings = shared_settings(which)
    with psycopg.connect(settings.url, autocommit=True) as connection:
        _wait_until_all_have_left(connection)
        _empty(connection)
    return settings


def _empty(connection: psycopg.Connection) -> None:
    with connection.transaction():
        lanes = connection.execute("SELECT unnest(lanes)::regclass::text FROM penstock.queue").fetchall()
        for name in _TABLES:
            connection.execute(f"DELETE FROM penstock.{name}".encode())
        for (lane,) in lanes:
            connection.execute(f"DROP SEQUENCE {lane}".encode())
        connection.execute("DELETE FROM penstock.queue")
        # Numbers start again, so that ids can be foretold.
        connection.execute("ALTER SEQUENCE penstock.queue_number RESTART")
        _begin_history_again(connection)
        anew = "at_ms = 0, period_began_at_ms = 0, queue_range = 0, is_range_claimed = false"
        connection.execute(f"UPDATE penstock.moment SET {anew}".encode())
        connection.execute("UPDATE penstock.topic_state SET version = 0, next_number = 1, next_producer = 1")


def _begin_history_again(connection: psycopg.Connection) -> None:
    """Go back to the first period, which a test that lets days pass may have detached."""
    begun = connection.execute("SELECT 1 FROM penstock.moment WHERE period > 1").fetchone()
    if begun is None:
        return
    tables = "SELECT oid::regclass::text FROM pg_class WHERE relnamespace = 'penstock'::regnamespace"
    of_periods = f"{tables} AND relname ~ '^history_[0-9]+$' AND relkind = 'r'"
    for (period,) in connection.execute(of_periods.encode()).fetchall():
        connection.execute(f"DROP TABLE {period}".encode())
    connection.execute("CREATE TABLE penstock.history_1 PARTITION OF penstock.history FOR VALUES IN (1)")
    connection.execute("UPDATE penstock.moment SET period = 1, first_kept_offset = 0")


def _wait_until_all_have_left(connection: psycopg.Connection) -> None:
    # A store of another test may have been left behind.
    wait_until(lambda: connection.execute(_PRESENT).fetchone() is None, within_s=_LEFT_S_MAX)


async def until_alone(settings: PostgresSettings) -> None:
    """Return when the database has noticed that no store is there any more."""
    present = _PRESENT.replace("penstock.", f"{settings.schema}.")
    async with await psycopg.AsyncConnection.connect(settings.url, autocommit=True) as connection:

        async def is_alone() -> bool:
            return not await is_found(connection, present)

        await eventually(is_alone, within_s=_LEFT_S_MAX)
