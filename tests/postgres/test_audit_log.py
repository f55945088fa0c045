"""The audit log on PostgreSQL: all servers of a database share it, and one of them trims it."""

import json
from pathlib import Path

import psycopg
import pytest
from typer.testing import CliRunner

from penstock.broker.access import ANONYMOUS_ADMIN, Caller, Grant, Role
from penstock.broker.activity import Wanted
from penstock.cli import app
from penstock.server import open_application
from penstock.settings import ServerSettings
from penstock.store.audit_log import Entry
from penstock.store.postgres.shared_tables import PostgresAuditLog
from penstock.store.postgres.store import PostgresStore
from tests.postgres.servers import shared_server
from tests.simulation.clock import SimDice

OPS = Caller("ops", (Grant(Role.ADMIN, "*"),))


@pytest.mark.real_time
async def test_what_is_done_at_one_server_is_read_at_another_and_after_a_restart(tmp_path: Path) -> None:
    settings = ServerSettings(store=shared_server().new_database(), data=tmp_path, kafka=False)
    async with open_application(settings) as one, open_application(settings) as other:
        await one.queues.activity.record(OPS, "queue.purge", "orders", via="rest", detail="NUL \0 and ☕")
        found, more = await other.queues.activity.read(ANONYMOUS_ADMIN, Wanted(), before=None, most=10)
        assert [(each.actor, each.action, each.detail) for each in found] == [
            ("ops", "queue.purge", "NUL \ufffd and ☕")
        ]
        assert more is None
    async with open_application(settings) as again:
        found, _ = await again.queues.activity.read(ANONYMOUS_ADMIN, Wanted(target="orders"), before=None, most=10)
        assert len(found) == 1


def log_of(store: PostgresStore, *, leads: bool, bytes_max: int = 10_000, age_ms_max: int = 1_000) -> PostgresAuditLog:
    return PostgresAuditLog(store._database, SimDice(), lambda: leads, bytes_max=bytes_max, age_ms_max=age_ms_max)


@pytest.mark.real_time
async def test_the_leader_lets_go_of_entries_that_are_too_old_or_too_many(tmp_path: Path) -> None:
    settings = ServerSettings(store=shared_server().new_database(), data=tmp_path, kafka=False)
    async with open_application(settings) as application:
        assert isinstance(application.placement, PostgresStore)
        leader, other = [log_of(application.placement, leads=leads) for leads in (True, False)]
        await leader.append(
            [Entry(at_ms=at_ms, actor="a", action="queue.purge", target=str(at_ms)) for at_ms in (0, 500, 1_000)]
        )
        await other.trim(1_600)
        assert len(await leader.newest(before=None, most=10)) == 3
        await leader.trim(1_600)
        assert [each.target for _, each in await leader.newest(before=None, most=10)] == ["1000"]
        small = log_of(application.placement, leads=True, bytes_max=200, age_ms_max=10**12)
        await small.append(
            [Entry(at_ms=1, actor="a", action="queue.purge", target=str(number)) for number in range(20)]
        )
        await small.trim(1_600)
        left = [each.target for _, each in await small.newest(before=None, most=100)]
        assert left == ["19", "18", "17"]
        ((position, _), *_) = await small.newest(before=None, most=1)
        assert [each.target for _, each in await small.newest(before=position, most=1)] == ["18"]


def test_a_key_that_is_made_for_a_database_is_in_its_audit_log(tmp_path: Path) -> None:
    dsn = shared_server().new_database()
    command = ["key", "create", "--name", "shop", "--role", "read", "--store", dsn, "--data", str(tmp_path)]
    assert CliRunner().invoke(app, command).exit_code == 0
    with psycopg.connect(dsn) as connection:
        rows = connection.execute("SELECT entry FROM penstock.audit_log").fetchall()
    assert [json.loads(entry)["action"] for (entry,) in rows] == ["key.create"]
