"""The leases in hand: which messages of each are still ours, and until when by our own clock.

A lease is extended when a third of its time is left, all of it that is still held in one bitmap. A message is settled
while its lease may be extended at the same time: then "not extended" may mean that the settlement was first, and says
nothing. Of every other message it means that the lease was lost.

How many messages a consumer has in hand: enough to be busy, and no more than it can soon work on.

    in hand = at work (up to `concurrency`) + prefetched

What is prefetched bridges the time that the next lease takes: the rate at which work ends, times how long a lease was
on its way lately, twice. It is never more than can be worked on within half of the visibility timeout: the rest is left
to other consumers. It begins with nothing, and slow work never gets beyond that.
"""

from collections.abc import Iterator

from penstock.client.message import LeasedBatch, Message
from penstock.contract.limits import REQUEST_MESSAGES_MAX


class HeldLease:
    """One lease. Bit i stands for message i, as in its receipts."""

    __slots__ = ("leased", "rows", "settling", "until_s")

    def __init__(self, leased: LeasedBatch, until_s: float) -> None:
        self.leased = leased
        self.rows = (1 << len(leased)) - 1
        # Those whose ack or release is on its way; part of ``rows``.
        self.settling = 0
        self.until_s = until_s


class HeldLeases:
    __slots__ = ("_leases",)

    def __init__(self) -> None:
        self._leases: dict[int, HeldLease] = {}

    def __iter__(self) -> Iterator[HeldLease]:
        return iter(self._leases.values())

    def take(self, leased: LeasedBatch, until_s: float) -> None:
        self._leases[id(leased)] = HeldLease(leased, until_s)

    def has(self, message: Message, now_s: float) -> bool:
        """Whether a message is ours, for all we know."""
        lease = self._leases.get(id(message.leased))
        return lease is not None and bool(lease.rows >> message.row & 1) and now_s < lease.until_s

    def settle(self, message: Message) -> None:
        """Its ack or release begins its way."""
        lease = self._leases.get(id(message.leased))
        if lease is not None:
            lease.settling |= 1 << message.row & lease.rows

    def drop(self, message: Message) -> None:
        """It is not ours any more."""
        lease = self._leases.get(id(message.leased))
        if lease is not None:
            lease.rows &= ~(1 << message.row)
            lease.settling &= lease.rows
            if not lease.rows:
                del self._leases[id(message.leased)]

    def due(self, now_s: float, lease_s: float) -> list[HeldLease]:
        """Those of which a third or less is left."""
        return [lease for lease in self if lease.until_s - lease_s / 3 <= now_s]

    def next_due_s(self, lease_s: float) -> float | None:
        """When the next is due, by the clock of the loop."""
        return min((lease.until_s - lease_s / 3 for lease in self), default=None)

    @staticmethod
    def extended(lease: HeldLease, asked: int, done: int, until_s: float) -> int:
        """Remember an extension, and return the bits of those that were lost."""
        if done:
            lease.until_s = until_s
        return asked & ~done & lease.rows & ~lease.settling


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
        return max(0, min(int(bridged), int(workable), REQUEST_MESSAGES_MAX))
