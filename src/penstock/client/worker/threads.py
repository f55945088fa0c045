"""Threads for work that is a plain function: at most so many, started when they are needed.

They are daemons, unlike those of `concurrent.futures`: one that never ends must not keep the process from ending. A
thread cannot be stopped from outside. Work that is given up goes on, and its thread counts until it ends.
"""

import asyncio
import contextvars
import queue
import threading
from collections.abc import Callable
from typing import Any

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
                # It is raised again where somebody waits for it.
                failure = error
            try:
                loop.call_soon_threadsafe(self._end, future, result, failure)
            except RuntimeError:
                # The loop is closed: nobody waits any more.
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
