"""How many messages a consumer has in hand: enough to be busy, and no more than it can soon work on.

    in hand = at work (up to `concurrency`) + prefetched

What is prefetched bridges the time that the next lease takes: the rate at which work ends, times how long a lease was
on its way lately, twice. It is never more than can be worked on within half of the visibility timeout: the rest is left
to other consumers. It begins with nothing, and slow work never gets beyond that.
"""

from penstock.wire.messages import MESSAGES_MAX

# How much the newest measure counts.
_WEIGHT = 0.2
_WORK_S_MIN = 0.000_01
_BRIDGED = 2.0


class Prefetch:
    """Measures, and says how many messages to have in hand."""

    __slots__ = ("_concurrency", "_lease_s", "_work_s", "_fetch_s")

    def __init__(self, concurrency: int, lease_s: float) -> None:
        self._concurrency = concurrency
        self._lease_s = lease_s
        # None until there is a measure.
        self._work_s: float | None = None
        self._fetch_s = 0.0

    def worked(self, seconds: float) -> None:
        """The work on a message took so long."""
        seconds = max(seconds, _WORK_S_MIN)
        self._work_s = seconds if self._work_s is None else self._work_s + _WEIGHT * (seconds - self._work_s)

    def fetched(self, seconds: float, *, is_whole: bool) -> None:
        """A lease took so long. One that brought less than was wanted may have waited for messages: no measure."""
        if is_whole:
            self._fetch_s += _WEIGHT * (seconds - self._fetch_s) if self._fetch_s else seconds

    def most(self) -> int:
        """How many to prefetch beyond those at work.

        >>> prefetch = Prefetch(10, lease_s=30)
        >>> prefetch.most()
        0
        >>> prefetch.worked(0.1); prefetch.fetched(0.05, is_whole=True); prefetch.most()
        10
        >>> for _ in range(100): prefetch.worked(20)
        >>> prefetch.most()
        0
        """
        if self._work_s is None:
            return 0
        rate = self._concurrency / self._work_s
        bridged = rate * self._fetch_s * _BRIDGED
        # Those at work take part of the half of the timeout, too.
        workable = rate * self._lease_s / 2 - self._concurrency
        return max(0, min(int(bridged), int(workable), MESSAGES_MAX))
