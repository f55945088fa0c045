"""Kafka clients for longer: servers killed again and again under load, and what the cleaner leaves."""

import time
from pathlib import Path
from random import Random

from confluent_kafka import TopicPartition

from tests.kafka.brokers import Broker
from tests.kafka.librdkafka import WAIT_S, consumer, create, producer
from tests.kafka.test_kill import Acknowledged, all_records

KILLS = 10
PARTITIONS = 3


def test_records_of_an_idempotent_producer_outlive_many_kills(seed: int, tmp_path: Path) -> None:
    dice = Random(seed)
    with Broker(tmp_path / "data") as broker:
        create(broker.servers, "events", PARTITIONS)
        acknowledged = Acknowledged()
        settings = {"enable_idempotence": True, "batch_num_messages": 50, "log_connection_close": False}
        made = producer(broker.servers, reconnect_backoff_max_ms=200, retry_backoff_ms=20, **settings)
        number = 0
        for _ in range(KILLS):
            for _ in range(dice.randrange(500, 5_000)):
                made.produce("events", b"%d" % number, partition=number % PARTITIONS, on_delivery=acknowledged.keep)
                made.poll(0)
                number += 1
            made.poll(dice.random() * 0.1)
            broker.kill()
            broker.start()
        assert made.flush(120) == 0
        assert acknowledged.failures == []
        found = all_records(broker, "events")
        assert {place: number for number, place in acknowledged.places.items()} == found
        assert sorted(found.values()) == list(range(number))


def test_only_the_last_record_of_each_key_is_left_after_cleaning(tmp_path: Path) -> None:
    topic = "keyed"
    with Broker(tmp_path / "data") as broker:
        create(broker.servers, topic, cleanup_policy="compact", segment_bytes=16_384, min_cleanable_dirty_ratio=0.01)
        made = producer(broker.servers, batch_num_messages=20)
        for number in range(1_000):
            made.produce(topic, b"%d" % number + bytes(50), key=b"key-%d" % (number % 10))
            if number % 20 == 19:
                made.flush(WAIT_S)
        last = {b"key-%d" % key: b"%d" % (990 + key) for key in range(10)}
        count = 1_000
        # The cleaner looks every half minute; the newest segment is never cleaned.
        for _attempt in range(120):
            found: dict[bytes, bytes] = {}
            seen: list[int] = []
            with consumer(broker.servers, fetch_wait_max_ms=50) as reader:
                reader.assign([TopicPartition(topic, 0, 0)])
                while not seen or seen[-1] < 999:
                    for message in reader.consume(1_000, timeout=0.2):
                        key, value = message.key(), message.value()
                        assert key is not None
                        assert value is not None
                        found[key] = value.rstrip(b"\0")
                        seen.append(message.offset() or 0)
            assert found == last
            assert seen == sorted(set(seen))
            count = len(seen)
            if count < 600:
                break
            time.sleep(1)  # Real time: until the topic is compacted.
        assert count < 600
