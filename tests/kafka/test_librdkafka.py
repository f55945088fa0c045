"""What librdkafka, by way of confluent-kafka, finds in a real server."""

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from tests.kafka.brokers import Broker
from tests.kafka.librdkafka import WAIT_S, admin, consumer, create, produce_all, producer, read, read_topic

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


@pytest.mark.parametrize("codec", CODECS)
def test_records_come_back_as_they_were_with_every_codec(broker: Broker, topic: str, codec: str) -> None:
    create(broker.servers, topic)
    values = [b"value %d " % number * 20 for number in range(200)]
    made = producer(broker.servers, compression_type=codec)
    assert produce_all(made, topic, values, key=b"key", headers=[("h", b"1"), ("h", None)]) == list(range(200))
    found = read_topic(broker.servers, topic, 200)
    assert [message.value() for message in found] == values
    assert {message.key() for message in found} == {b"key"}
    assert found[7].headers() == [("h", b"1"), ("h", None)]
