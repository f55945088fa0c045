"""How far every group has come, and the generation it is in: all in memory, and in a log that is kept short.

    commit ──▶ apply, append ──▶ durable ──▶ answer        many commits share one fsync
    open   ──▶ read the log from its start: of each key the last record counts
    compact ─▶ append all that counts once more, then drop the segments before

Laws of this file
-----------------
1. Nothing is answered before the log is durable up to its end at the moment of asking.
2. What is copied forward is taken from memory in the same turn in which it is appended,
   so a copy is never older than what stands before it. A copy that is cut short harms
   nothing: only a whole one lets segments go.
3. A value and its tombstone may go in this order only, and a log loses only its front.

`group_records.py` has the records of the log: of each key the last counts.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from penstock.contract.limits import GROUP_NAME_BYTES_MAX, MIB
from penstock.core.consumer_group.group import GroupRecord
from penstock.log import record
from penstock.log.disk_log import DiskLog
from penstock.log.interface import LogBusy, LogFull, Reservation
from penstock.log.inventory import open_listed
from penstock.log.settings import LogSettings
from penstock.runtime.interface import Runtime
from penstock.streams.group_records import (
    RECORD_BYTES,
    CommittedOffset,
    Place,
    StoredGroup,
    Written,
    read_group,
    read_key,
    read_offset,
    write_group,
    write_offset,
)

_READ_BYTES = MIB
# In one batch: with the longest names and metadata they are far below BATCH_BYTES_MAX.
_ROWS_MAX = 1_000

LOG_SETTINGS = LogSettings(segment_bytes_max=4 * MIB, allocate_bytes=MIB, spare_bytes=MIB)


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetsSettings:
    log: LogSettings = LOG_SETTINGS
    # The log is made shorter when it takes more than this, and several times what the last copy took.
    compact_bytes_min: int = 16 * MIB
    compact_times: int = 4


DEFAULTS = OffsetsSettings()
T = TypeVar("T")
_NOTHING: Mapping[Place, CommittedOffset] = {}


class Offsets:
    def __init__(self, runtime: Runtime, log: DiskLog, settings: OffsetsSettings) -> None:
        self._clock = runtime.clock
        self._log = log
        self._settings = settings
        self._offsets: dict[str, dict[Place, CommittedOffset]] = {}
        # As they are written: what a generation is made of changes while the group lives.
        self._generations: dict[str, bytes] = {}
        # Of all groups together.
        self.count = 0
        self._copied_bytes = 0

    @classmethod
    async def open(cls, runtime: Runtime, folder: str, settings: OffsetsSettings = DEFAULTS) -> "Offsets":
        """Read what is there, or begin with nothing. Raises what `DiskLog.open` does, and `UnknownOffsetRecord`."""
        parent, _, name = folder.rpartition("/")
        log = await open_listed(runtime, parent, name, settings.log)
        offsets = cls(runtime, log, settings)
        try:
            await offsets._replay()
        except BaseException:
            await log.close()
            raise
        return offsets

    async def close(self) -> None:
        await self._log.close()

    async def watch(self) -> None:
        await self._log.watch()

    @property
    def size_bytes(self) -> int:
        """What the log takes on the disk."""
        return sum(segment.size_bytes for segment in self._log.segments)

    def groups(self) -> set[str]:
        return {*self._offsets, *self._generations}

    def of(self, group: str) -> Mapping[Place, CommittedOffset]:
        return self._offsets.get(group, _NOTHING)

    def generation(self, group: str) -> GroupRecord | None:
        """Return the last whole generation that was kept."""
        written = self._generations.get(group)
        return None if written is None else read_group(written)

    def when_lost(self, let_go: Callable[[str], None]) -> None:
        """No other server takes anything over."""

    async def hold(self, group: str, *, takes_over: bool = False) -> bool:  # noqa: ARG002 - all are held.
        return False

    async def elsewhere(self) -> list[StoredGroup]:
        return []

    async def peek(self, group: str) -> tuple[GroupRecord | None, Mapping[Place, CommittedOffset]] | None:  # noqa: ARG002
        return None

    async def read(self, group: str) -> Mapping[Place, CommittedOffset]:
        found = dict(self.of(group))
        await self.durable()
        return found

    async def durable(self, group: str = "") -> None:  # noqa: ARG002 - one sync is for all of them.
        """Return when all that has been decided so far is on the disk."""
        await self._log.wait_durable(self._log.end_offset)

    def reserve(self, size_bytes: int) -> Reservation:
        """Set room aside for one generation, or raise `LogFull` or `LogBusy`."""
        return self._log.reserve(size_bytes + GROUP_NAME_BYTES_MAX + record.HEADER_BYTES + RECORD_BYTES)

    def commit(self, group: str, rows: Mapping[Place, CommittedOffset]) -> None:
        """Keep offsets; durable only after `durable`. On `LogFull` or `LogBusy` it may have kept the first of them."""
        for part in _parts(list(rows.items())):
            self._append([write_offset(group, place, kept) for place, kept in part], is_freeing=False)
            for place, kept in part:
                self._set(group, place, kept)

    def forget(self, group: str, places: Iterable[Place]) -> None:
        """Forget offsets that are there."""
        for part in _parts([(place, None) for place in places]):
            self._append([write_offset(group, place, None) for place, _ in part], is_freeing=True)
            for place, _ in part:
                self._set(group, place, None)

    def keep(self, group: str, generation: GroupRecord, space: Reservation) -> None:
        """Keep a whole generation in the room that was reserved for it."""
        key, value = write_group(group, generation)
        self._log.append(record.encode([(key, value)], at_ms=self._clock.now_ms()), space)
        assert value is not None
        self._generations[group] = value

    def drop(self, group: str) -> None:
        """Forget a group with all it has committed."""
        self.forget(group, self.of(group))
        if group in self._generations:
            self._append([write_group(group, None)], is_freeing=True)
            del self._generations[group]

    async def compact_if_due(self) -> bool:
        """Make the log shorter if most of it is of the past; return whether it was."""
        settings = self._settings
        if self.size_bytes < max(settings.compact_bytes_min, settings.compact_times * self._copied_bytes):
            return False
        begin = self._log.end_offset
        copied_bytes = 0
        try:
            for rows in self._copies():
                copied_bytes += self._append(rows, is_freeing=True)
                await self.durable()
        except (LogFull, LogBusy):
            # It is tried again when there is room.
            return False
        self._copied_bytes = copied_bytes
        await self._log.drop_before(begin)
        return True

    def _copies(self) -> Iterator[list[Written]]:
        """Yield all that counts, in parts, each as it is at that moment."""
        for group in list(self.groups()):
            if (value := self._generations.get(group)) is not None:
                yield [(write_group(group, None)[0], value)]
            for part in _parts(list(self.of(group).items())):
                kept = self.of(group)
                if rows := [write_offset(group, place, kept[place]) for place, _ in part if place in kept]:
                    yield rows

    def _append(self, rows: Sequence[Written], *, is_freeing: bool) -> int:
        batch = record.encode(rows, at_ms=self._clock.now_ms())
        with self._log.reserve(len(batch), from_spare=is_freeing) as space:
            self._log.append(batch, space)
        return len(batch)

    def _set(self, group: str, place: Place, kept: CommittedOffset | None) -> None:
        rows = self._offsets.setdefault(group, {})
        self.count += (kept is not None) - (place in rows)
        if kept is not None:
            rows[place] = kept
            return
        rows.pop(place, None)
        if not rows:
            del self._offsets[group]

    async def _replay(self) -> None:
        offset = self._log.start_offset
        while offset < self._log.end_offset:
            for batch in await self._log.read(offset, bytes_max=_READ_BYTES):
                header = record.header(batch)
                # What was damaged and cut out is lost: a group goes on from the offset before.
                for entry in () if header.is_hole else record.records(batch):
                    self._replay_one(entry)
                offset = header.next_offset
            await asyncio.sleep(0)

    def _replay_one(self, entry: record.Record) -> None:
        assert entry.key is not None
        group, place = read_key(entry.key)
        if place is not None:
            self._set(group, place, None if entry.value is None else read_offset(entry.value))
        elif entry.value is not None:
            read_group(entry.value)
            self._generations[group] = bytes(entry.value)
        else:
            self._generations.pop(group, None)


def _parts(rows: Sequence[T]) -> Iterator[Sequence[T]]:
    for at in range(0, len(rows), _ROWS_MAX):
        yield rows[at : at + _ROWS_MAX]
