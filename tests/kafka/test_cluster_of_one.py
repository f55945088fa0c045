"""Tools are answered as by a healthy cluster of one broker, and what is not offered does not look like rights."""

import asyncio
import time
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.errors import UnsupportedVersionError
from confluent_kafka import ElectionType, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin._acl import AclOperation
from kafka import KafkaProducer
from kafka.errors import KafkaError as KafkaPythonError
from kio.schema.errors import ErrorCode

from penstock.api.kafka.wire.schema import Api
from penstock.contract.limits import TOPICS_ASKED_FOR_MAX
from tests.kafka.brokers import Broker, RawClient, request
from tests.kafka.librdkafka import WAIT_S, admin, create, producer
from tests.kafka.messages import request_type
from tests.kafka.test_rest import ask


def test_no_election_is_needed(broker: Broker, topic: str) -> None:
    create(broker.servers, topic)
    made = admin(broker.servers)
    asked = [TopicPartition(topic, 0), TopicPartition("nowhere", 0)]
    found = made.elect_leaders(ElectionType.PREFERRED, asked).result(WAIT_S)
    codes = {(each.topic, each.partition): error.code() for each, error in found.items()}
    assert codes[topic, 0] == KafkaError.ELECTION_NOT_NEEDED
    assert codes["nowhere", 0] == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_a_cluster_that_everybody_may_do_everything_on_says_so(broker: Broker) -> None:
    made = admin(broker.servers)
    found = made.describe_cluster(include_authorized_operations=True).result(WAIT_S)
    assert set(found.authorized_operations) == {
        AclOperation.ALTER,
        AclOperation.ALTER_CONFIGS,
        AclOperation.CLUSTER_ACTION,
        AclOperation.CREATE,
        AclOperation.DESCRIBE,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.IDEMPOTENT_WRITE,
    }


def test_nothing_is_on_its_way_and_the_quorum_is_this_broker(raw: RawClient) -> None:
    found = raw.ask(request(Api.LIST_PARTITION_REASSIGNMENTS, 0, timeout=_seconds(5), topics=None))
    assert (found.error_code, found.topics) == (ErrorCode.none, ())
    kind = request_type(Api.DESCRIBE_QUORUM, 2)
    of_topic = kind.__dataclass_fields__["topics"].type.__args__[0]
    of_partition = of_topic.__dataclass_fields__["partitions"].type.__args__[0]
    asked = of_topic(topic_name="__cluster_metadata", partitions=(of_partition(partition_index=0),))
    (topic,) = raw.ask(kind(topics=(asked,))).topics
    (partition,) = topic.partitions
    assert (partition.error_code, partition.leader_id) == (ErrorCode.none, 0)
    assert [each.replica_id for each in partition.current_voters] == [0]


def _seconds(count: int) -> Any:
    from datetime import timedelta

    return timedelta(seconds=count)


def test_partitions_are_described_a_page_at_a_time(raw: RawClient, broker: Broker, topic: str) -> None:
    names = [f"{topic}-{letter}" for letter in "abc"]
    for name in names:
        create(broker.servers, name, 3)
    kind = request_type(Api.DESCRIBE_TOPIC_PARTITIONS, 0)
    of_topic = kind.__dataclass_fields__["topics"].type.__args__[0]
    cursor, found = None, []
    for _ in range(10):
        asked = kind(topics=tuple(of_topic(name=name) for name in names), response_partition_limit=2, cursor=cursor)
        page = raw.ask(asked)
        found += [(each.name, part.partition_index) for each in page.topics for part in each.partitions]
        if page.next_cursor is None:
            break
        of_cursor = next(each for each in kind.__dataclass_fields__["cursor"].type.__args__ if each is not type(None))
        cursor = of_cursor(topic_name=page.next_cursor.topic_name, partition_index=page.next_cursor.partition_index)
    assert found == [(name, index) for name in names for index in range(3)]


def test_transactions_are_refused_as_unsupported_and_not_as_a_matter_of_rights(broker: Broker) -> None:
    with pytest.raises(KafkaException) as caught:
        producer(broker.servers, transactional_id="x").init_transactions(2.0)
    assert caught.value.args[0].code() == KafkaError.UNSUPPORTED_VERSION

    async def by_aiokafka() -> None:
        made = AIOKafkaProducer(bootstrap_servers=broker.servers, transactional_id="x")
        try:
            with pytest.raises(UnsupportedVersionError):
                await made.start()
        finally:
            await made.stop()

    asyncio.run(by_aiokafka())
    by_kafka_python = KafkaProducer(bootstrap_servers=broker.servers, transactional_id="x")
    try:
        with pytest.raises(KafkaPythonError, match="UnsupportedVersion"):
            by_kafka_python.init_transactions()
    finally:
        by_kafka_python.close(timeout=0)


def test_a_request_for_thousands_of_names_is_answered_soon_and_makes_some(broker: Broker, topic: str) -> None:
    kind = request_type(Api.METADATA, 5)
    of_topic = next(each for each in kind.__dataclass_fields__["topics"].type.__args__ if each is not type(None))
    of_topic = of_topic.__args__[0]
    asked = kind(
        topics=tuple(of_topic(name=f"{topic}-{number}") for number in range(3_000)), allow_auto_topic_creation=True
    )
    with RawClient((broker.host, broker.port)) as raw:
        began = time.monotonic()
        codes = [each.error_code for each in raw.ask(asked).topics]
        assert codes.count(ErrorCode.none) == TOPICS_ASKED_FOR_MAX
        assert codes.count(ErrorCode.unknown_topic_or_partition) == 3_000 - TOPICS_ASKED_FOR_MAX
        # Not about how quick a machine is: one after the other they took a minute.
        assert time.monotonic() - began < 60
    for number in range(TOPICS_ASKED_FOR_MAX):
        assert ask(broker, "DELETE", f"/api/topics/{topic}-{number}")[0] == 200
