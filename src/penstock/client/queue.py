"""A queue, as an asynchronous program sees it: a name, and what can be done with it."""

import re
import time
from collections.abc import AsyncGenerator, Awaitable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, TypeVar, Unpack, overload

from penstock.client import requests
from penstock.client.caller import Call, Connection
from penstock.client.drafts import Drafts, full_row, milliseconds, plain_row
from penstock.client.errors import StaleReceipt, bad_field
from penstock.client.message import (
    Batch,
    Delivered,
    Feed,
    LeasedBatch,
    Message,
    Receipt,
    Wanted,
    extend_ms,
    release_ms,
)
from penstock.client.outbox import Outbox
from penstock.client.requests import Instant, given, instant_text
from penstock.client.settings import MessageFilter, Priority, QueueSettings, State
from penstock.client.settling import Row, leased_batch
from penstock.contract.limits import LONG_POLL_S_MAX, REQUEST_MESSAGES_MAX
from penstock.contract.names import NAME_OR_ID_PATTERN
from penstock.wire import operations as api
from penstock.wire.frames import Held, LeasedFrame
from penstock.wire.messages import Acked, Cancelled, Explained, SeenPage
from penstock.wire.operators import Escalated, Escalation, HistoryPage, RedriveTask, Requeued, Story
from penstock.wire.queues import Deleted, QueueView
from penstock.wire.words import RULES

T = TypeVar("T")

Attributes = Mapping[str, str | int | float | bool]
# Messages, or receipts.
What = Iterable[Delivered] | Iterable[str] | Iterable[Delivered | str] | Delivered | str
_NOTHING = (None,) * 7
_NAME_OR_ID = re.compile(NAME_OR_ID_PATTERN)


class Queue:
    """A handle of a queue. To make one sends no request."""

    __slots__ = ("name", "_outbox", "_lease_path")

    def __init__(self, name: str, outbox: Outbox) -> None:
        if not _NAME_OR_ID.match(name):
            raise bad_field("queue_name", f"{name!r} is no queue: {RULES[NAME_OR_ID_PATTERN]}")
        self.name = name
        self._outbox = outbox
        self._lease_path = requests.path_of(api.LEASE_MESSAGES, queue=name)

    def __repr__(self) -> str:
        return f"<Queue {self.name!r}>"

    # Messages.

    async def send(  # noqa: PLR0913 - a message has many fields.
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
        ``connection`` to the database that the queues are in, it is sent in the transaction of that one.
        """
        said = (priority, delay_s, scheduled_at, dedup_id, group, attributes, max_deliveries)
        if said == _NOTHING:
            body, extras = plain_row(data)
        else:
            body, extras = full_row(
                data,
                priority=priority,
                delay_s=delay_s,
                scheduled_at=scheduled_at,
                dedup_id=dedup_id,
                group=group,
                attributes=attributes,
                max_deliveries=max_deliveries,
            )
        if connection is not None:
            return (await self._send_within(connection, Drafts([body], None if extras is None else [extras])))[0]
        return await self._outbox.send(self.name, body, extras, timeout_s)

    async def send_many(
        self, items: Iterable[object], *, timeout_s: float | None = None, connection: Connection = None
    ) -> Sequence[str]:
        """Send any number of messages, data or drafts, and return their ids in the same order.

        They travel up to 1,000 at once. If some cannot be sent the error has the ids of the others in ``sent``.
        Messages with groups keep their order. With a ``connection``, all are sent in its transaction.
        """
        if isinstance(items, str | bytes | bytearray | memoryview | Mapping):
            raise bad_field("messages", f"messages is one {type(items).__name__}; give a list, or call send")
        drafts = Drafts.of(items if isinstance(items, list | tuple) else list(items))
        if connection is not None:
            return await self._send_within(connection, drafts)
        return await self._outbox.send_many(self.name, drafts, timeout_s)

    async def _send_within(self, connection: Connection, drafts: Drafts) -> list[str]:
        transport = self._outbox.caller.transactional()
        ids: list[str] = []
        for start in range(0, len(drafts), REQUEST_MESSAGES_MAX):
            frame = drafts.part(start, min(start + REQUEST_MESSAGES_MAX, len(drafts))).encode(None)
            ids += await transport.send_within(connection, self.name, frame)
        return ids

    @overload
    async def receive(
        self, *, limit: None = None, wait_s: float = 0, visibility_timeout: float | None = None
    ) -> Message | None: ...

    @overload
    async def receive(self, *, limit: int, wait_s: float = 0, visibility_timeout: float | None = None) -> Batch: ...

    async def receive(
        self, *, limit: int | None = None, wait_s: float = 0, visibility_timeout: float | None = None
    ) -> Message | Batch | None:
        """Receive one message, or with ``limit`` a batch; wait for the first for up to ``wait_s``."""
        leased = await self.lease(
            limit=1 if limit is None else limit, wait_s=wait_s, visibility_timeout=visibility_timeout
        )
        if limit is not None:
            return Batch(leased, self)
        return None if leased is None else Message(leased, 0, self)

    async def lease(self, *, limit: int, wait_s: float, visibility_timeout: float | None) -> LeasedBatch | None:
        """Receive messages as columns; `receive` and the worker are made of it."""
        if visibility_timeout is not None:
            extend_ms(visibility_timeout)
        milliseconds(wait_s, field="wait_s", seconds_max=86_400)
        caller = self._outbox.caller
        ends_at_s, asked_at_s = caller.now_s() + wait_s, 0.0

        def ask() -> Call[LeasedFrame | None]:
            # A fresh one for each try: after a pause there is less time to wait, and the lease begins later.
            nonlocal asked_at_s
            asked_at_s = time.monotonic()
            part_s = max(0.0, min(ends_at_s - caller.now_s(), LONG_POLL_S_MAX)) if wait_s else 0.0
            return requests.lease(self._lease_path, limit=limit, wait_s=part_s, visibility_timeout=visibility_timeout)

        while True:
            frame = await caller.perform(ask)
            if frame is not None:
                return leased_batch(frame, self.name, visibility_timeout, asked_at_s)
            if ends_at_s - caller.now_s() <= 0.001:
                return None

    async def ack_and_receive(
        self, what: What, *, limit: int, wait_s: float = 0, visibility_timeout: float | None = None
    ) -> tuple[list[bool], Batch]:
        """Ack messages, or receipts, and receive a batch, in one request: one round trip, one write to the disk.

        Returns for each ack whether it was done, False if its lease had ended, and the batch. The acks are durable
        before the request waits for messages, for up to ``wait_s``.
        """
        if visibility_timeout is not None:
            extend_ms(visibility_timeout)
        milliseconds(wait_s, field="wait_s", seconds_max=86_400)
        now_s = self._outbox.caller.now_s
        ends_at_s = now_s() + wait_s
        receipts, rows = self._asked(what)
        if not rows:
            return [], await self.receive(limit=limit, wait_s=wait_s, visibility_timeout=visibility_timeout)
        wanted = Wanted(limit, min(wait_s, LONG_POLL_S_MAX), visibility_timeout)
        done, leased = await self._outbox.ack_and_lease(self.name, rows, wanted)
        left_s = ends_at_s - now_s()
        if leased is None and wait_s > LONG_POLL_S_MAX and left_s > 0:
            leased = await self.lease(limit=limit, wait_s=left_s, visibility_timeout=visibility_timeout)
        return _done(receipts, rows, done), Batch(leased, self)

    async def consume(
        self, *, prefetch: int = 16, wait_s: float = 20, visibility_timeout: float | None = None
    ) -> AsyncGenerator[Message, None]:
        """Receive messages without end, with up to ``prefetch`` in hand. Unused ones are returned in the end.

        An ack of a message brings the next ones along, in one request. Otherwise they are fetched while the caller
        works on this one, and by the synchronous API when it is done; with ``prefetch`` 0 only when the next one is
        wanted. A message whose lease has ended before its turn is left out: others may have it.
        """
        if not 0 <= prefetch <= REQUEST_MESSAGES_MAX:
            detail = f"prefetch is {prefetch}; allowed are 0 to {REQUEST_MESSAGES_MAX:,}"
            raise bad_field("prefetch", detail, limit=REQUEST_MESSAGES_MAX)
        feed, outbox = Feed(prefetch, visibility_timeout), self._outbox
        try:
            while True:
                if feed.is_low() and (outbox.fetches_ahead or not feed.ready):
                    lease = self.lease(limit=feed.room, wait_s=wait_s, visibility_timeout=visibility_timeout)
                    feed.fetch = outbox.begin(lease)
                if feed.fetch is not None and (feed.fetch.done() or not feed.ready):
                    await feed.take_fetched()
                if feed.ready:
                    leased, row = feed.ready.popleft()
                    if not leased.has_lapsed(row):
                        yield Message(leased, row, self)
        finally:
            await self._give_back(feed)

    def lease_along(self, *, limit: int, visibility_timeout: float | None) -> Awaitable[LeasedBatch | None] | None:
        """Lease what is there, in a request with acks that are about to leave; None if there are none."""
        return self._outbox.ride(self.name, Wanted(limit, visibility_timeout=visibility_timeout))

    async def _give_back(self, feed: Feed) -> None:
        # No ack brings any more.
        feed.prefetch = 0
        if feed.fetch is not None:
            feed.put(await self._outbox.end(feed.fetch))
        leases: dict[int, tuple[LeasedBatch, int]] = {}
        for leased, row in feed.ready:
            leases[id(leased)] = leased, leases.get(id(leased), (leased, 0))[1] | 1 << row
        for leased, rows in leases.values():
            await self.settle("release", leased.held(rows), leased, time_ms=0)

    async def ack(self, what: What, *, connection: Connection = None) -> list[bool]:
        """Ack messages, or receipts, in one request; False for those whose lease had ended.

        With a ``connection``, they are acked in its transaction. If one lease has ended, `StaleReceipt` is raised, and
        the transaction cannot commit, so no work is done twice.
        """
        if connection is None:
            return await self._settle_all("ack", what)
        receipts = [self._receipt(item) for item in _listed(what)]
        held = [Held(*lease, rows) for lease, rows in _rows_by_lease(receipts).items()]
        if held and not await self._outbox.caller.transactional().ack_within(connection, self.name, held):
            raise StaleReceipt(
                f"a lease of messages in {self.name!r} has ended, so the transaction cannot commit",
                code="stale_receipt",
                status=409,
            )
        return [True] * len(receipts)

    async def release(self, what: What, *, error: str = "", delay_s: float | None = None) -> list[bool]:
        """Return messages to the queue, delayed for ``delay_s`` or the queue's backoff."""
        return await self._settle_all("release", what, time_ms=release_ms(delay_s), text=error)

    async def extend(self, what: What, *, visibility_timeout: float) -> list[bool]:
        """Extend leases to end ``visibility_timeout`` seconds from now."""
        return await self._settle_all("extend", what, time_ms=extend_ms(visibility_timeout))

    def settle(
        self, verb: str, held: Held, leased: LeasedBatch | None, *, time_ms: int | None = None, text: str = ""
    ) -> Awaitable[int]:
        """Settle some messages of one lease, and return the bits of those that were done."""
        return self._outbox.settle(self.name, (verb, time_ms, text), (held, leased))

    async def _settle_all(
        self,
        verb: Literal["ack", "release", "extend"],
        what: What,
        *,
        time_ms: int | None = None,
        text: str = "",
    ) -> list[bool]:
        receipts, rows = self._asked(what)
        return _done(receipts, rows, await self._outbox.settle_all(self.name, (verb, time_ms, text), rows))

    def _asked(self, what: What) -> tuple[list[Receipt], list[Row]]:
        """Return a receipt for each message, and a row for each lease."""
        items = _listed(what)
        receipts = [self._receipt(item) for item in items]
        leased: dict[tuple[int, int], LeasedBatch] = {}
        for item, (lease, token, _) in zip(items, receipts, strict=True):
            if isinstance(item, Delivered):
                leased[lease, token] = item.leased
        return receipts, [(Held(*key, mask), leased.get(key)) for key, mask in _rows_by_lease(receipts).items()]

    def _receipt(self, item: Delivered | str) -> Receipt:
        if isinstance(item, str):
            return Receipt.of(item)
        if item.queue != self.name:
            raise bad_field("messages", f"message {item.id} was received from {item.queue!r}, not from {self.name!r}")
        return Receipt(item.leased.frame.lease, item.leased.frame.token, item.row)

    # The queue itself.

    async def describe(self) -> QueueView:
        return await self._perform(api.GET_QUEUE)

    async def update(self, **settings: Unpack[QueueSettings]) -> QueueView:
        """Change settings; those that are left out stay."""
        return await self._perform(api.CHANGE_QUEUE, body=settings)

    async def pause(self) -> QueueView:
        """Stop deliveries until `resume`. Sends continue."""
        return await self._perform(api.CHANGE_QUEUE, body={"paused": True})

    async def resume(self) -> QueueView:
        return await self._perform(api.CHANGE_QUEUE, body={"paused": False})

    async def purge(self) -> int:
        """Delete every message in the queue, received or not, and return how many."""
        return (await self._perform(api.PURGE_QUEUE)).purged

    async def delete(self, *, with_dead_letters: bool = False) -> Deleted:
        return await self._perform(api.DELETE_QUEUE, query={"with_dead_letters": with_dead_letters or None})

    # What operators do.

    async def peek(
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
        which = {"state": state, "priority": priority, "group": group, "text": text}
        return await self._perform(api.PEEK_MESSAGES, query={"limit": limit, "cursor": cursor, **which})

    async def get_message(self, message_id: str) -> Story:
        """Return a message with its story so far. Raises `MessageNotFound` if it is not in the queue."""
        return await self._perform(api.GET_MESSAGE, message_id=message_id)

    async def explain(self, message_id: str) -> Explained:
        """Explain why a message was not delivered yet."""
        return await self._perform(api.EXPLAIN_MESSAGE, message_id=message_id)

    async def ack_by_id(self, message_id: str, *, receipt: str | None = None) -> Acked:
        """Ack a message that is in flight, by its id; any consumer's, unless ``receipt`` is given."""
        return await self._perform(api.ACK_MESSAGE, query={"receipt": receipt}, message_id=message_id)

    async def cancel(self, message_id: str) -> Cancelled:
        """Take back a message that is not due yet. One that is due raises `NotScheduled`."""
        return await self._perform(api.CANCEL_MESSAGE, message_id=message_id)

    async def escalate(
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
        chosen: dict[str, Any] = {"filter": which} if isinstance(which, dict) else {"message_ids": list(which)}
        said = given(priority=priority, actor=actor, reason=reason, until=instant_text(until, field="until"))
        return await self._perform(api.ESCALATE_MESSAGES, body={**chosen, **said, "lower": lower})

    async def escalations(self, *, limit: int = 100) -> list[Escalation]:
        return (await self._perform(api.LIST_ESCALATIONS, query={"limit": limit})).escalations

    async def requeue(self, message_id: str, *, target_queue: str | None = None) -> Requeued:
        """Send one dead letter back, to where it came from or to another queue."""
        return await self._perform(api.REQUEUE_MESSAGE, body=given(target_queue=target_queue), message_id=message_id)

    async def redrive(
        self,
        *,
        target_queue: str | None = None,
        message_ids: Sequence[str] | None = None,
        filter: MessageFilter | None = None,  # noqa: A002 - the word of the REST API.
        limit: int | None = None,
        rate_per_s: float | None = None,
        dry_run: bool = False,
    ) -> RedriveTask:
        """Send dead letters back, in the background; `redrive_task` tells the progress."""
        chosen = given(target_queue=target_queue, message_ids=message_ids, filter=filter)
        how = given(limit=limit, rate_per_s=rate_per_s, dry_run=dry_run or None)
        return await self._perform(api.BEGIN_REDRIVE, body=chosen | how)

    async def redrive_task(self, task_id: str) -> RedriveTask:
        return await self._perform(api.GET_REDRIVE, task_id=task_id)

    async def stop_redrive(self, task_id: str) -> RedriveTask:
        return await self._perform(api.END_REDRIVE, task_id=task_id)

    async def redrive_tasks(self) -> list[RedriveTask]:
        return (await self._perform(api.LIST_REDRIVES)).tasks

    async def history(
        self, *, offset: int | None = None, since: Instant | None = None, limit: int = 1_000
    ) -> HistoryPage:
        """Read the history of settled messages, from an offset or a time on."""
        which = {"offset": offset, "since": instant_text(since, field="since"), "limit": limit}
        return await self._perform(api.READ_HISTORY, query=which)

    def _perform(
        self,
        operation: api.Operation[T],
        *,
        query: Mapping[str, str | float | bool | None] | None = None,
        body: Mapping[str, Any] | None = None,
        **names: str,
    ) -> Awaitable[T]:
        call = requests.ask(operation, {"queue": self.name, **names}, query=query, body=body)
        return self._outbox.caller.perform(call)


def _done(receipts: Sequence[Receipt], rows: Sequence[Row], done: Sequence[int]) -> list[bool]:
    """Say for each receipt whether it was done, as ``done`` says in bits for each lease."""
    found = {(held.lease, held.token): bits for (held, _), bits in zip(rows, done, strict=True)}
    return [bool(found[lease, token] >> position & 1) for lease, token, position in receipts]


def _listed(what: What) -> list[Delivered | str]:
    return [what] if isinstance(what, Delivered | str) else list(what)


def _rows_by_lease(receipts: Iterable[Receipt]) -> dict[tuple[int, int], int]:
    """The rows of each lease, by its id and token, as the bits of a mask."""
    rows: dict[tuple[int, int], int] = {}
    for lease, token, position in receipts:
        rows[lease, token] = rows.get((lease, token), 0) | 1 << position
    return rows
