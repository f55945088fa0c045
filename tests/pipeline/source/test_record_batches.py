"""Rows as records: what Arrow has becomes batches that a broker reads, and the same rows become the same chunks."""

from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from penstock.broker.records import PlainRecord, records_of
from penstock.contract.topic_settings import TopicSettings
from penstock.core.routes import murmur2, partition_of
from penstock.log.record import CRC_FROM, header
from penstock.pipeline.sink.columns import BadColumns, BadRow
from penstock.pipeline.sink.topic_batches import CODECS, crc32c_of_columns, varints
from penstock.pipeline.sink.topic_chunks import Producer, Sequences, TopicChunk, topic_chunks_of
from penstock.pipeline.sink.topic_columns import Bounds, check_columns, murmur2_of, read_rows
from penstock.streams.produce_checks import check_batch

NOW_MS = 1_700_000_000_000
BOUNDS = Bounds(partitions=3, batch_bytes_max=1_048_588, chunk_bytes_max=1_048_588)
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
KINDS = {
    "key": pa.binary(),
    "value": pa.binary(),
    "headers": HEADERS,
    "partition": pa.int32(),
    "timestamp": pa.timestamp("ms", "UTC"),
}


def frame(rows: list[dict[str, Any]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(rows, pa.schema(list(KINDS.items())))


def chunks(*batches: pa.RecordBatch, bounds: Bounds = BOUNDS, rows_max: int = 10_000) -> list[TopicChunk]:
    read = [read_rows(batch, 0, bounds) for batch in batches]
    return list(topic_chunks_of(read, topic="events", bounds=bounds, partition=0, rows_max=rows_max))


def records(body: bytes) -> list[tuple[PlainRecord, ...]]:
    """The records of each batch, checked as a server checks it."""
    found, at = [], 0
    while at < len(body):
        batch = memoryview(body)[at : at + header(memoryview(body)[at:]).size]
        check_batch(batch, TopicSettings(), NOW_MS + 10**12)
        found.append(tuple(records_of(batch, unpacked_bytes_max=1 << 24)))
        at += len(batch)
    return found


ROW = st.fixed_dictionaries(
    {
        "key": st.none() | st.binary(max_size=300),
        "value": st.none() | st.binary(max_size=200),
        "headers": st.none()
        | st.lists(
            st.fixed_dictionaries({"key": st.text(max_size=5), "value": st.none() | st.binary(max_size=5)}), max_size=3
        ),
        "partition": st.none() | st.integers(0, 2),
        "timestamp": st.none() | st.integers(0, NOW_MS),
    }
)


@given(st.lists(ROW, min_size=1, max_size=30), st.lists(st.integers(0, 30), max_size=4), st.sampled_from(list(CODECS)))
def test_every_row_arrives_as_the_record_it_says(rows: list[dict[str, Any]], cuts: list[int], codec: str) -> None:
    whole = frame(rows)
    places = sorted({0, len(rows), *(cut for cut in cuts if cut < len(rows))})
    found = chunks(*(whole.slice(start, end - start) for start, end in pairwise(places)), rows_max=7)

    assert [chunk.digest for chunk in found] == [chunk.digest for chunk in chunks(whole, rows_max=7)]
    told: dict[int, list[PlainRecord]] = {}
    sequences = Sequences(Producer(9, 1))
    for chunk in found:
        body = chunk.encode(sequences.batches(chunk), codec=codec, now_ms=NOW_MS)
        for partition, batch in zip(chunk.partitions, records(body), strict=True):
            told.setdefault(partition, []).extend(batch)
        sequences.advance(chunk)
    expected: dict[int, list[tuple[Any, ...]]] = {}
    for number, row in enumerate(rows):
        partition = partition_of(row["key"], 3) if row["key"] is not None else (number // 7) % 3
        partition = partition if row["partition"] is None else row["partition"]
        headers = tuple((each["key"], each["value"]) for each in row["headers"] or ())
        at_ms = NOW_MS if row["timestamp"] is None else row["timestamp"]
        expected.setdefault(partition, []).append((row["key"], row["value"], headers, at_ms))
    assert {
        partition: [(each.key, each.value, each.headers, each.at_ms) for each in batch]
        for partition, batch in told.items()
    } == expected


def test_batches_are_numbered_in_their_partition_whatever_was_sent_before() -> None:
    rows: Any = [{"value": b"%d" % number, "partition": number % 2} for number in range(6)]
    first, second = chunks(frame(rows), rows_max=3)
    sequences = Sequences(Producer(9, 4))

    sequences.advance(first)
    body = second.encode(sequences.batches(second), codec="none", now_ms=NOW_MS)

    assert (second.partitions, second.counts, first.counts) == ([0, 1], [1, 2], [2, 1])
    heads = [header(memoryview(body)), header(memoryview(body)[header(memoryview(body)).size :])]
    assert [(head.producer_id, head.producer_epoch, head.base_sequence) for head in heads] == [(9, 4, 2), (9, 4, 1)]
    anonymous = first.encode(Sequences(None).batches(first), codec="none", now_ms=NOW_MS)
    assert header(memoryview(anonymous)).producer_id == -1


def test_other_rows_are_another_chunk_and_a_later_time_is_not() -> None:
    def digest(**row: Any) -> str:
        (chunk,) = chunks(frame([{"value": b"a", **row}]))
        return chunk.digest

    same = digest()
    others = [digest(value=None), digest(value=b""), digest(key=b""), digest(partition=1), digest(headers=[])]
    others += [digest(timestamp=0), digest(headers=[{"key": "a", "value": None}])]
    assert digest() == same
    assert len({same, *others}) == len(others)
    # No headers are no headers, and so is no column of them.
    assert digest(headers=[]) == digest(headers=None) == same
    (bare,) = chunks(pa.RecordBatch.from_pydict({"value": pa.array([b"a"], pa.binary())}))
    assert bare.digest == same


def test_a_chunk_has_what_one_batch_of_the_topic_may_have() -> None:
    bounds = Bounds(partitions=1, batch_bytes_max=2_000, chunk_bytes_max=2_000)
    rows = frame([{"value": b"x" * 500}] * 9 + [{"value": b"x" * 1_900}])
    found = chunks(rows, bounds=bounds)

    assert [chunk.rows for chunk in found] == [3, 3, 3, 1]
    # A topic that takes more by now changes nothing about a job that has begun.
    larger = chunks(rows, bounds=Bounds(partitions=1, batch_bytes_max=9_000, chunk_bytes_max=2_000))
    assert [chunk.digest for chunk in larger] == [chunk.digest for chunk in found]
    bodies = [chunk.encode(Sequences(None).batches(chunk), codec="none", now_ms=NOW_MS) for chunk in found]
    assert max(map(len, bodies)) <= 2_000


@given(st.lists(st.binary(max_size=40) | st.binary(min_size=250, max_size=300), min_size=1, max_size=20))
def test_keys_hash_as_they_do_in_the_clients_of_kafka(keys: list[bytes]) -> None:
    column = pa.array([b"before", *keys], pa.binary()).slice(1)
    assert murmur2_of(column).tolist() == [murmur2(key) for key in keys]


@given(st.binary(min_size=4, max_size=3_000))
def test_the_checksum_without_a_package_is_the_checksum(data: bytes) -> None:
    assert crc32c_of_columns(data) == crc32c(data)


def test_numbers_of_every_length_are_written_as_kafka_has_them() -> None:
    numbers = np.array([0, -1, 63, 64, -65, 2**31, -(2**31), 2**62, -(2**63)], np.int64)
    found = varints(numbers, numbers).to_pylist()
    from penstock.log.record import varint

    assert found == [varint(number) * 2 for number in numbers.tolist()]


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        ({"value": pa.array([1, 2])}, "column value is int64; it is BINARY or STRING: cast it"),
        ({"key": pa.array([1.5, 2])}, "column key is double; it is BINARY or STRING"),
        ({"partition": pa.array([0, 3])}, "row 11 of the partition: column partition is 3; the topic has 0 to 2"),
        ({"partition": pa.array([-1, 0])}, "row 10 .* is -1"),
        ({"partition": pa.array(["0", "1"])}, "is string; it is a whole number"),
        ({"timestamp": pa.array([0, 1])}, "column timestamp is int64; it is TIMESTAMP"),
        ({"timestamp": pa.array([datetime(2026, 1, 1)] * 2)}, "TIMESTAMP_NTZ"),  # noqa: DTZ001
        ({"timestamp": pa.array([datetime(1960, 1, 1, tzinfo=UTC)] * 2)}, "row 10 .* after the beginning of 1970"),
        ({"headers": pa.array([{"a": "b"}] * 2)}, "is struct.*; it is ARRAY<STRUCT<key: STRING, value: BINARY>>"),
        ({"headers": pa.array([[("a", "b")], []], pa.list_(pa.list_(pa.string())))}, "it is ARRAY<STRUCT<key"),
        ({"headers": pa.array([None, [{"key": None, "value": b""}]], HEADERS)}, "row 11 .* has a header without a key"),
        ({"headers": pa.array([[{"key": "a", "value": b""}, None], []], HEADERS)}, "row 10 .* a header that is null"),
        ({"value": pa.array([b"", b"x" * 1_048_510])}, "row 11 .* have 1048510 bytes; max_message_bytes .* is 1048588"),
    ],
)
def test_a_row_that_is_no_record_is_named_with_its_column(columns: dict[str, Any], told: str) -> None:
    rows = pa.RecordBatch.from_pydict({"value": pa.array(["a", "b"])} | columns)

    with pytest.raises(BadRow, match=told):
        read_rows(rows, 10, BOUNDS)


def test_columns_that_are_no_columns_of_a_topic_are_named() -> None:
    from pyspark.sql.types import StringType, StructField, StructType

    def check(names: str) -> None:
        check_columns(StructType([StructField(name, StringType()) for name in names.split()]))

    check("value key")
    for names, told in (
        ("value data priority", "called data, priority; there are value, key, headers, partition, timestamp"),
        ("value topic", "option topic and column topic are both there"),
        ("key", "the column value is missing"),
        ("value value", "value is there more than once"),
    ):
        with pytest.raises(BadColumns, match=told):
            check(names)


def test_the_checksum_of_a_batch_is_that_of_what_follows_it() -> None:
    (chunk,) = chunks(frame([{"value": b"a"}]))
    body = chunk.encode(Sequences(None).batches(chunk), codec="none", now_ms=NOW_MS)
    assert header(memoryview(body)).crc == crc32c(body[CRC_FROM:])
