"""Topics and groups over REST: what is asked of a server, and how its answers are read."""

import msgspec
import pytest

from penstock.client import BadRequest, Client
from penstock.client.caller import Answer
from penstock.client.topics.kafka import KafkaCredentials, KafkaMissing
from penstock.wire import topics as wire
from tests.client.scripted import Request, ScriptedTransport

VIEW = wire.TopicView(
    topic_name="events",
    topic_id="t",
    partition_count=1,
    retention_s=None,
    retention_bytes=None,
    segment_bytes=1,
    max_message_bytes=1,
    cleanup="delete",
    record_count=0,
    size_bytes=0,
    kafka=None,
    partitions=[],
)


def answering(*values: msgspec.Struct) -> tuple[Client, list[Request]]:
    def answer_with(value: msgspec.Struct):  # type: ignore[no-untyped-def]
        async def answer(request: Request) -> Answer:
            return Answer(200, {"content-type": "application/json"}, msgspec.json.encode(value))

        return answer

    transport = ScriptedTransport([answer_with(value) for value in values])
    return Client(lambda: transport), transport.requests


async def test_a_topic_is_made_changed_described_and_deleted() -> None:
    client, requests = answering(VIEW, VIEW, VIEW, wire.TopicDeleted("events"))
    async with client:
        await client.create_topic("events", partitions=4, cleanup="compact")
        topic = client.topic("events")
        await topic.update(retention_s=None)
        assert (await topic.describe()).topic_name == "events"
        await topic.delete()
    assert [(each.method, each.path) for each in requests] == [
        ("POST", "/api/topics"),
        ("PATCH", "/api/topics/events"),
        ("GET", "/api/topics/events"),
        ("DELETE", "/api/topics/events"),
    ]
    assert msgspec.json.decode(requests[0].body) == {"topic_name": "events", "partitions": 4, "cleanup": "compact"}
    assert msgspec.json.decode(requests[1].body) == {"retention_s": None}


async def test_topics_and_groups_are_listed_in_pages() -> None:
    client, requests = answering(
        wire.TopicList([wire.TopicRow("a", 1, 2, 3)], "a"), wire.TopicList([wire.TopicRow("b", 1, 2, 3)])
    )
    async with client:
        assert [each.topic_name async for each in client.topics("x")] == ["a", "b"]
    assert [each.path for each in requests] == [
        "/api/topics?prefix=x&limit=1000",
        "/api/topics?prefix=x&cursor=a&limit=1000",
    ]
    client, requests = answering(wire.GroupList([wire.GroupRow("g", "Stable", 1, 5)]))
    async with client:
        assert [(each.group_name, each.lag) async for each in client.groups()] == [("g", 5)]


async def test_a_group_of_any_name_has_one_address() -> None:
    view = wire.GroupView(group_name="a/b?", state="Empty", protocol="", generation=1, lag=0, members=[], partitions=[])
    client, requests = answering(view, wire.GroupDeleted("a/b?"))
    async with client:
        assert (await client.group("a/b?")).state == "Empty"
        await client.delete_group("a/b?")
    assert [each.path for each in requests] == ["/api/groups/a%2Fb%3F"] * 2


async def test_records_are_browsed_and_added_over_rest() -> None:
    page = wire.RecordPage([wire.RecordView(partition=1, offset=7, timestamp="t", value="v")], 8, 0, 9)
    client, requests = answering(page, wire.Produced([wire.ProducedRecord(0, 1), wire.ProducedRecord(0, 2)]))
    async with client:
        topic = client.topic("events")
        assert (await topic.browse(partition=1, offset=7, limit=1)).records[0].value == "v"
        assert [each.offset for each in await topic.add(["text", b"\xff"], key="k")] == [1, 2]
    assert requests[0].path == "/api/topics/events/records?partition=1&offset=7&limit=1"
    assert msgspec.json.decode(requests[1].body) == {
        "records": [{"value": "text", "key": "k"}, {"value_base64": "/w==", "key": "k"}]
    }


async def test_a_setting_that_cannot_be_is_refused_before_anything_is_sent() -> None:
    client, requests = answering(VIEW)
    async with client:
        with pytest.raises(BadRequest, match="partitions"):
            await client.create_topic("events", partitions=0)
        with pytest.raises(BadRequest, match="colour"):
            await client.create_topic("events", colour="red")  # type: ignore[call-arg]
    assert requests == []


async def test_a_server_without_a_port_for_kafka_cannot_be_produced_to() -> None:
    client, _ = answering(VIEW)
    async with client:
        with pytest.raises(KafkaMissing, match="--kafka"):
            await client.topic("events").produce("x")


def test_a_key_is_the_password_and_its_id_the_user() -> None:
    assert KafkaCredentials().options() == {"security_protocol": "PLAINTEXT"}
    options = KafkaCredentials("pk_0123456789ab_secret_with_underscores", is_tls=True).options()
    assert options["security_protocol"] == "SASL_SSL"
    assert options["sasl_plain_username"] == "0123456789ab"
    assert options["sasl_plain_password"] == "pk_0123456789ab_secret_with_underscores"
