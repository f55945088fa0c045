"""What is seen of a database from outside: dead rows, and who keeps them from being cleared away."""

import asyncio

import psycopg
import pytest

from penstock.store.postgres.vitals import read_vitals, watching
from tests.postgres.servers import Server, shared_server

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
        async with asyncio.timeout(60):
            # One of the server itself may be older, for a moment.
            found = await read_vitals(connection, "public")
            while found.holder_pid != holder.info.backend_pid:
                await asyncio.sleep(0.01)
                found = await read_vitals(connection, "public")

        assert found.holder == "idle in transaction"
        assert found.oldest_snapshot_transactions is not None
        assert found.oldest_snapshot_transactions >= 1
        assert found.oldest_snapshot_s is not None
        await holder.rollback()
        assert (await read_vitals(connection, "public")).holder_pid != holder.info.backend_pid
        assert found.dead_rows.keys() == found.live_rows.keys() == {"kept"}


async def test_a_database_that_does_not_answer_is_seen() -> None:
    with Server() as server:
        async with watching(server.dsn, "public") as seen:
            server.kill()
            async with asyncio.timeout(60):
                while seen().is_answering:  # noqa: ASYNC110 - nobody tells, as with a real outage.
                    await asyncio.sleep(0.05)


async def test_a_database_that_ends_is_noticed_before_it_is_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.store.postgres.vitals.EVERY_S", 3_600.0)
    with Server() as server:
        async with watching(server.dsn, "public") as look, asyncio.timeout(120):
            first = look()
            while look() is first:  # noqa: ASYNC110 - it is asked, as by the server.
                await asyncio.sleep(0.01)
            await asyncio.to_thread(server.stop)
            while look().is_answering:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            await asyncio.to_thread(server.start)
            while not look().is_answering:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
