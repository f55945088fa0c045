"""Everything that is in a queue, over REST: JSON, MessagePack and columns as an Arrow stream."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.api.rest.inspect import LIVE_BODIES, LIVE_COLUMNS
from tests.api.asgi import ORDERS, Api, bury, open_api, receive, send
from tests.api.test_history import ARROW, table
from tests.simulation.loop import simulate

LIVE = f"{ORDERS}/live"


async def furnish(api: Api) -> list[str]:
    """Let one be received, one wait, one rest and one be buried, of three tiers; return all but the last."""
    await bury(api, "dead")
    (urgent,) = await send(api, {"n": 1}, priority="CRITICAL", group="g", attributes={"a": "b"})
    await receive(api)
    (resting,) = await send(api, "resting", delay_s=1_000)
    (low,) = await send(api, "low", priority="LOW")
    return [urgent, resting, low]


async def test_a_page_shows_what_is_in_a_queue_and_what_it_has_looked_at() -> None:
    async with open_api() as api:
        ids = await furnish(api)
        page = await api.get(LIVE)
        urgent, resting, low = page["messages"]
        assert [each["message_id"] for each in page["messages"]] == ids
        assert (urgent["state"], urgent["group"], urgent["data"]) == ("in_flight", "g", {"n": 1})
        assert urgent["attributes"] == {"content_type": "application/json", "a": "b"}
        assert (resting["state"], resting["key"], resting["delivery_count"]) == ("delayed", 1 << 3 | 2, 0)
        assert (low["state"], low["priority"], low["sent_priority"]) == ("ready", "LOW", "LOW")
        assert (page["queue"], page["queue_id"], page["next_cursor"], page["shard"]) == ("orders", "q_1", None, 0)
        assert page["next_numbers"] == [1, 0, 2, 1, 0]
        assert page["ranges"] == [
            {"tier": tier, "first": 0, "end": end} for tier, end in enumerate(page["next_numbers"])
        ]
        assert page["history_offset"] is None
        (dead,) = (await api.get("/api/queues/orders.dead/live"))["messages"]
        assert (dead["message_id"], dead["key"], dead["last_error"], dead["delivery_count"]) == ("1-2", 2, "boom", 1)


async def test_pages_join_and_may_leave_bodies_out() -> None:
    async with open_api() as api:
        ids = await furnish(api)
        found: list[dict[str, Any]] = []
        cursor = ""
        for _ in ids:
            page = await api.get(LIVE, limit=1, cursor=cursor, bodies="false")
            found += page["messages"]
            cursor = page["next_cursor"]
        assert [each["message_id"] for each in found] == ids
        assert all("data" not in each for each in found)


async def test_what_is_settled_before_a_look_is_told_of_below_its_offset() -> None:
    async with open_api() as api:
        await furnish(api)
        await api.post(f"{ORDERS}/purge")
        page = await api.get(LIVE, told="true")
        settled = await api.get("/api/history", shard=page["shard"], until=page["history_offset"])
        assert page["messages"] == []
        assert sorted(row["outcome"] for row in settled["rows"]) == ["buried", "purged", "purged", "purged"]


async def test_what_is_in_a_queue_is_an_arrow_stream_on_request() -> None:
    async with open_api() as api:
        ids = await furnish(api)
        plain = await api.get(LIVE)
        found = table((await api.get(LIVE, headers=ARROW, limit=65_536, told="true")).body)
        assert tuple(found.column_names) == (*LIVE_COLUMNS, *LIVE_BODIES)
        columns = found.to_pydict()
        names = zip(columns["first_queue"], columns["number"], columns["sent_tier"], strict=True)
        assert [f"{queue:x}-{number << 3 | tier:x}" for queue, number, tier in names] == ids
        for name in ("key", "state", "priority", "delivery_count"):
            assert columns[name] == [row[name] for row in plain["messages"]]
        assert columns["data"] == [b'{"n":1}', b"resting", b"low"]
        assert columns["attributes"] == ['{"content_type":"application/json","a":"b"}', None, None]
        assert columns["group"] == [b"g", b"", b""]
        assert set(columns["queue"]) == {"orders"}
        said = {name.decode(): value.decode() for name, value in found.schema.metadata.items()}
        assert json.loads(said["next_numbers"]) == plain["next_numbers"]
        assert json.loads(said["ranges"]) == [[tier, 0, end] for tier, end in enumerate(plain["next_numbers"])]
        assert (said["next_cursor"], said["shard"], said["queue_id"]) == ("", "0", "1")
        assert int(said["seen_at"]) > 0
        assert int(said["history_offset"]) > 0


async def test_an_arrow_stream_of_nothing_has_the_columns_of_one_of_something() -> None:
    async with open_api() as api:
        empty = table((await api.get(LIVE, headers=ARROW)).body)
        await send(api, "a")
        some = table((await api.get(LIVE, headers=ARROW)).body)
        assert (empty.num_rows, some.num_rows) == (0, 1)
        assert some.schema.equals(empty.schema)
        few = table((await api.get(LIVE, headers=ARROW, columns="key,state", bodies="false")).body)
        assert few.to_pydict() == {"key": [2], "state": ["ready"]}


@pytest.mark.parametrize(
    ("query", "field", "limit"),
    [
        ({"limit": 0}, "limit", 1),
        ({"limit": 1_001}, "limit", 1_000),
        ({"limit": 65_537}, "limit", 65_536),
        ({"cursor": "x"}, "cursor", None),
        ({"cursor": "-8"}, "cursor", None),
        ({"cursor": "7"}, "cursor", None),
        ({"cursor": "9" * 20}, "cursor", 19),
        ({"bodies": "maybe"}, "bodies", None),
        ({"columns": "key"}, "columns", None),
        ({"after": ""}, "after", None),
    ],
    ids=str,
)
async def test_a_bad_question_about_what_is_there_is_refused(
    query: dict[str, object], field: str, limit: int | None
) -> None:
    async with open_api() as api:
        assert (await api.call("GET", LIVE, query=query)).is_problem(400, "bad_field", field=field, limit=limit)


async def test_bodies_that_were_left_out_are_no_columns() -> None:
    async with open_api() as api:
        answer = await api.get(LIVE, headers=ARROW, bodies="false", columns="data")
        assert answer.is_problem(400, "bad_field", field="columns")
        missing = await api.get("/api/queues/nowhere/live")
        assert missing.is_problem(404, "queue_not_found")


@given(cursor=st.text(max_size=19))
def test_any_text_is_a_place_to_go_on_or_refused(cursor: str) -> None:
    async def story() -> None:
        async with open_api() as api:
            await send(api, "a")
            assert (await api.get(LIVE, cursor=cursor)).status in {200, 400}

    simulate(story, seed=0)
