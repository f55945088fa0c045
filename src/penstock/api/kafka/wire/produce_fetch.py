"""The bodies of Produce and Fetch, by hand: record batches are never copied.

Produce, versions 3 to 12 (KIP-98 to KIP-951): 5 answers with the first offset that is kept, 8
with errors in words, 9 is flexible, 10 may say where the leader is. Batches stay where they were received.

Fetch, versions 4 to 17: 5 says the first offset that is kept, 7 has sessions (KIP-227), 9 the
epoch a client knows, 11 racks, 12 is flexible, 13 names topics by id, 15 leaves out who
asks, 17 has directories of replicas. An answer is a list of parts, and batches are among them as they are.
"""

from collections.abc import Generator, Sequence
from struct import Struct
from typing import Any, NamedTuple, TypeVar

from penstock.api.kafka.wire.fields import Malformed, Reader, array_size, binary_size, string

_FLEXIBLE_FROM = 9
_THROTTLE = Struct(">i")


class ProducePartition(NamedTuple):
    """What is produced to one partition."""

    topic: str
    partition: int
    batches: memoryview | None


class ProduceRequest(NamedTuple):
    transactional_id: str | None
    acks: int
    parts: list[ProducePartition]


class ProducedPartition(NamedTuple):
    """What became of one part."""

    topic: str
    partition: int
    error: int = 0
    base_offset: int = -1
    appended_at_ms: int = -1
    start_offset: int = -1
    message: str | None = None
    # Which records of the batch are to blame, from version 8 on (KIP-467). Without them a client blames all.
    bad_records: Sequence[int] = ()


def reading_produce(version: int, frame: memoryview, place: int) -> Generator[None, None, ProduceRequest]:
    """Read the body; yields when others should have their turn."""
    reader = Reader(frame, place, is_flexible=version >= _FLEXIBLE_FROM)
    transactional_id, acks = reader.nullable_string(), reader.int16()
    reader.int32()
    parts = []
    for _ in range(reader.array()):
        topic = reader.string()
        for _ in range(reader.array()):
            parts.append(ProducePartition(topic, reader.int32(), reader.nullable_bytes()))
            reader.skip_tags()
            if reader.is_turn_over():
                yield
        reader.skip_tags()
        if reader.is_turn_over():
            yield
    reader.skip_tags()
    return ProduceRequest(transactional_id, acks, parts)


def read_front(version: int, front: memoryview, place: int) -> tuple[int, str, int]:
    """Return the acks, and topic and partition of the one batch of a request of which only the front is there.

    Of several batches it is not known which are too large: that is `Malformed`.
    """
    reader = Reader(front, place, is_flexible=version >= _FLEXIBLE_FROM)
    reader.nullable_string()
    acks = reader.int16()
    reader.int32()
    topics, topic, partitions = reader.array(), reader.string(), reader.array()
    if (topics, partitions) != (1, 1):
        raise Malformed("a large request for several partitions")
    return acks, topic, reader.int32()


def write_produced(version: int, rows: Sequence[ProducedPartition], *, throttle_ms: int = 0) -> bytes:
    is_flexible = version >= _FLEXIBLE_FROM
    topics = _by_topic(rows)
    out = [array_size(len(topics), is_flexible=is_flexible)]
    for topic, of_topic in topics:
        out += [string(topic, is_flexible=is_flexible), array_size(len(of_topic), is_flexible=is_flexible)]
        for row in of_topic:
            out.append(_ROW.pack(row.partition, row.error, row.base_offset, row.appended_at_ms))
            if version >= 5:
                out.append(_INT64.pack(row.start_offset))
            if version >= 8:
                out.append(_bad_records(row, is_flexible=is_flexible))
                out.append(string(row.message, is_flexible=is_flexible))
            if is_flexible:
                out.append(b"\0")
        if is_flexible:
            out.append(b"\0")
    out.append(_THROTTLE.pack(throttle_ms))
    if is_flexible:
        out.append(b"\0")
    return b"".join(out)


def _bad_records(row: ProducedPartition, *, is_flexible: bool) -> bytes:
    rest = string(row.message, is_flexible=is_flexible) + (b"\0" if is_flexible else b"")
    rows = (_INT32.pack(index) + rest for index in row.bad_records)
    return array_size(len(row.bad_records), is_flexible=is_flexible) + b"".join(rows)


FLEXIBLE_FROM = 12
IDS_FROM = 13

_HEAD = Struct(">ihi")
_ROW = Struct(">ihqq")
_INT32, _INT64 = Struct(">i"), Struct(">q")


class FetchPartition(NamedTuple):
    """What is wanted of one partition; the topic by name, or from version 13 on by its id."""

    topic: str | bytes
    partition: int
    leader_epoch: int
    offset: int
    bytes_max: int


class FetchRequest(NamedTuple):
    wait_ms: int
    bytes_min: int
    bytes_max: int
    session_id: int
    session_epoch: int
    wanted: list[FetchPartition]


class FetchedPartition(NamedTuple):
    """What is answered for one partition."""

    topic: str | bytes
    partition: int
    error: int
    high_watermark: int
    start_offset: int
    batches: Sequence[memoryview | bytes]


def reading_fetch(version: int, frame: memoryview, place: int) -> Generator[None, None, FetchRequest]:
    """Read the body; yields when others should have their turn."""
    reader = Reader(frame, place, is_flexible=version >= FLEXIBLE_FROM)
    if version <= 14:
        reader.int32()
    wait_ms, bytes_min, bytes_max = reader.int32(), reader.int32(), reader.int32()
    reader.int8()
    session_id, session_epoch = (reader.int32(), reader.int32()) if version >= 7 else (0, -1)
    wanted: list[FetchPartition] = []
    for _ in range(reader.array()):
        topic = reader.uuid() if version >= IDS_FROM else reader.string()
        for _ in range(reader.array()):
            wanted.append(_read_wanted(reader, version, topic))
            if reader.is_turn_over():
                yield
        reader.skip_tags()
        if reader.is_turn_over():
            yield
    if version >= 7:
        yield from _skip_forgotten(reader, version)
    if version >= 11:
        reader.string()
    reader.skip_tags()
    return FetchRequest(wait_ms, bytes_min, bytes_max, session_id, session_epoch, wanted)


def _read_wanted(reader: Reader, version: int, topic: str | bytes) -> FetchPartition:
    partition = reader.int32()
    leader_epoch = reader.int32() if version >= 9 else -1
    offset = reader.int64()
    if version >= 12:
        reader.int32()
    if version >= 5:
        reader.int64()
    bytes_max = reader.int32()
    reader.skip_tags()
    return FetchPartition(topic, partition, leader_epoch, offset, bytes_max)


def _skip_forgotten(reader: Reader, version: int) -> Generator[None, None, None]:
    """Topics that a session forgets; there are no sessions here."""
    for _ in range(reader.array()):
        if version >= IDS_FROM:
            reader.uuid()
        else:
            reader.string()
        for _ in range(reader.array()):
            reader.int32()
            if reader.is_turn_over():
                yield
        reader.skip_tags()
        if reader.is_turn_over():
            yield


def write_fetched(
    version: int, rows: Sequence[FetchedPartition], *, error: int = 0, throttle_ms: int = 0
) -> list[bytes | memoryview]:
    is_flexible = version >= FLEXIBLE_FROM
    topics = _by_topic(rows)
    parts: list[bytes | memoryview] = []
    # Small fields between two pieces of batches are gathered into one part.
    head = throttle_ms.to_bytes(4, "big") if version < 7 else _HEAD.pack(throttle_ms, error, 0)
    small = [head, array_size(len(topics), is_flexible=is_flexible)]
    for topic, of_topic in topics:
        small.append(topic if isinstance(topic, bytes) else string(topic, is_flexible=is_flexible))
        small.append(array_size(len(of_topic), is_flexible=is_flexible))
        for row in of_topic:
            small.append(_row(version, row))
            if row.batches:
                parts.append(b"".join(small))
                parts += row.batches
                small = []
            if is_flexible:
                small.append(b"\0")
        if is_flexible:
            small.append(b"\0")
    if is_flexible:
        small.append(b"\0")
    if small:
        parts.append(b"".join(small))
    return parts


def _row(version: int, row: FetchedPartition) -> bytes:
    """Return everything of a row before its batches."""
    is_flexible = version >= FLEXIBLE_FROM
    out = [_ROW.pack(row.partition, row.error, row.high_watermark, row.high_watermark)]
    if version >= 5:
        out.append(_INT64.pack(row.start_offset))
    # Nothing is aborted where there are no transactions.
    out.append(array_size(None, is_flexible=is_flexible))
    if version >= 11:
        out.append(_INT32.pack(-1))
    out.append(binary_size(sum(map(len, row.batches)), is_flexible=is_flexible))
    return b"".join(out)


AnsweredPartition = TypeVar("AnsweredPartition", FetchedPartition, ProducedPartition)


def _by_topic(rows: Sequence[AnsweredPartition]) -> list[tuple[Any, list[AnsweredPartition]]]:
    topics: dict[str | bytes, list[AnsweredPartition]] = {}
    for row in rows:
        topics.setdefault(row.topic, []).append(row)
    return list(topics.items())
