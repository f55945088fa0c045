"""What kafka-python finds in a real server."""

import time
from typing import Any

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import KafkaAdminClient, NewTopic

from tests.kafka.brokers import Broker

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
WAIT_S = 60.0


# It needs packages of their own for snappy and lz4; the other clients have them.
@pytest.mark.parametrize("codec", [None, "gzip", "zstd"])
def test_kafka_python_reads_what_it_wrote_with_its_codecs(broker: Broker, topic: str, codec: Any) -> None:
    made = KafkaProducer(bootstrap_servers=broker.servers, compression_type=codec, linger_ms=20)
    sent = [made.send(topic, b"%d" % number * 50, key=b"k", headers=[("h", b"v")]) for number in range(50)]
    assert [each.get(WAIT_S).offset for each in sent] == list(range(50))
    made.close()
    reader = KafkaConsumer(bootstrap_servers=broker.servers, consumer_timeout_ms=int(WAIT_S * 1_000))
    reader.assign([TopicPartition(topic, 0)])
    reader.seek(TopicPartition(topic, 0), 10)
    found = [next(reader) for _ in range(40)]
    reader.close()
    assert [each.value for each in found] == [b"%d" % number * 50 for number in range(10, 50)]


def test_kafka_python_finds_offsets_and_commits_in_a_group(broker: Broker, topic: str, group: str) -> None:
    made = KafkaProducer(bootstrap_servers=broker.servers)
    # Of a moment ago: what is older than the retention may be gone before it is read.
    began_ms = int(time.time() * 1_000) - 10_000
    for number in range(5):
        made.send(topic, b"%d" % number, timestamp_ms=began_ms + number).get(WAIT_S)
    made.close()
    place = TopicPartition(topic, 0)
    settings = {"group_id": group, "auto_offset_reset": "earliest", "enable_auto_commit": False}
    # Longer than a busy machine keeps a member from its heartbeats.
    settings["session_timeout_ms"] = 60_000
    reader = KafkaConsumer(topic, bootstrap_servers=broker.servers, consumer_timeout_ms=int(WAIT_S * 1_000), **settings)
    assert [next(reader).value for _ in range(3)] == [b"0", b"1", b"2"]
    reader.commit()
    assert reader.committed(place) == 3
    assert reader.beginning_offsets([place]) == {place: 0}
    assert reader.end_offsets([place]) == {place: 5}
    assert reader.offsets_for_times({place: began_ms + 3})[place].offset == 3
    reader.close()


def test_kafka_python_administers_topics(broker: Broker, topic: str) -> None:
    admin = KafkaAdminClient(bootstrap_servers=broker.servers)
    admin.create_topics([NewTopic(topic, 3, 1)])
    assert topic in admin.list_topics()
    admin.delete_topics([topic])
    assert topic not in admin.list_topics()
    admin.close()
