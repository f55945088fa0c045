"""One request that acks what was received before and asks for more: what becomes of both, and of one write for both."""

import asyncio
from typing import Any

import pytest

from penstock.broker.access import Access
from penstock.contract.queue_settings import QueueSettings
from penstock.core.queue.message import Drafts
from penstock.wire import frames
from penstock.wire.frames import FRAME_TYPE, Held, LeasedFrame, SettleFrame
from tests.api.asgi import ORDERS, Api, Connection, open_api, receive, send
from tests.api.test_receive import GOOD, only_key
from tests.broker.brokers import open_broker
from tests.simulation.world import Machine
from tests.waiting import elapse

LEASE = f"{ORDERS}/lease"


async def taken(api: Api, *data: str) -> list[str]:
    """Send messages, receive them, and return their receipts."""
    await send(api, *data)
    return [each["receipt"] for each in await receive(api, len(data))]


def acked(*receipts: str, status: str = "acked") -> dict[str, Any]:
    results = [{"receipt": receipt, "status": status} for receipt in receipts]
    return {"done": len(results) if status == "acked" else 0, "results": results}


async def test_one_request_acks_messages_and_receives_the_next() -> None:
    async with open_api() as api:
        receipts = await taken(api, "a", "b")
        await send(api, "c")
        answer = await api.post(LEASE, {"ack": receipts, "limit": 10})
        assert [each["data"] for each in answer["messages"]] == ["c"]
        assert answer["acked"] == acked(*receipts)
        assert answer.headers["cache-control"] == "no-store"
        assert (await api.get(ORDERS))["current_message_count"] == 1


async def test_without_a_limit_the_results_are_beside_the_message() -> None:
    async with open_api() as api:
        first, second = await taken(api, "a", "b")
        await send(api, "c")
        answer = await api.post(LEASE, {"ack": [first]})
        assert (answer["data"], answer["acked"]) == ("c", acked(first))
        empty = await api.msgpack("POST", LEASE, {"ack": [second]})
        assert empty.value == {"message": None, "acked": acked(second)}


async def test_a_request_without_acks_has_no_results_of_any() -> None:
    async with open_api() as api:
        await send(api, "a", "b")
        assert "acked" not in (await api.post(LEASE, {"limit": 1})).value
        assert "acked" not in (await api.post(LEASE)).value
        assert (await api.post(LEASE, {})).value == {"message": None}


async def test_a_stale_receipt_is_told_and_messages_come_all_the_same() -> None:
    async with open_api() as api:
        (receipt,) = await taken(api, "a")
        await send(api, "b", "c")
        assert (await api.post(LEASE, {"ack": [receipt]}))["acked"] == acked(receipt)
        again = await api.post(LEASE, {"ack": [receipt]})
        assert (again["data"], again["acked"]) == ("c", acked(receipt, status="stale"))


async def test_what_an_ack_lets_go_is_received_in_the_same_request() -> None:
    async with open_api(fifo=True) as api:
        await send(api, "a1", "a2", group="a")
        (first,) = await receive(api, 1)
        assert (await api.post(LEASE, {"ack": [first["receipt"]]}))["data"] == "a2"


async def test_acks_are_on_disk_before_a_request_waits_and_stay_if_its_client_leaves() -> None:
    async with open_api() as api:
        (receipt,) = await taken(api, "a")
        connection = Connection()
        async with asyncio.TaskGroup() as tasks:
            body = b'{"ack":["%s"],"wait_s":20}' % receipt.encode()
            json = {"content-type": "application/json"}
            tasks.create_task(api.raw("POST", LEASE, body, headers=json, connection=connection))
            await elapse(1)
            assert (await api.get(ORDERS))["current_message_count"] == 0
            connection.close()
        await send(api, "b")
        (found,) = await receive(api)
        assert (found["data"], found["delivery_count"]) == ("b", 1)


async def test_a_request_with_acks_waits_for_a_message_as_any_other() -> None:
    async with open_api() as api:
        first, second = await taken(api, "a", "b")
        async with asyncio.TaskGroup() as tasks:
            poll = tasks.create_task(api.post(LEASE, {"ack": [first], "wait_s": 20}))
            await elapse(1)
            await send(api, "c")
        assert (poll.result()["data"], poll.result()["acked"]) == ("c", acked(first))
        began_ms = api.queues.now_ms()
        answer = await api.post(LEASE, {"ack": [second], "limit": 5, "wait_s": 1.5})
        assert answer.value == {"messages": [], "acked": acked(second)}
        assert 1_500 <= api.queues.now_ms() - began_ms < 1_600


async def test_one_waiter_too_many_has_acked_nothing() -> None:
    async with open_api(long_polls_max=1) as api, asyncio.TaskGroup() as tasks:
        (receipt,) = await taken(api, "a")
        tasks.create_task(api.get(f"{ORDERS}/messages", wait_s=2))
        await elapse(1)
        refused = await api.post(LEASE, {"ack": [receipt], "wait_s": 2})
        assert refused.is_problem(429, "too_many_waiting", limit=1)
        assert (await api.post(LEASE, {"ack": [receipt]}))["acked"] == acked(receipt)


BAD_ACKS: list[tuple[dict[str, object], str, float | None]] = [
    ({"ack": []}, "ack", 1),
    ({"ack": ["1-1-0"] * 1_001}, "ack", 1_000),
    ({"ack": ["1-1-0", "nonsense"]}, "ack[1]", None),
    ({"ack": [1]}, "ack[0]", None),
    ({"ack": ["1-1-0"], "limit": 0}, "limit", 1),
]


@pytest.mark.parametrize(("asked", "field", "limit"), BAD_ACKS, ids=lambda each: str(each)[:40])
async def test_a_bad_request_to_ack_and_receive_does_neither(
    asked: dict[str, object], field: str, limit: float | None
) -> None:
    async with open_api() as api:
        (receipt,) = await taken(api, "a")
        await send(api, "b")
        listed = asked["ack"]
        assert isinstance(listed, list)
        told = {**asked, "ack": [*listed, receipt]} if field == "ack[1]" else asked
        assert (await api.post(LEASE, told)).is_problem(400, "bad_field", field=field, limit=limit)
        assert (await api.get(ORDERS))["current_message_count"] == 2
        assert len(await receive(api)) == 1


async def test_what_to_ack_belongs_into_the_body() -> None:
    async with open_api() as api:
        (receipt,) = await taken(api, "a")
        assert (await api.post(LEASE, ack=receipt)).is_problem(400, "bad_field", field="ack")
        assert (await api.get(f"{ORDERS}/messages", ack=receipt)).is_problem(400, "bad_field", field="ack")


async def test_a_key_that_may_not_receive_can_ack_nothing_on_the_way() -> None:
    access = Access([only_key()])
    async with open_api(access=access) as api:
        await api.queues.create("orders", QueueSettings())
        await api.queues.send("orders", Drafts(bodies=[b"a"]))
        (receipt,) = [
            each["receipt"] for each in (await api.get(f"{ORDERS}/messages", headers=GOOD, limit=1))["messages"]
        ]
        assert (await api.post(LEASE, {"ack": [receipt]})).is_problem(401, "unauthorized")
        assert (await api.post(LEASE, {"ack": [receipt]}, headers=GOOD))["acked"] == acked(receipt)


async def lease_frame(api: Api, settle: SettleFrame, **query: object) -> tuple[list[int], LeasedFrame | None]:
    answer = await api.frame("POST", LEASE, frames.encode_settle(settle), query=query)
    assert (answer.status, answer.headers["content-type"]) == (200, FRAME_TYPE), answer
    return frames.decode_both(answer.body)


async def test_a_frame_acks_by_bitmaps_and_its_answer_has_both() -> None:
    async with open_api() as api:
        await send(api, "a", "b", "c")
        answer = await api.frame("POST", LEASE, query={"limit": 2})
        held = frames.decode_leased(answer.body)
        done, leased = await lease_frame(api, SettleFrame([Held(held.lease, held.token, 0b11)]), limit=10)
        assert leased is not None
        assert (done, [bytes(body) for body in leased.bodies]) == ([0b11], [b"c"])
        stale = Held(held.lease, held.token, 0b01)
        assert await lease_frame(api, SettleFrame([Held(leased.lease, leased.token, 1), stale])) == ([1, 0], None)


async def test_a_frame_with_no_lease_in_it_is_refused() -> None:
    async with open_api() as api:
        answer = await api.frame("POST", LEASE, frames.encode_settle(SettleFrame([])))
        assert answer.is_problem(400, "bad_field", field="leases", limit=1_000)


async def test_acks_and_the_lease_behind_them_share_one_write_to_the_disk() -> None:
    machine = Machine()
    async with open_broker(machine=machine, has_queue=True) as broker:
        await broker.send(b"a", b"b")
        held = await broker.take()
        machine.disk.fail_sync_after = 1_000_000
        outcomes, delivery = await broker.queues.ack_and_lease("orders", held.receipts(), want=1)
        assert delivery is not None
        assert machine.disk.fail_sync_after == 1_000_000 - 1
        assert len(outcomes) == len(delivery) == 1
        machine.disk.fail_sync_after = None
