"""The history as a whole over REST: shards, rows of all queues, where to cut, and letting go."""

from typing import Any

import pytest

from penstock.api.rest.history import COLUMNS, QUEUE_COLUMNS
from penstock.api.rest.operations import OPERATIONS
from penstock.api.rest.request import Request, Service
from penstock.broker.access import Access, Caller, Grant, NotAllowed, Role
from tests.api.asgi import ORDERS, open_api
from tests.api.test_history import ARROW, HISTORY, settle_some, table
from tests.broker.brokers import open_broker
from tests.waiting import elapse

WHOLE = "/api/history"
SHARDS, OFFSET, TRIM = (f"{WHOLE}/{name}" for name in ("shards", "offset", "trim"))
OF_ALL = {"list_history_shards", "read_shard_history", "find_history_offset", "trim_history"}


async def test_the_history_of_a_shard_has_rows_of_all_queues_deleted_ones_too() -> None:
    async with open_api(history="full") as api:
        acked, buried, purged = await settle_some(api)
        (shard,) = (await api.get(SHARDS))["shards"]
        await api.delete(ORDERS)
        page = await api.get(WHOLE, shard=0)
        assert (page["first_kept_offset"], page["end_offset"]) == (shard["first_kept_offset"], shard["end_offset"])
        assert page.headers["penstock-next-offset"] == str(page["next_offset"])
        rows = page["rows"]
        assert [row["message_id"] for row in rows] == [acked, buried, purged]
        assert {(row["queue"], row["queue_id"]) for row in rows} == {("orders", "q_1")}
        assert [row["key"] for row in rows] == [int(row["message_id"].partition("-")[2], 16) for row in rows]
        assert [row["data"] for row in rows] == [{"n": 1}, "dead", "purged"]
        offsets = [row["offset"] for row in rows]
        assert offsets == sorted(set(offsets))
        part = await api.get(WHOLE, shard=0, offset=offsets[1], until=offsets[2])
        assert [row["message_id"] for row in part["rows"]] == [buried]
        assert part["next_offset"] == offsets[2]


async def test_an_arrow_stream_of_a_shard_has_the_queue_of_each_row() -> None:
    async with open_api(max_deliveries=1) as api:
        await settle_some(api)
        await api.post("/api/queues/orders.dead/purge")
        await settle_some(api)
        await api.post("/api/queues/orders.dead/purge")
        await elapse(3)
        found = table((await api.get(WHOLE, shard=0, headers=ARROW)).body)
        assert tuple(found.column_names) == COLUMNS
        rows = (await api.get(WHOLE, shard=0))["rows"]
        columns = found.to_pydict()
        for name in ("queue", "key", "offset", "outcome", "priority"):
            assert columns[name] == [row[name] for row in rows]
        assert [f"q_{number:x}" for number in columns["queue_id"]] == [row["queue_id"] for row in rows]
        assert set(columns["queue"]) == {"orders", "orders.dead"}
        # A buried message has a place of its own with the dead letters.
        moved = [(row["message_id"], row["key"]) for row in rows if row["queue"] == "orders.dead"]
        assert moved == [("1-2", 2), ("1-12", 1 << 3 | 2)]


async def test_columns_are_chosen_by_name_and_come_in_that_order() -> None:
    async with open_api() as api:
        await settle_some(api)
        whole = table((await api.get(HISTORY, headers=ARROW)).body)
        assert tuple(whole.column_names) == QUEUE_COLUMNS
        for path, query in ((HISTORY, {}), (WHOLE, {"shard": 0})):
            found = table((await api.get(path, headers=ARROW, columns="outcome,offset,key", **query)).body)
            assert found.equals(whole.select(["outcome", "offset", "key"]))
            assert found.schema.metadata[b"end_offset"] == whole.schema.metadata[b"end_offset"]


async def test_an_empty_part_has_the_columns_of_a_full_one() -> None:
    async with open_api() as api:
        empty = table((await api.get(WHOLE, shard=0, headers=ARROW)).body)
        await settle_some(api)
        full = table((await api.get(WHOLE, shard=0, headers=ARROW)).body)
        assert (empty.num_rows, full.num_rows) == (0, 3)
        assert full.schema.equals(empty.schema)


async def test_offsets_are_found_by_time_and_by_rows() -> None:
    async with open_api() as api:
        await settle_some(api)
        since_s = api.queues.now_ms() / 1_000
        await settle_some(api)
        end = (await api.get(SHARDS))["shards"][0]["end_offset"]
        later = (await api.get(OFFSET, shard=0, since=since_s))["offset"]
        assert 0 < later < end
        assert len((await api.get(WHOLE, shard=0, offset=later))["rows"]) == 3
        assert (await api.get(OFFSET, shard=0, since="2020-01-01T00:00:00Z"))["offset"] == 0
        assert 0 < (await api.get(OFFSET, shard=0, rows=1))["offset"] <= later
        assert (await api.get(OFFSET, shard=0, offset=later, rows=1_000))["offset"] == end


async def test_nothing_is_trimmed_beyond_the_end() -> None:
    async with open_api() as api:
        await settle_some(api)
        end = (await api.get(SHARDS))["shards"][0]["end_offset"]
        refused = await api.post(TRIM, {"shard": 0, "before": end + 1})
        assert refused.is_problem(400, "bad_field", field="before")
        assert (await api.post(TRIM, {"shard": 0, "before": end})).value == {"shard": 0, "first_kept_offset": 0}
        assert len((await api.get(WHOLE, shard=0))["rows"]) == 3


@pytest.mark.parametrize(
    ("path", "query", "field", "limit"),
    [
        (WHOLE, {}, "shard", None),
        (WHOLE, {"shard": -1}, "shard", 0),
        (WHOLE, {"shard": 256}, "shard", 255),
        (WHOLE, {"shard": 0, "until": -1}, "until", 0),
        (WHOLE, {"shard": 0, "until": "x"}, "until", None),
        (WHOLE, {"shard": 0, "limit": 1_001}, "limit", 1_000),
        (WHOLE, {"shard": 0, "since": "soon"}, "since", None),
        (WHOLE, {"shard": 0, "columns": "key"}, "columns", None),
        (HISTORY, {"columns": "key"}, "columns", None),
        (HISTORY, {"shard": 0}, "shard", None),
        (OFFSET, {"shard": 0}, "rows", None),
        (OFFSET, {"shard": 0, "offset": 1}, "rows", None),
        (OFFSET, {"shard": 0, "rows": 0}, "rows", 1),
        (OFFSET, {"shard": 0, "rows": 1, "since": 0}, "since", None),
        (OFFSET, {"rows": 1}, "shard", None),
    ],
    ids=str,
)
async def test_a_bad_question_about_all_of_the_history_is_refused(
    path: str, query: dict[str, Any], field: str, limit: int | None
) -> None:
    async with open_api() as api:
        assert (await api.call("GET", path, query=query)).is_problem(400, "bad_field", field=field, limit=limit)


@pytest.mark.parametrize("columns", ["", "nothing", "key,key", "key,", "key ,offset", "queue"])
async def test_a_column_that_is_not_there_or_named_twice_is_refused(columns: str) -> None:
    async with open_api() as api:
        answer = await api.get(HISTORY, headers=ARROW, columns=columns)
        assert answer.is_problem(400, "bad_field", field="columns")


@pytest.mark.parametrize(
    "body", [{}, {"shard": 0}, {"before": 0}, {"shard": 0, "before": -1}, {"shard": 0, "before": 1, "more": 1}, [], "x"]
)
async def test_a_trim_that_does_not_say_what_it_means_is_refused(body: object) -> None:
    async with open_api() as api:
        assert (await api.post(TRIM, body)).status == 400


async def test_a_shard_that_is_not_there_is_not_found() -> None:
    async with open_api() as api:
        for answer in (
            await api.get(WHOLE, shard=7),
            await api.get(OFFSET, shard=7, rows=1),
            await api.get(OFFSET, shard=7, since=0),
            await api.post(TRIM, {"shard": 7, "before": 0}),
        ):
            assert answer.is_problem(404, "shard_not_found", field="shard")


@pytest.mark.parametrize("name", sorted(OF_ALL))
async def test_a_key_for_some_queues_does_not_see_all_of_the_history(name: str) -> None:
    (operation,) = (each for each in OPERATIONS if each.name == name)
    async with open_broker(has_queue=True) as broker:

        async def receive_body() -> dict[str, Any]:
            return {"type": "http.request", "body": b'{"shard":0,"before":0}'}

        query = b"shard=0&rows=1" if name == "find_history_offset" else b"shard=0"
        scope = {"headers": [(b"content-type", b"application/json")], "query_string": query}
        call = Request(Service(broker.queues, Access.open(), 1_000), scope, receive_body, {})
        # All names that there are now, and yet not all: deleted queues are told of as well.
        call.caller = Caller("some", (Grant(Role.ADMIN, "orders*"), Grant(Role.ADMIN, "o*s")))
        with pytest.raises(NotAllowed, match="all queues"):
            await operation.run(call)
        call.caller = Caller("all", (Grant(operation.role, "**"),))
        assert (await operation.run(call)).status == 200
