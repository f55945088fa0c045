"""Threads for calls that block on a disk.

A thread of our own with a plain queue was never slower than an executor and up
to twice as fast, because no future is made and locked for each call.
"""

import asyncio
import threading
import traceback
from collections.abc import Callable
from queue import SimpleQueue
from types import TracebackType
from typing import Self

Job = tuple[Callable[[], None], Callable[[], None]]


class ThreadWorkers:
    """A few threads that take work in order. Close waits for what was submitted."""

    def __init__(self, count: int, halt: Callable[[str], object]) -> None:
        assert count >= 1
        self._loop = asyncio.get_running_loop()
        self._halt = halt
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._threads = [
            threading.Thread(target=self._run, name=f"penstock-disk-{i}", daemon=True) for i in range(count)
        ]

    async def __aenter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            await asyncio.to_thread(thread.join)

    def submit(self, work: Callable[[], None], done: Callable[[], None]) -> None:
        self._jobs.put((work, done))

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            work, done = job
            try:
                work()
            except BaseException:
                # Work reports its own failures. One that it did not foresee leaves files in an unknown state.
                self._halt(traceback.format_exc())
            self._loop.call_soon_threadsafe(done)
