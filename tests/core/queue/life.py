"""A queue that remembers what happened to it, so that a test reads as a story."""

from collections.abc import Sequence
from typing import NamedTuple

from penstock.contract.messages import Tier
from penstock.contract.queue_settings import QueueSettings
from penstock.core.queue.events import Event, QueueCreated
from penstock.core.queue.message import Drafts, Sender
from penstock.core.queue.queries import contents, look
from penstock.core.queue.queue import Queue

START_MS = 1_000_000


class Lease(NamedTuple):
    id: int
    token: int
    messages: list[int]
    tiers: list[int]
    deliveries: list[int]

    @property
    def everything(self) -> int:
        return (1 << len(self.messages)) - 1


class Life:
    """Verbs that decide, apply and return what a caller would see; `now_ms` moves only by `wait`."""

    def __init__(self, settings: QueueSettings | None = None, *, number: int = 1) -> None:
        self.now_ms = START_MS
        created = QueueCreated(number, self.now_ms, "orders", (settings or QueueSettings()).to_json())
        self.history: list[Event] = [created]
        self.queue = Queue.replay([created])
        self.state = self.queue.state
        self.token = 0

    def happen(self, event: Event | None) -> bool:
        if event is None:
            return False
        self.history.append(event)
        self.queue.apply(event)
        return True

    def wait(self, ms: int) -> None:
        self.now_ms += ms
        self.queue.advance(self.now_ms)

    def send(
        self,
        count: int = 1,
        tier: int = Tier.NORMAL,
        *,
        group: bytes = b"",
        ids: Sequence[bytes] | None = None,
        delay_ms: int = 0,
        deliveries_max: int = 0,
        sender: Sender | None = None,
    ) -> list[int]:
        drafts = Drafts(
            bodies=[b""] * count,
            tiers=bytes((tier,)) * count,
            groups=[group] * count if group else None,
            dedup_ids=ids,
            visible_at_ms=[self.now_ms + delay_ms] * count if delay_ms else None,
            deliveries_max=[deliveries_max] * count if deliveries_max else None,
        )
        accepted = self.queue.send(drafts, now_ms=self.now_ms, sender=sender)
        self.happen(accepted.event)
        return list(accepted.messages)

    def lease(self, want: int = 1, lease_ms: int = 1_000) -> Lease | None:
        self.token += 1
        event = self.queue.lease(want, now_ms=self.now_ms, token=self.token, lease_ms=lease_ms)
        if event is None:
            return None
        self.happen(event)
        held = contents(self.state, event)
        return Lease(event.lease, self.token, list(held.messages), list(held.tiers), list(held.deliveries))

    def leased(self, want: int = 1, lease_ms: int = 1_000) -> Lease:
        lease = self.lease(want, lease_ms)
        assert lease is not None
        return lease

    def ack(self, lease: Lease, mask: int | None = None, *, outlives: bool = False) -> bool:
        bits = lease.everything if mask is None else mask
        return self.happen(self.queue.ack(lease.id, lease.token, bits, now_ms=self.now_ms, outlives=outlives))

    def release(self, lease: Lease, mask: int | None = None, *, delay_ms: int | None = 0, error: str = "boom") -> bool:
        bits = lease.everything if mask is None else mask
        event = self.queue.release(
            lease.id, lease.token, bits, now_ms=self.now_ms, roll=0.5, delay_ms=delay_ms, error=error
        )
        return self.happen(event)

    def reject(self, lease: Lease, mask: int | None = None, *, error: str = "never") -> bool:
        bits = lease.everything if mask is None else mask
        event = self.queue.release(
            lease.id, lease.token, bits, now_ms=self.now_ms, roll=0.5, error=error, is_rejected=True
        )
        return self.happen(event)

    def give_back(self, lease: Lease, mask: int | None = None) -> bool:
        bits = lease.everything if mask is None else mask
        return self.happen(self.queue.give_back(lease.id, lease.token, bits, now_ms=self.now_ms))

    def extend(self, lease: Lease, lease_ms: int, mask: int | None = None) -> bool:
        bits = lease.everything if mask is None else mask
        return self.happen(self.queue.extend(lease.id, lease.token, bits, now_ms=self.now_ms, lease_ms=lease_ms))

    def escalate(self, messages: Sequence[int], tier: int, *, until_ms: int = 0, lowers: bool = False) -> bool:
        said = {"actor": "ada", "reason": "a customer waits"}
        event = self.queue.escalate(messages, tier, now_ms=self.now_ms, until_ms=until_ms, lowers=lowers, **said)
        return self.happen(event)

    def place(self, message: int) -> str | None:
        seen = look(self.state, message)
        return None if seen is None else seen.place

    def tier(self, message: int) -> int:
        seen = look(self.state, message)
        assert seen is not None
        return seen.tier

    def drain(self, want: int = 1) -> list[int]:
        """Lease and ack until there is nothing left to lease, and return the messages in the order they came."""
        found: list[int] = []
        while (lease := self.lease(want)) is not None:
            found += lease.messages
            self.ack(lease)
        return found
