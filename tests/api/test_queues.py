"""Queues over REST: made, listed, described, changed, paused, purged and deleted."""

import asyncio
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from penstock.wire.queue_settings import Tiers
from penstock.wire.queues import CreateQueue
from penstock.wire.topics import CreateTopic
from penstock.wire.words import CHOICES
from tests.api.asgi import ORDERS, Api, bury, open_api, receive, send
from tests.waiting import elapse

QUEUES = "/api/queues"


async def make(api: Api, name: str, **settings: object) -> Any:
    answer = await api.post(QUEUES, {"queue_name": name, **settings})
    assert answer.status == 201, answer
    return answer.value


async def test_a_new_queue_is_answered_with_201_and_all_its_settings() -> None:
    async with open_api() as api:
        answer = await api.post(QUEUES, {"queue_name": "mail"})
        assert answer.status == 201
        view = answer.value
        assert answer.headers["location"] == f"{QUEUES}/{view['queue_id']}"
        assert view["queue_id"].startswith("q_")
        assert (view["queue_name"], view["visibility_timeout"], view["max_deliveries"]) == ("mail", 30, 5)
        assert (view["queue_size"], view["delay_s"], view["fifo"], view["paused"]) == (0, 0, False, False)
        assert (view["dead_letter_queue"], view["dlq_id"]) == ("mail.dead", None)
        assert (view["retention_s"], view["dedup"], view["dedup_window_s"]) == (0, "live", 300)
        assert view["tiers"] == {
            "mode": "weighted",
            "weights": [16, 8, 4, 2, 1],
            "aging_s": [0, 0, 0, 1800, 3600],
            "reserve_percent": [0, 0, 0, 0, 0],
        }
        assert view["retry"] == {"min_backoff_s": 1, "max_backoff_s": 900, "jitter": True}
        assert (view["max_message_bytes"], view["history"]) == (1_048_576, "facts")
        assert view["current_message_count"] == 0
        assert [tier["priority"] for tier in view["by_tier"]] == ["CRITICAL", "HIGH", "NORMAL", "LOW", "BACKGROUND"]


async def test_making_a_queue_again_with_equal_settings_answers_200_and_the_same_id() -> None:
    async with open_api() as api:
        first = await make(api, "mail", visibility_timeout=10)
        again = await api.post(QUEUES, {"queue_name": "mail", "visibility_timeout": 10})
        assert (again.status, again["queue_id"]) == (200, first["queue_id"])


async def test_making_a_queue_again_with_other_settings_answers_409_and_says_which() -> None:
    async with open_api() as api:
        await make(api, "mail", visibility_timeout=10)
        other = await api.post(QUEUES, {"queue_name": "mail", "visibility_timeout": 11})
        assert other.is_problem(409, "queue_exists", field="visibility_timeout")


async def test_what_another_front_end_keeps_with_a_queue_is_no_reason_to_refuse_making_it_again() -> None:
    async with open_api() as api:
        await api.queues.change("orders", lambda settings: replace(settings, labels='{"tags":{"team":"red"}}'))
        assert (await api.post("/api/queues", {"queue_name": "orders"})).status == 200
        await api.patch("/api/queues/orders", {"delay_s": 1})
        assert (await api.queues.placement.of("orders").describe("orders")).settings.labels == '{"tags":{"team":"red"}}'


async def test_of_many_who_make_a_queue_at_once_one_makes_it() -> None:
    async with open_api() as api, asyncio.TaskGroup() as tasks:
        making = [tasks.create_task(api.post(QUEUES, {"queue_name": "mail"})) for _ in range(10)]
        answers = [await each for each in making]
        assert sorted(answer.status for answer in answers) == [200] * 9 + [201]
        assert len({answer["queue_id"] for answer in answers}) == 1


async def test_every_setting_can_be_given_and_comes_back() -> None:
    given = {
        "queue_size": 1_000,
        "visibility_timeout": 12.5,
        "max_deliveries": 0,
        "dead_letter_queue": "graves",
        "retention_s": 0,
        "delay_s": 0.25,
        "fifo": True,
        "dedup": "content",
        "dedup_window_s": 60,
        "tiers": {
            "mode": "strict",
            "weights": [5, 4, 3, 2, 1],
            "aging_s": [0, 1, 2, 3, 4.5],
            "reserve_percent": [0, 2, 5, 10, 99],
        },
        "retry": {"min_backoff_s": 0, "max_backoff_s": 1.5, "jitter": False},
        "max_message_bytes": 100,
        "alert_dead_letters": 1,
        "history": "full",
        "paused": True,
    }
    async with open_api() as api:
        view = await make(api, "mail", **given)
        assert {name: view[name] for name in given} == given
        # What a queue says of itself can be sent back as it is.
        assert (await api.post(QUEUES, {"queue_name": "mail", **{name: view[name] for name in given}})).status == 200
        assert (await api.patch(f"{QUEUES}/mail", {name: view[name] for name in given})).status == 200


async def test_weights_are_ratios_and_become_whole_numbers() -> None:
    async with open_api() as api:
        view = await make(api, "mail", tiers={"weights": [8, 4, 2, 1, 0.5]})
        assert view["tiers"]["weights"] == [16, 8, 4, 2, 1]
        uneven = await api.post(QUEUES, {"queue_name": "more", "tiers": {"weights": [1000, 1, 1, 1, 0.001]}})
        assert uneven.is_problem(400, "bad_field", field="tiers.weights", limit=1_000)


@pytest.mark.parametrize("seconds", [0.001, 43_200])
async def test_a_visibility_timeout_may_be_up_to_43200_seconds(seconds: float) -> None:
    async with open_api() as api:
        view = await make(api, "mail", visibility_timeout=seconds)
        assert view["visibility_timeout"] == seconds


@pytest.mark.parametrize("seconds", [0, 0.0004, -1])
async def test_a_visibility_timeout_of_0_is_refused_with_the_rule_in_words(seconds: float) -> None:
    async with open_api() as api:
        answer = await api.post(QUEUES, {"queue_name": "mail", "visibility_timeout": seconds})
        assert answer.is_problem(400, "bad_field", field="visibility_timeout", limit=0.001)
        assert answer["detail"] == "visibility_timeout: it has to be at least 0.001"
        assert (await api.get(f"{QUEUES}/mail")).status == 404


@pytest.mark.parametrize("name", ["a b", ".a", "q_1", "a/b", "é"])
async def test_a_bad_name_is_refused_with_the_rule_in_words(name: str) -> None:
    async with open_api() as api:
        for said, field in (
            ({"queue_name": name}, "queue_name"),
            ({"queue_name": "mail", "dead_letter_queue": name}, "dead_letter_queue"),
        ):
            answer = await api.post(QUEUES, said)
            assert answer.is_problem(400, "bad_field", field=field)
            assert "A-Z a-z 0-9 _ - and dots" in answer["detail"]
            assert "regex" not in answer["detail"]


@pytest.mark.parametrize(
    ("said", "detail"),
    [
        ({}, "queue_name: it is missing"),
        ({"queue_name": 5}, "queue_name: it has to be text, not a whole number"),
        ({"queue_name": "mail", "fifo": "true"}, "fifo: it has to be true or false, not text"),
        ({"queue_name": "mail", "colour": 1}, "colour: there is no such field"),
        ({"queue_name": "mail", "queue_size": 2**41}, "queue_size: it has to be at most 1099511627776"),
        ({"queue_name": "mail", "retention_s": 1e12}, "retention_s: it has to be at most 31622400"),
        ({"queue_name": "mail", "dedup": "odd"}, "dedup: it is one of live, window, content, not 'odd'"),
        ({"queue_name": "mail", "tiers": {"mode": "odd"}}, "tiers.mode: it is one of weighted, strict, not 'odd'"),
        ({"queue_name": "mail", "tiers": {"weights": [1]}}, "tiers.weights: it has at least 5 elements"),
    ],
)
async def test_a_field_that_cannot_be_is_named_with_its_rule(said: dict[str, Any], detail: str) -> None:
    async with open_api() as api:
        answer = await api.post(QUEUES, said)
        assert (answer.status, answer["code"], answer["field"]) == (400, "bad_field", detail.partition(":")[0])
        assert answer["detail"] == detail


def test_every_field_with_choices_says_them() -> None:
    fields = [field for struct in (CreateQueue, Tiers, CreateTopic) for field in msgspec.structs.fields(struct)]
    assert {field.name for field in fields if "Literal" in str(field.type)} == CHOICES.keys() - {"state"}


async def test_who_gives_a_window_without_a_scope_chooses_the_window() -> None:
    async with open_api() as api:
        assert (await make(api, "mail", dedup_window_s=60))["dedup"] == "window"
        assert (await make(api, "post"))["dedup"] == "live"
        assert (await api.patch(f"{QUEUES}/post", {"dedup_window_s": 60}))["dedup"] == "window"
        view = await make(api, "both", dedup="live", dedup_window_s=60)
        assert view["dedup"] == "live"


BAD_SETTINGS: list[tuple[dict[str, object], str, float | None]] = [
    ({"visibility_timeout": -1}, "visibility_timeout", 0.001),
    ({"visibility_timeout": 43_201}, "visibility_timeout", 43_200),
    ({"visibility_timeout": "30"}, "visibility_timeout", None),
    ({"queue_size": -1}, "queue_size", 0),
    ({"queue_size": 1.5}, "queue_size", None),
    ({"max_deliveries": 10_001}, "max_deliveries", 10_000),
    ({"retention_s": 366 * 86_400 + 1}, "retention_s", 366 * 86_400),
    ({"delay_s": -0.1}, "delay_s", 0),
    ({"dedup_window_s": 0}, "dedup_window_s", 0.001),
    ({"dedup": "always"}, "dedup", None),
    ({"history": "some"}, "history", None),
    ({"fifo": 1}, "fifo", None),
    ({"max_message_bytes": 0}, "max_message_bytes", 1),
    ({"max_message_bytes": 2**20 + 1}, "max_message_bytes", 2**20),
    ({"tiers": {"mode": "fair"}}, "tiers.mode", None),
    ({"tiers": {"weights": [1, 2, 3]}}, "tiers.weights", 5),
    ({"tiers": {"weights": [1, 2, 3, 4, 0]}}, "tiers.weights[4]", 0.001),
    ({"tiers": {"aging_s": [1] * 6}}, "tiers.aging_s", 5),
    ({"tiers": {"reserve_percent": [0] * 4}}, "tiers.reserve_percent", 5),
    ({"tiers": {"reserve_percent": [0, 0, 0, 0, 100]}}, "tiers.reserve_percent[4]", 99),
    ({"tiers": {"wieghts": [1] * 5}}, "tiers.wieghts", None),
    ({"retry": {"min_backoff_s": -1}}, "retry.min_backoff_s", 0),
    ({"retry": {"jitter": "yes"}}, "retry.jitter", None),
    ({"visibilty_timeout": 30}, "visibilty_timeout", None),
    ({"dead_letter_queue": "a/b"}, "dead_letter_queue", None),
    ({"dead_letter_queue": ".hidden"}, "dead_letter_queue", None),
    ({"dead_letter_queue": "mail"}, "dead_letter_queue", None),
    ({"queue_size": None}, "queue_size", None),
]


@pytest.mark.parametrize(("settings", "field", "limit"), BAD_SETTINGS, ids=lambda each: str(each)[:50])
async def test_a_bad_setting_is_refused_by_its_name_and_its_limit(
    settings: dict[str, object], field: str, limit: float | None
) -> None:
    async with open_api() as api:
        answer = await api.post(QUEUES, {"queue_name": "mail", **settings})
        assert answer.is_problem(400, "bad_field", field=field, limit=limit)
        assert (await api.get(f"{QUEUES}/mail")).status == 404


@pytest.mark.parametrize("name", ["", "a b", "a/b", ".a", "q_1", "ä", "a" * 81, "a" * 86, ".dead"])
async def test_a_bad_name_is_refused(name: str) -> None:
    async with open_api() as api:
        answer = await api.post(QUEUES, {"queue_name": name})
        assert (answer.status, answer["code"], answer["field"]) == (400, "bad_field", "queue_name")


async def test_a_name_is_needed_to_make_a_queue() -> None:
    async with open_api() as api:
        assert (await api.post(QUEUES, {})).is_problem(400, "bad_field", field="queue_name")


async def test_a_queue_for_dead_letters_buries_only_where_it_is_told() -> None:
    async with open_api() as api:
        view = await make(api, "mail.dead")
        assert (view["max_deliveries"], view["dead_letter_queue"]) == (0, None)
        assert (await make(api, "post.dead", dead_letter_queue=None))["max_deliveries"] == 0
        refused = await api.post(QUEUES, {"queue_name": "x.dead", "max_deliveries": 5})
        assert refused.is_problem(400, "bad_field", field="max_deliveries")
        changed = await api.patch(f"{QUEUES}/mail.dead", {"max_deliveries": 5})
        assert changed.is_problem(400, "bad_field", field="max_deliveries")
        told = await make(api, "y.dead", max_deliveries=5, dead_letter_queue="deeper")
        assert (told["max_deliveries"], told["dead_letter_queue"]) == (5, "deeper")


async def test_queues_are_listed_by_prefix_and_page() -> None:
    async with open_api() as api:
        for each in range(7):
            await make(api, f"mail-{each}")
        first = await api.get(QUEUES, prefix="mail", limit=5)
        assert [row["queue_name"] for row in first["queues"]] == [f"mail-{each}" for each in range(5)]
        rest = await api.get(QUEUES, prefix="mail", limit=5, cursor=first["next_cursor"])
        assert [row["queue_name"] for row in rest["queues"]] == ["mail-5", "mail-6"]
        assert rest["next_cursor"] is None
        assert [row["queue_name"] for row in (await api.get(QUEUES))["queues"]][-1] == "orders"


async def test_a_listed_queue_says_what_is_in_it() -> None:
    async with open_api() as api:
        await send(api, "a", "b", "c")
        await receive(api, 1)
        await send(api, "later", delay_s=60)
        await elapse(2)
        (row,) = (await api.get(QUEUES))["queues"]
        assert (row["current_message_count"], row["ready"], row["in_flight"], row["delayed"]) == (4, 2, 1, 1)
        assert 2 <= row["oldest_age_s"] < 3
        assert row["totals"] == {"sent": 4, "received": 1, "acked": 0, "released": 0}


@pytest.mark.parametrize(
    ("query", "field", "limit"),
    [
        ({"limit": 0}, "limit", 1),
        ({"limit": 1_001}, "limit", 1_000),
        ({"limit": "x"}, "limit", None),
        ({"a": 1}, "a", None),
    ],
)
async def test_a_bad_query_of_a_list_is_refused(query: dict[str, object], field: str, limit: int | None) -> None:
    async with open_api() as api:
        assert (await api.call("GET", QUEUES, query=query)).is_problem(400, "bad_field", field=field, limit=limit)


async def test_a_parameter_that_is_given_twice_is_refused() -> None:
    async with open_api() as api:
        answer = await api.raw("GET", QUEUES, query_string=b"limit=1&limit=2")
        assert answer.is_problem(400, "bad_field", field="limit")
        assert (await api.raw("GET", QUEUES, query_string=b"prefix=%ff")).is_problem(400, "bad_request")


async def test_a_list_does_not_fail_for_a_queue_that_is_deleted_meanwhile() -> None:
    async with open_api() as api:
        for each in range(50):
            await make(api, f"mail-{each:02}")
        async with asyncio.TaskGroup() as tasks:
            listing = [tasks.create_task(api.get(QUEUES, prefix="mail")) for _ in range(3)]
            deleting = [tasks.create_task(api.delete(f"{QUEUES}/mail-{each:02}")) for each in range(50)]
            listing += [tasks.create_task(api.get(QUEUES, prefix="mail")) for _ in range(10)]
        assert {each.result().status for each in listing + deleting} == {200}


async def test_a_queue_is_known_by_its_name_and_by_its_id() -> None:
    async with open_api() as api:
        view = (await api.get(ORDERS)).value
        assert (await api.get(f"{QUEUES}/{view['queue_id']}"))["queue_name"] == "orders"
        sent = await api.post(f"{QUEUES}/{view['queue_id']}/messages", {"data": "a"})
        assert sent.status == 201
        assert [each["data"] for each in await receive(api, queue=view["queue_id"])] == ["a"]
        assert (await api.patch(f"{QUEUES}/{view['queue_id']}", {"paused": True}))["paused"] is True
        assert (await api.delete(f"{QUEUES}/{view['queue_id']}"))["queue_name"] == "orders"


@pytest.mark.parametrize("queue", ["nowhere", "q_ffff", "q_", "q_zz", "ORDERS", "%2e%2e"])
@pytest.mark.parametrize(("method", "verb"), [("GET", ""), ("PATCH", ""), ("DELETE", ""), ("POST", "/purge")])
async def test_a_queue_that_is_not_there_is_answered_with_404(queue: str, method: str, verb: str) -> None:
    async with open_api() as api:
        answer = await api.call(method, f"{QUEUES}/{queue}{verb}", {} if method == "PATCH" else None)
        assert answer.is_problem(404, "queue_not_found")


async def test_the_dead_letters_have_no_id_until_the_first_is_buried() -> None:
    async with open_api() as api:
        assert (await api.get(ORDERS))["dlq_id"] is None
        await bury(api, "a")
        grave = (await api.get(f"{QUEUES}/orders.dead")).value
        assert (await api.get(ORDERS))["dlq_id"] == grave["queue_id"]
        assert grave["current_message_count"] == 1
        assert (grave["max_deliveries"], grave["dead_letter_queue"]) == (0, None)


async def test_counts_and_ages_are_told_by_priority() -> None:
    async with open_api() as api:
        await send(api, "a", "b", priority="HIGH")
        await elapse(3)
        await send(api, "c", priority=4)
        tiers = (await api.get(ORDERS))["by_tier"]
        assert [tier["ready"] for tier in tiers] == [0, 2, 0, 0, 1]
        assert 3 <= tiers[1]["oldest_age_s"] < 4
        assert tiers[4]["oldest_age_s"] < 1
        assert tiers[0]["oldest_age_s"] is None
        assert all(tier["worst_wait_messages"] >= 0 for tier in tiers)


async def test_a_change_leaves_what_it_does_not_name() -> None:
    async with open_api(visibility_timeout=7, max_deliveries=9) as api:
        view = (await api.patch(ORDERS, {"max_deliveries": 2, "retry": {"jitter": False}})).value
        assert (view["visibility_timeout"], view["max_deliveries"]) == (7, 2)
        assert view["retry"] == {"min_backoff_s": 1, "max_backoff_s": 900, "jitter": False}
        assert (await api.get(ORDERS))["max_deliveries"] == 2


async def test_two_who_change_a_queue_at_once_lose_nothing_of_each_other() -> None:
    async with open_api() as api:
        async with asyncio.TaskGroup() as tasks:
            for name, value in {"visibility_timeout": 5, "max_deliveries": 7, "delay_s": 2, "queue_size": 11}.items():
                tasks.create_task(api.patch(ORDERS, {name: value}))
        view = (await api.get(ORDERS)).value
        found = (view["visibility_timeout"], view["max_deliveries"], view["delay_s"], view["queue_size"])
        assert found == (5, 7, 2, 11)


@pytest.mark.parametrize(
    ("settings", "field", "limit"),
    [
        ({"fifo": True}, "fifo", None),
        ({"visibility_timeout": 43_201}, "visibility_timeout", 43_200),
        ({"queue_name": "other"}, "queue_name", None),
        ({"dead_letter_queue": "orders"}, "dead_letter_queue", None),
    ],
)
async def test_a_bad_change_is_refused_and_changes_nothing(
    settings: dict[str, object], field: str, limit: float | None
) -> None:
    async with open_api() as api:
        before = (await api.get(ORDERS)).value
        answer = await api.patch(ORDERS, {"max_deliveries": 3, **settings})
        assert answer.is_problem(400, "bad_field", field=field, limit=limit)
        assert (await api.get(ORDERS)).value == before


async def test_a_paused_queue_takes_messages_and_hands_none_out_until_it_is_resumed() -> None:
    async with open_api() as api:
        await api.patch(ORDERS, {"paused": True})
        await send(api, "a")
        assert await receive(api) == []
        await api.patch(ORDERS, {"paused": False})
        assert [each["data"] for each in await receive(api)] == ["a"]


async def test_a_purge_settles_everything_in_a_queue() -> None:
    async with open_api() as api:
        await send(api, "a", "b", "c")
        await send(api, "d", delay_s=60)
        await receive(api, 1)
        assert (await api.post(f"{ORDERS}/purge")).value == {"purged": 4}
        assert (await api.get(ORDERS))["current_message_count"] == 0
        assert (await api.post(f"{ORDERS}/purge")).value == {"purged": 0}


async def test_a_deleted_queue_is_gone_and_its_dead_letters_stay() -> None:
    async with open_api() as api:
        await bury(api, "a", "b")
        view = (await api.get(ORDERS)).value
        deleted = await api.delete(ORDERS)
        assert deleted.value == {
            "queue_id": view["queue_id"],
            "queue_name": "orders",
            "deleted": True,
            "dead_letter_queue": "orders.dead",
            "dead_letters": 2,
            "dead_letters_deleted": False,
        }
        assert (await api.get(ORDERS)).is_problem(404, "queue_not_found")
        assert (await api.get(f"{QUEUES}/{view['queue_id']}")).is_problem(404, "queue_not_found")
        assert (await api.get(f"{QUEUES}/orders.dead"))["current_message_count"] == 2
        # A new one of the name is another queue, with nothing of the old.
        again = await make(api, "orders")
        assert again["queue_id"] != view["queue_id"]
        assert again["totals"] == {"sent": 0, "received": 0, "acked": 0, "released": 0}


async def test_a_queue_can_be_deleted_with_its_dead_letters() -> None:
    async with open_api() as api:
        await bury(api, "a")
        deleted = await api.delete(ORDERS, with_dead_letters="true")
        assert (deleted["dead_letters"], deleted["dead_letters_deleted"]) == (1, True)
        assert (await api.get(f"{QUEUES}/orders.dead")).is_problem(404, "queue_not_found")


async def test_dead_letters_that_others_share_do_not_go_with_one_of_them() -> None:
    async with open_api(dead_letter_queue="graves") as api:
        await make(api, "mail", dead_letter_queue="graves")
        await bury(api, "a")
        refused = await api.delete(ORDERS, with_dead_letters="true")
        assert refused.is_problem(409, "dead_letters_shared")
        assert (await api.get(ORDERS)).status == 200
        assert (await api.delete(ORDERS)).status == 200


async def test_when_a_group_is_noisy_can_be_set_and_is_shown() -> None:
    async with open_api() as api:
        view = await make(api, "mail", tenants={"noisy_percent": 20, "noisy_in_flight": 5})
        assert view["tenants"] == {"noisy_percent": 20, "noisy_in_flight": 5, "noisy_time_percent": 10}
        changed = await api.patch(f"{QUEUES}/mail", {"tenants": {"noisy_time_percent": 100}})
        assert changed["tenants"] == {"noisy_percent": 20, "noisy_in_flight": 5, "noisy_time_percent": 100}
        assert (await api.post(QUEUES, {"queue_name": "mail", "tenants": view["tenants"]})).status == 409
        for wrong in ({"noisy_percent": 0}, {"noisy_in_flight": 0}, {"noisy_time_percent": 101}, {"quiet": 1}):
            assert (await api.patch(f"{QUEUES}/mail", {"tenants": wrong})).status == 400
