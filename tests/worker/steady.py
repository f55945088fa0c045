"""The machine's time without its pauses.

A process that is not run for seconds cannot extend its leases, and they lapse: as they should, and not what a test of
them is about. Here a pause counts as a moment, for the loop, for the queues and for the worker alike, so a task with a
second left has many turns of the loop left, on any machine.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

# How often the loop looks at the time; what passes between two looks counts up to a few of them.
TICK_S = 0.01
PAUSE_S = 0.03


class SteadyClock:
    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._lock = threading.RLock()
        self._seen_s = self._now_s = monotonic()

    def __call__(self) -> float:
        with self._lock:
            seen_s = self._monotonic()
            self._now_s += min(seen_s - self._seen_s, PAUSE_S)
            self._seen_s = seen_s
            return self._now_s


@contextmanager
def steady_time() -> Iterator[SteadyClock]:
    """Let the time of this process be steady, for as long as this is entered; within a running loop."""
    clock, loop = SteadyClock(time.monotonic), asyncio.get_running_loop()
    since_epoch_s = time.time() - clock()
    ticking: asyncio.TimerHandle | None = None

    def tick() -> None:
        nonlocal ticking
        ticking = loop.call_later(TICK_S, tick)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time, "monotonic", clock)
        patch.setattr(time, "time", lambda: since_epoch_s + clock())
        patch.setattr(time, "clock_gettime_ns", lambda _: int(clock() * 1e9))
        tick()
        try:
            yield clock
        finally:
            assert ticking is not None
            ticking.cancel()
