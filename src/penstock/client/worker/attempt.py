"""The work on one message: middleware, time limit, thread, and the idempotency store.

An attempt raises nothing that the work raises: it ends in an `AttemptResult`, which says how the message is settled.
Only a cancellation passes.

A middleware is `async def middleware(message, call_next)`. It awaits `call_next(message)`, which is the next one, and
in the end the work itself. It raises what the work raises. The first one given to `Worker.use` is outermost.

Work that is a plain function runs in a thread. Threads are started when they are needed, up to a limit. They are
daemons, unlike those of `concurrent.futures`: one that never ends must not keep the process from ending. A thread
cannot be stopped from outside: work that is given up goes on, and its thread counts until it ends.

Each line of a worker's log is a name and fields, as the server's are. The logger is `penstock.worker`. A record has the
name as `event` and the fields as `fields`, for those who write JSON.
"""

import asyncio
import contextvars
import logging
import queue
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Any, Protocol

from penstock.client.caller import Connection
from penstock.client.idempotency import ClaimResult
from penstock.client.message import Message, release_ms
from penstock.client.worker.settings import ConsumerSettings, Reject, TimeLimitExceeded, describe, judge

CallNext = Callable[[Message], Awaitable[None]]
Middleware = Callable[[Message, CallNext], Awaitable[None]]


def compose(middleware: Sequence[Middleware], work: CallNext) -> CallNext:
    """One function that goes through all of them."""
    for each in reversed(middleware):
        work = partial(_call, each, work)
    return work


async def _call(middleware: Middleware, call_next: CallNext, message: Message) -> None:
    await middleware(message, call_next)


class LoggingMiddleware:
    """One line for each message: queue, id, delivery, how long it took, and what came of it."""

    def __init__(self, *, level: int = logging.INFO, failure_level: int = logging.WARNING) -> None:
        self._level = level
        self._failure_level = failure_level

    async def __call__(self, message: Message, call_next: CallNext) -> None:
        began_s = time.perf_counter()
        outcome, error = "cancelled", ""
        try:
            await call_next(message)
            outcome = "done"
        except Exception as failure:
            outcome = "rejected" if isinstance(failure, Reject) else "failed"
            error = f"{type(failure).__name__}: {failure}"
            raise
        finally:
            fields: dict[str, object] = {
                "queue": message.queue,
                "id": message.id,
                "delivery": message.delivery_count,
                "duration_ms": round((time.perf_counter() - began_s) * 1_000, 1),
                "outcome": outcome,
            }
            if error:
                fields["error"] = error
            log_event(MESSAGE_WORKED, self._level if outcome == "done" else self._failure_level, **fields)


_Job = tuple[Callable[[], object], "asyncio.Future[Any]", asyncio.AbstractEventLoop]


class Threads:
    """Runs functions for one event loop. The caller sees to it that no more than ``most`` run at once."""

    __slots__ = ("_name", "_most", "_jobs", "_threads", "_busy")

    def __init__(self, name: str, most: int) -> None:
        self._name = name
        self._most = most
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._threads = 0
        self._busy = 0

    def run(self, function: Callable[[Any], object], argument: object) -> "asyncio.Future[Any]":
        """Begin to run a function, with the context variables of the caller."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        context = contextvars.copy_context()
        self._busy += 1
        if self._threads < min(self._busy, self._most):
            self._threads += 1
            threading.Thread(target=self._work, name=f"{self._name}-{self._threads}", daemon=True).start()
        self._jobs.put((lambda: context.run(function, argument), future, loop))
        return future

    def close(self) -> None:
        """Let idle threads end; busy ones end with their work."""
        for _ in range(self._threads):
            self._jobs.put(None)
        self._threads = 0

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            function, future, loop = job
            result: object = None
            failure: BaseException | None = None
            try:
                result = function()
            except BaseException as error:
                # It is raised again where the work is awaited.
                failure = error
            try:
                loop.call_soon_threadsafe(self._end, future, result, failure)
            except RuntimeError:
                # The loop is closed: the work is not awaited any more.
                return
            del job, function, future, result, failure

    def _end(self, future: "asyncio.Future[Any]", result: object, failure: BaseException | None) -> None:
        self._busy -= 1
        if future.done():
            return
        if failure is None:
            future.set_result(result)
        elif isinstance(failure, StopIteration):
            # A future cannot hold one.
            future.set_exception(RuntimeError(f"the work raised {failure!r}"))
        else:
            future.set_exception(failure)


class Outcome(Enum):
    """What came of a message; the names of the counters in `ConsumerStats`."""

    DONE = "done"
    FAILED = "failed"
    REJECTED = "rejected"
    TIMED_OUT = "timed_out"
    DUPLICATE = "duplicate"
    RETURNED = "returned"


@dataclass(frozen=True, slots=True)
class AttemptResult:
    """What came of a message, and how it is settled."""

    outcome: Outcome
    verb: str
    time_ms: int | None = None
    text: str = ""

    @property
    def is_good(self) -> bool:
        return self.verb in {"ack", ""}

    @property
    def is_settled(self) -> bool:
        """Whether there is nothing left to be told."""
        return not self.verb


DONE = AttemptResult(Outcome.DONE, "ack")
# Acked in the transaction of its work.
COMMITTED = AttemptResult(Outcome.DONE, "")
DUPLICATE = AttemptResult(Outcome.DUPLICATE, "ack")
# The work had not begun: other consumers may receive it at once, and the delivery does not count.
RETURNED = AttemptResult(Outcome.RETURNED, "return")
# Its work was cancelled, and may have done something: the delivery counts.
CANCELLED = AttemptResult(Outcome.RETURNED, "release", 0, "the work was cancelled, because the worker stopped")


class Transaction(Protocol):
    """Lends a connection in a transaction; `Client.transaction` is one."""

    def __call__(self, *, is_threaded: bool, queue: str) -> AbstractAsyncContextManager[Connection]: ...


class Work:
    """A message that is worked on now."""

    __slots__ = ("message", "_task", "key")

    def __init__(self, message: Message, task: "asyncio.Task[Any] | None") -> None:
        self.message = message
        self._task = task
        # What `idempotency` knows it by, once it is claimed there.
        self.key: str | None = None

    def cancel(self) -> None:
        """Cancel it, once: a second time would disturb what it does about the first."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()


class _Expired(Exception):
    """The time that a work may take is over."""


class Attempts:
    """Makes attempts as the settings say."""

    def __init__(
        self, settings: ConsumerSettings, middleware: Sequence[Middleware], transaction: Transaction | None = None
    ) -> None:
        self._settings = settings
        self._transaction = transaction
        self._threads = (
            None if settings.is_asynchronous else Threads(f"penstock-{settings.queue}", settings.concurrency)
        )
        plain = self._function if self._threads is None else self._thread
        self._call = compose(middleware, self._committed if settings.is_transactional else plain)
        # Threads whose work was given up, and runs still.
        self.abandoned = 0
        self.on_thread_ended: Callable[[], None] = lambda: None

    async def attempt(self, work: Work, claim_s: float) -> AttemptResult:
        """Work on a message unless it is done or claimed. The claim lasts ``claim_s`` unless it is extended."""
        if self._settings.idempotency is None:
            return await self._perform(work.message)
        try:
            key = self._settings.key_of(work.message)
            claim = await self._settings.idempotency.begin(key, claim_s)
        except Exception as error:
            # Without the store it is not known whether the work is done; so not now.
            return self._failure(work.message, error)
        if claim is ClaimResult.DONE:
            return DUPLICATE
        if claim is ClaimResult.TAKEN:
            # The worker that has it ends soon, or loses its claim.
            return AttemptResult(Outcome.RETURNED, "release", release_ms(claim_s), "another worker has it")
        work.key = key
        is_good = False
        try:
            result = await self._perform(work.message)
            is_good = result.is_good
        finally:
            await self._remember(work, is_good=is_good)
        return result

    def close(self) -> None:
        if self._threads is not None:
            self._threads.close()

    async def _remember(self, work: Work, *, is_good: bool) -> None:
        store, key = self._settings.idempotency, work.key
        assert store is not None
        assert key is not None
        work.key = None
        try:
            await (store.finish(key) if is_good else store.forget(key))
        except Exception as error:
            # The work is done all the same; should the message come again, so is its work.
            log_event(IDEMPOTENCY_FAILED, logging.ERROR, queue=self._settings.queue, key=key, error=describe(error))

    async def _perform(self, message: Message) -> AttemptResult:
        limit_s = self._settings.time_limit_s
        try:
            if limit_s is None:
                await self._call(message)
            else:
                await self._within(limit_s, message)
        except _Expired:
            exceeded = TimeLimitExceeded(f"the work took longer than {limit_s:g} s")
            return self._failure(message, exceeded, Outcome.TIMED_OUT)
        except Exception as error:
            return self._failure(message, error)
        return COMMITTED if self._settings.is_transactional else DONE

    async def _within(self, limit_s: float, message: Message) -> None:
        try:
            async with asyncio.timeout(limit_s) as limit:
                await self._call(message)
        except TimeoutError as error:
            if limit.expired():
                raise _Expired from error
            raise

    def _failure(self, message: Message, error: BaseException, outcome: Outcome = Outcome.FAILED) -> AttemptResult:
        verdict = judge(self._settings.retry, error, message.delivery_count)
        if verdict.is_rejected:
            return AttemptResult(Outcome.REJECTED, "reject", text=describe(error))
        return AttemptResult(outcome, "release", release_ms(verdict.delay_s), describe(error))

    async def _function(self, message: Message, *connections: Connection) -> None:
        await self._settings.function(message, *connections)

    async def _committed(self, message: Message) -> None:
        """Work and ack in one transaction, so that nothing is left to settle afterwards."""
        assert self._transaction is not None
        is_threaded = self._threads is not None
        async with self._transaction(is_threaded=is_threaded, queue=message.queue) as connection:
            await (self._thread if is_threaded else self._function)(message, connection)
            await message.ack(connection=connection)

    async def _thread(self, message: Message, *connections: Connection) -> None:
        assert self._threads is not None
        future = self._threads.run(lambda each: self._settings.function(each, *connections), message)
        try:
            await asyncio.wait([future])
        except asyncio.CancelledError:
            self._abandon(message, future)
            raise
        future.result()

    def _abandon(self, message: Message, future: "asyncio.Future[Any]") -> None:
        if future.done():
            return
        self.abandoned += 1
        log_event(THREAD_ABANDONED, logging.WARNING, queue=message.queue, id=message.id)
        future.add_done_callback(self._thread_ended)

    def _thread_ended(self, future: "asyncio.Future[Any]") -> None:
        self.abandoned -= 1
        # Its result is not awaited any more.
        future.exception()
        self.on_thread_ended()


logger = logging.getLogger("penstock.worker")

STARTED = "worker_started"
STOPPING = "worker_stopping"
HURRIED = "worker_hurried"
STOPPED = "worker_stopped"
SERVER_LOST = "worker_server_lost"
QUEUE_NOT_FOUND = "worker_queue_not_found"
SERVER_FOUND = "worker_server_found"
LEASE_LOST = "worker_lease_lost"
SETTLING_FAILED = "worker_settling_failed"
THREAD_ABANDONED = "worker_thread_abandoned"
IDEMPOTENCY_FAILED = "worker_idempotency_failed"
MESSAGE_WORKED = "message_worked"


def log_event(name: str, /, level: int = logging.INFO, **fields: object) -> None:
    if logger.isEnabledFor(level):
        details = " ".join(f"{field}={value}" for field, value in fields.items())
        logger.log(level, "%s %s", name, details, extra={"event": name, "fields": fields})
