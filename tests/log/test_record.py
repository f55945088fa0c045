"""Batches come back as they went in, damage is found, and Kafka's own clients agree with us."""

import struct
import tracemalloc
from collections.abc import Iterator
from itertools import islice
from typing import Any

import pytest
from aiokafka.record import default_records as oracle
from aiokafka.record import util as oracle_numbers
from hypothesis import given
from hypothesis import strategies as st

from penstock.log.record import (
    CRC_FROM,
    HEAD,
    HEAD_BYTES,
    HEADER_BYTES,
    LENGTH_FROM,
    NO_PRODUCER,
    BadBatch,
    MarkerPosition,
    Producer,
    UnknownVersion,
    check,
    encode,
    encode_all,
    encode_marker,
    header,
    hole,
    records,
    seal,
    varint,
)

VERSION_AT = 16
RECORD_BYTES_MIN = 7
INT32_MAX = 2**31 - 1

Pair = tuple[bytes | None, bytes | None]

optional_bytes = st.none() | st.binary(max_size=200)
pairs = st.lists(st.tuples(optional_bytes, optional_bytes), min_size=1, max_size=20)
times_ms = st.integers(0, 2**62)
producers = st.builds(Producer, st.integers(-1, 2**63 - 1), st.integers(-1, 2**15 - 1), st.integers(-1, INT32_MAX))

# aiokafka has two readers and two writers: one in C, one in Python.
readers = pytest.mark.parametrize("reader", [oracle.DefaultRecordBatch, oracle._DefaultRecordBatchPy])
writers = pytest.mark.parametrize("writer", [oracle.DefaultRecordBatchBuilder, oracle._DefaultRecordBatchBuilderPy])

SAMPLE = encode([(b"key", b"value"), (None, b"x" * 70), (b"", None)], at_ms=1_000)


def contents(batch: bytes | bytearray) -> list[Pair]:
    return [
        (None if key is None else bytes(key), None if value is None else bytes(value))
        for key, value, _ in records(batch)
    ]


def flipped(batch: bytes | bytearray, bit: int) -> bytes:
    damaged = bytearray(batch)
    damaged[bit // 8] ^= 1 << bit % 8
    return bytes(damaged)


def with_varint(*numbers: int) -> bytes:
    return b"".join(map(varint, numbers))


def all_bits(start: int, end: int) -> Iterator[int]:
    return iter(range(start * 8, end * 8))


@given(pairs, times_ms, producers)
def test_a_batch_comes_back_as_it_went_in(sent: list[Pair], at_ms: int, producer: Producer) -> None:
    batch = encode(sent, at_ms=at_ms, producer=producer)
    found = check(batch)
    assert contents(batch) == sent
    assert found.size == len(batch)
    assert found.record_count == found.next_offset == len(sent)
    assert found.base_timestamp_ms == found.max_timestamp_ms == at_ms
    assert (found.producer_id, found.producer_epoch, found.base_sequence) == producer
    assert not found.is_marker
    assert not found.is_hole


@given(pairs, st.binary(max_size=70), st.binary(max_size=70))
def test_a_batch_is_found_in_the_middle_of_a_buffer(sent: list[Pair], before: bytes, after: bytes) -> None:
    batch = encode(sent, at_ms=0)
    assert check(before + batch + after, len(before)) == check(batch)
    assert contents(batch + after) == sent


def test_keys_and_values_are_views_into_the_batch() -> None:
    (found,) = records(batch := encode([(b"key", b"value")], at_ms=0))
    assert found.key is not None
    assert found.value is not None
    assert found.key.obj is batch
    assert found.value.obj is batch


def test_any_flipped_bit_from_the_attributes_on_is_found() -> None:
    for bit in all_bits(CRC_FROM, len(SAMPLE)):
        with pytest.raises(BadBatch):
            check(flipped(SAMPLE, bit))


@given(pairs, st.data())
def test_any_flipped_bit_of_any_batch_is_found(sent: list[Pair], data: st.DataObject) -> None:
    batch = encode(sent, at_ms=0)
    bit = data.draw(st.integers(CRC_FROM * 8, len(batch) * 8 - 1))
    with pytest.raises(BadBatch):
        check(flipped(batch, bit))


def test_a_flipped_bit_of_length_or_crc_is_found() -> None:
    for bit in (*all_bits(8, LENGTH_FROM), *all_bits(VERSION_AT + 1, CRC_FROM)):
        with pytest.raises(BadBatch):
            check(flipped(SAMPLE, bit))


@given(st.integers(0, 2**63 - 1), st.integers(0, INT32_MAX))
def test_offset_and_epoch_may_be_written_over(offset: int, epoch: int) -> None:
    batch = bytearray(SAMPLE)
    HEAD.pack_into(batch, 0, offset, len(batch) - LENGTH_FROM, epoch)
    found = check(batch)
    assert (found.base_offset, found.epoch) == (offset, epoch)
    assert batch[HEAD_BYTES:] == SAMPLE[HEAD_BYTES:]


def test_a_truncated_batch_is_refused_at_every_byte() -> None:
    for size in range(len(SAMPLE)):
        with pytest.raises(BadBatch):
            check(SAMPLE[:size])
        with pytest.raises(BadBatch):
            check(b"before" + SAMPLE[:size], len(b"before"))


@pytest.mark.parametrize("version", [0, 1, 3, -1])
def test_another_version_is_told_from_damage(version: int) -> None:
    batch = bytearray(SAMPLE)
    struct.pack_into("b", batch, VERSION_AT, version)
    with pytest.raises(UnknownVersion):
        check(batch)


@pytest.mark.parametrize("length", [-(2**31), -1, 0, HEADER_BYTES - LENGTH_FROM - 1, INT32_MAX])
def test_a_length_that_cannot_be_is_refused(length: int) -> None:
    batch = bytearray(SAMPLE)
    struct.pack_into(">i", batch, 8, length)
    with pytest.raises(BadBatch):
        check(batch)


@given(st.binary(max_size=200))
def test_any_bytes_are_refused_without_a_crash(data: bytes) -> None:
    with pytest.raises((BadBatch, UnknownVersion)):
        check(data)


@pytest.mark.parametrize("count", [-INT32_MAX, -1, 0])
def test_a_batch_that_uses_up_no_offset_is_refused(count: int) -> None:
    with pytest.raises(BadBatch):
        check(seal([], count=count, at_ms=0))


EDGES = sorted({sign * (1 << bits) + step for sign in (-1, 1) for bits in range(63) for step in (-1, 0, 1)})


@pytest.mark.parametrize("numbers", [EDGES, [2**63 - 1, -(2**63)]], ids=["powers of two", "64 bits"])
def test_numbers_are_encoded_as_kafka_does(numbers: list[int]) -> None:
    for number in numbers:
        encoded = bytearray()
        oracle_numbers.encode_varint_py(number, encoded.append)
        assert varint(number) == encoded
        assert len(encoded) == oracle_numbers.size_of_varint_py(number)


@given(st.integers(-(2**63), 2**63 - 1))
def test_a_number_comes_back_as_it_went_in(number: int) -> None:
    part = with_varint(7 + len(varint(number)) - 2, 0) + varint(number) + with_varint(0, -1, -1, 0)
    (found,) = records(seal([part], count=1, at_ms=0))
    assert found.timestamp_delta_ms == number


@pytest.mark.parametrize(
    "part",
    [
        pytest.param(with_varint(-1, 0, 0, 0, -1, -1, 0), id="a record that ends before it begins"),
        pytest.param(with_varint(0, 0, 0, 0, -1, -1, 0), id="a record of no bytes"),
        pytest.param(with_varint(5, 0, 0, 0, -1, -1, 0), id="a record shorter than its parts"),
        pytest.param(with_varint(7, 0, 0, 0, -1, -1, 0), id="a record longer than the batch"),
        pytest.param(with_varint(2**62, 0, 0, 0, -1, -1, 0), id="a record of exabytes"),
        pytest.param(with_varint(6, 0, 0, 0, INT32_MAX, -1, 0), id="a key of 2 GiB"),
        pytest.param(with_varint(6, 0, 0, 0, -1, 2**62, 0), id="a value of exabytes"),
        pytest.param(with_varint(6, 0, 0, 0, -1, 2, 0), id="a value beyond its record"),
        pytest.param(b"\x80" * 1_000, id="a number without an end"),
        pytest.param(b"\x0c\x00\x80", id="a number cut off"),
        pytest.param(b"", id="nothing"),
    ],
)
@pytest.mark.parametrize("count", [1, INT32_MAX])
def test_hostile_lengths_are_refused_without_memory_or_a_loop(part: bytes, count: int) -> None:
    batch = seal([part], count=count, at_ms=0)
    check(batch)
    tracemalloc.start()
    try:
        with pytest.raises(BadBatch):
            list(islice(records(batch), 1_000))
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 100_000


@given(st.binary(max_size=300), st.integers(1, INT32_MAX))
def test_no_batch_has_more_records_than_its_bytes_allow(body: bytes, count: int) -> None:
    batch = seal([body], count=count, at_ms=0)
    found = 0
    try:
        for _ in islice(records(batch), len(body)):
            found += 1
    except BadBatch:
        pass
    assert found * RECORD_BYTES_MIN <= len(body)


def test_a_record_never_reaches_into_the_next_batch() -> None:
    batch = seal([with_varint(12, 0, 0, 0, -1, 6)], count=1, at_ms=0)
    with pytest.raises(BadBatch):
        list(records(batch + b"secret" + bytes(10)))


@readers
@given(pairs, st.integers(0, 2**62), producers)
def test_kafka_clients_read_our_batches(reader: Any, sent: list[Pair], at_ms: int, producer: Producer) -> None:
    batch = encode(sent, at_ms=at_ms, producer=producer)
    theirs = reader(batch)
    assert theirs.validate_crc()
    assert theirs.magic == 2
    assert theirs.next_offset == len(sent)
    assert (theirs.producer_id, theirs.producer_epoch, theirs.base_sequence) == producer
    found = list(theirs)
    assert [(record.key, record.value) for record in found] == sent
    assert [record.offset for record in found] == list(range(len(sent)))
    assert {record.timestamp for record in found} == {at_ms}


@writers
@given(pairs, st.lists(st.integers(-1_000, 1_000), min_size=20, max_size=20), st.booleans())
def test_we_read_the_batches_of_kafka_clients(
    writer: Any, sent: list[Pair], steps: list[int], has_headers: bool
) -> None:
    headers = [("trace", b"1"), ("none", None)] if has_headers else []
    batch = written(writer, sent, steps, headers)
    found = check(batch)
    assert found.record_count == found.next_offset == len(sent)
    assert (found.base_timestamp_ms, found.producer_id) == (10_000 + steps[0], 7)
    assert found.max_timestamp_ms == 10_000 + max(steps[: len(sent)])
    assert contents(batch) == sent
    deltas_ms = [record.timestamp_delta_ms for record in records(batch)]
    assert deltas_ms == [step - steps[0] for step in steps[: len(sent)]]


@writers
@given(pairs)
def test_our_batches_are_theirs_to_the_byte(writer: Any, sent: list[Pair]) -> None:
    theirs = written(writer, sent, [0] * len(sent), [])
    ours = encode(sent, at_ms=10_000, producer=Producer(7, 1, 0))
    # Before a broker has spoken, the epoch is -1 with them and 0 with us. The CRC leaves it out.
    assert header(theirs)._replace(epoch=0) == header(ours)
    assert theirs[HEAD_BYTES:] == ours[HEAD_BYTES:]


def written(writer: Any, sent: list[Pair], steps: list[int], headers: list[tuple[str, bytes | None]]) -> bytes:
    builder = writer(
        magic=2,
        compression_type=0,
        is_transactional=0,
        producer_id=7,
        producer_epoch=1,
        base_sequence=0,
        batch_size=1 << 20,
    )
    for offset, (key, value) in enumerate(sent):
        builder.append(offset, timestamp=10_000 + steps[offset], key=key, value=value, headers=headers)
    return bytes(builder.build())


@readers
@given(st.integers(0, 2**62), st.integers(1, INT32_MAX))
def test_kafka_clients_read_a_hole_as_an_empty_batch(reader: Any, first: int, lost: int) -> None:
    batch = hole(first, first + lost)
    theirs = reader(batch)
    assert theirs.validate_crc()
    assert theirs.base_offset == first
    assert theirs.next_offset == first + lost
    assert not theirs.is_control_batch
    assert list(theirs) == []


@given(st.integers(0, 2**62), st.integers(1, INT32_MAX))
def test_a_hole_uses_up_the_offsets_of_what_was_lost(first: int, lost: int) -> None:
    batch = hole(first, first + lost)
    found = check(batch)
    assert found.is_hole
    assert not found.is_marker
    assert (found.base_offset, found.next_offset, found.epoch) == (first, first + lost, 0)
    assert list(records(batch)) == []


@readers
def test_kafka_clients_would_read_a_marker_as_an_empty_batch(reader: Any) -> None:
    place = MarkerPosition(last_offset=41, position=4_096)
    batch = encode_marker(place, durable_bytes=1_024, log_id=2**62, heads=[SAMPLE[:HEAD_BYTES]])
    found = check(batch)
    assert found.is_marker
    assert not found.is_hole
    assert reader(batch).validate_crc()
    assert reader(batch).next_offset == found.next_offset == 42
    assert list(reader(batch)) == list(records(batch)) == []


@given(st.binary(max_size=70), st.none() | st.binary(max_size=300) | st.integers(0, 20_000).map(bytes), times_ms)
def test_a_record_that_is_alone_is_written_as_among_others(key: bytes, value: bytes | None, at_ms: int) -> None:
    alone = encode([(key, value)], at_ms=at_ms)
    assert alone == encode_all([(key, value)], at_ms=at_ms, producer=NO_PRODUCER)
    assert check(alone).record_count == 1
