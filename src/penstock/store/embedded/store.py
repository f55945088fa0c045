"""Queues that need nothing but a folder: the verbs of `store.interface.QueueStore` on one shard.

Every verb has the same shape: reserve, decide, write, wait, answer. Nothing
awaits between deciding and writing, so there are no locks and nothing to undo.

A delivery of plain runs costs nothing for each message here beside its id and its
body; what only rows have is looked for only where there are rows.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from hashlib import blake2b
from types import TracebackType
from typing import Self

from penstock.contract.limits import (
    BATCH_BYTES_MAX,
    BODY_BYTES_MAX,
    ERROR_CHARACTERS_MAX,
    LEASE_BYTES_MAX,
    LEASE_MESSAGES_MAX,
    LEASE_MS_MAX,
    PAGE_MAX,
)
from penstock.contract.names import check_name
from penstock.contract.queue_settings import DedupScope, QueueSettings, check_settings
from penstock.core.queue.events import Event, Leased, Tally
from penstock.core.queue.message import BadDraft, Drafts, Receipt, Sender, fault, masks
from penstock.core.queue.queries import contents as contents_of
from penstock.core.queue.queue import Queue, SendDecision
from penstock.core.queue.state import State
from penstock.frame import Blobs, Buffer, size_of
from penstock.log.disk_log import DiskLog
from penstock.log.interface import LogBusy, LogFull
from penstock.log.settings import LogSettings
from penstock.runtime.interface import Runtime
from penstock.store.embedded import history_reader, operations, queries
from penstock.store.embedded.cross_shard_moves import CrossShardMoves
from penstock.store.embedded.maintenance import Maintenance
from penstock.store.embedded.queries import NameOf, ids_of, past_of
from penstock.store.embedded.shard import JournalEntry, Shard
from penstock.store.embedded.shard_lifecycle import JOURNAL_SETTINGS, UPKEEP_MS
from penstock.store.embedded.shard_set import ShardSet
from penstock.store.embedded.shard_state import (
    IN_MEMORY,
    IN_MEMORY_JOURNAL,
    IN_MEMORY_UPKEEP_MS,
    ON_DISK,
    RetentionLimits,
)
from penstock.store.errors import QueueExists, ShardNotFound
from penstock.store.ids import parse_queue
from penstock.store.interface import (
    EVERY_MESSAGE,
    RELEASE,
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
    Past,
    Redrive,
    RedriveOrder,
    Release,
    Remains,
)
from penstock.store.pages import HistoryPage, HistoryRange, HistorySpan, LivePage

# What an event takes besides its rows: keys, texts, headers, with a margin.
EVENT_BYTES = 8_192
ROW_BYTES = 64
SETTLED_BYTES = 128
# Queues described before others have their turn.
SUMMARIES_TURN = 10

Decide = Callable[[Queue, int, int, int], Event | None]


class EmbeddedStore:
    """Satisfies `store.interface.QueueStore`; see there for what the verbs promise."""

    def __init__(self, runtime: Runtime, shards: ShardSet) -> None:
        self._runtime = runtime
        self._shards = shards
        self._moves = CrossShardMoves(shards)
        self._tidying = Maintenance(shards, self._moves)

    @classmethod
    async def open(
        cls,
        runtime: Runtime,
        folder: str,
        settings: LogSettings = JOURNAL_SETTINGS,
        *,
        shards: int = 1,
        upkeep_ms: int = UPKEEP_MS,
        keep: RetentionLimits = ON_DISK,
    ) -> "EmbeddedStore":
        """Open the store in a folder, or create it, and be what it was.

        There may be more ``shards`` than the last time, and never fewer. Raises
        what `DiskLog.open` does, `TooFewShards`, `UnknownEvent`, `JournalHasHole`,
        `JournalHasNoBeginning` and `SnapshotUnknown`. Every ``upkeep_ms`` it looks
        whether the journals can be made shorter. A clock that is hours ahead of the
        journals is believed only if ``keep`` says so (`shard_set.py`).
        """
        opened = await ShardSet.open(runtime, folder, settings, count=shards, keep=keep, upkeep_ms=upkeep_ms)
        store = cls(runtime, opened)
        try:
            await store._moves.resume()
        except BaseException:
            await store.close()
            raise
        return store

    @classmethod
    async def in_memory(cls, runtime: Runtime) -> "EmbeddedStore":
        """Open a store on a disk that is memory (`runtime/memory.py`): it keeps little that is dead."""
        return await cls.open(runtime, "memory", IN_MEMORY_JOURNAL, upkeep_ms=IN_MEMORY_UPKEEP_MS, keep=IN_MEMORY)

    @property
    def doubts_clock(self) -> bool:
        """Whether the clock is far ahead of all that the journals know, and time goes on without it."""
        return self._shards.time.is_doubted

    async def check_files(self) -> None:
        """Stop the process if files of the store were taken away; a server calls it about every second."""
        for each in self._shards.running:
            await each.watch()

    @property
    def shards(self) -> Sequence[Shard]:
        """Its journals and histories, for health checks and metrics."""
        return self._shards.all

    async def close(self) -> None:
        await self._shards.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def create(self, queue: str, settings: QueueSettings) -> None:
        check_name(queue)
        check_settings(queue, settings)
        # While this waited for the name, another request may have made the queue.
        while not self._shards.is_free(queue, self._shards.home(queue)):
            await self._shards.free(queue)
        shard = self._shards.find(queue) or self._shards.home(queue)
        async with shard.answer:
            if queue not in shard.memory.numbers:
                with shard.log.reserve(EVENT_BYTES + 4 * len(queue) + len(settings.to_json())) as space:
                    shard.write(space, [self._shards.created(shard, queue, settings)])
            elif shard.queue(queue).state.settings != settings:
                raise QueueExists(f"there is a queue {queue!r} with other settings")

    async def change(self, queue: str, settings: QueueSettings) -> None:
        check_settings(queue, settings)
        shard = await self._shards.at(queue)
        async with shard.answer:
            with shard.log.reserve(EVENT_BYTES + len(settings.to_json())) as space:
                event = shard.queue(queue).change(settings, now_ms=shard.now_ms())
                if event is not None:
                    shard.write(space, [JournalEntry(event)])

    async def delete(self, queue: str, *, with_dead_letters: bool = False) -> Remains:
        return await operations.delete(self._shards, self._moves, queue, with_dead_letters=with_dead_letters)

    async def queues(self, *, prefix: str = "", after: str = "", most: int = PAGE_MAX) -> list[str]:
        return await queries.queues(self._shards, prefix=prefix, after=after, most=most)

    async def describe(self, queue: str) -> Description:
        return await queries.describe(self._shards, queue)

    async def summaries(self, queues: Sequence[str]) -> list[tuple[Description, Counts] | None]:
        found: list[tuple[Description, Counts] | None] = []
        for first in range(0, len(queues), SUMMARIES_TURN):
            # Between two turns others are served.
            found += await queries.summaries(self._shards, queues[first : first + SUMMARIES_TURN])
            await asyncio.sleep(0)
        return found

    async def name(self, queue_id: str) -> str:
        return await self._shards.named(parse_queue(queue_id))

    def tally(self, queue: str) -> Tally | None:
        shard = self._shards.find(queue)
        return None if shard is None else shard.memory.queues[shard.memory.numbers[queue]].state.tally

    def now_ms(self) -> int:
        return self._shards.all[0].now_ms()

    def watch(self, wake: Callable[[str], None]) -> None:
        self._shards.watch(wake)

    def watch_full_dead_letters(self, tell: Callable[[str, str], None]) -> None:
        self._tidying.tell_full = tell

    def has_ready(self, queue: str) -> bool:
        shard = self._shards.find(queue)
        # Of a queue that is gone, those who wait have to learn it.
        return shard is None or any(shard.queue(queue).state.ready)

    async def wakes_at_ms(self, queue: str) -> int | None:
        return queries.wakes_at_ms(await self._shards.at(queue), queue)

    async def send(self, queue: str, drafts: Drafts, *, sender: Sender | None = None) -> Sequence[str]:
        shard = await self._shards.at(queue)
        async with shard.answer:
            try:
                return _send(shard, shard.queue(queue), drafts, sender)
            except (TypeError, AttributeError, OverflowError) as error:
                # Nothing was written: an event that cannot be encoded is not applied.
                raise fault(drafts) or error from error

    async def lease(self, queue: str, *, want: int, lease_ms: int | None = None) -> Delivery | None:
        _check_lease(want, lease_ms)
        shard = await self._shards.at(queue)
        if self._tidying.bury_at_once(shard, shard.queue(queue)) is None and self._moves.is_idle(shard.queue(queue)):
            # If they cannot go now they stay; and the queue may be gone by then.
            with suppress(LogBusy, LogFull):
                await self._tidying.bury(shard, shard.queue(queue))
            shard = await self._shards.at(queue)
        with shard.readers.current:
            return await self._lease(shard, queue, want, lease_ms)

    async def _lease(self, shard: Shard, queue: str, want: int, lease_ms: int | None) -> Delivery | None:
        async with shard.answer:
            state = shard.queue(queue)
            with shard.log.reserve(EVENT_BYTES + ROW_BYTES * want, from_spare=True) as space:
                token = self._runtime.dice.token()
                event = state.lease(want, now_ms=shard.now_ms(), token=token, lease_ms=lease_ms)
                if event is None:
                    return None
                if want > LEASE_BYTES_MAX // BODY_BYTES_MAX:
                    event = _within_bytes(shard, state, event, lease_ms)
                shard.write(space, [JournalEntry(event)])
            handed = PendingDelivery(shard, state.state, event, self._shards.name_of)
        return await handed.delivery()

    async def ack(self, queue: str, receipts: Sequence[Receipt], *, outlives: bool = False) -> list[Outcome]:
        shard = await self._shards.at(queue)
        async with shard.answer:
            return _settle(shard, queue, receipts, _acking(shard.now_ms(), outlives=outlives))

    async def ack_and_lease(
        self, queue: str, receipts: Sequence[Receipt], *, want: int, lease_ms: int | None = None
    ) -> tuple[list[Outcome], Delivery | None]:
        _check_lease(want, lease_ms)
        shard = await self._shards.at(queue)
        async with shard.answer:
            # It waits for the disk with the lease.
            outcomes = _settle(shard, queue, receipts, _acking(shard.now_ms()))
            return outcomes, await self.lease(queue, want=want, lease_ms=lease_ms)

    async def release(self, queue: str, receipts: Sequence[Receipt], how: Release = RELEASE) -> list[Outcome]:
        shard = await self._shards.at(queue)
        now_ms = shard.now_ms()
        # Exceptions quote the names of files, and those may hold lone surrogates, which no text on a disk may.
        error = how.error.encode(errors="replace").decode()

        def decide(state: Queue, lease: int, token: int, mask: int) -> Event | None:
            if how.is_untouched:
                return state.give_back(lease, token, mask, now_ms=now_ms)
            # A roll for each lease: one for all would bring many leases of one message back as a herd.
            roll = self._runtime.dice.roll()
            return state.release(
                lease,
                token,
                mask,
                now_ms=now_ms,
                roll=roll,
                delay_ms=how.delay_ms,
                error=error,
                is_rejected=how.is_rejected,
            )

        async with shard.answer:
            return _settle(shard, queue, receipts, decide, text_bytes=4 * min(len(error), ERROR_CHARACTERS_MAX))

    async def extend(
        self, queue: str, receipts: Sequence[Receipt], *, lease_ms: int, outlives: bool = False
    ) -> list[Outcome]:
        _check_lease(1, lease_ms)
        shard = await self._shards.at(queue)
        now_ms = shard.now_ms()

        def decide(state: Queue, lease: int, token: int, mask: int) -> Event | None:
            return state.extend(lease, token, mask, now_ms=now_ms, lease_ms=lease_ms, outlives=outlives)

        async with shard.answer:
            return _settle(shard, queue, receipts, decide)

    async def purge(self, queue: str) -> int:
        shard = await self._shards.at(queue)
        async with shard.answer:
            with shard.log.reserve(EVENT_BYTES, from_spare=True) as space:
                state = shard.queue(queue)
                count = state.state.live
                event = state.purge(now_ms=shard.now_ms())
                if event is None:
                    return 0
                shard.write(space, [JournalEntry(event)])
                return count

    async def counts(self, queue: str) -> Counts:
        return await queries.counts(await self._shards.at(queue), queue)

    async def peek(self, queue: str, sought: MessageFilter = EVERY_MESSAGE, *, most: int, after: str = "") -> Page:
        shard, name_of = await self._shards.at(queue), self._shards.name_of
        return await queries.peek(shard, queue, sought, most=most, after=after, name_of=name_of)

    async def look(self, queue: str, message_id: str) -> Message | None:
        return await queries.look(await self._shards.at(queue), queue, message_id, name_of=self._shards.name_of)

    async def explain(self, queue: str, message_id: str) -> Explained | None:
        return await queries.explain(await self._shards.at(queue), queue, message_id)

    async def receipts(self, queue: str, ids: Sequence[str], *, outlives: bool = False) -> list[Receipt | None]:
        return await queries.receipts(await self._shards.at(queue), queue, ids, outlives=outlives)

    async def cancel(self, queue: str, message_id: str) -> bool:
        return await operations.cancel(await self._shards.at(queue), queue, message_id)

    async def escalate(self, queue: str, ids: Sequence[str], order: EscalationOrder) -> list[Outcome]:
        return await operations.escalate(await self._shards.at(queue), queue, ids, order)

    async def audit(self, queue: str, *, most: int) -> list[Escalation]:
        return await queries.audit(await self._shards.at(queue), queue, most=most)

    async def redrive(self, dead_letters: str, order: RedriveOrder) -> Redrive:
        return await operations.redrive(self._shards, self._moves, dead_letters, order)

    async def history(self, queue: str, wanted: HistoryRange) -> HistoryPage:
        shard = await self._shards.at(queue)
        async with shard.answer:
            number = shard.queue(queue).state.queue
        log = self._shards.running_of(shard).history_log
        return await history_reader.read_page(self._runtime, log, wanted, queue=number)

    async def live(
        self, queue: str, *, after: str = "", most: int, with_bodies: bool = True, is_told: bool = False
    ) -> LivePage:
        index = self._shards.all.index(await self._shards.at(queue))
        look = queries.LiveQuery(after, most, with_bodies, is_told)
        return await queries.live(self._shards.running[index], index, queue, look)

    async def history_shards(self) -> list[HistorySpan]:
        return [history_reader.span_of(each.history_log, shard) for shard, each in enumerate(self._shards.running)]

    async def shard_history(self, shard: int, wanted: HistoryRange) -> HistoryPage:
        return await history_reader.read_page(self._runtime, self._history_log(shard), wanted)

    async def history_offset_at(self, shard: int, at_ms: int) -> int:
        return await history_reader.offset_at(self._history_log(shard), at_ms)

    async def history_offset_after(self, shard: int, from_offset: int, *, rows: int) -> int:
        return await history_reader.offset_after(self._history_log(shard), from_offset, rows)

    async def trim_history(self, shard: int, *, before: int) -> int:
        return await history_reader.trim(self._history_log(shard), before)

    def _history_log(self, shard: int) -> DiskLog:
        self.of_shard(shard)
        return self._shards.running[shard].history_log

    # The placement of all queues, where there is no other store.

    @property
    def only(self) -> Self:
        return self

    # Its verbs wait for the disk alone.
    needs_tasks = False

    def of(self, queue: str) -> Self:  # noqa: ARG002 - all queues are here.
        return self

    def of_shard(self, shard: int) -> Self:
        if not 0 <= shard < len(self._shards.running):
            raise ShardNotFound(f"there is no shard {shard}; there are 0 to {len(self._shards.running) - 1}")
        return self

    async def tidy(self) -> None:
        await self._tidying.tidy()


def _acking(now_ms: int, *, outlives: bool = False) -> Decide:
    def decide(state: Queue, lease: int, token: int, mask: int) -> Event | None:
        return state.ack(lease, token, mask, now_ms=now_ms, outlives=outlives)

    return decide


def _settle(
    shard: Shard, queue: str, receipts: Sequence[Receipt], decide: Decide, *, text_bytes: int = 0
) -> list[Outcome]:
    """Decide for each lease that the receipts are of, and write it all as one batch."""
    wanted = masks(receipts)
    mask_bytes = sum(map(int.bit_length, wanted.values())) // 8
    size = EVENT_BYTES + len(wanted) * (SETTLED_BYTES + text_bytes) + mask_bytes + ROW_BYTES * len(receipts)
    with shard.log.reserve(size, from_spare=True) as space:
        state = shard.queue(queue)
        decided = {key: decide(state, *key, mask) for key, mask in wanted.items()}
        facts = [JournalEntry(event) for event in decided.values() if event is not None]
        if facts:
            shard.write(space, facts)
    done: dict[tuple[int, int], int] = {key: getattr(event, "mask", 0) for key, event in decided.items()}
    if done == wanted and sum(map(int.bit_count, done.values())) == len(receipts):
        return [Outcome.DONE] * len(receipts)
    return [
        Outcome.DONE if row >= 0 and done.get((lease, token), 0) >> row & 1 else Outcome.STALE
        for lease, token, row in receipts
    ]


def _send(shard: Shard, state: Queue, drafts: Drafts, sender: Sender | None) -> Sequence[str]:
    if not len(drafts):
        return []
    if state.state.settings.dedup_scope is DedupScope.CONTENT:
        drafts = with_digests(drafts)
    with shard.log.reserve(_size(drafts)) as space:
        accepted = state.send(drafts, now_ms=shard.now_ms(), sender=sender)
        if accepted.event is not None:
            shard.write(space, [_sent(state, drafts, accepted)])
        return ids_of(state.state, accepted.messages)


def _sent(state: Queue, drafts: Drafts, accepted: SendDecision) -> JournalEntry:
    assert accepted.event is not None
    bodies, attributes = drafts.bodies, drafts.attributes
    if len(accepted.event.tiers) != len(drafts):
        rows = _fresh(state, accepted)
        bodies = [bodies[row] for row in rows]
        attributes = None if attributes is None else [attributes[row] for row in rows]
    return JournalEntry(accepted.event, _blobs(bodies), None if attributes is None else _blobs(attributes))


def _blobs(texts: Sequence[Buffer]) -> Blobs:
    """A column as it is, if it came as one: then nothing is copied until it is written."""
    return texts if isinstance(texts, Blobs) and texts.size_bytes == len(texts.data) else Blobs.of(texts)


def _fresh(state: Queue, accepted: SendDecision) -> list[int]:
    """Return the drafts that got a number of their own, each the first of its number."""
    nexts = [lane.next for lane in state.state.lanes]
    seen: set[int] = set()
    rows = []
    for row, message in enumerate(accepted.messages):
        if message >> 3 >= nexts[message & 7] and message not in seen:
            seen.add(message)
            rows.append(row)
    return rows


def _size(drafts: Drafts) -> int:
    columns = [drafts.bodies, *(column for column in (drafts.groups, drafts.dedup_ids, drafts.attributes) if column)]
    size = EVENT_BYTES + ROW_BYTES * len(drafts) + sum(map(size_of, columns))
    if size > BATCH_BYTES_MAX:
        raise BadDraft(f"a send of {size} bytes in the journal; BATCH_BYTES_MAX is {BATCH_BYTES_MAX}")
    return size


def _within_bytes(shard: Shard, state: Queue, event: Leased, lease_ms: int | None) -> Leased:
    """Return a lease whose bodies fit into an answer: this one, or one of fewer messages. To decide again is free."""
    while True:
        size = shard.memory.places[state.state.queue].size_bytes(event.runs)
        count = sum(run.length for run in event.runs)
        if size <= LEASE_BYTES_MAX or count == 1:
            return event
        want = max(1, count * LEASE_BYTES_MAX // size)
        again = state.lease(want, now_ms=event.at_ms, token=event.token, lease_ms=lease_ms)
        assert again is not None
        event = again


def _check_lease(want: int, lease_ms: int | None) -> None:
    if not 1 <= want <= LEASE_MESSAGES_MAX:
        raise ValueError(f"want is {want}; it must be from 1 to LEASE_MESSAGES_MAX ({LEASE_MESSAGES_MAX})")
    if lease_ms is not None and not 1 <= lease_ms <= LEASE_MS_MAX:
        raise ValueError(f"lease_ms is {lease_ms}; it must be from 1 to LEASE_MS_MAX ({LEASE_MS_MAX})")


class PendingDelivery:
    """What was leased by an event that was just applied, as it is at this moment; its bodies are still to be read."""

    __slots__ = ("_shard", "_event", "_contents", "_ids", "_errors", "_pasts", "_spans")

    def __init__(self, shard: Shard, state: State, event: Leased, name_of: NameOf) -> None:
        self._shard = shard
        self._event = event
        self._contents = contents_of(state, event)
        self._ids = ids_of(state, self._contents.messages)
        self._errors, self._pasts = _told(state, event, name_of)
        self._spans = shard.memory.places[event.queue].spans(event.runs)

    async def delivery(self) -> Delivery:
        event, contents = self._event, self._contents
        bodies, attributes = await self._shard.bodies(self._spans)
        return Delivery(
            event.lease,
            event.token,
            self._ids,
            bodies,
            attributes,
            contents.tiers,
            contents.deliveries,
            contents.sent_at_ms,
            contents.groups,
            event.at_ms + event.lease_ms,
            self._errors,
            self._pasts,
            contents.first_leased_at_ms,
        )


def _told(state: State, event: Leased, name_of: NameOf) -> tuple[list[str] | None, list[Past | None] | None]:
    """Return errors and pasts of what was leased, in its order."""
    rows = state.rows
    if not rows.errors and not rows.origins:
        return None, None
    errors: list[str] = []
    pasts: list[Past | None] = []
    for lane, first, length in event.runs:
        # A run is rows throughout or not at all.
        if first << 3 | lane not in rows.index:
            errors += [""] * length
            pasts += [None] * length
            continue
        for number in range(first, first + length):
            slot = rows.index[number << 3 | lane]
            errors.append(rows.errors.get(slot, ""))
            pasts.append(past_of(rows.origins.get(slot), name_of))
    return errors if any(errors) else None, pasts if any(pasts) else None


_PREFIX = b"content:"
_DIGEST_BYTES = 32


def with_digests(drafts: Drafts) -> Drafts:
    """Return drafts in which each message that has no id of its own has one made of its body.

    The attributes are not part of it, as with others: a trace differs from send to send.

    >>> given = Drafts(bodies=[b"a", b"a", b"b"], dedup_ids=[b"", b"mine", b""])
    >>> first, second, third = with_digests(given).dedup_ids
    >>> second, first == third, len(first)
    (b'mine', False, 40)
    """
    names = drafts.dedup_ids or [b""] * len(drafts)
    # The prefix keeps an id of the caller's from being taken for one of these.
    made = [
        name or _PREFIX + blake2b(body, digest_size=_DIGEST_BYTES).digest()
        for name, body in zip(names, drafts.bodies, strict=True)
    ]
    return replace(drafts, dedup_ids=made)
