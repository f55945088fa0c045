"""The bodies of Fetch, by hand: an answer is a list of parts, and record batches are among them as they are.

Versions 4 to 17: 5 says the first offset that is kept, 7 has sessions (KIP-227), 9 the
epoch a client knows, 11 racks, 12 is flexible, 13 names topics by id, 15 leaves out who
asks, 17 has directories of replicas.
"""

from collections.abc import Generator, Sequence
from struct import Struct
from typing import NamedTuple

from penstock.api.kafka.wire.fields import Reader, array_size, binary_size, string

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


def _by_topic(rows: Sequence[FetchedPartition]) -> list[tuple[str | bytes, list[FetchedPartition]]]:
    topics: dict[str | bytes, list[FetchedPartition]] = {}
    for row in rows:
        topics.setdefault(row.topic, []).append(row)
    return list(topics.items())
