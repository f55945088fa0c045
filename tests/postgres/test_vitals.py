"""What is seen of a database from outside: dead rows, and who keeps them from being cleared away."""

import asyncio

import psycopg
import pytest

from penstock.store.postgres.durability import DatabaseHealth, Watch, read_vitals, watching
from tests.postgres.servers import Server, shared_server
from tests.waiting import eventually

pytestmark = pytest.mark.real_time


async def test_the_oldest_snapshot_and_its_process_are_named() -> None:
    dsn = shared_server().new_database()
    async with (
        await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection,
        await psycopg.AsyncConnection.connect(dsn) as holder,
    ):
        await connection.execute("CREATE TABLE public.kept AS SELECT generate_series(1, 10) AS number")
        await holder.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        await holder.execute("SELECT 1")
        await connection.execute("DELETE FROM public.kept WHERE number <= 4")
        # The statistics of a session are written down at the latest when it asks for them to be.
        await connection.execute("SELECT pg_stat_force_next_flush()")

        async def seen() -> DatabaseHealth | None:
            found = await read_vitals(connection, "public")
            return found if found.holder_pid == holder.info.backend_pid else None

        # One of the server itself may be older, for a moment.
        found: DatabaseHealth = await eventually(seen)
        assert found.holder == "idle in transaction"
        assert found.oldest_snapshot_transactions is not None
        assert found.oldest_snapshot_transactions >= 1
        assert found.oldest_snapshot_s is not None
        await holder.rollback()
        assert (await read_vitals(connection, "public")).holder_pid != holder.info.backend_pid
        assert found.dead_rows.keys() == found.live_rows.keys() == {"kept"}


async def test_a_database_that_does_not_answer_is_seen() -> None:
    with Server() as server:
        async with watching(Watch(server.dsn, "public")) as seen:
            server.kill()
            await eventually(lambda: not seen().is_answering)


async def test_a_database_that_ends_is_noticed_before_it_is_looked_at_again() -> None:
    with Server() as server:
        async with watching(Watch(server.dsn, "public", every_s=3_600.0)) as look:
            first = look()
            await eventually(lambda: look() is not first)
            await asyncio.to_thread(server.stop)
            await eventually(lambda: not look().is_answering)
            await asyncio.to_thread(server.start)
            await eventually(lambda: look().is_answering)
