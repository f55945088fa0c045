"""One budget for what all connections have sent and nothing has been done with yet, whatever protocol they speak.

    arriving ──hold──▶ counted ──whole──▶ kept while it is worked on ──▶ freed
                          │
                          └─ past the limit: shed, the costliest first

Laws of this file
-----------------
1. Bytes are counted when they have arrived, not when they are announced.
2. Past the limit nothing waits: requests that are still arriving are shed until there is room again. So two
   half-read bodies never wait for each other.
3. Those that have held the most bytes for the longest time go first. A request that comes quickly outlives any number
   that were begun and left.
4. What is whole is never shed. A listener that can wait stops reading while much of it is kept (`is_crowded`).
"""

from collections.abc import Callable
from typing import Protocol


class Arriving(Protocol):
    """A request that has begun to arrive."""

    # What it holds of the budget, and since when; written by the budget alone.
    held_bytes: int
    held_since_s: float

    def shed(self) -> None:
        """Refuse it, and keep nothing of it. The budget has taken its bytes off the count already."""
        ...


class BufferBudget:
    def __init__(self, bytes_max: int, now_s: Callable[[], float]) -> None:
        self.bytes_max = bytes_max
        self._now_s = now_s
        self._arriving: set[Arriving] = set()
        # Of everything, and of whole requests alone.
        self.held_bytes = self.kept_bytes = 0
        # Requests that were refused for want of room, since the start.
        self.shed = 0
        # Called when it is no longer crowded; once each.
        self.waiting: list[Callable[[], None]] = []

    @property
    def is_crowded(self) -> bool:
        """Whether requests that are worked on hold half of the budget, so that no more should be begun."""
        return self.kept_bytes > self.bytes_max // 2

    def hold(self, request: Arriving, size_bytes: int) -> bool:
        """Count what has arrived of a request; False if there is no room for it, and it is to be refused."""
        if not request.held_bytes:
            request.held_since_s = self._now_s()
            self._arriving.add(request)
        request.held_bytes += size_bytes
        self.held_bytes += size_bytes
        return self.held_bytes <= self.bytes_max or self._make_room(request)

    def keep(self, request: Arriving) -> None:
        """A request is whole: it is worked on, and not shed any more."""
        if request in self._arriving:
            self._arriving.discard(request)
            self.kept_bytes += request.held_bytes

    def free(self, request: Arriving) -> None:
        """Nothing is left of a request."""
        size_bytes, request.held_bytes = request.held_bytes, 0
        if request in self._arriving:
            self._arriving.discard(request)
            self.held_bytes -= size_bytes
        else:
            self.give_back(size_bytes)

    def take(self, size_bytes: int) -> None:
        """Count a request that is whole, and was not counted while it arrived."""
        self.kept_bytes += size_bytes
        self.held_bytes += size_bytes

    def give_back(self, size_bytes: int) -> None:
        self.kept_bytes -= size_bytes
        self.held_bytes -= size_bytes
        if self.waiting and not self.is_crowded:
            waiting, self.waiting = self.waiting, []
            for wake in waiting:
                wake()

    def _make_room(self, newest: Arriving) -> bool:
        """Shed the costliest, at once down to seven eighths of the limit; return whether the newest may stay."""
        now_s, wanted = self._now_s(), self.bytes_max * 7 // 8
        # Of those that are equally old the largest; a clock may stand still for a moment.
        costliest = sorted(self._arriving, key=lambda each: each.held_bytes * (now_s - each.held_since_s + 0.001))
        while costliest and self.held_bytes > wanted:
            request = costliest.pop()
            if not request.held_bytes:
                # It went with another request of its connection.
                continue
            self.free(request)
            self.shed += 1
            if request is not newest:
                request.shed()
        return newest.held_bytes > 0
