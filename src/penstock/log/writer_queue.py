"""One job at a time: how a log keeps its files to a single writer without locks."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import NoReturn, TypeVar

from penstock.runtime.interface import Workers

T = TypeVar("T")
# What runs in a worker, and what then runs on the event loop.
Job = tuple[Callable[[], None], Callable[[], None]]


def carried(work: Callable[[], T], then: Callable[[T], None] | None = None) -> tuple[Job, "asyncio.Future[T]"]:
    """Return a job for ``work``, and a future for what it returns or raises.

    ``then`` gets what it returned, on the event loop, whether or not anyone still waits.
    """
    future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
    outcome: list[T] = []
    errors: list[Exception] = []

    def run() -> None:
        try:
            outcome.append(work())
        except Exception as error:  # Carried to the caller.
            errors.append(error)

    def done() -> None:
        if then is not None and outcome:
            then(outcome[0])
        if future.done():
            return
        if errors:
            future.set_exception(errors[0])
        else:
            future.set_result(outcome[0])

    return (run, done), future


async def off_loop(workers: Workers, work: Callable[[], T]) -> T:
    """Run a call that blocks in a worker and return what it returns or raises."""
    job, future = carried(work)
    workers.submit(*job)
    return await future


class WriterQueue:
    """Commits, and the rare work that must not meet one. Lives on the event loop.

    No timer: a job starts when the one before it is done. The first one of a
    quiet log waits for the end of the loop's turn, so that everyone who is ready
    to append comes along.
    """

    def __init__(
        self, workers: Workers, next_commit: Callable[[], Job | None], fail: Callable[[OSError], NoReturn]
    ) -> None:
        self._workers = workers
        self._next_commit = next_commit
        self._fail = fail
        self._rare: deque[Job] = deque()
        self._is_busy = self._is_scheduled = False

    async def alone(self, work: Callable[[], T], then: Callable[[T], None] | None = None) -> T:
        """Run ``work`` while no commit runs. A disk that fails it stops the process."""

        def guarded() -> T:
            try:
                return work()
            except OSError as error:
                self._fail(error)

        job, future = carried(guarded, then)
        self._rare.append(job)
        self.schedule()
        return await future

    def add(self, job: Job) -> None:
        """Like `alone`, for a caller that does not wait."""
        self._rare.append(job)
        self.schedule()

    def schedule(self) -> None:
        if not self._is_busy and not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._wait_a_turn)

    def _wait_a_turn(self) -> None:
        # What an append wakes up appends in the next turn, and is to be in the same commit: a message and its lease.
        asyncio.get_running_loop().call_soon(self._start)

    def _start(self) -> None:
        self._is_scheduled = False
        if self._is_busy:
            return
        # Commits would never let a rare job through, if they had the right of way under load.
        job = self._rare.popleft() if self._rare else self._next_commit()
        if job is None:
            return
        run, done = job
        self._is_busy = True
        self._workers.submit(lambda: self._guard(run), lambda: self._finish(done))

    def _guard(self, run: Callable[[], None]) -> None:
        try:
            run()
        except OSError as error:
            self._fail(error)

    def _finish(self, done: Callable[[], None]) -> None:
        self._is_busy = False
        done()
        self.schedule()
