"""Compacts a partition in PostgreSQL, a little at a time: reads batches, and puts what is left of them in their place.

    uncleaned ──▶ look at what is new ──▶ rewrite all of it, a MiB in one transaction ──▶ note_cleaning

Laws of this file
-----------------
1. What is rewritten in one transaction is seen as a whole, or not at all. A server that ends in between leaves a
   partition that is cleaned in part; the next cleaning looks at the same records again.
2. `rewrites` of the partition rises with each transaction, and each names the number it expects. So of two servers that
   clean one partition, which a pooler between them and the database makes possible, the slower one stops.
3. Nothing is looked at that consumers do not see yet.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any, NamedTuple, TypeAlias

from penstock.contract.limits import CLEANED_KEYS_MAX, MIB
from penstock.contract.topic_settings import TopicSettings
from penstock.log.record import header as read_header
from penstock.log.record import hole
from penstock.runtime.interface import Buffer
from penstock.store.postgres.database import Database
from penstock.streams.compaction import LatestRecords, cleaned_before, with_cleaning
from penstock.streams.postgres.partition import TablePartition

_READ_BYTES = MIB
# What the last offset of a batch may be beyond its first.
_OFFSETS_MAX = 2**31 - 1

# A batch as it is in the table: its first offset, the one after its last, and its bytes.
_Row: TypeAlias = tuple[int, int, bytes]


class CleaningDone(NamedTuple):
    """How large a partition was before and after."""

    bytes_before: int
    bytes_after: int


class _Uncleaned(NamedTuple):
    """What there is to look at, as the database says it."""

    rewrites: int
    start: int
    cleanings: Sequence[int]
    # None if there is nothing to look at.
    upto: int | None
    since_ms: int | None
    new_bytes: int
    cleaned_bytes: int

    def is_due(self, settings: TopicSettings, now_ms: int) -> bool:
        """Whether enough is new, or the first of it has waited for as long as it may."""
        if self.since_ms is None:
            return False
        lag_ms_max = settings.compaction_lag_ms_max
        is_overdue = lag_ms_max is not None and self.since_ms <= now_ms - lag_ms_max
        all_bytes = self.new_bytes + self.cleaned_bytes
        return is_overdue or self.new_bytes * 100 >= settings.dirty_percent_max * all_bytes

    @property
    def history(self) -> list[tuple[int, int]]:
        return list(zip(self.cleanings[::2], self.cleanings[1::2], strict=True))


class _Rewrite(NamedTuple):
    """What comes in the place of the batches from one offset to another."""

    base: int
    next_offset: int
    time_ms: int
    batch: Buffer


class Cleaning:
    """One cleaning of a partition."""

    def __init__(
        self, database: Database, partition: TablePartition, now_ms: int, *, keys_max: int = CLEANED_KEYS_MAX
    ) -> None:
        self._database = database
        self._settings = partition.settings
        self._place = {"topic": partition.topic, "partition": partition.index}
        self._now_ms = now_ms
        self._keys_max = keys_max
        self._rewrites = 0

    async def run(self) -> CleaningDone | None:
        """Clean the partition if enough of it is new. None if it is not, or another server has cleaned it meanwhile."""
        found = await self._uncleaned()
        if found is None or found.upto is None or not found.is_due(self._settings, self._now_ms):
            return None
        self._rewrites = found.rewrites
        latest = await self._latest(found, found.upto)
        saved_bytes = 0
        async for rows in self._batches(found.start, latest.upto):
            rewrites = await asyncio.to_thread(_rewritten, rows, latest)
            saved = await self._put(rewrites) if rewrites else 0
            if saved is None:
                return None
            saved_bytes += saved
        cleanings = with_cleaning(found.history, latest.upto, self._now_ms, self._settings.tombstone_ms)
        flat = [number for each in cleanings for number in each]
        (is_noted,) = await self._database.call("note_cleaning", *self._place.values(), self._rewrites, flat)
        before = found.cleaned_bytes + found.new_bytes
        return CleaningDone(before, before - saved_bytes) if is_noted else None

    async def _uncleaned(self) -> _Uncleaned | None:
        lag_ms = self._settings.compaction_lag_ms_min
        before_ms = self._now_ms - lag_ms if lag_ms else None
        rows = await self._database.ask("uncleaned", **self._place, before=before_ms)
        return _Uncleaned(*rows[0]) if rows else None

    async def _latest(self, found: _Uncleaned, upto: int) -> LatestRecords:
        """Look at what is new, as much as there is memory for."""
        history = found.history
        cleaned = history[-1][0] if history else 0
        tombstones_before = cleaned_before(history, self._now_ms - self._settings.tombstone_ms)
        latest = LatestRecords(cleaned, tombstones_before=tombstones_before, keys_max=self._keys_max)
        async for rows in self._batches(max(cleaned, found.start), upto):
            if not await asyncio.to_thread(_look, rows, latest):
                break
        return latest

    async def _batches(self, offset: int, end: int) -> AsyncIterator[list[_Row]]:
        while offset < end:
            rows: list[Any] = await self._database.ask(
                "read_frames", **self._place, offset=offset, end=end, bytes_max=_READ_BYTES
            )
            if not rows:
                return
            offset = rows[-1][1]
            yield rows

    async def _put(self, rewrites: Sequence[_Rewrite]) -> int | None:
        """Put batches in their place, and return how many bytes that saved; None if another server was there first."""
        bases, nexts, times, batches = (list(column) for column in zip(*rewrites, strict=True))
        (saved,) = await self._database.call(
            "rewrite_frames", *self._place.values(), self._rewrites, bases, nexts, times, batches
        )
        self._rewrites += 1
        return None if saved is None else int(saved)


def _look(rows: Sequence[_Row], latest: LatestRecords) -> bool:
    return all(latest.look(read_header(batch), memoryview(batch)) for _, _, batch in rows)


def _rewritten(rows: Sequence[_Row], latest: LatestRecords) -> list[_Rewrite]:
    """Return what changes: batches that lose some records, and holes, each as long as it can be."""
    rewrites: list[_Rewrite] = []
    # Whether the last of them is a hole that may grow.
    is_open = False
    for base, next_offset, batch in rows:
        whole = memoryview(batch)
        rest = latest.rest(read_header(batch), whole)
        if rest is None and is_open and next_offset - rewrites[-1].base <= _OFFSETS_MAX:
            rewrites[-1] = _hole(rewrites[-1].base, next_offset)
        elif rest is None:
            rewrites.append(_hole(base, next_offset))
        elif rest is not whole:
            rewrites.append(_Rewrite(base, next_offset, read_header(rest).max_timestamp_ms, rest))
        is_open = rest is None
    known = {(base, next_offset) for base, next_offset, batch in rows if read_header(batch).is_hole}
    return [each for each in rewrites if (each.base, each.next_offset) not in known]


def _hole(base: int, next_offset: int) -> _Rewrite:
    return _Rewrite(base, next_offset, -1, hole(base, next_offset))
