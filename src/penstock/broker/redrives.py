"""Redrives: dead letters sent back in the background, at a rate, until done or stopped.

    begin ──▶ RUNNING ──▶ DONE        nothing is left that fits
                 │   └──▶ FAILED      the store refused; what has gone is gone
                 └──stop─▶ STOPPED    by an operator, or because the server stops

Each step is one call of the store with few messages, so others are not held up. A
task lives in this process: a restart ends it, half way perhaps, and it can be begun
again, because what has gone back is no dead letter any more.
"""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum

from penstock.broker.selecting import Selection, select
from penstock.core.limits import MOVE_MESSAGES_MAX, REDRIVES_KEPT_MAX, REDRIVES_MAX
from penstock.log.interface import LogBusy, LogFull
from penstock.runtime.interface import Runtime
from penstock.store.interface import QueueNotFound, QueueStore, Redrive

SAMPLE_MAX = 20
UNBOUNDED = 2**62
_DRY_RUN_MAX = 1_000


class TaskNotFound(Exception):
    """There is no redrive of this id; they are forgotten when the server stops."""


class TooManyRedrives(Exception):
    """As many redrives are running as may; ``most`` says how many."""

    def __init__(self, most: int) -> None:
        super().__init__(f"{most} redrives are running already")
        self.most = most


class State(Enum):
    RUNNING = "running"
    DONE = "done"
    STOPPED = "stopped"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What is to go where, and how fast."""

    into: str | None = None
    ids: tuple[str, ...] | None = None
    selection: Selection | None = None
    most: int | None = None
    rate_per_s: float | None = None
    is_dry_run: bool = False


@dataclass(slots=True, kw_only=True)
class Task:
    """A redrive and how far it has come."""

    id: str
    dead_letters: str
    order: Order
    started_at_ms: int
    state: State = State.RUNNING
    moved: dict[str, int] = field(default_factory=dict)
    sample: list[str] = field(default_factory=list)
    homeless: int = 0
    remaining: int | None = None
    ended_at_ms: int | None = None
    error: str | None = None
    running: "asyncio.Task[None] | None" = None

    @property
    def moved_total(self) -> int:
        return sum(self.moved.values())


class Redrives:
    def __init__(self, store: QueueStore, runtime: Runtime) -> None:
        self._store = store
        self._runtime = runtime
        self._known: OrderedDict[str, Task] = OrderedDict()
        # Whoever runs the broker owns the tasks.
        self.tasks: asyncio.TaskGroup | None = None

    async def begin(self, dead_letters: str, order: Order) -> Task:
        """Begin a redrive. A dry run, and one that is over after its first step, is done on return."""
        running = [task for task in self._known.values() if task.state is State.RUNNING]
        if len(running) >= REDRIVES_MAX:
            raise TooManyRedrives(REDRIVES_MAX)
        await self._store.describe(dead_letters)
        if order.into is not None:
            await self._store.describe(order.into)
        task = Task(
            id=f"r_{self._runtime.dice.token():x}",
            dead_letters=dead_letters,
            order=order,
            started_at_ms=self._runtime.clock.now_ms(),
        )
        self._remember(task)
        if order.is_dry_run:
            await self._run(task)
        else:
            assert self.tasks is not None, "the broker is running"
            task.running = self.tasks.create_task(self._run(task))
        return task

    def find(self, dead_letters: str, task_id: str) -> Task:
        task = self._known.get(task_id)
        if task is None or task.dead_letters != dead_letters:
            raise TaskNotFound(f"there is no redrive {task_id!r} of {dead_letters!r}")
        return task

    def of(self, dead_letters: str) -> list[Task]:
        """The redrives of a queue, the newest first."""
        return [task for task in reversed(self._known.values()) if task.dead_letters == dead_letters]

    async def end(self, task: Task) -> None:
        """Stop a redrive; the step it is in is finished first or never begun."""
        if task.running is not None and not task.running.done():
            task.running.cancel()
            with suppress(asyncio.CancelledError):
                await asyncio.shield(task.running)

    def stop(self) -> None:
        for task in self._known.values():
            if task.running is not None:
                task.running.cancel()

    def _remember(self, task: Task) -> None:
        self._known[task.id] = task
        over = [each for each in self._known.values() if each.state is not State.RUNNING]
        for each in over[: max(0, len(self._known) - REDRIVES_KEPT_MAX)]:
            del self._known[each.id]

    async def _run(self, task: Task) -> None:
        try:
            async for step in self._steps(task):
                _count(task, step)
                if task.order.rate_per_s is not None and not task.order.is_dry_run:
                    moved = sum(map(len, step.moved.values()))
                    await asyncio.sleep(moved / task.order.rate_per_s)
            task.state = State.DONE
        except asyncio.CancelledError:
            task.state = State.STOPPED
        except (QueueNotFound, LogFull, ValueError) as error:
            task.state, task.error = State.FAILED, str(error)
        finally:
            task.ended_at_ms = self._runtime.clock.now_ms()

    async def _steps(self, task: Task) -> AsyncIterator[Redrive]:
        order = task.order
        left = UNBOUNDED if order.most is None else order.most
        async for ids in self._pages(task.dead_letters, order):
            while left > 0:
                most = min(left, len(ids) if ids is not None else UNBOUNDED, self._step(order))
                step = await self._redrive(task, ids, most)
                yield step
                moved = sum(map(len, step.moved.values()))
                left -= moved
                if not moved or order.is_dry_run:
                    break

    async def _pages(self, dead_letters: str, order: Order) -> AsyncIterator[list[str] | None]:
        """The ids that are meant, in pages; None stands for all that are there."""
        if order.ids is not None:
            yield list(order.ids)
        elif order.selection is None:
            yield None
        else:
            async for ids in select(self._store, dead_letters, order.selection, most=order.most or UNBOUNDED):
                yield ids

    def _step(self, order: Order) -> int:
        if order.is_dry_run:
            return _DRY_RUN_MAX
        if order.rate_per_s is None:
            return MOVE_MESSAGES_MAX
        # About ten steps a second, so that a slow rate is even.
        return max(1, min(MOVE_MESSAGES_MAX, int(order.rate_per_s / 10)))

    async def _redrive(self, task: Task, ids: list[str] | None, most: int) -> Redrive:
        while True:
            try:
                return await self._store.redrive(
                    task.dead_letters, into=task.order.into, most=most, ids=ids, is_dry_run=task.order.is_dry_run
                )
            except LogBusy:
                await asyncio.sleep(0.1)


def _count(task: Task, step: Redrive) -> None:
    for queue, ids in step.moved.items():
        task.moved[queue] = task.moved.get(queue, 0) + len(ids)
        task.sample += ids[: SAMPLE_MAX - len(task.sample)]
    task.homeless = max(task.homeless, len(step.homeless))
    task.remaining = step.remaining
