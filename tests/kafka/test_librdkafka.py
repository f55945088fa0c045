"""What librdkafka, by way of confluent-kafka, finds in a real server."""

import json
import time
from typing import Any
from urllib.request import urlopen

import pytest
from confluent_kafka import KafkaError, TopicPartition

from tests.kafka.brokers import Broker
from tests.kafka.librdkafka import WAIT_S, admin, consumer, create, produce_all, producer, read, read_topic

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


@pytest.mark.parametrize("codec", CODECS)
def test_records_come_back_as_they_were_with_every_codec(broker: Broker, topic: str, codec: str) -> None:
    create(broker.servers, topic)
    values = [b"value %d " % number * 20 for number in range(200)]
    made = producer(broker.servers, compression_type=codec)
    assert produce_all(made, topic, values, key=b"key", headers=[("h", b"1"), ("h", None)]) == list(range(200))
    with urlopen(f"{broker.url}/api/topics/{topic}", timeout=WAIT_S) as answer:
        size_bytes = json.loads(answer.read())["size_bytes"]
    # librdkafka sends some codecs only to brokers that it believes to know them.
    assert (size_bytes < 20_000) == (codec != "none")
    found = read_topic(broker.servers, topic, 200)
    assert [message.value() for message in found] == values
    assert {message.key() for message in found} == {b"key"}
    assert found[7].headers() == [("h", b"1"), ("h", None)]


def test_a_fetch_in_the_middle_of_a_batch_begins_there(broker: Broker, topic: str) -> None:
    create(broker.servers, topic)
    produce_all(producer(broker.servers, linger_ms=200), topic, [b"%d" % number for number in range(100)])
    assert [each.value() for each in read_topic(broker.servers, topic, 3, offset=57)] == [b"57", b"58", b"59"]


def test_a_batch_larger_than_the_fetch_comes_all_the_same(broker: Broker, topic: str) -> None:
    create(broker.servers, topic)
    produce_all(producer(broker.servers), topic, [bytes(500_000), b"small"])
    settings = {"fetch_max_bytes": 2_000, "max_partition_fetch_bytes": 1_000, "message_max_bytes": 1_000}
    found = read_topic(broker.servers, topic, 2, **settings)
    assert [len(message.value()) for message in found] == [500_000, 5]


def test_a_record_that_is_too_large_is_refused_by_the_server(broker: Broker, topic: str) -> None:
    create(broker.servers, topic, max_message_bytes=10_000)
    errors: list[Any] = []
    made = producer(broker.servers, message_max_bytes=2_000_000)
    made.produce(topic, bytes(20_000), on_delivery=lambda error, _: errors.append(error and error.code()))
    made.produce(topic, bytes(5_000), partition=0)
    assert made.flush(WAIT_S) == 0
    assert errors == [KafkaError.MSG_SIZE_TOO_LARGE]


def test_a_record_beyond_all_requests_is_refused_and_not_sent_for_ever(broker: Broker, topic: str) -> None:
    create(broker.servers, topic)
    errors: list[Any] = []
    made = producer(broker.servers, message_max_bytes=60_000_000)
    for size in (20_000_000, 5):
        made.produce(topic, bytes(size), on_delivery=lambda error, _: errors.append(error))
        assert made.flush(WAIT_S) == 0
    assert [error and error.code() for error in errors] == [KafkaError.MSG_SIZE_TOO_LARGE, None]


def test_records_are_kept_in_order_by_an_idempotent_producer(broker: Broker, topic: str) -> None:
    create(broker.servers, topic, 3)
    made = producer(broker.servers, enable_idempotence=True, batch_num_messages=7)
    values = [b"%d" % number for number in range(300)]
    assert produce_all(made, topic, values, partition=1) == list(range(300))
    assert [message.value() for message in read_topic(broker.servers, topic, 300, partition=1)] == values


@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_records_arrive_however_many_acks_are_wanted(broker: Broker, topic: str, acks: object) -> None:
    create(broker.servers, topic)
    made = producer(broker.servers, acks=acks)
    for number in range(20):
        made.produce(topic, b"%d" % number)
    assert made.flush(WAIT_S) == 0
    assert len(read_topic(broker.servers, topic, 20)) == 20


def test_offsets_are_found_by_time(broker: Broker, topic: str) -> None:
    create(broker.servers, topic)
    made = producer(broker.servers)
    # Of a moment ago: what is older than the retention may be gone before it is asked for.
    began_ms = int(time.time() * 1_000) - 10_000
    for number in range(10):
        made.produce(topic, b"%d" % number, timestamp=began_ms + number * 100)
        made.flush(WAIT_S)
    with consumer(broker.servers) as reader:

        def offset_at(time_ms: int) -> int:
            (found,) = reader.offsets_for_times([TopicPartition(topic, 0, time_ms)], timeout=WAIT_S)
            return int(found.offset)

        assert [offset_at(time_ms) for time_ms in (0, began_ms, began_ms + 250, began_ms + 900)] == [0, 0, 3, 9]
        # librdkafka says "end" for a time after the last record.
        assert offset_at(began_ms + 1_000_000) == -1
        assert reader.get_watermark_offsets(TopicPartition(topic, 0), timeout=WAIT_S) == (0, 10)


def test_a_group_goes_on_where_it_has_committed(broker: Broker, topic: str, group: str) -> None:
    create(broker.servers, topic, 2)
    made = producer(broker.servers)
    for partition in (0, 1):
        produce_all(made, topic, [b"%d" % number for number in range(10)], partition=partition)
    with consumer(broker.servers, group) as first:
        first.subscribe([topic])
        read(first, 20)
        first.commit(
            offsets=[TopicPartition(topic, 0, 4, metadata="four, said Ä"), TopicPartition(topic, 1, 10)],
            asynchronous=False,
        )
    with consumer(broker.servers, group) as second:
        (kept, other) = second.committed([TopicPartition(topic, 0), TopicPartition(topic, 1)], timeout=WAIT_S)
        assert (kept.offset, kept.metadata, other.offset) == (4, "four, said Ä", 10)
        second.subscribe([topic])
        assert [message.value() for message in read(second, 6)] == [b"4", b"5", b"6", b"7", b"8", b"9"]


def test_a_group_that_does_not_exist_has_committed_nothing(broker: Broker, topic: str, group: str) -> None:
    create(broker.servers, topic)
    with consumer(broker.servers, group) as reader:
        (found,) = reader.committed([TopicPartition(topic, 0)], timeout=WAIT_S)
    assert (found.offset, found.error) == (-1001, None)


def test_a_topic_that_is_asked_for_is_made(broker: Broker, topic: str) -> None:
    assert produce_all(producer(broker.servers), topic, [b"first"]) == [0]
    assert len(admin(broker.servers).list_topics(topic, timeout=WAIT_S).topics[topic].partitions) == 1


def test_a_record_without_a_key_is_refused_where_only_the_last_of_each_key_is_kept(broker: Broker, topic: str) -> None:
    create(broker.servers, topic, cleanup_policy="compact")
    errors: list[Any] = []
    made = producer(broker.servers)
    made.produce(topic, b"no key", on_delivery=lambda error, _: errors.append(error and error.code()))
    made.produce(topic, b"keyed", key=b"key", on_delivery=lambda error, _: errors.append(error and error.code()))
    assert made.flush(WAIT_S) == 0
    assert KafkaError.INVALID_RECORD in errors
