"""A topic, as a program sees it: produce into it, consume from it, look at it.

    topic = client.topic("events")
    await topic.produce({"id": 7}, key="7")
    async for record in topic.consume(group="billing"):
        with record:
            bill(record.json())

Producing and consuming speak Kafka's protocol, to where the server says, or where ``kafka`` does; the rest is REST.
"""

import asyncio
from base64 import b64encode
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, Protocol, Self, TypeVar, Unpack

from penstock.client.caller import Call
from penstock.client.errors import Forbidden, NotFound, TopicExists, bad_field
from penstock.client.requests import ask, given
from penstock.client.settings import TopicSettings
from penstock.client.topics.consumer import Headers, Loop, Place, Record, RetryPolicy, body_of, dead_letter_headers
from penstock.client.topics.kafka import KafkaConnections, KafkaMissing, kafka_errors, library
from penstock.wire import operations as api
from penstock.wire.topics import ProducedRecord, RecordPage, TopicView

T = TypeVar("T")

DEAD_LETTERS = ".dlq"


class Performer(Protocol):
    async def perform(self, call: Call[T], timeout_s: float | None = None) -> T: ...


class Topic:
    """A handle of a topic. To make one sends no request."""

    __slots__ = ("name", "_caller", "_connections", "_server")

    def __init__(
        self, name: str, caller: Performer, connections: KafkaConnections, *, kafka: str | None = None
    ) -> None:
        self.name = name
        self._caller = caller
        self._connections = connections
        self._server = kafka

    def __repr__(self) -> str:
        return f"<Topic {self.name!r}>"

    async def produce(
        self,
        value: object,
        *,
        key: str | bytes | None = None,
        headers: Mapping[str, str | bytes] | None = None,
        partition: int | None = None,
    ) -> Place:
        """Add a record, and return where it is, once it is durable. Calls at the same time travel together.

        Bytes stay as they are, text is UTF-8, anything else JSON. A key chooses the
        partition, as all of Kafka's clients do it, and so keeps its records in order.
        """
        pairs = tuple((name, body_of(value) or b"") for name, value in (headers or {}).items())
        (place,) = await self._produce([(body_of(value), key)], pairs, partition)
        return place

    async def produce_many(self, values: Iterable[object], *, key: str | bytes | None = None) -> list[Place]:
        """Add records, and return where they are, once all are durable."""
        return await self._produce([(body_of(value), key) for value in values], (), None)

    def consume(
        self,
        *,
        group: str,
        attempts: int = 5,
        dead_letters: str | None = None,
        from_start: bool = True,
        **options: Any,
    ) -> "Consumption":
        """Read the topic as a member of a group: ``async for record in topic.consume(group="billing")``.

        A record whose ``with`` failed is handed out again, ``attempts`` times in all; then
        it goes to ``dead_letters``, which is the topic's name and `.dlq`, with the error in
        its headers, and the group goes on. A group that has committed nothing begins at
        the start, or with what comes from now on. ``options`` are aiokafka's.
        """
        return Consumption(self, group, RetryPolicy(attempts=attempts), dead_letters, from_start, options)

    async def describe(self) -> TopicView:
        return await self._caller.perform(ask(api.GET_TOPIC, {"topic": self.name}))

    async def update(self, **settings: Unpack[TopicSettings]) -> TopicView:
        """Change settings; what is not named stays."""
        return await self._caller.perform(ask(api.CHANGE_TOPIC, {"topic": self.name}, body=settings))

    async def delete(self) -> None:
        """Delete the topic with all its records."""
        await self._caller.perform(ask(api.DELETE_TOPIC, {"topic": self.name}))

    async def browse(
        self, *, partition: int = 0, offset: int | None = None, since: str | None = None, limit: int = 100
    ) -> RecordPage:
        """Look at records of one partition, from an offset or a time on; nothing is committed."""
        query = {"partition": partition, "offset": offset, "since": since, "limit": limit}
        return await self._caller.perform(ask(api.BROWSE_RECORDS, {"topic": self.name}, query=query))

    async def add(
        self, values: Iterable[object], *, key: str | None = None, partition: int | None = None
    ) -> list[ProducedRecord]:
        """Add a few records over REST: for people and where Kafka's port cannot be reached. Programs `produce`."""
        rows = [_new_record(body_of(value), key, partition) for value in values]
        call = ask(api.PRODUCE_RECORDS, {"topic": self.name}, body={"records": rows})
        return (await self._caller.perform(call)).records

    async def server(self) -> str:
        """Where Kafka's protocol is spoken."""
        if self._server is None:
            self._server = (await self.describe()).kafka
        if self._server is None:
            raise KafkaMissing("the server speaks no Kafka: start it with --kafka")
        return self._server

    async def bury(self, record: Record, into: str, group: str) -> None:
        """Write a record to the dead-letter topic; durable on return."""
        if into not in self._connections.made:
            # It may exist with other settings, or be one that the key may not create.
            with suppress(TopicExists, Forbidden, NotFound):
                await self._caller.perform(ask(api.CREATE_TOPIC, body={"topic_name": into}))
            self._connections.made.add(into)
        dead = Topic(into, self._caller, self._connections, kafka=await self.server())
        headers = dead_letter_headers(record, group=group)
        await dead._produce([(record.value, record.key)], headers, None)

    async def open_loop(self, group: str, *, from_start: bool, options: dict[str, Any]) -> Any:
        """Return a consumer of the library that is not started."""
        server = await self.server()
        self._connections.check_open()
        settings = {"auto_offset_reset": "earliest" if from_start else "latest", **options}
        return library().AIOKafkaConsumer(
            bootstrap_servers=server,
            group_id=group,
            enable_auto_commit=False,
            **settings,
            **self._connections.credentials.options(),
        )

    @property
    def connections(self) -> KafkaConnections:
        return self._connections

    async def _produce(
        self, rows: list[tuple[bytes | None, str | bytes | None]], headers: Headers, partition: int | None
    ) -> list[Place]:
        if any(value is None and key is None for value, key in rows):
            raise bad_field("value", "a record has a value or a key; one with a key alone says that the key is gone")
        producer = await self._connections.producer(await self.server())
        with kafka_errors():
            sent = [
                await producer.send(self.name, value, key=body_of(key), partition=partition, headers=list(headers))
                for value, key in rows
            ]
            found = await asyncio.gather(*sent)
        return [Place(each.partition, each.offset) for each in found]


class Consumption:
    """Records of a topic for one member of a group. It joins when it is first asked for a record.

    Use it in an `async with`, or close the client in the end: then it leaves the group at once. A member that is
    only forgotten is waited for until its session is over.
    """

    def __init__(
        self,
        topic: Topic,
        group: str,
        retry_policy: RetryPolicy,
        dead_letters: str | None,
        from_start: bool,
        options: dict[str, Any],
    ) -> None:
        self._topic = topic
        self._group = group
        self._retry_policy = retry_policy
        self._dead_letters = dead_letters or topic.name + DEAD_LETTERS
        self._from_start = from_start
        self._options = options
        self._loop: Loop | None = None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Record:
        if self._loop is None:
            self._loop = await self._begin()
        record = await self._loop.next()
        if record is None:
            raise StopAsyncIteration
        return record

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Commit what was processed, and leave the group."""
        self._topic.connections.discard(self.aclose)
        if self._loop is not None:
            await self._loop.aclose()

    async def _begin(self) -> Loop:
        topic, connections = self._topic, self._topic.connections
        source = await topic.open_loop(self._group, from_start=self._from_start, options=self._options)

        async def bury(record: Record) -> None:
            await topic.bury(record, self._dead_letters, self._group)

        loop = Loop(source, self._retry_policy, bury)
        source.subscribe([topic.name], listener=_listener(loop))
        connections.add(self.aclose)
        return loop


def _listener(loop: Loop) -> Any:
    """Tell a loop of partitions that come and go, in the way the library wants it."""

    class Listener(library().ConsumerRebalanceListener):  # type: ignore[misc]
        async def on_partitions_revoked(self, revoked: Any) -> None:
            await loop.on_partitions_revoked(revoked)

        async def on_partitions_assigned(self, assigned: Any) -> None:
            """They are read from what was committed: nothing is to be done."""

    return Listener()


def _new_record(value: bytes | None, key: str | None, partition: int | None) -> dict[str, Any]:
    record: dict[str, Any] = given(key=key, partition=partition)
    try:
        record["value"] = None if value is None else value.decode()
    except UnicodeDecodeError:
        record["value_base64"] = b64encode(value or b"").decode()
    return record
