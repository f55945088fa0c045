"""Wall time and dice of a simulated machine.

A clock follows the `SimLoop` it is read in, and goes on from where it stood when it
is read in the next one, or in none: so it never goes back. `advance_ms` moves the
wall time alone; no timer of the loop comes due by it.
"""

import random

from tests.simulation.loop import SimLoop, running_loop

EPOCH_MS = 1_700_000_000_000


class SimClock:
    def __init__(self) -> None:
        self._now_us = EPOCH_MS * 1_000
        self._loop: SimLoop | None = None
        self._loop_us = 0

    def now_ms(self) -> int:
        self._follow_loop()
        return self._now_us // 1_000

    def advance_ms(self, count_ms: int) -> None:
        assert count_ms >= 0, "a clock never goes back"
        self._follow_loop()
        self._now_us += count_ms * 1_000

    def _follow_loop(self) -> None:
        loop = running_loop()
        if loop is None:
            return
        if loop is not self._loop:
            self._loop, self._loop_us = loop, 0
        self._now_us += loop.now_us - self._loop_us
        self._loop_us = loop.now_us


def ticks_us() -> int:
    """Return how long the loop has run."""
    loop = running_loop()
    return 0 if loop is None else loop.now_us


class SimDice:
    def __init__(self, seed: int = 0) -> None:
        self._random = random.Random(f"dice/{seed}")

    def roll(self) -> float:
        return self._random.random()

    def token(self) -> int:
        return self._random.getrandbits(63)
