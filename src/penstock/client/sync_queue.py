"""A queue, as a synchronous program sees it: the methods of `queue.py`, each run to its end by the client's thread."""

from collections.abc import Coroutine, Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any, Protocol, TypeVar, overload

from penstock.client.message import Facts
from penstock.client.operating import Instant
from penstock.client.queue import PREFETCH, Attributes, Queue, What
from penstock.client.sync_message import SyncBatch, SyncMessage
from penstock.client.within import Connection
from penstock.wire.frames import Held
from penstock.wire.messages import Acked, Explained, SeenPage
from penstock.wire.operating import Escalated, Escalation, Filter, HistoryPage, RedriveTask, Requeued, Story
from penstock.wire.queues import Deleted, QueueView

T = TypeVar("T")


class Runner(Protocol):
    """Runs what the asynchronous face does; the synchronous client is one."""

    def run(self, work: Coroutine[Any, Any, T]) -> T: ...

    def asynchronous(self, queue: str) -> Queue: ...


class SyncQueue:
    """A handle: making one asks the server nothing."""

    __slots__ = ("name", "_runner")

    def __init__(self, name: str, runner: Runner) -> None:
        self.name = name
        self._runner = runner

    def __repr__(self) -> str:
        return f"<SyncQueue {self.name!r}>"

    @property
    def _queue(self) -> Queue:
        # Asked for each time: after a fork it is another.
        return self._runner.asynchronous(self.name)

    def send(  # noqa: PLR0913 - what can be said about a message is many things.
        self,
        data: object,
        *,
        priority: str | int | None = None,
        delay_s: float | None = None,
        scheduled_at: str | float | datetime | None = None,
        dedup_id: str | None = None,
        group: str | None = None,
        attributes: Attributes | None = None,
        max_deliveries: int | None = None,
        timeout_s: float | None = None,
        connection: Connection = None,
    ) -> str:
        """Send one message and return its id, once it is stored. Calls of several threads travel together.

        With a ``connection``, it is sent in the transaction of that one.
        """
        return self._runner.run(
            self._queue.send(
                data,
                priority=priority,
                delay_s=delay_s,
                scheduled_at=scheduled_at,
                dedup_id=dedup_id,
                group=group,
                attributes=attributes,
                max_deliveries=max_deliveries,
                timeout_s=timeout_s,
                connection=connection,
            )
        )

    def send_many(
        self, items: Iterable[object], *, timeout_s: float | None = None, connection: Connection = None
    ) -> Sequence[str]:
        """Send any number of messages, data or drafts, and return their ids in the same order."""
        return self._runner.run(self._queue.send_many(items, timeout_s=timeout_s, connection=connection))

    @overload
    def receive(
        self, *, limit: None = None, wait_s: float = 0, visibility_timeout: float | None = None
    ) -> SyncMessage | None: ...

    @overload
    def receive(self, *, limit: int, wait_s: float = 0, visibility_timeout: float | None = None) -> SyncBatch: ...

    def receive(
        self, *, limit: int | None = None, wait_s: float = 0, visibility_timeout: float | None = None
    ) -> SyncMessage | SyncBatch | None:
        """Receive one message, or with ``limit`` a batch; wait for the first for up to ``wait_s``."""
        want = 1 if limit is None else limit
        facts = self._runner.run(self._queue.lease(limit=want, wait_s=wait_s, visibility_timeout=visibility_timeout))
        if limit is not None:
            return SyncBatch(facts, self)
        return None if facts is None else SyncMessage(facts, 0, self)

    def messages(
        self, *, prefetch: int = PREFETCH, wait_s: float = 20, visibility_timeout: float | None = None
    ) -> Iterator[SyncMessage]:
        """Receive for ever, with up to ``prefetch`` messages in hand. Those not looked at are given back in the end."""
        received = self._queue.messages(prefetch=prefetch, wait_s=wait_s, visibility_timeout=visibility_timeout)
        try:
            while True:
                message = self._runner.run(anext(received))
                yield SyncMessage(message.facts, message.row, self)
        finally:
            self._runner.run(received.aclose())

    def ack(self, what: What, *, connection: Connection = None) -> list[bool]:
        """Ack messages, or receipts, in one request; False for those whose lease had ended.

        With a ``connection``, in its transaction, which fails if a lease has ended.
        """
        return self._runner.run(self._queue.ack(what, connection=connection))

    def release(self, what: What, *, error: str = "", delay_s: float | None = None) -> list[bool]:
        return self._runner.run(self._queue.release(what, error=error, delay_s=delay_s))

    def extend(self, what: What, *, visibility_timeout: float) -> list[bool]:
        return self._runner.run(self._queue.extend(what, visibility_timeout=visibility_timeout))

    def settle(self, verb: str, held: Held, facts: Facts | None, *, time_ms: int | None = None, text: str = "") -> int:
        return self._runner.run(_settled(self._queue, verb, held, facts, time_ms, text))

    def describe(self) -> QueueView:
        return self._runner.run(self._queue.describe())

    def change(self, **settings: Any) -> QueueView:
        return self._runner.run(self._queue.change(**settings))

    def pause(self) -> QueueView:
        return self._runner.run(self._queue.pause())

    def resume(self) -> QueueView:
        return self._runner.run(self._queue.resume())

    def purge(self) -> int:
        return self._runner.run(self._queue.purge())

    def delete(self, *, with_dead_letters: bool = False) -> Deleted:
        return self._runner.run(self._queue.delete(with_dead_letters=with_dead_letters))

    def peek(
        self,
        *,
        limit: int = 10,
        cursor: str | None = None,
        state: str | None = None,
        priority: str | int | None = None,
        group: str | None = None,
        text: str | None = None,
    ) -> SeenPage:
        return self._runner.run(
            self._queue.peek(limit=limit, cursor=cursor, state=state, priority=priority, group=group, text=text)
        )

    def look(self, message_id: str) -> Story:
        return self._runner.run(self._queue.look(message_id))

    def explain(self, message_id: str) -> Explained:
        return self._runner.run(self._queue.explain(message_id))

    def delete_message(self, message_id: str, *, receipt: str | None = None) -> Acked:
        return self._runner.run(self._queue.delete_message(message_id, receipt=receipt))

    def escalate(
        self,
        which: Sequence[str] | Filter | dict[str, Any],
        *,
        priority: str | int,
        actor: str,
        reason: str,
        until: Instant | None = None,
        lower: bool = False,
    ) -> Escalated:
        return self._runner.run(
            self._queue.escalate(which, priority=priority, actor=actor, reason=reason, until=until, lower=lower)
        )

    def escalations(self, *, limit: int = 100) -> list[Escalation]:
        return self._runner.run(self._queue.escalations(limit=limit))

    def requeue(self, message_id: str, *, into: str | None = None) -> Requeued:
        return self._runner.run(self._queue.requeue(message_id, into=into))

    def redrive(
        self,
        *,
        into: str | None = None,
        message_ids: Sequence[str] | None = None,
        filter: Filter | dict[str, Any] | None = None,  # noqa: A002 - the word of the REST API.
        limit: int | None = None,
        rate_per_s: float | None = None,
        dry_run: bool = False,
    ) -> RedriveTask:
        return self._runner.run(
            self._queue.redrive(
                into=into,
                message_ids=message_ids,
                filter=filter,
                limit=limit,
                rate_per_s=rate_per_s,
                dry_run=dry_run,
            )
        )

    def redrive_task(self, task_id: str) -> RedriveTask:
        return self._runner.run(self._queue.redrive_task(task_id))

    def stop_redrive(self, task_id: str) -> RedriveTask:
        return self._runner.run(self._queue.stop_redrive(task_id))

    def redrive_tasks(self) -> list[RedriveTask]:
        return self._runner.run(self._queue.redrive_tasks())

    def history(self, *, offset: int | None = None, since: Instant | None = None, limit: int = 1_000) -> HistoryPage:
        return self._runner.run(self._queue.history(offset=offset, since=since, limit=limit))


async def _settled(queue: Queue, verb: str, held: Held, facts: Facts | None, time_ms: int | None, text: str) -> int:
    return await queue.settle(verb, held, facts, time_ms=time_ms, text=text)
