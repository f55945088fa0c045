"""What the tools of administrators find: topics, their settings, their beginnings, groups from outside."""

from typing import Any

import pytest
from confluent_kafka import ConsumerGroupState, ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewPartitions, NewTopic

from penstock.api.kafka.configs import CONFIGS, FIXED, MOOT
from tests.kafka.brokers import Broker
from tests.kafka.librdkafka import WAIT_S, admin, consumer, create, produce_all, producer, read, read_topic


def done(futures: dict[Any, Any]) -> Any:
    """Wait for the one thing that was asked."""
    (future,) = futures.values()
    return future.result(WAIT_S)


def code(futures: dict[Any, Any]) -> int:
    with pytest.raises(KafkaException) as caught:
        done(futures)
    return int(caught.value.args[0].code())


def described(client: Any, topic: str) -> dict[str, ConfigEntry]:
    return dict(done(client.describe_configs([ConfigResource(ResourceType.TOPIC, topic)])))


def test_every_setting_of_a_topic_is_described_with_its_default(broker: Broker, topic: str) -> None:
    create(broker.servers, topic, retention_ms=60_000)
    client = admin(broker.servers)
    found = described(client, topic)
    assert set(found) == {*CONFIGS, *FIXED, *MOOT}
    assert (found["retention.ms"].value, found["retention.ms"].is_default) == ("60000", False)
    assert (found["cleanup.policy"].value, found["cleanup.policy"].is_default) == ("delete", True)
    assert found["min.insync.replicas"].is_read_only
    broker_configs = done(client.describe_configs([ConfigResource(ResourceType.BROKER, "0")]))
    assert broker_configs["auto.create.topics.enable"].value == "true"


def test_settings_are_changed_one_by_one_or_taken_back(broker: Broker, topic: str) -> None:
    create(broker.servers, topic, retention_ms=60_000)
    client = admin(broker.servers)

    def change(name: str, value: str, operation: AlterConfigOpType) -> dict[Any, Any]:
        entry = ConfigEntry(name, value, incremental_operation=operation)
        return dict(
            client.incremental_alter_configs([ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])])
        )

    done(change("max.message.bytes", "5000", AlterConfigOpType.SET))
    done(change("cleanup.policy", "compact", AlterConfigOpType.APPEND))
    done(change("retention.ms", "", AlterConfigOpType.DELETE))
    found = described(client, topic)
    assert (found["max.message.bytes"].value, found["cleanup.policy"].value) == ("5000", "delete,compact")
    assert (found["retention.ms"].value, found["retention.ms"].is_default) == ("604800000", True)
    done(change("cleanup.policy", "delete,compact", AlterConfigOpType.SUBTRACT))
    assert described(client, topic)["cleanup.policy"].value == ""
    assert code(change("no.such.setting", "1", AlterConfigOpType.SET)) == KafkaError.INVALID_CONFIG
    assert code(change("min.insync.replicas", "2", AlterConfigOpType.SET)) == KafkaError.INVALID_CONFIG
    assert code(change("retention.ms", "soon", AlterConfigOpType.SET)) == KafkaError.INVALID_CONFIG


def test_what_programs_say_about_files_is_said_again_to_them(broker: Broker, topic: str) -> None:
    create(broker.servers, topic, compression_type="gzip", file_delete_delay_ms=12_345)
    client = admin(broker.servers)
    found = described(client, topic)
    assert (found["compression.type"].value, found["file.delete.delay.ms"].value) == ("gzip", "12345")
    assert not found["file.delete.delay.ms"].is_default
    # All settings at once: what is not said has its default again.
    with pytest.warns(DeprecationWarning, match="incremental_alter_configs"):
        done(client.alter_configs([ConfigResource(ResourceType.TOPIC, topic, {"index.interval.bytes": "1"})]))
    found = described(client, topic)
    assert (found["compression.type"].value, found["file.delete.delay.ms"].value) == ("producer", "60000")
    assert found["index.interval.bytes"].value == "1"
    entry = ConfigEntry("index.interval.bytes", "", incremental_operation=AlterConfigOpType.DELETE)
    done(client.incremental_alter_configs([ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])]))
    assert described(client, topic)["index.interval.bytes"].is_default


@pytest.mark.parametrize(
    ("new", "error"),
    [
        ({"topic": "no/name"}, KafkaError.TOPIC_EXCEPTION),
        ({"num_partitions": 0}, KafkaError.INVALID_PARTITIONS),
        ({"replication_factor": 3}, KafkaError.INVALID_REPLICATION_FACTOR),
        ({"config": {"retention.ms": "x"}}, KafkaError.INVALID_CONFIG),
        ({"config": {"unheard.of": "x"}}, KafkaError.INVALID_CONFIG),
        ({"config": {"compression.type": "zip"}}, KafkaError.INVALID_CONFIG),
        ({"config": {"segment.jitter.ms": "-1"}}, KafkaError.INVALID_CONFIG),
        ({"config": {"preallocate": "maybe"}}, KafkaError.INVALID_CONFIG),
    ],
)
def test_a_topic_that_cannot_be_is_refused_with_the_reason(
    broker: Broker, topic: str, new: dict[str, Any], error: int
) -> None:
    wanted = NewTopic(**{"topic": topic, "num_partitions": 1, "replication_factor": 1, **new})
    client = admin(broker.servers)
    assert code(client.create_topics([wanted])) == error


def test_a_topic_gets_more_partitions_and_never_fewer(broker: Broker, topic: str) -> None:
    create(broker.servers, topic, 2)
    client = admin(broker.servers)
    done(client.create_partitions([NewPartitions(topic, 5)]))
    assert len(client.list_topics(topic, timeout=WAIT_S).topics[topic].partitions) == 5
    assert code(client.create_partitions([NewPartitions(topic, 3)])) == KafkaError.INVALID_PARTITIONS
    assert code(client.create_partitions([NewPartitions("nowhere", 3)])) == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_records_before_an_offset_are_deleted(broker: Broker, topic: str) -> None:
    create(broker.servers, topic)
    produce_all(producer(broker.servers), topic, [b"%d" % number for number in range(10)])
    client = admin(broker.servers)
    assert done(client.delete_records([TopicPartition(topic, 0, 6)])).low_watermark == 6
    with consumer(broker.servers) as reader:
        assert reader.get_watermark_offsets(TopicPartition(topic, 0), timeout=WAIT_S) == (6, 10)
    # A fetch of what is gone is sent to the beginning.
    assert read_topic(broker.servers, topic, 1, offset=2)[0].value() == b"6"
    assert code(client.delete_records([TopicPartition(topic, 0, 99)])) == KafkaError.OFFSET_OUT_OF_RANGE


def test_a_deleted_topic_is_gone_and_one_of_its_name_is_another(broker: Broker, topic: str) -> None:
    create(broker.servers, topic)
    produce_all(producer(broker.servers), topic, [b"old"])
    client = admin(broker.servers)
    done(client.delete_topics([topic]))
    assert code(client.delete_topics([topic])) == KafkaError.UNKNOWN_TOPIC_OR_PART
    create(broker.servers, topic)
    assert produce_all(producer(broker.servers), topic, [b"new"]) == [0]
    assert read_topic(broker.servers, topic, 1)[0].value() == b"new"


def test_groups_are_listed_described_and_deleted(broker: Broker, topic: str, group: str) -> None:
    create(broker.servers, topic)
    produce_all(producer(broker.servers), topic, [b"x"])
    client = admin(broker.servers)
    with consumer(broker.servers, group, client_id="my-client") as reader:
        reader.subscribe([topic])
        read(reader, 1)
        reader.commit(asynchronous=False)
        found = done(client.describe_consumer_groups([group]))
        assert (found.state, found.members[0].client_id) == (ConsumerGroupState.STABLE, "my-client")
        assert [place.topic for place in found.members[0].assignment.topic_partitions] == [topic]
        assert code(client.delete_consumer_groups([group])) == KafkaError.NON_EMPTY_GROUP
    assert group in {each.group_id for each in client.list_consumer_groups().result(WAIT_S).valid}
    kept = done(client.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]))
    assert [(each.topic, each.offset) for each in kept.topic_partitions] == [(topic, 1)]
    done(client.delete_consumer_groups([group]))
    assert group not in {each.group_id for each in client.list_consumer_groups().result(WAIT_S).valid}


def test_the_cluster_is_one_broker_at_the_address_it_was_found_at(broker: Broker) -> None:
    client = admin(broker.servers)
    found = client.describe_cluster().result(WAIT_S)
    assert [(node.id, f"{node.host}:{node.port}") for node in found.nodes] == [(0, broker.servers)]
    assert (found.cluster_id, found.controller.id) == ("penstock", 0)
