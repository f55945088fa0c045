"""Roles with no more rights than they need: one that migrates, servers, programs, and readers.

The grants are those of docs/how-to/run-on-postgresql.md, read from the page.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

import penstock
from penstock.client import Forbidden
from penstock.client.idempotency import ClaimResult
from penstock.client.idempotency_postgres import PostgresIdempotencyStore
from penstock.contract.queue_settings import DAY_MS, QueueSettings
from penstock.core.queue.message import Drafts
from penstock.runtime.system import SystemClock
from penstock.store.interface import Outcome, RedriveOrder, Release
from penstock.store.pages import HistoryRange
from penstock.store.postgres.database import PostgresSettings
from penstock.store.postgres.store import PostgresStore
from tests.postgres.servers import Server
from tests.simulation.clock import EPOCH_MS, SimClock, SimDice

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "run-on-postgresql.md"
GRANTS = re.compile(r"```text\n(CREATE ROLE.*?)```", re.DOTALL)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A server of its own, since roles are those of all its databases."""
    with Server() as server:
        with psycopg.connect(server.dsn, autocommit=True) as connection:
            connection.execute("CREATE DATABASE shop")
        before, after = GRANTS.findall(PAGE.read_text())
        with psycopg.connect(server.dsn_of("shop")) as connection:
            connection.execute(before.encode())
        penstock.connect(server.dsn_of("shop", "penstock_owner")).sync().close()
        make(server.dsn_of("shop", "penstock_owner"))
        with psycopg.connect(server.dsn_of("shop")) as connection:
            connection.execute(after.encode())
        yield server


def make(dsn: str) -> None:
    with penstock.connect(dsn) as owner:
        owner.create_queue("orders", max_deliveries=1)


def of(server: Server, role: str) -> str:
    return server.dsn_of("shop", role)


def test_the_role_that_migrated_migrates_again_without_rights_on_the_database(server: Server) -> None:
    with psycopg.connect(server.dsn_of("shop"), autocommit=True) as connection:
        connection.execute("REVOKE CREATE ON DATABASE shop FROM penstock_owner")
        connection.execute("UPDATE penstock.version SET functions = 'older'")
    with penstock.connect(of(server, "penstock_owner")) as owner:
        assert owner.queue("orders").describe().current_message_count == 0
    with psycopg.connect(server.dsn_of("shop")) as connection:
        newest = connection.execute("SELECT functions FROM penstock.version ORDER BY number DESC LIMIT 1").fetchone()
    assert newest != ("older",)


@pytest.mark.real_time
async def test_a_server_needs_no_more_than_to_use_what_is_there(server: Server) -> None:
    clock = SimClock()
    # Another store was here with the real time, and time does not go back.
    clock.advance_ms(SystemClock().now_ms() - EPOCH_MS)
    settings = PostgresSettings(url=of(server, "penstock_server"))
    async with await PostgresStore.open(settings, clock=clock, dice=SimDice(), has_upkeep=False) as store:
        await store.create("letters", QueueSettings(deliveries_max=1))
        for _ in range(2):
            await store.send("letters", Drafts(bodies=[b"a"]))
            delivery = await store.lease("letters", want=1)
            assert delivery is not None
            assert await store.release("letters", delivery.receipts(), Release(is_rejected=True)) == [Outcome.DONE]
            # Days pass: what is settled then goes to another period, and so to another table.
            clock.advance_ms(2 * DAY_MS)
            await store.tidy()
        assert store._maintenance.period > 2
        assert (await store.counts("letters.dead")).live == 2
        assert (await store.redrive("letters.dead", RedriveOrder(most=1))).remaining == 1
        await store.change("letters", QueueSettings(deliveries_max=3))
        clock.advance_ms(2_000)
        assert len((await store.history("letters", HistoryRange(from_offset=0, most=10))).ending) == 2
        assert await store.purge("letters") == 1
        assert (await store.delete("letters", with_dead_letters=True)).is_deleted


def test_a_program_sends_and_receives_and_makes_no_queues(server: Server) -> None:
    with penstock.connect(of(server, "penstock_program")) as program:
        orders = program.queue("orders")
        orders.send("teapot")
        message = orders.receive()
        assert message is not None
        message.ack()
        # What it may not bury it leaves to others, and goes on.
        for name in ("one", "two"):
            orders.send(name)
            failed = orders.receive()
            assert failed is not None
            assert failed.text == name
            failed.release(delay_s=0)
        assert orders.receive() is None
    with psycopg.connect(of(server, "penstock_program")) as connection:
        for call in (
            "create_queue('more', '{}', 'x', 0)",
            "delete_queue(1, 1::bigint, 0, 1::bigint, false, 1::smallint, 9, 9, 1)",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(f"SELECT penstock.{call}".encode())
            connection.rollback()
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("DROP TABLE penstock.ready")


def test_a_role_with_the_grants_of_before_goes_on_and_is_refused_redrives_alone(server: Server) -> None:
    with psycopg.connect(server.dsn_of("shop"), autocommit=True) as connection:
        connection.execute("REVOKE ALL ON penstock.redrive FROM penstock_server")
    with penstock.connect(of(server, "penstock_server")) as client:
        client.create_queue("parcels", max_deliveries=1)
        parcels, dead = client.queue("parcels"), client.queue("parcels.dead")
        client.create_queue("parcels.dead", max_deliveries=0)
        parcels.send("a")
        message = parcels.receive()
        assert message is not None
        message.ack()
        with pytest.raises(Forbidden, match="roles in how to run on PostgreSQL"):
            dead.redrive()
        (grant,) = re.findall(r"^GRANT .* ON penstock.redrive TO .*;", PAGE.read_text(), re.MULTILINE)
        with psycopg.connect(server.dsn_of("shop"), autocommit=True) as connection:
            connection.execute(grant.encode())
        assert dead.redrive().state in {"running", "done"}


def test_public_has_no_right_in_the_schema_and_a_stranger_can_call_nothing(server: Server) -> None:
    with psycopg.connect(server.dsn_of("shop"), autocommit=True) as connection:
        rights = connection.execute(
            "SELECT 'routine ' || proname FROM pg_proc, LATERAL aclexplode(coalesce(proacl, acldefault('f', proowner)))"
            " WHERE pronamespace = 'penstock'::regnamespace AND grantee = 0"
            " UNION ALL SELECT 'relation ' || relname FROM pg_class, LATERAL aclexplode(relacl)"
            " WHERE relnamespace = 'penstock'::regnamespace AND grantee = 0"
            " UNION ALL SELECT 'schema' FROM pg_namespace, LATERAL aclexplode(nspacl)"
            " WHERE nspname = 'penstock' AND grantee = 0"
        ).fetchall()
        assert rights == []
        # Even with the right to use the schema, which may have been granted carelessly.
        connection.execute("CREATE ROLE stranger LOGIN")
        connection.execute("GRANT USAGE ON SCHEMA penstock TO stranger")
    with psycopg.connect(of(server, "stranger")) as connection, pytest.raises(psycopg.errors.InsufficientPrivilege):
        connection.execute("SELECT penstock.create_queue('more', '{}', 'x', 0)")


@pytest.mark.parametrize("role", ["penstock_program", "penstock_reader"])
def test_programs_and_readers_neither_see_nor_make_keys(server: Server, role: str) -> None:
    for statement in (
        b"SELECT content FROM penstock.keyring",
        b"INSERT INTO penstock.keyring (revision, content) VALUES (1, '')",
    ):
        with psycopg.connect(of(server, role)) as connection, pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute(statement)


def test_who_may_only_look_changes_nothing(server: Server) -> None:
    with psycopg.connect(of(server, "penstock_reader")) as connection:
        assert connection.execute("SELECT count(*) FROM penstock.queue").fetchone() is not None
        for call in (
            "create_queue('more', '{}', 'x', 0)",
            "delete_queue(1, 1::bigint, 0, 1::bigint, false, 1::smallint, 9, 9, 1)",
            "begin_purge(1, 1::bigint, 0, 1::bigint, false, 1::smallint, 4::smallint, 9, 9, 1)",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(f"SELECT penstock.{call}".encode())
            connection.rollback()


@pytest.mark.real_time
async def test_a_memory_that_was_made_needs_no_right_to_make_one(server: Server) -> None:
    made = PostgresIdempotencyStore(server.dsn_of("shop"))
    assert await made.begin("a", 60) is ClaimResult.BEGUN
    await made.close()
    with psycopg.connect(server.dsn_of("shop"), autocommit=True) as connection:
        connection.execute("GRANT SELECT, INSERT, UPDATE, DELETE ON penstock_seen TO penstock_program")
    seen = PostgresIdempotencyStore(of(server, "penstock_program"))
    assert await seen.begin("a", 60) is ClaimResult.TAKEN
    await seen.close()
