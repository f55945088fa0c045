"""Schemas of every earlier version, with messages in them, become the newest one and lose nothing."""

import asyncio
import subprocess
from pathlib import Path

import psycopg
import pytest
from typer.testing import CliRunner

from penstock.cli import app
from penstock.contract.messages import MessageOutcome
from penstock.contract.queue_settings import QueueSettings
from penstock.core.queue.message import Drafts, Receipt, Sender
from penstock.store.interface import Outcome, RedriveOrder
from penstock.store.pages import HistoryRange
from penstock.store.postgres import migrate
from penstock.store.postgres.database import TIMING, PostgresSettings, Timing
from penstock.store.postgres.errors import BriefWaits
from penstock.store.postgres.migrate import SchemaMissing, SchemaState, plan, steps
from penstock.store.postgres.statements import migrations, read
from penstock.store.postgres.store import PostgresStore
from tests.postgres.schemas import empty_schema
from tests.postgres.servers import shared_server
from tests.postgres.waiting import is_found, until_waited_for
from tests.simulation.clock import SimClock, SimDice
from tests.waiting import eventually

pytestmark = pytest.mark.real_time

VERSIONS = [number for number, _ in migrations()]
# As a server of version 1 wrote it. Whatever came later only adds, so it may be put into any version.
LEFT = (Path(__file__).parent / "before" / "0001.sql").read_text()
DONE = Outcome.DONE


def schema_of(version: int) -> str:
    """Make a database with the tables of a version, and what a server of that time had left in them."""
    dsn = shared_server().new_database()
    with psycopg.connect(dsn) as connection:
        connection.execute("CREATE SCHEMA penstock")
        connection.execute(
            "CREATE TABLE penstock.version (number integer PRIMARY KEY, "
            "applied_at timestamptz NOT NULL DEFAULT now(), functions text NOT NULL DEFAULT '')"
        )
        for number, path in migrations():
            if number <= version:
                connection.execute(read(path, "penstock").encode())
                connection.execute("INSERT INTO penstock.version (number) VALUES (%s)", (number,))
        connection.execute(LEFT.encode())
    return dsn


async def opened(dsn: str, *, may_migrate: bool = True, timing: Timing = TIMING) -> PostgresStore:
    return await PostgresStore.open(
        PostgresSettings(url=dsn, timing=timing),
        clock=SimClock(),
        dice=SimDice(1),
        may_migrate=may_migrate,
        has_upkeep=False,
    )


@pytest.mark.parametrize("version", VERSIONS)
async def test_everything_is_still_there_after_a_migration(version: int) -> None:
    store = await opened(schema_of(version))
    async with store:
        assert await store.queues() == ["letters", "orders", "orders.dead"]
        await _find_messages(store)
        await _find_the_past(store)
        await store.create("later", QueueSettings())
        assert len(await store.send("later", Drafts(bodies=[b"a"]))) == 1


async def _find_messages(store: PostgresStore) -> None:
    # Receipts that were given out before are good, and the others of their lease are held.
    held = Receipt(lease=3, token=3384662785363127837, row=0)
    assert await store.ack("orders", [held]) == [DONE]
    # Ids keep a second message away, and a sender is answered as before.
    assert list(await store.send("orders", Drafts(bodies=[b"known"], dedup_ids=[b"once"]))) == ["1-42"]
    assert list(await store.send("orders", Drafts(bodies=[b"sender"]), sender=Sender(7, 0, 1))) == ["1-4a"]
    delivery = await store.lease("orders", want=100)
    assert delivery is not None
    found = dict(zip(map(bytes, delivery.bodies), delivery.ids, strict=True))
    assert found == {
        b"urgent": "1-52", b"plain 1": "1-22", b"plain 2": "1-2a", b"grouped": "1-32", b"known": "1-42",
        b"sender": "1-4a",
    }  # fmt: skip
    assert bytes(delivery.bodies[0]) == b"urgent"
    counts = await store.counts("orders")
    assert (counts.leased, counts.delayed) == (7, 1)
    # A group keeps its order: the first is held, and the second comes after it.
    assert await store.lease("letters", want=10) is None
    assert await store.ack("letters", [Receipt(lease=4, token=6989795898055921116, row=0)]) == [DONE]
    letters = await store.lease("letters", want=10)
    assert letters is not None
    assert list(map(bytes, letters.bodies)) == [b"2", b"3"]


async def _find_the_past(store: PostgresStore) -> None:
    (escalation,) = await store.audit("orders", most=10)
    assert (escalation.actor, list(escalation.ids)) == ("ada", ["1-52"])
    page = await store.history("orders", HistoryRange(from_offset=0, until_offset=5 << 24, most=10))
    assert list(page.ending) == [MessageOutcome.BURIED, MessageOutcome.ACKED]
    moved = await store.redrive("orders.dead", RedriveOrder(most=10))
    assert moved.moved == {"orders": ["1-2"]}
    again = await store.lease("orders", want=10)
    assert again is not None
    assert [bytes(body) for body in again.bodies] == [b"spent"]


def planned(dsn: str) -> str:
    return CliRunner().invoke(app, ["migrate", "--store", dsn, "--plan"]).output


@pytest.mark.parametrize("version", [0, *VERSIONS])
async def test_a_plan_is_all_that_a_migration_runs(version: int) -> None:
    """After a run by hand no migration is needed."""
    dsn = schema_of(version) if version else shared_server().new_database()
    if version < VERSIONS[-1]:
        with pytest.raises(SchemaMissing):
            await opened(dsn, may_migrate=False)
    printed = await asyncio.to_thread(planned, dsn)
    assert [f"INSERT INTO penstock.version (number) VALUES ({number})" in printed for number in VERSIONS] == [
        number > version for number in VERSIONS
    ]
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(printed.encode())
    assert "Nothing is left to run" in await asyncio.to_thread(planned, dsn)
    async with await opened(dsn, may_migrate=False) as store:
        assert bool(version) == ("orders" in await store.queues())


async def test_servers_go_on_while_others_migrate() -> None:
    """Functions are replaced under their hands, by two at once."""
    settings = empty_schema()
    is_over = asyncio.Event()

    async def work(store: PostgresStore) -> int:
        done = 0
        while not is_over.is_set() or not done:
            await store.send("orders", Drafts(bodies=[b"a"] * 3, groups=[b"g"] * 3))
            delivery = await store.lease("orders", want=3)
            assert delivery is not None
            assert await store.ack("orders", delivery.receipts()) == [DONE] * len(delivery)
            done += 1
        return done

    async def replace() -> None:
        async with await psycopg.AsyncConnection.connect(settings.url, autocommit=True) as connection:
            for _ in range(3):
                await connection.execute("UPDATE penstock.version SET functions = ''")
                await migrate.migrate(connection, settings.schema)

    clock = SimClock()
    store = await PostgresStore.open(settings, clock=clock, dice=SimDice(), may_migrate=False, has_upkeep=False)
    async with store:
        await store.create("orders", QueueSettings())
        async with asyncio.TaskGroup() as tasks:
            working = tasks.create_task(work(store))
            async with asyncio.TaskGroup() as migrators:
                for _ in range(2):
                    migrators.create_task(replace())
            is_over.set()
        assert working.result() > 0
        assert (await store.counts("orders")).live == 0


async def test_no_call_waits_for_a_migration_that_waits_for_a_backup() -> None:
    # What comes next changes the table of queues.
    dsn = schema_of(7)
    async with (
        await psycopg.AsyncConnection.connect(dsn) as backup,
        await psycopg.AsyncConnection.connect(dsn, autocommit=True) as other,
        asyncio.TaskGroup() as tasks,
    ):
        await backup.execute("LOCK TABLE penstock.queue IN ACCESS SHARE MODE")
        migrating = tasks.create_task(opened(dsn, timing=Timing(opening=BriefWaits("10ms"))))
        # The last statement of a try that gave way is who it gave way to.
        waits = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND query LIKE '%pg_locks AS held%'"
        waits += " AND pid <> pg_backend_pid()"
        # It has tried, and has given way.
        await eventually(lambda: is_found(other, waits))
        async with asyncio.timeout(60):
            await other.execute("SELECT * FROM penstock.queue")
        await backup.rollback()
        await (await migrating).close()


async def test_a_migration_that_deadlocks_gives_way_and_comes_again() -> None:
    # What comes next changes the lines, and then an index of the marked.
    dsn = schema_of(6)
    async with await psycopg.AsyncConnection.connect(dsn) as worker, asyncio.TaskGroup() as tasks:
        # The process that looks for a deadlock first fails: not the worker, however late it comes.
        await worker.execute("SET LOCAL deadlock_timeout = '1h'")
        await worker.execute("LOCK TABLE penstock.marked IN ROW EXCLUSIVE MODE")
        migrating = tasks.create_task(opened(dsn))
        await until_waited_for(worker)
        async with asyncio.timeout(60):
            await worker.execute("LOCK TABLE penstock.line IN ROW EXCLUSIVE MODE")
        await worker.rollback()
        await (await migrating).close()


async def test_a_schema_that_is_newer_than_the_code_is_left_alone() -> None:
    dsn = schema_of(VERSIONS[-1])
    await (await opened(dsn)).close()
    with psycopg.connect(dsn) as connection:
        connection.execute("INSERT INTO penstock.version (number, functions) VALUES (9999, 'of a later one')")
    async with await opened(dsn) as store:
        assert "orders" in await store.queues()
    with psycopg.connect(dsn) as connection:
        kept = connection.execute("SELECT functions FROM penstock.version WHERE number = 9999").fetchone()
    assert kept == ("of a later one",)


async def test_a_queue_with_settings_of_a_newer_server_is_served() -> None:
    dsn = schema_of(VERSIONS[-1])
    with psycopg.connect(dsn) as connection:
        tomorrow = """settings::jsonb || '{"of_tomorrow": true}'"""
        connection.execute(f"UPDATE penstock.queue SET settings = {tomorrow}".encode())
    async with await opened(dsn) as store:
        await store.tidy()
        await _find_messages(store)


def restored(dsn: str) -> str:
    """Dump a database, and restore it as another one."""
    there, folder = shared_server().new_database(), shared_server().programs.folder
    dump = subprocess.run([folder / "pg_dump", "-d", dsn], check=True, capture_output=True)
    subprocess.run([folder / "psql", "-q", "-v", "ON_ERROR_STOP=1", "-d", there], check=True, input=dump.stdout)
    return there


async def test_a_dump_can_be_restored_as_another_database() -> None:
    dsn = schema_of(VERSIONS[0])
    await (await opened(dsn)).close()
    there = await asyncio.to_thread(restored, dsn)
    async with await opened(there, may_migrate=False) as store:
        await _find_messages(store)
        # Numbers go on from where they were.
        assert list(await store.send("orders", Drafts(bodies=[b"new"]))) == ["1-5a"]
        await store.delete("letters")
        await store.create("letters", QueueSettings())
        assert not store.durability_warnings


async def test_a_history_from_a_server_with_more_transactions_is_doubted() -> None:
    dsn = schema_of(VERSIONS[-1])
    with psycopg.connect(dsn) as connection:
        connection.execute("UPDATE penstock.history SET at_offset = at_offset | 1::bigint << 60")
    async with await opened(dsn) as store:
        (doubt,) = store.durability_warnings
        assert "history" in doubt


def test_what_is_left_to_run_follows_from_what_was_run() -> None:
    everything = steps("penstock", SchemaState())
    assert everything[0] == "CREATE SCHEMA penstock"
    digest = everything[-1].split("'")[1]
    assert steps("penstock", SchemaState(True, True, frozenset(VERSIONS), digest)) == []
    assert plan("penstock", SchemaState(True, True, frozenset(VERSIONS), digest)) == ""
    only_functions = steps("penstock", SchemaState(True, True, frozenset(VERSIONS), "another"))
    assert not [step for step in only_functions if "INSERT INTO penstock.version" in step]
    assert [step for step in only_functions if "FUNCTION penstock.send(" in step]
    # A migration that came late is not passed over because one with a higher number was run before.
    missed = steps("penstock", SchemaState(True, True, frozenset(VERSIONS[1:]), digest))
    assert [step for step in missed if "INSERT INTO penstock.version" in step] == [
        f"INSERT INTO penstock.version (number) VALUES ({VERSIONS[0]})"
    ]
