"""A clock that follows the database's where it is far from it.

All stores of a database go by the latest time that any of them has seen. One machine whose clock is hours fast would
end the leases of all, and then time would stand still for all until it has come. Every machine asks the same database,
so its clock decides who is wrong. Small differences are of no matter, and are left as they are.
"""

from typing import Protocol, runtime_checkable

from penstock.runtime.interface import Clock

# Machines with a time service differ by much less, and leases are longer.
TOLERATED_MS = 10_000


@runtime_checkable
class Following(Protocol):
    """A clock that can be told what time it is."""

    def own_ms(self) -> int:
        """The time of this machine, whatever was heard."""
        ...

    def synchronize(self, theirs_ms: int, *, asked_ms: int, heard_ms: int) -> None:
        """Learn what another clock said between two moments of our own."""
        ...

    @property
    def doubt(self) -> str | None:
        """What is wrong with the clock of this machine, None if nothing is."""
        ...


def following_of(clock: Clock) -> Following | None:
    """Return what to tell the time to: a clock that can be told, or the one that it goes by."""
    found = getattr(clock, "following", clock)
    return found if isinstance(found, Following) else None


class FollowingClock:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._offset_ms = 0

    def now_ms(self) -> int:
        return self._clock.now_ms() + self._offset_ms

    def own_ms(self) -> int:
        return self._clock.now_ms()

    def synchronize(self, theirs_ms: int, *, asked_ms: int, heard_ms: int) -> None:
        offset_ms = theirs_ms - (asked_ms + heard_ms) // 2
        is_far = abs(offset_ms) > TOLERATED_MS + heard_ms - asked_ms
        self._offset_ms = offset_ms if is_far else 0

    @property
    def doubt(self) -> str | None:
        if not self._offset_ms:
            return None
        side = "ahead of" if self._offset_ms < 0 else "behind"
        return (
            f"the clock of this machine is {abs(self._offset_ms) / 1_000:,.0f} s {side} that of the database, which "
            "counts: see to a time service on both"
        )
