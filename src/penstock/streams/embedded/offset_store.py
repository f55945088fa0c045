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

The records of the log have a key, of which the last counts:

    key                            value
    [1, group, topic, partition]   [1, offset, leader epoch, metadata, committed at, expires at | nil]
    [2, group]                     [1, at, generation, type, protocol, leader, [member, …]]
                                   none: it is forgotten

    member: [id, instance | nil, client, host, session, rebalance, [[protocol, metadata], …], assignment]

All is MessagePack. A value begins with its version, and a key with its kind. One that is
not known here was written by a later version, and is refused rather than dropped.
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import msgspec

from penstock.contract.limits import GROUP_NAME_BYTES_MAX, MIB
from penstock.core.consumer_group.group import GroupRecord
from penstock.core.consumer_group.members import Member, size_bytes
from penstock.core.consumer_group.requests import JoinRequest
from penstock.log import record
from penstock.log.disk_log import DiskLog
from penstock.log.interface import LogBusy, LogFull, Reservation
from penstock.log.inventory import open_listed
from penstock.log.settings import LogSettings
from penstock.runtime.interface import Buffer, Runtime

_READ_BYTES = MIB
# In one batch: with the longest names and metadata they are far below BATCH_BYTES_MAX.
_ROWS_MAX = 1_000

LOG_SETTINGS = LogSettings(segment_bytes_max=4 * MIB, allocate_bytes=MIB, spare_bytes=MIB)

OFFSET = 1
GROUP = 2
VERSION = 1

# Of a record beside its key and value, and of a member beside what is counted in `record_bytes_max`.
RECORD_BYTES = 32
_MEMBER_BYTES = 64

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(list)

Written = tuple[bytes, bytes | None]
Place = tuple[str, int]


class UnknownOffsetRecord(Exception):
    """The log of offsets was written by a later version. Nothing was changed."""


class CommittedOffset(NamedTuple):
    """A committed offset."""

    offset: int
    leader_epoch: int
    metadata: str
    committed_at_ms: int
    expires_at_ms: int | None = None


def write_offset(group: str, place: Place, kept: CommittedOffset | None) -> Written:
    key = _encoder.encode((OFFSET, group, *place))
    return key, None if kept is None else _encoder.encode((VERSION, *kept))


def write_group(group: str, record: GroupRecord | None) -> Written:
    key = _encoder.encode((GROUP, group))
    if record is None:
        return key, None
    members = [_member(each) for each in record.members]
    head = (VERSION, record.at_ms, record.generation, record.protocol_type, record.protocol, record.leader)
    return key, _encoder.encode((*head, members))


def read_key(key: Buffer) -> tuple[str, Place | None]:
    """Return whose it is, and where in which topic; None for a generation."""
    kind, group, *place = _decoder.decode(key)
    if kind == OFFSET:
        topic, partition = place
        return group, (topic, partition)
    if kind == GROUP:
        return group, None
    raise UnknownOffsetRecord(f"the log of offsets has a record of kind {kind!r}")


def read_offset(value: Buffer) -> CommittedOffset:
    return CommittedOffset(*_fields(value))


def read_group(value: Buffer) -> GroupRecord:
    at_ms, generation, protocol_type, protocol, leader, members = _fields(value)
    return GroupRecord(
        at_ms, generation, protocol_type, protocol, leader, tuple(_read_member(each) for each in members)
    )


def record_bytes_max(record: GroupRecord, assignment_bytes: int = 0) -> int:
    """Return how large a generation may be when it is written, with assignments that are still to come."""
    names = (record.protocol_type, record.protocol, record.leader)
    size = sum(len(name.encode()) for name in names) + 2 * _MEMBER_BYTES + assignment_bytes
    for member in record.members:
        texts = (member.member_id, member.instance_id or "", member.client_id, member.client_host)
        size += sum(len(text.encode()) for text in texts) + len(member.assignment) + _MEMBER_BYTES
        size += member.size_bytes + 10 * len(member.protocols)
    return size


def size_of(request: JoinRequest) -> int:
    """Return how much larger a generation may be for a member that joins so."""
    texts = (request.instance_id or "", request.client_id, request.client_host)
    ids = 2 * sum(len(text.encode()) for text in texts) + 2 * _MEMBER_BYTES
    return size_bytes(request.protocols) + 10 * len(request.protocols) + ids + len(request.protocol_type.encode())


def _fields(value: Buffer) -> list[Any]:
    version, *fields = _decoder.decode(value)
    if version != VERSION:
        raise UnknownOffsetRecord(f"the log of offsets has a record of version {version!r}; this is for {VERSION}")
    return fields


def _member(member: Member) -> tuple[Any, ...]:
    return (
        member.member_id,
        member.instance_id,
        member.client_id,
        member.client_host,
        member.session_timeout_ms,
        member.rebalance_timeout_ms,
        member.protocols,
        member.assignment,
    )


def _read_member(fields: list[Any]) -> Member:
    member_id, instance_id, client_id, client_host, session_timeout_ms, rebalance_timeout_ms, protocols, given = fields
    return Member(
        member_id=member_id,
        instance_id=instance_id,
        client_id=client_id,
        client_host=client_host,
        session_timeout_ms=session_timeout_ms,
        rebalance_timeout_ms=rebalance_timeout_ms,
        protocols=tuple((name, metadata) for name, metadata in protocols),
        assignment=given,
    )


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

    async def durable(self) -> None:
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
