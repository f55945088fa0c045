"""The random life of an embedded store on a machine that crashes, checked against its clients' books.

A life is a chain of processes on one disk. Each opens the store, compares its
counts with what the clients know, and lets several clients use every verb at
the same time. Then it closes in good order, is killed, loses power in the middle
of some operation of the disk, or stops because a sync failed; now and then the
disk has little room. `store_books.py` judges every answer as it comes.

The last process drains all queues, and the books must balance: what was counted
is what was drained, and what is missing was settled by a client. One more opens
the store after a power cut, and finds every queue empty, and in the history how each
message came to its end (`store_history.py`).

| queue   | what is special about it                            |
|---------|-----------------------------------------------------|
| plain   | changes its settings, pauses, is purged, buries,    |
|         | and keeps bodies in its history                     |
| fifo    | groups in order, one lease at a time for each       |
| once    | ids that are taken for a while, and aging           |
| live    | ids that are free again when settled, fair groups   |
| keeping | forgets what is old                                 |
| brief   | is deleted and made again, and keeps bodies, too    |

With several shards (`shards_life.py`) the dead letters are queues made beforehand,
and often in another shard than theirs.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from penstock.contract.queue_settings import DedupScope, History, QueueSettings
from penstock.core.queue.message import Drafts, DueTooLate, Sender
from penstock.core.queue.queue import QueueFull
from penstock.log.interface import LogBusy, LogFull, OffsetOutOfRange
from penstock.log.settings import LogSettings
from penstock.runtime.interface import Runtime
from penstock.store.embedded.body_index import BodyCache
from penstock.store.embedded.store import EmbeddedStore
from penstock.store.errors import QueueNotFound
from penstock.store.interface import Outcome, RedriveOrder, Release
from penstock.telemetry import HISTORY_AHEAD_OF_JOURNAL, STORE_UPKEEP_FAILED
from tests.simulation.clock import SimClock
from tests.simulation.log_life import tiny
from tests.simulation.loop import Unhandled, simulate
from tests.simulation.store_books import Books, Held, Send
from tests.simulation.store_history import check_totals, judge, read_rows
from tests.simulation.world import Died, Machine
from tests.waiting import elapse

FOLDER = "store"
PROCESSES = 7
CLIENTS = 5
HOUR_MS = 3_600_000
REPEATABLE_MAX = 8
REFUSALS = (LogBusy, LogFull, QueueFull)

RETRIES = QueueSettings(retention_ms=0, deliveries_max=3, backoff_ms_base=20, backoff_ms_max=200)
SETTINGS = {
    "plain": replace(RETRIES, size_max=120, history=History.FULL),
    "fifo": replace(RETRIES, is_fifo=True),
    "once": replace(
        RETRIES, deliveries_max=0, dedup_scope=DedupScope.WINDOW, dedup_window_ms=2_000, aging_ms=(0, 0, 0, 100, 200)
    ),
    "live": replace(RETRIES, dedup_scope=DedupScope.LIVE, delay_ms=5),
    "keeping": replace(RETRIES, retention_ms=1_500, deliveries_max=2),
    "brief": replace(RETRIES, deliveries_max=1, retention_ms=300, history=History.FULL),
}
QUEUES = tuple(SETTINGS)
# Made as all queues are, by their names, and often in another shard than the queue that they are for.
FAR = {f"{queue}.dead": QueueSettings(deliveries_max=0, retention_ms=0) for queue in QUEUES}
SETTINGS_FAR = {queue: replace(settings, deliveries_max=1) for queue, settings in SETTINGS.items()}
REDRIVEN = ("plain", "live")


def small() -> LogSettings:
    """As small as a log's, with room for a decision of the store while a segment is made."""
    return replace(tiny(), allocate_bytes=32_768, spare_bytes=65_536, commit_in_loop_bytes_max=1_000)


class Life:
    def __init__(self, seed: int, shards: Sequence[int] = (1,)) -> None:
        """Live with so many shards, and from some later process on with more."""
        self.dice = random.Random(f"store/{seed}")
        self.shards = list(shards)
        # Several are there for what moves between them.
        self.has_far_graves = self.shards != [1]
        self.settings = (SETTINGS_FAR | FAR) if self.has_far_graves else SETTINGS
        self.machine = Machine(seed)
        # Then every body comes from the disk off the loop, and answers overtake each other.
        self.machine.disk.cold = self.dice.random() < 0.5
        self.books = Books(
            retention_ms={queue: settings.retention_ms for queue, settings in SETTINGS.items()},
            fifo=frozenset({"fifo"}),
            dedup_window_ms={"once": SETTINGS["once"].dedup_window_ms},
            redriven=frozenset(REDRIVEN),
        )
        self.clients = [Client(self, number) for number in range(CLIENTS)]

    def now(self) -> None:
        self.books.tick(self.machine.clock.now_ms())

    async def live(self) -> None:
        disk = self.machine.disk
        for _ in range(PROCESSES):
            fault = self.dice.choice(["crash", "crash", "crash", "sync", "full", "none"])
            if fault == "crash":
                # Often so early that a process dies while it opens what the last one left half done.
                disk.crash_after = disk.operations + self.dice.randint(0, self.dice.choice([12, 120, 500]))
            elif fault == "sync":
                disk.fail_sync_after = self.dice.randint(0, 40)
            elif fault == "full":
                disk.capacity_bytes = disk.used_bytes() + self.dice.choice([0, 50_000, 250_000])
            await self.live_once(self.process)
            disk.capacity_bytes = None
            if len(self.shards) > 1 and self.dice.random() < 0.3:
                self.shards.pop(0)
            if self.dice.random() < 0.3:
                # No client was there to extend a lease, and no store to let it lapse.
                self.machine.clock.advance_ms(self.dice.choice([500, HOUR_MS]))
            elif self.dice.random() < 0.2:
                # Set back to where it was before it was ever moved forward.
                self.machine.clock = SimClock()
        disk.crash_after = disk.fail_sync_after = None
        await self.live_once(self.drain)
        await self.live_once(self.find_nothing)

    async def live_once(self, process: Callable[[EmbeddedStore], Awaitable[None]]) -> None:
        end = self.dice.choice(["close", "kill", "power cut"]) if process == self.process else "close"
        self.books.restart(self.machine.clock.now_ms())
        runtime = self.machine.start()
        try:
            await self.machine.run(self.run(runtime, process, end))
        except Died:
            end = self.dice.choice(["kill", "power cut"])
        except OffsetOutOfRange as error:
            raise AssertionError("something that is still needed was dropped") from error
        self.machine.kill() if end == "kill" else self.machine.power_cut()
        # Nothing here damages a snapshot, and a mistake in the upkeep is only logged.
        for event, fields in self.machine.log_events.events:
            assert event.name not in {"store.upkeep_failed", "store.snapshot_damaged"}, fields["error"]
        self.machine.log_events.events.clear()
        self.now()
        self.books.died()

    async def run(self, runtime: Runtime, process: Callable[[EmbeddedStore], Awaitable[None]], end: str) -> None:
        try:
            upkeep_ms = self.dice.choice([1, 20, 500])
            store = await EmbeddedStore.open(runtime, FOLDER, small(), shards=self.shards[0], upkeep_ms=upkeep_ms)
        except (LogFull, OSError):
            if self.machine.disk.capacity_bytes is None:
                raise
            return
        except Exception as error:
            raise AssertionError("a store that nothing has damaged was refused") from error
        if self.machine.disk.cold:
            for running in store._shards.running:
                running.shard.hot = BodyCache(0)
        self.books.opened(self.machine.clock.now_ms())
        await process(store)
        if end == "close":
            await store.close()

    async def process(self, store: EmbeddedStore) -> None:
        await self.check_counts(store)
        try:
            await self.create_all(store)
        except LogFull:
            return
        steps = self.dice.choice([5, 25, 60])
        async with asyncio.TaskGroup() as tasks:
            for client in self.clients:
                tasks.create_task(client.act(store, self.dice.randint(1, steps)))

    async def create_all(self, store: EmbeddedStore) -> None:
        for queue, settings in self.settings.items():
            try:
                await store.counts(queue)
            except QueueNotFound:
                await self.patiently(lambda queue=queue, settings=settings: store.create(queue, settings))  # type: ignore[misc]

    async def check_counts(self, store: EmbeddedStore) -> None:
        """All that must be there is there, with the dead letters, and no more than there can be."""
        for queue in QUEUES:
            live = await self.count(store, queue) + await self.count(store, f"{queue}.dead")
            self.now()
            least, most = self.books.certain(queue), self.books.possible(queue)
            assert least <= live <= most, f"{queue} has {live} messages; it must have {least} to {most}"

    async def count(self, store: EmbeddedStore, queue: str) -> int:
        try:
            return (await store.counts(queue)).live
        except QueueNotFound:
            return 0

    async def patiently(self, call: Callable[[], Awaitable[None]]) -> None:
        """Do something on a disk that may be busy."""
        while True:
            try:
                return await call()
            except LogBusy:
                await elapse(0.005)

    # The end.

    async def drain(self, store: EmbeddedStore) -> None:
        await self.check_counts(store)
        await self.create_all(store)
        for queue in QUEUES:
            kept = replace(self.settings[queue], retention_ms=0)
            await self.patiently(lambda queue=queue, kept=kept: store.change(queue, kept))  # type: ignore[misc]
        # All leases lapse and all delays ripen, and what is spent goes to the dead letters.
        self.now()
        kept_from_ms = self.books.high_ms
        self.machine.clock.advance_ms(HOUR_MS)
        await self.patiently(store.tidy)
        drained: set[str] = set()
        for queue in QUEUES:
            drained |= await self.drain_queue(store, queue)
            drained |= await self.drain_queue(store, f"{queue}.dead")
        # Nothing was forgotten for its age since.
        self.books.high_ms = kept_from_ms
        for message in self.books.messages.values():
            is_lost = message.id not in drained and not self.books.may_be_gone(message)
            assert not is_lost, f"{message.id} of {message.queue} is gone, but not settled"

    async def drain_queue(self, store: EmbeddedStore, queue: str) -> set[str]:
        counted = await self.count(store, queue)
        drained: list[str] = []
        while counted:
            self.now()
            call = self.books.begin(queue)
            delivery = await store.lease(queue, want=7, lease_ms=HOUR_MS)
            self.now()
            if delivery is None:
                break
            held = self.books.end_lease(call, delivery, HOUR_MS)
            drained += [each.message.id for each in held]
            for each in held:
                self.books.let_go(each, is_ack=True)
            assert await store.ack(queue, [each.receipt for each in held]) == [Outcome.DONE] * len(held)
            for each in held:
                self.books.answered(each, is_done=True)
        assert len(drained) == len(set(drained)) == counted, f"{queue} counts {counted} messages, not {len(drained)}"
        return set(drained)

    async def find_nothing(self, store: EmbeddedStore) -> None:
        for queue in QUEUES:
            for name in (queue, f"{queue}.dead"):
                assert await self.count(store, name) == 0, f"{name} was drained, and is not empty"
        rows = await read_rows(store)
        judge(self.books, rows, SETTINGS)
        check_totals(store, rows)
        self.check_notes()

    def check_notes(self) -> None:
        """Nothing went wrong behind the clients' backs."""
        for event, fields in self.machine.log_events.events:
            assert event not in (STORE_UPKEEP_FAILED, HISTORY_AHEAD_OF_JOURNAL), f"{event.name}: {fields}"


class Client:
    """One of several that use the store at the same time, and remember what they hold over a restart."""

    def __init__(self, life: Life, number: int) -> None:
        self._life = life
        self._books = life.books
        self._dice = life.dice
        self._number = number
        self._drafts = 0
        self._sequence = 0
        self._sends: list[Send] = []
        self._held: list[Held] = []

    async def act(self, store: EmbeddedStore, steps: int) -> None:
        verbs = [self.send, self.lease, self.ack, self.release, self.extend, self.repeat, self.tend]
        for _ in range(steps):
            weights = [8, 9, 2, 5, 2, 3, 8] if self._life.has_far_graves else [8, 9, 4, 3, 2, 3, 2]
            (verb,) = self._dice.choices(verbs, weights=weights)
            self._life.now()
            await verb(store)
            await elapse(self._dice.choice([0, 0, 0, 0.001, 0.02, 0.2]))

    async def send(self, store: EmbeddedStore) -> None:
        queue = self._dice.choice([*QUEUES, "plain.dead"])
        drafts = self._make_drafts(queue, self._dice.choice([1, 1, 2, 5, 12]))
        sender = None
        # A queue that is deleted forgets its senders.
        if queue != "brief" and self._dice.random() < 0.6:
            self._sequence += 1
            sender = Sender(self._number, 0, self._sequence)
        send = self._books.begin_send(queue, drafts, sender)
        if sender is not None:
            self._sends = [*self._sends, send][-REPEATABLE_MAX:]
        await self._try_send(store, send)

    async def repeat(self, store: EmbeddedStore) -> None:
        """Send again what was sent, or what a crash cut off."""
        if self._sends:
            send = self._dice.choice(self._sends)
            self._books.repeat_send(send)
            await self._try_send(store, send)

    async def _try_send(self, store: EmbeddedStore, send: Send) -> None:
        # Some do not wait for the first answer before they send again.
        times = 2 if send.sender is not None and self._dice.random() < 0.4 else 1
        async with asyncio.TaskGroup() as tasks:
            for _ in range(times):
                tasks.create_task(self._send_once(store, send))
        self._books.end(send, is_void=send.ids is None)

    async def _send_once(self, store: EmbeddedStore, send: Send) -> None:
        try:
            ids = await store.send(send.queue, send.drafts, sender=send.sender)
        except (*REFUSALS, QueueNotFound) as error:
            self._check_not_found(error, send.queue)
            return
        except DueTooLate as error:
            # All are due within the time that their queue keeps them, by any clock that does not go back.
            raise AssertionError(f"for {send.queue} it is earlier than it was") from error
        self._life.now()
        self._books.tell_ids(send, list(ids))

    def _make_drafts(self, queue: str, count: int) -> Drafts:
        dice = self._dice
        bodies = []
        for _ in range(count):
            self._drafts += 1
            name = f"{queue}/{self._number}/{self._drafts}".encode()
            bodies.append(name + b" " + dice.randbytes(dice.choice([0, 10, 100, 700])))
        has_ids, has_groups = queue in {"once", "live"}, queue in {"fifo", "live"}
        now_ms = self._books.low_ms
        # Clients that do the same thing at the same time.
        same = b"at %d" % (now_ms // 20)
        # What is due after its queue lets go of it would be refused.
        late_ms = 250 if queue == "brief" else 400
        return Drafts(
            bodies=bodies,
            tiers=bytes(dice.choices(range(5), k=count)) if dice.random() < 0.7 else None,
            visible_at_ms=[now_ms + dice.choice([0, 0, 30, late_ms]) for _ in bodies] if dice.random() < 0.3 else None,
            groups=[dice.choice([b"", b"a", b"b", b"c"]) for _ in bodies] if has_groups else None,
            dedup_ids=[dice.choice([b"", same, b"%d" % dice.randint(0, 40)]) for _ in bodies] if has_ids else None,
            attributes=[dice.randbytes(dice.choice([0, 9])) for _ in bodies] if dice.random() < 0.2 else None,
            # Dead letters have no dead letters of their own here.
            deliveries_max=[dice.choice([0, 1, 4]) for _ in bodies]
            if queue in QUEUES and dice.random() < 0.2
            else None,
        )

    async def lease(self, store: EmbeddedStore) -> None:
        queue = self._dice.choice(QUEUES)
        if self._dice.random() < 0.15:
            queue = f"{queue}.dead"
        lease_ms = self._dice.choice([1, 50, 1_000, 60_000])
        call = self._books.begin(queue)
        try:
            delivery = await store.lease(queue, want=self._dice.choice([1, 3, 10]), lease_ms=lease_ms)
        except (*REFUSALS, QueueNotFound) as error:
            self._check_not_found(error, queue)
            self._books.end(call, is_void=True)
            return
        except OffsetOutOfRange as error:
            raise AssertionError(f"a body of {queue} is gone") from error
        self._life.now()
        if delivery is None:
            self._books.end(call)
            return
        self._held += self._books.end_lease(call, delivery, lease_ms)

    def _check_not_found(self, error: Exception, queue: str) -> None:
        if isinstance(error, QueueNotFound):
            assert queue == "brief" or queue.endswith(".dead"), f"{queue} is gone"

    def _take(self) -> tuple[str, list[Held]]:
        """Choose some of what is held, of one queue."""
        if not self._held:
            return "", []
        queue = self._dice.choice(self._held).queue
        ours = [held for held in self._held if held.queue == queue]
        return queue, self._dice.sample(ours, self._dice.randint(1, len(ours)))

    async def ack(self, store: EmbeddedStore) -> None:
        queue, some = self._take()
        good = [self._books.is_good(held) for held in some]
        for held in some:
            self._books.let_go(held, is_ack=True)
        outcomes = await self._settle(queue, some, store.ack)
        for held, outcome, is_good in zip(some, outcomes, good, strict=False):
            assert outcome is Outcome.DONE or not is_good, f"{held.message.id} is held, and its receipt stale"
            self._books.answered(held, is_done=outcome is Outcome.DONE)
        if outcomes:
            self._held = [held for held in self._held if held not in some]

    async def release(self, store: EmbeddedStore) -> None:
        queue, some = self._take()
        delay_ms, error = self._dice.choice([None, 0, 100]), self._dice.choice(["", "it failed"])
        # None is given back untouched: the books take a delivery count that stays for a message delivered twice.
        is_rejected = self._dice.random() < 0.1
        good = [self._books.is_good(held) for held in some]
        for held in some:
            self._books.let_go(held, is_ack=False)
        outcomes = await self._settle(
            queue,
            some,
            lambda queue, receipts: store.release(
                queue, receipts, Release(delay_ms=delay_ms, error=error, is_rejected=is_rejected)
            ),
        )
        for held, outcome, is_good in zip(some, outcomes, good, strict=False):
            assert outcome is Outcome.DONE or not is_good, f"{held.message.id} is held, and its receipt stale"

    async def extend(self, store: EmbeddedStore) -> None:
        queue, some = self._take()
        lease_ms, from_ms = self._dice.choice([10, 500, 60_000]), self._books.low_ms
        good = [self._books.is_good(held) for held in some]
        for held in some:
            self._books.extend(held, from_ms=from_ms, lease_ms=lease_ms, is_done=False)
        outcomes = await self._settle(
            queue, some, lambda queue, receipts: store.extend(queue, receipts, lease_ms=lease_ms)
        )
        for held, outcome, is_good in zip(some, outcomes, good, strict=False):
            assert outcome is Outcome.DONE or not is_good, f"{held.message.id} is held, and its receipt stale"
            if outcome is Outcome.DONE:
                self._books.extend(held, from_ms=from_ms, lease_ms=lease_ms, is_done=True)

    async def _settle(
        self, queue: str, some: list[Held], verb: Callable[..., Awaitable[list[Outcome]]]
    ) -> list[Outcome]:
        if not some:
            return []
        try:
            outcomes = await verb(queue, [held.receipt for held in some])
        except (*REFUSALS, QueueNotFound) as error:
            self._check_not_found(error, queue)
            return []
        self._life.now()
        assert len(outcomes) == len(some)
        return outcomes

    async def tend(self, store: EmbeddedStore) -> None:
        """What an operator does, and what is due."""
        acts = [self._tidy, self._tidy, self._purge, self._change, self._recreate, self._redrive, self._forget]
        if self._life.has_far_graves:
            acts += [self._tidy, self._redrive] * 3
        act = self._dice.choice(acts)
        try:
            await act(store)
        except REFUSALS:
            pass

    async def _tidy(self, store: EmbeddedStore) -> None:
        await store.tidy()

    async def _empty(self, queue: str, verb: Callable[[str], Awaitable[object]]) -> None:
        call = self._books.begin_emptying(queue)
        try:
            await verb(queue)
        except (*REFUSALS, QueueNotFound) as error:
            self._check_not_found(error, queue)
            self._books.end(call, is_void=True)
            return
        self._books.end(call)

    async def _purge(self, store: EmbeddedStore) -> None:
        await self._empty(self._dice.choice(["plain", "live", "live.dead"]), store.purge)

    async def _recreate(self, store: EmbeddedStore) -> None:
        await self._empty("brief", store.delete)
        await store.create("brief", self._life.settings["brief"])

    async def _forget(self, store: EmbeddedStore) -> None:
        """Delete dead letters. Their queue is made again when it is needed, or when the next process begins."""
        await self._empty(self._dice.choice(["brief.dead", "keeping.dead"]), store.delete)

    async def _redrive(self, store: EmbeddedStore) -> None:
        queue = self._dice.choice(REDRIVEN)
        try:
            redriven = await store.redrive(f"{queue}.dead", RedriveOrder(most=self._dice.choice([1, 5, 20])))
        except QueueNotFound:
            return
        assert set(redriven.moved) <= {queue}, f"{queue}.dead went to {list(redriven.moved)}"

    async def _change(self, store: EmbeddedStore) -> None:
        dice = self._dice
        changed = replace(
            self._life.settings["plain"],
            is_paused=dice.random() < 0.2,
            is_strict=dice.random() < 0.3,
            deliveries_max=dice.randint(0, 4),
            weights=tuple(dice.sample(range(1, 20), 5)),
        )
        await store.change("plain", changed)


def run(seed: int) -> None:
    """Live one life; raises what went wrong."""

    async def main() -> None:
        await Life(seed).live()

    try:
        simulate(main, seed=seed)
    except Unhandled as error:
        raise AssertionError("a job went wrong, or a child, on a disk that nothing has damaged") from error
