"""Queues in a PostgreSQL database: the verbs of `store.interface.QueueStore`.

Every verb has the same shape: the queue as this process knows it, one statement, an
answer. The statement is a transaction of its own, so an answer is durable when it
comes. What may be leased, and what becomes of it, is carried out by functions in the
database (`sql/`); what is allowed, and how tiers share, is decided by `core`.

Any number of processes may use one database. Each has this object, and they know of
each other only through the database.
"""

import asyncio
import struct
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Self, TypeVar

from penstock.contract.limits import PAGE_MAX
from penstock.contract.queue_settings import QueueSettings, check_settings
from penstock.core.queue.events import Tally
from penstock.core.queue.message import Drafts, Receipt, Receipts, Sender, fault
from penstock.runtime.interface import Clock, Dice, Histogram, LogEventWriter, Timings
from penstock.store.errors import QueueNotFound
from penstock.store.ids import parse_queue
from penstock.store.interface import (
    EVERY_MESSAGE,
    RELEASE,
    UNTOUCHED,
    Counts,
    Delivery,
    Description,
    Escalation,
    EscalationOrder,
    Explained,
    Message,
    MessageFilter,
    Outcome,
    Page,
    Redrive,
    RedriveOrder,
    Release,
    Remains,
    check_ids,
    check_most,
)
from penstock.store.pages import HistoryPage, HistoryRange, HistorySpan, LivePage
from penstock.store.postgres import lease, listing, operations, queries, send, settle
from penstock.store.postgres.connection import CommitUnconfirmed, ConnectionLost
from penstock.store.postgres.database import Database, PostgresSettings
from penstock.store.postgres.durability import CommitState
from penstock.store.postgres.errors import quiet, retry_on_lock
from penstock.store.postgres.history import HistoryReader
from penstock.store.postgres.leadership import Leadership, following_of
from penstock.store.postgres.maintenance import Maintenance
from penstock.store.postgres.operations import PostgresRedrives
from penstock.store.postgres.queries import ExplainRequest, QueueNames, Summaries, explain
from penstock.store.postgres.queue_admin import QueueChanges
from penstock.store.postgres.queue_cache import CachedQueue, QueueCache
from penstock.store.postgres.shared_tables import KeyTable, NodeTable, PostgresAuditLog

T = TypeVar("T")
# Where names of queues are told to other servers, this begins what is not one: no queue is called so.
_TOPIC = "/"
# Of leases that were not confirmed so many are given back; others lapse.
_UNHEARD_MAX = 1_000


# How many leases are remembered to tell how long their messages were handled.
_LEASES_REMEMBERED = 20_000


class LeaseTimes:
    """When this process made its latest leases. An ack of another lease is not measured."""

    def __init__(self, handling: Histogram) -> None:
        self._handling = handling
        self._leased_at_ms: dict[int, int] = {}

    def leased(self, lease: int | None, now_ms: int) -> None:
        if lease is None:
            return
        if len(self._leased_at_ms) >= _LEASES_REMEMBERED:
            del self._leased_at_ms[next(iter(self._leased_at_ms))]
        self._leased_at_ms[lease] = now_ms

    def acked(self, receipts: Sequence[Receipt], outcomes: Sequence[Outcome], now_ms: int) -> None:
        if isinstance(receipts, Receipts):
            counts = Counter({receipts.lease: outcomes.count(Outcome.DONE)})
        else:
            pairs = zip(receipts, outcomes, strict=True)
            counts = Counter(receipt.lease for receipt, outcome in pairs if outcome is Outcome.DONE)
        for number, count in counts.items():
            leased_at_ms = self._leased_at_ms.get(number)
            if leased_at_ms is not None and count:
                self._handling.add((now_ms - leased_at_ms) / 1_000, count)


class PostgresStore:
    """Satisfies `store.interface.QueueStore`; see there for what the verbs promise."""

    def __init__(self, settings: PostgresSettings, *, clock: Clock, dice: Dice, timings: Timings | None = None) -> None:
        self._clock = clock
        self._handling = LeaseTimes((timings or Timings()).handling)
        self._dice = dice
        self._database = Database(settings)
        self._cache = QueueCache(self._database)
        self._maintenance = Maintenance(self._database, self._cache, self.now_ms, self._wake)
        self._changes = QueueChanges(self._database, self._cache, self._maintenance, self.now_ms, dice, self._wake)
        self._history = HistoryReader(self._database, self.now_ms)
        self._summaries = Summaries(self._database, self._cache, self._maintenance, self.now_ms)
        self._leadership = Leadership(
            self._database, now_ms=self.now_ms, turn=self._maintenance.turn, tidy=self._maintenance.tidy,
            wake=self._wake_watchers, clock=following_of(clock),
        )  # fmt: skip
        self._watchers: list[Callable[[str], None]] = []
        # Of partitions of topics, by their keys.
        self._topic_watchers: list[Callable[[str | None], None]] = []
        self._names = QueueNames(self._database)
        self.redrives = PostgresRedrives(self._database)
        self.keys = KeyTable(self._database)
        self.nodes = NodeTable(self._database, self.now_ms)
        # Leases that were not confirmed in time: by queue and token. No consumer has their receipts.
        self._unheard: list[tuple[str, int]] = []
        # Leases whose receipts this process is settling: another settling of the same waits its turn.
        self._settling: dict[int, asyncio.Future[None]] = {}

    @classmethod
    async def open(  # noqa: PLR0913 - what it keeps, what it is given of the world, and what it may do.
        cls,
        settings: PostgresSettings,
        *,
        clock: Clock,
        dice: Dice,
        may_migrate: bool = True,
        has_upkeep: bool = True,
        log_event: LogEventWriter = quiet,
        timings: Timings | None = None,
    ) -> "PostgresStore":
        """Connect, and bring the schema up to date if that is allowed. What it waits for is logged.

        Raises `NotDurable`, `SchemaMissing`, and `ConnectionLost` if there is no such database.
        """
        store = cls(settings, clock=clock, dice=dice, timings=timings)
        try:
            await store._leadership.open(may_migrate=may_migrate, log_event=log_event)
            await store._maintenance.turn()
            await store._history.look()
            store._leadership.durability_warnings += await store._history.durability_warnings()
        except BaseException:
            await store.close()
            raise
        if has_upkeep:
            store._leadership.start(store._summaries.counting.run)
        return store

    @property
    def durability_warnings(self) -> Sequence[str]:
        """What the server is configured to do that a store of queues would rather not."""
        return self._leadership.durability_warnings

    @property
    def commits(self) -> CommitState:
        """What confirms commits now."""
        return self._database.gate.state()

    def audit_log(self, *, bytes_max: int, age_ms_max: int) -> PostgresAuditLog:
        """The audit log that all stores of the database share; the one that leads trims it."""
        # Behind a pooler none leads.
        is_pooled = self._database.settings.is_pooled
        return PostgresAuditLog(
            self._database,
            self._dice,
            lambda: is_pooled or self._leadership.is_leader,
            bytes_max=bytes_max,
            age_ms_max=age_ms_max,
        )

    async def close(self) -> None:
        await self._leadership.close()
        await self._database.close()

    async def simulate_crash(self) -> None:
        """Be seen no more by other stores, as one whose process has died: for tests of what they do then."""
        await self._leadership.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # Queues.

    async def create(self, queue: str, settings: QueueSettings) -> None:
        await self._changes.create(queue, settings)

    async def change(self, queue: str, settings: QueueSettings) -> None:
        check_settings(queue, settings)
        await self._cache.get(queue, is_fresh=True)
        await self._alone(queue, lambda known: self._changes.change(known, settings))

    async def delete(self, queue: str, *, with_dead_letters: bool = False) -> Remains:
        return await self._alone(queue, lambda known: self._changes.delete(known, with_dead_letters=with_dead_letters))

    async def _alone(self, queue: str, verb: Callable[[CachedQueue], Awaitable[T]]) -> T:
        """Make a verb that has the queue for itself. Between two tries, others are let in."""
        return await retry_on_lock(
            lambda: self._cache.run(queue, verb, is_alone=True), self._database.settings.timing.retries_s
        )

    async def queues(self, *, prefix: str = "", after: str = "", most: int = PAGE_MAX) -> list[str]:
        check_most(most)
        if "\0" in prefix:
            return []
        # No name has a NUL, so what comes after a text with one comes after what is before it.
        rows = await self._database.ask("list_queues", prefix=prefix, after=after.partition("\0")[0], most=most)
        return [name for (name,) in rows]

    async def describe(self, queue: str) -> Description:
        return (await self._summary(queue))[0]

    async def summaries(self, queues: Sequence[str]) -> list[tuple[Description, Counts] | None]:
        return await self._summaries.of(queues)

    async def _summary(self, queue: str) -> tuple[Description, Counts]:
        (found,) = await self._summaries.of([queue])
        if found is None:
            raise QueueNotFound(f"there is no queue {queue!r}")
        return found

    async def name(self, queue_id: str) -> str:
        number = parse_queue(queue_id)
        rows = [] if number is None or number >= 2**31 else await self._database.ask("queue_by_number", number)
        if not rows:
            raise QueueNotFound(f"there is no queue with the id {queue_id!r}")
        return str(rows[0][0])

    # Time and waking.

    def now_ms(self) -> int:
        return max(self._clock.now_ms(), self._leadership.latest_time_ms)

    def watch(self, wake: Callable[[str], None]) -> None:
        self._watchers.append(wake)

    def watch_full_dead_letters(self, tell: Callable[[str, str], None]) -> None:
        self._maintenance.tell_full = tell

    def has_ready(self, queue: str) -> bool:  # noqa: ARG002 - it does not know, of any.
        return True

    async def wakes_at_ms(self, queue: str) -> int | None:
        known = await self._present(queue)
        if known.settings.is_paused:
            return None
        (at_ms,) = await self._database.call("wakes_at_ms", known.number, known.looked_until_ms)
        if at_ms is None:
            return None
        # What is due but locked by a transaction is not polled continuously.
        return max(int(at_ms), known.due_ms) if known.is_held else int(at_ms)

    def _wake(self, queue: str) -> None:
        """Call the watchers of this process, and notify the other ones."""
        self._leadership.tell(queue)
        self._wake_watchers(queue)

    def tell_of_topic(self, key: str) -> None:
        """Let other servers know that there is more in a partition of a topic."""
        self._leadership.tell(_TOPIC + key)

    def watch_topics(self, wake: Callable[[str | None], None]) -> None:
        """Have this called when another server has told of a partition; with None if any may have more."""
        self._topic_watchers.append(wake)

    @property
    def database(self) -> Database:
        """The pool of connections, for what else is kept in the database."""
        return self._database

    @property
    def leads(self) -> bool:
        """Whether this server is the one that runs maintenance. Behind a pooler each does."""
        return self._database.settings.is_pooled or self._leadership.is_leader

    def _wake_watchers(self, queue: str | None) -> None:
        if queue is None or queue.startswith(_TOPIC):
            key = None if queue is None else queue.removeprefix(_TOPIC)
            for tell in self._topic_watchers:
                tell(key)
            if queue is not None:
                return
        for name in [known.name for known in self._cache.all] if queue is None else [queue]:
            for wake in self._watchers:
                wake(name)

    async def _present(self, queue: str, *, with_others: bool = False) -> CachedQueue:
        """Return a queue as it is in the database, moved to the present by one turn, and by what others do."""
        known = await self._cache.get(queue, is_fresh=True)
        if with_others:
            await self._maintenance.advance_a_turn_with_others(known)
        elif known.is_due(self.now_ms()):
            await self._maintenance.advance_a_turn(known)
        return known

    # The life of a message.

    async def send(self, queue: str, drafts: Drafts, *, sender: Sender | None = None) -> Sequence[str]:
        try:
            if not len(drafts):
                await self._cache.get(queue, is_fresh=True)
                return []
            return await self._cache.run(queue, lambda known: self._send(known, drafts, sender))
        except (TypeError, AttributeError, OverflowError, struct.error) as error:
            raise fault(drafts) or error from error

    async def _send(self, known: CachedQueue, drafts: Drafts, sender: Sender | None) -> Sequence[str]:
        ids = await send.send(self._database, known, drafts, sender, now_ms=self.now_ms(), operation=self._dice.token())
        self._wake(known.name)
        return ids

    async def lease(self, queue: str, *, want: int, lease_ms: int | None = None) -> Delivery | None:
        lease.check_lease(want, lease_ms)
        if self._unheard:
            await self._give_back_unheard()
        delivery, has_spent = await self._cache.run(queue, lambda known: self._lease(known, want, lease_ms))
        if has_spent:
            await self._cache.run(queue, self._bury)
            if delivery is None:
                # What was behind it in its group may be next.
                delivery, _ = await self._cache.run(
                    queue, lambda known: self._lease(known, want, lease_ms, is_again=True)
                )
        return delivery

    async def _lease(
        self, known: CachedQueue, want: int, lease_ms: int | None, *, is_again: bool = False
    ) -> tuple[Delivery | None, bool]:
        token, now_ms, length_ms = self._dice.token(), self.now_ms(), lease_ms or known.settings.lease_ms
        if known.settings.is_paused:
            await self._cache.check(known)
            return None, False
        if known.has_spent and known.settings.is_fifo:
            await self._bury(known)
        asked = lease.LeaseRequest(want, length_ms, token, now_ms, is_again)
        try:
            found = await lease.lease(self._database, known, asked)
        except ConnectionLost:
            await self._give_back(known, token)
            found = await lease.lease(self._database, known, asked)
        except CommitUnconfirmed:
            self._unheard = [*self._unheard[-_UNHEARD_MAX:], (known.name, token)]
            raise
        if not found.length:
            return None, known.has_spent
        if found.homes is not None:
            await self._names.learn({home for home in found.homes if home is not None})
        self._handling.leased(found.lease, now_ms)
        delivery = lease.delivery(known, found, token=token, until_ms=now_ms + length_ms, name_of=self._names.of)
        return delivery, known.has_spent

    async def _bury(self, known: CachedQueue) -> None:
        """Bury some of what is spent, and on a FIFO queue all: others wait behind it."""
        most = lease.ADVANCE_MOST_OF_A_LEASE
        while await self._maintenance.bury(known, most=most) == most and known.settings.is_fifo:
            pass
        # What is left, and what has no room there, is found when the clock is looked at next.
        known.has_spent = False

    async def _give_back_unheard(self) -> None:
        """Undo leases that were made while no standby confirmed them."""
        self._database.gate.check()
        while self._unheard:
            queue, token = self._unheard.pop()
            with suppress(QueueNotFound):
                await self._cache.run(queue, partial(self._give_back, token=token))

    async def _give_back(self, known: CachedQueue, token: int) -> None:
        """Undo a lease whose answer was lost, if it was made: no consumer has its receipts."""
        for number, rows in await self._database.ask("lease_by_token", known.number, token):
            receipts = [Receipt(number, token, row) for row in rows]
            await self._release(known, receipts, UNTOUCHED)

    async def ack(self, queue: str, receipts: Sequence[Receipt], *, outlives: bool = False) -> list[Outcome]:
        async def ack(known: CachedQueue) -> list[Outcome]:
            outcomes = await settle.ack(
                self._database, known, receipts, outlives=outlives, period=self._maintenance.period,
                now_ms=self.now_ms(), operation=self._dice.token(),
            )  # fmt: skip
            self._handling.acked(receipts, outcomes, self.now_ms())
            if known.settings.is_fifo and Outcome.DONE in outcomes:
                self._wake(known.name)
            return outcomes

        return await self._settle(queue, receipts, ack)

    async def ack_and_lease(
        self, queue: str, receipts: Sequence[Receipt], *, want: int, lease_ms: int | None = None
    ) -> tuple[list[Outcome], Delivery | None]:
        lease.check_lease(want, lease_ms)
        return await self.ack(queue, receipts), await self.lease(queue, want=want, lease_ms=lease_ms)

    async def release(self, queue: str, receipts: Sequence[Receipt], how: Release = RELEASE) -> list[Outcome]:
        return await self._settle(queue, receipts, lambda known: self._release(known, receipts, how))

    async def _release(self, known: CachedQueue, receipts: Sequence[Receipt], how: Release) -> list[Outcome]:
        outcomes = await settle.release(
            self._database, known, receipts, how, dice=self._dice, now_ms=self.now_ms(), operation=self._dice.token()
        )
        if Outcome.DONE in outcomes:
            self._wake(known.name)
        return outcomes

    async def extend(
        self, queue: str, receipts: Sequence[Receipt], *, lease_ms: int, outlives: bool = False
    ) -> list[Outcome]:
        lease.check_lease(1, lease_ms)
        if outlives:
            # A lease that has lapsed this instant, in any process, has to be among the waiting messages.
            await self._present(queue, with_others=True)

        async def extend(known: CachedQueue) -> list[Outcome]:
            now_ms = self.now_ms()
            is_sooner = now_ms + lease_ms < known.due_ms
            outcomes = await settle.extend(
                self._database, known, receipts, lease_ms=lease_ms, outlives=outlives, now_ms=now_ms
            )
            if is_sooner and Outcome.DONE in outcomes:
                self._wake(known.name)
            return outcomes

        return await self._settle(queue, receipts, extend)

    async def _settle(
        self, queue: str, receipts: Sequence[Receipt], verb: Callable[[CachedQueue], Awaitable[list[Outcome]]]
    ) -> list[Outcome]:
        """Settle receipts, after those of the same leases that this process was asked to settle before."""
        if not receipts:
            await self._cache.get(queue, is_fresh=True)
            return []
        leases = settle.leases_of(receipts)
        while busy := [self._settling[lease] for lease in leases if lease in self._settling]:
            await asyncio.wait(busy)
        done = asyncio.get_running_loop().create_future()
        self._settling.update(dict.fromkeys(leases, done))
        try:
            return await self._cache.run(queue, verb)
        finally:
            for lease in leases:
                del self._settling[lease]
            done.set_result(None)

    async def purge(self, queue: str) -> int:
        begun = await self._alone(queue, self._changes.begin_purge)
        tally = self._cache.tally_of(queue) or self._cache.tally((await self._cache.get(queue)).number)
        tally.purged += begun.settled
        return await self._maintenance.purge(queue, begun)

    def tally(self, queue: str) -> Tally | None:
        return self._cache.tally_of(queue)

    # What can be asked.

    async def counts(self, queue: str) -> Counts:
        return (await self._summary(queue))[1]

    async def peek(self, queue: str, sought: MessageFilter = EVERY_MESSAGE, *, most: int, after: str = "") -> Page:
        check_most(most)
        known = await self._present(queue)
        await self._names.learn_homes(known)
        walk = listing.Walk(self._database, known, sought, self.now_ms())
        return await listing.peek(walk, most=most, after=after, name_of=self._names.of)

    async def look(self, queue: str, message_id: str) -> Message | None:
        known = await self._present(queue)
        return await queries.look(self._database, known, message_id, self._names, self.now_ms())

    async def explain(self, queue: str, message_id: str) -> Explained | None:
        counts = (await self._summary(queue))[1]
        known, now_ms = await self._cache.get(queue), self.now_ms()
        looked = await queries.find(self._database, known, message_id, now_ms)
        if looked is None:
            return None
        return await explain(self._database, known, looked, ExplainRequest(message_id, counts.ready, now_ms))

    async def receipts(self, queue: str, ids: Sequence[str], *, outlives: bool = False) -> list[Receipt | None]:
        check_ids(ids)
        known = await self._present(queue, with_others=outlives)
        return await queries.receipts(self._database, known, ids, outlives=outlives, now_ms=self.now_ms())

    async def audit(self, queue: str, *, most: int) -> list[Escalation]:
        check_most(most)
        known = await self._cache.get(queue, is_fresh=True)
        return [Escalation(*row) for row in await self._database.ask("audit", known.number, most)]

    # What operators decide.

    async def cancel(self, queue: str, message_id: str) -> bool:
        check_ids([message_id])

        async def cancel(known: CachedQueue) -> bool:
            is_gone = await operations.cancel(
                self._database, known, message_id, now_ms=self.now_ms(), operation=self._dice.token(),
                period=self._maintenance.period,
            )  # fmt: skip
            if is_gone and known.settings.is_fifo:
                # What was behind it may be leased now.
                self._wake(known.name)
            return is_gone

        return await self._cache.run(queue, cancel)

    async def escalate(self, queue: str, ids: Sequence[str], order: EscalationOrder) -> list[Outcome]:
        check_ids(ids)
        # A lease that another process gave out may have ended this instant.
        await self._present(queue, with_others=True)

        async def escalate(known: CachedQueue) -> list[Outcome]:
            outcomes = await operations.escalate(
                self._database, known, ids, order, now_ms=self.now_ms(), operation=self._dice.token()
            )
            self._cache.tally(known.number).escalated += outcomes.count(Outcome.DONE)
            return outcomes

        return await self._cache.run(queue, escalate)

    async def redrive(self, dead_letters: str, order: RedriveOrder) -> Redrive:
        if order.into == dead_letters:
            raise ValueError(f"target_queue is {dead_letters!r}, the queue they are in; name another one")
        await self._present(dead_letters, with_others=True)
        redriving = operations.RedriveSteps(self._database, self._cache, self._maintenance.period, self._dice)
        found = await self._cache.run(
            dead_letters,
            lambda known: redriving.redrive(known, order, now_ms=self.now_ms()),
        )
        if not order.is_dry_run:
            for name in found.moved:
                self._wake(name)
        return found

    async def tidy(self) -> None:
        await self._maintenance.tidy()

    # History.

    async def history(self, queue: str, wanted: HistoryRange) -> HistoryPage:
        known = await self._cache.get(queue, is_fresh=True)
        return await self._history.page(wanted, queue=known.number)

    async def live(
        self, queue: str, *, after: str = "", most: int, with_bodies: bool = True, is_told: bool = False
    ) -> LivePage:
        look = listing.LivePageRequest(after, most, with_bodies, is_told)
        listing.start(look)
        await self._present(queue)
        return await retry_on_lock(
            lambda: self._cache.run(
                queue, lambda known: listing.live(self._database, self._history, known, look, self.now_ms())
            ),
            self._database.settings.timing.retries_s,
        )

    async def history_shards(self) -> list[HistorySpan]:
        return [await self._history.span()]

    async def shard_history(self, shard: int, wanted: HistoryRange) -> HistoryPage:
        self._history.check_shard(shard)
        return await self._history.page(wanted)

    async def history_offset_at(self, shard: int, at_ms: int) -> int:
        self._history.check_shard(shard)
        return await self._history.offset_at(at_ms)

    async def history_offset_after(self, shard: int, from_offset: int, *, rows: int) -> int:
        self._history.check_shard(shard)
        return await self._history.offset_after(from_offset, rows=rows)

    async def trim_history(self, shard: int, *, before: int) -> int:
        self._history.check_shard(shard)
        return await self._history.trim(before=before)

    # The placement of all queues, where there is no other store.

    @property
    def only(self) -> Self:
        return self

    # Its verbs have time limits, which asyncio keeps for tasks.
    needs_tasks = True

    def of(self, queue: str) -> Self:  # noqa: ARG002 - all queues are here.
        return self

    def of_shard(self, shard: int) -> Self:
        self._history.check_shard(shard)
        return self
