"""Remembers what the users of a store were told, and compares the store with it.

What must hold, however often the process died
----------------------------------------------
1. Each message whose send was acknowledged is there, unless an ack of it was tried.
2. A message whose ack was acknowledged never comes back.
3. Each message that is there was sent, under one id for ever.
4. Each delivery of a message counts more than those told before it.

A delivery that was under way while another was told may be told after it, so the
third and fourth are checked between rounds, not between lines.
"""

from dataclasses import dataclass, field, replace
from pathlib import Path

from penstock.runtime.system import SystemClock, halt, system_runtime
from penstock.runtime.workers import ThreadWorkers
from penstock.store.embedded.store import EmbeddedStore
from penstock.store.interface import Delivery, Outcome
from tests.acceptance.store_worker import QUEUE, SETTINGS, name_of
from tests.acceptance.writer import small

HOUR_MS = 3_600_000


class MovableClock(SystemClock):
    """The real clock, moved forward by as much as a test says."""

    ahead_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.ahead_ms


@dataclass
class StoreWitness:
    # Id by name.
    sent: dict[str, str] = field(default_factory=dict)
    tried: set[str] = field(default_factory=set)
    acked: set[str] = field(default_factory=set)
    # The greatest number of deliveries told before this round, and in it.
    before: dict[str, int] = field(default_factory=dict)
    deliveries: dict[str, list[int]] = field(default_factory=dict)
    # What this round told, and when: a power cut makes the last of it uncertain.
    told: list[tuple[int, str, tuple[str, ...]]] = field(default_factory=list)
    runs: int = 0

    def next_run(self) -> int:
        self.runs += 1
        return self.runs

    def hear(self, line: str) -> None:
        match line.split():
            case ["open", at_ns]:
                assert not self.told, "the last round was not ended"
                self.told.append((int(at_ns), "open", ()))
            case ["try-ack", *names]:
                self.tried.update(names)
            case [fact, at_ns, *words]:
                self.told.append((int(at_ns), fact, tuple(words)))

    def end_round(self, cut_at_ns: int | None = None) -> None:
        """Believe what was told before the power was cut, if it was.

        A file system that is being shut down may let an fsync that is under way
        succeed for nothing. Nobody would have heard of it from a machine without power.
        """
        for at_ns, fact, words in self.told:
            if cut_at_ns is None or at_ns < cut_at_ns:
                self._believe(fact, words)
        self.told.clear()
        for name, counts in self.deliveries.items():
            assert len(set(counts)) == len(counts), f"two deliveries of {name} have one number: {counts}"
            assert min(counts) > self.before.get(name, 0), f"{name}: {counts} deliveries after {self.before[name]}"
            self.before[name] = max(counts)
        self.deliveries.clear()

    def _believe(self, fact: str, words: tuple[str, ...]) -> None:
        match fact, words:
            case "sent", (each, name):
                self._know(each, name)
            case "got", (count, each, name):
                self._know(each, name)
                self.deliveries.setdefault(name, []).append(int(count))
            case "ack", names:
                self.acked.update(names)

    def _know(self, each: str, name: str) -> None:
        assert self.sent.setdefault(name, each) == each, f"{name} is {self.sent[name]} and {each}"

    async def check(self, folder: Path, *, keep: float = 0.5) -> int:
        """Lease all that is there, compare it, ack all but a part of it, and return how many messages there were."""
        clock = MovableClock()
        async with ThreadWorkers(1, halt) as workers:
            runtime = replace(system_runtime(folder.parent, workers), clock=clock)
            async with await EmbeddedStore.open(runtime, folder.name, small(segment_bytes_max=65_536)) as store:
                await store.create(QUEUE, SETTINGS)
                # Whoever held a message has died: let every lease lapse, and every delay ripen.
                clock.ahead_ms = 2 * HOUR_MS
                live = (await store.counts(QUEUE)).live
                deliveries = await _lease_all(store)
                self._compare([row for delivery in deliveries for row in _rows(delivery)])
                assert sum(map(len, deliveries)) == live, f"{live} were counted, {sum(map(len, deliveries))} delivered"
                for delivery in deliveries:
                    await self._give_back(store, delivery, keep)
        return live

    def _compare(self, rows: list[tuple[int, str, str]]) -> None:
        for count, each, name in rows:
            self._believe("got", (str(count), each, name))
        found = [name for _, _, name in rows]
        assert len(set(found)) == len(found), "a message was delivered twice under leases that run"
        returned = self.acked.intersection(found)
        assert not returned, f"acked, and came back: {sorted(returned)[:5]}"
        missing = set(self.sent) - self.tried - set(found)
        assert not missing, f"gone, and nobody acked them: {sorted(missing)[:5]}"
        self.end_round()

    async def _give_back(self, store: EmbeddedStore, delivery: Delivery, keep: float) -> None:
        kept = int(len(delivery) * keep)
        names = [name_of(body) for body in delivery.bodies][kept:]
        receipts = delivery.receipts()
        assert await store.release(QUEUE, receipts[:kept], delay_ms=0) == [Outcome.DONE] * kept
        assert await store.ack(QUEUE, receipts[kept:]) == [Outcome.DONE] * len(names)
        self.tried.update(names)
        self.acked.update(names)


async def _lease_all(store: EmbeddedStore) -> list[Delivery]:
    found: list[Delivery] = []
    while (delivery := await store.lease(QUEUE, want=500, lease_ms=HOUR_MS)) is not None:
        found.append(delivery)
    return found


def _rows(delivery: Delivery) -> list[tuple[int, str, str]]:
    return list(zip(delivery.deliveries, delivery.ids, map(name_of, delivery.bodies), strict=True))
