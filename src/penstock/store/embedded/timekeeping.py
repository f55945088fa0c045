"""What time it is in a store: the clock's, unless the clock has leapt ahead of all that the journals know.

A clock that is set wrong by days would let every waiting message expire, and what is
expired is gone. So a store that opens compares the clock with the newest time in its
journals and with the time at which they were closed. If the clock is far ahead, it is
*doubted*: time goes on from where it stood, as if the store had never been down, and
nothing grows old faster than it is seen to.

The doubt ends when the clock comes back near to the time of the store, or with a start
that is told to trust the clock. It is not ended by waiting: a clock that is wrong stays
wrong.

    known ──────▶ time of the store          known: the newest time in the journals
                        │ ≤ CLOCK_LEAP_MS_MAX
                        ▼
    clock       trusted │ doubted ──▶
"""

from penstock.contract.limits import CLOCK_LEAP_MS_MAX
from penstock.runtime.interface import Runtime
from penstock.telemetry import STORE_CLOCK_DOUBTED, STORE_CLOCK_TRUSTED


class Timekeeping:
    """How far the time of a store is from its runtime's clock. The same for all shards."""

    def __init__(self, runtime: Runtime, known_ms: int, *, trusts_clock: bool) -> None:
        self._runtime = runtime
        now_ms = runtime.clock.now_ms()
        self.is_doubted = known_ms > 0 and not trusts_clock and now_ms - known_ms > CLOCK_LEAP_MS_MAX
        # Less than 0 only while the clock is doubted, or was wrong at the start.
        self.ahead_ms = known_ms - now_ms if self.is_doubted else max(0, known_ms - now_ms)
        if self.is_doubted:
            runtime.log_event(
                STORE_CLOCK_DOUBTED, clock_ms=now_ms, newest_ms=known_ms, ahead_s=(now_ms - known_ms) // 1_000
            )

    def look(self) -> bool:
        """Look at the clock again if it is doubted, and say whether `ahead_ms` has changed."""
        if not self.is_doubted:
            return False
        right_ms = self._runtime.wall_ms() - self._runtime.clock.now_ms()
        if right_ms - self.ahead_ms > CLOCK_LEAP_MS_MAX:
            return False
        self.is_doubted = False
        # Never back: leases and delays that have ended stay so.
        self.ahead_ms = max(self.ahead_ms, right_ms)
        self._runtime.log_event(STORE_CLOCK_TRUSTED, clock_ms=self._runtime.wall_ms())
        return True
