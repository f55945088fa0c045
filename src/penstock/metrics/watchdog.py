"""Detect that the event loop stands still, and what it does meanwhile.

All work of a server happens in steps on one loop, so a long step delays every request. A
thread asks the loop for a sign twice within the time that a step may take. If none comes in
time, the thread looks at what the loop is doing, and logs it when the sign has come at last.

The time from question to sign is the lag of the loop: one long step, or many short
ones. A stall that is shorter than half the bound may fall between two questions. Beside it
is logged how long the loop's thread had a processor meanwhile: where that is little, other
processes or threads had it, and no step of ours was long.
"""

import asyncio
import sys
import threading
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import FrameType
from typing import Any

from penstock.telemetry import SERVER_STALLED

BOUNDS_S = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
# At most one log event in this many seconds; the metric counts all.
LOGGED_EVERY_S = 1.0
_FRAMES_MAX = 6
_PACKAGE = "penstock"


class Watchdog:
    """Watches the loop of the thread in which it is made."""

    def __init__(self, stall_ms: int, log_event: Callable[..., None]) -> None:
        self._bound_s = stall_ms / 1_000
        self._log_event = log_event
        self._loop = asyncio.get_running_loop()
        self._watched = threading.get_ident()
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)
        self._cpu_clock = time.pthread_getcpuclockid(self._watched) if sys.platform == "linux" else None
        self._stopped = threading.Event()
        # Set when the loop has been seen standing still.
        self.has_seen = threading.Event()
        # One more than there are bounds.
        self.buckets = [0] * (len(BOUNDS_S) + 1)
        self.seconds = self.longest_s = self.longest_cpu_s = 0.0
        # How often each function of Penstock held up the loop; "" when none ran.
        self.stalls: Counter[str] = Counter()
        self._logged_at = -LOGGED_EVERY_S

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()

    def _watch(self) -> None:
        while not self._stopped.wait(self._bound_s / 2):
            answered = threading.Event()
            asked_at, spent_s = time.monotonic(), self._cpu_s()
            try:
                self._loop.call_soon_threadsafe(answered.set)
            except RuntimeError:
                # The loop has been closed.
                return
            culprit = None if answered.wait(self._bound_s) else self._culprit()
            while not answered.wait(self._bound_s):
                if self._stopped.is_set():
                    return
            lag_s, cpu_s = time.monotonic() - asked_at, self._cpu_s() - spent_s
            self._count(lag_s, cpu_s)
            if culprit is not None:
                self._note(culprit, lag_s, cpu_s)

    def _cpu_s(self) -> float:
        """Return how long the watched thread has had a processor; 0 where the system does not tell."""
        return time.clock_gettime(self._cpu_clock) if self._cpu_clock is not None else 0.0

    def _culprit(self) -> dict[str, str]:
        """Return what the loop is doing at this moment: the task, and Penstock's functions, the innermost first."""
        task = asyncio.current_task(self._loop)
        frame: FrameType | None = sys._current_frames().get(self._watched)
        functions: list[str] = []
        while frame is not None and len(functions) < _FRAMES_MAX:
            if str(frame.f_globals.get("__name__", "")).startswith(_PACKAGE):
                functions.append(f"{frame.f_globals['__name__']}.{frame.f_code.co_qualname}:{frame.f_lineno}")
            frame = frame.f_back
        self.has_seen.set()
        return {"task": _name(task), "at": " < ".join(functions)}

    def _count(self, lag_s: float, cpu_s: float) -> None:
        self.buckets[bisect_left(BOUNDS_S, lag_s)] += 1
        self.seconds += lag_s
        self.longest_s = max(self.longest_s, lag_s)
        self.longest_cpu_s = max(self.longest_cpu_s, cpu_s)

    def _note(self, culprit: dict[str, str], lag_s: float, cpu_s: float) -> None:
        self.stalls[culprit["at"].partition(":")[0]] += 1
        if time.monotonic() - self._logged_at >= LOGGED_EVERY_S:
            self._logged_at = time.monotonic()
            self._log_event(SERVER_STALLED, ms=round(lag_s * 1_000), cpu_ms=round(cpu_s * 1_000), **culprit)


def _name(task: "asyncio.Task[Any] | None") -> str:
    if task is None:
        return ""
    return str(getattr(task.get_coro(), "__qualname__", task.get_name()))


@asynccontextmanager
async def watching(stall_ms: int, log_event: Callable[..., None]) -> AsyncIterator[Watchdog | None]:
    """Watch over the running loop; 0 does not."""
    if not stall_ms:
        yield None
        return
    watchdog = Watchdog(stall_ms, log_event)
    watchdog.start()
    try:
        yield watchdog
    finally:
        watchdog.stop()
