"""What consumer groups keep, and how it is written: in the log of a folder, and in the tables of a database.

    key                            value
    [1, group, topic, partition]   [1, offset, leader epoch, metadata, committed at, expires at | nil]
    [2, group]                     [1, at, generation, type, protocol, leader, [member, …]]
                                   none: it is forgotten

    member: [id, instance | nil, client, host, session, rebalance, [[protocol, metadata], …], assignment]

All is MessagePack. A value begins with its version, and a key with its kind. One that is
not known here was written by a later version, and is refused rather than dropped.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, Protocol

import msgspec

from penstock.core.consumer_group.group import GroupRecord
from penstock.core.consumer_group.members import Member, size_bytes
from penstock.core.consumer_group.requests import JoinRequest
from penstock.log.interface import Reservation
from penstock.runtime.interface import Buffer

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


class StoredGroup(NamedTuple):
    """A group that another server coordinates, or none does."""

    name: str
    record: GroupRecord | None
    is_coordinated: bool


class OffsetStore(Protocol):
    """What groups keep. In memory at once; durable, for who is to be answered, after `durable`.

    Where several servers share it, one of them coordinates a group: it holds it. What another one is asked about such
    a group is refused with `NotCoordinator`.
    """

    @property
    def count(self) -> int:
        """How many offsets are kept here, of all groups."""
        ...

    def when_lost(self, let_go: Callable[[str], None]) -> None:
        """Have this called when another server has taken over a group."""
        ...

    async def hold(self, group: str, *, takes_over: bool = False) -> bool:
        """Coordinate a group, or raise `NotCoordinator`; return whether this begins now.

        With ``takes_over`` also if another server that is there does.
        """
        ...

    async def elsewhere(self) -> list[StoredGroup]:
        """Return the groups that this server does not hold."""
        ...

    async def peek(self, group: str) -> tuple[GroupRecord | None, Mapping[Place, CommittedOffset]] | None:
        """Return what is kept of a group that another server may hold; None if there is nothing."""
        ...

    def groups(self) -> Iterable[str]: ...

    def of(self, group: str) -> Mapping[Place, CommittedOffset]: ...

    def generation(self, group: str) -> GroupRecord | None:
        """Return the last whole generation that was kept."""
        ...

    async def durable(self, group: str) -> None:
        """Return when all that has been decided so far about a group is durable."""
        ...

    async def read(self, group: str) -> Mapping[Place, CommittedOffset]:
        """Return what a group has committed, durably."""
        ...

    def reserve(self, size_bytes: int) -> Reservation:
        """Set room aside for one generation, or raise `LogFull` or `LogBusy`."""
        ...

    def commit(self, group: str, rows: Mapping[Place, CommittedOffset]) -> None: ...

    def forget(self, group: str, places: Iterable[Place]) -> None:
        """Forget offsets that are there."""
        ...

    def keep(self, group: str, generation: GroupRecord, space: Reservation) -> None:
        """Keep a whole generation in the room that was reserved for it."""
        ...

    def drop(self, group: str) -> None:
        """Forget a group with all it has committed."""
        ...

    async def watch(self) -> None:
        """See whether what is kept is still there, and ours."""
        ...

    async def compact_if_due(self) -> bool: ...

    async def close(self) -> None: ...
