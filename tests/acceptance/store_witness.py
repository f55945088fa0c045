"""Remembers what the users of a store were told, and compares the store with it.

What must hold, however often the process died
----------------------------------------------
1. Each message whose send was acknowledged is there, unless an ack of it was tried.
2. A message whose ack was acknowledged never comes back.
3. Each message that is there was sent, under one id for ever.
4. Each delivery of a message counts more than those told before it.
5. The history tells how each message that is gone came to its end, once, and nothing else.

A delivery that was under way while another was told may be told after it, so the
third and fourth are checked between rounds, not between lines.
"""

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from penstock.contract.messages import MessageOutcome
from penstock.core.queue.events import Copied
from penstock.log import record
from penstock.runtime.system import SystemClock, ThreadWorkers, halt, system_runtime
from penstock.store.embedded.shard_state import entries
from penstock.store.embedded.store import EmbeddedStore
from penstock.store.interface import Delivery, Outcome, Release
from penstock.telemetry import LOG_SEGMENT_DROPPED, STORE_SNAPSHOT_MADE, STORE_UPKEEP_FAILED
from tests.acceptance.store_worker import GRAVE, QUEUE, counts_of, create_queues, journal_settings, name_of
from tests.simulation.store_history import Row, check_totals, ends, read_rows

HOUR_MS = 3_600_000
READ_BYTES = 1_000_000


class MovableClock(SystemClock):
    """The real clock, moved forward by as much as a test says."""

    ahead_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.ahead_ms


@dataclass
class StoreWitness:
    shards: int = 1
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
    # Id by name, of what was told when the power was being cut: it may be so.
    doubtful: dict[str, str] = field(default_factory=dict)
    # What the stores noted about themselves.
    notes: Counter[str] = field(default_factory=Counter)
    # By shard and offset: what was found to be copied forward.
    copies: set[tuple[int, int]] = field(default_factory=set)
    # How many processes were making a snapshot when their parent was killed.
    orphans: int = 0

    @property
    def snapshots(self) -> int:
        return self.notes[STORE_SNAPSHOT_MADE.name]

    @property
    def dropped(self) -> int:
        return self.notes[LOG_SEGMENT_DROPPED.name]

    def figures(self) -> str:
        """Say what happened, for a report."""
        return (
            f"{self.runs} rounds, {len(self.sent)} sent, {len(self.acked)} acked, {self.snapshots} snapshots, "
            f"{self.dropped} segments dropped, {len(self.copies)} copies found, {self.orphans} children orphaned"
        )

    def next_run(self) -> int:
        self.runs += 1
        return self.runs

    def hear(self, line: str) -> None:
        match line.split():
            case ["open", at_ns]:
                # Upkeep begins while the rest is being opened.
                assert all(fact == "note" for _, fact, _ in self.told), "the last round was not ended"
                self.told.append((int(at_ns), "open", ()))
            case ["try-ack", *names]:
                self.tried.update(names)
            case [fact, at_ns, *words]:
                self.told.append((int(at_ns), fact, tuple(words)))

    def end_round(self, cut_at_ns: int | None = None) -> None:
        """Believe what was told before the power was cut, if it was.

        A file system that is being shut down may let an fsync that is under way
        succeed for nothing. A machine without power would not have answered.
        """
        for at_ns, fact, words in self.told:
            if cut_at_ns is None or at_ns < cut_at_ns:
                self._believe(fact, words)
            elif fact in ("sent", "got"):
                self.doubtful[words[-1]] = words[-2]
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
            case "note", (note, *details):
                assert note != STORE_UPKEEP_FAILED.name, " ".join(details).replace("\\n", "\n")
                self.notes[note] += 1

    def _know(self, each: str, name: str) -> None:
        assert self.sent.setdefault(name, each) == each, f"{name} is {self.sent[name]} and {each}"

    async def check(self, folder: Path, *, keep: float = 0.5) -> int:
        """Lease all that is there, compare it, ack all but a part of it, and return how many messages there were."""
        clock = MovableClock()
        async with self._open(folder, clock) as store:
            await create_queues(store)
            await self._find_copies(store)
            # The holders of messages have died: let every lease lapse, and every delay ripen.
            clock.ahead_ms = 2 * HOUR_MS
            await store.tidy()
            live = {queue: (await store.counts(queue)).live for queue in (QUEUE, GRAVE)}
            found = {queue: await _lease_all(store, queue) for queue in live}
            self._compare([row for deliveries in found.values() for delivery in deliveries for row in _rows(delivery)])
            leased = {queue: sum(map(len, deliveries)) for queue, deliveries in found.items()}
            assert leased == live, f"{live} were counted, {leased} delivered"
            for queue, deliveries in found.items():
                for delivery in deliveries:
                    await self._give_back(store, queue, delivery, keep)
        return sum(live.values())

    async def check_end(self, folder: Path) -> None:
        """Ack all that is there; then nothing is, and the history tells of every message."""
        await self.check(folder, keep=0)
        assert await self.check(folder) == 0
        async with self._open(folder, MovableClock()) as store:
            rows = await read_rows(store)
            check_totals(store, rows)
        self._compare_history(rows)

    def _compare_history(self, rows: list[Row]) -> None:
        last = ends(rows)
        untold = set(self.sent.values()) - last.keys()
        assert not untold, f"gone, and the history does not tell of them: {sorted(untold)[:5]}"
        names = {each: name for name, each in (self.doubtful | self.sent).items()}
        unknown = last.keys() - names.keys()
        assert not unknown, f"in the history, but never sent: {sorted(unknown)[:5]}"
        for row in rows:
            assert row.ending in (MessageOutcome.ACKED, MessageOutcome.BURIED, MessageOutcome.REDRIVEN), (
                f"no verb did that: {row}"
            )
            assert (row.body is not None) == (row.queue == QUEUE), f"is the body to be kept? {row}"
            assert row.body is None or name_of(memoryview(row.body)) == names[row.message], f"not its body: {row}"
        for each, row in last.items():
            told = self.before.get(names[each], 0)
            is_so = row.deliveries == told or (row.deliveries > told and names[each] in self.doubtful)
            assert is_so, f"{names[each]} ended at delivery {row.deliveries}, not {told}"

    @asynccontextmanager
    async def _open(self, folder: Path, clock: MovableClock) -> AsyncIterator[EmbeddedStore]:
        async with ThreadWorkers(1, halt) as workers:
            runtime = replace(system_runtime(folder.parent, workers), clock=clock)
            async with await EmbeddedStore.open(runtime, folder.name, journal_settings(), shards=self.shards) as store:
                yield store

    async def _find_copies(self, store: EmbeddedStore) -> None:
        for index, shard in enumerate(store._shards.all):
            offset = shard.log.start_offset
            while offset < shard.log.durable_offset:
                for batch in await shard.log.read(offset, bytes_max=READ_BYTES):
                    found = entries(batch)
                    self.copies |= {(index, entry.offset) for entry in found if isinstance(entry.event, Copied)}
                    offset = record.header(batch).next_offset

    def _compare(self, rows: list[tuple[int, str, str]]) -> None:
        for count, each, name in rows:
            self._believe("got", (str(count), each, name))
        found = [name for _, _, name in rows]
        assert len(set(found)) == len(found), "a message was delivered twice under leases that run"
        returned = self.acked.intersection(found)
        assert not returned, f"acked, and came back: {sorted(returned)[:5]}"
        missing = set(self.sent) - self.tried - set(found)
        assert not missing, f"gone, but not acked: {sorted(missing)[:5]}"
        self.end_round()

    async def _give_back(self, store: EmbeddedStore, queue: str, delivery: Delivery, keep: float) -> None:
        kept = int(len(delivery) * keep)
        names = [name_of(body) for body in delivery.bodies][kept:]
        receipts = delivery.receipts()
        assert await store.release(queue, receipts[:kept], Release(delay_ms=0)) == [Outcome.DONE] * kept
        assert await store.ack(queue, receipts[kept:]) == [Outcome.DONE] * len(names)
        self.tried.update(names)
        self.acked.update(names)


async def _lease_all(store: EmbeddedStore, queue: str) -> list[Delivery]:
    found: list[Delivery] = []
    while (delivery := await store.lease(queue, want=500, lease_ms=HOUR_MS)) is not None:
        found.append(delivery)
    return found


def _rows(delivery: Delivery) -> list[tuple[int, str, str]]:
    return list(zip(counts_of(delivery), delivery.ids, map(name_of, delivery.bodies), strict=True))
