"""The real clock, dice, threads and exit, and `system_runtime`, which joins the real parts."""

import asyncio
import json
import logging
import os
import secrets
import sys
import threading
import time
import traceback
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from queue import SimpleQueue
from types import TracebackType
from typing import NoReturn, Self

from penstock.runtime.child_process import ChildProcess
from penstock.runtime.disk import SystemDisk
from penstock.runtime.interface import EXIT_FILES_TAKEN, EXIT_STORAGE_FAILED, Runtime
from penstock.telemetry import LogEvent

_LEVELS = {"info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
_AHEAD_BYTES = 512
_logger = logging.getLogger("penstock")

Job = tuple[Callable[[], None], Callable[[], None]]


class SystemClock:
    """Wall time at the start, advanced by a clock that cannot be set.

    CLOCK_BOOTTIME also counts while the machine sleeps; an administrator who
    sets the wall clock back neither freezes leases nor makes time repeat.
    """

    def __init__(self) -> None:
        self._clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
        self._offset_ns = time.time_ns() - time.clock_gettime_ns(self._clock)

    def now_ms(self) -> int:
        return (self._offset_ns + time.clock_gettime_ns(self._clock)) // 1_000_000


class SystemDice:
    def __init__(self) -> None:
        self._random = secrets.SystemRandom()
        # Fetched ahead, because each lease takes eight bytes and a call to the kernel costs as much as the rest of it.
        self._ahead = b""
        # Two processes must not draw the same.
        os.register_at_fork(after_in_child=self._forget)

    def roll(self) -> float:
        return self._random.random()

    def token(self) -> int:
        if not self._ahead:
            self._ahead = secrets.token_bytes(_AHEAD_BYTES)
        drawn, self._ahead = self._ahead[:8], self._ahead[8:]
        return int.from_bytes(drawn, "little") >> 1

    def _forget(self) -> None:
        self._ahead = b""


class ThreadWorkers:
    """A few threads for calls that block on a disk. They take work in order; close waits for what was submitted.

    A thread of our own with a plain queue was never slower than an executor and up to twice as fast, because no future
    is made and locked for each call.
    """

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
            self._do(work)
            self._loop.call_soon_threadsafe(done)

    def run_here(self, work: Callable[[], None], done: Callable[[], None]) -> None:
        self._do(work)
        done()

    def _do(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException:
            # Work reports its own failures. One that it did not foresee leaves files in an unknown state.
            self._halt(traceback.format_exc())


def halt(reason: str, /, code: int = EXIT_STORAGE_FAILED) -> NoReturn:
    """End the process now, from any thread: no handler, no flush, no second try."""
    why = "its files were taken away" if code == EXIT_FILES_TAKEN else "the disk failed"
    sys.stderr.write(f"penstock: stopped, because {why}: {reason}\n")
    sys.stderr.flush()
    os._exit(code)


def log_event(event: LogEvent, /, **fields: object) -> None:
    level = _LEVELS[event.level]
    if _logger.isEnabledFor(level):
        details = " ".join(f"{name}={value}" for name, value in fields.items())
        _logger.log(level, "%s %s", event.name, details, extra={"event": event.name, "fields": fields})


class JsonLines(logging.Formatter):
    """Writes each record as an object on one line: a log event with its fields, what others log with their sentence."""

    def format(self, record: logging.LogRecord) -> str:
        said = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
        }
        event = getattr(record, "event", None)
        said |= {"message": record.getMessage()} if event is None else {"event": event}
        if record.exc_info:
            said["traceback"] = self.formatException(record.exc_info)
        # What is no text or number is written as in lines for people. No field takes the place of what every line has.
        return json.dumps({**said, **getattr(record, "fields", {}), **said}, default=str)


def system_runtime(root: Path, workers: ThreadWorkers) -> Runtime:
    return Runtime(
        clock=SystemClock(),
        dice=SystemDice(),
        disk=SystemDisk(root),
        workers=workers,
        aside=ChildProcess(root),
        halt=halt,
        log_event=log_event,
        ticks_us=lambda: time.perf_counter_ns() // 1_000,
        wall=lambda: time.time_ns() // 1_000_000,
        seconds=time.perf_counter,
    )
