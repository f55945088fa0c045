"""A bound on memory: what waits to be sent takes room, and who finds none waits for it.

The longest waiting is first. Something larger than all the room there is goes alone.
"""

import asyncio
from collections import deque


class Room:
    __slots__ = ("_bytes_max", "free_bytes", "_waiting")

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self.free_bytes = bytes_max
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    def take(self, size: int) -> bool:
        """Take room if there is some and nobody waits for it."""
        if self._waiting or (size > self.free_bytes and self.free_bytes < self._bytes_max):
            return False
        self.free_bytes -= size
        return True

    async def wait(self, size: int) -> None:
        """Take room as soon as it is there."""
        if self.take(size):
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((size, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.give(size)
            raise

    def give(self, size: int) -> None:
        """Give room back."""
        self.free_bytes += size
        while self._waiting:
            wanted, turn = self._waiting[0]
            if turn.done():
                self._waiting.popleft()
                continue
            if wanted > self.free_bytes and self.free_bytes < self._bytes_max:
                return
            self._waiting.popleft()
            self.free_bytes -= wanted
            turn.set_result(None)
