"""How a store comes to its database: schemas, their versions, and servers that promise too little."""

import asyncio
from dataclasses import replace
from itertools import count
from pathlib import Path

import psycopg
import pytest

from penstock.contract.names import BadSchema
from penstock.contract.queue_settings import QueueSettings
from penstock.core.queue.message import Drafts
from penstock.store.postgres import migrate, statements
from penstock.store.postgres.connection import ConnectionLost
from penstock.store.postgres.database import Database, PostgresSettings
from penstock.store.postgres.durability import NotDurable, check_durable
from penstock.store.postgres.migrate import SchemaMissing
from penstock.store.postgres.statements import FUNCTIONS, MIGRATIONS, migrations
from penstock.store.postgres.store import PostgresStore
from tests.postgres.schemas import empty_schema
from tests.postgres.servers import Server, shared_server
from tests.simulation.clock import SimClock, SimDice

pytestmark = pytest.mark.real_time
# Stores of one database have dice of their own: by what they roll, their calls are told apart.
SEEDS = count()


async def opened(settings: PostgresSettings, *, may_migrate: bool = True) -> PostgresStore:
    return await PostgresStore.open(
        settings, clock=SimClock(), dice=SimDice(next(SEEDS)), may_migrate=may_migrate, has_upkeep=False
    )


async def test_stores_that_open_at_once_make_their_schema_once() -> None:
    settings = PostgresSettings(url=shared_server().new_database(), schema="queues_of_ours")
    with pytest.raises(SchemaMissing, match="penstock migrate"):
        await opened(settings, may_migrate=False)
    stores = await asyncio.gather(*[opened(settings) for _ in range(3)])
    await stores[0].create("orders", QueueSettings())
    assert len(await stores[1].send("orders", Drafts(bodies=[b"a"]))) == 1
    assert (await stores[2].counts("orders")).live == 1
    for store in stores:
        await store.close()
    again = await opened(settings, may_migrate=False)
    assert (await again.counts("orders")).live == 1
    await again.close()


def test_every_statement_is_installed_or_asked() -> None:
    """A file that is in no list would be missing in every database."""
    folder = Path(statements.__file__).parent
    made = {path.stem for path in (folder / "sql").iterdir() if "CREATE OR REPLACE FUNCTION" in path.read_text()}
    assert made == set(FUNCTIONS)
    assert sorted(path.stem for path in (folder / "migrations").iterdir()) == list(MIGRATIONS)
    for name in FUNCTIONS:
        assert f"FUNCTION penstock.{name}(" in (folder / "sql" / f"{name}.sql").read_text()


@pytest.mark.parametrize(
    "name", ["", "Shop", "shop.x", "shop x", 'x"; DROP', "1st", "x" * 42, "größe", "pg_shop", "information_schema"]
)
def test_a_schema_called_otherwise_is_refused(name: str) -> None:
    with pytest.raises(BadSchema, match="schema is"):
        PostgresSettings(url="postgresql:///shop", schema=name)


def test_no_schema_is_called_like_a_word_of_sql() -> None:
    """A newer PostgreSQL may have new words: they belong into the list."""
    with psycopg.connect(shared_server().dsn) as connection:
        words = connection.execute("SELECT word FROM pg_get_keywords() WHERE catcode <> 'U'").fetchall()
    assert ("user",) in words
    for (word,) in words:
        with pytest.raises(BadSchema, match=f"schema is '{word}'; that is a word of SQL"):
            PostgresSettings(url="postgresql:///shop", schema=word)


async def test_a_database_that_is_not_there_is_lost() -> None:
    url = shared_server().dsn_of("nowhere")
    with pytest.raises(ConnectionLost, match="nowhere"):
        await opened(PostgresSettings(url=url))


async def test_a_server_that_does_not_sync_is_refused_unless_that_is_allowed() -> None:
    with Server(options={"fsync": "off"}) as server:
        settings = PostgresSettings(url=server.dsn)
        with pytest.raises(NotDurable, match="fsync"):
            await opened(settings)
        store = await opened(replace(settings, may_lose=True))
        await store.close()


async def test_a_server_that_answers_too_soon_is_doubted() -> None:
    settings = empty_schema()
    connection = await Database(settings).connect()
    async with connection:
        (doubt,) = await check_durable(connection, "penstock", may_lose=False)
        assert "synchronous_commit" in doubt
        assert await check_durable(connection, "penstock", may_lose=True) == []


async def test_a_store_behind_a_pooler_does_all_verbs_without_a_connection_of_its_own() -> None:
    settings = replace(empty_schema(), is_pooled=True)
    store = await opened(settings, may_migrate=False)
    await store.create("orders", QueueSettings())
    await store.send("orders", Drafts(bodies=[b"a", b"b"]))
    delivery = await store.lease("orders", want=2)
    assert delivery is not None
    assert len(await store.ack("orders", delivery.receipts())) == 2
    assert (await store.counts("orders")).live == 0
    with psycopg.connect(settings.url) as connection:
        held = connection.execute(
            "SELECT count(*) FROM pg_locks JOIN pg_database ON pg_database.oid = pg_locks.database "
            "WHERE locktype = 'advisory' AND datname = current_database()"
        ).fetchone()
    assert held == (0,)
    await store.close()


async def test_migrating_twice_changes_nothing() -> None:
    settings = empty_schema()
    connection = await Database(settings).connect()
    async with connection:
        assert await migrate.migrate(connection, settings.schema) == migrations()[-1][0]
        assert await migrate.migrate(connection, settings.schema) == migrations()[-1][0]
