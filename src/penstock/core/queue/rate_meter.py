"""How fast something happens, from two windows of ten seconds.

The rate is the count of the window that runs and a share of the one before it,
so that it neither drops to nothing when a window begins nor remembers for long.
"""

WINDOW_MS = 10_000


class Meter:
    __slots__ = ("_window", "_ends_ms", "_count", "_before")

    def __init__(self) -> None:
        self._window = 0
        # When the window is over: to compare is quicker than to divide.
        self._ends_ms = WINDOW_MS
        self._count = 0
        self._before = 0

    def add(self, count: int, now_ms: int) -> None:
        if now_ms >= self._ends_ms:
            window = now_ms // WINDOW_MS
            self._before = self._count if window == self._window + 1 else 0
            self._window, self._ends_ms, self._count = window, (window + 1) * WINDOW_MS, 0
        self._count += count

    def per_second(self, now_ms: int) -> float:
        """The rate at ``now_ms``; 0 if nothing happened lately."""
        window, into_ms = divmod(now_ms, WINDOW_MS)
        count, before = self._count, self._before
        if window == self._window + 1:
            count, before = 0, count
        elif window != self._window:
            return 0.0
        return (count + before * (WINDOW_MS - into_ms) / WINDOW_MS) / (WINDOW_MS / 1_000)

    def ms_for(self, count: int, now_ms: int) -> int | None:
        """How long ``count`` of them take at this rate; None if nothing moves.

        >>> meter = Meter()
        >>> meter.add(100, now_ms=10_000)
        >>> meter.ms_for(50, now_ms=15_000)
        5000
        """
        rate = self.per_second(now_ms)
        return None if rate == 0 else int(count / rate * 1_000)
