"""Looking over REST: pages of messages, one with its whole story, and what a message waits for."""

from base64 import b64encode
from typing import Any

import pytest

from tests.api.asgi import ORDERS, Api, bury, open_api, receive, send
from tests.waiting import elapse

PEEK = f"{ORDERS}/peek"


async def peeked(api: Api, **query: object) -> list[Any]:
    answer = await api.call("GET", PEEK, query=query)
    assert answer.status == 200, answer
    assert answer["next_cursor"] is None
    return [each["data"] for each in answer["messages"]]


async def of_every_state(api: Api) -> None:
    await send(api, "taken", group="g")
    await receive(api, 1)
    await send(api, "ready", group="g", priority="HIGH")
    await send(api, "delayed", delay_s=60)


async def test_a_peek_shows_messages_wherever_they_are_and_takes_none() -> None:
    async with open_api() as api:
        await of_every_state(api)
        assert sorted(await peeked(api)) == ["delayed", "ready", "taken"]
        assert [each["data"] for each in await receive(api)] == ["ready"]


@pytest.mark.parametrize(
    ("query", "data"),
    [
        ({"state": "ready"}, ["ready"]),
        ({"state": "delayed"}, ["delayed"]),
        ({"state": "in_flight"}, ["taken"]),
        ({"state": "stuck"}, []),
        ({"state": "moving"}, []),
        ({"priority": "HIGH"}, ["ready"]),
        ({"priority": 1}, ["ready"]),
        ({"group": "g", "state": "ready"}, ["ready"]),
        ({"text": "elay"}, ["delayed"]),
        ({"text": "elay", "priority": 0}, []),
    ],
    ids=str,
)
async def test_a_peek_keeps_to_what_is_sought(query: dict[str, object], data: list[str]) -> None:
    async with open_api() as api:
        await of_every_state(api)
        assert await peeked(api, **query) == data


async def test_a_peek_goes_on_from_page_to_page() -> None:
    async with open_api() as api:
        ids = await send(api, *[str(each) for each in range(25)])
        found: list[str] = []
        page = await api.get(PEEK, limit=10)
        found += [each["message_id"] for each in page["messages"]]
        while page["next_cursor"] is not None:
            page = await api.get(PEEK, limit=10, cursor=page["next_cursor"])
            found += [each["message_id"] for each in page["messages"]]
        assert found == ids


async def test_a_peeked_message_says_all_that_is_known_of_it() -> None:
    async with open_api() as api:
        (message_id,) = await send(api, {"a": 1}, priority="LOW", group="g", delay_s=60, attributes={"x": 1})
        (seen,) = (await api.get(PEEK))["messages"]
        assert seen == {
            "message_id": message_id,
            "data": {"a": 1},
            "state": "delayed",
            "priority": "LOW",
            "tier": 3,
            "sent_priority": "LOW",
            "attributes": {"content_type": "application/json", "x": 1},
            "delivery_count": 0,
            "sent_at": seen["sent_at"],
            "visible_at": seen["visible_at"],
            "group": "g",
            "escalated": False,
        }
        assert seen["visible_at"] > seen["sent_at"]


async def test_a_peek_of_dead_letters_tells_where_they_came_from() -> None:
    async with open_api() as api:
        (message_id,) = await bury(api, "a")
        (seen,) = (await api.get("/api/queues/orders.dead/peek", text="a"))["messages"]
        assert (seen["message_id"], seen["origin_queue"], seen["last_error"]) == (message_id, "orders", "boom")
        assert (seen["earlier_deliveries"], seen["delivery_count"]) == (1, 0)


async def test_a_peek_shows_bytes_as_base64_and_as_bytes_in_messagepack() -> None:
    async with open_api() as api:
        await api.post(f"{ORDERS}/messages", {"data_base64": b64encode(b"\xff").decode()})
        (seen,) = (await api.get(PEEK))["messages"]
        assert seen["data_base64"] == b64encode(b"\xff").decode()
        (packed,) = (await api.msgpack("GET", PEEK)).value["messages"]
        assert packed["data"] == b"\xff"


@pytest.mark.parametrize(
    ("query", "field", "limit"),
    [
        ({"limit": 0}, "limit", 1),
        ({"limit": 1_001}, "limit", 1_000),
        ({"state": "lost"}, "state", None),
        ({"priority": "URGENT"}, "priority", None),
        ({"text": ""}, "text", 1),
        ({"group": "x" * 129}, "group", 128),
        ({"cursor": "nonsense"}, "cursor", None),
        ({"cursor": "x" * 129}, "cursor", 128),
        ({"colour": "red"}, "colour", None),
    ],
    ids=str,
)
async def test_a_bad_peek_is_refused_by_its_field_and_limit(
    query: dict[str, object], field: str, limit: int | None
) -> None:
    async with open_api() as api:
        answer = await api.call("GET", PEEK, query=query)
        assert answer.is_problem(400, "bad_field", field=field, limit=limit)


async def test_one_message_is_shown_with_its_whole_story() -> None:
    async with open_api() as api:
        (message_id,) = await send(api, "a")
        story = await api.get(f"{ORDERS}/messages/{message_id}")
        assert (story["state"], story["wait_reason"]) == ("ready", "none")
        assert story["reason"].startswith("It is next")
        assert (story["escalations"], story["until"]) == ([], None)
        asked = {"message_ids": [message_id], "priority": "CRITICAL", "actor": "ann", "reason": "vip"}
        assert (await api.post(f"{ORDERS}/escalate", asked)).status == 200
        (taken,) = await receive(api)
        await api.post(f"{ORDERS}/release", {"receipts": [taken["receipt"]], "error": "boom", "delay_s": 60})
        story = await api.get(f"{ORDERS}/messages/{message_id}")
        assert (story["state"], story["wait_reason"], story["last_error"]) == ("delayed", "delayed", "boom")
        assert story["until"] == story["visible_at"]
        assert (story["priority"], story["sent_priority"], story["escalated"]) == ("CRITICAL", "NORMAL", True)
        (escalation,) = story["escalations"]
        assert (escalation["actor"], escalation["message_ids"]) == ("everybody (ann)", [message_id])


async def test_a_message_in_flight_says_until_when() -> None:
    async with open_api() as api:
        (message_id,) = await send(api, "a")
        (taken,) = await receive(api)
        story = await api.get(f"{ORDERS}/messages/{message_id}")
        assert (story["state"], story["wait_reason"]) == ("in_flight", "in_flight")
        assert story["until"] == taken["invisible_until"]


async def test_a_settled_message_is_answered_with_404_and_how_it_ended() -> None:
    async with open_api() as api:
        (message_id,) = await send(api, "a")
        (taken,) = await receive(api)
        await api.post(f"{ORDERS}/ack", {"receipts": [taken["receipt"]]})
        await elapse(3)
        for path in (f"{ORDERS}/messages/{message_id}", f"{ORDERS}/messages/{message_id}/explain"):
            answer = await api.get(path)
            assert answer.is_problem(404, "message_not_found")
            assert "it was acked at 2023-" in answer["detail"]


@pytest.mark.parametrize("message_id", ["1-ffff", "nonsense", "ff-0", "🌋"])
async def test_an_unknown_message_is_answered_with_404(message_id: str) -> None:
    async with open_api() as api:
        for path in (f"{ORDERS}/messages/{message_id}", f"{ORDERS}/messages/{message_id}/explain"):
            assert (await api.get(path)).is_problem(404, "message_not_found")


async def test_an_explanation_says_what_stands_before_a_message() -> None:
    async with open_api() as api:
        ids = await send(api, *["a"] * 10)
        explained = await api.get(f"{ORDERS}/messages/{ids[7]}/explain")
        assert explained["message_id"] == ids[7]
        assert (explained["state"], explained["wait_reason"], explained["messages_ahead"]) == (
            "ready",
            "behind_others",
            7,
        )
        assert explained["reason"].endswith("are leased first.")
        assert (explained["priority"], explained["sent_priority"], explained["promotions"]) == ("NORMAL", "NORMAL", 0)
        assert explained["worst_wait_messages"] > 7
        assert (explained["worst_wait_s"], explained["estimated_start"], explained["until"]) == (None, None, None)
        # Once messages flow, the wait is also told in seconds.
        for _ in range(5):
            await receive(api, 1)
            await elapse(1)
        explained = await api.get(f"{ORDERS}/messages/{ids[7]}/explain")
        assert explained["messages_ahead"] == 2
        assert explained["worst_wait_s"] > 0
        assert explained["estimated_start"] > explained.value.get("sent_at", "2023")


async def test_an_explanation_names_what_a_message_waits_for() -> None:
    async with open_api(fifo=True) as api:
        head, second = await send(api, "a", "b", group="g")
        (later,) = await send(api, "c", delay_s=60)
        await receive(api, 1)
        waits = {each: (await api.get(f"{ORDERS}/messages/{each}/explain")).value for each in (head, second, later)}
        assert waits[head]["wait_reason"] == "in_flight"
        assert (waits[second]["wait_reason"], waits[second]["group"]) == ("group_busy", "g")
        assert waits[later]["wait_reason"] == "delayed"
        assert waits[later]["until"] is not None
        (loose,) = await send(api, "d")
        await api.patch(ORDERS, {"paused": True})
        paused = await api.get(f"{ORDERS}/messages/{loose}/explain")
        assert (paused["wait_reason"], paused["worst_wait_messages"]) == ("paused", None)


@pytest.mark.parametrize("path", ["peek", "messages/1-2", "messages/1-2/explain", "escalations", "redrive", "history"])
async def test_to_look_into_a_queue_that_is_not_there_is_answered_with_404(path: str) -> None:
    async with open_api() as api:
        for queue in ("nowhere", "q_ffff"):
            assert (await api.get(f"/api/queues/{queue}/{path}")).is_problem(404, "queue_not_found")
