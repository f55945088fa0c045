"""One job at a time: how a log keeps its files to a single writer without locks; and where a job runs.

    append ──▶ end of the turn ──▶ large, or the disk is slow: a worker writes and syncs, the loop goes on
                                   small, and the disk is quick: the loop does it, where it stands

To hand a commit to a thread and to be woken again costs more than a good disk takes for it.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import NamedTuple, NoReturn, TypeVar

from penstock.runtime.interface import Runtime, Workers

T = TypeVar("T")


class Job(NamedTuple):
    # What runs in a worker, and what then runs on the event loop.
    work: Callable[[], None]
    done: Callable[[], None]
    # It writes and syncs so little that a quick disk is done with it at once.
    is_small: bool = False


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

    return Job(run, done), future


async def off_loop(workers: Workers, work: Callable[[], T]) -> T:
    """Run a call that blocks in a worker and return what it returns or raises."""
    job, future = carried(work)
    workers.submit(job.work, job.done)
    return await future


# What a hand-over costs on a busy machine, and more than a good disk takes.
QUICK_US = 1_000
REST_FACTOR = 50


class WriterQueue:
    """Commits, and the rare work that must not meet one. Lives on the event loop.

    No timer: a job starts when the one before it is done. The first one of a
    quiet log waits for the end of the loop's turn, so that everyone who is ready
    to append comes along.
    """

    def __init__(
        self, runtime: Runtime, next_commit: Callable[[], Job | None], fail: Callable[[OSError], NoReturn]
    ) -> None:
        self._workers = runtime.workers
        self._ticks_us = runtime.ticks_us
        self._pace = Pace()
        self._took_us = 0
        self._next_commit = next_commit
        self._fail = fail
        self._rare: deque[Job] = deque()
        # There is, or may be, a job to start once no other one runs.
        self._is_wanted = False
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
        """There may be a job: start it once no other one runs."""
        self._is_wanted = True
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
        if self._rare:
            job: Job | None = self._rare.popleft()
        else:
            self._is_wanted = False
            job = self._next_commit()
        if job is None:
            return
        self._is_busy = True
        run = self._workers.run_here if job.is_small and self._pace.is_quick(self._ticks_us()) else self._workers.submit
        run(lambda: self._work(job), lambda: self._finish(job))

    def _work(self, job: Job) -> None:
        began_us = self._ticks_us()
        try:
            job.work()
        except OSError as error:
            self._fail(error)
        self._took_us = self._ticks_us() - began_us

    def _finish(self, job: Job) -> None:
        self._is_busy = False
        if job.is_small:
            self._pace.note(self._took_us, self._ticks_us())
        job.done()
        if self._is_wanted:
            self.schedule()


class Pace:
    """Whether the disk is quick enough to wait for it in the event loop, by how long small commits took.

    Laws
    ----
    1. The loop waits only if the last small commit was quick, wherever it ran. At first nothing is known.
    2. A slow one, a surprise, keeps commits off the loop for fifty times as long as it took. So surprises take no
       more than 2 % of the loop's time, and a disk that is slow all the time takes none.
    """

    __slots__ = ("_was_quick", "_rests_until_us")

    def __init__(self) -> None:
        self._was_quick = False
        self._rests_until_us = 0

    def is_quick(self, now_us: int) -> bool:
        return self._was_quick and now_us >= self._rests_until_us

    def note(self, took_us: int, now_us: int) -> None:
        self._was_quick = took_us <= QUICK_US
        if not self._was_quick:
            self._rests_until_us = now_us + REST_FACTOR * took_us
