"""Groups of librdkafka's consumers that come, go and die while the server is killed: every record is read.

A commit after each record, so a record is read twice only if the server or its reader died in between.
"""

import threading
import time
from collections import Counter
from math import inf
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer

from tests.kafka.brokers import Broker
from tests.kafka.librdkafka import create
from tests.waiting import wait_until

PARTITIONS = 6
SECONDS = 12.0
SESSION_MS = 6_000
# How long each of five readers lives; the others stay until the end.
LIVES_S = (4.0, inf, 7.0, inf, inf)
# The longest wait: a group that has not got there by then has failed.
PATIENCE_S = 120.0

Place = tuple[int, int]


class Readers:
    def __init__(self, broker: Broker, topic: str, **settings: Any) -> None:
        self._settings = {
            "bootstrap.servers": broker.servers,
            "group.id": f"readers of {topic}",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": SESSION_MS,
            "heartbeat.interval.ms": 300,
            "log_level": 0,
            **settings,
        }
        self._topic = topic
        self._is_over = threading.Event()
        self.seen: Counter[Place] = Counter()
        self.threads: list[threading.Thread] = []

    def begin(self, life_s: float, **settings: Any) -> None:
        thread = threading.Thread(target=self._read, args=(life_s, settings))
        self.threads.append(thread)
        thread.start()

    def _read(self, life_s: float, settings: dict[str, Any]) -> None:
        consumer = Consumer({**self._settings, **settings})
        consumer.subscribe([self._topic])
        ends_at = time.monotonic() + life_s
        while not self._is_over.is_set() and time.monotonic() < ends_at:
            message = consumer.poll(0.2)
            if message is None or message.error():
                continue
            self.seen[message.partition() or 0, message.offset() or 0] += 1
            try:
                consumer.commit(message=message, asynchronous=False)
            except KafkaException:
                # The server is away, or the group has gone on: the record may be read once more.
                pass
        consumer.close()

    def end(self) -> None:
        self._is_over.set()
        for thread in self.threads:
            thread.join(PATIENCE_S)


@pytest.mark.real_time
@pytest.mark.parametrize("strategy", ["range", "roundrobin", "cooperative-sticky"])
@pytest.mark.parametrize("is_static", [False, True], ids=["dynamic", "static"])
def test_every_record_is_read_by_a_group_whose_members_and_server_come_and_go(
    tmp_path: Path, strategy: str, *, is_static: bool
) -> None:
    with Broker(tmp_path / "data") as broker:
        create(broker.servers, "events", PARTITIONS)
        readers = Readers(broker, "events", **{"partition.assignment.strategy": strategy})
        for number, life_s in enumerate(LIVES_S):
            readers.begin(life_s, **({"group.instance.id": f"i{number}"} if is_static else {}))
        sent: set[Place] = set()
        try:
            _feed(broker, sent)
            wait_until(lambda: not sent - set(readers.seen), within_s=SESSION_MS / 1_000 + PATIENCE_S)
        finally:
            readers.end()
    assert len(sent) > 100
    twice = sum(count - 1 for count in readers.seen.values())
    # One for each reader and partition that was cut off in the middle of a record, not a whole replay.
    assert twice < 5 * PARTITIONS * len(LIVES_S)


def _feed(broker: Broker, sent: set[Place]) -> None:
    """Produce until the time is over, and kill the server half way."""
    producer = Producer({"bootstrap.servers": broker.servers, "enable.idempotence": True, "log_level": 0})

    def delivered(error: Any, message: Any) -> None:
        assert error is None, error
        sent.add((message.partition(), message.offset()))

    began = time.monotonic()
    has_died = False
    while (passed_s := time.monotonic() - began) < SECONDS:
        producer.produce("events", b"x" * 100, on_delivery=delivered)
        producer.poll(0.005)
        if passed_s > SECONDS / 2 and not has_died:
            has_died = True
            broker.kill()
            broker.start()
    assert producer.flush(PATIENCE_S) == 0
