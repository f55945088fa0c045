"""Appends record batches to tables: what comes while a transaction commits goes together into the next one.

    add ──▶ line ──▶ append_frames, one transaction for many batches of many partitions ──▶ outcomes
                          │
                          ├─ acks=all     the commit waits for the synchronous standby
                          └─ acks=1, 0    it does not; `confirm_frames` follows, and only then consumers see them

Laws of this file
-----------------
1. The batches of a partition are appended in the order in which they came: each partition has one line, and a line has
   one transaction at a time.
2. Partitions are locked in their order, so that two servers never wait for each other.
3. A transaction whose outcome is unknown fails all its batches, and those behind them are tried: an idempotent producer
   that lost one finds out by its sequences, and repeats both in their order.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Protocol

import psycopg

from penstock.contract.limits import MIB
from penstock.log.interface import LogBusy, LogClosed
from penstock.log.record import Header
from penstock.runtime.interface import Buffer
from penstock.store.errors import StoreForbids, StoreRefuses, StoreUnreachable
from penstock.store.postgres.array_codec import numbers
from penstock.store.postgres.database import Database
from penstock.streams.interface import ACKS_ALL, Appended, Partition, PartitionNotFound
from penstock.streams.producer_state import OutOfOrderSequence, ProducerFenced, ProducerUnknown

LINES = 2
# What waits in a line, and what one transaction takes of it.
LINE_BYTES_MAX = 32 * MIB
_TAKEN_BYTES_MAX = 8 * MIB
_TAKEN_MAX = 1_000
_DUPLICATE = 1
# Before what was appended without a standby is tried to be confirmed again.
_PAUSE_S = 0.5


class Place(Partition, Protocol):
    """A partition that batches are appended to."""

    topic: int
    index: int

    def advance(self, high_watermark: int) -> None:
        """Take note that all below is durable."""
        ...

    def tell(self) -> None:
        """Tell the other servers that there is more."""
        ...


@dataclass(slots=True, eq=False)
class Draft:
    """A batch that waits to be appended."""

    partition: Place
    header: Header
    batch: Buffer
    latest_ms: int
    appended_at_ms: int
    # Whether it is refused if its producer is not known and may have been.
    needs_known: bool
    acks: int
    outcome: "asyncio.Future[Appended]"


class Appender:
    def __init__(self, database: Database, now_ms: Callable[[], int]) -> None:
        self._database = database
        self._now_ms = now_ms
        self._lines: list[list[Draft]] = [[] for _ in range(LINES)]
        self._sizes = [0] * LINES
        self._has_more = [asyncio.Event() for _ in range(LINES)]
        self._has_room = asyncio.Event()
        self._unconfirmed: set[Place] = set()
        self._has_unconfirmed = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._is_closed = False

    def start(self) -> None:
        for work in (*(self._append_on(line) for line in range(LINES)), self._confirm_on()):
            # Not a TaskGroup's: they live until `close`, which awaits them.
            self._tasks.append(asyncio.create_task(work))  # noqa: TID251

    async def close(self) -> None:
        """Append what waits, and end."""
        self._is_closed = True
        for event in (*self._has_more, self._has_unconfirmed):
            event.set()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def add(self, draft: Draft) -> None:
        """Take a batch, or raise `LogBusy` if too much waits already."""
        if self._is_closed:
            raise LogClosed("the server is stopping")
        line = hash((draft.partition.topic, draft.partition.index)) % LINES
        if self._sizes[line] and self._sizes[line] + len(draft.batch) > LINE_BYTES_MAX:
            self._has_room.clear()
            raise LogBusy("the database is behind")
        # One without a waiter may fail, too.
        draft.outcome.add_done_callback(_forget_failure)
        self._lines[line].append(draft)
        self._sizes[line] += len(draft.batch)
        self._has_more[line].set()

    async def room(self) -> None:
        await self._has_room.wait()

    async def _append_on(self, line: int) -> None:
        while not self._is_closed or self._lines[line]:
            await self._has_more[line].wait()
            self._has_more[line].clear()
            while drafts := self._take(line):
                await self._append(drafts)

    def _take(self, line: int) -> list[Draft]:
        waiting, size_bytes, count = self._lines[line], 0, 0
        for draft in waiting[:_TAKEN_MAX]:
            if count and size_bytes + len(draft.batch) > _TAKEN_BYTES_MAX:
                break
            size_bytes += len(draft.batch)
            count += 1
        taken, self._lines[line] = waiting[:count], waiting[count:]
        self._sizes[line] -= size_bytes
        self._has_room.set()
        # Sorting keeps the order of those of a partition.
        return sorted(taken, key=lambda draft: (draft.partition.topic, draft.partition.index))

    async def _append(self, drafts: Sequence[Draft]) -> None:
        is_local = all(draft.acks != ACKS_ALL for draft in drafts) and self._database.gate.state().standbys_needed > 0
        try:
            answer = await self._call(drafts, is_local=is_local)
        except (StoreUnreachable, StoreForbids, psycopg.Error) as error:
            for draft in drafts:
                draft.outcome.set_exception(_failure(error))
            return
        found = numbers("q", answer)
        for place, draft in enumerate(drafts):
            _settle(draft, *found[4 * place : 4 * place + 4])
        for partition, of_partition in groupby(drafts, lambda draft: draft.partition):
            added = [each for each in of_partition if not each.outcome.exception()]
            if added and is_local:
                self._unconfirmed.add(partition)
                self._has_unconfirmed.set()
            elif added:
                _publish(partition, max(each.outcome.result().next_offset for each in added))

    async def _call(self, drafts: Sequence[Draft], *, is_local: bool) -> bytes:
        # What asks for no standby is taken while none is there, unless one is required.
        is_gated = not is_local or self._database.settings.requires_standby
        call = self._database.call if is_gated else self._database.call_ungated
        (answer,) = await call("append_frames", *_columns(drafts), self._now_ms(), is_local)
        return bytes(answer)

    async def _confirm_on(self) -> None:
        """Confirm what was appended without a standby, again and again until it is."""
        while not self._is_closed or self._unconfirmed:
            await self._has_unconfirmed.wait()
            self._has_unconfirmed.clear()
            found, self._unconfirmed = self._unconfirmed, set()
            partitions = sorted(found, key=lambda each: (each.topic, each.index))
            if not partitions:
                continue
            columns = [each.topic for each in partitions], [each.index for each in partitions]
            try:
                (answer,) = await self._database.call_ungated("confirm_frames", *columns)
            except (StoreUnreachable, StoreForbids, psycopg.Error):
                if self._is_closed:
                    # The next batch that is appended with a standby confirms them, too.
                    return
                self._unconfirmed |= found
                self._has_unconfirmed.set()
                await asyncio.sleep(_PAUSE_S)
                continue
            for partition, next_offset in zip(partitions, numbers("q", answer), strict=True):
                _publish(partition, next_offset)


def _failure(error: Exception) -> Exception:
    if isinstance(error, psycopg.Error):
        return StoreRefuses(f"the database did not take the batch: {type(error).__name__}: {error}")
    return error


def _publish(partition: Place, high_watermark: int) -> None:
    partition.advance(high_watermark)
    partition.tell()


def _columns(drafts: Sequence[Draft]) -> tuple[list[Any], ...]:
    headers = [draft.header for draft in drafts]
    return (
        [draft.partition.topic for draft in drafts],
        [draft.partition.index for draft in drafts],
        [header.producer_id for header in headers],
        [header.producer_epoch for header in headers],
        [header.base_sequence for header in headers],
        [header.last_offset_delta + 1 for header in headers],
        [draft.latest_ms for draft in drafts],
        [draft.appended_at_ms for draft in drafts],
        [int(draft.needs_known) for draft in drafts],
        [draft.batch for draft in drafts],
    )


def _settle(draft: Draft, what: int, number: int, appended_at_ms: int, next_offset: int) -> None:
    """Tell who waits what became of a batch."""
    outcome, header = draft.outcome, draft.header
    match what:
        case 0 | 1:
            is_duplicate = what == _DUPLICATE
            outcome.set_result(Appended(number, next_offset, appended_at_ms, is_duplicate, draft.partition))
        case 2:
            said = f"sequence {header.base_sequence} of producer {header.producer_id}, where {number} belongs"
            outcome.set_exception(OutOfOrderSequence(said))
        case 3:
            said = f"producer {header.producer_id} has epoch {number}; this one has {header.producer_epoch}"
            outcome.set_exception(ProducerFenced(said))
        case 4:
            outcome.set_exception(PartitionNotFound("the partition is not there any more"))
        case _:
            said = f"producer {header.producer_id} is not known, or not any more; its batch begins with sequence "
            outcome.set_exception(ProducerUnknown(f"{said}{header.base_sequence}"))


def _forget_failure(outcome: "asyncio.Future[Appended]") -> None:
    if not outcome.cancelled():
        outcome.exception()
