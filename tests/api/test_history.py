"""The history over REST: rows of JSON and MessagePack, and columns as an Arrow stream."""

import sys
from typing import Any

import pyarrow  # type: ignore[import-untyped]
import pytest

from tests.api.asgi import ORDERS, Api, bury, open_api, receive, send
from tests.waiting import elapse

HISTORY = f"{ORDERS}/history"
ARROW = {"accept": "application/vnd.apache.arrow.stream"}


async def settle_some(api: Api) -> list[str]:
    """Ack one, bury one and purge one, and wait until the history tells of them."""
    (acked,) = await send(api, {"n": 1}, priority="HIGH", group="g", attributes={"a": "b"})
    (taken,) = await receive(api)
    await elapse(2)
    await api.post(f"{ORDERS}/ack", {"receipts": [taken["receipt"]]})
    (buried,) = await bury(api, "dead")
    (purged,) = await send(api, "purged")
    await api.post(f"{ORDERS}/purge")
    await elapse(3)
    return [acked, buried, purged]


def table(body: bytes) -> Any:
    return pyarrow.ipc.open_stream(body).read_all()


async def test_the_history_has_a_row_for_each_settled_message() -> None:
    async with open_api(history="full") as api:
        acked, buried, purged = await settle_some(api)
        page = await api.get(HISTORY)
        first, second, third = page["rows"]
        assert (first["message_id"], first["outcome"], first["data"]) == (acked, "acked", {"n": 1})
        assert (first["priority"], first["sent_priority"], first["group"]) == ("HIGH", "HIGH", "g")
        assert (first["attributes"], first["delivery_count"]) == ({"content_type": "application/json", "a": "b"}, 1)
        assert first["sent_at"] <= first["first_received_at"] == first["last_received_at"] < first["settled_at"]
        assert (second["message_id"], second["outcome"], second["last_error"]) == (buried, "buried", "boom")
        assert (third["message_id"], third["outcome"], third["first_received_at"]) == (purged, "purged", None)
        assert page["next_offset"] == page["end_offset"] > page["first_kept_offset"]
        assert page.headers["penstock-next-offset"] == str(page["next_offset"])


async def test_a_history_of_facts_has_no_bodies_and_one_that_is_off_no_rows() -> None:
    async with open_api() as api:
        await settle_some(api)
        assert all("data" not in row for row in (await api.get(HISTORY))["rows"])
    async with open_api(history="off") as api:
        await settle_some(api)
        assert (await api.get(HISTORY))["rows"] == []


async def test_the_history_goes_on_from_an_offset() -> None:
    async with open_api() as api:
        ids = await settle_some(api)
        found: list[str] = []
        offset = 0
        for _ in range(3):
            page = await api.get(HISTORY, offset=offset, limit=1)
            found += [row["message_id"] for row in page["rows"]]
            offset = page["next_offset"]
        assert found == ids
        end = await api.get(HISTORY, offset=offset)
        assert (end["rows"], end["next_offset"]) == ([], offset)


async def test_the_history_begins_at_a_time() -> None:
    async with open_api() as api:
        await settle_some(api)
        since_ms = api.queues.now_ms()
        _, *later = await settle_some(api)
        for since in (since_ms / 1_000, "2023-11-14T22:13:00Z"):
            page = await api.get(HISTORY, since=since)
            assert {row["message_id"] for row in page["rows"]} >= set(later)
        page = await api.get(HISTORY, since=since_ms / 1_000)
        assert len(page["rows"]) == 3


@pytest.mark.parametrize(
    ("query", "field", "limit"),
    [
        ({"limit": 0}, "limit", 1),
        ({"limit": 1_001}, "limit", 1_000),
        ({"limit": 65_537}, "limit", 65_536),
        ({"offset": -1}, "offset", 0),
        ({"offset": "x"}, "offset", None),
        ({"since": "yesterday"}, "since", None),
        ({"since": "nan"}, "since", None),
        ({"since": -5}, "since", None),
        ({"from": 1}, "from", None),
    ],
    ids=str,
)
async def test_a_bad_question_about_the_history_is_refused(
    query: dict[str, object], field: str, limit: int | None
) -> None:
    async with open_api() as api:
        answer = await api.call("GET", HISTORY, query=query)
        assert answer.is_problem(400, "bad_field", field=field, limit=limit)


async def test_the_history_travels_in_messagepack() -> None:
    async with open_api(history="full") as api:
        await settle_some(api)
        rows = (await api.msgpack("GET", HISTORY)).value["rows"]
        assert [row["data"] for row in rows] == [b'{"n":1}', b"dead", b"purged"]


async def test_the_history_is_an_arrow_stream_on_request() -> None:
    async with open_api(history="full") as api:
        ids = await settle_some(api)
        rows = (await api.get(HISTORY))["rows"]
        answer = await api.get(HISTORY, headers=ARROW, limit=65_536)
        assert answer.status == 200
        assert answer.headers["content-type"] == "application/vnd.apache.arrow.stream"
        found = table(answer.body)
        assert found.schema.metadata[b"next_offset"].decode() == answer.headers["penstock-next-offset"]
        columns = found.to_pydict()
        names = zip(columns["first_queue"], columns["number"], columns["sent_tier"], strict=True)
        assert [f"{queue:x}-{number << 3 | tier:x}" for queue, number, tier in names] == ids
        for name in ("outcome", "priority", "sent_priority", "delivery_count"):
            assert columns[name] == [row[name] for row in rows]
        assert columns["data"] == [b'{"n":1}', b"dead", b"purged"]
        assert columns["group"] == [b"g", b"", b""]
        assert columns["error"] == ["", "boom", ""]
        assert columns["attributes"][0] == '{"content_type":"application/json","a":"b"}'
        for name in ("sent_at", "first_received_at", "last_received_at", "settled_at"):
            shown = [at and at.isoformat(timespec="milliseconds").replace("+00:00", "Z") for at in columns[name]]
            assert shown == [row[name] for row in rows]


async def test_an_arrow_stream_of_facts_and_of_nothing_has_the_same_columns() -> None:
    async with open_api() as api:
        empty = table((await api.get(HISTORY, headers=ARROW)).body)
        assert empty.num_rows == 0
        await settle_some(api)
        facts = table((await api.get(HISTORY, headers=ARROW)).body)
        assert facts.num_rows == 3
        assert facts.schema.equals(empty.schema)
        assert facts.to_pydict()["data"] == [None, None, None]


async def test_a_server_without_arrow_answers_406_and_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("penstock.api.rest.arrows", "penstock.history_arrow"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    async with open_api() as api:
        answer = await api.get(HISTORY, headers=ARROW)
        assert answer.is_problem(406, "not_acceptable", field="Accept")
        assert "penstock[arrow]" in answer["detail"]
        assert (await api.get(HISTORY)).status == 200
