"""Rights follow a message to its dead letters and back: a key reaches no queue through another one."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from penstock.broker.access import Role
from tests.api.asgi import Api, open_api
from tests.api.holders import Holder, access_of
from tests.waiting import elapse

QUEUES = "/api/queues"


@asynccontextmanager
async def open_shared() -> AsyncIterator[tuple[Api, Holder, Holder]]:
    """A server with `mine-a` and `secret-b`, and its operator, and a tenant who has only `mine*`."""
    async with open_api(access=access_of(ops=(Role.ADMIN, "*"), tenant=(Role.ADMIN, "mine*"))) as api:
        ops, tenant = Holder(api, "ops"), Holder(api, "tenant")
        for name in ("mine-a", "secret-b"):
            assert (await ops.post(QUEUES, {"queue_name": name})).status == 201
        yield api, ops, tenant


async def names(api: Api) -> list[str]:
    return await api.queues.placement.queues()


@pytest.mark.parametrize("target", ["secret-b", "secret-new"])
async def test_a_queue_is_not_made_to_bury_where_the_key_may_not_send(target: str) -> None:
    async with open_shared() as (api, _, tenant):
        made = await tenant.post(QUEUES, {"queue_name": "mine-c", "dead_letter_queue": target})
        assert made.is_problem(403, "forbidden")
        assert await names(api) == ["mine-a", "secret-b"]


@pytest.mark.parametrize("target", ["secret-b", "secret-new"])
async def test_a_queue_is_not_changed_to_bury_where_the_key_may_not_send(target: str) -> None:
    async with open_shared() as (api, _, tenant):
        before = (await api.queues.placement.of("mine-a").describe("mine-a")).settings
        changed = await tenant.patch(f"{QUEUES}/mine-a", {"dead_letter_queue": target, "paused": True})
        assert changed.is_problem(403, "forbidden")
        assert (await api.queues.placement.of("mine-a").describe("mine-a")).settings == before


async def test_dead_letters_that_exist_need_the_right_to_send_and_others_the_right_to_create() -> None:
    access = access_of(ops=(Role.ADMIN, "*"), tenant=[(Role.ADMIN, "mine*"), (Role.SEND, "shared*")])
    async with open_api(access=access) as api:
        ops, tenant = Holder(api, "ops"), Holder(api, "tenant")
        assert (await ops.post(QUEUES, {"queue_name": "shared-dead"})).status == 201
        wanted = {"queue_name": "mine-a", "dead_letter_queue": "shared-none"}
        assert (await tenant.post(QUEUES, wanted)).is_problem(403, "forbidden")
        assert (await tenant.post(QUEUES, {**wanted, "dead_letter_queue": "shared-dead"})).status == 201
        assert (await tenant.post(QUEUES, {"queue_name": "mine-b", "dead_letter_queue": "mine-none"})).status == 201


async def test_settings_that_leave_the_dead_letters_as_they_are_need_no_right_on_them() -> None:
    async with open_shared() as (_, ops, tenant):
        assert (await ops.patch(f"{QUEUES}/mine-a", {"dead_letter_queue": "secret-b"})).status == 200
        changed = await tenant.patch(f"{QUEUES}/mine-a", {"dead_letter_queue": "secret-b", "max_deliveries": 7})
        assert changed.status == 200, changed
        assert (await tenant.patch(f"{QUEUES}/mine-a", {"dead_letter_queue": None})).status == 200
        assert (await tenant.patch(f"{QUEUES}/mine-a", {"dead_letter_queue": "secret-b"})).status == 403


async def bury(holder: Holder, queue: str, *data: str) -> list[str]:
    """Send messages that fail once, and return their ids when they are dead letters."""
    drafts = [{"data": each, "max_deliveries": 1} for each in data]
    sent = await holder.post(f"{QUEUES}/{queue}/messages", {"messages": drafts})
    taken = (await holder.get(f"{QUEUES}/{queue}/messages", limit=len(data)))["messages"]
    receipts = [each["receipt"] for each in taken]
    released = await holder.post(f"{QUEUES}/{queue}/release", {"receipts": receipts, "error": "no", "delay_s": 0})
    assert released["done"] == len(data)
    assert (await holder.get(f"{QUEUES}/{queue}/messages", limit=10))["messages"] == []
    return [each["message_id"] for each in sent["messages"]]


@asynccontextmanager
async def open_mixed() -> AsyncIterator[tuple[Holder, Holder, list[str], list[str]]]:
    """As `open_shared`, with dead letters of both queues in `mine-dead`: the ids of the one's and of the other's."""
    async with open_shared() as (_, ops, tenant):
        assert (await ops.post(QUEUES, {"queue_name": "mine-dead"})).status == 201
        for name in ("mine-a", "secret-b"):
            assert (await ops.patch(f"{QUEUES}/{name}", {"dead_letter_queue": "mine-dead"})).status == 200
        theirs = await bury(ops, "secret-b", "s1", "s2", "s3")
        yield ops, tenant, await bury(ops, "mine-a", "m1", "m2"), theirs


async def finished(holder: Holder, task: Any) -> Any:
    while task["state"] == "running":
        await elapse(0.01)
        task = (await holder.get(f"{QUEUES}/mine-dead/redrive/{task['task_id']}")).value
    return task


async def test_a_redrive_leaves_what_came_from_queues_that_the_key_may_not_send_to() -> None:
    async with open_mixed() as (ops, tenant, mine, theirs):
        begun = await tenant.post(f"{QUEUES}/mine-dead/redrive", {})
        assert begun.status == 202
        task = await finished(tenant, begun.value)
        assert (task["state"], task["moved"], task["not_allowed"], task["remaining"]) == ("done", {"mine-a": 2}, 3, 3)
        assert sorted(task["sample_message_ids"]) == sorted(mine)
        left = (await tenant.get(f"{QUEUES}/mine-dead/peek"))["messages"]
        assert [each["message_id"] for each in left] == theirs
        assert (await ops.get(f"{QUEUES}/secret-b"))["current_message_count"] == 0


async def test_a_redrive_by_ids_or_filter_or_limit_or_a_dry_run_reaches_no_more() -> None:
    async with open_mixed() as (ops, tenant, mine, theirs):
        path = f"{QUEUES}/mine-dead/redrive"
        dry = (await tenant.post(path, {"dry_run": True})).value
        assert (dry["moved"], dry["not_allowed"]) == ({"mine-a": 2}, 3)
        by_ids = await finished(tenant, (await tenant.post(path, {"message_ids": [*theirs, mine[0]]})).value)
        assert (by_ids["moved"], by_ids["not_allowed"]) == ({"mine-a": 1}, 3)
        fitting = await finished(tenant, (await tenant.post(path, {"filter": {"origin_queue": "secret-b"}})).value)
        assert (fitting["moved"], fitting["not_allowed"]) == ({}, 3)
        limited = await finished(tenant, (await tenant.post(path, {"limit": 4})).value)
        assert (limited["moved"], limited["not_allowed"]) == ({"mine-a": 1}, 3)
        assert (await ops.get(f"{QUEUES}/secret-b"))["current_message_count"] == 0
        whole = await finished(ops, (await ops.post(path, {})).value)
        assert (whole["moved"], whole["not_allowed"]) == ({"secret-b": 3}, 0)


async def test_one_dead_letter_is_requeued_only_to_a_queue_that_the_key_may_send_to() -> None:
    async with open_mixed() as (ops, tenant, mine, theirs):
        refused = await tenant.post(f"{QUEUES}/mine-dead/messages/{theirs[0]}/requeue", {})
        assert refused.is_problem(403, "forbidden")
        assert "secret-b" not in refused["detail"]
        assert (await ops.get(f"{QUEUES}/secret-b"))["current_message_count"] == 0
        done = await tenant.post(f"{QUEUES}/mine-dead/messages/{mine[0]}/requeue", {})
        assert done["requeued_to_name"] == "mine-a"
        into = await tenant.post(f"{QUEUES}/mine-dead/messages/{theirs[0]}/requeue", {"target_queue": "mine-a"})
        assert into["requeued_to_name"] == "mine-a"


async def test_a_task_does_not_tell_where_another_key_has_sent_its_messages() -> None:
    async with open_mixed() as (ops, tenant, _, _):
        task = await finished(ops, (await ops.post(f"{QUEUES}/mine-dead/redrive", {"target_queue": "secret-b"})).value)
        assert task["moved"] == {"secret-b": 5}
        seen = (await tenant.get(f"{QUEUES}/mine-dead/redrive")).value["tasks"]
        assert [(each["moved"], each["moved_total"]) for each in seen] == [({}, 5)]


async def test_a_release_needs_no_right_on_the_queue_it_is_buried_in() -> None:
    access = access_of(ops=(Role.ADMIN, "*"), worker=[(Role.SEND, "mine-a"), (Role.RECEIVE, "mine-a")])
    async with open_api(access=access) as api:
        ops, worker = Holder(api, "ops"), Holder(api, "worker")
        for wanted in ({"queue_name": "secret-b"}, {"queue_name": "mine-a", "dead_letter_queue": "secret-b"}):
            assert (await ops.post(QUEUES, wanted)).status == 201
        await bury(worker, "mine-a", "spent")
        assert (await ops.get(f"{QUEUES}/secret-b"))["current_message_count"] == 1
        assert (await worker.get(f"{QUEUES}/secret-b/peek")).status == 403
