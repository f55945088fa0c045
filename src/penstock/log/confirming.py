"""Says in the file that the last commit is durable, when no other commit follows to say so.

    ─ commit ─┤marker├─ commit ─┤marker├                the last one is durable, and no byte of the file says it
    ─ commit ─┤marker├─ commit ─┤marker├─┤marker├       a moment later: a lone marker

A marker speaks of what was durable before it, and whoever reads the files beside a
running server, or recovers them, believes nothing else (decisions 0003 and 0031).

Laws of this file
-----------------
1. A lone marker is written once after the last commit of a log, and never while
   commits follow each other: then each is confirmed by the next.
2. It is not synced. It speaks of what is durable already: a power cut that takes it
   takes nothing else.
3. It refuses nothing to anybody: it waits for reservations that are held, and is left
   out where the disk has no room for it.
"""

import asyncio
from collections.abc import Callable

from penstock.log import marker as markers
from penstock.log.jobs import Job
from penstock.log.marker import MARKER_BYTES, Place
from penstock.log.tail import Tail

# How long nothing is written before the last commit is confirmed: at most twice this after it.
QUIET_MS = 1_000


class Confirming:
    """Knows when a log has been quiet. Lives on the event loop, with one timer at most."""

    def __init__(self, schedule: Callable[[], None]) -> None:
        self._schedule = schedule
        self._timer: asyncio.TimerHandle | None = None
        self._is_quiet = True
        # The log has been quiet since something was written that no marker confirms.
        self._is_due = False

    def begin(self) -> None:
        """Something is written, or stands, unconfirmed: wait until the log has been quiet."""
        self._is_due = self._is_quiet = False
        if self._timer is None:
            self._wait()

    def _wait(self) -> None:
        self._is_quiet = True
        self._timer = asyncio.get_running_loop().call_later(QUIET_MS / 1000, self._ring)

    def _ring(self) -> None:
        self._timer = None
        if not self._is_quiet:
            self._wait()
            return
        self._is_due = True
        self._schedule()

    def next_job(self, tail: Tail, place: Place, log_id: int) -> Job | None:
        """Return what writes a lone marker at a place, if it is due."""
        active = tail.active
        if not self._is_due or active.is_confirmed or active.synced_bytes < active.end_bytes:
            return None
        if tail.reserved_bytes:
            self.begin()
            return None
        self._is_due = was_written = False

        def work() -> None:
            nonlocal was_written
            if tail.has_room_for_marker():
                durable = markers.encode(place, durable_bytes=active.end_bytes, log_id=log_id, heads=())
                active.file.write(durable, active.end_bytes)
                was_written = True

        def done() -> None:
            if was_written:
                active.is_confirmed = True
                active.end_bytes += MARKER_BYTES

        return work, done

    def end(self) -> None:
        self._is_due = False
        if self._timer is not None:
            self._timer.cancel()
