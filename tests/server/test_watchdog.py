"""A watchdog over the event loop: it says how long the loop stood still, and what it was doing."""

import asyncio
import threading
from typing import Any

from penstock.metrics.health import watching
from penstock.telemetry import SERVER_STALLED, LogEvent


async def test_a_loop_that_stands_still_is_noted_with_the_task_that_holds_it() -> None:
    events: list[tuple[LogEvent, dict[str, Any]]] = []
    logged = threading.Event()

    def log_event(event: LogEvent, **fields: Any) -> None:
        events.append((event, fields))
        logged.set()

    async with watching(10, log_event) as watchdog:
        assert watchdog is not None

        async def hold_the_loop() -> None:
            # Until it is seen, however fast the machine is.
            assert watchdog.has_seen.wait(30)

        await asyncio.create_task(hold_the_loop())  # noqa: TID251 - it is awaited at once.
        await asyncio.to_thread(logged.wait, 30)
        (kind, fields), *_ = events
        assert kind is SERVER_STALLED
        assert fields["task"].endswith("hold_the_loop")
        assert watchdog.longest_s >= 0.01
        assert sum(watchdog.lags.buckets) >= 1
        # It waits for a lock, and no function of Penstock runs.
        assert fields["cpu_ms"] < fields["ms"]
        assert watchdog.longest_cpu_s < watchdog.longest_s
        assert watchdog.stalls[""] >= 1


async def test_without_a_bound_nothing_is_watched() -> None:
    # That of another test may still be on its way out.
    before = set(threading.enumerate())
    async with watching(0, lambda *_, **__: None) as watchdog:
        assert watchdog is None
        assert set(threading.enumerate()) <= before
