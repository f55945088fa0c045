"""The threads that block on a disk, as a queue of jobs in virtual time.

    submit ──a moment──▶ work ──a moment──▶ done

Work runs in the order it was submitted, one after another, and so does `done`. What runs on
the loop itself holds it up: while it syncs, time passes, and now and then much of it. A
`PowerCut` or `Halted` that leaves a job is the end of the machine: `on_dead` is
told, and no job runs after it. Any other error is a mistake and fails the run.
"""

import asyncio
from collections import deque
from collections.abc import Callable

from penstock.runtime.interface import NO_SPACE, BackgroundProcessFailed, Dice, Disk
from tests.simulation.clock import SimDice
from tests.simulation.disk import PowerCut
from tests.simulation.loop import running_loop

Job = Callable[[], None]
# What a sync takes that the loop waits for.
QUICK_MS_MAX, SURPRISE_MS_MAX, SURPRISES = 0.5, 30.0, 0.1


class Halted(BaseException):
    """The process stopped itself, because its disk failed."""


class SimWorkers:
    def __init__(
        self,
        dice: Dice | None = None,
        *,
        on_dead: Callable[[BaseException], None] | None = None,
        delay_ms_max: float = 2.0,
    ) -> None:
        self._dice = dice or SimDice()
        self._on_dead = on_dead
        self._delay_s_max = delay_ms_max / 1_000
        self._waiting: deque[tuple[Job, Job]] = deque()
        self._worked: deque[Job] = deque()
        self._work_at = self._done_at = 0.0
        self._is_stopped = self._is_here = False

    def submit(self, work: Job, done: Job) -> None:
        if self._is_stopped:
            return
        self._waiting.append((work, done))
        self._work_at = self._later(self._work_at)
        asyncio.get_running_loop().call_at(self._work_at, self._run_work)

    def run_here(self, work: Job, done: Job) -> None:
        if self._is_stopped:
            return
        self._is_here = True
        try:
            is_alive = self._survives(work)
        finally:
            self._is_here = False
        if is_alive:
            self._survives(done)

    def pass_time(self) -> None:
        """The disk syncs: what runs on the loop waits for it."""
        loop = running_loop()
        if self._is_here and loop is not None:
            ms_max = SURPRISE_MS_MAX if self._dice.roll() < SURPRISES else QUICK_MS_MAX
            loop.now_us += int(self._dice.roll() * ms_max * 1_000)

    def stop(self) -> None:
        """Forget every job: the machine they belong to is dead."""
        self._is_stopped = True
        self._waiting.clear()
        self._worked.clear()

    def _run_work(self) -> None:
        if self._is_stopped:
            return
        work, done = self._waiting.popleft()
        if not self._survives(work):
            return
        self._worked.append(done)
        self._done_at = self._later(self._done_at)
        asyncio.get_running_loop().call_at(self._done_at, self._run_done)

    def _run_done(self) -> None:
        if not self._is_stopped:
            self._survives(self._worked.popleft())

    def _survives(self, job: Job) -> bool:
        try:
            job()
        except (PowerCut, Halted) as error:
            if self._on_dead is None:
                raise
            self.stop()
            self._on_dead(error)
        return not self._is_stopped

    def _later(self, last_at: float) -> float:
        """Return a moment from now that is not before the last one."""
        now = asyncio.get_running_loop().time()
        return max(last_at, now) + self._dice.roll() * self._delay_s_max


class SimAside:
    """The process that does long work: its time is its own, the disk is the machine's."""

    def __init__(self, disk: Disk, workers: SimWorkers) -> None:
        self._disk = disk
        self._workers = workers

    async def run(self, work: Callable[[Disk, bytes], bytes], request: bytes) -> bytes:
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        answer: list[bytes | Exception] = []

        def job() -> None:
            try:
                answer.append(work(self._disk, request))
            except OSError as error:
                answer.append(BackgroundProcessFailed(str(error), is_disk_failure=error.errno not in NO_SPACE))

        def done() -> None:
            (found,) = answer
            if future.done():
                return
            if isinstance(found, bytes):
                future.set_result(found)
            else:
                future.set_exception(found)

        self._workers.submit(job, done)
        return await future
