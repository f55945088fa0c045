"""The client, as programs see it: one face for those that have an event loop, one for those that have none.

The synchronous face is a thread with an event loop, and the asynchronous client in it. Nothing is decided there: every
method runs its counterpart to the end. Threads may share a client, and what they send at the same time travels
together. In a forked process the first call makes a new client, with a thread, connections and a sender of its own.
"""

import secrets
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, Self, TypeVar

from penstock.client import operating, requests
from penstock.client.background import Background
from penstock.client.caller import TIMEOUT_S, Caller
from penstock.client.outbox import PENDING_BYTES_MAX, Outbox
from penstock.client.queue import Queue
from penstock.client.sync_queue import SyncQueue
from penstock.client.topics import calls as stream_calls
from penstock.client.topics.kafka import Access, Link
from penstock.client.topics.sync_topic import SyncTopic
from penstock.client.topics.topic import Topic
from penstock.client.transport import Transport
from penstock.client.within import Connection
from penstock.wire.operating import AuditEntry, HistoryShard
from penstock.wire.queues import QueueName, QueueView
from penstock.wire.topics import GroupRow, GroupView, TopicRow, TopicView

T = TypeVar("T")

# Whoever has no key, and speaks in the clear.
STRANGER = Access()


class Client:
    """Speaks to one server. Nothing happens before the first call, and everything in the event loop that makes it.

    `async with` it, or call `close` in the end. `with` gives the synchronous face, and so does `sync`.
    """

    def __init__(
        self,
        open_transport: Callable[[], Transport],
        *,
        timeout_s: float = TIMEOUT_S,
        pending_bytes_max: int = PENDING_BYTES_MAX,
        kafka: Access = STRANGER,
    ) -> None:
        self._open_transport = open_transport
        self._link = Link(kafka)
        self._timeout_s = timeout_s
        self._pending_bytes_max = pending_bytes_max
        self._caller = Caller(open_transport, timeout_s=timeout_s)
        self._outbox = Outbox(self._caller, secrets.randbits(63), pending_bytes_max=pending_bytes_max)
        self._sync: SyncClient | None = None

    def queue(self, name: str) -> Queue:
        """A handle of a queue; it need not exist yet."""
        return Queue(name, self._outbox)

    async def create_queue(self, name: str, **settings: Any) -> QueueView:
        """Make a queue; again with equal settings changes nothing. Settings are those of `wire.queues.Settings`."""
        return await self._caller.perform(requests.create_queue(name, settings))

    async def queues(self, prefix: str = "") -> AsyncIterator[QueueName]:
        """Every queue, sorted by name; asked for in pages."""
        cursor = ""
        while True:
            page = await self._caller.perform(requests.list_queues(prefix, cursor))
            for each in page.queues:
                yield each
            if page.next is None:
                return
            cursor = page.next

    def transaction(
        self, *, is_threaded: bool = False, queue: str | None = None
    ) -> AbstractAsyncContextManager[Connection]:
        """A transaction on a connection of the client's own, for `connection=`; only with `postgresql://…`.

        It is committed at the end of the block, or rolled back on an exception. The connection is one of psycopg; with
        ``is_threaded`` of its synchronous face. Where queues are in several databases, say which ``queue`` it is for.
        """
        return self._caller.within().transaction(is_threaded=is_threaded, queue=queue)

    def topic(self, name: str, *, kafka: str | None = None) -> Topic:
        """A handle of a topic; it need not exist yet. ``kafka`` is a host and port, if not where the server says."""
        return Topic(name, self._caller, self._link, kafka=kafka)

    async def create_topic(self, name: str, **settings: Any) -> TopicView:
        """Make a topic; again with equal settings changes nothing. `wire.topics.TopicSettings` has the settings."""
        return await self._caller.perform(stream_calls.create_topic(name, settings))

    async def topics(self, prefix: str = "") -> AsyncIterator[TopicRow]:
        """Every topic, sorted by name; asked for in pages."""
        cursor: str | None = ""
        while cursor is not None:
            page = await self._caller.perform(stream_calls.list_topics(prefix, cursor))
            for each in page.topics:
                yield each
            cursor = page.next

    async def groups(self, prefix: str = "") -> AsyncIterator[GroupRow]:
        """Every consumer group, sorted by name; asked for in pages."""
        cursor: str | None = ""
        while cursor is not None:
            page = await self._caller.perform(stream_calls.list_groups(prefix, cursor))
            for each in page.groups:
                yield each
            cursor = page.next

    async def group(self, name: str) -> GroupView:
        """A consumer group: its members, and how far it has come."""
        return await self._caller.perform(stream_calls.describe_group(name))

    async def delete_group(self, name: str) -> None:
        """Forget a consumer group that has no members, with the offsets it has committed."""
        await self._caller.perform(stream_calls.delete_group(name))

    async def health(self) -> dict[str, Any]:
        """Whether the server is ready, as `status`, and if not the `reasons`."""
        return await self._caller.perform(operating.health())

    async def activity(
        self,
        target: str | None = None,
        *,
        actor: str | None = None,
        action: str | None = None,
        since: str | None = None,
        until: str | None = None,
    ) -> AsyncIterator[AuditEntry]:
        """Who did what, the newest first: on one queue, topic, group or key, or on all that the key may administer."""
        cursor: str | None = ""
        which = {"target": target, "actor": actor, "action": action, "since": since, "until": until}
        while cursor is not None:
            page = await self._caller.perform(operating.audit_log(cursor, **which))
            for each in page.entries:
                yield each
            cursor = page.next

    async def history_shards(self) -> list[HistoryShard]:
        """The parts of the history, and what is kept of each; for a key that is good for all queues."""
        return (await self._caller.perform(operating.history_shards())).shards

    async def trim_history(self, shard: int, *, before: int) -> int:
        """Let go of history that is kept elsewhere, and return the first offset that is kept from now on.

        Whole segments go, in which every row is below ``before``.
        """
        return (await self._caller.perform(operating.trim_history(shard, before))).first_kept_offset

    async def close(self) -> None:
        """Wait for what is on its way, and close the connections."""
        try:
            try:
                await self._link.close()
            finally:
                await self._outbox.close()
        finally:
            await self._caller.close()

    def anew(self) -> "Client":
        """A client of the same server that shares nothing with this one."""
        return Client(
            self._open_transport,
            timeout_s=self._timeout_s,
            pending_bytes_max=self._pending_bytes_max,
            kafka=self._link.access,
        )

    def sync(self) -> "SyncClient":
        """The synchronous face: the same methods without `await`, and a thread that runs them."""
        return SyncClient(self)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __enter__(self) -> "SyncClient":
        self._sync = self.sync()
        return self._sync

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._sync is not None
        self._sync.close()


class SyncClient:
    """Speaks to one server. Close it in the end, or use it in a `with`."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._background = Background()

    def queue(self, name: str) -> SyncQueue:
        """A handle of a queue; it need not exist yet."""
        return SyncQueue(name, self)

    def create_queue(self, name: str, **settings: Any) -> QueueView:
        """Make a queue; again with equal settings changes nothing."""
        return self.run(self._current().create_queue(name, **settings))

    def queues(self, prefix: str = "") -> Iterator[QueueName]:
        """Every queue, sorted by name; asked for in pages."""
        found = self._current().queues(prefix)
        while (each := self.run(next_of(found))) is not None:
            yield each

    def topic(self, name: str, *, kafka: str | None = None) -> SyncTopic:
        """A handle of a topic; it need not exist yet."""
        return SyncTopic(name, self, kafka=kafka)

    def create_topic(self, name: str, **settings: Any) -> TopicView:
        """Make a topic; again with equal settings changes nothing."""
        return self.run(self._current().create_topic(name, **settings))

    def topics(self, prefix: str = "") -> Iterator[TopicRow]:
        """Every topic, sorted by name; asked for in pages."""
        found = self._current().topics(prefix)
        while (each := self.run(next_of(found))) is not None:
            yield each

    def groups(self, prefix: str = "") -> Iterator[GroupRow]:
        """Every consumer group, sorted by name; asked for in pages."""
        found = self._current().groups(prefix)
        while (each := self.run(next_of(found))) is not None:
            yield each

    def group(self, name: str) -> GroupView:
        """A consumer group: its members, and how far it has come."""
        return self.run(self._current().group(name))

    def delete_group(self, name: str) -> None:
        """Forget a consumer group that has no members, with the offsets it has committed."""
        self.run(self._current().delete_group(name))

    def health(self) -> dict[str, Any]:
        return self.run(self._current().health())

    def activity(
        self,
        target: str | None = None,
        *,
        actor: str | None = None,
        action: str | None = None,
        since: str | None = None,
        until: str | None = None,
    ) -> Iterator[AuditEntry]:
        """Who did what, the newest first: on one queue, topic, group or key, or on all that the key may administer."""
        found = self._current().activity(target, actor=actor, action=action, since=since, until=until)
        while (each := self.run(next_of(found))) is not None:
            yield each

    def history_shards(self) -> list[HistoryShard]:
        """The parts of the history, and what is kept of each; for a key that is good for all queues."""
        return self.run(self._current().history_shards())

    def trim_history(self, shard: int, *, before: int) -> int:
        """Let go of history that is kept elsewhere, and return the first offset that is kept from now on."""
        return self.run(self._current().trim_history(shard, before=before))

    def close(self) -> None:
        """Wait for what is on its way, close the connections and end the thread."""
        if self._background.is_forked():
            # Nothing of the parent's is ours to close.
            self._background.start_anew()
        self._background.close(self._client.close())

    def asynchronous(self, queue: str) -> Queue:
        return self._current().queue(queue)

    def asynchronous_topic(self, topic: str, kafka: str | None) -> Topic:
        return self._current().topic(topic, kafka=kafka)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the thread of this client, and return what it returns."""
        return self._background.run(work)

    def _current(self) -> Client:
        if self._background.is_forked():
            self._background.start_anew()
            self._client = self._client.anew()
        return self._client

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


async def next_of(items: AsyncIterator[T]) -> T | None:
    return await anext(items, None)
