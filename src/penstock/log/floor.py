"""Says outside the segments how far a log is known to be durable: below this floor nothing may be missing.

A torn tail and a segment that was cut short look alike from within. The floor tells
them apart: power that is lost cannot take what was synced a second ago.

Laws of this file
-----------------
1. The floor names only what is synced. It may be lost, or late: then it is lower than
   it could be, and a tear stays a tear.
2. No answer waits for it: it is written and synced beside the commits, at most once a
   second, while the log grows. Rolls, starts and stops write it with the manifest.
3. It never goes down: only a repair, which may make a log shorter, begins it again at 0.
"""

import asyncio
from collections.abc import Callable
from typing import NoReturn

from penstock.log import manifest as manifests
from penstock.log.recovery import Recovered
from penstock.runtime.interface import Runtime


class Floor:
    """Knows how far the floor could rise. Lives on the event loop, with one timer at most."""

    def __init__(
        self, runtime: Runtime, folder: str, found: Recovered, every_ms: int, fail: Callable[[OSError], NoReturn]
    ) -> None:
        self._runtime = runtime
        self._every_s = every_ms / 1_000
        self._folder = folder
        self._log_id = found.manifest.log_id
        self._fail = fail
        self._written = self._synced = found.active.next_offset
        self._timer: asyncio.TimerHandle | None = None
        self._writing: asyncio.Future[None] | None = None
        self._is_held = False

    def rise(self, synced_offset: int) -> None:
        """Everything below an offset is synced: say so within about a second."""
        self._synced = synced_offset
        if self._timer is None and self._writing is None and not self._is_held:
            self._timer = asyncio.get_running_loop().call_later(self._every_s, self._write)

    def _write(self) -> None:
        self._timer = None
        offset = self._synced
        if offset <= self._written:
            return
        self._writing = asyncio.get_running_loop().create_future()

        def work() -> None:
            try:
                manifests.write_floor(self._runtime.disk, self._folder, self._log_id, offset)
            except OSError as error:
                self._fail(error)

        def done() -> None:
            assert self._writing is not None
            self._written = max(self._written, offset)
            self._writing.set_result(None)
            self._writing = None
            if self._synced > self._written:
                self.rise(self._synced)

        self._runtime.workers.submit(work, done)

    async def hold(self) -> None:
        """Return when nothing is being written; nothing will be after that."""
        self._is_held = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._writing is not None:
            await self._writing
