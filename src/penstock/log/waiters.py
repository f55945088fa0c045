"""Callers who wait until a log is durable up to an offset."""

import asyncio
from bisect import insort
from collections import deque


class Waiters:
    """Futures in the order of their offsets. Lives on the event loop."""

    def __init__(self) -> None:
        # (offset, order of arrival, future): nearly everyone waits for the newest offset, so appending keeps the order.
        self._waiting: deque[tuple[int, int, asyncio.Future[None]]] = deque()
        self._arrivals = 0

    def add(self, offset: int) -> "asyncio.Future[None]":
        """Return a future that ends when the log is durable up to ``offset``."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._arrivals += 1
        waiter = (offset, self._arrivals, future)
        if self._waiting and offset < self._waiting[-1][0]:
            insort(self._waiting, waiter)
        else:
            self._waiting.append(waiter)
        return future

    def wake(self, durable_offset: int) -> None:
        """Let everyone go on who waited for no more than this."""
        while self._waiting and self._waiting[0][0] <= durable_offset:
            _, _, future = self._waiting.popleft()
            if not future.done():
                future.set_result(None)

    def refuse(self, error: Exception) -> None:
        """Tell everyone that what they wait for will not be known."""
        while self._waiting:
            _, _, future = self._waiting.popleft()
            if not future.done():
                future.set_exception(error)
