"""A database that no longer answers: callers learn so within seconds, and it is used again when it is back."""

import asyncio
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import psycopg
import pytest

import penstock
from penstock.client import ConnectionFailed, idempotency_postgres
from penstock.client.idempotency import ClaimResult
from penstock.contract.queue_settings import QueueSettings
from penstock.core.queue.message import Drafts
from penstock.runtime.memory import memory_runtime
from penstock.server import Told, run
from penstock.settings import ServerSettings
from penstock.store.errors import StoreUnreachable
from penstock.store.postgres.caller_transaction import TransactionPool
from penstock.store.postgres.connection import ConnectionTimedOut, bounded
from penstock.store.postgres.database import TIMING, Database, PostgresSettings, Timing
from penstock.store.postgres.durability import Watch, watching
from penstock.store.postgres.store import PostgresStore
from tests.postgres.falling_silent import Relay, relayed
from tests.postgres.schemas import empty_schema
from tests.postgres.servers import shared_server
from tests.waiting import eventually

pytestmark = pytest.mark.real_time

# Without what is tried here it would be minutes; with it, a few seconds on a machine that has nothing else to do.
_SECONDS_MAX = 60.0
# What is there takes no longer, however busy the machine is; and how soon one that is not there is given up.
_PATIENCE_S = 60
_HASTE_S = 2


@dataclass
class Far:
    """A store whose database is behind a relay. It takes a database for silent after minutes, until it is told to."""

    store: PostgresStore
    relay: Relay
    # The way to the database that does not lead over the relay.
    near: PostgresSettings
    _url: str

    def notice_after(self, silence_s: float, *, connect_s: int = _PATIENCE_S) -> None:
        """From now on take the database for silent after so long."""
        database = self.store._database
        url = self._url.replace(f"connect_timeout={_PATIENCE_S}", f"connect_timeout={connect_s}")
        database.settings = replace(database.settings, url=url, silence_s=silence_s)
        database._watch._wait_s = silence_s
        database._watch._connect = partial(database.connect, wait_s=silence_s)


@asynccontextmanager
async def store_on_a_relay(*, has_upkeep: bool = False, timing: Timing = TIMING) -> AsyncIterator[Far]:
    near, runtime = empty_schema(), memory_runtime()
    async with relayed(near.url, connect_s=_PATIENCE_S) as (relay, url):
        settings = replace(near, url=url, silence_s=_PATIENCE_S, timing=timing)
        async with await PostgresStore.open(
            settings, clock=runtime.clock, dice=runtime.dice, may_migrate=False, has_upkeep=has_upkeep
        ) as store:
            await store.create("orders", QueueSettings())
            yield Far(store, relay, near, url)


def test_what_a_url_says_of_its_connection_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "connect_timeout=10" in bounded("postgresql://db/shop")
    assert "tcp_user_timeout=15000" in bounded("postgresql://db/shop")
    said = bounded("postgresql://db/shop?connect_timeout=3&keepalives_idle=600")
    assert "connect_timeout=3" in said
    assert "keepalives_idle=600" in said
    monkeypatch.setenv("PGCONNECT_TIMEOUT", "4")
    assert "connect_timeout" not in bounded("postgresql://db/shop")


async def test_a_database_that_accepts_and_says_nothing_is_unreachable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as hole:
        port = hole.getsockname()[1]
        url = f"postgresql://ada:secret@127.0.0.1:{port}/shop?connect_timeout=2"
        began = time.monotonic()
        with pytest.raises(StoreUnreachable, match=f"127.0.0.1, port {port}, does not answer") as caught:
            await Database(PostgresSettings(url=url)).connect()
        assert time.monotonic() - began < _SECONDS_MAX
        assert "secret" not in str(caught.value)


async def test_calls_end_when_a_database_falls_silent_and_go_on_when_it_is_back() -> None:
    async with store_on_a_relay() as far:
        store = far.store
        await store.send("orders", Drafts(bodies=[b"before"]))
        far.relay.fall_silent()
        far.notice_after(0.5, connect_s=_HASTE_S)
        began = time.monotonic()
        # Many more than there are connections: no call waits behind the others for its answer.
        sends = [store.send("orders", Drafts(bodies=[b"a"])) for _ in range(40)]
        reads = [store.counts("orders") for _ in range(40)]
        found = await asyncio.gather(*sends, *reads, return_exceptions=True)
        assert {type(each) for each in found} == {ConnectionTimedOut}
        assert time.monotonic() - began < _SECONDS_MAX
        # It is known by now, so no call tries before the next attempt is due.
        store._database._watch._next_try = float("inf")
        with pytest.raises(ConnectionTimedOut):
            await store.lease("orders", want=1)
        store._database._watch._next_try = 0.0

        far.relay.speak()
        far.notice_after(_PATIENCE_S)

        async def is_sent() -> bool:
            try:
                await store.send("orders", Drafts(bodies=[b"after"]))
            except ConnectionTimedOut:
                return False
            return True

        await eventually(is_sent, within_s=_SECONDS_MAX)
        delivery = await store.lease("orders", want=100)
        assert delivery is not None
        assert [bytes(body) for body in delivery.bodies] == [b"before", b"after"]


async def test_a_client_whose_database_did_not_answer_finds_it_when_it_does() -> None:
    async with relayed(shared_server().new_database(), connect_s=_HASTE_S) as (relay, url):
        relay.fall_silent()
        client = penstock.connect(url, timeout_s=0)
        with pytest.raises(ConnectionFailed, match="does not answer"):
            await client.create_queue("orders")
        relay.speak()
        async with asyncio.timeout(_SECONDS_MAX):
            # On a busy machine, a connection may take longer than it may here.
            while True:
                try:
                    await client.create_queue("orders")
                    break
                except ConnectionFailed:
                    continue
        await client.close()


async def test_a_send_on_a_connection_that_was_forgotten_is_made_once() -> None:
    async with store_on_a_relay() as far:
        await far.store.send("orders", Drafts(bodies=[b"before"]))
        far.relay.forget_all()
        far.notice_after(2.0)
        async with asyncio.timeout(_SECONDS_MAX):
            await far.store.send("orders", Drafts(bodies=[b"after"]))
        assert (await far.store.counts("orders")).live == 2


async def test_a_call_that_takes_long_is_not_taken_for_lost() -> None:
    async with store_on_a_relay() as far:
        await far.store.send("orders", Drafts(bodies=[b"a"]))
        async with await psycopg.AsyncConnection.connect(far.near.url) as other:
            await other.execute(f"LOCK TABLE {far.near.schema}.ready".encode())
            far.notice_after(1.5)
            asked = far.relay.connections
            async with asyncio.timeout(_SECONDS_MAX), asyncio.TaskGroup() as tasks:
                sending = tasks.create_task(far.store.send("orders", Drafts(bodies=[b"b"])))
                # It is asked after more than once meanwhile, each time over a new connection; the third time, what
                # the second one found is known.
                await eventually(lambda: far.relay.connections >= asked + 3, within_s=_SECONDS_MAX)
                assert not sending.done()
                await other.rollback()
            assert len(sending.result()) == 1


async def test_a_store_listens_again_after_its_connection_was_forgotten() -> None:
    async with store_on_a_relay(has_upkeep=True, timing=Timing(beat_s=0.1)) as far:
        store = far.store
        await store.send("orders", Drafts(bodies=[b"a"]))
        woken = asyncio.Event()
        far.relay.forget_all()
        far.notice_after(0.5, connect_s=_HASTE_S)
        store.watch(lambda _: woken.set())
        async with asyncio.timeout(4 * _SECONDS_MAX):
            # Because something may have been missed; and then because of what another one sends.
            await woken.wait()
            async with await PostgresStore.open(
                far.near, clock=store._clock, dice=store._dice, may_migrate=False
            ) as other:
                woken.clear()
                await other.send("orders", Drafts(bodies=[b"b"]))
                await woken.wait()


async def test_a_store_closes_while_its_database_is_silent() -> None:
    async with store_on_a_relay(has_upkeep=True) as far:
        far.relay.fall_silent()
        async with asyncio.TaskGroup() as tasks:
            sending = tasks.create_task(far.store.send("orders", Drafts(bodies=[b"a"])))
            await far.relay.was_asked.wait()
            began = time.monotonic()
            sending.cancel()
            await far.store.close()
        assert sending.cancelled()
        assert time.monotonic() - began < _SECONDS_MAX


async def test_a_silent_database_is_seen_from_outside_and_seen_to_be_back() -> None:
    settings = empty_schema()
    async with (
        relayed(settings.url, connect_s=_HASTE_S) as (relay, url),
        watching(Watch(url, settings.schema, every_s=0.5, answer_s=0.5)) as look,
    ):
        relay.fall_silent()
        await eventually(lambda: not look().is_answering, within_s=_SECONDS_MAX)
        relay.speak()
        await eventually(lambda: look().is_answering, within_s=_SECONDS_MAX)


async def test_a_kept_connection_that_was_forgotten_is_not_lent() -> None:
    async with relayed(empty_schema().url, connect_s=_PATIENCE_S) as (relay, url):
        lending = TransactionPool(url, is_pooled=False, in_thread=asyncio.to_thread, answer_s=0.5)
        async with lending.transaction() as connection:
            await connection.execute("SELECT 1")
        async with lending.plain_transaction() as plain:
            await asyncio.to_thread(plain.execute, "SELECT 1")
        relay.forget_all()
        async with asyncio.timeout(_SECONDS_MAX):
            async with lending.transaction() as other:
                await other.execute("SELECT 1")
            async with lending.plain_transaction() as other_plain:
                await asyncio.to_thread(other_plain.execute, "SELECT 1")
        assert (connection.closed, plain.closed) == (True, True)
        assert (other is connection, other_plain is plain) == (False, False)
        await lending.close()


async def test_what_was_done_is_remembered_though_its_database_was_silent() -> None:
    def answers_within(seconds: float, *, connect_s: int) -> None:
        seen._answer_s = seconds
        seen._dsn = idempotency_postgres.bounded(url.replace(f"timeout={_PATIENCE_S}", f"timeout={connect_s}"))

    async with relayed(shared_server().new_database(), connect_s=_PATIENCE_S) as (relay, url):
        seen = idempotency_postgres.PostgresIdempotencyStore(url)
        assert await seen.begin("a", 600) is ClaimResult.BEGUN
        # The lost connection is not noticed yet; the server that is asked then is there.
        relay.forget_all()
        answers_within(0.5, connect_s=_PATIENCE_S)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(seen.finish("a"))
            await relay.was_asked.wait()
            answers_within(_PATIENCE_S, connect_s=_PATIENCE_S)
        assert await seen.begin("a", 600) is ClaimResult.DONE
        relay.fall_silent()
        answers_within(0.5, connect_s=_HASTE_S)
        began = time.monotonic()
        found = await asyncio.gather(*(seen.begin(key, 60) for key in map(str, range(100))), return_exceptions=True)
        assert all(isinstance(each, psycopg.OperationalError) for each in found)
        assert time.monotonic() - began < 3 * _SECONDS_MAX, "each would take two seconds"
        relay.speak()
        answers_within(_PATIENCE_S, connect_s=_PATIENCE_S)
        assert await seen.begin("b", 600) is ClaimResult.BEGUN
        await seen.close()


def test_connections_of_a_memory_are_bounded_as_those_of_a_store() -> None:
    for url in ("postgresql://db/shop", "postgresql://db/shop?connect_timeout=3&keepalives_idle=600"):
        assert idempotency_postgres.bounded(url) == bounded(url)


async def test_a_server_that_waits_for_its_database_stops_when_it_is_told(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as hole:
        store = f"postgresql://127.0.0.1:{hole.getsockname()[1]}/shop?connect_timeout=600"
        settings = ServerSettings(port=0, data=tmp_path, store=store, kafka=False)
        told, announced = Told(), list[str]()
        async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
            tasks.create_task(run(settings, told, announce=announced.append))
            # Once it has asked, it waits for an answer.
            asked, _ = await asyncio.to_thread(hole.accept)
            told.stop()
            told.stop()
        asked.close()
        assert announced == []
