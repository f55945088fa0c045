"""A metadata store in one process: linearizable, sometimes slow, and not always heard.

    ask ──a moment──▶ done at one instant ──a moment──▶ answered
        ╲ lost, cut                       ╲ lost, cut
         ╲▶ OutcomeUnknown                 ╲▶ OutcomeUnknown, and yet it was done

A request may also arrive *after* its sender has given up, and count then: that is
what a real store's client cannot exclude, and what rule M5 is about.
"""

import asyncio
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from penstock.cluster.meta import NO_INCARNATION, NOT_GRANTED, Broker, Conflict, OutcomeUnknown, View
from penstock.core.replica import PartitionRecord

T = TypeVar("T")

TIMEOUT_MS = 200
LATE_MS_MAX = 5 * TIMEOUT_MS


@dataclass(slots=True)
class _Seen:
    """What is known of a node."""

    incarnation: int = NO_INCARNATION
    log_id: int = 0
    lease_until: float = 0.0
    epoch: int = NOT_GRANTED
    log_id_granted: int | None = None


@dataclass(frozen=True, slots=True)
class Swap:
    """A change of the record that was asked for; it stays on its way for ever if it is lost."""

    number: int
    record: PartitionRecord
    revision: int
    broker_epochs: Mapping[int, int]
    without_lease: int | None


class SimMeta:
    """The chances may be changed at any time, by a test that has calm and stormy hours."""

    def __init__(self, record: PartitionRecord, *, lease_ms: int, seed: int = 0) -> None:
        self.record = record
        self.revision = 1
        self.loss = 0.0
        self.lateness = 0.0
        self.delay_ms_max = 5.0
        # Told of each change of the record, before and after, and of each epoch granted to a node and its disk.
        self.on_change: Callable[[PartitionRecord, PartitionRecord], None] = lambda _before, _after: None
        self.on_grant: Callable[[int, int], None] = lambda _node, _log_id: None
        self._lease_s = lease_ms / 1_000
        self._clock = self.revision
        self._seen = {node: _Seen() for node in record.replicas}
        self._on_the_way: dict[int, Swap] = {}
        self._cut: set[int] = set()
        self._dice = random.Random(f"meta/{seed}")

    def door(self, node: int) -> "MetaDoor":
        """Return the store as one node reaches it."""
        return MetaDoor(self, node)

    def cut(self, node: int) -> None:
        self._cut.add(node)

    def heal(self) -> None:
        self._cut.clear()

    def view(self) -> View:
        now = asyncio.get_running_loop().time()
        brokers = {
            node: Broker(seen.incarnation, seen.log_id, now < seen.lease_until, seen.epoch, seen.log_id_granted)
            for node, seen in self._seen.items()
            if seen.incarnation != NO_INCARNATION
        }
        return View(self.record, self.revision, brokers)

    def broker_epoch(self, node: int) -> int:
        return self._seen[node].epoch

    def begin_swap(
        self, record: PartitionRecord, revision: int, broker_epochs: Mapping[int, int], without_lease: int | None
    ) -> "Swap":
        number = self._tick()
        self._on_the_way[number] = Swap(number, record, revision, broker_epochs, without_lease)
        return self._on_the_way[number]

    def isr_on_the_way(self) -> list[frozenset[int]]:
        """Return each ISR of this leadership that was asked for and may still be granted."""
        return [
            swap.record.isr
            for swap in self._on_the_way.values()
            if swap.revision == self.revision
            and swap.record.leader_epoch == self.record.leader_epoch
            and all(self.broker_epoch(node) == epoch for node, epoch in swap.broker_epochs.items())
        ]

    def swap(self, swap: "Swap") -> None:
        self._on_the_way.pop(swap.number)
        self._compare(swap.revision)
        for node, epoch in sorted(swap.broker_epochs.items()):
            if self.broker_epoch(node) != epoch:
                raise Conflict(f"node {node} no longer has the broker epoch {epoch}")
        without_lease = swap.without_lease
        now = asyncio.get_running_loop().time()
        if without_lease is not None and now < self._seen[without_lease].lease_until:
            raise Conflict(f"node {without_lease} still has a lease")
        before, self.record = self.record, swap.record
        self.revision = self._tick()
        self.on_change(before, self.record)

    def announce(self, node: int, *, incarnation: int, replaces: int, log_id: int) -> None:
        seen = self._seen[node]
        if seen.incarnation not in (replaces, incarnation):
            raise Conflict(f"node {node} has another incarnation")
        if seen.incarnation != incarnation:
            seen.incarnation, seen.log_id, seen.epoch = incarnation, log_id, NOT_GRANTED
        seen.lease_until = asyncio.get_running_loop().time() + self._lease_s

    def grant(self, node: int, *, incarnation: int, revision: int) -> None:
        self._compare(revision)
        seen = self._seen[node]
        if seen.incarnation != incarnation or seen.epoch != NOT_GRANTED:
            raise Conflict(f"node {node} has another incarnation, or an epoch already")
        seen.epoch, seen.log_id_granted = self._tick(), seen.log_id
        self.on_grant(node, seen.log_id)

    async def ask(self, node: int, act: Callable[[], T], *, may_be_late: bool = False) -> T:
        """Carry a request of ``node`` here, and the answer back, if either arrives."""
        answer: asyncio.Future[T | Conflict] = asyncio.get_running_loop().create_future()

        def arrive() -> None:
            outcome: T | Conflict
            try:
                outcome = act()
            except Conflict as refusal:
                outcome = refusal
            self._carry(node, lambda: None if answer.done() else answer.set_result(outcome))

        is_late = may_be_late and self._dice.random() < self.lateness
        self._carry(node, arrive, late_ms_max=LATE_MS_MAX if is_late else 0)
        try:
            async with asyncio.timeout(TIMEOUT_MS / 1_000):
                outcome = await answer
        except TimeoutError:
            raise OutcomeUnknown("no answer") from None
        if isinstance(outcome, Conflict):
            raise outcome
        return outcome

    def _carry(self, node: int, arrive: Callable[[], None], *, late_ms_max: int = 0) -> None:
        """Bring something from or to a node after a while, unless it is lost."""

        def arrive_if_possible() -> None:
            if node not in self._cut:
                arrive()

        if self._dice.random() >= self.loss:
            delay_ms = self._dice.random() * self.delay_ms_max + self._dice.random() * late_ms_max
            asyncio.get_running_loop().call_later(delay_ms / 1_000, arrive_if_possible)

    def _compare(self, revision: int) -> None:
        if revision != self.revision:
            raise Conflict(f"the record has revision {self.revision}, not {revision}")

    def _tick(self) -> int:
        self._clock += 1
        return self._clock


@dataclass(frozen=True, slots=True)
class MetaDoor:
    """Satisfies `cluster.meta.MetaStore`."""

    meta: SimMeta
    node: int

    async def read(self) -> View:
        return await self.meta.ask(self.node, self.meta.view)

    async def swap(
        self,
        record: PartitionRecord,
        *,
        revision: int,
        broker_epochs: Mapping[int, int],
        without_lease: int | None = None,
    ) -> None:
        swap = self.meta.begin_swap(record, revision, broker_epochs, without_lease)
        await self.meta.ask(self.node, lambda: self.meta.swap(swap), may_be_late=True)

    async def announce(self, node: int, *, incarnation: int, replaces: int, log_id: int) -> None:
        await self.meta.ask(
            self.node, lambda: self.meta.announce(node, incarnation=incarnation, replaces=replaces, log_id=log_id)
        )

    async def grant(self, node: int, *, incarnation: int, revision: int) -> None:
        await self.meta.ask(self.node, lambda: self.meta.grant(node, incarnation=incarnation, revision=revision))
