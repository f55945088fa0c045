"""Kafka's clients on two servers over one PostgreSQL: any serves any partition, and a killed one is not missed."""

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import TopicPartition
from kafka import KafkaConsumer, KafkaProducer

import penstock
from tests.kafka.brokers import Broker
from tests.kafka.librdkafka import WAIT_S, admin, consumer, create, producer, read, read_topic
from tests.kafka.test_kill import Acknowledged
from tests.postgres.servers import shared_server
from tests.waiting import wait_until

PARTITIONS = 4
RECORDS = 3_000


class Two:
    def __init__(self, first: Broker, second: Broker) -> None:
        self.first, self.second = first, second

    @property
    def servers(self) -> str:
        return f"{self.first.servers},{self.second.servers}"


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Two]:
    tmp_path = tmp_path_factory.mktemp("two")
    store = shared_server().new_database()
    with ExitStack() as stack:
        brokers = [
            stack.enter_context(Broker(tmp_path / name / "data", "--store", store, "--node", name))
            for name in ("one", "two")
        ]
        found = Two(*brokers)
        asking = admin(found.servers)
        wait_until(lambda: len(asking.list_topics(timeout=WAIT_S).brokers) == 2)
        yield found
        for broker in brokers:
            assert "kafka.failed" not in broker.notes, broker.notes


def all_numbers(servers: str, topic: str) -> dict[tuple[int, int], int]:
    found = {}
    for partition in range(PARTITIONS):
        with consumer(servers, log_connection_close=False) as reader:
            _, end = reader.get_watermark_offsets(TopicPartition(topic, partition), timeout=WAIT_S)
        for message in read_topic(servers, topic, end, partition=partition):
            found[partition, message.offset() or 0] = int(message.value() or b"")
    return found


def test_a_killed_server_of_two_costs_no_acknowledged_record(two: Two, topic: str) -> None:
    create(two.servers, topic, PARTITIONS)
    acknowledged = Acknowledged()
    settings = {"enable_idempotence": True, "batch_num_messages": 50, "log_connection_close": False}
    made = producer(two.servers, reconnect_backoff_max_ms=200, retry_backoff_ms=20, **settings)
    for number in range(RECORDS):
        made.produce(topic, b"%d" % number, partition=number % PARTITIONS, on_delivery=acknowledged.keep)
        made.poll(0)
        if number == RECORDS // 2:
            made.poll(0.02)
            two.second.kill()
    assert made.flush(300) == 0
    two.second.start()
    assert acknowledged.failures == []
    found = all_numbers(two.first.servers, topic)
    assert {place: number for number, place in acknowledged.places.items()} == found
    assert sorted(found.values()) == list(range(RECORDS))
    for partition in range(PARTITIONS):
        in_order = [number for (where, _), number in sorted(found.items()) if where == partition]
        assert in_order == sorted(in_order)


def test_a_group_goes_on_at_the_other_server_from_what_it_committed(two: Two, topic: str) -> None:
    create(two.servers, topic)
    made = producer(two.servers, log_connection_close=False)
    for number in range(100):
        made.produce(topic, b"%d" % number)
    assert made.flush(WAIT_S) == 0
    with consumer(two.servers, "readers", log_connection_close=False) as reader:
        reader.subscribe([topic])
        assert [int(message.value() or b"") for message in read(reader, 40)] == list(range(40))
        reader.commit(offsets=[TopicPartition(topic, 0, 40)], asynchronous=False)
        # Whichever of them coordinates it: both are killed in turn, each while the other one serves.
        two.second.kill()
        assert [int(message.value() or b"") for message in read(reader, 10)] == list(range(40, 50))
        two.second.start()
        reader.commit(offsets=[TopicPartition(topic, 0, 50)], asynchronous=False)
        two.first.kill()
        assert [int(message.value() or b"") for message in read(reader, 10)] == list(range(50, 60))
    with consumer(two.second.servers, "readers", log_connection_close=False) as reader:
        (kept,) = reader.committed([TopicPartition(topic, 0)], timeout=WAIT_S)
        assert kept.offset == 50
    two.first.start()


def test_two_members_at_two_servers_share_one_group(two: Two, topic: str) -> None:
    create(two.servers, topic, 2)
    with (
        consumer(two.first.servers, "shared", log_connection_close=False) as first,
        consumer(two.second.servers, "shared", log_connection_close=False) as second,
    ):
        for each in (first, second):
            each.subscribe([topic])

        def are_sharing() -> bool:
            for each in (first, second):
                each.poll(0.05)
            return [len(each.assignment()) for each in (first, second)] == [1, 1]

        wait_until(are_sharing, within_s=120)


def test_kafka_python_and_aiokafka_read_at_one_server_what_the_other_took(two: Two, topic: str) -> None:
    create(two.first.servers, topic)
    made = KafkaProducer(bootstrap_servers=two.first.servers)
    for number in range(20):
        made.send(topic, b"%d" % number)
    made.flush(WAIT_S)
    made.close()

    async def read_on() -> list[bytes]:
        async with AIOKafkaProducer(bootstrap_servers=two.second.servers) as sender:
            await sender.send_and_wait(topic, b"20")
        async with AIOKafkaConsumer(
            topic, bootstrap_servers=two.second.servers, group_id="aio", auto_offset_reset="earliest"
        ) as reader:
            return [(await reader.getone()).value for _ in range(21)]

    assert asyncio.run(read_on()) == [b"%d" % number for number in range(21)]
    reader = KafkaConsumer(topic, bootstrap_servers=two.second.servers, group_id="python", auto_offset_reset="earliest")
    assert [next(reader).value for _ in range(21)] == [b"%d" % number for number in range(21)]
    reader.close()


def test_topics_and_records_of_the_client_are_those_of_every_server(two: Two, topic: str) -> None:
    with penstock.connect(two.first.url) as first, penstock.connect(two.second.url) as second:
        first.create_topic(topic, partitions=2)
        first.topic(topic).produce("1", key="a")
        view = second.topic(topic).describe()
        assert (view.partition_count, view.record_count) == (2, 1)
        second.topic(topic).delete()
        assert [each.topic_name for each in first.topics(prefix=topic)] == []


def test_a_folder_with_topics_is_not_left_behind_in_silence(tmp_path: Path) -> None:
    with Broker(tmp_path / "data") as broker:
        create(broker.servers, "events")
    with (
        pytest.raises(AssertionError, match="did not start"),
        Broker(tmp_path / "data", "--store", shared_server().new_database()) as refused,
    ):
        pytest.fail(f"it serves at {refused.servers}")
    assert "has topics, and this server keeps them in its database" in (tmp_path / "notes.txt").read_text()
