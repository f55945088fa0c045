"""What of a client is on its way: for each queue the sends and the settlements, under one bound of memory.

There are two outboxes. `BatchingOutbox` gathers what tasks of an event loop send and settle at the same time. In
`DirectOutbox` every call is a request of its own, in the thread of its caller: for a thread that waits for each call
anyway, the way to another thread and back would cost more than the rest of the request.
"""

import asyncio
import secrets
import threading
from collections.abc import Awaitable, Coroutine, Generator, Iterator, Sequence
from typing import Any, Protocol

from penstock.client.batching import IN_FLIGHT_MAX, MESSAGE_BYTES, MemoryLimit, SendBatcher, SettlementBatcher
from penstock.client.caller import Caller
from penstock.client.delivery import Delivery, ListedSends, SentIds
from penstock.client.drafts import Drafts, Extras
from penstock.client.errors import ClientClosed
from penstock.client.message import Fetch, LeasedBatch, Wanted
from penstock.client.settling import ACK, Row, Terms, cut, settle_and_lease
from penstock.contract.limits import REQUEST_MESSAGES_MAX

PENDING_BYTES_MAX = 64 * 1024 * 1024
REQUEST_BYTES_MAX = 8 * 1024 * 1024


class Outbox(Protocol):
    """What the verbs of a queue are made of."""

    caller: Caller
    # Whether a lease can be on its way while the caller does something else.
    fetches_ahead: bool

    def send(self, queue: str, body: bytes, extras: Extras | None, timeout_s: float | None) -> Awaitable[str]: ...

    async def send_many(self, queue: str, drafts: Drafts, timeout_s: float | None) -> SentIds:
        """Send drafts in as many requests as they need."""
        ...

    def settle(self, queue: str, terms: Terms, row: Row) -> Coroutine[Any, Any, int] | asyncio.Future[int]:
        """Settle some messages of one lease, and return the bits of those that were done.

        An ack takes along a lease that the feed of these messages wants.
        """
        ...

    async def settle_all(self, queue: str, terms: Terms, rows: Sequence[Row]) -> list[int]:
        """Settle messages of several leases."""
        ...

    async def ack_and_lease(
        self, queue: str, rows: Sequence[Row], wanted: Wanted
    ) -> tuple[list[int], LeasedBatch | None]:
        """Ack, and lease in the same request."""
        ...

    def ride(self, queue: str, wanted: Wanted) -> Awaitable[LeasedBatch | None] | None:
        """Lease along with acks that are about to leave; None if there are none. It finds nothing if the acks fail."""
        ...

    def begin(self, lease: Coroutine[Any, Any, LeasedBatch | None]) -> Fetch: ...

    async def end(self, fetch: Fetch) -> LeasedBatch | None:
        """Cancel a lease, and return what it has brought all the same."""
        ...

    async def close(self) -> None:
        """Wait for what is on its way; cancelling this abandons it."""
        ...


class BatchingOutbox:
    """Belongs to one client and one event loop."""

    fetches_ahead = True

    def __init__(self, caller: Caller, *, pending_bytes_max: int = PENDING_BYTES_MAX) -> None:
        self.caller = caller
        # What the server knows its sends by.
        self._sender_id = secrets.randbits(63)
        self._memory = MemoryLimit(pending_bytes_max)
        self._deliveries: dict[str, Delivery] = {}
        self._send_batchers: dict[str, SendBatcher] = {}
        self._settlement_batchers: dict[str, SettlementBatcher] = {}
        self._is_closed = False

    def send(self, queue: str, body: bytes, extras: Extras | None, timeout_s: float | None) -> Awaitable[str]:
        sends = self._send_batchers.get(queue)
        if sends is None:
            sends = self._send_batchers[queue] = SendBatcher(self._delivery(queue), self._memory)
        if timeout_s is None:
            timeout_s = self.caller.timeout_s
        if self._memory.take(len(body) + MESSAGE_BYTES):
            return sends.add(body, extras, timeout_s)
        return self._send_later(sends, body, extras, timeout_s)

    async def _send_later(self, sends: SendBatcher, body: bytes, extras: Extras | None, timeout_s: float) -> str:
        await self._memory.wait(len(body) + MESSAGE_BYTES)
        return await sends.add(body, extras, timeout_s)

    async def send_many(self, queue: str, drafts: Drafts, timeout_s: float | None) -> SentIds:
        """Several requests go at once if their order does not matter."""
        delivery = self._delivery(queue)
        batches = _batches(drafts, _deadline_s(self.caller, timeout_s))
        if len(batches) == 1:
            await delivery.deliver(batches[0])
        else:
            waiting = iter(batches)
            async with asyncio.TaskGroup() as tasks:
                for _ in range(1 if drafts.has_groups else IN_FLIGHT_MAX):
                    tasks.create_task(_deliver_each(delivery, waiting))
        return _result(batches)

    def settle(self, queue: str, terms: Terms, row: Row) -> "asyncio.Future[int]":
        held, leased = row
        batcher = self._settlement_batchers.get(queue) or self._settlement_batcher(queue)
        future = batcher.add(terms, held, leased)
        if leased is not None and leased.feed is not None and terms == ACK:
            wanted = leased.feed.wanted()
            if wanted is not None:
                leased.feed.fetch = batcher.ride(wanted)
        return future

    async def settle_all(self, queue: str, terms: Terms, rows: Sequence[Row]) -> list[int]:
        batcher = self._settlement_batcher(queue)
        return await asyncio.gather(*(batcher.add(terms, held, leased) for held, leased in rows))

    async def ack_and_lease(
        self, queue: str, rows: Sequence[Row], wanted: Wanted
    ) -> tuple[list[int], LeasedBatch | None]:
        self._check_open()
        return await settle_and_lease(self.caller, queue, ACK, rows, wanted)

    def ride(self, queue: str, wanted: Wanted) -> "asyncio.Future[LeasedBatch | None] | None":
        return self._settlement_batcher(queue).ride(wanted)

    def begin(self, lease: Coroutine[Any, Any, LeasedBatch | None]) -> Fetch:
        return asyncio.create_task(lease)  # noqa: TID251 - its caller ends it.

    async def end(self, fetch: Fetch) -> LeasedBatch | None:
        assert isinstance(fetch, asyncio.Future)
        fetch.cancel()
        await asyncio.wait([fetch])
        return None if fetch.cancelled() or fetch.exception() is not None else fetch.result()

    async def close(self) -> None:
        self._is_closed = True
        batchers: tuple[SendBatcher | SettlementBatcher, ...] = (
            *self._send_batchers.values(),
            *self._settlement_batchers.values(),
        )
        try:
            for each in batchers:
                await each.drain()
        finally:
            for each in batchers:
                await each.abandon()

    def _settlement_batcher(self, queue: str) -> SettlementBatcher:
        found = self._settlement_batchers.get(queue)
        if found is None:
            self._check_open()
            found = self._settlement_batchers[queue] = SettlementBatcher(self.caller, queue)
        return found

    def _delivery(self, queue: str) -> Delivery:
        self._check_open()
        found = self._deliveries.get(queue)
        if found is None:
            found = self._deliveries[queue] = Delivery(self.caller, queue, self._sender_id)
        return found

    def _check_open(self) -> None:
        if self._is_closed:
            raise ClientClosed("the client is closed")


class DirectOutbox:
    """Belongs to one client, whose threads share it. Its transport blocks, so nothing here waits for an event loop.

    The server knows the sends of a client by a sender and a sequence. A sender here has one request at a time: a thread
    takes an idle sender, or makes one, and gives it back when it has its answer.
    """

    fetches_ahead = False

    def __init__(self, caller: Caller) -> None:
        self.caller = caller
        self._idle: dict[str, list[Delivery]] = {}
        # One for each send and settlement on its way. Lists change in one step of the interpreter.
        self._under_way: list[None] = []
        self._is_closed = False
        self._is_done = threading.Event()

    async def send(self, queue: str, body: bytes, extras: Extras | None, timeout_s: float | None) -> str:
        drafts = Drafts((body,), None if extras is None else (extras,))
        batch = ListedSends(drafts, _deadline_s(self.caller, timeout_s))
        await self._deliver(queue, (batch,))
        if batch.error is not None:
            raise batch.error
        return batch.ids()[0][0]

    async def send_many(self, queue: str, drafts: Drafts, timeout_s: float | None) -> SentIds:
        batches = _batches(drafts, _deadline_s(self.caller, timeout_s))
        await self._deliver(queue, batches)
        return _result(batches)

    async def settle(self, queue: str, terms: Terms, row: Row) -> int:
        leased = row[1]
        feed = leased.feed if leased is not None and terms == ACK else None
        wanted = None if feed is None else feed.wanted()
        self._enter()
        try:
            done, more = await settle_and_lease(self.caller, queue, terms, (row,), wanted)
        finally:
            self._leave()
        if wanted is not None:
            assert feed is not None
            feed.put(more)
        return done[0]

    async def settle_all(self, queue: str, terms: Terms, rows: Sequence[Row]) -> list[int]:
        found: list[int] = []
        self._enter()
        try:
            while rows:
                count, _ = cut(rows)
                found += (await settle_and_lease(self.caller, queue, terms, rows[:count], None))[0]
                rows = rows[count:]
        finally:
            self._leave()
        return found

    async def ack_and_lease(
        self, queue: str, rows: Sequence[Row], wanted: Wanted
    ) -> tuple[list[int], LeasedBatch | None]:
        self._enter()
        try:
            return await settle_and_lease(self.caller, queue, ACK, rows, wanted)
        finally:
            self._leave()

    def ride(self, queue: str, wanted: Wanted) -> None:  # noqa: ARG002 - every request leaves at once.
        return None

    def begin(self, lease: Coroutine[Any, Any, LeasedBatch | None]) -> Fetch:
        return _Deferred(lease)

    async def end(self, fetch: Fetch) -> LeasedBatch | None:
        assert isinstance(fetch, _Deferred)
        fetch.close()
        return None

    async def close(self) -> None:
        self._is_closed = True
        if self._under_way:
            self._is_done.wait()

    async def _deliver(self, queue: str, batches: Sequence[ListedSends]) -> None:
        self._enter()
        try:
            idle = self._idle.get(queue)
            if idle is None:
                idle = self._idle.setdefault(queue, [])
            try:
                delivery = idle.pop()
            except IndexError:
                delivery = Delivery(self.caller, queue, secrets.randbits(63))
            try:
                await _deliver_each(delivery, iter(batches))
            finally:
                idle.append(delivery)
        finally:
            self._leave()

    def _enter(self) -> None:
        """Have `close` wait for what follows, until `_leave`."""
        if self._is_closed:
            raise ClientClosed("the client is closed")
        self._under_way.append(None)

    def _leave(self) -> None:
        self._under_way.pop()
        if self._is_closed and not self._under_way:
            self._is_done.set()


class _Deferred:
    """A lease that begins when it is awaited."""

    __slots__ = ("_lease",)

    def __init__(self, lease: Coroutine[Any, Any, LeasedBatch | None]) -> None:
        self._lease = lease

    def done(self) -> bool:
        return False

    def close(self) -> None:
        self._lease.close()

    def __await__(self) -> Generator[Any, None, LeasedBatch | None]:
        return self._lease.__await__()


def _deadline_s(caller: Caller, timeout_s: float | None) -> float:
    return caller.now_s() + (caller.timeout_s if timeout_s is None else timeout_s)


async def _deliver_each(delivery: Delivery, waiting: Iterator[ListedSends]) -> None:
    for batch in waiting:
        await delivery.deliver(batch)
        if batch.error is not None:
            # What comes after is not sent: the others of this send find nothing left.
            for _ in waiting:
                pass


def _batches(drafts: Drafts, deadline_s: float) -> list[ListedSends]:
    return [ListedSends(part, deadline_s) for part in _parts(drafts)]


def _parts(drafts: Drafts) -> list[Drafts]:
    """Cut drafts where a request is full."""
    if len(drafts) <= REQUEST_MESSAGES_MAX and sum(map(len, drafts.bodies)) <= REQUEST_BYTES_MAX:
        return [drafts]
    parts, start, size = [], 0, 0
    for position, body in enumerate(drafts.bodies):
        if position - start == REQUEST_MESSAGES_MAX or (size + len(body) > REQUEST_BYTES_MAX and position > start):
            parts.append(drafts.part(start, position))
            start, size = position, 0
        size += len(body)
    return [*parts, drafts.part(start, len(drafts))]


def _result(batches: list[ListedSends]) -> SentIds:
    error = next((batch.error for batch in batches if batch.error is not None), None)
    if error is not None:
        error.sent = [known for batch in batches for known in batch.known_ids()]
        raise error
    return SentIds([ids for batch in batches for ids in batch.ids()])
