"""Who did what, over REST: the actor is the key, and a key reads what it may administer."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from penstock.broker.access import Role
from penstock.contract.limits import FAILED_LOGINS_HELD_MAX, FAILED_LOGINS_PER_HOUR
from tests.api.asgi import Api, open_api
from tests.api.holders import Holder, access_of
from tests.api.test_dead_letter_rights import bury

QUEUES, LOG = "/api/queues", "/api/audit-log"


@asynccontextmanager
async def open_server() -> AsyncIterator[tuple[Api, Holder, Holder]]:
    access = access_of(ops=(Role.ADMIN, "*"), tenant=(Role.ADMIN, "mine*"), worker=(Role.WRITE, "*"))
    async with open_api(access=access) as api:
        yield api, Holder(api, "ops"), Holder(api, "tenant")


async def entries(holder: Holder, **which: object) -> list[tuple[str, str, str]]:
    found = (await holder.get(LOG, **which)).value["entries"]
    return [(each["actor"], each["action"], each["target"]) for each in found]


async def test_every_change_of_a_queue_is_written_down_with_the_name_of_the_key() -> None:
    async with open_server() as (_, ops, tenant):
        assert (await tenant.post(QUEUES, {"queue_name": "mine-a", "max_deliveries": 1})).status == 201
        assert (await tenant.patch(f"{QUEUES}/mine-a", {"delay_s": 0, "paused": False})).status == 200
        (spent,) = await bury(tenant, "mine-a", "x")
        assert (await ops.post(f"{QUEUES}/mine-a.dead/messages/{spent}/requeue")).status == 200
        task = (await ops.post(f"{QUEUES}/mine-a.dead/redrive", {})).value["task_id"]
        assert (await ops.delete(f"{QUEUES}/mine-a.dead/redrive/{task}")).status == 200
        said = {"filter": {}, "priority": "CRITICAL", "reason": "rain", "actor": "root"}
        assert len((await tenant.post(f"{QUEUES}/mine-a/escalate", said)).value["moved"]) == 1
        assert (await tenant.post(f"{QUEUES}/mine-a/purge")).status == 200
        assert (await tenant.delete(f"{QUEUES}/mine-a")).status == 200
        assert await entries(ops) == [
            ("tenant", "queue.delete", "mine-a"),
            ("tenant", "queue.purge", "mine-a"),
            ("tenant", "queue.escalate", "mine-a"),
            ("ops", "queue.stop_redrive", "mine-a.dead"),
            ("ops", "queue.redrive", "mine-a.dead"),
            ("ops", "queue.requeue", "mine-a.dead"),
            ("tenant", "queue.change", "mine-a"),
            ("tenant", "queue.create", "mine-a"),
        ]
        (change,) = (await ops.get(LOG, action="queue.change")).value["entries"]
        assert (change["detail"], change["via"]) == ('{"delay_s":0.0,"paused":false}', "rest")


async def test_what_changes_nothing_is_not_written_down() -> None:
    async with open_server() as (_, ops, tenant):
        for _ in range(2):
            await tenant.post(QUEUES, {"queue_name": "mine-a"})
        await tenant.post(f"{QUEUES}/mine-a/redrive", {"dry_run": True})
        await tenant.post(f"{QUEUES}/other/purge")
        await tenant.post(f"{QUEUES}/mine-none/purge")
        assert await entries(ops) == [("tenant", "queue.create", "mine-a")]


async def test_a_client_adds_a_label_to_an_escalation_and_never_replaces_the_actor() -> None:
    async with open_server() as (_, ops, tenant):
        await tenant.post(QUEUES, {"queue_name": "mine-a"})
        await tenant.post(f"{QUEUES}/mine-a/messages", {"data": "x"})
        said = {"filter": {}, "priority": "CRITICAL", "reason": "rain", "actor": "ops"}
        assert (await tenant.post(f"{QUEUES}/mine-a/escalate", said)).status == 200
        (trail,) = (await ops.get(f"{QUEUES}/mine-a/escalations")).value["escalations"]
        assert trail["actor"] == "tenant (ops)"
        (entry,) = (await ops.get(LOG, action="queue.escalate")).value["entries"]
        assert (entry["actor"], entry["label"]) == ("tenant", "ops")
        assert entry["detail"] == "1 messages to CRITICAL: rain"


async def test_a_key_reads_what_it_may_administer_and_no_more() -> None:
    async with open_server() as (api, ops, tenant):
        for name in ("mine-a", "secret-b"):
            await ops.post(QUEUES, {"queue_name": name})
        await api.call("GET", QUEUES, headers={"authorization": f"Bearer pk_{'0' * 12}_{'x' * 43}"})
        await api.queues.activity.write_logins()
        assert await entries(tenant) == [("ops", "queue.create", "mine-a")]
        assert await entries(tenant, target="mine-a") == [("ops", "queue.create", "mine-a")]
        assert (await tenant.get(LOG, target="secret-b")).is_problem(403, "forbidden")
        assert (await Holder(api, "worker").get(LOG)).is_problem(403, "forbidden")
        assert (await Holder(api, None).get(LOG)).status == 401
        assert ("nobody", "login.fail", "0" * 12) in await entries(ops)
        assert len(await entries(ops)) == 3


async def test_entries_are_found_by_target_actor_action_and_time_and_read_in_pages() -> None:
    async with open_server() as (_, ops, tenant):
        for number in range(5):
            await (ops if number % 2 else tenant).post(QUEUES, {"queue_name": f"mine-{number}"})
        await ops.post(f"{QUEUES}/mine-1/purge")
        assert await entries(ops, target="mine-1", action="queue.purge") == [("ops", "queue.purge", "mine-1")]
        assert len(await entries(ops, action="queue")) == 6
        assert await entries(ops, action="que") == []
        assert [target for _, _, target in await entries(ops, actor="tenant")] == ["mine-4", "mine-2", "mine-0"]
        at = (await ops.get(LOG)).value["entries"][0]["at"]
        assert await entries(ops, since="2100-01-01T00:00:00Z") == []
        assert len(await entries(ops, since=at)) >= 1
        assert len(await entries(ops, until="2100-01-01T00:00:00Z")) == 6
        seen: list[Any] = []
        cursor: str | None = ""
        while cursor is not None:
            page = (await ops.get(LOG, limit=4, cursor=cursor)).value
            seen += page["entries"]
            cursor = page["next_cursor"]
        assert [each["target"] for each in seen] == ["mine-1", "mine-4", "mine-3", "mine-2", "mine-1", "mine-0"]


@pytest.mark.parametrize("cursor", ["x", "-1", "٣", "9" * 20])
async def test_a_cursor_of_the_log_that_is_none_is_refused(cursor: str) -> None:
    async with open_server() as (_, ops, _):
        assert (await ops.get(LOG, cursor=cursor)).is_problem(400, "bad_field", field="cursor")


async def test_a_stranger_cannot_fill_the_log_with_failed_logins() -> None:
    async with open_server() as (api, ops, _):
        activity = api.queues.activity
        for number in range(3 * FAILED_LOGINS_HELD_MAX):
            activity.failed_login(via="rest", said=f"{number:012x}", source="192.0.2.7")
        for _ in range(10):
            await activity.write_logins()
        found = (await ops.get(LOG, action="login", limit=1_000)).value["entries"]
        assert len(found) == FAILED_LOGINS_PER_HOUR
        assert {each["source"] for each in found} <= {"192.0.2.7", ""}
        await activity.write_logins(is_last=True)
        found = (await ops.get(LOG, action="login", limit=1_000)).value["entries"]
        assert len(found) == FAILED_LOGINS_PER_HOUR + 1
        assert sum(each["count"] for each in found) == 3 * FAILED_LOGINS_HELD_MAX
