"""What a database refuses: the caller is told why and what helps, and goes on as soon as the refusal ends."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict
from typer.testing import CliRunner

import penstock
from penstock.cli import app
from penstock.client import ConnectionFailed, DatabaseUnusable, Forbidden
from penstock.contract.queue_settings import QueueSettings
from penstock.core.queue.message import Drafts
from penstock.runtime.memory import memory_runtime
from penstock.store.errors import StoreRefuses
from penstock.store.postgres.database import PostgresSettings
from penstock.store.postgres.errors import Locked
from penstock.store.postgres.migrate import SchemaMissing
from penstock.store.postgres.store import PostgresStore
from tests.postgres.schemas import empty_schema
from tests.postgres.servers import shared_server

pytestmark = pytest.mark.real_time
_READ_ONLY = "-c%20default_transaction_read_only%3Don"


@asynccontextmanager
async def store_at(settings: PostgresSettings, options: str = "") -> AsyncIterator[PostgresStore]:
    runtime = memory_runtime()
    found = replace(settings, url=f"{settings.url}%20{options}")
    async with await PostgresStore.open(
        found, clock=runtime.clock, dice=runtime.dice, may_migrate=False, has_upkeep=False
    ) as store:
        await store.create("orders", QueueSettings())
        yield store


def _of_the_database(settings: PostgresSettings, text: str) -> None:
    """Change what holds for connections that are made from now on; said in another database, where it does not."""
    with psycopg.connect(shared_server().dsn, autocommit=True) as connection:
        name = conninfo_to_dict(settings.url)["dbname"]
        connection.execute(f'ALTER DATABASE "{name}" {text}'.encode())


async def test_a_client_is_told_in_every_call_why_there_is_no_database(tmp_path: Path) -> None:
    async with penstock.connect(f"postgresql:///shop?host={tmp_path}", timeout_s=0) as client:
        queue = client.queue("orders")
        for call in (client.create_queue("orders"), queue.send("a"), queue.send_many(["a"]), queue.receive()):
            with pytest.raises(ConnectionFailed, match="No such file or directory"):
                await call
        with pytest.raises(ConnectionFailed, match="No such file or directory"):
            async with client.transaction():
                pass


async def test_a_client_waits_for_a_database_that_is_being_started(tmp_path: Path) -> None:
    (there,) = shared_server().folder.glob(".s.PGSQL.*[0-9]")
    dsn = shared_server().new_database()
    client = penstock.connect(dsn.replace(str(shared_server().folder), str(tmp_path)))
    async with client, asyncio.TaskGroup() as tasks:
        making = tasks.create_task(client.create_queue("orders"))
        await asyncio.sleep(0.1)  # Real time: nothing announces an attempt that failed.
        assert not making.done()
        (tmp_path / there.name).symlink_to(there)


async def test_a_url_that_cannot_be_read_is_said_without_its_password() -> None:
    async with penstock.connect("postgresql://ada:secret@[::1/shop") as client:
        with pytest.raises(DatabaseUnusable, match="cannot be read") as caught:
            await client.queue("orders").send("a")
        assert "secret" not in str(caught.value)
    async with penstock.connect("postgresql:///shop?sslmod=require") as client:
        with pytest.raises(DatabaseUnusable, match="sslmod"):
            await client.queue("orders").receive()


async def test_a_client_that_is_not_let_in_is_told_at_once() -> None:
    there = shared_server()
    for dsn in (there.dsn_of("no_such_shop"), there.dsn_of("postgres", "no_such_user")):
        async with penstock.connect(dsn, timeout_s=3_600) as client:
            with pytest.raises(DatabaseUnusable, match=r"no_such_(shop|user).* does not exist"):
                await client.queue("orders").send("a")


async def test_a_database_that_takes_no_changes_is_left_for_one_that_does() -> None:
    settings = empty_schema()
    async with store_at(settings) as store:
        _of_the_database(settings, "SET default_transaction_read_only = on")
        try:
            await store._database._close_free()
            with pytest.raises(StoreRefuses, match="target_session_attrs=read-write"):
                await store.send("orders", Drafts(bodies=[b"a"]))
        finally:
            _of_the_database(settings, "RESET default_transaction_read_only")
        # A connection that was made meanwhile would take no changes still.
        await store.send("orders", Drafts(bodies=[b"b"]))


@pytest.mark.parametrize("is_pooled", [False, True])
async def test_a_store_is_not_isolated_more_than_it_wants_to_be(is_pooled: bool) -> None:
    """A call that waited for a lock would else not see what was done meanwhile, to the queue it sends to say."""
    settings = replace(empty_schema(), is_pooled=is_pooled)
    _of_the_database(settings, "SET default_transaction_isolation = 'serializable'")
    try:
        async with store_at(settings) as store:
            show = b"SELECT current_setting('transaction_isolation')"
            assert await store._database.read(show) == [("read committed",)]
            async with store._database.transaction() as connection:
                assert await (await connection.execute(show)).fetchone() == ("read committed",)
    finally:
        _of_the_database(settings, "RESET default_transaction_isolation")


async def test_backslashes_in_texts_may_be_whatever_the_role_wants_them_to_be() -> None:
    async with store_at(empty_schema(), "-c%20standard_conforming_strings%3Doff") as store:
        await store.send("orders", Drafts(bodies=[b"a"]))
        await store.send("orders", Drafts(bodies=[b"b"], groups=[b"g"]))
        for _ in range(2):
            assert await store.lease("orders", want=1) is not None


async def test_time_limits_of_a_role_are_named_when_they_end_a_call() -> None:
    settings = empty_schema()
    for limit, kind in (("statement_timeout", StoreRefuses), ("lock_timeout", Locked)):
        async with store_at(settings) as store, await psycopg.AsyncConnection.connect(settings.url) as other:
            await other.execute("LOCK TABLE penstock.ready")
            # Only for this one call: whatever else takes long on a busy machine is not ended.
            _of_the_database(settings, f"SET {limit} = 300")
            try:
                await store._database._close_free()
                with pytest.raises(kind, match=limit):
                    await store.send("orders", Drafts(bodies=[b"a"]))
            finally:
                _of_the_database(settings, f"RESET {limit}")
            await store._database._close_free()
            await other.rollback()
            await store.send("orders", Drafts(bodies=[b"a"]))


async def test_a_schema_that_was_dropped_is_missed_with_advice() -> None:
    dsn = shared_server().new_database()
    async with penstock.connect(dsn, timeout_s=0) as client:
        await client.create_queue("orders")
        with psycopg.connect(dsn) as connection:
            connection.execute("SET client_min_messages = error")
            # If what the client looks after is in the way of it, that gives way.
            connection.execute("SET deadlock_timeout = '1h'")
            connection.execute("DROP SCHEMA penstock CASCADE")
        with pytest.raises(penstock.client.ServerBusy, match="penstock migrate"):
            await client.queue("orders").receive()


@pytest.mark.parametrize("table", ["version (number text)", "queue (number int)"])
async def test_a_schema_with_tables_of_another_program_is_left_alone(table: str) -> None:
    settings = PostgresSettings(url=shared_server().new_database(), schema="shop")
    with psycopg.connect(settings.url) as connection:
        connection.execute("CREATE SCHEMA shop")
        connection.execute(f"CREATE TABLE shop.{table}".encode())
    runtime = memory_runtime()
    with pytest.raises(SchemaMissing, match="'shop' has tables that are not ours"):
        await PostgresStore.open(settings, clock=runtime.clock, dice=runtime.dice)


async def test_who_is_too_old_for_a_schema_is_told_so() -> None:
    settings = PostgresSettings(url=shared_server().new_database())
    runtime = memory_runtime()
    store = await PostgresStore.open(settings, clock=runtime.clock, dice=runtime.dice, has_upkeep=False)
    async with store:
        await store.create("orders", QueueSettings())
        # As a migration does that makes it again with other arguments.
        with psycopg.connect(settings.url) as connection:
            connection.execute("DROP FUNCTION penstock.advance")
        with pytest.raises(StoreRefuses, match="another version"):
            await store.lease("orders", want=1)


def test_a_role_without_rights_is_told_which_ones_it_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    dsn = shared_server().new_database()
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("DROP ROLE IF EXISTS nobody_much")
        connection.execute("CREATE ROLE nobody_much LOGIN")
    poor = dsn.replace("postgres@", "nobody_much@")
    for arguments in (["migrate"], ["serve", "--port", "0", "--no-kafka", "--data", str(tmp_path)]):
        done = CliRunner().invoke(app, [*arguments, "--store", poor])
        assert (done.exit_code, "lacks a right" in " ".join(done.output.split())) == (77, True), done.output
    done = CliRunner().invoke(app, ["queue", "list", "--url", poor])
    assert (done.exit_code, "lacks a right" in " ".join(done.output.split())) == (78, True), done.output
    with penstock.connect(dsn) as client:
        client.create_queue("orders")
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("GRANT USAGE ON SCHEMA penstock TO nobody_much")
        connection.execute("GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA penstock TO nobody_much")
        connection.execute("GRANT USAGE, UPDATE ON ALL SEQUENCES IN SCHEMA penstock TO nobody_much")
        connection.execute("GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA penstock TO nobody_much")
        connection.execute("REVOKE INSERT, UPDATE, DELETE ON penstock.queue FROM nobody_much")
    with penstock.connect(poor) as client, pytest.raises(Forbidden, match="lacks a right"):
        client.create_queue("more")
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("DROP OWNED BY nobody_much")
        connection.execute("DROP ROLE nobody_much")


def test_commands_say_what_is_wrong_with_a_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    dsn = shared_server().new_database()
    serving = ["serve", "--port", "0", "--no-kafka", "--data", str(tmp_path)]
    for arguments, url, code, said in (
        (["migrate", "--store"], f"{dsn}&foo=1", 78, "foo"),
        ([*serving, "--store"], f"{dsn}&foo=1", 78, "foo"),
        (["queue", "list", "--url"], f"{dsn}&foo=1", 78, "foo"),
        ([*serving, "--store"], f"{dsn}&options={_READ_ONLY}", 69, "takes no changes"),
        (["migrate", "--store"], f"{dsn}&options={_READ_ONLY}", 69, "takes no changes"),
        (["history", "list", "--store"], dsn, 69, "penstock migrate"),
        (["send", "orders", "a", "--timeout", "0", "--url"], f"postgresql://a:secret@/b?host={tmp_path}", 69, "runs"),
    ):
        done = CliRunner().invoke(app, [*arguments, url])
        assert (done.exit_code, said in " ".join(done.output.split())) == (code, True), done.output
        assert "secret" not in done.output
