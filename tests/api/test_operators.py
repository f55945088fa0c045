"""Operating over REST: messages escalated, dead letters requeued and redriven."""

import pytest

from tests.api.asgi import ORDERS, Api, bury, open_api, receive, send
from tests.waiting import elapse

DEAD = "/api/queues/orders.dead"
ESCALATE = f"{ORDERS}/escalate"
BY = {"actor": "ann", "reason": "vip"}


async def until_done(api: Api, task_id: str) -> dict[str, object]:
    """Wait for the end of a redrive, and return it."""
    for _ in range(1_000):
        task = await api.get(f"{DEAD}/redrive/{task_id}")
        if task["state"] != "running":
            return dict(task.value)
        await elapse(0.1)
    raise AssertionError("it does not end")


async def test_the_redrives_of_a_deleted_queue_are_gone_with_it() -> None:
    async with open_api() as api:
        await bury(api, "dead")
        task = (await api.post("/api/queues/orders.dead/redrive"))["task_id"]
        await api.delete(ORDERS, with_dead_letters="true")
        for method in ("GET", "DELETE"):
            answer = await api.call(method, f"/api/queues/orders.dead/redrive/{task}")
            assert answer.is_problem(404, "queue_not_found")


async def test_messages_are_escalated_by_id_and_the_answer_tells_each() -> None:
    async with open_api() as api:
        (taken,) = await send(api, "taken")
        await receive(api, 1)
        first, second = await send(api, "a", "b")
        asked = {"message_ids": [second, taken, "1-ffff"], "priority": "CRITICAL", **BY}
        answer = await api.post(ESCALATE, asked)
        assert answer.value == {"moved": [second], "unchanged": [], "not_pending": [taken], "unknown": ["1-ffff"]}
        assert [each["message_id"] for each in await receive(api)] == [second, first]


async def test_escalating_never_makes_a_message_less_urgent_unless_told_to_lower() -> None:
    async with open_api() as api:
        (high,) = await send(api, "a", priority="HIGH")
        asked = {"message_ids": [high], "priority": "LOW", **BY}
        assert (await api.post(ESCALATE, asked)).value == {
            "moved": [],
            "unchanged": [high],
            "not_pending": [],
            "unknown": [],
        }
        assert (await api.get(f"{ORDERS}/escalations"))["escalations"] == []
        assert (await api.post(ESCALATE, {**asked, "lower": True}))["moved"] == [high]
        assert (await api.get(f"{ORDERS}/messages/{high}"))["priority"] == "LOW"


async def test_what_a_filter_finds_at_its_priority_already_counts_for_nothing() -> None:
    async with open_api() as api:
        await send(api, *["a"] * 30, priority="HIGH")
        low = await send(api, *["a"] * 5, priority="LOW")
        answer = await api.post(ESCALATE, {"filter": {"text": "a"}, "priority": "HIGH", "limit": 5, **BY})
        assert (sorted(answer["moved"]), answer["unchanged"]) == (sorted(low), [])
        again = await api.post(ESCALATE, {"filter": {"text": "a"}, "priority": "HIGH", "limit": 5, **BY})
        assert again["moved"] == []
        assert len((await api.get(f"{ORDERS}/escalations"))["escalations"]) == 1


async def test_messages_are_escalated_by_filter_up_to_a_limit() -> None:
    async with open_api() as api:
        await send(api, *["red" if each % 2 else "blue" for each in range(40)], priority="LOW")
        asked = {"filter": {"text": "red", "priority": "LOW", "state": "ready"}, "priority": 0, "limit": 15, **BY}
        answer = await api.post(ESCALATE, asked)
        assert len(answer["moved"]) == 15
        assert (await api.get(ORDERS))["by_tier"][0]["ready"] == 15
        rest = await api.post(ESCALATE, {**asked, "limit": 1_000})
        assert len(rest["moved"]) == 5


async def test_an_empty_filter_escalates_everything_in_steps() -> None:
    async with open_api() as api:
        for _ in range(3):
            await send(api, *["a"] * 1_000)
        answer = await api.post(ESCALATE, {"filter": {}, "priority": "HIGH", "limit": 2_500, **BY})
        assert len(answer["moved"]) == 2_500
        assert [each["ready"] for each in (await api.get(ORDERS))["by_tier"]] == [0, 2_500, 500, 0, 0]


async def test_an_escalation_ends_at_its_time() -> None:
    async with open_api() as api:
        (message_id,) = await send(api, "a")
        until_s = api.queues.now_ms() / 1_000 + 10
        await api.post(ESCALATE, {"message_ids": [message_id], "priority": 0, "until": until_s, **BY})
        assert (await api.get(f"{ORDERS}/messages/{message_id}"))["priority"] == "CRITICAL"
        await elapse(11)
        assert (await api.get(f"{ORDERS}/messages/{message_id}"))["priority"] == "NORMAL"


async def test_escalations_are_remembered_the_newest_first() -> None:
    async with open_api() as api:
        ids = await send(api, "a", "b")
        await api.post(ESCALATE, {"message_ids": ids, "priority": "HIGH", **BY})
        until = "2023-12-01T00:00:00Z"
        asked = {"message_ids": ids[:1], "priority": 0, "actor": "bob", "reason": "fire", "until": until}
        await api.post(ESCALATE, asked)
        trail = (await api.get(f"{ORDERS}/escalations"))["escalations"]
        assert [(each["actor"], each["reason"], each["priority"], each["message_ids"]) for each in trail] == [
            ("everybody (bob)", "fire", "CRITICAL", ids[:1]),
            ("everybody (ann)", "vip", "HIGH", ids),
        ]
        assert (trail[0]["until"], trail[1]["until"]) == ("2023-12-01T00:00:00.000Z", None)
        assert len((await api.get(f"{ORDERS}/escalations", limit=1))["escalations"]) == 1
        assert (await api.get(f"{ORDERS}/escalations", limit=1_001)).is_problem(
            400, "bad_field", field="limit", limit=1_000
        )


BAD_ESCALATIONS: list[tuple[dict[str, object], str, float | str | None]] = [
    ({**BY, "priority": 0}, "message_ids", None),
    ({**BY, "priority": 0, "message_ids": ["1-2"], "filter": {}}, "filter", None),
    ({**BY, "priority": 9, "message_ids": ["1-2"]}, "priority", None),
    ({**BY, "message_ids": ["1-2"]}, "priority", None),
    ({"priority": 0, "reason": "x", "message_ids": ["1-2"]}, "actor", None),
    ({"priority": 0, "actor": "", "reason": "x", "message_ids": ["1-2"]}, "actor", 1),
    ({"priority": 0, "actor": "x", "reason": "x" * 1_025, "message_ids": ["1-2"]}, "reason", 1_024),
    ({**BY, "priority": 0, "message_ids": []}, "message_ids", 1),
    ({**BY, "priority": 0, "message_ids": ["1-2"] * 1_001}, "message_ids", 1_000),
    ({**BY, "priority": 0, "filter": {}, "limit": 0}, "limit", 1),
    ({**BY, "priority": 0, "filter": {}, "limit": 10_001}, "limit", 10_000),
    ({**BY, "priority": 0, "filter": {"state": "lost"}}, "filter.state", None),
    ({**BY, "priority": 0, "filter": {"priority": "x"}}, "filter.priority", None),
    ({**BY, "priority": 0, "filter": {"colour": "red"}}, "filter.colour", None),
    ({**BY, "priority": 0, "message_ids": ["1-2"], "until": "soon"}, "until", None),
    ({**BY, "priority": 0, "message_ids": ["1-2"], "until": 1}, "until", "2023-11-14"),
    ({**BY, "priority": 0, "message_ids": ["1-2"], "until": "2030-01-01T00:00:00Z"}, "until", "2024-11-14"),
]


@pytest.mark.parametrize(("asked", "field", "limit"), BAD_ESCALATIONS, ids=lambda each: str(each)[:50])
async def test_a_bad_escalation_is_refused_by_its_field_and_limit(
    asked: dict[str, object], field: str, limit: float | str | None
) -> None:
    async with open_api() as api:
        answer = await api.post(ESCALATE, asked)
        found = answer.value.get("limit")
        # An instant depends on now; its day is enough.
        seen = found[:10] if isinstance(found, str) else found
        assert (answer.status, answer["code"], answer["field"], seen) == (400, "bad_field", field, limit)


async def test_one_dead_letter_goes_back_to_where_it_came_from() -> None:
    async with open_api() as api:
        first, second = await bury(api, "a", "b")
        answer = await api.post(f"{DEAD}/messages/{second}/requeue")
        orders = (await api.get(ORDERS))["queue_id"]
        assert (answer.status, answer.value) == (
            200,
            {"message_id": second, "requeued_to": orders, "requeued_to_name": "orders"},
        )
        (found,) = await receive(api)
        assert (found["message_id"], found["data"], found["delivery_count"]) == (second, "b", 1)
        assert (await api.post(f"{DEAD}/messages/{second}/requeue")).is_problem(404, "message_not_found")
        assert (await api.get(DEAD))["current_message_count"] == 1
        assert first != second


async def test_one_dead_letter_goes_into_another_queue_by_name_or_id() -> None:
    async with open_api() as api:
        made = await api.post("/api/queues", {"queue_name": "repairs"})
        ids = await bury(api, "a", "b")
        for message_id, into in zip(ids, ("repairs", made["queue_id"]), strict=True):
            answer = await api.post(f"{DEAD}/messages/{message_id}/requeue", {"target_queue": into})
            assert answer.value == {
                "message_id": message_id,
                "requeued_to": made["queue_id"],
                "requeued_to_name": "repairs",
            }
        assert [each["data"] for each in await receive(api, queue="repairs")] == ["a", "b"]


async def test_what_is_no_dead_letter_is_not_requeued() -> None:
    async with open_api() as api:
        await bury(api, "a")
        (message_id,) = await send(api, "direct", queue="orders.dead")
        assert (await api.post(f"{DEAD}/messages/{message_id}/requeue")).is_problem(409, "not_dead_letter")
        (here,) = await send(api, "b")
        assert (await api.post(f"{ORDERS}/messages/{here}/requeue")).is_problem(409, "not_dead_letter")


async def test_a_leased_dead_letter_stays() -> None:
    async with open_api() as api:
        (message_id,) = await bury(api, "a")
        await receive(api, queue="orders.dead")
        assert (await api.post(f"{DEAD}/messages/{message_id}/requeue")).is_problem(409, "message_in_flight")


async def test_a_dead_letter_whose_queue_is_gone_needs_another() -> None:
    async with open_api() as api:
        (message_id,) = await bury(api, "a")
        await api.delete(ORDERS)
        assert (await api.post(f"{DEAD}/messages/{message_id}/requeue")).is_problem(
            409, "origin_not_found", field="target_queue"
        )
        await api.post("/api/queues", {"queue_name": "repairs"})
        assert (await api.post(f"{DEAD}/messages/{message_id}/requeue", {"target_queue": "repairs"})).status == 200


async def test_a_dead_letter_does_not_go_back_into_a_full_queue() -> None:
    async with open_api() as api:
        (message_id,) = await bury(api, "a")
        await api.patch(ORDERS, {"queue_size": 5})
        await send(api, *["x"] * 5, priority="CRITICAL")
        answer = await api.post(f"{DEAD}/messages/{message_id}/requeue")
        assert answer.is_problem(429, "queue_full")
        assert int(answer.headers["retry-after"]) >= 1


@pytest.mark.parametrize(
    ("into", "status", "code"),
    [("nowhere", 404, "queue_not_found"), ("q_ffff", 404, "queue_not_found"), ("orders.dead", 400, "bad_field")],
)
async def test_dead_letters_go_only_where_there_is_another_queue(into: str, status: int, code: str) -> None:
    async with open_api() as api:
        (message_id,) = await bury(api, "a")
        one = await api.post(f"{DEAD}/messages/{message_id}/requeue", {"target_queue": into})
        assert one.is_problem(status, code, field="target_queue")
        many = await api.post(f"{DEAD}/redrive", {"target_queue": into})
        assert many.is_problem(status, code, field="target_queue")
        assert (await api.get(DEAD))["current_message_count"] == 1


async def test_a_redrive_is_answered_with_202_and_runs_until_it_is_done() -> None:
    async with open_api() as api:
        ids = await bury(api, "a", "b", "c")
        begun = await api.post(f"{DEAD}/redrive")
        assert begun.status == 202
        assert (begun["state"], begun["dead_letter_queue"], begun["dry_run"]) == ("running", "orders.dead", False)
        assert begun.headers["location"] == f"{DEAD}/redrive/{begun['task_id']}"
        task = await until_done(api, begun["task_id"])
        assert (task["state"], task["moved"], task["moved_total"]) == ("done", {"orders": 3}, 3)
        assert (task["remaining"], task["without_origin"], task["error"]) == (0, 0, None)
        assert (task["sample_message_ids"], task["started_at"] is not None, task["ended_at"] is not None) == (
            ids,
            True,
            True,
        )
        assert (await api.get(ORDERS))["ready"] == 3
        assert (await api.get(f"{DEAD}/redrive"))["tasks"] == [task]


async def test_a_redrive_by_filter_moves_what_fits() -> None:
    async with open_api() as api:
        await bury(api, "red", "blue", "red")
        asked = {"filter": {"text": "red", "error": "oo", "origin_queue": "orders"}}
        begun = await api.post(f"{DEAD}/redrive", asked)
        assert (await until_done(api, begun["task_id"]))["moved_total"] == 2
        assert [each["data"] for each in await receive(api)] == ["red", "red"]


async def test_a_redrive_by_ids_with_a_limit_moves_no_more() -> None:
    async with open_api() as api:
        ids = await bury(api, "a", "b", "c")
        begun = await api.post(f"{DEAD}/redrive", {"message_ids": ids, "limit": 2})
        assert (await until_done(api, begun["task_id"]))["moved_total"] == 2


async def test_a_dry_run_is_answered_with_200_and_moves_nothing() -> None:
    async with open_api() as api:
        ids = await bury(api, "a", "b")
        answer = await api.post(f"{DEAD}/redrive", {"dry_run": True})
        assert answer.status == 200
        assert (answer["state"], answer["dry_run"], answer["moved"]) == ("done", True, {"orders": 2})
        assert answer["sample_message_ids"] == ids
        assert (await api.get(DEAD))["current_message_count"] == 2


async def test_a_redrive_is_stopped_and_answers_how_far_it_came() -> None:
    async with open_api() as api:
        await bury(api, *["a"] * 20)
        begun = await api.post(f"{DEAD}/redrive", {"rate_per_s": 10})
        await elapse(0.55)
        ended = await api.delete(f"{DEAD}/redrive/{begun['task_id']}")
        assert (ended.status, ended["state"]) == (200, "stopped")
        assert 3 <= ended["moved_total"] <= 8
        assert ended["ended_at"] is not None
        assert (await api.get(ORDERS))["ready"] == ended["moved_total"]
        # To stop it again changes nothing.
        assert (await api.delete(f"{DEAD}/redrive/{begun['task_id']}")).value == ended.value


async def test_a_redrive_that_is_not_known_is_answered_with_404() -> None:
    async with open_api() as api:
        for method in ("GET", "DELETE"):
            answer = await api.call(method, f"{ORDERS}/redrive/r_1")
            assert answer.is_problem(404, "task_not_found")
        assert (await api.get(f"{ORDERS}/redrive")).value == {"tasks": []}


async def test_too_many_redrives_are_answered_with_429() -> None:
    async with open_api() as api:
        await bury(api, *["a"] * 300)
        for _ in range(100):
            assert (await api.post(f"{DEAD}/redrive", {"rate_per_s": 0.001})).status == 202
        refused = await api.post(f"{DEAD}/redrive")
        assert refused.is_problem(429, "too_many_redrives", limit=100)


@pytest.mark.parametrize(
    ("asked", "field", "limit"),
    [
        ({"message_ids": ["1-2"], "filter": {}}, "filter", None),
        ({"limit": 0}, "limit", 1),
        ({"rate_per_s": 0}, "rate_per_s", 0),
        ({"rate_per_s": 1_000_001}, "rate_per_s", 1_000_000),
        ({"message_ids": []}, "message_ids", 1),
        ({"target_queue": "a b"}, "target_queue", None),
        ({"dry": True}, "dry", None),
    ],
    ids=str,
)
async def test_a_bad_redrive_is_refused_by_its_field_and_limit(
    asked: dict[str, object], field: str, limit: float | None
) -> None:
    async with open_api() as api:
        assert (await api.post(f"{ORDERS}/redrive", asked)).is_problem(400, "bad_field", field=field, limit=limit)
