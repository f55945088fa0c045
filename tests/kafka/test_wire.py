"""Bytes to values and back: the same as kio for good ones, and `Malformed` for all others."""

from random import Random

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from penstock.api.kafka.wire.fields import Malformed, Reader, at_once, varint
from penstock.api.kafka.wire.frames import FRONT_BYTES, ROOM_BYTES, Frames, NotOffered, framed, read_header
from penstock.api.kafka.wire.produce_fetch import (
    FetchedPartition,
    ProducedPartition,
    reading_fetch,
    reading_produce,
    write_fetched,
    write_produced,
)
from penstock.api.kafka.wire.schema import OFFERED, Api, is_flexible, reading_request, response_plan, write_response
from tests.kafka.messages import (
    EVERY_VERSION,
    decoded,
    encoded,
    plain,
    request_type,
    response_type,
    same,
    some_messages,
    versions_of,
)

BY_HAND = {Api.PRODUCE, Api.FETCH}


def put(frames: Frames, data: bytes, step: int) -> list[bytes]:
    """Give bytes to frames as a socket would, at most so many at a time."""
    found = []
    place = 0
    while place < len(data):
        room = frames.room()
        count = min(step, len(room), len(data) - place)
        room[:count] = data[place : place + count]
        place += count
        found += [bytes(frame) for frame in frames.received(count)]
    return found


def read_body(key: int, version: int, data: bytes) -> object:
    if key == Api.PRODUCE:
        return at_once(reading_produce(version, memoryview(data), 0))
    if key == Api.FETCH:
        return at_once(reading_fetch(version, memoryview(data), 0))
    return at_once(reading_request(key, version, memoryview(data), 0))


@pytest.mark.parametrize("key", [key for key in OFFERED if key not in BY_HAND])
def test_every_offered_request_is_read_as_kio_wrote_it(key: int) -> None:
    for version in versions_of(key):
        for message in some_messages(request_type(key, version)):
            found = at_once(reading_request(key, version, memoryview(b"head" + encoded(message)), 4))
            assert same(found, plain(message))


@pytest.mark.parametrize("key", [key for key in OFFERED if key not in BY_HAND])
def test_every_answer_we_write_is_read_by_kio(key: int) -> None:
    for version in versions_of(key):
        for message in some_messages(response_type(key, version)):
            written = write_response(key, version, plain(message))
            assert decoded(response_type(key, version), written) == message


def test_what_is_flexible_is_so_for_kio_too() -> None:
    for key, version in EVERY_VERSION:
        assert is_flexible(key, version) == request_type(key, version).__flexible__
        if key not in BY_HAND:
            assert is_flexible(key, version) == response_plan(key, version).is_flexible


@pytest.mark.parametrize("version", versions_of(Api.PRODUCE))
def test_a_produce_request_is_read_without_copying_its_batches(version: int) -> None:
    for message in some_messages(request_type(Api.PRODUCE, version)):
        frame = memoryview(encoded(message))
        found = at_once(reading_produce(version, frame, 0))
        parts = [
            (topic.name, part.index, part.records) for topic in message.topic_data for part in topic.partition_data
        ]
        assert [(topic, index, batches and bytes(batches)) for topic, index, batches in found.parts] == [
            (topic, index, records and bytes(records)) for topic, index, records in parts
        ]
        assert (found.transactional_id, found.acks) == (message.transactional_id, message.acks)
        assert all(part.batches is None or part.batches.obj is frame.obj for part in found.parts)


@pytest.mark.parametrize("version", versions_of(Api.PRODUCE))
def test_what_became_of_a_produce_request_is_read_by_kio(version: int) -> None:
    rows = [
        ProducedPartition("a", 0, 0, 7, -1, 3),
        ProducedPartition("a", 1, 10, message="too large"),
        ProducedPartition("b", 5, 0, 2**40, 12, 0),
    ]
    found = decoded(response_type(Api.PRODUCE, version), write_produced(version, rows))
    assert [topic.name for topic in found.responses] == ["a", "b"]
    first, second = found.responses[0].partition_responses
    assert (first.index, first.error_code, first.base_offset) == (0, 0, 7)
    assert (second.index, second.error_code, second.base_offset) == (1, 10, -1)
    if version >= 5:
        assert first.log_start_offset == 3
    if version >= 8:
        assert second.error_message == "too large"


@pytest.mark.parametrize("version", versions_of(Api.FETCH))
def test_a_fetch_request_is_read_as_kio_wrote_it(version: int) -> None:
    for message in some_messages(request_type(Api.FETCH, version)):
        found = at_once(reading_fetch(version, memoryview(encoded(message)), 0))
        assert found.bytes_max == message.max_bytes
        assert found.bytes_min == message.min_bytes
        assert found.wait_ms == plain(message.max_wait)
        wanted = [
            (topic.topic if version < 13 else plain(topic.topic_id) or bytes(16), part.partition, part.fetch_offset)
            for topic in message.topics
            for part in topic.partitions
        ]
        assert [(each.topic, each.partition, each.offset) for each in found.wanted] == wanted


@pytest.mark.parametrize("version", versions_of(Api.FETCH))
def test_fetched_batches_are_parts_of_the_answer_as_they_are(version: int) -> None:
    batch, other = memoryview(b"batch" * 10), memoryview(b"other")
    first = "a" if version < 13 else b"\1" * 16
    last = "b" if version < 13 else b"\2" * 16
    rows = [
        FetchedPartition(first, 0, 0, 10, 2, [batch, other]),
        FetchedPartition(first, 1, 3, -1, -1, []),
        FetchedPartition(last, 0, 0, 4, 0, [other]),
    ]
    parts = write_fetched(version, rows)
    assert sum(each is batch or each is other for each in parts) == 3
    found = decoded(response_type(Api.FETCH, version), b"".join(parts))
    records = [part.records for topic in found.responses for part in topic.partitions]
    assert records == [b"batch" * 10 + b"other", b"", b"other"]
    assert [part.error_code for topic in found.responses for part in topic.partitions] == [0, 3, 0]
    assert found.responses[0].partitions[0].high_watermark == 10


@settings(max_examples=300)
@given(data=st.binary(max_size=200), of=st.sampled_from(EVERY_VERSION))
def test_garbage_for_a_body_is_malformed_and_nothing_else(data: bytes, of: tuple[int, int]) -> None:
    try:
        read_body(*of, data)
    except Malformed:
        pass


@pytest.mark.parametrize("key", OFFERED)
def test_a_message_that_is_cut_short_is_malformed(key: int) -> None:
    dice = Random(key)
    for version in versions_of(key):
        for message in some_messages(request_type(key, version), 3):
            whole = encoded(message)
            if whole:
                with pytest.raises(Malformed):
                    read_body(key, version, whole[: dice.randrange(len(whole))])


def test_bytes_after_a_request_are_not_looked_at() -> None:
    found = at_once(reading_request(Api.METADATA, 13, memoryview(b"\0\0\0\0\1\0\0"), 0))
    assert found.topics is None


@pytest.mark.parametrize("announced", [2**31 - 1, 2**27, 70_000, -2])
def test_elements_that_are_announced_and_not_there_cost_nothing(announced: int) -> None:
    old = announced.to_bytes(4, "big", signed=True) + bytes(100_000)
    with pytest.raises(Malformed):
        Reader(memoryview(old), is_flexible=False).array()
    new = varint(max(0, announced) + 1) + bytes(100_000)
    if announced > 0:
        with pytest.raises(Malformed):
            Reader(memoryview(new), is_flexible=True).array()


@settings(max_examples=200)
@given(data=st.binary(max_size=40))
def test_a_garbled_header_is_refused(data: bytes) -> None:
    try:
        header = read_header(memoryview(data))
    except (Malformed, NotOffered):
        return
    assert header.key in OFFERED


def test_a_version_of_api_versions_from_the_future_is_recognised() -> None:
    header = read_header(memoryview(b"\x00\x12\x00\x63\x00\x00\x00\x07whatever comes then"))
    assert (header.key, header.version, header.correlation) == (Api.API_VERSIONS, 99, 7)
    assert framed(header, [b"body"]) == [b"\x00\x00\x00\x08\x00\x00\x00\x07", b"body"]


@given(
    sizes=st.lists(st.sampled_from([0, 1, 9, 1_000, 40_000, 70_000, 300_000]), max_size=6),
    step=st.sampled_from([997, 4_096, 65_536, 10**6]),
)
def test_frames_come_out_whole_however_they_arrive(sizes: list[int], step: int) -> None:
    frames = Frames(1_000_000)
    sent = [bytes([index % 256]) * size for index, size in enumerate(sizes)]
    data = b"".join(len(each).to_bytes(4, "big") + each for each in sent)
    assert put(frames, data, step) == sent
    assert frames.is_empty


def test_frames_come_out_whole_when_they_arrive_byte_by_byte() -> None:
    assert put(Frames(1_000), b"\0\0\0\2ab\0\0\0\0\0\0\0\1c", 1) == [b"ab", b"", b"c"]


@pytest.mark.parametrize("size", [-1, 1_001, 2**31 - 1, -(2**31)])
def test_a_frame_that_is_too_large_is_refused_by_its_length_alone(size: int) -> None:
    frames = Frames(1_000)
    good = b"\0\0\0\2ok"
    assert put(frames, good + size.to_bytes(4, "big", signed=True) + good, 100) == [b"ok"]
    assert frames.is_broken
    assert put(frames, good * 20_000, 4_096) == []


@pytest.mark.parametrize("step", [997, 4_096, 65_536, 10**6])
def test_of_a_frame_that_is_too_large_the_front_comes_out_and_all_that_follows(step: int) -> None:
    frames = Frames(100_000, passing_bytes_max=500_000)
    large = bytes(range(256)) * 1_000
    small = b"\0\0\0\2ok"
    data = small + len(large).to_bytes(4, "big") + large
    assert (put(frames, data, step), frames.is_front) == ([b"ok", large[:FRONT_BYTES]], True)
    data = small + (90_000).to_bytes(4, "big") + large[:90_000]
    assert (put(frames, data, step), frames.is_front) == ([b"ok", large[:90_000]], False)
    assert put(frames, (500_001).to_bytes(4, "big") + large, step) == []
    assert frames.is_broken


def test_an_announced_frame_costs_no_more_than_what_has_arrived() -> None:
    frames = Frames(2**30)
    assert put(frames, (2**30).to_bytes(4, "big") + b"x" * 1_000, ROOM_BYTES) == []
    assert len(frames.room()) <= ROOM_BYTES
