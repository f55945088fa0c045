"""confluent-kafka, that is librdkafka, with what every test of it needs."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

WAIT_S = 60.0


def producer(servers: str, **settings: Any) -> Producer:
    return Producer({"bootstrap.servers": servers, "linger.ms": 5, **_dotted(settings)})


def admin(servers: str, **settings: Any) -> AdminClient:
    return AdminClient({"bootstrap.servers": servers, **_dotted(settings)})


@contextmanager
def consumer(servers: str, group: str = "reader", **settings: Any) -> Iterator[Consumer]:
    usual = {"auto.offset.reset": "earliest", "enable.auto.commit": False, "fetch.wait.max.ms": 100}
    made = Consumer({"bootstrap.servers": servers, "group.id": group, **usual, **_dotted(settings)})
    try:
        yield made
    finally:
        made.close()


def create(
    servers: str, topic: str, partitions: int = 1, *, login: dict[str, Any] | None = None, **config: Any
) -> None:
    new = NewTopic(topic, num_partitions=partitions, replication_factor=1, config=_dotted(config))
    # Held, because what a client was asked ends with the client.
    made = admin(servers, **(login or {}))
    made.create_topics([new])[topic].result(WAIT_S)


def produce_all(made: Producer, topic: str, values: list[bytes], **more: Any) -> list[int]:
    """Produce values, and return their offsets; raises the first error."""
    offsets: dict[int, int] = {}

    def keep(place: int) -> Any:
        def delivered(error: Any, message: Message) -> None:
            if error is not None:
                raise AssertionError(error)
            offsets[place] = message.offset() or 0

        return delivered

    for place, value in enumerate(values):
        made.produce(topic, value, on_delivery=keep(place), **more)
    assert made.flush(WAIT_S) == 0
    return [offsets[place] for place in range(len(values))]


def read(made: Consumer, count: int) -> list[Message]:
    """Return the next records, as many as are wanted."""
    found: list[Message] = []
    while len(found) < count:
        batch = made.consume(count - len(found), timeout=WAIT_S)
        assert batch, f"{len(found)} of {count} records came"
        for message in batch:
            assert message.error() is None, message.error()
        found += batch
    return found


def read_topic(servers: str, topic: str, count: int, *, partition: int = 0, offset: int = 0, **settings: Any) -> Any:
    """Return records of a partition from an offset on, without a group."""
    with consumer(servers, **settings) as made:
        made.assign([TopicPartition(topic, partition, offset)])
        return read(made, count)


def _dotted(settings: dict[str, Any]) -> dict[str, Any]:
    return {name if name == "error_cb" else name.replace("_", "."): value for name, value in settings.items()}
