"""Settling over REST: acked, released or extended by receipt, and acked by id as the weaker form."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.api.asgi import ORDERS, Api, open_api, receive, send
from tests.simulation.loop import simulate
from tests.waiting import elapse


async def taken(api: Api, *data: str, visibility_timeout: float | None = None) -> list[dict[str, Any]]:
    """Send messages and receive them."""
    await send(api, *data)
    return await receive(api, len(data), visibility_timeout=visibility_timeout)


async def test_an_ack_has_a_result_for_each_receipt() -> None:
    async with open_api() as api:
        receipts = [each["receipt"] for each in await taken(api, "a", "b", "c")]
        first = await api.post(f"{ORDERS}/ack", {"receipts": receipts[:2]})
        assert first.value == {
            "done": 2,
            "results": [{"receipt": receipt, "status": "acked"} for receipt in receipts[:2]],
        }
        second = await api.post(f"{ORDERS}/ack", {"receipts": receipts})
        assert second["done"] == 1
        assert [each["status"] for each in second["results"]] == ["stale", "stale", "acked"]
        assert (await api.get(ORDERS))["current_message_count"] == 0


async def test_an_ack_after_the_lease_has_ended_is_stale() -> None:
    async with open_api() as api:
        (found,) = await taken(api, "a", visibility_timeout=1)
        await elapse(1.1)
        answer = await api.post(f"{ORDERS}/ack", {"receipts": [found["receipt"]]})
        assert (answer["done"], answer["results"][0]["status"]) == (0, "stale")
        assert (await receive(api))[0]["delivery_count"] == 2


async def test_a_receipt_is_good_only_in_its_own_queue() -> None:
    async with open_api() as api:
        await api.post("/api/queues", {"queue_name": "mail"})
        (found,) = await taken(api, "a")
        answer = await api.post("/api/queues/mail/ack", {"receipts": [found["receipt"]]})
        assert answer["results"][0]["status"] == "stale"


async def test_a_released_message_rests_for_the_delay_and_keeps_the_error() -> None:
    async with open_api() as api:
        (found,) = await taken(api, "a")
        answer = await api.post(
            f"{ORDERS}/release", {"receipts": [found["receipt"]], "error": "ä" * 2_000, "delay_s": 2}
        )
        assert answer["results"] == [{"receipt": found["receipt"], "status": "released"}]
        assert await receive(api) == []
        await elapse(2.1)
        (again,) = await receive(api)
        assert (again["delivery_count"], again["last_error"]) == (2, "ä" * 1_024)


async def test_a_delivery_that_does_not_count_is_given_back_at_once() -> None:
    async with open_api(max_deliveries=1) as api:
        (found,) = await taken(api, "a")
        for counts in (False, False, True):
            await api.post(
                f"{ORDERS}/release", {"receipts": [found["receipt"]], "count_delivery": counts, "delay_s": 0}
            )
            left = await receive(api)
            assert [each["delivery_count"] for each in left] == ([] if counts else [1])
            found = left[0] if left else found


async def test_a_message_released_without_a_delay_rests_as_its_queue_says() -> None:
    async with open_api(retry={"min_backoff_s": 4, "max_backoff_s": 6, "jitter": False}) as api:
        (found,) = await taken(api, "a")
        for rest_s in (4, 6, 6):
            await api.post(f"{ORDERS}/release", {"receipts": [found["receipt"]]})
            await elapse(rest_s - 0.2)
            assert await receive(api) == []
            await elapse(0.3)
            (found,) = await receive(api)


async def test_jitter_spreads_what_failed_together() -> None:
    async with open_api(retry={"min_backoff_s": 100, "max_backoff_s": 100}) as api:
        found = await taken(api, *["a"] * 50)
        await api.post(f"{ORDERS}/release", {"receipts": [each["receipt"] for each in found]})
        page = await api.get(f"{ORDERS}/peek", state="delayed", limit=100)
        times = {each["visible_at"] for each in page["messages"]}
        assert len(times) > 40


async def test_an_extended_message_is_hidden_for_longer() -> None:
    async with open_api() as api:
        (found,) = await taken(api, "a", visibility_timeout=2)
        await elapse(1)
        answer = await api.post(f"{ORDERS}/extend", {"receipts": [found["receipt"]], "visibility_timeout": 10})
        assert answer["results"][0]["status"] == "extended"
        await elapse(9)
        assert await receive(api) == []
        assert (await api.post(f"{ORDERS}/ack", {"receipts": [found["receipt"]]}))["done"] == 1


async def test_an_extension_to_0_gives_a_message_back() -> None:
    async with open_api() as api:
        (found,) = await taken(api, "a")
        await api.post(f"{ORDERS}/extend", {"receipts": [found["receipt"]], "visibility_timeout": 0})
        await elapse(0.01)
        assert len(await receive(api)) == 1


async def test_an_ended_lease_is_neither_released_nor_extended() -> None:
    async with open_api() as api:
        (found,) = await taken(api, "a", visibility_timeout=1)
        await elapse(1.1)
        for verb, more in (("release", {}), ("extend", {"visibility_timeout": 5})):
            answer = await api.post(f"{ORDERS}/{verb}", {"receipts": [found["receipt"]], **more})
            assert (answer.status, answer["done"], answer["results"][0]["status"]) == (200, 0, "stale")


BAD_SETTLES: list[tuple[str, dict[str, object], str, float | None]] = [
    ("ack", {}, "receipts", None),
    ("ack", {"receipts": []}, "receipts", 1),
    ("ack", {"receipts": ["1-1-0"] * 1_001}, "receipts", 1_000),
    ("ack", {"receipts": ["1-1-0", "nonsense"]}, "receipts[1]", None),
    ("ack", {"receipts": ["x" * 65]}, "receipts[0]", 64),
    ("ack", {"receipts": [1]}, "receipts[0]", None),
    ("ack", {"receipts": ["1-1-0"], "error": "x"}, "error", None),
    ("release", {"receipts": ["1-1-0"], "delay_s": -1}, "delay_s", 0),
    ("release", {"receipts": ["1-1-0"], "error": 1}, "error", None),
    ("extend", {"receipts": ["1-1-0"]}, "visibility_timeout", None),
    ("extend", {"receipts": ["1-1-0"], "visibility_timeout": 43_201}, "visibility_timeout", 43_200),
]


@pytest.mark.parametrize(("verb", "asked", "field", "limit"), BAD_SETTLES, ids=lambda each: str(each)[:40])
async def test_a_bad_settlement_is_refused_by_its_field_and_limit(
    verb: str, asked: dict[str, object], field: str, limit: float | None
) -> None:
    async with open_api() as api:
        answer = await api.post(f"{ORDERS}/{verb}", asked)
        assert answer.is_problem(400, "bad_field", field=field, limit=limit)


async def test_receipts_travel_in_messagepack_as_well() -> None:
    async with open_api() as api:
        await send(api, "a")
        (found,) = (await api.msgpack("GET", f"{ORDERS}/messages", limit=1)).value["messages"]
        answer = await api.msgpack("POST", f"{ORDERS}/ack", {"receipts": [found["receipt"]]})
        assert answer.value["done"] == 1


async def test_an_ack_by_id_with_its_receipt_is_fenced() -> None:
    async with open_api() as api:
        (found,) = await taken(api, "a")
        path = f"{ORDERS}/messages/{found['message_id']}"
        answer = await api.delete(path, receipt=found["receipt"])
        assert (answer.status, answer.value) == (200, {"message_id": found["message_id"], "deleted": True})
        assert (await api.delete(path, receipt=found["receipt"])).is_problem(404, "message_not_found")


async def test_an_ack_by_id_with_the_receipt_of_an_ended_lease_is_stale() -> None:
    async with open_api() as api:
        (old,) = await taken(api, "a", visibility_timeout=1)
        path = f"{ORDERS}/messages/{old['message_id']}"
        await elapse(1.1)
        assert (await api.delete(path, receipt=old["receipt"])).is_problem(409, "stale_receipt")
        (new,) = await receive(api)
        assert (await api.delete(path, receipt=old["receipt"])).is_problem(409, "stale_receipt")
        assert (await api.delete(path, receipt=new["receipt"])).status == 200


async def test_an_ack_by_id_with_the_receipt_of_another_message_is_stale() -> None:
    async with open_api() as api:
        first, second = await taken(api, "a", "b")
        answer = await api.delete(f"{ORDERS}/messages/{first['message_id']}", receipt=second["receipt"])
        assert answer.is_problem(409, "stale_receipt")
        assert (await api.get(ORDERS))["in_flight"] == 2


async def test_an_ack_by_id_alone_acks_any_lease_of_the_message() -> None:
    async with open_api() as api:
        (old,) = await taken(api, "a", visibility_timeout=1)
        path = f"{ORDERS}/messages/{old['message_id']}"
        await elapse(1.1)
        # It is not leased now.
        assert (await api.delete(path)).is_problem(409, "not_leased")
        await receive(api)
        assert (await api.delete(path)).value == {"message_id": old["message_id"], "deleted": True}
        assert (await api.delete(path)).is_problem(404, "message_not_found")


@pytest.mark.parametrize("message_id", ["1-ffff", "nonsense", "ff-0", "1-7", "🌋"])
async def test_an_ack_of_an_unknown_id_is_answered_with_404(message_id: str) -> None:
    async with open_api() as api:
        for query in ({}, {"receipt": "1-1-0"}):
            answer = await api.delete(f"{ORDERS}/messages/{message_id}", **query)
            assert answer.is_problem(404, "message_not_found")


async def test_an_ack_by_id_with_what_is_no_receipt_is_refused() -> None:
    async with open_api() as api:
        (found,) = await taken(api, "a")
        answer = await api.delete(f"{ORDERS}/messages/{found['message_id']}", receipt="nonsense")
        assert answer.is_problem(400, "bad_field", field="receipt")


@pytest.mark.parametrize("verb", ["ack", "release", "extend"])
async def test_to_settle_in_a_queue_that_is_not_there_is_answered_with_404(verb: str) -> None:
    async with open_api() as api:
        asked = {"receipts": ["1-1-0"], **({"visibility_timeout": 1} if verb == "extend" else {})}
        assert (await api.post(f"/api/queues/nowhere/{verb}", asked)).is_problem(404, "queue_not_found")


PROOFS = st.from_regex(r"[0-9a-f]{1,16}-[0-9a-f]{1,16}-[0-9a-f]{1,4}", fullmatch=True)


@given(receipts=st.lists(PROOFS, min_size=1, max_size=5), verb=st.sampled_from(["ack", "release", "extend"]))
def test_a_receipt_that_was_never_given_is_stale(receipts: list[str], verb: str) -> None:
    async def story() -> None:
        async with open_api() as api:
            await taken(api, "a")
            asked = {"receipts": receipts, **({"visibility_timeout": 1} if verb == "extend" else {})}
            answer = await api.post(f"{ORDERS}/{verb}", asked)
            assert answer.status == 200
            assert [each["status"] for each in answer["results"]] == ["stale"] * len(receipts)

    simulate(story)
