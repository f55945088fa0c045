"""Topics, records and groups over REST, and their numbers for dashboards, beside real Kafka clients."""

import base64
import json
import re
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from confluent_kafka import TopicPartition

from tests.kafka.brokers import Broker
from tests.kafka.librdkafka import consumer, create, produce_all, producer, read, read_topic


def ask(broker: Broker, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    data = None if body is None else json.dumps(body).encode()
    request = Request(broker.url + path, data, {"content-type": "application/json"}, method=method)
    try:
        with urlopen(request, timeout=60) as answer:
            return answer.status, json.loads(answer.read())
    except HTTPError as error:
        with error:
            return error.code, json.loads(error.read())


def test_what_is_produced_over_rest_is_read_by_a_kafka_client(broker: Broker, topic: str) -> None:
    assert ask(broker, "POST", "/api/topics", {"topic_name": topic, "partitions": 3})[0] == 201
    binary = base64.b64encode(b"\xff\x00").decode()
    records = [
        {"key": "k", "value": "one", "headers": {"a": "b"}},
        {"key": "k", "value_base64": binary},
        {"key": "k", "value": None},
    ]
    status, answer = ask(broker, "POST", f"/api/topics/{topic}/records", {"records": records})
    assert status == 201
    (partition,) = {each["partition"] for each in answer["records"]}
    found = read_topic(broker.servers, topic, 3, partition=partition)
    assert [each.value() for each in found] == [b"one", b"\xff\x00", None]
    assert found[0].headers() == [("a", b"b")]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_records_of_a_kafka_client_are_browsed_over_rest(broker: Broker, topic: str, codec: str) -> None:
    # The records are years old, and shall stay.
    create(broker.servers, topic, retention_ms="-1")
    values = [b"value %d" % number for number in range(30)]
    produce_all(
        producer(broker.servers, compression_type=codec), topic, values, key=b"\xfe", timestamp=1_700_000_000_000
    )
    status, page = ask(broker, "GET", f"/api/topics/{topic}/records?offset=12&limit=3")
    assert status == 200
    assert [(each["offset"], each["value"]) for each in page["records"]] == [
        (12, "value 12"),
        (13, "value 13"),
        (14, "value 14"),
    ]
    assert page["records"][0]["key_base64"] == base64.b64encode(b"\xfe").decode()
    assert (page["next_offset"], page["high_watermark"]) == (15, 30)
    by_time = ask(broker, "GET", f"/api/topics/{topic}/records?since=2023-11-14T22:13:20Z&limit=1")[1]
    assert [each["timestamp"] for each in by_time["records"]] == ["2023-11-14T22:13:20.000Z"]
    assert ask(broker, "GET", f"/api/topics/{topic}/records?since=2024-01-01T00:00:00Z")[1]["records"] == []


def test_a_group_is_shown_with_its_members_and_its_lag(broker: Broker, topic: str, group: str) -> None:
    create(broker.servers, topic, 2)
    produce_all(producer(broker.servers), topic, [b"x"] * 10, partition=1)
    with consumer(broker.servers, group) as reader:
        reader.subscribe([topic])
        read(reader, 10)
        reader.commit(offsets=[TopicPartition(topic, 1, 4)], asynchronous=False)
        found = ask(broker, "GET", f"/api/groups/{group}")[1]
        assert (found["state"], found["lag"], len(found["members"])) == ("Stable", 6, 1)
        (row,) = [each for each in found["partitions"] if each["partition"] == 1]
        assert (row["committed"], row["high_watermark"], row["lag"]) == (4, 10, 6)
        assert row["member_id"] == found["members"][0]["member_id"]
        assert ask(broker, "DELETE", f"/api/groups/{group}")[0] == 409
        with urlopen(f"{broker.url}/metrics", timeout=60) as answer:
            text = answer.read().decode()
    labels = f'consumergroup="{group}",partition="1",topic="{topic}"'
    lines = {line.partition("{")[0]: line for line in text.splitlines() if f'topic="{topic}"' in line and '"1"' in line}
    assert lines["kafka_topic_partition_current_offset"].endswith(" 10.0")
    assert lines["kafka_consumergroup_lag"].endswith(" 6.0")
    assert sorted(labels.split(",")) == sorted(lines["kafka_consumergroup_lag"].split("{")[1].split("}")[0].split(","))
    clients = re.search(r"^penstock_kafka_connections (\d+)", text, re.MULTILINE)
    assert clients is not None
    assert int(clients[1]) >= 1
    assert re.search(r"^penstock_kafka_requests_total [1-9]", text, re.MULTILINE)
    assert any(each["group_name"] == group for each in ask(broker, "GET", "/api/groups")[1]["groups"])
    assert ask(broker, "DELETE", f"/api/groups/{group}")[0] == 200
    assert ask(broker, "GET", f"/api/groups/{group}")[1]["code"] == "group_not_found"


def test_topics_are_changed_and_deleted_over_rest(broker: Broker, topic: str) -> None:
    made = {"topic_name": topic, "retention_s": 60, "cleanup": "compact,delete"}
    assert ask(broker, "POST", "/api/topics", made)[0] == 201
    assert ask(broker, "POST", "/api/topics", made)[0] == 200
    assert ask(broker, "POST", "/api/topics", {"topic_name": topic})[1]["code"] == "topic_exists"
    changed = ask(broker, "PATCH", f"/api/topics/{topic}", {"partitions": 4, "retention_s": None})[1]
    assert (changed["partition_count"], changed["retention_s"], changed["cleanup"]) == (4, None, "compact,delete")
    assert changed["kafka"] == broker.servers
    assert ask(broker, "PATCH", f"/api/topics/{topic}", {"partitions": 2})[1]["code"] == "partitions_cannot_shrink"
    keyless = {"records": [{"value": "x"}]}
    assert ask(broker, "POST", f"/api/topics/{topic}/records", keyless)[1]["code"] == "record_refused"
    assert ask(broker, "GET", f"/api/topics/{topic}/records?partition=9")[1]["code"] == "partition_not_found"
    assert ask(broker, "GET", f"/api/topics/{topic}/records?offset=5")[1]["records"] == []
    assert ask(broker, "DELETE", f"/api/topics/{topic}")[0] == 200
    assert ask(broker, "GET", f"/api/topics/{topic}")[1]["code"] == "topic_not_found"
