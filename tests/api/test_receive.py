"""Receiving over REST: one or many, now or when they come, in the order of their priorities and groups."""

import asyncio
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from penstock.broker.access import Access, Grant, Key, Role, hash_of
from penstock.contract.queue_settings import QueueSettings
from penstock.core.queue.message import Drafts
from tests.api.asgi import ORDERS, Api, Connection, bury, open_api, receive, send
from tests.waiting import elapse

MESSAGES = f"{ORDERS}/messages"
LEASE = f"{ORDERS}/lease"


async def data(api: Api, limit: int = 10) -> list[Any]:
    return [each["data"] for each in await receive(api, limit)]


async def test_without_a_limit_one_message_comes_alone() -> None:
    async with open_api() as api:
        (message_id,) = await send(api, "a")
        answer = await api.get(MESSAGES)
        assert (answer.status, answer["message_id"], answer["data"]) == (200, message_id, "a")
        assert answer["invisible_until"] == "2023-11-14T22:13:50" + answer["invisible_until"][19:]
        assert answer.headers["cache-control"] == "no-store"


async def test_without_a_limit_an_empty_queue_has_no_message() -> None:
    async with open_api() as api:
        assert (await api.get(MESSAGES)).value == {"message": None}
        assert (await api.post(LEASE)).value == {"message": None}


async def test_with_a_limit_messages_come_in_a_list() -> None:
    async with open_api() as api:
        assert (await api.get(MESSAGES, limit=5)).value == {"messages": []}
        await send(api, "a", "b", "c")
        assert await data(api, 2) == ["a", "b"]
        assert await data(api, 2) == ["c"]


async def test_a_lease_may_be_asked_for_in_the_query_or_in_the_body() -> None:
    async with open_api() as api:
        await send(api, "a", "b", "c")
        in_query = await api.post(LEASE, limit=1, visibility_timeout=60)
        in_body = await api.post(LEASE, {"limit": 1, "visibility_timeout": 60})
        plain = await api.post(LEASE)
        assert [each["data"] for each in (*in_query["messages"], *in_body["messages"])] == ["a", "b"]
        assert plain["data"] == "c"
        packed = await api.msgpack("POST", LEASE, {"limit": 1, "wait_s": 0})
        assert packed.value == {"messages": []}


BAD_LEASES: list[tuple[dict[str, object], str, float | None]] = [
    ({"limit": 0}, "limit", 1),
    ({"limit": 1_001}, "limit", 1_000),
    ({"limit": 1.5}, "limit", None),
    ({"wait_s": -1}, "wait_s", 0),
    ({"wait_s": 20.1}, "wait_s", 20),
    ({"visibility_timeout": -1}, "visibility_timeout", 0),
    ({"visibility_timeout": 43_200.5}, "visibility_timeout", 43_200),
    ({"visibility": 1}, "visibility", None),
]


@pytest.mark.parametrize(("asked", "field", "limit"), BAD_LEASES, ids=lambda each: str(each)[:40])
async def test_a_bad_lease_is_refused_by_its_field_and_limit(
    asked: dict[str, object], field: str, limit: float | None
) -> None:
    async with open_api() as api:
        assert (await api.call("GET", MESSAGES, query=asked)).is_problem(400, "bad_field", field=field, limit=limit)
        assert (await api.post(LEASE, asked)).is_problem(400, "bad_field", field=field, limit=limit)


async def test_a_received_message_is_hidden_for_its_time() -> None:
    async with open_api(visibility_timeout=5) as api:
        await send(api, "a")
        assert await data(api) == ["a"]
        await elapse(4.9)
        assert await data(api) == []
        await elapse(0.2)
        (again,) = await receive(api, visibility_timeout=43_200)
        assert again["delivery_count"] == 2
        await elapse(43_190)
        assert await data(api) == []


async def test_a_timeout_of_0_hides_a_message_hardly_at_all() -> None:
    async with open_api() as api:
        await send(api, "a")
        first = await api.get(MESSAGES, visibility_timeout=0)
        await elapse(0.01)
        second = await api.get(MESSAGES)
        assert (first["message_id"], second["delivery_count"]) == (second["message_id"], 2)


async def test_a_message_that_is_spent_goes_to_the_dead_letters_with_its_past() -> None:
    async with open_api() as api:
        (message_id,) = await bury(api, "a")
        (found,) = await receive(api, queue="orders.dead")
        assert found["message_id"] == message_id
        assert (found["origin_queue"], found["earlier_deliveries"], found["last_error"]) == ("orders", 1, "boom")
        assert found["first_sent_at"] <= found["sent_at"]


async def test_urgent_messages_come_first_and_the_others_have_their_share() -> None:
    async with open_api() as api:
        for priority in ("BACKGROUND", "NORMAL", "CRITICAL"):
            await send(api, *[priority] * 100, priority=priority)
        first = Counter(await data(api, 100))
        assert first["CRITICAL"] > first["NORMAL"] > first["BACKGROUND"] > 0


async def test_a_strict_queue_serves_a_priority_only_when_those_above_are_empty() -> None:
    async with open_api(tiers={"mode": "strict"}) as api:
        await send(api, *["low"] * 5, priority="LOW")
        await send(api, *["high"] * 5, priority="HIGH")
        assert await data(api, 7) == ["high"] * 5 + ["low"] * 2


async def test_a_message_that_waits_long_moves_up() -> None:
    async with open_api(tiers={"mode": "strict", "aging_s": [0, 10, 10, 10, 10]}) as api:
        await send(api, "old", priority="BACKGROUND")
        await elapse(41)
        await send(api, "new", priority="HIGH")
        (first,) = await receive(api, 1)
        assert (first["data"], first["priority"]) == ("old", "CRITICAL")


async def test_groups_are_kept_in_order_by_a_fifo_queue() -> None:
    async with open_api(fifo=True) as api:
        await send(api, "a1", "a2", group="a")
        await send(api, "b1", group="b")
        (first,) = await receive(api, 1)
        assert first["data"] == "a1"
        # The group is held until its head is settled.
        assert await data(api) == ["b1"]
        assert await data(api) == []
        await api.post(f"{ORDERS}/ack", {"receipts": [first["receipt"]]})
        assert await data(api) == ["a2"]


async def test_a_queue_may_delay_all_its_messages() -> None:
    async with open_api(delay_s=3) as api:
        await send(api, "a")
        assert await data(api) == []
        await elapse(3.1)
        assert await data(api) == ["a"]


async def test_a_long_poll_is_answered_when_a_message_comes() -> None:
    async with open_api() as api:
        async with asyncio.TaskGroup() as tasks:
            polls = [
                tasks.create_task(api.get(MESSAGES, wait_s=20)),
                tasks.create_task(api.post(LEASE, {"limit": 10, "wait_s": 20})),
            ]
            await elapse(1)
            began_ms = api.queues.now_ms()
            await send(api, "a")
            await send(api, "b")
        assert api.queues.now_ms() - began_ms < 200
        single, listed = (poll.result() for poll in polls)
        assert {single["data"], listed["messages"][0]["data"]} == {"a", "b"}


async def test_a_long_poll_without_messages_ends_after_its_time() -> None:
    async with open_api() as api:
        began_ms = api.queues.now_ms()
        assert (await api.get(MESSAGES, wait_s=1.5)).value == {"message": None}
        assert 1_500 <= api.queues.now_ms() - began_ms < 1_600
        assert (await api.get(MESSAGES, limit=3, wait_s=0.5)).value == {"messages": []}


async def test_a_message_goes_to_another_when_the_client_that_waits_is_gone() -> None:
    async with open_api() as api:
        connection = Connection()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(api.raw("GET", MESSAGES, query={"wait_s": 20}, connection=connection))
            await elapse(1)
            other = tasks.create_task(api.get(MESSAGES, wait_s=20))
            await elapse(1)
            connection.close()
            await elapse(0.01)
            began_ms = api.queues.now_ms()
            await send(api, "a")
        assert (other.result()["data"], other.result()["delivery_count"]) == ("a", 1)
        assert api.queues.now_ms() - began_ms < 200


async def test_a_long_poll_is_told_that_its_queue_is_deleted() -> None:
    async with open_api() as api:
        async with asyncio.TaskGroup() as tasks:
            polls = [tasks.create_task(api.get(MESSAGES, wait_s=20)) for _ in range(3)]
            await elapse(1)
            await api.delete(ORDERS)
        assert all(poll.result().is_problem(404, "queue_not_found") for poll in polls)


async def test_too_many_who_wait_are_answered_with_429() -> None:
    async with open_api(long_polls_max=1) as api, asyncio.TaskGroup() as tasks:
        tasks.create_task(api.get(MESSAGES, wait_s=2))
        await elapse(1)
        refused = await api.get(MESSAGES, wait_s=2)
        assert refused.is_problem(429, "too_many_waiting", limit=1)
        assert refused.headers["retry-after"] == "1"


async def test_a_server_that_stops_answers_those_who_wait_and_takes_no_new_work() -> None:
    async with open_api() as api:
        async with asyncio.TaskGroup() as tasks:
            poll = tasks.create_task(api.get(MESSAGES, wait_s=20))
            await elapse(1)
            api.queues.waiting.stop()
        assert poll.result().value == {"message": None}
        for refused in (
            await api.get(MESSAGES),
            await api.post(MESSAGES, {"data": "a"}),
            await api.post("/api/queues", {"queue_name": "mail"}),
        ):
            assert refused.is_problem(503, "stopping")
            assert refused.headers["retry-after"] == "1"


async def test_a_lease_from_nowhere_is_answered_with_404() -> None:
    async with open_api() as api:
        for queue in ("nowhere", "q_fff"):
            assert (await api.get(f"/api/queues/{queue}/messages")).is_problem(404, "queue_not_found")
            assert (await api.post(f"/api/queues/{queue}/lease", wait_s=5)).is_problem(404, "queue_not_found")


SECRET = "s" * 43
GOOD = {"authorization": f"Bearer pk_{1:012x}_{SECRET}"}


def only_key() -> Key:
    return Key(
        id=f"{1:012x}",
        name="only",
        secret_sha256=hash_of(SECRET),
        ending="",
        grants=(Grant(Role.WRITE, "*"),),
        queues_max=None,
        created_at="",
    )


@pytest.mark.parametrize("is_sent_to", [False, True])
async def test_a_long_poll_ends_when_its_key_is_revoked_and_is_handed_nothing(*, is_sent_to: bool) -> None:
    access = Access([only_key()])
    async with open_api(access=access) as api:
        await api.queues.create("orders", QueueSettings())
        before_ms = api.queues.now_ms()
        async with asyncio.TaskGroup() as tasks:
            poll = tasks.create_task(api.get(MESSAGES, headers=GOOD, wait_s=20))
            # It sits down within this time, which is virtual.
            await elapse(1)
            if is_sent_to:
                # It is woken for the message, and its key is gone before it has it.
                api.queues.placement.watch(lambda _queue: access.replace(()))
                await api.queues.send("orders", Drafts(bodies=[b"secret"]))
            else:
                access.replace(())
        assert poll.result().is_problem(401, "unauthorized")
        assert api.queues.now_ms() - before_ms < 5_000, "it has not waited until its time was up"
        counts = await api.queues.placement.of("orders").counts("orders")
        assert (sum(counts.ready), counts.leased) == (int(is_sent_to), 0)


async def test_a_key_that_goes_too_fast_is_answered_429_with_a_time_to_come_again() -> None:
    now = [1_000_000]
    access = Access([replace(only_key(), requests_per_s=1, bytes_per_s=1_000)], now_ms=lambda: now[0])
    async with open_api(access=access) as api:
        await api.queues.create("orders", QueueSettings())
        assert (await api.get(MESSAGES, headers=GOOD)).status == 200
        refused = await api.get(MESSAGES, headers=GOOD)
        assert refused.is_problem(429, "rate_limited")
        assert int(refused.headers["retry-after"]) == 1
        now[0] += 1_000
        sent = await api.post(MESSAGES, {"data": "x" * 5_000}, headers=GOOD)
        assert sent.status == 201, "a large request is let through whole"
        now[0] += 1_001
        later = await api.get(MESSAGES, headers=GOOD)
        assert int(later.headers["retry-after"]) == 4
        now[0] += 5_000
        assert (await api.get(MESSAGES, headers=GOOD)).status == 200
