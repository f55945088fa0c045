"""The client, as asynchronous programs see it; `sync.py` has the same for programs without an event loop."""

import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar, Unpack

from penstock.client.caller import TIMEOUT_S, Caller, Connection, Transport
from penstock.client.outbox import PENDING_BYTES_MAX, BatchingOutbox, DirectOutbox, Outbox
from penstock.client.queue import Queue
from penstock.client.requests import PAGE_MAX, ask
from penstock.client.settings import QueueSettings, TopicSettings
from penstock.client.topics.kafka import KafkaConnections, KafkaCredentials
from penstock.client.topics.topic import Topic
from penstock.wire import operations as api
from penstock.wire.operators import AuditEntry, HistoryShard
from penstock.wire.queues import QueueName, QueueView
from penstock.wire.topics import GroupRow, GroupView, TopicRow, TopicView

if TYPE_CHECKING:
    from penstock.client.sync import SyncClient

# Without a key and without TLS.
ANONYMOUS = KafkaCredentials()


class Page(Protocol):
    @property
    def next_cursor(self) -> str | None: ...


AnyPage = TypeVar("AnyPage", bound=Page)


class Client:
    """A client of one server. It connects at the first call, in the event loop of that call.

    Use it in `async with`, or call `close` in the end. `with` and `sync` give the synchronous API.
    """

    def __init__(
        self,
        open_transport: Callable[[], Transport],
        *,
        timeout_s: float = TIMEOUT_S,
        pending_bytes_max: int = PENDING_BYTES_MAX,
        kafka: KafkaCredentials = ANONYMOUS,
        open_blocking: Callable[[], Transport] | None = None,
    ) -> None:
        self._open_transport = open_transport
        self._open_blocking = open_blocking
        self._connections = KafkaConnections(kafka)
        self._timeout_s = timeout_s
        self._pending_bytes_max = pending_bytes_max
        self._caller = Caller(open_transport, timeout_s=timeout_s)
        self._outbox: Outbox = BatchingOutbox(self._caller, pending_bytes_max=pending_bytes_max)
        # What is made of each queue, to watch what it sends.
        self.watch: Callable[[Queue], Queue] | None = None
        # What a forked process does with a blocking client of its parent.
        self.forget: Callable[[], None] = lambda: None
        self._sync: SyncClient | None = None

    def queue(self, name: str) -> Queue:
        """Return a handle of a queue, which need not exist yet."""
        queue = Queue(name, self._outbox)
        return queue if self.watch is None else self.watch(queue)

    async def create_queue(self, name: str, **settings: Unpack[QueueSettings]) -> QueueView:
        """Create a queue. A repeat with equal settings changes nothing."""
        return await self._caller.perform(ask(api.CREATE_QUEUE, body={"queue_name": name, **settings}))

    async def queues(self, prefix: str = "") -> AsyncIterator[QueueName]:
        """List all queues by name, page by page."""
        async for page in self._pages(api.LIST_QUEUES, prefix=prefix or None):
            for each in page.queues:
                yield each

    def transaction(
        self, *, is_threaded: bool = False, queue: str | None = None
    ) -> AbstractAsyncContextManager[Connection]:
        """Open a transaction on a connection of the client, for `connection=`; only with `postgresql://…`.

        It is committed at the end of the block, or rolled back on an exception. The connection is one of psycopg; with
        ``is_threaded`` a synchronous one. If queues are in several databases, name the ``queue`` that it is for.
        """
        return self._caller.transactional().transaction(is_threaded=is_threaded, queue=queue)

    def topic(self, name: str, *, kafka: str | None = None) -> Topic:
        """Return a handle of a topic; it need not exist. ``kafka`` is its host and port, if not the server's."""
        return Topic(name, self._caller, self._connections, kafka=kafka)

    async def create_topic(self, name: str, **settings: Unpack[TopicSettings]) -> TopicView:
        """Create a topic. A repeat with equal settings changes nothing."""
        return await self._caller.perform(ask(api.CREATE_TOPIC, body={"topic_name": name, **settings}))

    async def topics(self, prefix: str = "") -> AsyncIterator[TopicRow]:
        """List all topics by name, page by page."""
        async for page in self._pages(api.LIST_TOPICS, prefix=prefix or None):
            for each in page.topics:
                yield each

    async def groups(self, prefix: str = "") -> AsyncIterator[GroupRow]:
        """List all consumer groups by name, page by page."""
        async for page in self._pages(api.LIST_GROUPS, prefix=prefix or None):
            for each in page.groups:
                yield each

    async def group(self, name: str) -> GroupView:
        """Describe a consumer group: its members, offsets and lag."""
        return await self._caller.perform(ask(api.GET_GROUP, {"group": name}))

    async def delete_group(self, name: str) -> None:
        """Delete a consumer group without members, and its committed offsets."""
        await self._caller.perform(ask(api.DELETE_GROUP, {"group": name}))

    async def health(self) -> dict[str, Any]:
        """Say in `status` whether the server is ready, and if not, why in `reasons`."""
        return await self._caller.perform(ask(api.HEALTH, also_read=503))

    async def activity(
        self,
        target: str | None = None,
        *,
        actor: str | None = None,
        action: str | None = None,
        since: str | None = None,
        until: str | None = None,
    ) -> AsyncIterator[AuditEntry]:
        """Read the audit log, newest first: of one queue, topic, group or key, or of all the key may administer."""
        pages = self._pages(api.READ_AUDIT_LOG, target=target, actor=actor, action=action, since=since, until=until)
        async for page in pages:
            for each in page.entries:
                yield each

    async def history_shards(self) -> list[HistoryShard]:
        """List the shards of the history and their offsets. The key has to be valid for all queues."""
        return (await self._caller.perform(ask(api.LIST_HISTORY_SHARDS))).shards

    async def trim_history(self, shard: int, *, before: int) -> int:
        """Delete history that is kept elsewhere, and return the first offset that remains.

        Only whole segments are deleted, in which every row is below ``before``.
        """
        call = ask(api.TRIM_HISTORY, body={"shard": shard, "before": before})
        return (await self._caller.perform(call)).first_kept_offset

    async def _pages(self, operation: api.Operation[AnyPage], **which: str | None) -> AsyncIterator[AnyPage]:
        cursor: str | None = None
        while True:
            page = await self._caller.perform(ask(operation, query={**which, "cursor": cursor, "limit": PAGE_MAX}))
            yield page
            cursor = page.next_cursor
            if cursor is None:
                return

    async def close(self) -> None:
        """Wait for requests on their way, then close the connections."""
        try:
            try:
                await self._connections.close()
            finally:
                await self._outbox.close()
        finally:
            await self._caller.close()

    def copy(self) -> "Client":
        """Return a client of the same server that shares nothing with this one."""
        copy = Client(
            self._open_transport,
            timeout_s=self._timeout_s,
            pending_bytes_max=self._pending_bytes_max,
            kafka=self._connections.credentials,
            open_blocking=self._open_blocking,
        )
        copy.watch = self.watch
        return copy

    def blocking(self) -> "Client | None":
        """Return a client like this one whose calls need no event loop: each ends in the thread that makes it.

        It is None if the client is not one of a server. Topics need an event loop.
        """
        if self._open_blocking is None:
            return None
        blocking, transport = self.copy(), self._open_blocking()
        blocking._caller = Caller(lambda: transport, timeout_s=self._timeout_s, now_s=time.monotonic, sleep=_sleep)
        blocking._outbox = DirectOutbox(blocking._caller)
        blocking.forget = getattr(transport, "forget", blocking.forget)
        return blocking

    def sync(self) -> "SyncClient":
        """The synchronous API: the same methods without `await`."""
        from penstock.client.sync import SyncClient  # noqa: PLC0415 - it is made from this class.

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


async def _sleep(seconds: float) -> None:
    """Sleep in a thread of its own, without an event loop."""
    time.sleep(seconds)  # noqa: ASYNC251 - there is no event loop that it could hold up.
