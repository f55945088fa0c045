"""What a group may be called, and which offsets it may commit."""

import json
from typing import Any
from urllib.parse import quote

import pytest
from confluent_kafka import KafkaException, TopicPartition
from kio.schema.errors import ErrorCode

from penstock.api.kafka.wire.schema import Api
from tests.kafka.brokers import Broker, RawClient, request
from tests.kafka.librdkafka import WAIT_S, consumer, create, produce_all, producer
from tests.kafka.messages import request_type
from tests.kafka.test_rest import ask


def committed(raw: RawClient, group: str, topic: str, offset: int) -> ErrorCode:
    kind = request_type(Api.OFFSET_COMMIT, 2)
    of_topic = kind.__dataclass_fields__["topics"].type.__args__[0]
    of_partition = of_topic.__dataclass_fields__["partitions"].type.__args__[0]
    part = of_partition(partition_index=0, committed_offset=offset, committed_metadata="")
    rows = (of_topic(name=topic, partitions=(part,)),)
    values: dict[str, Any] = {each: kind.__dataclass_fields__[each] for each in kind.__dataclass_fields__}
    asked = {"group_id": group, "generation_id_or_member_epoch": -1, "member_id": "", "topics": rows}
    if "retention_time" in values:
        asked["retention_time"] = values["retention_time"].default
    found = raw.ask(kind(**{name: value for name, value in asked.items() if name in values}))
    code: ErrorCode = found.topics[0].partitions[0].error_code
    return code


@pytest.mark.parametrize("name", ["a\0b", "a\nb", "a\x1b[31mb", "a\x7fb", "a\u202eb", "", "x" * 256])
def test_a_name_with_control_characters_is_refused(raw: RawClient, broker: Broker, topic: str, name: str) -> None:
    create(broker.servers, topic)
    assert committed(raw, name, topic, 0) == ErrorCode.invalid_group_id
    assert name not in [each.group_id for each in raw.ask(request(Api.LIST_GROUPS, 1)).groups]


@pytest.mark.parametrize("name", ["team/service", "a b", "söhne", "x%2Fy", "..", "a?b#c"])
def test_a_group_of_any_other_name_is_seen_and_deleted_over_rest(broker: Broker, topic: str, name: str) -> None:
    create(broker.servers, topic)
    produce_all(producer(broker.servers), topic, [b"a", b"b"])
    with consumer(broker.servers, name) as reader:
        reader.commit(offsets=[TopicPartition(topic, 0, 1)], asynchronous=False)
    path = "/api/groups/" + quote(name, safe="").replace("..", "%2E%2E")
    status, found = ask(broker, "GET", path)
    assert (status, found["group_name"], found["lag"]) == (200, name, 1)
    assert ask(broker, "DELETE", path)[0] == 200
    assert ask(broker, "GET", path)[0] == 404
    assert name not in json.dumps(ask(broker, "GET", "/api/groups")[1], ensure_ascii=False)


@pytest.mark.parametrize("path", ["/api/queues/a%2Fb", "/api/groups/a%2Fb/c", "/api/groups%2Fa", "/api%2Fgroups/a"])
def test_an_escaped_slash_leads_nowhere_else(broker: Broker, path: str) -> None:
    assert ask(broker, "GET", path)[0] == 404
    assert ask(broker, "POST", "/api/groups/a%2Fb", {})[0] in (404, 405)


@pytest.mark.parametrize(
    ("offset", "error"),
    [
        (-99, ErrorCode.offset_out_of_range),
        (-1, ErrorCode.offset_out_of_range),
        (2**63 - 1, ErrorCode.offset_out_of_range),
        (0, ErrorCode.none),
        (1_000_000, ErrorCode.none),
    ],
)
def test_an_offset_that_no_partition_can_have_is_not_committed(
    raw: RawClient, broker: Broker, topic: str, group: str, offset: int, error: ErrorCode
) -> None:
    create(broker.servers, topic)
    assert committed(raw, group, topic, offset) == error
    with consumer(broker.servers, group) as reader:
        (found,) = reader.committed([TopicPartition(topic, 0)], WAIT_S)
        assert (found.offset == offset) == (error == ErrorCode.none)


def test_a_client_with_a_bad_group_name_is_told(broker: Broker, topic: str) -> None:
    create(broker.servers, topic)
    with consumer(broker.servers, "bell\a") as reader, pytest.raises(KafkaException, match="INVALID_GROUP_ID"):
        reader.commit(offsets=[TopicPartition(topic, 0, 1)], asynchronous=False)
