"""A key learns nothing about topics that it may not see: not from groups, offsets or ids, over Kafka and REST."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest
from confluent_kafka import TopicPartition

from penstock.api.kafka.wire.schema import Api
from penstock.broker.access import Grant, Role
from penstock.broker.api_keys import create_key
from penstock.core.consumer_group.members import assigned_partitions, subscribed_topics
from tests.kafka.brokers import Broker, RawClient, request
from tests.kafka.librdkafka import consumer, create, produce_all, producer, read
from tests.kafka.messages import made, request_type

DENIED, UNKNOWN_ID = 29, 100
GRANTS = {"boss": [Grant(Role.ADMIN, "*")], "tenant": [Grant(Role.ADMIN, "open-*")]}


class Keyed:
    """A server with two keys, a topic for each of them, and a group that has read both."""

    def __init__(self, broker: Broker, keys: Path) -> None:
        self.broker = broker
        self.texts = {
            name: create_key(keys, name, grants, queues_max=None, created_at="2026-01-01T00:00:00Z")[1]
            for name, grants in GRANTS.items()
        }

    def login(self, name: str) -> dict[str, Any]:
        usual = {"sasl_mechanism": "PLAIN", "sasl_username": name, "sasl_password": self.texts[name]}
        return {"security_protocol": "SASL_PLAINTEXT", **usual}

    def client(self, name: str) -> RawClient:
        client = RawClient((self.broker.host, self.broker.port))
        assert client.ask(request(Api.SASL_HANDSHAKE, 1, mechanism="PLAIN")).error_code == 0
        said = f"\0{name}\0{self.texts[name]}".encode()
        assert client.ask(request(Api.SASL_AUTHENTICATE, 1, auth_bytes=said)).error_code == 0
        return client

    def rest(self, name: str, path: str) -> Any:
        asked = Request(self.broker.url + path, headers={"authorization": f"Bearer {self.texts[name]}"})
        with urlopen(asked, timeout=60) as answer:
            return json.loads(answer.read())


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Keyed]:
    folder = tmp_path_factory.mktemp("keyed")
    broker = Broker(folder / "data")
    found = Keyed(broker, folder / "data" / "keys.json")
    with broker:
        boss = found.login("boss")
        for topic in ("open-t", "secret-t"):
            create(broker.servers, topic, login=boss)
            produce_all(producer(broker.servers, **boss), topic, [b"a", b"b"])
        with consumer(broker.servers, "open-g", **boss) as reader:
            reader.subscribe(["open-t", "secret-t"])
            read(reader, 4)
            reader.commit(offsets=[TopicPartition(topic, 0, 1) for topic in ("open-t", "secret-t")], asynchronous=False)
            yield found


def ask(client: RawClient, key: Api, version: int, **values: Any) -> Any:
    return client.ask(made(request_type(key, version), values))


def topics_of_members(answer: Any) -> tuple[set[str], set[str]]:
    (group,) = answer.groups
    subscribed = {topic for member in group.members for topic in subscribed_topics(member.member_metadata) or ()}
    places = [place for member in group.members for place in assigned_partitions(member.member_assignment) or ()]
    return subscribed, {topic for topic, _ in places}


def test_a_group_shows_only_topics_that_the_key_may_see(keyed: Keyed) -> None:
    both = {"open-t", "secret-t"}
    for name, seen in (("boss", both), ("tenant", {"open-t"})):
        with keyed.client(name) as client:
            answer = ask(client, Api.DESCRIBE_GROUPS, 0, groups=["open-g"])
        assert topics_of_members(answer) == (seen, seen)
        shown = keyed.rest(name, "/api/groups/open-g")
        assert {row["topic_name"] for row in shown["partitions"]} == seen
        assert {row["topic_name"] for member in shown["members"] for row in member["assigned"]} == seen
        assert shown["lag"] == len(seen)
        (row,) = keyed.rest(name, "/api/groups")["groups"]
        assert row["lag"] == len(seen)


def offsets_of(client: RawClient, **values: Any) -> dict[str, tuple[int, int]]:
    answer = ask(client, Api.OFFSET_FETCH, 2, group_id="open-g", **values)
    return {
        topic.name: (part.error_code, part.committed_offset) for topic in answer.topics for part in topic.partitions
    }


def test_offsets_of_a_topic_that_the_key_may_not_read_are_refused_and_not_listed(keyed: Keyed) -> None:
    with keyed.client("tenant") as client:
        asked = [{"name": name, "partition_indexes": [0]} for name in ("open-t", "secret-t", "secret-none")]
        found = offsets_of(client, topics=asked)
        assert found == {"open-t": (0, 1), "secret-t": (DENIED, -1), "secret-none": (DENIED, -1)}
        assert offsets_of(client, topics=None) == {"open-t": (0, 1)}


def test_an_offset_of_a_topic_that_the_key_may_not_read_is_not_deleted(keyed: Keyed) -> None:
    with keyed.client("tenant") as client:
        asked = [{"name": name, "partitions": [{"partition_index": 0}]} for name in ("secret-t", "secret-none")]
        answer = ask(client, Api.OFFSET_DELETE, 0, group_id="open-g", topics=asked)
        codes = {topic.name: [each.error_code for each in topic.partitions] for topic in answer.topics}
        assert codes == {"secret-t": [DENIED], "secret-none": [DENIED]}
    with keyed.client("boss") as client:
        assert offsets_of(client, topics=None) == {"open-t": (0, 1), "secret-t": (0, 1)}


def test_the_id_of_a_topic_that_the_key_may_not_see_looks_like_none(keyed: Keyed) -> None:
    topic_id = keyed.rest("boss", "/api/topics/secret-t")["topic_id"]
    with keyed.client("tenant") as client:
        for each in (topic_id, "00000000-0000-4000-8000-000000000001"):
            answer = ask(client, Api.METADATA, 12, topics=[{"topic_id": each, "name": None}])
            assert [(row.error_code, row.name) for row in answer.topics] == [(UNKNOWN_ID, None)]
            (row,) = ask(client, Api.DELETE_TOPICS, 6, topics=[{"topic_id": each, "name": None}]).responses
            assert (row.error_code, row.name, "secret" in str(row.error_message)) == (UNKNOWN_ID, None, False)
    assert keyed.rest("boss", "/api/topics/secret-t")["record_count"] == 2
