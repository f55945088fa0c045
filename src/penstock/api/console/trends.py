"""Where queues have been in the last minutes: a ring of points for each queue that anything is in or goes through.

A point is what a look found, `EVERY_MS` after the one before: messages by tier, ages by tier, and rates since then.
Numbers are floats of four bytes in one array for each queue. A queue that is empty and idle has none.
"""

from array import array
from collections.abc import Sequence
from math import nan

from penstock.contract.messages import TIERS

EVERY_MS = 10_000
POINTS = 90
QUEUES_MAX = 2_000
# Ready by tier, age of the oldest by tier in seconds, in flight, delayed; per second: sent, received, acked, released.
WIDTH = 2 * TIERS + 2 + 4
Point = Sequence[float]
_NO_POINT = array("f", [nan] * WIDTH)


class Trends:
    def __init__(self) -> None:
        self._times: list[int] = []
        # As many points as there are times, the oldest first.
        self._rings: dict[str, array[float]] = {}

    @property
    def is_due_at_ms(self) -> int:
        return self._times[-1] + EVERY_MS if self._times else 0

    def add(self, at_ms: int, points: dict[str, Point]) -> None:
        """Add a point for each queue, of `WIDTH` numbers."""
        before = len(self._times)
        self._times.append(at_ms)
        surplus = max(0, len(self._times) - POINTS)
        del self._times[:surplus]
        for name in [name for name in self._rings if name not in points]:
            del self._rings[name]
        for name, point in points.items():
            ring = self._rings.get(name)
            if ring is None:
                if not any(point) or len(self._rings) >= QUEUES_MAX:
                    continue
                ring = self._rings[name] = _NO_POINT * before
            ring.extend(point)
            del ring[: surplus * WIDTH]
            if not any(value for value in ring if value == value):  # noqa: PLR0124 - not a number.
                del self._rings[name]

    def of(self, name: str) -> tuple[list[int], list[list[float | None]]]:
        """Return the times and the points of a queue; None stands for what was not looked at."""
        ring = self._rings.get(name)
        if ring is None:
            return list(self._times), []
        return list(self._times), [
            [None if value != value else round(value, 3) for value in ring[at : at + WIDTH]]  # noqa: PLR0124
            for at in range(0, len(ring), WIDTH)
        ]

    def brief(self, name: str, points: int) -> list[list[float | None]] | None:
        """Return what a small chart shows: messages that are ready, and what was sent and acked per second."""
        _, found = self.of(name)
        if not found:
            return None
        chosen = found[-points:]
        return [
            [None if row[0] is None else sum(each or 0 for each in row[:TIERS]) for row in chosen],
            [row[-4] for row in chosen],
            [row[-2] for row in chosen],
        ]
