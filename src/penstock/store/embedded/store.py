"""Queues that need nothing but a folder: the verbs of `store.interface.QueueStore` on one shard.

Every verb has the same shape: reserve, decide, write, wait, answer. Nothing
awaits between deciding and writing, so there are no locks and nothing to undo.
"""

import asyncio
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

from penstock.core.events import Event, QueueCreated
from penstock.core.limits import (
    BATCH_BYTES_MAX,
    DURATION_MS_MAX,
    ERROR_CHARACTERS_MAX,
    EVENT_RUNS_MAX,
    LEASE_MESSAGES_MAX,
    LEASE_MS_MAX,
    PAGE_MAX,
)
from penstock.core.message import Drafts, Receipt, Sender, masks
from penstock.core.names import check_name, is_dead_letters
from penstock.core.queue import Accepted, BadDraft, Queue
from penstock.core.settings import DAY_MS, BadSettings, QueueSettings
from penstock.log.frame import Blobs
from penstock.log.settings import LogSettings
from penstock.runtime.interface import Runtime
from penstock.store.embedded import asking, operating
from penstock.store.embedded.asking import grave_of
from penstock.store.embedded.delivering import Handed
from penstock.store.embedded.naming import ids_of
from penstock.store.embedded.operating import Wanted
from penstock.store.embedded.running import JOURNAL_SETTINGS, UPKEEP_MS, Folders, RunningShard
from penstock.store.embedded.shard import Fact, Shard
from penstock.store.interface import (
    Counts,
    Delivery,
    Description,
    Escalation,
    Explained,
    Message,
    Outcome,
    QueueExists,
    Redrive,
    Remains,
)

JOURNAL = "journal"
SNAPSHOTS = "snapshots"
HISTORY = "history"
# What an event takes besides its rows: keys, texts, headers, with a margin.
EVENT_BYTES = 8_192
ROW_BYTES = 64
SETTLED_BYTES = 128
BURY_MAX = 100
BURY_BYTES = BURY_MAX * 6_000 + 2 * EVENT_BYTES
EXPIRED_BYTES = EVENT_BYTES + 1_000_000
# Dead letters wait for people, who are away at weekends.
DEAD_LETTERS = QueueSettings(deliveries_max=0, retention_ms=14 * DAY_MS)

Decide = Callable[[Queue, int, int, int], Event | None]


class EmbeddedStore:
    """Satisfies `store.interface.QueueStore`; see there for what the verbs promise."""

    def __init__(self, runtime: Runtime, running: RunningShard) -> None:
        self._runtime = runtime
        self._running = running
        self._shard = running.shard

    @classmethod
    async def open(
        cls, runtime: Runtime, folder: str, settings: LogSettings = JOURNAL_SETTINGS, *, upkeep_ms: int = UPKEEP_MS
    ) -> "EmbeddedStore":
        """Open the store in a folder, or create it, and be what it was.

        Raises what `DiskLog.open` does, `UnknownEvent`, `JournalHasHole`,
        `JournalHasNoBeginning` and `SnapshotUnknown`. Every ``upkeep_ms`` it looks
        whether the journal can be made shorter.
        """
        folders = Folders(f"{folder}/{JOURNAL}", f"{folder}/{SNAPSHOTS}", f"{folder}/{HISTORY}")
        return cls(runtime, await RunningShard.open(runtime, folders, settings, upkeep_ms=upkeep_ms))

    async def close(self) -> None:
        await self._running.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def create(self, queue: str, settings: QueueSettings) -> None:
        check_name(queue)
        _check_settings(queue, settings)
        shard = self._shard
        async with shard.answer:
            number = shard.memory.numbers.get(queue)
            if number is None:
                with shard.log.reserve(EVENT_BYTES + 4 * len(queue) + len(settings.to_json())) as space:
                    shard.write(space, [self._created(queue, settings)])
            elif shard.memory.queues[number].state.settings != settings:
                raise QueueExists(f"there is a queue {queue!r} with other settings")

    def _created(self, queue: str, settings: QueueSettings) -> Fact:
        return Fact(QueueCreated(self._shard.memory.next_queue, self._shard.now_ms(), queue, settings.to_json()))

    async def change(self, queue: str, settings: QueueSettings) -> None:
        _check_settings(queue, settings)
        shard = self._shard
        async with shard.answer:
            with shard.log.reserve(EVENT_BYTES + len(settings.to_json())) as space:
                event = shard.queue(queue).change(settings, now_ms=shard.now_ms())
                if event is not None:
                    shard.write(space, [Fact(event)])

    async def delete(self, queue: str, *, with_dead_letters: bool = False) -> Remains:
        return await operating.delete(self._shard, queue, with_dead_letters=with_dead_letters)

    async def queues(self, *, prefix: str = "", after: str = "", most: int = PAGE_MAX) -> list[str]:
        return await asking.queues(self._shard, prefix=prefix, after=after, most=most)

    async def describe(self, queue: str) -> Description:
        return await asking.describe(self._shard, queue)

    async def send(self, queue: str, drafts: Drafts, *, sender: Sender | None = None) -> list[str]:
        shard = self._shard
        async with shard.answer:
            state = shard.queue(queue)
            if not len(drafts):
                return []
            with shard.log.reserve(_size(drafts)) as space:
                accepted = state.send(drafts, now_ms=shard.now_ms(), sender=sender)
                if accepted.event is not None:
                    shard.write(space, [_sent(state, drafts, accepted)])
                return ids_of(state.state, accepted.messages)

    async def lease(self, queue: str, *, want: int, lease_ms: int | None = None) -> Delivery | None:
        shard = self._shard
        _check_lease(want, lease_ms)
        with shard.readers.begin():
            return await self._lease(shard, queue, want, lease_ms)

    async def _lease(self, shard: Shard, queue: str, want: int, lease_ms: int | None) -> Delivery | None:
        async with shard.answer:
            state = shard.queue(queue)
            self._bury(state)
            with shard.log.reserve(EVENT_BYTES + ROW_BYTES * want, from_spare=True) as space:
                token = self._runtime.dice.token()
                event = state.lease(want, now_ms=shard.now_ms(), token=token, lease_ms=lease_ms)
                if event is None:
                    return None
                shard.write(space, [Fact(event)])
            handed = Handed(shard, state.state, event, self._name_of)
        return await handed.delivery()

    def _name_of(self, queue: int) -> str | None:
        return self._shard.memory.names.get(queue)

    async def ack(self, queue: str, receipts: Sequence[Receipt], *, outlives: bool = False) -> list[Outcome]:
        now_ms = self._shard.now_ms()

        def decide(state: Queue, lease: int, token: int, mask: int) -> Event | None:
            return state.ack(lease, token, mask, now_ms=now_ms, outlives=outlives)

        return await self._settle(queue, receipts, decide)

    async def release(
        self, queue: str, receipts: Sequence[Receipt], *, delay_ms: int | None = None, error: str = ""
    ) -> list[Outcome]:
        if delay_ms is not None and not 0 <= delay_ms <= DURATION_MS_MAX:
            raise ValueError(f"delay_ms is {delay_ms}; it must be from 0 to DURATION_MS_MAX ({DURATION_MS_MAX})")
        now_ms = self._shard.now_ms()
        # Exceptions quote the names of files, and those may hold lone surrogates, which no text on a disk may.
        error = error.encode(errors="replace").decode()

        def decide(state: Queue, lease: int, token: int, mask: int) -> Event | None:
            # A roll for each lease: one for all would bring many leases of one message back as a herd.
            roll = self._runtime.dice.roll()
            return state.release(lease, token, mask, now_ms=now_ms, roll=roll, delay_ms=delay_ms, error=error)

        return await self._settle(queue, receipts, decide, text_bytes=4 * min(len(error), ERROR_CHARACTERS_MAX))

    async def extend(self, queue: str, receipts: Sequence[Receipt], *, lease_ms: int) -> list[Outcome]:
        _check_lease(1, lease_ms)
        now_ms = self._shard.now_ms()

        def decide(state: Queue, lease: int, token: int, mask: int) -> Event | None:
            return state.extend(lease, token, mask, now_ms=now_ms, lease_ms=lease_ms)

        return await self._settle(queue, receipts, decide)

    async def _settle(
        self, queue: str, receipts: Sequence[Receipt], decide: Decide, *, text_bytes: int = 0
    ) -> list[Outcome]:
        """Decide for each lease that the receipts are of, and write it all as one batch."""
        shard = self._shard
        wanted = masks(receipts)
        mask_bytes = sum(mask.bit_length() for mask in wanted.values()) // 8
        size = EVENT_BYTES + len(wanted) * (SETTLED_BYTES + text_bytes) + mask_bytes + ROW_BYTES * len(receipts)
        async with shard.answer:
            with shard.log.reserve(size, from_spare=True) as space:
                state = shard.queue(queue)
                decided = {key: decide(state, *key, mask) for key, mask in wanted.items()}
                facts = [Fact(event) for event in decided.values() if event is not None]
                if facts:
                    shard.write(space, facts)
        done: dict[tuple[int, int], int] = {key: getattr(event, "mask", 0) for key, event in decided.items()}
        if done == wanted and sum(map(int.bit_count, done.values())) == len(receipts):
            return [Outcome.DONE] * len(receipts)
        return [
            Outcome.DONE if row >= 0 and done.get((lease, token), 0) >> row & 1 else Outcome.STALE
            for lease, token, row in receipts
        ]

    async def purge(self, queue: str) -> int:
        shard = self._shard
        async with shard.answer:
            with shard.log.reserve(EVENT_BYTES, from_spare=True) as space:
                state = shard.queue(queue)
                count = state.state.live
                event = state.purge(now_ms=shard.now_ms())
                if event is None:
                    return 0
                shard.write(space, [Fact(event)])
                return count

    async def counts(self, queue: str) -> Counts:
        return await asking.counts(self._shard, queue)

    async def peek(self, queue: str, *, most: int) -> list[Message]:
        return await asking.peek(self._shard, queue, most=most, name_of=self._name_of)

    async def look(self, queue: str, message_id: str) -> Message | None:
        return await asking.look(self._shard, queue, message_id, name_of=self._name_of)

    async def explain(self, queue: str, message_id: str) -> Explained | None:
        return await asking.explain(self._shard, queue, message_id)

    async def receipts(self, queue: str, ids: Sequence[str]) -> list[Receipt | None]:
        return await asking.receipts(self._shard, queue, ids)

    async def escalate(
        self, queue: str, ids: Sequence[str], tier: int, *, actor: str, reason: str, until_ms: int = 0
    ) -> list[Outcome]:
        return await operating.escalate(self._shard, queue, ids, tier, actor=actor, reason=reason, until_ms=until_ms)

    async def audit(self, queue: str, *, most: int) -> list[Escalation]:
        return await asking.audit(self._shard, queue, most=most)

    async def redrive(
        self,
        dead_letters: str,
        *,
        into: str | None = None,
        most: int,
        origin: str | None = None,
        ids: Sequence[str] | None = None,
        is_dry_run: bool = False,
    ) -> Redrive:
        wanted = Wanted(most=most, into=into, origin=origin, ids=ids)
        return await operating.redrive(self._shard, dead_letters, wanted, is_dry_run=is_dry_run, name_of=self._name_of)

    async def tidy(self) -> None:
        for queue in list(self._shard.memory.queues.values()):
            while self._shard.has(queue) and self._bury(queue):
                await self._shard.settled()
            cursor = 0
            while self._shard.has(queue) and (cursor := self._expire(queue, cursor)):
                await self._shard.settled()
                # Nothing may have been written, and there may be many rows.
                await asyncio.sleep(0)
        await self._shard.settled()

    def _bury(self, queue: Queue) -> bool:
        """Move some spent messages to the dead letters, whose queue is made when it is first needed."""
        queue.advance(self._shard.now_ms())
        if not queue.state.spent:
            return False
        with self._shard.log.reserve(BURY_BYTES, from_spare=True) as space:
            name = grave_of(self._shard.memory.names[queue.state.queue], queue.state)
            if name not in self._shard.memory.numbers:
                self._shard.write(space, [self._created(name, DEAD_LETTERS)])
            target = self._shard.queue(name)
            event = queue.bury(into=target.state.queue, room=min(_room(target), BURY_MAX), now_ms=self._shard.now_ms())
            if event is not None:
                self._shard.write(space, [Fact(event)])
            return event is not None

    def _expire(self, queue: Queue, cursor: int) -> int:
        """Let go of some messages that are too old, and return where to go on; 0 if there are no more."""
        with self._shard.log.reserve(EXPIRED_BYTES, from_spare=True) as space:
            swept = queue.expire(now_ms=self._shard.now_ms(), cursor=cursor)
            if swept.event is None:
                return swept.cursor
            self._shard.write(space, [Fact(swept.event)])
            # There may be more runs than one event holds: again from here, and from 1, for slot 0 is nobody's.
            return swept.cursor if len(swept.event.runs) < EVENT_RUNS_MAX else max(1, cursor)


def _sent(state: Queue, drafts: Drafts, accepted: Accepted) -> Fact:
    assert accepted.event is not None
    bodies, attributes = drafts.bodies, drafts.attributes
    if len(accepted.event.tiers) != len(drafts):
        rows = _fresh(state, accepted)
        bodies = [bodies[row] for row in rows]
        attributes = None if attributes is None else [attributes[row] for row in rows]
    return Fact(accepted.event, Blobs.of(bodies), None if attributes is None else Blobs.of(attributes))


def _fresh(state: Queue, accepted: Accepted) -> list[int]:
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
    size = EVENT_BYTES + ROW_BYTES * len(drafts) + sum(sum(map(len, column)) for column in columns)
    if size > BATCH_BYTES_MAX:
        raise BadDraft(f"a send of {size} bytes in the journal; BATCH_BYTES_MAX is {BATCH_BYTES_MAX}")
    return size


def _room(target: Queue) -> int:
    size_max = target.state.settings.size_max
    return max(0, size_max - target.state.live) if size_max else BURY_MAX


def _check_settings(queue: str, settings: QueueSettings) -> None:
    if settings.dead_letters == queue:
        raise BadSettings(f"dead_letters is {queue!r}; a queue is not its own")
    if settings.dead_letters:
        check_name(settings.dead_letters, field="dead_letters")
    elif is_dead_letters(queue) and settings.deliveries_max:
        raise BadSettings(
            f"deliveries_max is {settings.deliveries_max}; dead letters are not buried again: "
            "let it be 0, or say in dead_letters where to"
        )


def _check_lease(want: int, lease_ms: int | None) -> None:
    if not 1 <= want <= LEASE_MESSAGES_MAX:
        raise ValueError(f"want is {want}; it must be from 1 to LEASE_MESSAGES_MAX ({LEASE_MESSAGES_MAX})")
    if lease_ms is not None and not 1 <= lease_ms <= LEASE_MS_MAX:
        raise ValueError(f"lease_ms is {lease_ms}; it must be from 1 to LEASE_MS_MAX ({LEASE_MS_MAX})")
