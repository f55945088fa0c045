"""What went through the queues since the server started, and what did not: counted for metrics.

    success     by the broker, as a verb returns: one addition for a batch
    refusals    by the front ends, which know the code that a client is told

Laws of this file
-----------------
1. Nothing here is done for each message on the way of a healthy batch: messages that waited alike are counted together.
2. What strangers ask for cannot fill the memory: so many refusals of different kinds are kept, and the others are
   counted under an empty name.
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from penstock.contract.messages import TIERS
from penstock.frame import size_of
from penstock.runtime.interface import LONG_S, Histogram
from penstock.store.interface import Delivery, Outcome

# Kinds of refusals that are kept.
REFUSALS_MAX = 20_000
STALE = "stale_receipt"


@dataclass(slots=True)
class Totals:
    """What went through one queue, in messages."""

    sent: int = 0
    received: int = 0
    acked: int = 0
    released: int = 0
    extended: int = 0
    requeued: int = 0
    cancelled: int = 0
    sent_bytes: int = 0
    received_bytes: int = 0
    # Deliveries that were the first of their message, and how long these messages had waited, all together.
    first_received: int = 0
    waited_ms: int = 0


class Traffic:
    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self.totals: dict[str, Totals] = {}
        # How long messages had waited when they were delivered first, by tier.
        self.waits = [Histogram(LONG_S) for _ in range(TIERS)]
        # By queue, operation and code.
        self.refusals: dict[tuple[str, str, str], int] = {}

    def of(self, queue: str) -> Totals:
        total = self.totals.get(queue)
        if total is None:
            total = self.totals[queue] = Totals()
        return total

    def refused(self, queue: str, operation: str, code: str, count: int = 1) -> None:
        """Count messages, or a request, that a client was refused."""
        which = (queue, operation, code)
        if which not in self.refusals and len(self.refusals) >= REFUSALS_MAX:
            which = ("", operation, code)
        self.refusals[which] = self.refusals.get(which, 0) + count

    def settled(self, queue: str, operation: str, outcomes: Sequence[Outcome]) -> int:
        """Count receipts that were worth nothing any more, and return how many were good."""
        done = outcomes.count(Outcome.DONE)
        if done != len(outcomes):
            self.refused(queue, operation, STALE, len(outcomes) - done)
        return done

    def delivered(self, queue: str, delivery: Delivery) -> None:
        total = self.of(queue)
        total.received += len(delivery)
        total.received_bytes += size_of(delivery.bodies)
        now_ms, sent_at_ms = self._now_ms(), delivery.sent_at_ms
        if delivery.first_leased_at_ms is not None:
            self._count_firsts(total, delivery, now_ms)
            return
        tiers = delivery.tiers
        if tiers[0] == tiers[-1] == max(tiers) == min(tiers):
            self._count_waits(total, tiers[0], sent_at_ms, now_ms)
            return
        for tier in set(tiers):
            self._count_waits(
                total, tier, [at for at, own in zip(sent_at_ms, tiers, strict=True) if own == tier], now_ms
            )

    def _count_firsts(self, total: Totals, delivery: Delivery, now_ms: int) -> None:
        """Of messages some of which had been delivered before, count those that had not."""
        for tier, sent_at_ms, deliveries in zip(delivery.tiers, delivery.sent_at_ms, delivery.deliveries, strict=True):
            if deliveries == 1:
                self._count_waits(total, tier, [sent_at_ms], now_ms)

    def _count_waits(self, total: Totals, tier: int, sent_at_ms: Sequence[int], now_ms: int) -> None:
        waits, count = self.waits[tier], len(sent_at_ms)
        waited_ms = max(0, count * now_ms - sum(sent_at_ms)) if count > 1 else max(0, now_ms - sent_at_ms[0])
        total.first_received += count
        total.waited_ms += waited_ms
        waits.sum += waited_ms / 1_000
        bucket = partial(bisect_left, waits.bounds)
        longest, shortest = bucket((now_ms - min(sent_at_ms)) / 1_000), bucket((now_ms - max(sent_at_ms)) / 1_000)
        if longest == shortest:
            waits.buckets[longest] += count
            return
        for at_ms in sent_at_ms:
            waits.buckets[bucket((now_ms - at_ms) / 1_000)] += 1

    def forget(self, queue: str) -> None:
        """A queue is gone, and so are its numbers."""
        self.totals.pop(queue, None)
        for which in [which for which in self.refusals if which[0] == queue]:
            del self.refusals[which]

    def fold(self, is_there: Callable[[str], bool]) -> None:
        """Count refusals of queues that are not there under an empty name."""
        for which in [which for which in self.refusals if which[0] and not is_there(which[0])]:
            self.refused("", which[1], which[2], self.refusals.pop(which))
