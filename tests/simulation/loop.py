"""An event loop in which time is a number and the same seed gives the same run.

    nothing ready, a timer set     ──▶ time jumps to the timer
    nothing ready, no timer        ──▶ `Deadlock`, with the list of the stuck tasks
    an error that is not awaited   ──▶ the run fails with `Unhandled`
    too much time, too many turns  ──▶ `Runaway`

Laws of this file
-----------------
1. Nothing here waits, and no thread runs: work for an executor runs inline.
2. Time is counted in whole microseconds, so a sleep of 5 ms takes exactly 5 ms.
3. Seed 0 keeps asyncio's own order. Any other seed shuffles neighbouring steps of
   tasks, never plain callbacks: their order is promised by `call_soon`.
4. A run that leaves tasks behind, other than those that answer on the network, has failed.

It relies on `BaseEventLoop._run_once` calling `selector.select(timeout)` and on its
deque `_ready`, as all CPythons so far do.
"""

import asyncio
import itertools
import random
import selectors
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Mapping
from contextvars import Context, ContextVar, copy_context
from math import ceil
from typing import Any, NoReturn, Protocol, TypeVar, TypeVarTuple
from weakref import WeakKeyDictionary

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
AnyTask = asyncio.Task[Any]

TIME_S_MAX = 90 * 24 * 3600
TURNS_MAX = 5_000_000


class Owner(Protocol):
    """Whose tasks these are: a machine's process."""

    def task_done(self, task: AnyTask) -> None: ...


# Tasks inherit both from the task that began them.
OWNER: ContextVar[Owner | None] = ContextVar("OWNER", default=None)
IS_SPAWNED: ContextVar[bool] = ContextVar("IS_SPAWNED", default=False)


class Deadlock(Exception):
    """Every task waits, and nothing is left that could wake one."""


class Runaway(Exception):
    """The run went on past its limit of virtual time or of turns of the loop."""


class Unhandled(Exception):
    """An error in a callback, or in a task that is not awaited."""


class Leaked(Exception):
    """The run ended and left tasks behind."""


class NotSimulated(Exception):
    """The code asked for something of the real world: a socket, a process, a signal."""


def simulate(main: Callable[[], Coroutine[Any, Any, T]] | Coroutine[Any, Any, T], *, seed: int = 0) -> T:
    """Run a coroutine to its end in a loop of its own, in virtual time."""
    loop = SimLoop(seed)
    try:
        result = loop.run_until_complete(main() if callable(main) else main)
        left = [describe(task) for task in loop.unfinished() if not loop.is_spawned(task)]
        loop.wind_up()
        loop.raise_failures()
        if left:
            raise Leaked("These tasks were left behind:\n" + "\n".join(left))
        return result
    finally:
        loop.close()


def running_loop() -> "SimLoop | None":
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        return None
    return loop if isinstance(loop, SimLoop) else None


class SimLoop(asyncio.SelectorEventLoop):
    _ready: deque[asyncio.Handle]
    _clock_resolution: float

    def __init__(self, seed: int = 0, *, time_s_max: float = TIME_S_MAX, turns_max: int = TURNS_MAX) -> None:
        self.now_us = 0
        self.turns = 0
        self._is_winding_up = False
        self._time_s_max = time_s_max
        self._turns_max = turns_max
        self._shuffler = random.Random(f"loop/{seed}") if seed else None
        self._failures: list[Unhandled] = []
        self._contexts: WeakKeyDictionary[AnyTask, Context] = WeakKeyDictionary()
        self._task_numbers = itertools.count(1)
        super().__init__(_NothingToWaitFor(self._turn))
        # Far above the rounding of floats, far below our microsecond.
        self._clock_resolution = 1e-7
        self.set_task_factory(self._make_task)
        self.set_exception_handler(self._note_failure)

    def time(self) -> float:
        return self.now_us / 1e6

    def unfinished(self) -> list[AnyTask]:
        """Return the tasks that have not ended, oldest first."""
        return [task for task in list(self._contexts) if not task.done()]

    def owner(self, task: AnyTask) -> Owner | None:
        return self._contexts[task].get(OWNER)

    def is_spawned(self, task: AnyTask) -> bool:
        return self._contexts[task].get(IS_SPAWNED, False)

    def spawn(self, coroutine: Coroutine[Any, Any, T], context: Context) -> asyncio.Task[T]:
        """Start a task on behalf of the simulator: it, and what it begins, may outlast the run."""
        context.run(IS_SPAWNED.set, True)
        return self.create_task(coroutine, context=context)

    def close(self) -> None:
        """Stop what still runs, without a word: the error that led here matters more."""
        if self.is_closed():
            return
        try:
            self.wind_up()
        except (Deadlock, Runaway, Unhandled, Leaked):
            pass
        super().close()

    def wind_up(self) -> None:
        """Cancel every task and wait for its end, also past the limits of the run."""
        self._is_winding_up = True
        self._turns_max, self._time_s_max = self.turns + 100_000, self.time() + 3_600
        for _ in range(100):
            tasks = self.unfinished()
            if not tasks:
                break
            for task in tasks:
                task.cancel()
            self.run_until_complete(asyncio.wait(tasks, timeout=1))
        else:
            raise Leaked("These tasks ignore being cancelled:\n" + "\n".join(map(describe, tasks)))
        self.run_until_complete(self.shutdown_asyncgens())

    def raise_failures(self) -> None:
        for task in list(self._contexts):
            # One that is part of a cycle of references has not told the exception handler yet.
            if task.done() and task._log_traceback:
                self._note_failure(self, {"message": f"not awaited: {task.get_name()}", "exception": task.exception()})
        if self._failures:
            raise self._failures[0]

    # What asyncio calls.

    def _turn(self, timeout: float | None) -> None:
        """Stand where a loop would wait for its selector."""
        if self._failures and not self._is_winding_up:
            raise self._failures[0]
        self.turns += 1
        if self.turns > self._turns_max or self.now_us > self._time_s_max * 1e6:
            raise Runaway(f"{self.turns} turns of the loop, {self.time()} virtual seconds:\n" + self._picture())
        if timeout is None:
            raise Deadlock("Nothing can wake these tasks:\n" + self._picture())
        # A thousandth of a microsecond is rounding, not time.
        self.now_us += max(0, ceil(timeout * 1e6 - 1e-3))
        if self._shuffler is not None and len(self._ready) > 1:
            self._shuffle(self._shuffler)

    def _shuffle(self, shuffler: random.Random) -> None:
        shuffled: list[asyncio.Handle] = []
        for is_step, handles in itertools.groupby(self._ready, _is_step):
            run = list(handles)
            if is_step:
                shuffler.shuffle(run)
            shuffled += run
        self._ready.clear()
        self._ready.extend(shuffled)

    def _picture(self) -> str:
        return "\n".join(map(describe, self.unfinished()))

    def _make_task(
        self,
        loop: asyncio.AbstractEventLoop,
        coroutine: Coroutine[Any, Any, T] | Generator[Any, None, T],
        /,
        **options: Any,
    ) -> asyncio.Task[T]:
        given: Context | None = options.get("context")
        context = options["context"] = copy_context() if given is None else given
        # The names of asyncio go on counting from one loop to the next, and would tell two equal runs apart.
        options["name"] = options.get("name") or f"task-{next(self._task_numbers)}"
        task = asyncio.Task(coroutine, loop=loop, **options)
        self._contexts[task] = context
        owner = context.get(OWNER)
        if owner is not None:
            task.add_done_callback(owner.task_done)
        return task

    def _note_failure(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        failure = Unhandled(f"{context['message']}: {context.get('exception')!r}")
        failure.__cause__ = context.get("exception")
        self._failures.append(failure)

    def run_in_executor(self, executor: object, func: Callable[[*Ts], T], *args: *Ts) -> asyncio.Future[T]:
        future: asyncio.Future[T] = self.create_future()
        try:
            future.set_result(func(*args))
        except BaseException as error:
            future.set_exception(error)
        return future

    def _make_self_pipe(self) -> None:
        """No other thread needs to wake this loop."""

    def _close_self_pipe(self) -> None:
        pass

    def _write_to_self(self) -> None:
        pass


class _NothingToWaitFor(selectors.BaseSelector):
    def __init__(self, turn: Callable[[float | None], None]) -> None:
        self._turn = turn

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self._turn(timeout)
        return []

    def register(self, fileobj: object, events: int, data: object = None) -> NoReturn:
        raise NotSimulated("a file descriptor")

    def unregister(self, fileobj: object) -> NoReturn:
        raise NotSimulated("a file descriptor")

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return {}


def describe(task: AnyTask) -> str:
    """Name a task and the line where it waits."""
    awaited: Any = task.get_coro()
    frame = None
    while getattr(awaited, "cr_frame", None) is not None:
        frame, awaited = awaited.cr_frame, awaited.cr_await
    if frame is None:
        return f"  {task.get_name()}"
    return f"  {task.get_name()} in {frame.f_code.co_qualname}, {frame.f_code.co_filename}:{frame.f_lineno}"


def _is_step(handle: asyncio.Handle) -> bool:
    return isinstance(getattr(handle._callback, "__self__", None), asyncio.Task)  # type: ignore[attr-defined]


def _refuse(name: str) -> Callable[..., NoReturn]:
    def refuse(*_arguments: object, **_options: object) -> NoReturn:
        raise NotSimulated(f"loop.{name}")

    return refuse


_OUTSIDE = """
    add_reader add_signal_handler add_writer connect_accepted_socket connect_read_pipe connect_write_pipe
    create_connection create_datagram_endpoint create_server create_unix_connection create_unix_server getaddrinfo
    getnameinfo sendfile sock_accept sock_connect sock_recv sock_recv_into sock_recvfrom sock_sendall sock_sendfile
    sock_sendto start_tls subprocess_exec subprocess_shell
"""
for _name in _OUTSIDE.split():
    setattr(SimLoop, _name, _refuse(_name))
