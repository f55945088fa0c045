"""Machines: a disk that outlives the processes that run on it, one after another.

    machine = Machine(seed=7)
    runtime = machine.start()               a process begins
    await machine.run(work(runtime))        its tasks, until they end or `Died`
    machine.power_cut()                     or kill(): the process is gone
    runtime = machine.start()               the next one, on the disk that is left

Laws of this file
-----------------
1. A machine dies of `kill`, of `power_cut`, or of a `PowerCut` or `Halted` that
   leaves a job of its workers or one of its tasks. Its tasks are those given to
   `run`, those begun by them, and those that answer for it on the network.
2. Nothing of a dead process goes on: its jobs never run, and its tasks are cancelled
   until they have ended. What one raises on its way out is not heard: a dead process
   cannot complain.
3. A machine that died of itself keeps its disk as it was at that moment, until
   `kill` or `power_cut` says what the world outside saw.
"""

import asyncio
import contextvars
from collections.abc import Callable, Coroutine
from typing import Any, NoReturn, TypeVar

from penstock.runtime.interface import EXIT_STORAGE_FAILED, BackgroundProcess, Clock, Dice, Runtime, Workers
from penstock.telemetry import LogEvent
from tests.simulation.clock import SimClock, SimDice, ticks_us
from tests.simulation.disk import Choose, PowerCut, SimDisk
from tests.simulation.loop import OWNER, AnyTask, Leaked, SimLoop, describe, running_loop
from tests.simulation.workers import Halted, SimAside, SimWorkers

__all__ = ["Died", "Halted", "LogEvents", "Machine", "PowerCut", "halt", "sim_runtime"]

T = TypeVar("T")

CANCELS_MAX = 1_000
ASIDE_MS_MAX = 20.0


class Died(Exception):
    """The machine died before the coroutine came to its end. The cause says of what."""


class LogEvents:
    """The events that were logged, in order, each with its fields."""

    def __init__(self) -> None:
        self.events: list[tuple[LogEvent, dict[str, object]]] = []

    def __call__(self, event: LogEvent, /, **fields: object) -> None:
        self.events.append((event, fields))

    def names(self) -> list[str]:
        return [event.name for event, _ in self.events]


def halt(reason: str, /, code: int = EXIT_STORAGE_FAILED) -> NoReturn:
    raise Halted(reason)


def sim_runtime(
    disk: SimDisk,
    clock: Clock | None = None,
    dice: Dice | None = None,
    workers: Workers | None = None,
    log_events: LogEvents | None = None,
    aside: BackgroundProcess | None = None,
) -> Runtime:
    """Join simulated parts, with a new one for each that is missing."""
    dice = dice or SimDice()
    return Runtime(
        clock=clock or SimClock(),
        dice=dice,
        disk=disk,
        workers=workers or SimWorkers(dice),
        aside=aside or SimAside(disk, SimWorkers(dice)),
        halt=halt,
        log_event=log_events or LogEvents(),
        ticks_us=ticks_us,
    )


class Machine:
    def __init__(self, seed: int = 0, disk: SimDisk | None = None, *, clock: SimClock | None = None) -> None:
        self.disk = disk or SimDisk(seed)
        self.clock = clock or SimClock()
        self.dice = SimDice(seed)
        self.log_events = LogEvents()
        self.runtime: Runtime | None = None
        # Called once, whenever a process dies: to leave a network, for instance.
        self.on_death: list[Callable[[], None]] = []
        self._process: _Process | None = None

    @property
    def is_running(self) -> bool:
        return self._process is not None

    def start(self) -> Runtime:
        assert self._process is None, "the machine runs already"
        self.disk.check_is_up()
        workers = SimWorkers(self.dice, on_dead=self._die)
        self.disk.syncing = workers.pass_time
        # It is slower, so that much happens before it is done.
        child = SimWorkers(self.dice, on_dead=self._die, delay_ms_max=ASIDE_MS_MAX)
        self._process = _Process((workers, child), self._die)
        self.runtime = sim_runtime(
            self.disk, self.clock, self.dice, workers, self.log_events, SimAside(self.disk, child)
        )
        return self.runtime

    def kill(self) -> None:
        """End the process, as `kill -9` does: the disk keeps what was written."""
        self._die(Halted("killed"))
        self.disk.kill()

    def power_cut(self, choose: Choose | None = None) -> None:
        """End the process, and lose of the disk what was not synced, or a part of it."""
        self._die(PowerCut("the power was cut"))
        self.disk.power_cut(choose)

    async def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Return what ``main`` returns, or raise `Died` if the machine dies before."""
        process = self._process
        if process is None:
            main.close()
            raise Died("the machine is not running")
        task = process.spawn(main)
        try:
            await asyncio.wait([task])
        finally:
            await _end(task)
        if process.death is not None:
            raise Died(str(process.death)) from process.death
        return task.result()

    def _die(self, death: BaseException) -> None:
        process, self._process, self.runtime = self._process, None, None
        if process is None:
            return
        process.die(death)
        for callback in self.on_death:
            callback()


class _Process:
    """The tasks and jobs of a machine from one start to the next death."""

    def __init__(self, workers: tuple[SimWorkers, ...], on_fatal: Callable[[BaseException], None]) -> None:
        self.death: BaseException | None = None
        self._workers = workers
        self._on_fatal = on_fatal
        self._cancels = 0

    def spawn(self, main: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        context = contextvars.copy_context()
        context.run(OWNER.set, self)
        return asyncio.get_running_loop().create_task(main, context=context)

    def task_done(self, task: AnyTask) -> None:
        """Die of what ends a machine; once dead, hear nothing."""
        # To look at `exception()` is to have handled it, and a mistake must stay unhandled.
        if self.death is None and (fatal := _find_fatal(task._exception)) is not None:
            self._on_fatal(fatal)
        if self.death is not None and not task.cancelled():
            task.exception()

    def die(self, death: BaseException) -> None:
        self.death = death
        for workers in self._workers:
            workers.stop()
        loop = running_loop()
        if loop is not None:
            self._cancel(loop)

    def _cancel(self, loop: SimLoop) -> None:
        """Cancel until nothing is left: a task may wait again on its way out."""
        living = [task for task in loop.unfinished() if loop.owner(task) is self]
        if not living:
            return
        self._cancels += 1
        if self._cancels > CANCELS_MAX:
            raise Leaked("These tasks of a dead machine do not end:\n" + "\n".join(map(describe, living)))
        for task in living:
            task.cancel()
        loop.call_soon(self._cancel, loop)


async def _end(task: AnyTask) -> None:
    """See a task to its end when the task that waited for it is cancelled."""
    while not task.done():
        task.cancel()
        await asyncio.wait([task])


def _find_fatal(error: BaseException | None) -> BaseException | None:
    if isinstance(error, BaseExceptionGroup):
        return next(filter(None, map(_find_fatal, error.exceptions)), None)
    return error if isinstance(error, PowerCut | Halted) else None
