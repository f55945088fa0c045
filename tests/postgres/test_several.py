"""One store in several databases: as a server and a client of it see it, also while one of them is down."""

import logging
import re
from functools import partial
from pathlib import Path

import psycopg
import pytest
from typer.testing import CliRunner, Result

import penstock
from penstock.cli import app
from penstock.client.errors import PenstockError, WrongDatabase
from penstock.contract.queue_settings import QueueSettings
from penstock.core.queue.message import Drafts
from penstock.metrics.health import Health
from penstock.metrics.prometheus import Connections, Prometheus, Requests
from penstock.server import open_application
from penstock.settings import ServerSettings
from penstock.store.errors import StoreUnreachable
from penstock.store.postgres.database import PostgresSettings, Timing
from tests.cli.servers import Served
from tests.postgres.maps import opened
from tests.postgres.servers import Server, shared_server
from tests.simulation.clock import SimClock
from tests.waiting import eventually

pytestmark = pytest.mark.real_time


def _penstock(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


def _map() -> tuple[str, str, str]:
    """Two empty databases, and a map of them."""
    a, b = shared_server().new_database(), shared_server().new_database()
    return a, b, f"orders.*={a},*={b}"


def _settled(url: str) -> int:
    with psycopg.connect(url) as connection:
        row = connection.execute("SELECT count(*) FROM penstock.history").fetchone()
    assert row is not None
    return int(row[0])


async def test_a_client_of_a_map_has_the_queues_of_all_databases() -> None:
    a, b, both = _map()
    async with penstock.connect(both) as client:
        for name in ("orders.new", "mail"):
            await client.create_queue(name)
            await client.queue(name).send(name)
            message = await client.queue(name).receive()
            assert message is not None
            assert message.text == name
            await message.ack()
        assert [queue.queue_name async for queue in client.queues()] == ["mail", "orders.new"]
        with pytest.raises(PenstockError, match="dead_letter_queue is 'mail'") as refused:
            await client.create_queue("orders.old", dead_letter_queue="mail")
        assert (refused.value.code, refused.value.status) == ("bad_field", 400)
    assert (_settled(a), _settled(b)) == (1, 1)


async def test_a_transaction_writes_to_the_database_of_its_queue_or_to_none() -> None:
    a, b, both = _map()
    async with penstock.connect(both) as client:
        for name in ("orders.new", "mail"):
            await client.create_queue(name)
        async with await psycopg.AsyncConnection.connect(a) as connection:
            await client.queue("orders.new").send(b"kept", connection=connection)
            with pytest.raises(WrongDatabase, match=r"'mail' is in database 2 \(\*\)"):
                await client.queue("mail").send(b"lost", connection=connection)
            # What was refused has harmed nothing.
            await client.queue("orders.new").send(b"kept, too", connection=connection)
        batch = await client.queue("orders.new").receive(limit=2)
        assert [message.body for message in batch] == [b"kept", b"kept, too"]
        assert await client.queue("mail").receive() is None
        async with await psycopg.AsyncConnection.connect(b) as connection:
            with pytest.raises(WrongDatabase, match=r"'orders.new' is in database 1 \(orders\.\*\)"):
                await batch[0].ack(connection=connection)
        with pytest.raises(ValueError, match="queue is not given"):
            async with client.transaction():
                pass
        async with client.transaction(queue="mail") as connection:
            await client.queue("mail").send(b"mine", connection=connection)
        assert (await client.queue("mail").describe()).current_message_count == 1


async def test_a_worker_commits_in_the_database_of_each_queue() -> None:
    _, _, both = _map()
    worker = penstock.Worker(penstock.connect(both))
    done: list[str] = []

    for name in ("orders.new", "mail"):

        @worker.handler(name, transactional=True)
        async def work(message: penstock.Message, connection: psycopg.AsyncConnection[object]) -> None:
            await connection.execute("CREATE TABLE proof (queue text)")
            done.append(message.queue)
            if len(done) == 2:
                worker.stop()

    async with penstock.connect(both) as client:
        for name in ("orders.new", "mail"):
            await client.create_queue(name)
            await client.queue(name).send(b"a")
        await worker.run()
        assert sorted(done) == ["mail", "orders.new"]
        for name in ("orders.new", "mail"):
            assert (await client.queue(name).describe()).current_message_count == 0


async def test_time_is_one_in_all_databases() -> None:
    a, b, both = _map()
    slow, fast = SimClock(), SimClock()
    fast.advance_ms(60_000)
    async with opened(f"*={b}", clock=fast) as before:
        late_ms = before.placement.now_ms()
    async with opened(both, clock=slow) as after:
        assert slow.now_ms() < late_ms
        # Whatever is due in one is due in the other.
        assert [store.now_ms() for store in after.stores] == [late_ms, late_ms] == [after.placement.now_ms()] * 2
        await after.stores[0]._leadership.meet()
    async with opened(f"*={a}", clock=slow) as alone:
        assert alone.placement.now_ms() == late_ms


async def test_queues_that_a_changed_map_leads_elsewhere_for_are_noted(caplog: pytest.LogCaptureFixture) -> None:
    a, b, both = _map()
    async with opened(both) as map_of:
        for name in ("orders.new", "mail"):
            await map_of.placement.create(name, QueueSettings())
    caplog.set_level(logging.INFO)
    async with open_application(ServerSettings(store=f"m*={a},*={b}", kafka=False)) as application:
        assert await application.placement.queues() == []
    assert "database 1 (m*) has 1 queues that the map leads elsewhere for" in caplog.text
    assert "orders.new" in caplog.text
    assert "database 2 (*) has 1 queues" in caplog.text


async def test_queues_of_other_databases_go_on_while_one_is_down(monkeypatch: pytest.MonkeyPatch) -> None:
    # One that is gone refuses, and does not come back.
    brief = partial(PostgresSettings, timing=Timing(settle_s_max=0.1))
    monkeypatch.setattr("penstock.store.postgres.database.PostgresSettings", brief)
    with Server() as fragile:
        url = f"orders.*={shared_server().new_database()},*={fragile.dsn}"
        async with open_application(ServerSettings(store=url, kafka=False), is_watched=True) as application:
            placement, seen = application.placement, Health()
            seen.look, seen.vitals = application.journals, application.vitals
            metrics = Prometheus(application.queues, Requests(str), seen, _no_connections, application.vitals)
            for name in ("orders.new", "mail"):
                await placement.create(name, QueueSettings())
            assert await _answering(metrics, "orders.*") == await _answering(metrics, "*") == "1.0"
            fragile.stop()
            with pytest.raises(StoreUnreachable):
                await placement.of("mail").send("mail", Drafts(bodies=[b"a"]))
            with pytest.raises(StoreUnreachable):
                await placement.queues()
            assert len(await placement.of("orders.new").send("orders.new", Drafts(bodies=[b"a"]))) == 1
            assert (await placement.of("orders.new").counts("orders.new")).live == 1
            assert await placement.name((await placement.of("orders.new").describe("orders.new")).id) == "orders.new"
            with pytest.raises(StoreUnreachable):
                await placement.name("q_1000001")

            async def is_missed() -> bool:
                return await _answering(metrics, "*") != "1.0"

            await eventually(is_missed)
            assert await _answering(metrics, "orders.*") == "1.0"
            assert 'penstock_queue_messages{queue="orders.new"' in (await metrics.text(is_openmetrics=False)).decode()
            assert seen.reasons() == []
            fragile.start()
            assert len(await placement.of("mail").send("mail", Drafts(bodies=[b"a"]))) == 1


def _no_connections() -> Connections:
    return Connections(now=0, most=0, accepted=0, refused=0, timed_out=0, buffered_bytes=0, shed=0)


async def _answering(metrics: Prometheus, patterns: str) -> str:
    text = (await metrics.text(is_openmetrics=False)).decode()
    found = re.search(rf'penstock_postgres_answering{{database="{re.escape(patterns)}"}} (\S+)', text)
    assert found is not None
    return found[1]


@pytest.mark.slow
def test_a_server_is_started_with_a_map(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    a, b, both = _map()
    done = _penstock("migrate", "--store", both)
    assert done.exit_code == 0, done.output
    assert "in the database of orders.* has version" in done.output
    assert "in the database of * has version" in done.output
    assert "The database of orders.*:" in _penstock("history", "list", "--store", both).output
    with Served(tmp_path / "a", "--store", both, "--no-migrate") as server:
        assert f"orders.*  {a}" in server.greeting
        with penstock.connect(server.url).sync() as client:
            for name in ("orders.new", "mail"):
                client.create_queue(name)
                client.queue(name).send(name)
    with psycopg.connect(b) as connection:
        assert connection.execute("SELECT name FROM penstock.queue").fetchall() == [("mail",)]
        connection.execute("UPDATE penstock.moment SET queue_range = 0")
    refused = _penstock("serve", "--port", "0", "--data", str(tmp_path), "--store", both)
    assert (refused.exit_code, "database 2 of the map" in refused.output) == (78, True), refused.output


def test_a_database_of_a_map_that_is_not_there_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    gone = f"orders.*={shared_server().dsn},*=postgresql://penstock:secret@/shop?host={tmp_path}"
    served = _penstock("serve", "--port", "0", "--data", str(tmp_path), "--store", gone)
    assert (served.exit_code, "entry 2 of the map" in served.output) == (69, True), served.output
    wrong = _penstock("migrate", "--store", "orders.*=postgresql://me:secret@a/shop,*=memory:")
    assert (wrong.exit_code, "entry 2 (*) leads to memory:" in wrong.output) == (78, True), wrong.output
    assert "secret" not in served.output + wrong.output
