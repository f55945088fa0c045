"""The bodies of Produce, by hand: record batches stay where they were received.

Versions 3 to 12 (KIP-98 to KIP-951): 5 answers with the first offset that is kept, 8
with errors in words, 9 is flexible, 10 may say where the leader is.
"""

from collections.abc import Generator, Sequence
from struct import Struct
from typing import NamedTuple

from penstock.api.kafka.wire.fields import Malformed, Reader, array_size, string

_ROW = Struct(">ihqq")
_INT32 = Struct(">i")
_INT64 = Struct(">q")
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


def _by_topic(rows: Sequence[ProducedPartition]) -> list[tuple[str, list[ProducedPartition]]]:
    """Return rows by topic, in the order they came."""
    topics: dict[str, list[ProducedPartition]] = {}
    for row in rows:
        topics.setdefault(row.topic, []).append(row)
    return list(topics.items())
