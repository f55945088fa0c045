"""Works on the messages of one queue until the worker stops.

    fetch ──► ready ──► work, `concurrency` at once ──► settle: ack, release or reject
      ▲                      │                              │
      └── room for more ─────┴──────────────────────────────┘        beat: extends what is held, all the while

Laws of the file
----------------
1. A message is acked only after its work is done, and after `idempotency` knows so.
2. Messages of one FIFO group that came together are worked on one after the other. When one fails, those after it are
   returned; their delivery does not count.
3. A message whose lease was lost is not settled: others may have it.
4. A place is free again when the work has ended, not when the server knows: settlements gather on their way. A thread
   whose work was given up has its place until it ends.
5. In the end everything in hand is settled or given back, except what a server that does not answer keeps us from.

The leases in hand: which messages of each are still ours, and until when by our own clock. A lease is extended when a
third of its time is left, all of it that is still held in one bitmap. A message is settled while its lease may be
extended at the same time: then "not extended" may mean that the settlement was first, and says nothing. Of every
other message it means that the lease was lost.

How many messages a consumer has in hand: enough to be busy, and no more than it can soon work on.

    in hand = at work (up to `concurrency`) + prefetched

What is prefetched bridges the time that the next lease takes: the rate at which work ends, times how long a lease was
on its way lately, twice. It is never more than can be worked on within half of the visibility timeout: the rest is left
to other consumers. It begins with nothing, and slow work never gets beyond that.

When to stop: shared by the consumers of one worker.

`begun` is the wish to stop in good order, and hurrying the wish not to wait for work that runs. With ``is_until_idle``
it begins by itself, once every queue was found empty after the last thing that happened in any of them.
"""

import asyncio
import logging
import random
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator
from functools import partial
from typing import Any, TypeVar

from penstock.client.caller import wait_s_of
from penstock.client.errors import Forbidden, PenstockError, QueueNotFound
from penstock.client.message import LeasedBatch, Message
from penstock.client.queue import Queue
from penstock.client.worker.attempt import (
    CANCELLED,
    IDEMPOTENCY_FAILED,
    LEASE_LOST,
    QUEUE_NOT_FOUND,
    RETURNED,
    SERVER_FOUND,
    SERVER_LOST,
    SETTLING_FAILED,
    AttemptResult,
    Attempts,
    Work,
    log_event,
)
from penstock.client.worker.settings import ConsumerSettings, ConsumerStats, describe
from penstock.contract.limits import REQUEST_MESSAGES_MAX
from penstock.wire.queues import QueueView

LEASE_S = 30.0
FLUSH_S = 10.0
GRACE_S = 0.25
SETTLING_MAX = 4 * REQUEST_MESSAGES_MAX
IDLE_POLL_S = 0.01
RETRY_S_MIN, RETRY_S_MAX = 0.1, 5.0
# After so many the waits are as long as they get.
_TRIES_LATE = 10

T = TypeVar("T")


class Shutdown:
    def __init__(self, *, shutdown_timeout_s: float, is_until_idle: bool = False) -> None:
        self.shutdown_timeout_s = shutdown_timeout_s
        self.is_until_idle = is_until_idle
        self.begun = asyncio.Event()
        self.is_hurried = False
        # Counts what happens to messages.
        self.happened = 0
        # For each consumer, what had happened before it last found nothing.
        self._empty: dict[str, int] = {}
        self._on_hurry: list[Callable[[], None]] = []

    def join(self, consumer: str, on_hurry: Callable[[], None]) -> None:
        self._empty[consumer] = -1
        self._on_hurry.append(on_hurry)

    def found_nothing(self, consumer: str, since: int) -> None:
        """A queue was empty, asked after ``since`` things had happened, with nothing in hand."""
        self._empty[consumer] = since
        if self.is_until_idle and all(each == self.happened for each in self._empty.values()):
            self.begun.set()

    def stop(self) -> None:
        """Stop; the second time, hurry."""
        if self.begun.is_set():
            self.hurry()
        self.begun.set()

    def hurry(self) -> None:
        self.begun.set()
        self.is_hurried = True
        for call in self._on_hurry:
            call()


class HeldLease:
    """One lease. Bit i stands for message i, as in its receipts."""

    __slots__ = ("leased", "rows", "settling", "until_s")

    def __init__(self, leased: LeasedBatch, until_s: float) -> None:
        self.leased = leased
        self.rows = (1 << len(leased)) - 1
        # Those whose ack or release is on its way; part of ``rows``.
        self.settling = 0
        self.until_s = until_s


class HeldLeases:
    __slots__ = ("_leases",)

    def __init__(self) -> None:
        self._leases: dict[int, HeldLease] = {}

    def __iter__(self) -> Iterator[HeldLease]:
        return iter(self._leases.values())

    def take(self, leased: LeasedBatch, until_s: float) -> None:
        self._leases[id(leased)] = HeldLease(leased, until_s)

    def has(self, message: Message, now_s: float) -> bool:
        """Whether a message is ours, for all we know."""
        lease = self._leases.get(id(message.leased))
        return lease is not None and bool(lease.rows >> message.row & 1) and now_s < lease.until_s

    def settle(self, message: Message) -> None:
        """Its ack or release begins its way."""
        lease = self._leases.get(id(message.leased))
        if lease is not None:
            lease.settling |= 1 << message.row & lease.rows

    def drop(self, message: Message) -> None:
        """It is not ours any more."""
        lease = self._leases.get(id(message.leased))
        if lease is not None:
            lease.rows &= ~(1 << message.row)
            lease.settling &= lease.rows
            if not lease.rows:
                del self._leases[id(message.leased)]

    def due(self, now_s: float, lease_s: float) -> list[HeldLease]:
        """Those of which a third or less is left."""
        return [lease for lease in self if lease.until_s - lease_s / 3 <= now_s]

    def next_due_s(self, lease_s: float) -> float | None:
        """When the next is due, by the clock of the loop."""
        return min((lease.until_s - lease_s / 3 for lease in self), default=None)

    @staticmethod
    def extended(lease: HeldLease, asked: int, done: int, until_s: float) -> int:
        """Remember an extension, and return the bits of those that were lost."""
        if done:
            lease.until_s = until_s
        return asked & ~done & lease.rows & ~lease.settling


# How much the newest measure counts.
_WEIGHT = 0.2


_WORK_S_MIN = 0.000_01


_BRIDGED = 2.0


class Prefetch:
    """Measures, and says how many messages to have in hand."""

    __slots__ = ("_concurrency", "_lease_s", "_work_s", "_fetch_s")

    def __init__(self, concurrency: int, lease_s: float) -> None:
        self._concurrency = concurrency
        self._lease_s = lease_s
        # None until there is a measure.
        self._work_s: float | None = None
        self._fetch_s = 0.0

    def worked(self, seconds: float) -> None:
        """The work on a message took so long."""
        seconds = max(seconds, _WORK_S_MIN)
        self._work_s = seconds if self._work_s is None else self._work_s + _WEIGHT * (seconds - self._work_s)

    def fetched(self, seconds: float, *, is_whole: bool) -> None:
        """A lease took so long. One that brought less than was wanted may have waited for messages: no measure."""
        if is_whole:
            self._fetch_s += _WEIGHT * (seconds - self._fetch_s) if self._fetch_s else seconds

    def most(self) -> int:
        """How many to prefetch beyond those at work.

        >>> prefetch = Prefetch(10, lease_s=30)
        >>> prefetch.most()
        0
        >>> prefetch.worked(0.1); prefetch.fetched(0.05, is_whole=True); prefetch.most()
        10
        >>> for _ in range(100): prefetch.worked(20)
        >>> prefetch.most()
        0
        """
        if self._work_s is None:
            return 0
        rate = self._concurrency / self._work_s
        bridged = rate * self._fetch_s * _BRIDGED
        # Those at work take part of the half of the timeout, too.
        workable = rate * self._lease_s / 2 - self._concurrency
        return max(0, min(int(bridged), int(workable), REQUEST_MESSAGES_MAX))


class Consumer:
    def __init__(self, queue: Queue, settings: ConsumerSettings, attempts: Attempts, shutdown: Shutdown) -> None:
        self._queue = queue
        self._settings = settings
        self._attempts = attempts
        self._shutdown = shutdown
        self._loop = asyncio.get_running_loop()
        self._lease_s = settings.visibility_timeout or LEASE_S
        self._is_ordered = True
        # Set once the queue was asked about both.
        self._is_known = asyncio.Event()
        self._prefetch = Prefetch(settings.concurrency, self._lease_s)
        self._held = HeldLeases()
        # Each is one message, or those of one FIFO group in their order.
        self._ready: deque[list[Message]] = deque()
        self._running = 0
        self._works: set[Work] = set()
        # What is open of messages: the tasks of those that are worked on, and the settlements on their way.
        self._open: set[asyncio.Future[Any]] = set()
        self._room = asyncio.Event()
        self._is_server_lost = False
        self._is_fetching = True
        # When the last lease was asked for.
        self._leased_at_s = float("-inf")
        self._stats = ConsumerStats()
        shutdown.join(settings.queue, self._cancel_works)
        attempts.on_thread_ended = self._start_ready

    async def run(self) -> None:
        """Work until the shutdown begins, then drain."""
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            beating = tasks.create_task(self._beat())
            fetching = tasks.create_task(self._fetch())
            try:
                await self._shutdown.begun.wait()
            except asyncio.CancelledError:
                # The caller does not want to wait; messages in hand are returned all the same.
                self._shutdown.hurry()
                await self._end(fetching, beating)
                raise
            await self._end(fetching, beating)

    def stats(self) -> ConsumerStats:
        stats = self._stats
        stats.running, stats.prefetched = self._running, self._prefetched()
        stats.settling, stats.abandoned_threads = len(self._open) - self._running, self._attempts.abandoned
        return stats

    # Fetching.

    async def _fetch(self) -> None:
        await self._ask_queue()
        while not self._shutdown.begun.is_set():
            wanted = self._wanted()
            if wanted:
                await self._lease(wanted)
            else:
                self._room.clear()
                await self._room.wait()

    async def _ask_queue(self) -> None:
        """Ask how long leases are and whether groups have an order. If that is forbidden, assume careful answers."""

        async def ask() -> QueueView | None:
            try:
                return await self._queue.describe()
            except Forbidden:
                return None

        view = await self._persist(ask)
        if view is not None:
            self._is_ordered = view.fifo
            self._lease_s = self._settings.visibility_timeout or view.visibility_timeout or LEASE_S
            self._prefetch = Prefetch(self._settings.concurrency, self._lease_s)
        self._is_known.set()

    def _wanted(self) -> int:
        """How many messages to ask for now."""
        ready, most = self._prefetched(), self._prefetch.most()
        if ready > most // 2 or len(self._open) > SETTLING_MAX:
            return 0
        return max(0, min(self._places() + most - ready, REQUEST_MESSAGES_MAX))

    def _prefetched(self) -> int:
        return sum(map(len, self._ready))

    async def _lease(self, wanted: int) -> None:
        since, is_idle = self._shutdown.happened, not self._open and not self._ready
        wait_s = 0.0 if self._shutdown.is_until_idle else self._settings.wait_s
        began_s = self._leased_at_s = self._loop.time()
        leased = await self._lease_along(wanted)
        if leased is None:
            leased = await self._persist(
                lambda: self._queue.lease(limit=wanted, wait_s=wait_s, visibility_timeout=self._lease_s)
            )
        ended_s = self._loop.time()
        if leased is not None:
            self._prefetch.fetched(ended_s - began_s, is_whole=len(leased) == wanted)
            self._take(leased, ended_s)
        elif self._shutdown.is_until_idle:
            if is_idle:
                self._shutdown.found_nothing(self._settings.queue, since)
            await asyncio.sleep(IDLE_POLL_S)

    async def _lease_along(self, wanted: int) -> LeasedBatch | None:
        """Lease in the same request as acks that are about to leave. It does not wait for messages."""
        lease = self._queue.lease_along(limit=wanted, visibility_timeout=self._lease_s)
        return None if lease is None else await lease

    def _take(self, leased: LeasedBatch, now_s: float) -> None:
        self._held.take(leased, now_s + self._lease_s)
        self._stats.received += len(leased)
        self._shutdown.happened += 1
        chains: dict[str, list[Message]] = {}
        for row in range(len(leased)):
            message = Message(leased, row, self._queue)
            group = message.group if self._is_ordered else None
            if group is None:
                self._ready.append([message])
            elif group in chains:
                chains[group].append(message)
            else:
                chains[group] = [message]
                self._ready.append(chains[group])
        self._start_ready()

    async def _persist(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Ask until there is an answer. Log a failure once, and once that it is over."""
        tries = 0
        while True:
            began_s = self._loop.time()
            try:
                answer = await ask()
            except Exception as error:
                if self._shutdown.is_until_idle:
                    # A test would wait for ever.
                    raise
                # The client has tried for long by itself, and so have those of all other workers.
                has_tried = self._loop.time() - began_s > RETRY_S_MAX
                tries = max(tries + 1, _TRIES_LATE if has_tried else 0)
                if not self._is_server_lost:
                    self._is_server_lost = True
                    self._note_lost(error)
                await asyncio.sleep(_wait_s(error, tries))
                continue
            if self._is_server_lost:
                self._is_server_lost = False
                log_event(SERVER_FOUND, queue=self._settings.queue)
            return answer

    def _note_lost(self, error: Exception) -> None:
        queue = self._settings.queue
        if isinstance(error, QueueNotFound):
            fix = f"`penstock queue create {queue}` makes it; it is tried again until then"
            log_event(QUEUE_NOT_FOUND, logging.WARNING, queue=queue, error=f"queue not found: {fix}")
        else:
            log_event(SERVER_LOST, logging.WARNING, queue=queue, error=describe(error))

    # Working.

    def _places(self) -> int:
        return self._settings.concurrency - self._running - self._attempts.abandoned

    def _start_ready(self) -> None:
        while self._ready and self._places() > 0 and not self._shutdown.begun.is_set():
            self._running += 1
            self._begin(self._work_on(self._ready.popleft()))
        self._room.set()

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            task = self._tasks.create_task(work)
        except RuntimeError:
            # A bug ends the whole worker: leases end by themselves.
            work.close()
            return
        self._open.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, future: "asyncio.Future[Any]") -> None:
        self._open.discard(future)
        self._shutdown.happened += 1
        self._room.set()

    async def _work_on(self, chain: list[Message]) -> None:
        """Work on a message and on those of its group after it, and leave the place to others once that is done."""
        left = deque(chain)
        try:
            while left and not self._shutdown.begun.is_set() and self._held.has(left[0], self._loop.time()):
                message = left.popleft()
                result = await self._attempt(message)
                self._settle(message, result)
                if not result.is_good:
                    break
                if left:
                    # Work that never waits must not keep others from their turn, nor the worker from stopping.
                    await asyncio.sleep(0)
        finally:
            self._running -= 1
            self._start_ready()
            if left and self._shutdown.begun.is_set() and self._is_fetching:
                self._ready.append(list(left))
            else:
                self._give_back(left)

    async def _attempt(self, message: Message) -> AttemptResult:
        work = Work(message, asyncio.current_task())
        self._works.add(work)
        began_s = self._loop.time()
        try:
            return await self._attempts.attempt(work, self._lease_s)
        except asyncio.CancelledError:
            # Drained for too long, or its lease was lost.
            self._settle(message, CANCELLED)
            raise
        finally:
            self._works.discard(work)
            self._prefetch.worked(self._loop.time() - began_s)

    def _give_back(self, messages: Iterable[Message]) -> None:
        for message in messages:
            self._settle(message, RETURNED)

    def _settle(self, message: Message, result: AttemptResult) -> None:
        """Begin to settle a message. A task that waits for the answer would cost more than the rest of the work."""
        if not self._held.has(message, float("-inf")):
            return
        if result.is_settled:
            self._stats.count(result.outcome.value)
            self._held.drop(message)
            return
        self._held.settle(message)
        try:
            settled = self._queue.settle(
                result.verb, message.held(), message.leased, time_ms=result.time_ms, text=result.text
            )
            future = asyncio.ensure_future(settled)  # noqa: TID251 - awaited in the end, as all that is open.
        except PenstockError as error:
            # The client was closed under it.
            self._failed(message, result, error)
            return
        self._open.add(future)
        future.add_done_callback(partial(self._settled, message, result))

    def _settled(self, message: Message, result: AttemptResult, future: "asyncio.Future[int]") -> None:
        error = None if future.cancelled() else future.exception()
        if error is not None:
            self._failed(message, result, error)
        elif not future.cancelled() and future.result():
            self._stats.count(result.outcome.value)
        elif not future.cancelled():
            self._lose(message)
        self._held.drop(message)
        self._ended(future)

    def _failed(self, message: Message, result: AttemptResult, error: BaseException) -> None:
        fields = {"queue": message.queue, "id": message.id, "verb": result.verb, "error": describe(error)}
        log_event(SETTLING_FAILED, logging.WARNING, **fields)
        self._held.drop(message)

    # Holding.

    async def _beat(self) -> None:
        await self._is_known.wait()
        while True:
            now_s, due_s = self._loop.time(), self._held.next_due_s(self._lease_s)
            # What is taken meanwhile is due later than that.
            await asyncio.sleep(max(0.0, min(self._lease_s / 3, (due_s or now_s + self._lease_s) - now_s)))
            # Those that are due soon go along.
            due = self._held.due(self._loop.time() + self._lease_s / 10, self._lease_s)
            await asyncio.gather(*map(self._extend, due), self._extend_claims())

    async def _extend(self, lease: HeldLease) -> None:
        asked, until_s = lease.rows & ~lease.settling, self._loop.time() + self._lease_s
        if not asked:
            # All of it is on its way to be settled: look again when that may have failed.
            lease.until_s = until_s
            return
        try:
            done = await self._queue.settle(
                "extend", lease.leased.held(asked), lease.leased, time_ms=round(self._lease_s * 1_000)
            )
        except PenstockError as error:
            # The lease may still hold: a server that was restarted begins leases again.
            log_event(SETTLING_FAILED, logging.WARNING, queue=self._queue.name, verb="extend", error=describe(error))
            lease.until_s = max(lease.until_s, self._loop.time() + self._lease_s / 3 + RETRY_S_MIN)
            return
        lost = self._held.extended(lease, asked, done, until_s)
        for row in range(lost.bit_length()):
            if lost >> row & 1:
                self._lose(Message(lease.leased, row, self._queue))

    async def _extend_claims(self) -> None:
        """Work that runs keeps its claim, also after its lease was lost, so that no worker begins it a second time."""
        store = self._settings.idempotency
        if store is None:
            return
        for key in [work.key for work in self._works if work.key is not None]:
            try:
                await store.extend(key, self._lease_s)
            except Exception as error:
                log_event(IDEMPOTENCY_FAILED, logging.ERROR, queue=self._queue.name, key=key, error=describe(error))

    def _lose(self, message: Message) -> None:
        """Its lease has ended, and others may have it: it is not settled, and its work is cancelled if wanted."""
        self._stats.lost += 1
        self._held.drop(message)
        log_event(LEASE_LOST, logging.WARNING, queue=message.queue, id=message.id)
        if self._settings.cancel_on_lost_lease and self._settings.is_asynchronous:
            for work in self._works:
                if work.message.leased is message.leased and work.message.row == message.row:
                    work.cancel()

    # The end.

    async def _end(self, fetching: "asyncio.Task[None]", beating: "asyncio.Task[None]") -> None:
        self._room.set()
        # A lease that is being answered would be lost until it ends. One that waits for messages can be cancelled.
        grace_s = 0.0 if self._shutdown.is_hurried else self._leased_at_s + GRACE_S - self._loop.time()
        await asyncio.wait([fetching], timeout=max(0.0, grace_s))
        fetching.cancel()
        await asyncio.wait([fetching])
        # Not before: it would lease again what is given back.
        self._is_fetching = False
        for chain in self._ready:
            self._give_back(chain)
        self._ready.clear()
        await self._drain()
        beating.cancel()

    async def _drain(self) -> None:
        """Wait for what runs, then cancel it; and wait until the server knows."""
        ends_s = self._loop.time() + self._shutdown.shutdown_timeout_s
        while self._works and not self._shutdown.is_hurried and (left_s := ends_s - self._loop.time()) > 0:
            await asyncio.wait(self._open, timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
        self._cancel_works()
        ends_s = self._loop.time() + FLUSH_S
        while self._open and (left_s := ends_s - self._loop.time()) > 0:
            await asyncio.wait(self._open, timeout=left_s)
        for future in list(self._open):
            future.cancel()

    def _cancel_works(self) -> None:
        for work in self._works:
            work.cancel()


def _wait_s(error: Exception, tries: int) -> float:
    """How long to stay away after so many tries: at random, so that a thousand workers do not come back as one."""
    own_s = random.uniform(0.5, 1.0) * min(RETRY_S_MAX, RETRY_S_MIN * 2.0 ** min(tries, _TRIES_LATE))
    if isinstance(error, PenstockError) and error.retry_after_s is not None:
        return max(own_s, wait_s_of(error, tries))
    return own_s
