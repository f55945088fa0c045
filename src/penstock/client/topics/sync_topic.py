"""A topic, as a synchronous program sees it: the methods of `topic.py`, each run to its end by the client's thread."""

from collections.abc import Coroutine, Iterable, Iterator, Mapping
from typing import Any, Protocol, TypeVar

from penstock.client.topics.record import Place, Record
from penstock.client.topics.topic import Consumption, Topic
from penstock.wire.topics import ProducedRecord, RecordPage, TopicView

T = TypeVar("T")


class Runner(Protocol):
    """Runs what the asynchronous face does; the synchronous client is one."""

    def run(self, work: Coroutine[Any, Any, T]) -> T: ...

    def asynchronous_topic(self, topic: str, kafka: str | None) -> Topic: ...


class SyncTopic:
    """A handle: making one asks the server nothing."""

    __slots__ = ("name", "_runner", "_kafka")

    def __init__(self, name: str, runner: Runner, *, kafka: str | None = None) -> None:
        self.name = name
        self._runner = runner
        self._kafka = kafka

    def __repr__(self) -> str:
        return f"<SyncTopic {self.name!r}>"

    @property
    def _topic(self) -> Topic:
        # Asked for each time: after a fork it is another.
        return self._runner.asynchronous_topic(self.name, self._kafka)

    def produce(
        self,
        value: object,
        *,
        key: str | bytes | None = None,
        headers: Mapping[str, str | bytes] | None = None,
        partition: int | None = None,
    ) -> Place:
        """Add a record, and return where it is, once it is durable."""
        return self._runner.run(self._topic.produce(value, key=key, headers=headers, partition=partition))

    def produce_many(self, values: Iterable[object], *, key: str | bytes | None = None) -> list[Place]:
        """Add records, and return where they are, once all are durable."""
        return self._runner.run(self._topic.produce_many(values, key=key))

    def add(
        self, values: Iterable[object], *, key: str | None = None, partition: int | None = None
    ) -> list[ProducedRecord]:
        """Add a few records over REST."""
        return self._runner.run(self._topic.add(values, key=key, partition=partition))

    def consume(
        self, *, group: str, attempts: int = 5, dead_letters: str | None = None, **options: Any
    ) -> Iterator[Record]:
        """Read the topic as a member of a group; see `Topic.consume`. It leaves the group when the loop is left."""
        found = self._topic.consume(group=group, attempts=attempts, dead_letters=dead_letters, **options)
        try:
            while (record := self._runner.run(_next(found))) is not None:
                yield record
        finally:
            self._runner.run(found.aclose())

    def describe(self) -> TopicView:
        return self._runner.run(self._topic.describe())

    def change(self, **settings: Any) -> TopicView:
        """Change settings; what is not named stays."""
        return self._runner.run(self._topic.change(**settings))

    def delete(self) -> None:
        """Delete the topic with all its records."""
        self._runner.run(self._topic.delete())

    def browse(
        self, *, partition: int = 0, offset: int | None = None, since: str | None = None, limit: int = 100
    ) -> RecordPage:
        """Look at records of one partition, from an offset or a time on; nothing is committed."""
        return self._runner.run(self._topic.browse(partition=partition, offset=offset, since=since, limit=limit))


async def _next(found: Consumption) -> Record | None:
    return await anext(found, None)
