"""Sending over REST: one or many, all or none, text, objects and bytes, once or in vain."""

from base64 import b64encode
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.broker.access import Role
from tests.api.asgi import ORDERS, Api, Connection, open_api, receive, send
from tests.api.holders import access_of, shown
from tests.simulation.loop import simulate
from tests.waiting import elapse

MESSAGES = f"{ORDERS}/messages"
DEEP = b"[" * 100_000 + b"]" * 100_000


async def both_ways(api: Api, data: object) -> Any:
    """Send data, and return it as it is received."""
    await send(api, data)
    (found,) = await receive(api, 1)
    assert (await api.post(f"{ORDERS}/ack", {"receipts": [found["receipt"]]}))["done"] == 1
    return found["data"]


async def test_a_message_is_answered_with_201_and_its_id() -> None:
    async with open_api() as api:
        answer = await api.post(MESSAGES, {"data": "hello"})
        assert answer.status == 201
        (found,) = await receive(api)
        assert answer.value == {"message_id": found["message_id"]}


async def test_a_batch_is_answered_with_an_id_for_each_in_its_order() -> None:
    async with open_api() as api:
        answer = await api.post(MESSAGES, {"messages": [{"data": str(each)} for each in range(1_000)]})
        assert answer.status == 201
        ids = [each["message_id"] for each in answer["messages"]]
        found = await receive(api, 1_000)
        assert [each["message_id"] for each in found] == ids
        assert [each["data"] for each in found] == [str(each) for each in range(1_000)]


@pytest.mark.parametrize(
    "data", ["", "ä€𝄞\u0000", {"a": [1, 2.5, None, True, "x"]}, [1, 2], 7, 1.5, False, {}, [], 2**63, "null"]
)
async def test_any_json_value_comes_back_as_it_was_sent(data: object) -> None:
    async with open_api() as api:
        found = await both_ways(api, data)
        assert found == data
        assert type(found) is type(data)


async def test_a_value_that_is_no_text_is_marked_as_json() -> None:
    async with open_api() as api:
        await send(api, {"a": 1})
        await send(api, '{"a":1}')
        first, second = await receive(api)
        assert (first["data"], first["attributes"]) == ({"a": 1}, {"content_type": "application/json"})
        assert (second["data"], second["attributes"]) == ('{"a":1}', {})


async def test_a_body_that_is_wrongly_called_json_comes_back_as_text() -> None:
    async with open_api() as api:
        await send(api, "{oops", attributes={"content_type": "application/json"})
        (found,) = await receive(api)
        assert found["data"] == "{oops"


async def test_bytes_that_are_no_text_travel_as_base64() -> None:
    async with open_api() as api:
        for body in (b"\xff\x00\xfe", b"plain", b""):
            encoded = b64encode(body).decode()
            assert (await api.post(MESSAGES, {"data_base64": encoded})).status == 201
        raw, plain, empty = await receive(api)
        assert raw["data_base64"] == b64encode(b"\xff\x00\xfe").decode()
        assert "data" not in raw
        assert (plain["data"], empty["data"]) == ("plain", "")


async def test_messagepack_carries_bytes_both_ways() -> None:
    async with open_api() as api:
        for data in (b"\xff\x00", "text", {"a": 1}):
            sent = await api.msgpack("POST", MESSAGES, {"data": data, "attributes": {"n": 1}})
            assert sent.status == 201
            assert sent.headers["content-type"] == "application/msgpack"
        found = (await api.msgpack("GET", MESSAGES, limit=10)).value["messages"]
        assert [each["data"] for each in found] == [b"\xff\x00", b"text", b'{"a":1}']
        assert found[0]["attributes"] == {"n": 1}


@pytest.mark.parametrize("data", [msgspec.msgpack.Ext(5, b"x"), {(1, 2): 3}], ids=["extension", "a list as a key"])
async def test_what_json_cannot_say_is_refused_in_messagepack(data: object) -> None:
    async with open_api() as api:
        answer = await api.msgpack("POST", MESSAGES, {"data": data})
        assert answer.is_problem(400, "bad_field", field="data")


async def test_everything_about_a_message_comes_back() -> None:
    async with open_api() as api:
        attributes = {"a": "ä", "n": 1, "x": 1.5, "b": True}
        await send(api, "hello", priority="high", group="g", attributes=attributes)
        (found,) = await receive(api)
        assert (found["priority"], found["tier"], found["group"]) == ("HIGH", 1, "g")
        assert (found["attributes"], found["delivery_count"]) == (attributes, 1)
        assert found["sent_at"] <= found["invisible_until"]


@pytest.mark.parametrize(
    ("priority", "name"),
    [("CRITICAL", "CRITICAL"), ("background", "BACKGROUND"), (0, "CRITICAL"), (4, "BACKGROUND"), ("3", "LOW")],
)
async def test_a_priority_is_a_name_or_a_number(priority: str | int, name: str) -> None:
    async with open_api() as api:
        await send(api, "a", priority=priority)
        (found,) = await receive(api)
        assert found["priority"] == name


async def test_a_message_without_a_priority_is_normal() -> None:
    async with open_api() as api:
        await send(api, "a")
        assert (await receive(api))[0]["priority"] == "NORMAL"


async def test_a_delayed_message_comes_after_its_delay() -> None:
    async with open_api() as api:
        await send(api, "later", delay_s=2.5)
        await send(api, "now")
        assert [each["data"] for each in await receive(api)] == ["now"]
        await elapse(2.6)
        assert [each["data"] for each in await receive(api)] == ["later"]


async def test_a_scheduled_message_comes_at_its_time() -> None:
    async with open_api() as api:
        at_s = api.queues.now_ms() / 1_000 + 5
        await send(api, "number", scheduled_at=at_s)
        await send(api, "text", scheduled_at="2023-11-14T22:13:30.000Z")
        await send(api, "zone", scheduled_at="2023-11-15T00:13:30+02:00")
        await send(api, "past", scheduled_at="2001-01-01T00:00:00Z")
        assert [each["data"] for each in await receive(api)] == ["past"]
        await elapse(11)
        assert sorted(each["data"] for each in await receive(api)) == ["number", "text", "zone"]


async def test_a_message_may_have_its_own_number_of_deliveries() -> None:
    async with open_api() as api:
        await send(api, "a", max_deliveries=1)
        await receive(api, visibility_timeout=1)
        await elapse(1.1)
        assert await receive(api) == []
        assert (await receive(api, queue="orders.dead"))[0]["data"] == "a"


BAD_DRAFTS: list[tuple[dict[str, object], str, float | None]] = [
    ({}, "data", None),
    ({"data": None}, "data", None),
    ({"data": "a", "data_base64": "YQ=="}, "data_base64", None),
    ({"data_base64": "not base64!"}, "data_base64", None),
    ({"data_base64": 1}, "data_base64", None),
    ({"data": "a", "priority": "URGENT"}, "priority", None),
    ({"data": "a", "priority": 5}, "priority", None),
    ({"data": "a", "priority": True}, "priority", None),
    ({"data": "a", "delay_s": -1}, "delay_s", 0),
    ({"data": "a", "delay_s": 366 * 86_400 + 1}, "delay_s", 366 * 86_400),
    ({"data": "a", "delay_s": 1, "scheduled_at": 1}, "scheduled_at", None),
    ({"data": "a", "scheduled_at": "tomorrow"}, "scheduled_at", None),
    ({"data": "a", "scheduled_at": "2027-01-01T00:00:00"}, "scheduled_at", None),
    ({"data": "a", "scheduled_at": "2099-01-01T00:00:00Z"}, "scheduled_at", 366 * 86_400),
    ({"data": "a", "scheduled_at": 1e300}, "scheduled_at", None),
    ({"data": "a", "dedup_id": ""}, "dedup_id", 1),
    ({"data": "a", "dedup_id": "x" * 129}, "dedup_id", 128),
    ({"data": "a", "dedup_id": "ä" * 100}, "dedup_id", 128),
    ({"data": "a", "group": "x" * 129}, "group", 128),
    ({"data": "a", "group": "ä" * 100}, "group", 128),
    ({"data": "a", "attributes": {"a": [1]}}, "attributes[...]", None),
    ({"data": "a", "attributes": {str(each): 1 for each in range(101)}}, "attributes", 100),
    ({"data": "a", "attributes": {"a": "x" * 65_536}}, "attributes", 65_536),
    ({"data": "a", "max_deliveries": 0}, "max_deliveries", 1),
    ({"data": "a", "max_deliveries": 10_001}, "max_deliveries", 10_000),
    ({"data": "a", "prioritty": 1}, "prioritty", None),
    ({"data": "a", "delay_s": "soon"}, "delay_s", None),
]


@pytest.mark.parametrize(("draft", "field", "limit"), BAD_DRAFTS, ids=lambda each: str(each)[:40])
async def test_a_bad_message_is_refused_by_its_field_and_limit(
    draft: dict[str, object], field: str, limit: float | None
) -> None:
    async with open_api() as api:
        assert (await api.post(MESSAGES, draft)).is_problem(400, "bad_field", field=field, limit=limit)
        batch = {"messages": [{"data": "good"}, draft]}
        assert (await api.post(MESSAGES, batch)).is_problem(400, "bad_field", field=f"messages[1].{field}", limit=limit)
        # All of a batch, or nothing.
        assert (await api.get(ORDERS))["current_message_count"] == 0


async def test_a_batch_has_1_to_1000_messages() -> None:
    async with open_api() as api:
        for count in (0, 1_001):
            answer = await api.post(MESSAGES, {"messages": [{"data": "a"}] * count})
            assert answer.is_problem(400, "bad_field", field="messages", limit=1_000)
        answer = await api.post(MESSAGES, {"messages": [{"data": "a"}], "priority": 0})
        assert answer.is_problem(400, "bad_field", field="priority")


async def test_a_body_that_is_too_large_for_the_queue_is_answered_with_413_and_the_limit() -> None:
    async with open_api(max_message_bytes=10) as api:
        one = await api.post(MESSAGES, {"data": "x" * 11})
        assert one.is_problem(413, "message_too_large", field="data", limit=10)
        many = await api.post(MESSAGES, {"messages": [{"data": "ok"}, {"data": "ä" * 6}]})
        assert many.is_problem(413, "message_too_large", field="messages[1].data", limit=10)
        assert (await api.get(ORDERS))["current_message_count"] == 0
        assert (await api.post(MESSAGES, {"data": "x" * 10})).status == 201


async def test_a_body_of_one_mebibyte_is_the_largest_that_can_be() -> None:
    async with open_api() as api:
        assert (await api.post(MESSAGES, {"data": "x" * 2**20})).status == 201
        answer = await api.post(MESSAGES, {"data": "x" * (2**20 + 1)})
        assert answer.is_problem(413, "message_too_large", field="data", limit=2**20)


async def test_a_request_that_is_too_large_is_answered_with_413_before_it_is_read() -> None:
    async with open_api(request_bytes_max=1_000) as api:
        said = await api.raw("POST", MESSAGES, b"{}", headers={"content-length": "1001"})
        assert said.is_problem(413, "body_too_large", limit=1_000)
        for parts in (1, 3):
            connection = Connection(parts=parts)
            # A client that does not say how much it sends is stopped as it does.
            scope_body = b'{"data":"' + b"x" * 2_000 + b'"}'
            found = await api.raw("POST", MESSAGES, scope_body, connection=connection, has_length=False)
            assert found.is_problem(413, "body_too_large", limit=1_000)


async def test_a_body_in_many_parts_is_put_together() -> None:
    async with open_api() as api:
        headers = {"content-type": "application/json"}
        body = msgspec.json.encode({"data": "x" * 1_000})
        answer = await api.raw("POST", MESSAGES, body, headers=headers, connection=Connection(parts=7))
        assert answer.status == 201
        assert (await receive(api))[0]["data"] == "x" * 1_000


async def test_a_send_that_is_too_large_for_the_journal_is_answered_with_413() -> None:
    async with open_api() as api:
        answer = await api.post(MESSAGES, {"messages": [{"data": "x" * 2**20}] * 17})
        assert answer.is_problem(413, "body_too_large", field="messages", limit=16 * 2**20)
        assert (await api.get(ORDERS))["current_message_count"] == 0


@pytest.mark.parametrize("body", [b"", b"{", b"[1]", b"null", b'"a"', b"\xff", DEEP, b'{"data":"\\ud800"}'])
async def test_a_body_that_is_no_request_is_answered_with_400(body: bytes) -> None:
    async with open_api() as api:
        answer = await api.raw("POST", MESSAGES, body, headers={"content-type": "application/json"})
        assert answer.is_problem(400, "bad_request")


async def test_deep_data_is_refused_and_not_fatal() -> None:
    async with open_api() as api:
        headers = {"content-type": "application/json"}
        answer = await api.raw("POST", MESSAGES, b'{"data":' + DEEP + b"}", headers=headers)
        assert answer.status == 400
        assert await both_ways(api, [[[[]]]]) == [[[[]]]]


async def test_a_full_queue_answers_429_with_retry_after_and_its_size() -> None:
    async with open_api(queue_size=10) as api:
        # Of a small queue the less urgent leave some room to the more urgent.
        await send(api, *["a"] * 10, priority="CRITICAL")
        full = await api.post(MESSAGES, {"data": "b"})
        assert full.is_problem(429, "queue_full", field="queue_size", limit=10)
        assert int(full.headers["retry-after"]) >= 1
        assert full["retry_after_s"] > 0
        (found,) = await receive(api, 1)
        await api.post(f"{ORDERS}/ack", {"receipts": [found["receipt"]]})
        assert (await api.post(MESSAGES, {"data": "c", "priority": "CRITICAL"})).status == 201


async def test_a_batch_that_never_fits_into_its_queue_is_answered_with_400() -> None:
    async with open_api(queue_size=10) as api:
        answer = await api.post(MESSAGES, {"messages": [{"data": "a"}] * 11})
        assert answer.is_problem(400, "bad_field", field="messages")
        assert "queue_size" in answer["detail"]


async def test_the_same_idempotency_key_again_is_the_same_send_again() -> None:
    async with open_api() as api:
        headers = {"Idempotency-Key": "order-17"}
        first = await api.post(MESSAGES, {"data": "a"}, headers=headers)
        again = await api.post(MESSAGES, {"data": "a"}, headers=headers)
        other = await api.post(MESSAGES, {"data": "a"}, headers={"Idempotency-Key": "order-18"})
        assert (first.status, again.status, first.value) == (201, 201, again.value)
        assert other.value != first.value
        batch = {"messages": [{"data": "b"}, {"data": "c"}]}
        many = await api.post(MESSAGES, batch, headers={"Idempotency-Key": "batch"})
        assert (await api.post(MESSAGES, batch, headers={"Idempotency-Key": "batch"})).value == many.value
        assert (await api.get(ORDERS))["current_message_count"] == 4


async def test_a_key_that_was_used_for_another_send_is_refused() -> None:
    async with open_api() as api:
        headers = {"Idempotency-Key": "order-17"}
        await api.post(MESSAGES, {"data": "a"}, headers=headers)
        batch = {"messages": [{"data": "b"}, {"data": "c"}]}
        answer = await api.post(MESSAGES, batch, headers=headers)
        assert answer.is_problem(409, "key_reused", field="Idempotency-Key")


async def test_the_idempotency_keys_of_one_api_key_are_not_those_of_another() -> None:
    access = access_of(shop=(Role.ADMIN, "*"), rival=(Role.SEND, "*"))
    async with open_api(access=access) as api:
        await api.call("POST", "/api/queues", {"queue_name": "orders"}, headers=shown("shop"))
        sent = {"idempotency-key": "order-17"}
        first = await api.post(MESSAGES, {"data": "theirs"}, headers=shown("rival") | sent)
        ours = await api.post(MESSAGES, {"data": "ours"}, headers=shown("shop") | sent)
        again = await api.post(MESSAGES, {"data": "ours"}, headers=shown("shop") | sent)
        assert (first.status, ours.status, again.value) == (201, 201, ours.value)
        found = await api.call("GET", MESSAGES, query={"limit": 10}, headers=shown("shop"))
        assert [each["data"] for each in found["messages"]] == ["theirs", "ours"]


@pytest.mark.parametrize("key", ["", "x" * 257])
async def test_an_idempotency_key_has_1_to_256_bytes(key: str) -> None:
    async with open_api() as api:
        answer = await api.post(MESSAGES, {"data": "a"}, headers={"Idempotency-Key": key})
        assert answer.is_problem(400, "bad_field", field="Idempotency-Key", limit=256)


async def test_an_id_keeps_a_second_message_away_for_the_window() -> None:
    async with open_api(dedup="window", dedup_window_s=60) as api:
        (first,) = await send(api, "a", dedup_id="x")
        assert await send(api, "b", dedup_id="x") == [first]
        (found,) = await receive(api)
        await api.post(f"{ORDERS}/ack", {"receipts": [found["receipt"]]})
        assert await send(api, "c", dedup_id="x") == [first]
        assert await receive(api) == []
        await elapse(61)
        assert await send(api, "d", dedup_id="x") != [first]


async def test_an_id_keeps_a_second_message_away_while_the_first_is_there() -> None:
    async with open_api(dedup="live") as api:
        (first,) = await send(api, "a", dedup_id="x")
        assert await send(api, "b", dedup_id="x") == [first]
        (found,) = await receive(api)
        await api.post(f"{ORDERS}/ack", {"receipts": [found["receipt"]]})
        assert await send(api, "c", dedup_id="x") != [first]


async def test_equal_content_is_sent_once_where_content_tells_messages_apart() -> None:
    async with open_api(dedup="content", dedup_window_s=60) as api:
        first, second, third = await send(api, "a", "b", "a")
        assert first == third != second
        assert (await api.post(MESSAGES, {"data": "a"}))["message_id"] == first
        # An id of its own is stronger than the content.
        assert await send(api, "a", dedup_id="mine") != [first]
        assert (await api.get(ORDERS))["current_message_count"] == 3
        await elapse(61)
        assert await send(api, "a") != [first]


async def test_a_message_to_nowhere_is_answered_with_404() -> None:
    async with open_api() as api:
        answer = await api.post("/api/queues/nowhere/messages", {"data": "a"})
        assert answer.is_problem(404, "queue_not_found")


async def test_a_client_that_goes_while_it_sends_is_not_answered() -> None:
    async with open_api() as api:
        connection = Connection()
        connection.close()
        scope_only = api.application(
            {
                "type": "http",
                "method": "POST",
                "path": MESSAGES,
                "query_string": b"",
                "headers": [(b"content-length", b"10"), (b"content-type", b"application/json")],
            },
            connection.receive,
            connection.send,
        )
        await scope_only
        assert not connection.was_answered


@given(body=st.binary(max_size=300), kind=st.sampled_from(["application/json", "application/msgpack"]))
def test_no_body_whatever_makes_the_server_fail(body: bytes, kind: str) -> None:
    async def story() -> None:
        async with open_api() as api:
            answer = await api.raw("POST", MESSAGES, body, headers={"content-type": kind})
            assert answer.status in {201, 400, 413}

    simulate(story)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda children: st.lists(children, max_size=4) | st.dictionaries(st.text(), children, max_size=4),
    max_leaves=12,
)


@given(
    drafts=st.lists(st.fixed_dictionaries({"data": JSON.filter(lambda data: data is not None)}), min_size=1, max_size=5)
)
def test_whatever_json_is_sent_comes_back(drafts: list[dict[str, Any]]) -> None:
    async def story() -> None:
        async with open_api() as api:
            answer = await api.raw(
                "POST",
                MESSAGES,
                msgspec.json.encode({"messages": drafts}),
                headers={"content-type": "application/json"},
            )
            assert answer.status == 201, answer
            assert [each["data"] for each in await receive(api)] == [draft["data"] for draft in drafts]

    simulate(story)
