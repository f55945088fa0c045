"""A key learns nothing about queues that it may not see: not from cursors, ids, refusals or views."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from penstock.api.rest.request import read_cursor
from penstock.broker.access import Role
from tests.api.asgi import Api, open_api
from tests.api.holders import Holder, access_of
from tests.api.test_dead_letter_rights import bury

QUEUES = "/api/queues"
# Between those of the tenant, so that a page that is cut before the filter ends on one of the others.
NAMES = ["a-first", "mine-1", "n-hidden", "only", "q-hidden", "shop-1", "shop-2", "z-last"]


@asynccontextmanager
async def open_mixed() -> AsyncIterator[tuple[Api, Holder, Holder]]:
    tenant = [(Role.READ, "mine*"), (Role.READ, "shop*"), (Role.READ, "shop-2*"), (Role.READ, "only")]
    access = access_of(ops=(Role.ADMIN, "*"), tenant=tenant, stranger=(Role.ADMIN, "elsewhere*"))
    async with open_api(access=access) as api:
        ops = Holder(api, "ops")
        for name in NAMES:
            assert (await ops.post(QUEUES, {"queue_name": name})).status == 201
        yield api, ops, Holder(api, "tenant")


@pytest.mark.parametrize("limit", range(1, 9))
@pytest.mark.parametrize("prefix", ["", "s", "shop-", "mine-1", "n", "only"])
async def test_pages_of_a_list_end_only_on_names_that_were_shown(limit: int, prefix: str) -> None:
    async with open_mixed() as (_, _, tenant):
        seen: list[str] = []
        cursor = ""
        while True:
            page = (await tenant.get(QUEUES, limit=limit, prefix=prefix, cursor=cursor)).value
            shown = [row["queue_name"] for row in page["queues"]]
            seen += shown
            cursor = page["next_cursor"]
            if cursor is None:
                break
            assert cursor not in NAMES
            assert read_cursor(cursor) == shown[-1]
        wanted = ["mine-1", "only", "shop-1", "shop-2"]
        assert seen == [name for name in wanted if name.startswith(prefix)]


async def test_a_cursor_that_is_none_is_refused() -> None:
    async with open_mixed() as (_, _, tenant):
        for cursor in ("!", "mine-1!", "_w"):
            assert (await tenant.get(QUEUES, cursor=cursor)).is_problem(400, "bad_field", field="cursor")


@pytest.mark.parametrize("path", ["", "/messages", "/peek", "/history", "/redrive"])
async def test_the_id_of_a_queue_that_a_key_may_not_see_looks_like_none(path: str) -> None:
    async with open_mixed() as (api, ops, tenant):
        there = (await api.queues.placement.of("n-hidden").describe("n-hidden")).id
        hidden, missing = [await tenant.get(f"{QUEUES}/{each}{path}") for each in (there, "q_fffff")]
        assert hidden.is_problem(404, "queue_not_found")
        assert missing.is_problem(404, "queue_not_found")
        assert hidden["detail"].replace(there, "q_fffff") == missing["detail"]
        assert (await ops.get(f"{QUEUES}/{there}{path}")).status == 200


async def test_a_refusal_by_id_names_a_queue_only_to_those_who_may_see_it() -> None:
    async with open_mixed() as (api, _, tenant):
        there = (await api.queues.placement.of("mine-1").describe("mine-1")).id
        refused = await tenant.post(f"{QUEUES}/{there}/purge")
        assert refused.is_problem(403, "forbidden")
        refused = await Holder(api, "stranger").post(f"{QUEUES}/{there}/purge")
        assert refused.is_problem(404, "queue_not_found")


async def test_dead_letters_are_not_sent_into_an_id_that_a_key_may_not_see() -> None:
    async with open_mixed() as (api, ops, _):
        assert (await ops.post(QUEUES, {"queue_name": "elsewhere"})).status == 201
        there = (await api.queues.placement.of("n-hidden").describe("n-hidden")).id
        stranger = Holder(api, "stranger")
        answers = [
            await stranger.post(f"{QUEUES}/elsewhere/redrive", {"target_queue": each}) for each in (there, "q_fffff")
        ]
        for answer in answers:
            assert answer.is_problem(404, "queue_not_found", field="target_queue")
        assert answers[0]["detail"].replace(there, "q_fffff") == answers[1]["detail"]


async def test_a_name_that_is_there_is_refused_like_one_that_is_not() -> None:
    async with open_mixed() as (_, _, tenant):
        there, missing = [await tenant.get(f"{QUEUES}/{each}") for each in ("n-hidden", "n-missin")]
        assert there.is_problem(403, "forbidden")
        assert missing.is_problem(403, "forbidden")
        assert there["detail"].replace("n-hidden", "n-missin") == missing["detail"]


async def test_a_queue_tells_nothing_of_dead_letters_that_the_key_may_not_see() -> None:
    access = access_of(ops=(Role.ADMIN, "*"), tenant=(Role.ADMIN, "mine*"))
    async with open_api(access=access) as api:
        ops, tenant = Holder(api, "ops"), Holder(api, "tenant")
        for wanted in ({"queue_name": "secret-b"}, {"queue_name": "mine-a", "dead_letter_queue": "secret-b"}):
            assert (await ops.post(QUEUES, wanted)).status == 201
        await bury(ops, "mine-a", "spent")
        assert (await ops.get(f"{QUEUES}/mine-a"))["dlq_id"] is not None
        assert (await tenant.get(f"{QUEUES}/mine-a"))["dlq_id"] is None
        assert (await tenant.get(QUEUES))["queues"][0]["dlq_id"] is None
        refused = await tenant.delete(f"{QUEUES}/mine-a", with_dead_letters=True)
        assert refused.is_problem(403, "forbidden")
        assert "secret-b" not in refused["detail"]
        deleted = await tenant.delete(f"{QUEUES}/mine-a")
        assert (deleted.status, deleted["dead_letters"]) == (200, 0)
