"""The synchronous API, made by `python -m tests.docs.reference`: edit the asynchronous classes instead."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import Any, Self, Unpack, overload

from penstock.client.caller import Connection
from penstock.client.client import Client
from penstock.client.message import Delivered, DeliveredBatch, LeasedBatch
from penstock.client.queue import Attributes, What
from penstock.client.requests import Instant
from penstock.client.settings import MessageFilter, Priority, QueueSettings, State, TopicSettings
from penstock.client.topics.consumer import Place, Record
from penstock.wire.messages import Acked, Cancelled, Explained, SeenPage
from penstock.wire.operators import (
    AuditEntry,
    Escalated,
    Escalation,
    HistoryPage,
    HistoryShard,
    RedriveTask,
    Requeued,
    Story,
)
from penstock.wire.queues import Deleted, QueueName, QueueView
from penstock.wire.topics import GroupRow, GroupView, ProducedRecord, RecordPage, TopicRow, TopicView

class SyncMessage(Delivered):
    """A received message. `with message:` acks it, or releases it on an exception."""

    def __init__(self, leased: LeasedBatch, row: int, queue: SyncQueue) -> None: ...
    def ack(self, *, connection: Connection = None) -> None:
        """Settle the message. Raises `StaleReceipt` if the lease has ended.

        With a ``connection`` to the database of the queue, it is settled when the transaction of the connection
        commits. If the lease has ended, the transaction fails."""

    def release(self, error: str = "", *, delay_s: float | None = None) -> None:
        """Return it to the queue, delayed for ``delay_s`` or the queue's backoff."""

    def reject(self, error: str = "") -> None:
        """Send it to the dead-letter queue, however many deliveries are left."""

    def extend(self, visibility_timeout: float) -> None:
        """Extend the lease to end ``visibility_timeout`` seconds from now."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

class SyncBatch(DeliveredBatch[SyncMessage]):
    """Messages of one lease; each is made when it is looked at."""

    def __init__(self, leased: LeasedBatch | None, queue: SyncQueue) -> None: ...
    def ack(self) -> list[bool]:
        """Ack all messages in one request, and say for each whether it was done: False if its lease had ended."""

    def release(self, error: str = "", *, delay_s: float | None = None) -> list[bool]: ...
    def extend(self, visibility_timeout: float) -> list[bool]: ...

class SyncQueue:
    """A handle of a queue. To make one sends no request."""

    name: str

    def __init__(self, name: str, client: SyncClient) -> None: ...
    def send(
        self,
        data: object,
        *,
        priority: Priority | None = None,
        delay_s: float | None = None,
        scheduled_at: str | float | datetime | None = None,
        dedup_id: str | None = None,
        group: str | None = None,
        attributes: Attributes | None = None,
        max_deliveries: int | None = None,
        timeout_s: float | None = None,
        connection: Connection = None,
    ) -> str:
        """Send one message and return its id, once it is stored. Calls of tasks at the same time share requests.

        If the queue is full it waits for up to ``timeout_s``; with 0 it raises `QueueFull` at once. With a
        ``connection`` to the database that the queues are in, it is sent in the transaction of that one."""

    def send_many(
        self, items: Iterable[object], *, timeout_s: float | None = None, connection: Connection = None
    ) -> Sequence[str]:
        """Send any number of messages, data or drafts, and return their ids in the same order.

        They travel up to 1,000 at once. If some cannot be sent the error has the ids of the others in ``sent``.
        Messages with groups keep their order. With a ``connection``, all are sent in its transaction."""

    @overload
    def receive(
        self, *, limit: None = None, wait_s: float = 0, visibility_timeout: float | None = None
    ) -> SyncMessage | None: ...
    @overload
    def receive(self, *, limit: int, wait_s: float = 0, visibility_timeout: float | None = None) -> SyncBatch: ...
    def lease(self, *, limit: int, wait_s: float, visibility_timeout: float | None) -> LeasedBatch | None:
        """Receive messages as columns; `receive` and the worker are made of it."""

    def ack_and_receive(
        self, what: What, *, limit: int, wait_s: float = 0, visibility_timeout: float | None = None
    ) -> tuple[list[bool], SyncBatch]:
        """Ack messages, or receipts, and receive a batch, in one request: one round trip, one write to the disk.

        Returns for each ack whether it was done, False if its lease had ended, and the batch. The acks are durable
        before the request waits for messages, for up to ``wait_s``."""

    def consume(
        self, *, prefetch: int = 16, wait_s: float = 20, visibility_timeout: float | None = None
    ) -> Iterator[SyncMessage]:
        """Receive messages without end, with up to ``prefetch`` in hand. Unused ones are returned in the end.

        An ack of a message brings the next ones along, in one request. Otherwise they are fetched while the caller
        works on this one, and by the synchronous API when it is done; with ``prefetch`` 0 only when the next one is
        wanted. A message whose lease has ended before its turn is left out: others may have it."""

    def ack(self, what: What, *, connection: Connection = None) -> list[bool]:
        """Ack messages, or receipts, in one request; False for those whose lease had ended.

        With a ``connection``, they are acked in its transaction. If one lease has ended, `StaleReceipt` is raised, and
        the transaction cannot commit, so no work is done twice."""

    def release(self, what: What, *, error: str = "", delay_s: float | None = None) -> list[bool]:
        """Return messages to the queue, delayed for ``delay_s`` or the queue's backoff."""

    def extend(self, what: What, *, visibility_timeout: float) -> list[bool]:
        """Extend leases to end ``visibility_timeout`` seconds from now."""

    def describe(self) -> QueueView: ...
    def update(self, **settings: Unpack[QueueSettings]) -> QueueView:
        """Change settings; those that are left out stay."""

    def pause(self) -> QueueView:
        """Stop deliveries until `resume`. Sends continue."""

    def resume(self) -> QueueView: ...
    def purge(self) -> int:
        """Delete every message in the queue, received or not, and return how many."""

    def delete(self, *, with_dead_letters: bool = False) -> Deleted: ...
    def peek(
        self,
        *,
        limit: int = 10,
        cursor: str | None = None,
        state: State | None = None,
        priority: Priority | None = None,
        group: str | None = None,
        text: str | None = None,
    ) -> SeenPage:
        """Look at messages without receiving them."""

    def get_message(self, message_id: str) -> Story:
        """Return a message with its story so far. Raises `MessageNotFound` if it is not in the queue."""

    def explain(self, message_id: str) -> Explained:
        """Explain why a message was not delivered yet."""

    def ack_by_id(self, message_id: str, *, receipt: str | None = None) -> Acked:
        """Ack a message that is in flight, by its id; any consumer's, unless ``receipt`` is given."""

    def cancel(self, message_id: str) -> Cancelled:
        """Take back a message that is not due yet. One that is due raises `NotScheduled`."""

    def escalate(
        self,
        which: Sequence[str] | MessageFilter,
        *,
        priority: Priority,
        actor: str,
        reason: str,
        until: Instant | None = None,
        lower: bool = False,
    ) -> Escalated:
        """Move messages to a more urgent priority, with ``lower`` to a less urgent one: by id, or by a filter."""

    def escalations(self, *, limit: int = 100) -> list[Escalation]: ...
    def requeue(self, message_id: str, *, target_queue: str | None = None) -> Requeued:
        """Send one dead letter back, to where it came from or to another queue."""

    def redrive(
        self,
        *,
        target_queue: str | None = None,
        message_ids: Sequence[str] | None = None,
        filter: MessageFilter | None = None,
        limit: int | None = None,
        rate_per_s: float | None = None,
        dry_run: bool = False,
    ) -> RedriveTask:
        """Send dead letters back, in the background; `redrive_task` tells the progress."""

    def redrive_task(self, task_id: str) -> RedriveTask: ...
    def stop_redrive(self, task_id: str) -> RedriveTask: ...
    def redrive_tasks(self) -> list[RedriveTask]: ...
    def history(self, *, offset: int | None = None, since: Instant | None = None, limit: int = 1000) -> HistoryPage:
        """Read the history of settled messages, from an offset or a time on."""

class SyncTopic:
    """A handle of a topic. To make one sends no request."""

    name: str

    def __init__(self, name: str, client: SyncClient, *, kafka: str | None = None) -> None: ...
    def produce(
        self,
        value: object,
        *,
        key: str | bytes | None = None,
        headers: Mapping[str, str | bytes] | None = None,
        partition: int | None = None,
    ) -> Place:
        """Add a record, and return where it is, once it is durable. Calls at the same time travel together.

        Bytes stay as they are, text is UTF-8, anything else JSON. A key chooses the
        partition, as all of Kafka's clients do it, and so keeps its records in order."""

    def produce_many(self, values: Iterable[object], *, key: str | bytes | None = None) -> list[Place]:
        """Add records, and return where they are, once all are durable."""

    def consume(
        self, *, group: str, attempts: int = 5, dead_letters: str | None = None, from_start: bool = True, **options: Any
    ) -> Iterator[Record]:
        """Read the topic as a member of a group: ``async for record in topic.consume(group="billing")``.

        A record whose ``with`` failed is handed out again, ``attempts`` times in all; then
        it goes to ``dead_letters``, which is the topic's name and `.dlq`, with the error in
        its headers, and the group goes on. A group that has committed nothing begins at
        the start, or with what comes from now on. ``options`` are aiokafka's."""

    def describe(self) -> TopicView: ...
    def update(self, **settings: Unpack[TopicSettings]) -> TopicView:
        """Change settings; what is not named stays."""

    def delete(self) -> None:
        """Delete the topic with all its records."""

    def browse(
        self, *, partition: int = 0, offset: int | None = None, since: str | None = None, limit: int = 100
    ) -> RecordPage:
        """Look at records of one partition, from an offset or a time on; nothing is committed."""

    def add(
        self, values: Iterable[object], *, key: str | None = None, partition: int | None = None
    ) -> list[ProducedRecord]:
        """Add a few records over REST: for people and where Kafka's port cannot be reached. Programs `produce`."""

    def server(self) -> str:
        """Where Kafka's protocol is spoken."""

    def bury(self, record: Record, into: str, group: str) -> None:
        """Write a record to the dead-letter topic; durable on return."""

    def open_loop(self, group: str, *, from_start: bool, options: dict[str, Any]) -> Any:
        """Return a consumer of the library that is not started."""

class SyncClient:
    """A client of one server. Use it in `with`, or call `close` in the end. Threads may share it."""

    def __init__(self, client: Client) -> None: ...
    def queue(self, name: str) -> SyncQueue:
        """Return a handle of a queue, which need not exist yet."""

    def topic(self, name: str, *, kafka: str | None = None) -> SyncTopic:
        """Return a handle of a topic; it need not exist. ``kafka`` is its host and port, if not the server's."""

    def close(self) -> None:
        """Wait for requests on their way, and close the connections."""

    def __enter__(self) -> Self: ...
    def __exit__(self, *_: object) -> None: ...
    def create_queue(self, name: str, **settings: Unpack[QueueSettings]) -> QueueView:
        """Create a queue. A repeat with equal settings changes nothing."""

    def queues(self, prefix: str = "") -> Iterator[QueueName]:
        """List all queues by name, page by page."""

    def create_topic(self, name: str, **settings: Unpack[TopicSettings]) -> TopicView:
        """Create a topic. A repeat with equal settings changes nothing."""

    def topics(self, prefix: str = "") -> Iterator[TopicRow]:
        """List all topics by name, page by page."""

    def groups(self, prefix: str = "") -> Iterator[GroupRow]:
        """List all consumer groups by name, page by page."""

    def group(self, name: str) -> GroupView:
        """Describe a consumer group: its members, offsets and lag."""

    def delete_group(self, name: str) -> None:
        """Delete a consumer group without members, and its committed offsets."""

    def health(self) -> dict[str, Any]:
        """Say in `status` whether the server is ready, and if not, why in `reasons`."""

    def activity(
        self,
        target: str | None = None,
        *,
        actor: str | None = None,
        action: str | None = None,
        since: str | None = None,
        until: str | None = None,
    ) -> Iterator[AuditEntry]:
        """Read the audit log, newest first: of one queue, topic, group or key, or of all the key may administer."""

    def history_shards(self) -> list[HistoryShard]:
        """List the shards of the history and their offsets. The key has to be valid for all queues."""

    def trim_history(self, shard: int, *, before: int) -> int:
        """Delete history that is kept elsewhere, and return the first offset that remains.

        Only whole segments are deleted, in which every row is below ``before``."""
