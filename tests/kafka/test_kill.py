"""A server killed under load: nothing acknowledged is lost, nothing is doubled, no offset means two records."""

from pathlib import Path
from typing import Any

from confluent_kafka import Message, TopicPartition

from tests.kafka.brokers import Broker
from tests.kafka.librdkafka import WAIT_S, consumer, create, producer, read, read_topic

PARTITIONS = 3
RECORDS = 6_000
KILLS = 2


class Acknowledged:
    """What a producer was told of each record: where it is."""

    def __init__(self) -> None:
        self.places: dict[int, tuple[int, int]] = {}
        self.failures: list[Any] = []

    def keep(self, error: Any, message: Message) -> None:
        if error is None:
            value, partition, offset = message.value(), message.partition(), message.offset()
            assert value is not None
            assert partition is not None
            assert offset is not None
            self.places[int(value)] = (partition, offset)
        else:
            self.failures.append(error)


def all_records(broker: Broker, topic: str) -> dict[tuple[int, int], int]:
    found = {}
    for partition in range(PARTITIONS):
        with consumer(broker.servers) as reader:
            place = TopicPartition(topic, partition)
            _, end = reader.get_watermark_offsets(place, timeout=WAIT_S)
        for message in read_topic(broker.servers, topic, end, partition=partition):
            found[partition, message.offset()] = int(message.value())
    return found


def test_an_idempotent_producer_notices_a_killed_server_only_by_the_time(tmp_path: Path) -> None:
    with Broker(tmp_path / "data") as broker:
        create(broker.servers, "events", PARTITIONS)
        acknowledged = Acknowledged()
        settings = {
            "enable_idempotence": True,
            "batch_num_messages": 50,
            "log_connection_close": False,
            "retry_backoff_ms": 20,
        }
        made = producer(broker.servers, reconnect_backoff_max_ms=200, **settings)
        for number in range(RECORDS):
            made.produce("events", b"%d" % number, partition=number % PARTITIONS, on_delivery=acknowledged.keep)
            made.poll(0)
            if number in (RECORDS // 3, 2 * RECORDS // 3):
                # In the middle of it: some are acknowledged, some are on their way.
                made.poll(0.02)
                broker.kill()
                broker.start()
        assert made.flush(300) == 0
        assert acknowledged.failures == []
        found = all_records(broker, "events")
        assert {place: number for number, place in acknowledged.places.items()} == found
        assert sorted(found.values()) == list(range(RECORDS))
        for partition in range(PARTITIONS):
            in_order = [number for (where, _), number in sorted(found.items()) if where == partition]
            assert in_order == sorted(in_order)


def test_what_a_group_committed_is_there_after_the_server_was_killed(tmp_path: Path) -> None:
    with Broker(tmp_path / "data") as broker:
        create(broker.servers, "events")
        made = producer(broker.servers, log_connection_close=False)
        for number in range(100):
            made.produce("events", b"%d" % number)
        made.flush(WAIT_S)
        with consumer(broker.servers, "readers", log_connection_close=False) as reader:
            reader.subscribe(["events"])
            assert len(read(reader, 40)) == 40
            reader.commit(offsets=[TopicPartition("events", 0, 40)], asynchronous=False)
            broker.kill()
            broker.start()
            # It is a member still, or joins again by itself: it reads on either way.
            assert [int(message.value() or b"") for message in read(reader, 10)] == list(range(40, 50))
        with consumer(broker.servers, "readers") as reader:
            (kept,) = reader.committed([TopicPartition("events", 0)], timeout=WAIT_S)
            assert kept.offset == 40
