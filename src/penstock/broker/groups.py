"""Consumer groups, as front ends see them: members, generations, committed offsets and lag.

A front end translates and calls one of these; nothing here knows a protocol. What is
refused is raised as a `GroupRefusal` that names the fact, or, where a call has many
rows, returned in the row. `LogBusy`, `LogFull` and `LogClosed` pass through: nothing
was done, and the caller may try again.

A join and a sync wait until the group answers. Whoever cancels them, because its
client has gone, takes the wait back: nobody is held up by a consumer that is not there.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from penstock.core.group_calls import (
    BadGroupName,
    BadSessionTimeout,
    FencedInstance,
    GroupDescription,
    GroupFull,
    GroupNotEmpty,
    GroupNotFound,
    GroupRefusal,
    GroupState,
    IllegalGeneration,
    InconsistentProtocol,
    Joined,
    JoinedMember,
    JoinRequest,
    Leaver,
    MemberDescription,
    MemberIdNeeded,
    MemberTooLarge,
    MetadataTooLarge,
    PartitionUnknown,
    RebalanceInProgress,
    Synced,
    SyncRequest,
    TooManyGroups,
    TooManyOffsets,
    TopicSubscribed,
    UnknownMember,
)

__all__ = [
    "BadGroupName",
    "BadSessionTimeout",
    "Commit",
    "Committed",
    "FencedInstance",
    "GroupDescription",
    "GroupFull",
    "GroupNotEmpty",
    "GroupNotFound",
    "GroupRefusal",
    "GroupState",
    "Groups",
    "IllegalGeneration",
    "InconsistentProtocol",
    "JoinRequest",
    "Joined",
    "JoinedMember",
    "Lag",
    "Leaver",
    "Listed",
    "MemberDescription",
    "MemberIdNeeded",
    "MemberTooLarge",
    "MetadataTooLarge",
    "PartitionUnknown",
    "Partitions",
    "RebalanceInProgress",
    "SyncRequest",
    "Synced",
    "TooManyGroups",
    "TooManyOffsets",
    "TopicSubscribed",
    "UnknownMember",
]


class Partitions(Protocol):
    """What groups need to know of topics."""

    def ends(self, topic: str, partition: int) -> tuple[int, int] | None:
        """Return the first offset and the high watermark; None if there is no such partition."""
        ...


class Commit(NamedTuple):
    """How far a group has come in one partition: the offset it reads next."""

    topic: str
    partition: int
    offset: int
    leader_epoch: int = -1
    metadata: str = ""


class Committed(NamedTuple):
    """What is kept for a partition; an offset of -1 where there is nothing."""

    topic: str
    partition: int
    offset: int = -1
    leader_epoch: int = -1
    metadata: str = ""


class Lag(NamedTuple):
    """How far a group is behind in one partition; None where it has committed nothing."""

    topic: str
    partition: int
    committed: int | None
    start_offset: int
    high_watermark: int
    lag: int | None


@dataclass(frozen=True, slots=True)
class Listed:
    group: str
    protocol_type: str
    state: GroupState
    kind: str = "classic"


class Groups:
    async def join(self, group: str, request: JoinRequest) -> Joined:
        """Be a member of the next generation; returns when all others have joined it, or had their time."""
        raise NotImplementedError

    async def sync(self, group: str, request: SyncRequest) -> Synced:
        """Learn what is assigned; returns when the leader has brought it and it is durable."""
        raise NotImplementedError

    async def heartbeat(self, group: str, member_id: str, instance_id: str | None, generation: int) -> None:
        raise NotImplementedError

    async def leave(self, group: str, leavers: Sequence[Leaver]) -> list[GroupRefusal | None]:
        """Let members go; one answer for each. Raises only where the group's name is bad."""
        raise NotImplementedError

    async def commit(
        self,
        group: str,
        commits: Sequence[Commit],
        *,
        member_id: str = "",
        instance_id: str | None = None,
        generation: int = -1,
        retention_ms: int | None = None,
    ) -> list[GroupRefusal | None]:
        """Keep offsets; durable on return, one answer for each row. Raises where the member may not commit."""
        raise NotImplementedError

    async def committed(self, group: str, wanted: Mapping[str, Sequence[int]] | None) -> list[Committed]:
        """Return what is kept: for every wanted partition of a topic in its order, or, with None, all there is.

        A group nobody has heard of has committed nothing: that is no error.
        """
        raise NotImplementedError

    async def describe(self, group: str) -> GroupDescription:
        """Return a group with its members. Raises `GroupNotFound`."""
        raise NotImplementedError

    async def listed(self, states: Collection[GroupState] = ()) -> list[Listed]:
        """Return the groups in these states, or all, by name."""
        raise NotImplementedError

    async def delete(self, group: str) -> None:
        """Forget a group and its offsets. Raises `GroupNotFound` or `GroupNotEmpty`; durable on return."""
        raise NotImplementedError

    async def forget_offsets(self, group: str, rows: Sequence[tuple[str, int]]) -> list[GroupRefusal | None]:
        """Forget offsets of topics that no member reads; one answer for each row. Raises `GroupNotFound`."""
        raise NotImplementedError

    async def forget_topic(self, topic: str) -> None:
        """Forget what all groups have committed for a topic that is gone."""
        raise NotImplementedError

    async def lag(self, group: str) -> list[Lag]:
        """Return how far behind a group is, for each partition it has committed. Raises `GroupNotFound`."""
        raise NotImplementedError
