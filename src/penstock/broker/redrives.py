"""Redrives: dead letters sent back in the background, at a rate, until done or stopped.

    begin ──▶ RUNNING ──▶ DONE        nothing is left that fits
                 │   └──▶ FAILED      the store refused; what has gone is gone
                 └──stop─▶ STOPPED    by an operator, or because the server stops

Laws of this file
-----------------
1. Each step is one call of the store with few messages, so others are not held up.
2. A step that has begun is finished and counted, also when the task is stopped.
3. A task lives in this process: a restart ends it, half way perhaps, and it can be
   begun again, because what has gone back is no dead letter any more.
4. A dry run moves nothing and looks at a limited number of messages; `remaining` says
   how many it would leave, those it did not look at among them.
"""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from enum import Enum

from penstock.broker.selecting import Selection, select
from penstock.core.limits import MOVE_MESSAGES_MAX, PAGE_MAX, REDRIVES_KEPT_MAX, REDRIVES_MAX
from penstock.log.interface import LogBusy, LogClosed, LogFull
from penstock.runtime.interface import Runtime
from penstock.store.interface import QueueNotFound, QueueStore, Redrive, StoreUnreachable

SAMPLE_MAX = 20
UNBOUNDED = 2**62
DRY_RUN_MAX = 10_000
_BUSY_S = 0.1
_EVERYTHING = Selection()


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
    told_to_stop: asyncio.Event = field(default_factory=asyncio.Event)
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
        """Begin a redrive; a dry run is over on return. Raises `TooManyRedrives` and `QueueNotFound`."""
        await self._store.describe(dead_letters)
        if order.into is not None:
            await self._store.describe(order.into)
        running = [task for task in self._known.values() if task.state is State.RUNNING]
        if len(running) >= REDRIVES_MAX:
            raise TooManyRedrives(REDRIVES_MAX)
        task = Task(
            id=f"r_{self._runtime.dice.token():x}",
            dead_letters=dead_letters,
            order=order,
            started_at_ms=self._store.now_ms(),
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
            raise TaskNotFound(f"there is no redrive {task_id[:64]!r} of {dead_letters!r}")
        return task

    def of(self, dead_letters: str) -> list[Task]:
        """The redrives of a queue, the newest first."""
        return [task for task in reversed(self._known.values()) if task.dead_letters == dead_letters]

    async def end(self, task: Task) -> None:
        """Stop a redrive, and return when it has: the step it is in is finished first."""
        task.told_to_stop.set()
        if task.running is not None:
            await asyncio.wait([task.running])

    def stop(self) -> None:
        for task in self._known.values():
            task.told_to_stop.set()

    def _remember(self, task: Task) -> None:
        self._known[task.id] = task
        over = [each for each in self._known.values() if each.state is not State.RUNNING]
        for each in over[: max(0, len(self._known) - REDRIVES_KEPT_MAX)]:
            del self._known[each.id]

    async def _run(self, task: Task) -> None:
        try:
            async with aclosing(self._pages(task.dead_letters, task.order)) as pages:
                async for ids in pages:
                    await self._page(task, ids)
                    if task.told_to_stop.is_set():
                        break
            task.state = State.STOPPED if task.told_to_stop.is_set() else State.DONE
        except (QueueNotFound, LogFull, LogClosed, StoreUnreachable, ValueError) as error:
            task.state, task.error = State.FAILED, str(error)
        finally:
            if task.state is State.RUNNING:
                task.state = State.STOPPED
            task.ended_at_ms = self._store.now_ms()

    async def _page(self, task: Task, ids: list[str] | None) -> None:
        """Send back some, or all that are there, step by step, until nothing more goes."""
        order, homeless = task.order, 0
        while not task.told_to_stop.is_set():
            left = UNBOUNDED if order.most is None else order.most - task.moved_total
            step = await self._step(task, ids, min(left, _step_max(order))) if left else None
            if step is None:
                break
            moved = _count(task, step)
            homeless = max(homeless, len(step.homeless))
            if not moved or not step.remaining or order.is_dry_run:
                break
            if order.rate_per_s is not None:
                await _rest(task, moved / order.rate_per_s)
        task.homeless += homeless

    def _pages(self, dead_letters: str, order: Order) -> AsyncGenerator[list[str] | None, None]:
        """The ids that are meant, in pages; None stands for all that are there."""
        if order.ids is not None:
            return _only(list(order.ids))
        if order.selection is None and not order.is_dry_run:
            return _only(None)
        most = min(order.most or UNBOUNDED, DRY_RUN_MAX if order.is_dry_run else UNBOUNDED)
        return select(self._store, dead_letters, order.selection or _EVERYTHING, most=most)

    async def _step(self, task: Task, ids: list[str] | None, most: int) -> Redrive | None:
        """Move some, once the disk is not behind; None if it is told to stop before."""
        order = task.order
        while not task.told_to_stop.is_set():
            try:
                return await self._store.redrive(
                    task.dead_letters, into=order.into, most=most, ids=ids, is_dry_run=order.is_dry_run
                )
            except (LogBusy, StoreUnreachable):
                await _rest(task, _BUSY_S)
        return None


async def _only(ids: list[str] | None) -> AsyncGenerator[list[str] | None, None]:
    yield ids


def _step_max(order: Order) -> int:
    if order.is_dry_run:
        return PAGE_MAX
    if order.rate_per_s is None:
        return MOVE_MESSAGES_MAX
    # About ten steps a second, so that a slow rate is even.
    return max(1, min(MOVE_MESSAGES_MAX, int(order.rate_per_s / 10)))


async def _rest(task: Task, seconds: float) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await task.told_to_stop.wait()


def _count(task: Task, step: Redrive) -> int:
    """Add a step to what has gone, and return how many it moved."""
    before = task.moved_total
    for queue, ids in step.moved.items():
        task.moved[queue] = task.moved.get(queue, 0) + len(ids)
        task.sample += ids[: SAMPLE_MAX - len(task.sample)]
    moved = task.moved_total - before
    # A dry run leaves all in their place: what earlier steps of it would have moved is not in the count of this one.
    task.remaining = step.remaining - before if task.order.is_dry_run else step.remaining
    return moved
