"""An event loop in a thread of its own, for programs that have none.

It starts with the first call and ends with `close`. A forked process has the object and not the thread: its first call
starts a new one.
"""

import asyncio
import os
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from penstock.client.errors import ClientClosed

T = TypeVar("T")

# The loops of a parent process, in its child: they cannot be closed there, and must not be collected as if unclosed.
_left_behind: list[asyncio.AbstractEventLoop] = []


class Background:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._pid = os.getpid()
        self._is_closed = False

    def is_forked(self) -> bool:
        """Whether this process is a child of the one that last called `start`."""
        return self._pid != os.getpid()

    def start_anew(self) -> None:
        """Forget the thread of the parent process."""
        if self._loop is not None:
            _left_behind.append(self._loop)
        # The parent may have held it in the moment of the fork.
        self._lock = threading.Lock()
        self._loop = self._thread = None
        self._pid = os.getpid()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the thread, and return what it returns. An interrupt cancels it."""
        try:
            loop = self._started()
        except BaseException:
            work.close()
            raise
        future = asyncio.run_coroutine_threadsafe(work, loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def close(self, last: Coroutine[Any, Any, None]) -> None:
        """Run a last coroutine, and end the thread."""
        if self._loop is None or self._is_closed:
            self._is_closed = True
            last.close()
            return
        try:
            self.run(last)
        finally:
            with self._lock:
                self._is_closed = True
            assert self._thread is not None
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def _started(self) -> asyncio.AbstractEventLoop:
        if threading.current_thread() is self._thread:
            raise RuntimeError("the synchronous face was called in its own thread; use the asynchronous one there")
        with self._lock:
            if self._is_closed:
                raise ClientClosed("the client is closed")
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=self._loop.run_forever, name="penstock-client", daemon=True)
                self._thread.start()
            return self._loop
