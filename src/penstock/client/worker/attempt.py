"""The work on one message: middleware, time limit, thread, and the memory of what was done.

An attempt never raises for what the work raises: it ends in an `Ending`, which says what is to be told the server. Only
being cancelled goes through.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol

from penstock.client.idempotency import Standing
from penstock.client.message import Message, release_ms
from penstock.client.within import Connection
from penstock.client.worker.log_events import SEEN_FAILED, THREAD_ABANDONED, note
from penstock.client.worker.middleware import Middleware, compose
from penstock.client.worker.retry import TimeLimitExceeded, describe, judge
from penstock.client.worker.settings import ConsumerSettings
from penstock.client.worker.threads import Threads


class Outcome(Enum):
    """What came of a message; the names of the counters in `ConsumerStats`."""

    DONE = "done"
    FAILED = "failed"
    REJECTED = "rejected"
    TIMED_OUT = "timed_out"
    SEEN = "seen"
    GIVEN_BACK = "given_back"


@dataclass(frozen=True, slots=True)
class Ending:
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


DONE = Ending(Outcome.DONE, "ack")
# Acked in the transaction of its work.
COMMITTED = Ending(Outcome.DONE, "")
SEEN = Ending(Outcome.SEEN, "ack")
# Nothing was done with it: anybody may have it at once, and the delivery does not count.
GIVEN_BACK = Ending(Outcome.GIVEN_BACK, "give_back")
# Its work was cancelled, and may have done something: the delivery counts.
CANCELLED = Ending(Outcome.GIVEN_BACK, "release", 0, "the work was cancelled, because the worker stopped")


class Transaction(Protocol):
    """Lends a connection in a transaction; `Client.transaction` is one."""

    def __call__(self, *, is_threaded: bool, queue: str) -> AbstractAsyncContextManager[Connection]: ...


class Work:
    """A message that is worked on now."""

    __slots__ = ("message", "_task", "key")

    def __init__(self, message: Message, task: "asyncio.Task[Any] | None") -> None:
        self.message = message
        self._task = task
        # What `seen` knows it by, once it is claimed there.
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

    async def attempt(self, work: Work, claim_s: float) -> Ending:
        """Work on a message, if nobody has; what is begun is claimed for ``claim_s``, unless that is extended."""
        if self._settings.seen is None:
            return await self._perform(work.message)
        try:
            key = self._settings.key_of(work.message)
            standing = await self._settings.seen.begin(key, claim_s)
        except Exception as error:
            # Without the memory nobody knows whether to do it; so not now.
            return self._failure(work.message, error)
        if standing is Standing.DONE:
            return SEEN
        if standing is Standing.TAKEN:
            # Whoever has it ends soon, or loses it.
            return Ending(Outcome.GIVEN_BACK, "release", release_ms(claim_s), "another worker has it")
        work.key = key
        is_good = False
        try:
            ending = await self._perform(work.message)
            is_good = ending.is_good
        finally:
            await self._remember(work, is_good=is_good)
        return ending

    def close(self) -> None:
        if self._threads is not None:
            self._threads.close()

    async def _remember(self, work: Work, *, is_good: bool) -> None:
        seen, key = self._settings.seen, work.key
        assert seen is not None
        assert key is not None
        work.key = None
        try:
            await (seen.finish(key) if is_good else seen.forget(key))
        except Exception as error:
            # The work is done all the same; should the message come again, so is its work.
            note(SEEN_FAILED, logging.ERROR, queue=self._settings.queue, key=key, error=describe(error))

    async def _perform(self, message: Message) -> Ending:
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

    def _failure(self, message: Message, error: BaseException, outcome: Outcome = Outcome.FAILED) -> Ending:
        verdict = judge(self._settings.retry, error, message.delivery_count)
        if verdict.is_rejected:
            return Ending(Outcome.REJECTED, "reject", text=describe(error))
        return Ending(outcome, "release", release_ms(verdict.delay_s), describe(error))

    async def _function(self, message: Message, *connections: Connection) -> None:
        await self._settings.function(message, *connections)

    async def _committed(self, message: Message) -> None:
        """Work, and ack, in one transaction: that is why nothing is told the server after it."""
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
        note(THREAD_ABANDONED, logging.WARNING, queue=message.queue, id=message.id)
        future.add_done_callback(self._thread_ended)

    def _thread_ended(self, future: "asyncio.Future[Any]") -> None:
        self.abandoned -= 1
        # Whatever came of it, nobody waits for it any more.
        future.exception()
        self.on_thread_ended()
