"""The leases in hand: which messages of each are still ours, and until when by our own clock.

A lease is extended when a third of its time is left, all of it that is still held in one bitmap. A message is settled
while its lease may be extended at the same time: then "not extended" may mean that the settlement was first, and says
nothing. Of every other message it means that the lease was lost.
"""

from collections.abc import Iterator

from penstock.client.message import Facts, Message


class HeldLease:
    """One lease. Bit i stands for message i, as in its receipts."""

    __slots__ = ("facts", "rows", "settling", "until_s")

    def __init__(self, facts: Facts, until_s: float) -> None:
        self.facts = facts
        self.rows = (1 << len(facts)) - 1
        # Those whose ack or release is on its way; part of ``rows``.
        self.settling = 0
        self.until_s = until_s


class HeldLeases:
    __slots__ = ("_leases",)

    def __init__(self) -> None:
        self._leases: dict[int, HeldLease] = {}

    def __iter__(self) -> Iterator[HeldLease]:
        return iter(self._leases.values())

    def take(self, facts: Facts, until_s: float) -> None:
        self._leases[id(facts)] = HeldLease(facts, until_s)

    def has(self, message: Message, now_s: float) -> bool:
        """Whether a message is ours, for all we know."""
        lease = self._leases.get(id(message.facts))
        return lease is not None and bool(lease.rows >> message.row & 1) and now_s < lease.until_s

    def settle(self, message: Message) -> None:
        """Its ack or release begins its way."""
        lease = self._leases.get(id(message.facts))
        if lease is not None:
            lease.settling |= 1 << message.row & lease.rows

    def drop(self, message: Message) -> None:
        """It is not ours any more."""
        lease = self._leases.get(id(message.facts))
        if lease is not None:
            lease.rows &= ~(1 << message.row)
            lease.settling &= lease.rows
            if not lease.rows:
                del self._leases[id(message.facts)]

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
