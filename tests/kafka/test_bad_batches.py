"""Batches that no consumer could read are refused when they are produced, and skipped where they are browsed."""

import asyncio
import struct
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import cramjam
import pytest
from confluent_kafka import KafkaError
from crc32c import crc32c
from kio.schema.errors import ErrorCode

from penstock.api.kafka.wire.schema import Api
from penstock.log import record
from penstock.log.record import varint
from penstock.runtime.system import ThreadWorkers, halt, system_runtime
from penstock.streams import compression
from tests.kafka.brokers import Broker, RawClient
from tests.kafka.librdkafka import WAIT_S, create, produce_all, producer, read_topic
from tests.kafka.messages import request_type
from tests.kafka.test_rest import ask
from tests.streams.small import in_folder, open_topics, values


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def sealed(records: bytes, *, count: int = 1, attributes: int = 0) -> bytes:
    """Return a batch with a right CRC around whatever bytes."""
    return bytes(record.seal([records], count=count, at_ms=now_ms(), attributes=attributes))


def with_count(count: int) -> bytes:
    """Return a batch of one record that says it has as many as it likes."""
    made = bytearray(values(b"one", at_ms=now_ms()))
    struct.pack_into(">i", made, 23, count - 1)
    struct.pack_into(">i", made, 57, count)
    struct.pack_into(">I", made, 17, crc32c(memoryview(made)[21:]))
    return bytes(made)


def produced(raw: RawClient, topic: str, batch: bytes, version: int = 9) -> Any:
    kind = request_type(Api.PRODUCE, version)
    of_topic = kind.__dataclass_fields__["topic_data"].type.__args__[0]
    of_partition = of_topic.__dataclass_fields__["partition_data"].type.__args__[0]
    part = of_topic(name=topic, partition_data=(of_partition(index=0, records=batch),))
    asked = kind(transactional_id=None, acks=-1, timeout=timedelta(seconds=WAIT_S), topic_data=(part,))
    return raw.ask(asked).responses[0].partition_responses[0]


BROKEN: dict[str, Callable[[], bytes]] = {
    "as many as a number can say": lambda: with_count(2**31 - 1),
    "two announced, one there": lambda: with_count(2),
    "no records": lambda: sealed(b""),
    "a negative length": lambda: sealed(varint(-5) + bytes(10)),
    "garbage": lambda: sealed(bytes(range(200, 256)) * 3, count=3),
    "a key longer than its record": lambda: sealed(varint(6) + b"\0\0\0" + varint(100) + b"\1\0"),
    "headers that are not there": lambda: sealed(varint(6) + b"\0\0\0\1\1" + varint(9)),
    "garbage in lz4": lambda: sealed(compression.pack(compression.LZ4, bytes(50)), attributes=compression.LZ4),
    "nothing in zstandard": lambda: sealed(compression.pack(compression.ZSTD, b""), attributes=compression.ZSTD),
}


@pytest.mark.parametrize("what", BROKEN)
def test_records_that_do_not_hold_what_they_say_are_refused(
    raw: RawClient, broker: Broker, topic: str, what: str
) -> None:
    create(broker.servers, topic)
    found = produced(raw, topic, BROKEN[what]())
    assert found.error_code == ErrorCode.invalid_record
    assert "record" in found.error_message
    produce_all(producer(broker.servers), topic, [b"good"])
    assert [each.value() for each in read_topic(broker.servers, topic, 1)] == [b"good"]


def blocks(one: bytes) -> bytes:
    """Return snappy as Java frames it, in as many small blocks as a batch may hold."""
    framed = struct.pack(">i", len(one)) + one
    return b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1) + framed * (1_000_000 // len(framed))


@pytest.mark.parametrize(
    ("codec", "bomb", "error"),
    [
        (compression.SNAPPY, lambda: blocks(b"\0"), ErrorCode.corrupt_message),
        (compression.SNAPPY, lambda: b"\xff\xff\xff\xff\x0f" + bytes(9), ErrorCode.message_too_large),
        (compression.GZIP, lambda: bytes(cramjam.gzip.compress(b"")) * 40_000, ErrorCode.corrupt_message),
        (compression.GZIP, lambda: compression.pack(compression.GZIP, bytes(64 << 20)), ErrorCode.message_too_large),
        (compression.LZ4, lambda: compression.pack(compression.LZ4, bytes(64 << 20)), ErrorCode.message_too_large),
        (compression.ZSTD, lambda: compression.pack(compression.ZSTD, bytes(64 << 20)), ErrorCode.message_too_large),
    ],
)
def test_a_batch_that_would_cost_much_time_or_memory_to_unpack_is_refused(
    raw: RawClient, broker: Broker, topic: str, codec: int, bomb: Callable[[], bytes], error: ErrorCode
) -> None:
    create(broker.servers, topic)
    assert produced(raw, topic, sealed(bomb(), attributes=codec)).error_code == error


def test_only_the_records_that_are_bad_are_called_bad(broker: Broker, topic: str) -> None:
    create(broker.servers, topic, cleanup_policy="compact")
    errors: dict[int, Any] = {}
    made = producer(broker.servers, linger_ms=1_000)
    for number in range(5):
        # librdkafka blames all if only one is to blame.
        key = None if number in (1, 3) else b"k%d" % number

        def told(error: Any, _message: Any, number: int = number) -> None:
            errors[number] = error.code()

        made.produce(topic, b"v", key=key, on_delivery=told)
    assert made.flush(WAIT_S) == 0
    assert errors.pop(1) == errors.pop(3) == KafkaError.INVALID_RECORD
    assert set(errors.values()) == {KafkaError._INVALID_DIFFERENT_RECORD}


@pytest.mark.parametrize("version", [8, 9])
def test_a_client_is_told_which_record_it_was_and_why(raw: RawClient, broker: Broker, topic: str, version: int) -> None:
    create(broker.servers, topic)
    good = values(b"a", b"b", at_ms=now_ms())
    found = produced(raw, topic, good[:-1] + b"\x02", version)
    assert found.error_code == ErrorCode.corrupt_message
    assert found.record_errors == ()
    broken = sealed(good[61:] + varint(-5) + bytes(5), count=3)
    found = produced(raw, topic, broken, version)
    assert found.error_code == ErrorCode.invalid_record
    assert [each.batch_index for each in found.record_errors] == [2]
    assert found.record_errors[0].batch_index_error_message == found.error_message


def test_records_without_a_time_are_taken_and_have_none(raw: RawClient, broker: Broker, topic: str) -> None:
    create(broker.servers, topic)
    assert produced(raw, topic, values(b"a", b"b", at_ms=-1)).error_code == 0
    assert produced(raw, topic, values(b"c", b"d", at_ms=[now_ms(), -1])).error_code == 0
    found = read_topic(broker.servers, topic, 4)
    assert [each.value() for each in found] == [b"a", b"b", b"c", b"d"]
    assert found[0].timestamp()[1] == -1
    status, page = ask(broker, "GET", f"/api/topics/{topic}/records")
    assert (status, len(page["records"])) == (200, 4)


def test_browsing_leaves_out_what_cannot_be_read_and_says_so(tmp_path: Path) -> None:
    """No producer can send such a batch; a disk that was repaired, or another build, may have left one."""
    data = tmp_path / "data"

    async def store() -> None:
        async with (
            ThreadWorkers(2, halt) as workers,
            await open_topics(system_runtime(data, workers), "streams") as topics,
        ):
            await topics.streams.create("events")
            await topics.produce("events", 0, values(b"before", at_ms=now_ms()))
            log = in_folder(topics).find("events").partitions[0].log
            odd = sealed(b"no records at all", count=3)
            with log.reserve(len(odd)) as space:
                log.append(odd, space)
            await topics.produce("events", 0, values(b"after", at_ms=now_ms()))

    with Broker(data):
        # Topics without the journal beside them are a damaged store.
        pass
    asyncio.run(store())
    with Broker(data) as broker:
        status, page = ask(broker, "GET", "/api/topics/events/records")
        assert status == 200
        assert [each["value"] for each in page["records"]] == ["before", "after"]
        (left_out,) = page["unreadable"]
        assert (left_out["offset"], left_out["next_offset"], page["next_offset"]) == (1, 4, 5)
        assert left_out["reason"]
        assert ask(broker, "GET", "/api/topics/events/records?offset=2")[1]["records"][0]["value"] == "after"
