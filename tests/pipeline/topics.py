"""What is in a topic after Spark has written to it, asked of the server and read by librdkafka."""

import json
from typing import Any
from urllib.request import Request, urlopen

from confluent_kafka import TopicPartition

from tests.kafka.brokers import Broker
from tests.kafka.librdkafka import consumer

WAIT_S = 60


def ask(broker: Broker, method: str, path: str, body: Any = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = Request(f"{broker.url}/api/topics{path}", data, {"content-type": "application/json"}, method=method)
    with urlopen(request, timeout=WAIT_S) as answer:
        return json.loads(answer.read())


def held(broker: Broker, topic: str) -> list[int]:
    """How many records each partition has."""
    return [each["high_watermark"] for each in ask(broker, "GET", f"/{topic}")["partitions"]]


def consumed(broker: Broker, topic: str) -> list[Any]:
    """All records of a topic, as librdkafka reads them, by partition and offset."""
    counts = held(broker, topic)
    found: list[Any] = []
    with consumer(broker.servers) as client:
        client.assign([TopicPartition(topic, partition, 0) for partition in range(len(counts))])
        while len(found) < sum(counts):
            batch = client.consume(sum(counts) - len(found), WAIT_S)
            assert all(each.error() is None for each in batch)
            found += batch
    return sorted(found, key=lambda each: (each.partition(), each.offset()))
