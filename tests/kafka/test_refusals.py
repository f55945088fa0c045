"""What newer clients and tools ask, and what they are told when it is not to be had: in words, and at once."""

from datetime import timedelta
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, ShareConsumer
from kio.schema.errors import ErrorCode

from penstock.api.kafka.request import Operation
from penstock.api.kafka.wire.schema import Api
from tests.kafka.brokers import Broker, RawClient, request
from tests.kafka.librdkafka import WAIT_S, consumer, create, produce_all, producer
from tests.kafka.messages import request_type

WAIT = timedelta(seconds=5)


def asked(raw: RawClient, key: int, version: int, rows: list[Any], **more: Any) -> Any:
    """Ask about topics, each of them said as the fields of its structure."""
    kind = request_type(key, version)
    (row,) = {each.type for each in kind.__dataclass_fields__.values() if each.name == "topics"}
    inner = row.__args__[0]
    inner = getattr(inner, "__args__", (inner,))[0]
    return raw.ask(kind(topics=tuple(inner(**each) for each in rows), **more))


def operations(bits: int) -> set[Operation]:
    return {each for each in Operation if bits & 1 << each}


def test_a_consumer_of_the_newer_protocol_is_told_at_once_that_it_is_not_spoken(broker: Broker, topic: str) -> None:
    create(broker.servers, topic)
    settings = {"group_protocol": "consumer", "error_cb": lambda error: None}
    with consumer(broker.servers, "newer", **settings) as reader:
        reader.subscribe([topic])
        message = reader.poll(WAIT_S)
        error = None if message is None else message.error()
        assert error is not None
        assert error.code() == KafkaError._FATAL
        assert "API version not supported" in error.str()


def test_a_consumer_of_a_share_group_is_told_at_once_that_there_are_none(broker: Broker, topic: str) -> None:
    create(broker.servers, topic)
    reader = ShareConsumer({"bootstrap.servers": broker.servers, "group.id": "share"})
    try:
        reader.subscribe([topic])
        with pytest.raises(KafkaException, match="API version not supported"):
            reader.poll(WAIT_S)
    finally:
        reader.close()


def test_a_client_that_asks_is_told_what_it_may_do(raw: RawClient, broker: Broker, topic: str) -> None:
    create(broker.servers, topic)
    wanted = {"include_topic_authorized_operations": True, "include_cluster_authorized_operations": True}
    found = asked(raw, Api.METADATA, 9, [{"name": topic}], allow_auto_topic_creation=False, **wanted)
    everything = set(Operation) - {Operation.IDEMPOTENT_WRITE, Operation.CLUSTER_ACTION}
    assert operations(found.topics[0].topic_authorized_operations) == everything
    assert Operation.IDEMPOTENT_WRITE in operations(found.cluster_authorized_operations)
    silent = asked(raw, Api.METADATA, 9, [{"name": topic}], **dict.fromkeys(wanted, False))
    nothing = -(2**31)
    assert (silent.topics[0].topic_authorized_operations, silent.cluster_authorized_operations) == (nothing, nothing)


FLAGS = {"include_topic_authorized_operations": False, "include_cluster_authorized_operations": False}


def test_a_name_that_differs_from_another_only_in_dots_is_refused_as_a_name(
    raw: RawClient, broker: Broker, topic: str
) -> None:
    create(broker.servers, f"{topic}.x")
    (found,) = asked(raw, Api.METADATA, 9, [{"name": f"{topic}_x"}], allow_auto_topic_creation=True, **FLAGS).topics
    assert found.error_code == ErrorCode.invalid_topic_exception


def test_a_name_that_no_topic_can_have_is_refused_as_such_also_if_nothing_is_made(raw: RawClient) -> None:
    rows = [{"name": "no/name"}, {"name": "nowhere"}]
    found = asked(raw, Api.METADATA, 9, rows, allow_auto_topic_creation=False, **FLAGS)
    assert [each.error_code for each in found.topics] == [
        ErrorCode.invalid_topic_exception,
        ErrorCode.unknown_topic_or_partition,
    ]


@pytest.mark.parametrize(("count", "brokers"), [(2, [7]), (2, [0, 1]), (4, [0])])
def test_replicas_on_other_brokers_or_for_other_partitions_cannot_be_assigned(
    raw: RawClient, broker: Broker, topic: str, count: int, brokers: list[int]
) -> None:
    create(broker.servers, topic)
    kind = request_type(Api.CREATE_PARTITIONS, 3)
    row = kind.__dataclass_fields__["topics"].type.__args__[0]
    assignment = next(
        each for each in row.__dataclass_fields__["assignments"].type.__args__ if each is not type(None)
    ).__args__[0]
    assigned = row(name=topic, count=count, assignments=(assignment(broker_ids=tuple(brokers)),))
    found = raw.ask(request(Api.CREATE_PARTITIONS, 3, topics=(assigned,), timeout=WAIT, validate_only=False))
    assert found.results[0].error_code == ErrorCode.invalid_replica_assignment


@pytest.mark.parametrize(
    ("acks", "records", "error"),
    [
        (2, b"", ErrorCode.invalid_required_acks),
        (-1, b"", ErrorCode.invalid_record),
        (-1, None, ErrorCode.invalid_record),
    ],
)
def test_a_producer_that_contradicts_itself_is_told_where(
    raw: RawClient, broker: Broker, topic: str, acks: int, records: bytes | None, error: ErrorCode
) -> None:
    create(broker.servers, topic)
    kind = request_type(Api.PRODUCE, 9)
    of_topic = kind.__dataclass_fields__["topic_data"].type.__args__[0]
    of_partition = of_topic.__dataclass_fields__["partition_data"].type.__args__[0]
    part = of_topic(name=topic, partition_data=(of_partition(index=0, records=records),))
    found = raw.ask(kind(transactional_id=None, acks=acks, timeout=WAIT, topic_data=(part,)))
    assert found.responses[0].partition_responses[0].error_code == error


def test_tools_learn_how_much_of_the_disk_each_partition_takes(raw: RawClient, broker: Broker, topic: str) -> None:
    create(broker.servers, topic, 2)
    produce_all(producer(broker.servers), topic, [bytes(5_000)], partition=1)
    rows = [{"topic": topic, "partitions": (0, 1, 9)}, {"topic": "nowhere", "partitions": (0,)}]
    (folder,) = asked(raw, Api.DESCRIBE_LOG_DIRS, 4, rows).results
    (found,) = folder.topics
    sizes = {each.partition_index: each.partition_size for each in found.partitions}
    assert (found.name, sizes[0]) == (topic, 0)
    assert 5_000 < sizes.pop(1) < 6_000
    assert set(sizes) == {0}
    everything = raw.ask(request(Api.DESCRIBE_LOG_DIRS, 1, topics=None))
    assert topic in {each.name for each in everything.results[0].topics}
