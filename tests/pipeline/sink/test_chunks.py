"""Columns and chunks of a write: what Arrow has becomes frames, and the same rows become the same chunks."""

import json
from datetime import UTC, datetime
from decimal import Decimal
from itertools import pairwise
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.pipeline.sink.chunks import Chunk, chunks_of, windows_of
from penstock.pipeline.sink.columns import BadRow, NotAttributes, check_nested, json_of, read_batch
from penstock.wire.frames import decode_send


def batch(**columns: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(columns)


def chunks(*batches: pa.RecordBatch, rows_max: int = 1_000, queue: str = "orders") -> list[Chunk]:
    return list(chunks_of([read_batch(each, 0) for each in batches], queue=queue, rows_max=rows_max))


@given(
    sizes=st.lists(st.integers(0, 40), min_size=1, max_size=60),
    cuts=st.lists(st.integers(0, 60), max_size=8),
    rows_max=st.integers(1, 20),
)
def test_chunks_end_where_the_rows_say_and_not_where_arrow_cut_them(
    sizes: list[int], cuts: list[int], rows_max: int
) -> None:
    whole = batch(data=pa.array([bytes([at % 251]) * size for at, size in enumerate(sizes)], pa.binary()))
    places = sorted({0, len(sizes), *(cut for cut in cuts if cut < len(sizes))})
    pieces = [whole.slice(start, end - start) for start, end in pairwise(places)]

    at_once = list(windows_of([whole], rows_max=rows_max, bytes_max=300))
    in_pieces = list(windows_of(pieces, rows_max=rows_max, bytes_max=300))

    assert [window.to_pydict() for window in in_pieces] == [window.to_pydict() for window in at_once]
    assert [row for window in at_once for row in window.to_pydict()["data"]] == whole.to_pydict()["data"]
    assert all(1 <= window.num_rows <= rows_max for window in at_once)
    digests = [chunk.digest for chunk in chunks(*pieces, rows_max=rows_max)]
    assert digests == [chunk.digest for chunk in chunks(whole, rows_max=rows_max)]


def test_a_chunk_has_no_more_bytes_than_a_request_may_have() -> None:
    large = batch(data=pa.array([b"x" * 1_000_000] * 10, pa.binary()))

    found = chunks(large)

    assert [chunk.rows for chunk in found] == [4, 4, 2]
    assert max(len(chunk.encode("job")) for chunk in found) < 5_000_000


def test_every_column_arrives_in_the_frame_of_its_chunk() -> None:
    at = datetime(2030, 1, 1, tzinfo=UTC)
    (chunk,) = chunks(
        batch(
            data=pa.array(["a", "ü", ""]),
            priority=pa.array(["high", None, "4"]),
            delay=pa.array([0.0001, None, None], pa.float64()),
            visible_at=pa.array([None, at, None], pa.timestamp("us", "UTC")),
            group=pa.array(["g", None, ""]),
            attributes=pa.array([{"k": 'v"'}, None, {}], pa.map_(pa.string(), pa.string())),
            dedup_id=pa.array([None, "d", None]),
            max_deliveries=pa.array([None, 3, None], pa.int32()),
        )
    )

    frame = decode_send(chunk.encode("job"))

    assert [bytes(each) for each in frame.bodies] == [b"a", "ü".encode(), b""]
    assert frame.tiers == bytes([1, 2, 4])
    assert list(frame.delay_ms or ()) == [1, 0, 0]
    assert list(frame.visible_at_ms or ()) == [0, int(at.timestamp() * 1_000), 0]
    assert [bytes(each) for each in frame.groups or ()] == [b"g", b"", b""]
    assert [bytes(each) for each in frame.attributes or ()] == [b'{"k":"v\\""}', b"", b""]
    assert [bytes(each) for each in frame.dedup_ids or ()] == [b"", b"d", b""]
    assert list(frame.deliveries_max or ()) == [0, 3, 0]


def test_a_slice_of_a_batch_is_sent_without_its_neighbours() -> None:
    whole = batch(data=pa.array([b"one", b"two", b"three", b"four"], pa.binary()), group=pa.array(["a", "b", "c", "d"]))

    (chunk,) = chunks(whole.slice(1, 2))
    frame = decode_send(chunk.encode("job"))

    assert [bytes(each) for each in frame.bodies] == [b"two", b"three"]
    assert [bytes(each) for each in frame.groups or ()] == [b"b", b"c"]


def test_rows_for_several_queues_become_a_chunk_for_each() -> None:
    found = chunks(batch(data=pa.array(["1", "2", "3"]), queue=pa.array(["b", "a", "b"])), queue="")

    told = [(chunk.index, chunk.queue, [bytes(each) for each in decode_send(chunk.content).bodies]) for chunk in found]
    assert told == [(0, "b", [b"1", b"3"]), (1, "a", [b"2"])]


def test_the_same_chunk_is_always_the_same_send_and_another_never_is() -> None:
    rows = batch(data=pa.array([str(number) for number in range(200)]))
    other = batch(data=pa.array([str(number + 1) for number in range(200)]))

    def senders(given: pa.RecordBatch, name: str) -> list[Any]:
        return [decode_send(chunk.encode(name)).sender for chunk in chunks(given, rows_max=1)]

    first = senders(rows, "job")
    assert first == senders(rows, "job")
    assert len(set(first)) == 200
    assert not set(first) & set(senders(rows, "another job"))
    assert not set(first) & set(senders(other, "job"))
    # A server remembers 64 sends of a sender: none makes more.
    by_sender = [sender.id for sender in first]
    assert max(by_sender.count(each) for each in by_sender) == 64


FLOATS = pa.map_(pa.string(), pa.float64())


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        ({"data": pa.array([b"a", None], pa.binary())}, "row 11 of the partition: column data is null"),
        ({"data": pa.array([1, 2])}, "column data is int64; it is BINARY or STRING"),
        ({"data": pa.array([b"x" * (1 << 20), b"x" * ((1 << 20) + 1)])}, "row 11 .* 1048577 bytes; BODY_BYTES_MAX"),
        ({"priority": pa.array(["high", "urgent"])}, "row 11 .*'urgent'; a priority is CRITICAL, HIGH, NORMAL"),
        ({"priority": pa.array([-1, 5])}, "row 10 .*-1; a priority is"),
        ({"priority": pa.array([0.5, 1])}, "is double; it is a whole number"),
        ({"delay": pa.array([1.0, float("nan")])}, "row 11 .* nan; a delay is 0 to"),
        ({"delay": pa.array([-1, 0])}, "row 10 .* -1; a delay is 0 to"),
        ({"delay": pa.array([1e300, float("inf")])}, "row 10 .* a delay is 0 to 31622400 seconds"),
        ({"visible_at": pa.array(["2030-01-01", None])}, "is string; it is TIMESTAMP"),
        ({"visible_at": pa.array([datetime(1960, 1, 1, tzinfo=UTC)] * 2)}, "row 10 .* after the beginning of 1970"),
        ({"group": pa.array(["g", "g" * 129])}, "row 11 .* 129 bytes; NAME_BYTES_MAX is 128"),
        ({"dedup_id": pa.array([1, 2])}, "is int64; it is STRING: cast it"),
        ({"attributes": pa.array([[1], []])}, "it is STRING .a JSON object., MAP or STRUCT"),
        ({"attributes": pa.array([{"a": [1]}, None])}, "an attribute of type list"),
        ({"attributes": pa.array([{"a": 1.5}, {"a": float("nan")}])}, "row 11 .* an attribute is NaN or infinite"),
        ({"attributes": pa.array([[], [("a", 1.5), ("b", float("inf"))]], FLOATS)}, "row 11 .* NaN or infinite"),
        ({"attributes": pa.array(["x" * 65_537, None])}, "row 10 .* 65537 bytes"),
        ({"max_deliveries": pa.array([1, 0])}, "row 11 .* is 0; it is 1 to DELIVERIES_MAX"),
        ({"queue": pa.array(["orders", "../admin"])}, "row 11 .*which is not the name of a queue"),
        ({"queue": pa.array([None, "orders"])}, "row 10 .*which is not the name of a queue"),
    ],
)
def test_a_row_that_cannot_be_sent_is_named_with_its_column(columns: dict[str, Any], told: str) -> None:
    rows = batch(**({"data": pa.array(["a", "b"])} | columns))

    with pytest.raises(BadRow, match=told):
        read_batch(rows, first_row=10)


def test_a_row_with_a_delay_and_a_time_is_refused() -> None:
    times = pa.array([None, datetime(2030, 1, 1, tzinfo=UTC)], pa.timestamp("us", "UTC"))

    with pytest.raises(BadRow, match="row 1 of the partition: delay and visible_at are both there"):
        read_batch(batch(data=pa.array(["a", "b"]), delay=pa.array([5, 5]), visible_at=times), 0)


@given(st.lists(st.none() | st.dictionaries(st.text(max_size=5), st.none() | st.text(max_size=5)), max_size=8))
def test_attributes_of_a_map_are_the_json_of_it(rows: list[dict[str, str | None] | None]) -> None:
    pairs = [None if row is None else list(row.items()) for row in rows]
    column = pa.array(pairs, pa.map_(pa.string(), pa.string()))

    found = json_of(column).to_pylist()
    tail = json_of(column.slice(len(rows) // 2)).to_pylist()

    wanted = [{name: value for name, value in (row or {}).items() if value is not None} for row in rows]
    assert [json.loads(text or "{}") for text in found] == wanted
    assert tail == found[len(rows) // 2 :]


def test_attributes_of_a_struct_are_the_json_of_it() -> None:
    kind = pa.struct([("text", pa.string()), ("count", pa.int32()), ("is_new", pa.bool_())])
    rows = [{"text": ",", "count": 3, "is_new": True}, None, {"text": None, "count": None, "is_new": None}]

    assert json_of(pa.array(rows, kind)).to_pylist() == ['{"text":",","count":3,"is_new":true}', "", ""]
    assert json_of(pa.array(rows, kind).slice(1)).to_pylist() == ["", ""]


def test_a_column_that_is_nothing_but_null_says_nothing() -> None:
    names = ("priority", "delay", "visible_at", "group", "attributes", "dedup_id", "max_deliveries")
    void = batch(data=pa.array(["a"]), **{name: pa.nulls(1) for name in names})

    assert chunks(void)[0].digest == chunks(batch(data=pa.array(["a"])))[0].digest
    with pytest.raises(BadRow, match="row 0 of the partition: column data is null; a message needs a body"):
        read_batch(batch(data=pa.nulls(1)), 0)


def test_attributes_may_be_decimals_as_sql_writes_them_and_nothing_at_all() -> None:
    kind = pa.struct([("rate", pa.decimal128(3, 2)), ("share", pa.float64()), ("none", pa.null())])
    column = pa.array([{"rate": Decimal("1.50"), "share": 0.5}, {"rate": None, "share": None}], kind)

    assert json_of(column).to_pylist() == ['{"rate":1.50,"share":0.5}', ""]


def test_a_map_from_numbers_cannot_be_attributes() -> None:
    with pytest.raises(NotAttributes, match="names of attributes are texts"):
        check_nested(pa.map_(pa.int32(), pa.string()))
