"""Redrives: dead letters sent back in the background, at a rate, until done or stopped.

    begin ──▶ RUNNING ──▶ DONE        nothing is left that fits
                 │   └──▶ FAILED      the store refused; what has gone is gone
                 └──stop─▶ STOPPED    by an operator, because the server stops and keeps it in memory, or because
                                      what is left has had nowhere to go for FULL_S_MAX: `reason` says it

Laws of this file
-----------------
1. Each step is one call of the store with few messages, so others are not held up.
2. A step that has begun is finished and counted, also when the task is stopped.
3. A task that is kept nowhere else lives in this process: a restart ends it, half way
   perhaps, and it can be begun again, because what has gone back is no dead letter any more.
4. One that is kept by the store is run by one server at a time, which notes each step. If it
   stops or is lost another one goes on. Who was not heard for long asks, before the next step,
   whether the task is still its own. A server that is killed between a step and its note
   leaves that step uncounted.
5. A note that the store does not take is tried again, as a step is.
6. A dry run is kept nowhere else. It moves nothing and looks at a limited number of messages; `remaining` says
   how many it would leave, those it did not look at among them.

Rights: a message moves to the dead letters of its queue and back by itself. The right is checked
when a caller decides where it goes:

    name a dead-letter queue     the right to send to it; to create it, if it is not there
    release, reject, time out    nothing more: the settings of the queue have decided
    requeue, redrive             the right to send to the queue that each message came from, or to `target_queue`
    delete with dead letters     the right to delete both

A queue's own `<name>.dead` belongs to the queue: no right on it is needed for messages to be buried there.

`select` gives the ids of the messages that an operator's filter fits, page by page.
"""

import asyncio
import json
from collections import OrderedDict
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from dataclasses import dataclass, field, replace
from enum import Enum

import msgspec

from penstock.broker.access import ANONYMOUS_ADMIN, Caller, NotAllowed, Role, Share
from penstock.contract.limits import MOVE_MESSAGES_MAX, PAGE_MAX, REDRIVES_KEPT_MAX, REDRIVES_MAX
from penstock.contract.names import dead_letters_of, fits
from penstock.contract.queue_settings import QueueSettings
from penstock.log.interface import LogBusy, LogClosed, LogFull
from penstock.runtime.interface import Runtime
from penstock.store.errors import QueueNotFound, StoreForbids, StoreUnreachable
from penstock.store.interface import (
    EVERY_MESSAGE,
    LOST_MS,
    Description,
    KeptRedrive,
    KeptRedrives,
    Message,
    MessageFilter,
    Redrive,
    RedriveOrder,
)
from penstock.store.placement import Placement


async def select(
    placement: Placement, queue: str, sought: MessageFilter, *, most: int
) -> AsyncGenerator[list[str] | None, None]:
    """Yield the ids of at most ``most`` messages, in pages. Between pages the queue moves on."""
    left = most
    async with aclosing(pages(placement, queue, sought)) as found:
        async for messages in found:
            ids = [message.id for message in messages][:left]
            left -= len(ids)
            if ids:
                yield ids
            if not left:
                return


async def pages(placement: Placement, queue: str, sought: MessageFilter) -> AsyncGenerator[list[Message], None]:
    """Yield the messages that fit, page by page; a page may be empty."""
    after = ""
    while True:
        page = await placement.of(queue).peek(queue, sought, most=PAGE_MAX, after=after)
        yield page.messages
        after = page.next
        if not after:
            return


SAMPLE_MAX = 20
UNBOUNDED = 2**62
DRY_RUN_MAX = 10_000
# How long a redrive waits for room in a queue that is full, and how often it looks.
FULL_S_MAX = 60.0
_FULL_LOOK_S = 0.5
_BUSY_S = 0.1
_TROUBLE = (StoreUnreachable, StoreForbids)


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """How often redrives that are kept by the store are looked after. A server uses what stands here."""

    beat_s: float = 1.0
    # How long to wait until one that runs elsewhere has stopped, and how often to look.
    stop_s_max: float = 10.0
    look_s: float = 0.1


TIMING = Timing()


class TaskNotFound(Exception):
    """There is no redrive of this id; those in memory are forgotten when the server stops."""


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
class RedriveRequest:
    """Which dead letters an operator wants to go where, and how fast."""

    into: str | None = None
    ids: tuple[str, ...] | None = None
    filter: MessageFilter | None = None
    most: int | None = None
    rate_per_s: float | None = None
    is_dry_run: bool = False
    # Patterns of the queues that messages may go back to; None for every queue.
    origins: tuple[str, ...] | None = None
    # The name of the key.
    actor: str = ""


@dataclass(slots=True, kw_only=True)
class Task:
    """A redrive and how far it has come."""

    id: str
    dead_letters: str
    order: RedriveRequest
    started_at_ms: int
    state: State = State.RUNNING
    moved: dict[str, int] = field(default_factory=dict)
    sample: list[str] = field(default_factory=list)
    without_origin: int = 0
    # How many stay because the key may not send to the queue they came from.
    not_allowed: int = 0
    remaining: int | None = None
    ended_at_ms: int | None = None
    error: str | None = None
    # What it waits for, or why it was stopped; None if it runs or an operator stopped it.
    reason: str | None = None
    cause: Exception | None = None
    is_kept: bool = False
    # Another server goes on with it, now or later.
    is_left: bool = False
    # When the store last heard that it is run here.
    heard_at_ms: int = 0
    told_to_stop: asyncio.Event = field(default_factory=asyncio.Event)
    running: "asyncio.Task[None] | None" = None

    @property
    def has_to_end(self) -> bool:
        """Whether it was told to stop, or has waited for room in vain."""
        return self.told_to_stop.is_set() or (self.reason is not None and not self.order.is_dry_run)

    @property
    def moved_total(self) -> int:
        return sum(self.moved.values())

    @property
    def has_found_nothing(self) -> bool:
        """Whether all dead letters were meant, and there were none."""
        is_all = self.order.ids is None and self.order.filter is None
        return is_all and self.state is State.DONE and not (self.moved_total or self.without_origin or self.not_allowed)


class Redrives:
    """Those that run here, and with ``kept`` those of all servers; who ``takes_over`` goes on with what others left."""

    def __init__(
        self,
        placement: Placement,
        runtime: Runtime,
        *,
        kept: KeptRedrives | None = None,
        takes_over: bool = False,
        timing: Timing = TIMING,
    ) -> None:
        self._placement = placement
        self._runtime = runtime
        self._kept = kept
        self._takes_over = takes_over
        self._timing = timing
        # By this number the store knows who runs a task.
        self._runner = 0 if kept is None else runtime.dice.token()
        self._has_held = False
        self._stopping = asyncio.Event()
        self.share = Share()
        self._known: OrderedDict[str, Task] = OrderedDict()
        # The owner of the broker owns the tasks.
        self._tasks: asyncio.TaskGroup | None = None

    def start(self, tasks: asyncio.TaskGroup) -> None:
        self._tasks = tasks
        if self._kept is not None:
            tasks.create_task(self._hold(self._kept))

    async def begin(self, dead_letters: str, order: RedriveRequest, *, caller: Caller = ANONYMOUS_ADMIN) -> Task:
        """Begin a redrive; a dry run is over on return. Raises `NotAllowed`, `TooManyRedrives` and `QueueNotFound`.

        What came from a queue that the caller may not send to stays, and is counted in `not_allowed`. The rights are
        those of this moment: what is revoked later ends no redrive.
        """
        caller.check(Role.ADMIN, dead_letters)
        await self._placement.of(dead_letters).describe(dead_letters)
        if order.into is None:
            order = replace(order, origins=caller.patterns(Role.SEND))
        else:
            caller.check(Role.SEND, order.into)
            await self._placement.of(order.into).describe(order.into)
        if len(self._running()) >= REDRIVES_MAX:
            raise TooManyRedrives(REDRIVES_MAX)
        order = replace(order, actor=caller.name)
        most = self.share.most(caller, REDRIVES_MAX)
        if sum(task.order.actor == caller.name for task in self._running()) >= most:
            raise TooManyRedrives(most)
        now_ms = self._placement.now_ms()
        task = Task(
            id=f"r_{self._runtime.dice.token():x}",
            dead_letters=dead_letters,
            order=order,
            started_at_ms=now_ms,
            is_kept=self._kept is not None and not order.is_dry_run,
            heard_at_ms=now_ms,
        )
        # Known before it is kept, so that no server takes it for an abandoned one.
        self._remember(task)
        if task.is_kept:
            await self._keep(task)
        if order.is_dry_run:
            await self._run(task)
        else:
            self._start(task)
        return task

    async def _keep(self, task: Task) -> None:
        assert self._kept is not None
        is_kept = False
        try:
            is_kept = await self._kept.begin(_kept_of(task), runner=self._runner)
        finally:
            if not is_kept:
                del self._known[task.id]
        if not is_kept:
            raise TooManyRedrives(REDRIVES_MAX)
        self._has_held = True

    def _start(self, task: Task) -> None:
        assert self._tasks is not None, "the broker is running"
        task.running = self._tasks.create_task(self._run(task))

    def find(self, dead_letters: str, task_id: str) -> Task:
        """Return one that is known here."""
        task = self._known.get(task_id)
        if task is None or task.dead_letters != dead_letters:
            raise TaskNotFound(f"there is no redrive {task_id[:64]!r} of {dead_letters!r}")
        return task

    def of(self, dead_letters: str) -> list[Task]:
        """The redrives of a queue that are known here, the newest first."""
        return [task for task in reversed(self._known.values()) if task.dead_letters == dead_letters]

    async def look(self, dead_letters: str, task_id: str) -> Task:
        """Return one of any server."""
        if self._kept is not None and task_id not in self._known:
            kept = await self._kept.find(dead_letters, task_id)
            if kept is not None:
                return _task_of(kept)
        return self.find(dead_letters, task_id)

    async def all_of(self, dead_letters: str) -> list[Task]:
        """The redrives of a queue, of all servers, the newest first."""
        kept = [] if self._kept is None else await self._kept.of(dead_letters)
        here = self.of(dead_letters)
        ids = {task.id for task in here}
        elsewhere = [_task_of(each) for each in kept if each.id not in ids]
        return sorted(here + elsewhere, key=lambda task: task.started_at_ms, reverse=True)

    async def end(self, task: Task) -> Task:
        """Stop a redrive, and return it when it has: the step it is in is finished first.

        One that is kept by the store is waited for for some seconds, wherever it runs.
        """
        task.told_to_stop.set()
        if task.running is not None:
            await asyncio.wait([task.running], timeout=self._timing.stop_s_max if task.is_kept else None)
        if task.is_kept and (task.running is None or task.is_left):
            return await self._end_elsewhere(task)
        return task

    async def _end_elsewhere(self, task: Task) -> Task:
        assert self._kept is not None
        await self._kept.stop(task.dead_letters, task.id, state=State.STOPPED.value, now_ms=self._placement.now_ms())
        until = asyncio.get_running_loop().time() + self._timing.stop_s_max
        while True:
            task = await self.look(task.dead_letters, task.id)
            if task.state is not State.RUNNING or asyncio.get_running_loop().time() >= until:
                return task
            await asyncio.sleep(self._timing.look_s)

    def stop(self) -> None:
        """End all that run here; those that are kept by the store are left to others."""
        self._stopping.set()
        for task in self._running():
            # One that an operator has stopped ends.
            task.is_left |= task.is_kept and not task.told_to_stop.is_set()
            task.told_to_stop.set()

    def _running(self) -> list[Task]:
        return [task for task in self._known.values() if task.state is State.RUNNING]

    def _remember(self, task: Task) -> None:
        self._known[task.id] = task
        over = [each for each in self._known.values() if each.state is not State.RUNNING]
        for each in over[: max(0, len(self._known) - REDRIVES_KEPT_MAX)]:
            del self._known[each.id]

    async def _hold(self, kept: KeptRedrives) -> None:
        """Be heard while any run here, and go on with what others left; at the end, leave them to others."""
        while not self._stopping.is_set():
            now_ms = self._placement.now_ms()
            if self._takes_over or self._running():
                with suppress(*_TROUBLE):
                    held = await kept.hold(runner=self._runner, now_ms=now_ms, takes_over=self._takes_over)
                    self._has_held = self._has_held or bool(held)
                    self._go_on(held, now_ms)
            await _wait(self._stopping, self._timing.beat_s)
        running = [task.running for task in self._known.values() if task.running is not None]
        if running:
            await asyncio.wait(running)
        if self._has_held:
            with suppress(*_TROUBLE):
                await kept.let_go(runner=self._runner)

    def _go_on(self, held: list[KeptRedrive], now_ms: int) -> None:
        for each in held:
            task = self._known.get(each.id)
            if task is None:
                if self._stopping.is_set():
                    continue
                task = _task_of(each)
                # They are where they were, and are met again.
                task.without_origin = task.not_allowed = 0
                self._remember(task)
                self._start(task)
            task.heard_at_ms = now_ms
            if each.is_to_stop:
                task.told_to_stop.set()

    async def _note(self, task: Task) -> None:
        """Have the store note how far a task is; if it is another's by now, leave it to that one."""
        assert self._kept is not None
        while True:
            now_ms = self._placement.now_ms()
            try:
                is_to_stop = await self._kept.note(_kept_of(task), runner=self._runner, now_ms=now_ms)
            except _TROUBLE:
                if self._stopping.is_set():
                    return
                await _wait(self._stopping, _BUSY_S)
                continue
            task.heard_at_ms = now_ms
            task.is_left |= is_to_stop is None
            if is_to_stop is not False:
                task.told_to_stop.set()
            return

    async def _run(self, task: Task) -> None:
        await self._move(task)
        if task.is_kept and not task.is_left:
            await self._note(task)
        if task.is_left:
            self._known.pop(task.id, None)

    async def _move(self, task: Task) -> None:
        try:
            async with aclosing(self._pages(task)) as pages:
                async for ids in pages:
                    await self._page(task, ids)
                    if task.has_to_end:
                        break
            task.state = State.STOPPED if task.has_to_end else State.DONE
            if task.has_found_nothing:
                task.reason = await self._why_nothing(task.dead_letters)
        except (QueueNotFound, LogFull, LogClosed, StoreUnreachable, StoreForbids, ValueError) as error:
            task.state, task.error, task.cause = State.FAILED, str(error), error
        finally:
            if task.state is State.RUNNING:
                task.state = State.STOPPED
            task.ended_at_ms = self._placement.now_ms()

    async def _why_nothing(self, queue: str) -> str:
        """Say that there are no dead letters here: perhaps the queue was named that buries them, not where."""
        elsewhere = (await self._placement.of(queue).describe(queue)).dead_letters
        where = f"; what it buries goes to {elsewhere!r}" if elsewhere is not None else ""
        return f"nothing in {queue!r} is a dead letter{where}"

    async def _page(self, task: Task, ids: list[str] | None) -> None:
        """Send back some, or all that are there, step by step, until nothing more goes."""
        order, without_origin, waited_s = task.order, 0, 0.0
        while not task.told_to_stop.is_set():
            left = UNBOUNDED if order.most is None else order.most - task.moved_total
            step = await self._step(task, ids, min(left, _step_max(order))) if left else None
            if step is None:
                break
            moved = _count(task, step)
            if task.is_kept:
                await self._note(task)
            without_origin = max(without_origin, len(step.without_origin))
            task.reason = None if moved and not order.is_dry_run else _reason(step, waited_s)
            if order.is_dry_run or not step.remaining or not (moved or step.full):
                break
            if moved:
                waited_s = 0.0
                if order.rate_per_s is not None:
                    await _wait(task.told_to_stop, moved / order.rate_per_s)
            elif waited_s < FULL_S_MAX:
                await _wait(task.told_to_stop, _FULL_LOOK_S)
                waited_s += _FULL_LOOK_S
            else:
                break
        task.without_origin += without_origin

    def _pages(self, task: Task) -> AsyncGenerator[list[str] | None, None]:
        """The ids that are meant, in pages; None stands for all that are there."""
        dead_letters, order = task.dead_letters, task.order
        if order.origins is not None:
            return self._allowed_pages(task, order.origins)
        if order.ids is not None:
            return _only(list(order.ids))
        if order.filter is None and not order.is_dry_run:
            return _only(None)
        return select(self._placement, dead_letters, order.filter or EVERY_MESSAGE, most=_most(order))

    async def _allowed_pages(self, task: Task, origins: tuple[str, ...]) -> AsyncGenerator[list[str], None]:
        """Yield the ids that are meant and may go back; count the others."""
        order, left = task.order, _most(task.order)
        if order.ids is None:
            found = pages(self._placement, task.dead_letters, order.filter or EVERY_MESSAGE)
        else:
            found = self._named(task.dead_letters, order.ids)
        async with aclosing(found) as messages_of_pages:
            async for messages in messages_of_pages:
                allowed = [message.id for message in messages if goes_back(message, origins)]
                task.not_allowed += len(messages) - len(allowed)
                if allowed:
                    yield allowed[:left]
                left -= len(allowed)
                if left <= 0:
                    return

    async def _named(self, dead_letters: str, ids: tuple[str, ...]) -> AsyncGenerator[list[Message], None]:
        yield [
            message
            for each in ids
            if (message := await self._placement.of(dead_letters).look(dead_letters, each)) is not None
        ]

    async def _step(self, task: Task, ids: list[str] | None, most: int) -> Redrive | None:
        """Move some, once the disk is not behind; None if it is told to stop before."""
        order = task.order
        while not task.told_to_stop.is_set():
            if task.is_kept and self._placement.now_ms() - task.heard_at_ms > LOST_MS // 2:
                await self._note(task)
                continue
            try:
                return await self._placement.redrive(
                    task.dead_letters,
                    RedriveOrder(into=order.into, most=most, ids=ids, is_dry_run=order.is_dry_run),
                )
            except (LogBusy, StoreUnreachable):
                await _wait(task.told_to_stop, _BUSY_S)
        return None


async def _only(ids: list[str] | None) -> AsyncGenerator[list[str] | None, None]:
    yield ids


def _most(order: RedriveRequest) -> int:
    return min(order.most or UNBOUNDED, DRY_RUN_MAX if order.is_dry_run else UNBOUNDED)


def _step_max(order: RedriveRequest) -> int:
    if order.is_dry_run:
        return PAGE_MAX
    if order.rate_per_s is None:
        return MOVE_MESSAGES_MAX
    # About ten steps a second, so that a slow rate is even.
    return max(1, min(MOVE_MESSAGES_MAX, int(order.rate_per_s / 10)))


async def _wait(event: asyncio.Event, seconds: float) -> None:
    """Wait for something, for so long."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


def _reason(step: Redrive, waited_s: float) -> str | None:
    if not step.full:
        return None
    queues = ", ".join(repr(name) for name in step.full)
    done = "nothing has gone there" if not waited_s else f"nothing has gone there for {waited_s:g} s"
    return f"there is no room in {queues}: {done}; begin the redrive again when there is"


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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Progress:
    """What of a task is kept as one text."""

    moved: dict[str, int]
    sample: list[str]
    without_origin: int
    remaining: int | None
    error: str | None
    not_allowed: int
    reason: str | None = None


def _kept_of(task: Task) -> KeptRedrive:
    progress = _Progress(
        moved=task.moved,
        sample=task.sample,
        without_origin=task.without_origin,
        remaining=task.remaining,
        error=task.error,
        not_allowed=task.not_allowed,
        reason=task.reason,
    )
    return KeptRedrive(
        id=task.id,
        queue=task.dead_letters,
        order=_text(task.order),
        state=task.state.value,
        progress=_text(progress),
        started_at_ms=task.started_at_ms,
        ended_at_ms=task.ended_at_ms,
    )


def _text(value: object) -> str:
    # With escapes: not every database holds every character.
    return json.dumps(msgspec.to_builtins(value))


def _task_of(kept: KeptRedrive) -> Task:
    progress = msgspec.json.decode(kept.progress, type=_Progress)
    task = Task(
        id=kept.id,
        dead_letters=kept.queue,
        order=msgspec.json.decode(kept.order, type=RedriveRequest),
        started_at_ms=kept.started_at_ms,
        state=State(kept.state),
        moved=progress.moved,
        sample=progress.sample,
        without_origin=progress.without_origin,
        not_allowed=progress.not_allowed,
        remaining=progress.remaining,
        ended_at_ms=kept.ended_at_ms,
        error=progress.error,
        reason=progress.reason,
        is_kept=True,
    )
    if kept.is_to_stop:
        task.told_to_stop.set()
    return task


async def check_dead_letters(placement: Placement, caller: Caller, queue: str, settings: QueueSettings) -> None:
    """Raise `NotAllowed` unless the caller may let a queue with these settings bury where they say."""
    name = settings.dead_letters
    if name in {"", dead_letters_of(queue)} or caller.has(Role.ADMIN, name):
        return
    caller.check(Role.SEND, name)
    try:
        await placement.of(name).describe(name)
    except QueueNotFound:
        # It would be made with the first dead letter.
        caller.check(Role.ADMIN, name)


def check_takes_dead_letters(caller: Caller, description: Description) -> None:
    """Raise `NotAllowed` unless the caller may delete the dead letters of a queue with it."""
    if description.dead_letters is not None and not caller.has(Role.ADMIN, description.dead_letters):
        raise NotAllowed(
            f"the key {caller.name!r} does not have the role admin on the dead letters of {description.queue}"
        )


def check_goes_back(caller: Caller, message: Message) -> None:
    """Raise `NotAllowed` unless the caller may send a dead letter back to where it came from."""
    origin = None if message.past is None else message.past.queue
    if origin is not None and not caller.has(Role.SEND, origin):
        raise NotAllowed(
            f"the key {caller.name!r} does not have the role send on the queue that {message.id!r} came from; "
            "`target_queue` can name another"
        )


def goes_back(message: Message, patterns: tuple[str, ...]) -> bool:
    """Whether a dead letter came from a queue that fits one of some patterns; one whose queue is gone stays anyway."""
    origin = None if message.past is None else message.past.queue
    return origin is None or any(fits(pattern, origin) for pattern in patterns)
