"""Consumer groups, as front ends see them: members, generations, committed offsets and lag.

A front end translates and calls one of these; nothing here knows a protocol. What is
refused is raised as a `GroupRefusal` that names the fact, or, where a call has many
rows, returned in the row. `LogBusy`, `LogFull` and `LogClosed` pass through: nothing
was done, and the caller may try again.

A join and a sync wait until the group answers. A caller that cancels them, because its
client has gone, takes the wait back: a consumer that is gone holds up no other.
"""

import asyncio
import itertools
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

from penstock.broker.access import ANONYMOUS_ADMIN, Caller, Role, Share
from penstock.contract.limits import GROUPS_MAX, OFFSET_MAX, OFFSET_METADATA_BYTES_MAX
from penstock.core.consumer_group.members import (
    CONSUMER,
    assigned_partitions,
    assignment_of,
    subscribed_topics,
    subscription_to,
)
from penstock.core.consumer_group.requests import (
    NO_GENERATION,
    BadGroupName,
    BadOffset,
    BadSessionTimeout,
    FencedInstance,
    GroupDescription,
    GroupFull,
    GroupNotEmpty,
    GroupNotFound,
    GroupRefusal,
    GroupsStopping,
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
    NotCoordinator,
    PartitionUnknown,
    RebalanceInProgress,
    Synced,
    SyncRequest,
    TooManyGroups,
    TooManyOffsets,
    TopicSubscribed,
    UnknownMember,
)
from penstock.log.interface import LogBusy, LogClosed, LogFull
from penstock.runtime.interface import Runtime
from penstock.streams.group_coordinator import Coordinator, CoordinatorSettings
from penstock.streams.group_records import CommittedOffset, OffsetStore, Place

TIDY_MS = 1_000
# Old offsets are looked for once in so many seconds: it takes a look at all of them.
_FORGET_EVERY = 60

DEFAULTS = CoordinatorSettings()

__all__ = [
    "BadGroupName",
    "BadOffset",
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
    "GroupsStopping",
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
    "NotCoordinator",
    "PartitionUnknown",
    "Partitions",
    "RebalanceInProgress",
    "SyncRequest",
    "Synced",
    "TooManyGroups",
    "TooManyOffsets",
    "TopicSubscribed",
    "UnknownMember",
    "assigned_partitions",
    "open_groups",
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
    member_count: int = 0


class Groups:
    def __init__(self, runtime: Runtime, coordinator: Coordinator, partitions: Partitions) -> None:
        self._clock = runtime.clock
        # Members join, sync and leave there; here is what concerns topics, offsets and callers.
        self.coordinator = coordinator
        self._partitions = partitions
        # What one key may have of what all share.
        self.share = Share()

    def check_share(self, caller: Caller, group: str) -> None:
        """Raise `TooManyGroups` if a caller would make a group and has its share of them already."""
        names = self.coordinator.names()
        if caller is ANONYMOUS_ADMIN or group in names:
            return
        most = self.share.most(caller, GROUPS_MAX)
        if len(names) >= most and sum(caller.has(Role.RECEIVE, name) for name in names) >= most:
            raise TooManyGroups(f"there are {most} groups of the key {caller.name!r}, and it may not have more")

    async def commit(
        self,
        group: str,
        commits: Sequence[Commit],
        *,
        member_id: str = "",
        instance_id: str | None = None,
        generation: int = NO_GENERATION,
        retention_ms: int | None = None,
    ) -> list[GroupRefusal | None]:
        """Keep offsets; durable on return, one answer for each row. Raises where the member may not commit."""
        await self.coordinator.hold(group)
        self.coordinator.check_commit(group, member_id, instance_id, generation)
        now_ms = self._clock.now_ms()
        expires_at_ms = None if retention_ms is None else now_ms + retention_ms
        refusals = [self._refusal(commit) for commit in commits]
        rows = {
            (commit.topic, commit.partition): CommittedOffset(
                commit.offset, commit.leader_epoch, commit.metadata, now_ms, expires_at_ms
            )
            for commit, refusal in zip(commits, refusals, strict=True)
            if refusal is None
        }
        if rows:
            await self.coordinator.commit(
                group, rows, member_id=member_id, instance_id=instance_id, generation=generation
            )
        return refusals

    async def committed(self, group: str, wanted: Mapping[str, Sequence[int]] | None) -> list[Committed]:
        """Return what is kept: for every wanted partition of a topic in its order, or, with None, all there is.

        An unknown group has committed nothing: that is no error.
        """
        await self.coordinator.hold(group)
        kept = await self.coordinator.committed(group)
        if wanted is None:
            places = sorted(kept)
        else:
            places = [(topic, partition) for topic, partitions in wanted.items() for partition in partitions]
        return [_committed(place, kept.get(place)) for place in places]

    async def describe(self, group: str) -> GroupDescription:
        """Return a group with its members. Raises `GroupNotFound`."""
        found, _ = await self.coordinator.seen(group)
        return found.describe()

    async def listed(self, states: Collection[GroupState] = (), *, is_own: bool = False) -> list[Listed]:
        """Return the groups in these states, or all, by name; with ``is_own`` no groups that another server lists."""
        found = [self.coordinator.find(name) for name in self.coordinator.names()]
        found += [group for group, kept in await self.coordinator.elsewhere() if not (is_own and kept.is_coordinated)]
        return [
            Listed(each.name, each.protocol_type, each.state, member_count=len(each.roster.members))
            for each in sorted(found, key=lambda each: each.name)
            if not states or each.state in states
        ]

    async def forget_offsets(self, group: str, rows: Sequence[tuple[str, int]]) -> list[GroupRefusal | None]:
        """Forget offsets of topics that no member reads; one answer for each row.

        Raises `GroupNotFound`, and `GroupNotEmpty` if it cannot be known what the members read.
        """
        if group not in self.coordinator.names():
            await self.coordinator.seen(group)
            await self.coordinator.hold(group)
        found = self.coordinator.find(group)
        if found.roster.members and found.protocol_type != CONSUMER:
            raise GroupNotEmpty(f"the group {group!r} has members that are no consumers")
        read = {topic for topic in {topic for topic, _ in rows} if found.reads(topic)}
        refusals = [self._no_offset(topic, partition, read) for topic, partition in rows]
        kept = [row for row, refusal in zip(rows, refusals, strict=True) if refusal is None]
        await self.coordinator.forget_offsets(group, kept)
        return refusals

    async def forget_topic(self, topic: str) -> None:
        """Forget what all groups have committed for a topic that is gone."""
        for group in self.coordinator.names():
            with suppress(NotCoordinator):
                kept = await self.coordinator.committed(group)
                places = [place for place in kept if place[0] == topic]
                if places:
                    await self.coordinator.forget_offsets(group, places)

    async def forget_gone_topics(self) -> None:
        """Forget offsets of partitions that are not there: a crash may have come between a topic's end and theirs."""
        for group in self.coordinator.names():
            kept = await self.coordinator.committed(group)
            gone = [place for place in kept if self._partitions.ends(*place) is None]
            if gone:
                await self.coordinator.forget_offsets(group, gone)

    async def lag(self, group: str) -> list[Lag]:
        """Return how far behind a group is in every partition of the topics it reads. Raises `GroupNotFound`."""
        found, kept = await self.coordinator.seen(group)
        topics = found.topics()
        lags = []
        for topic in sorted({topic for topic, _ in kept} | topics):
            for partition in itertools.count():
                ends = self._partitions.ends(topic, partition)
                if ends is None:
                    break
                lags.append(_lag((topic, partition), kept.get((topic, partition)), *ends))
        return lags

    def _no_offset(self, topic: str, partition: int, read: Collection[str]) -> GroupRefusal | None:
        """Say why there is no offset to be forgotten; None if there may be one."""
        if self._partitions.ends(topic, partition) is None:
            return PartitionUnknown(f"there is no partition {partition} of a topic {topic!r}")
        return TopicSubscribed(f"members read {topic!r}") if topic in read else None

    def _refusal(self, commit: Commit) -> GroupRefusal | None:
        if len(commit.metadata.encode()) > OFFSET_METADATA_BYTES_MAX:
            return MetadataTooLarge(f"metadata has up to OFFSET_METADATA_BYTES_MAX ({OFFSET_METADATA_BYTES_MAX}) bytes")
        if self._partitions.ends(commit.topic, commit.partition) is None:
            return PartitionUnknown(f"there is no partition {commit.partition} of a topic {commit.topic!r}")
        # Beyond the end is no mistake: Kafka takes it, and tools set offsets ahead of a copy that still comes in.
        if not 0 <= commit.offset <= OFFSET_MAX:
            return BadOffset(f"the offset is {commit.offset}; it must be from 0 to OFFSET_MAX ({OFFSET_MAX})")
        return None

    async def _tidy(self) -> None:
        try:
            # If there is no room for it, there may be at the next start.
            with suppress(LogBusy, LogFull):
                await self.forget_gone_topics()
            while True:
                for _ in range(_FORGET_EVERY):
                    await asyncio.sleep(TIDY_MS / 1_000)
                    await self.coordinator.tidy()
                await self.coordinator.forget_old()
        except LogClosed:
            return


@asynccontextmanager
async def open_groups(
    runtime: Runtime, kept: OffsetStore, partitions: Partitions, *, settings: CoordinatorSettings = DEFAULTS
) -> AsyncIterator[Groups]:
    """Look after the groups of a store until this ends, and close it then."""
    try:
        groups = Groups(runtime, Coordinator(runtime, kept, settings), partitions)
        async with asyncio.TaskGroup() as tasks:
            tidying = tasks.create_task(groups._tidy())
            try:
                yield groups
            finally:
                groups.coordinator.stop()
                tidying.cancel()
    finally:
        await kept.close()


def shown_to(caller: Caller, group: GroupDescription) -> GroupDescription:
    """Return a group without the topics that a caller may not see.

    What members of another kind than consumers say cannot be read, so it is shown to those who may see every topic.
    """
    if caller.patterns(Role.SEE) is None:
        return group
    is_read = group.protocol_type == CONSUMER
    return replace(group, members=tuple(_shown_member(caller, member, is_read=is_read) for member in group.members))


def _shown_member(caller: Caller, member: MemberDescription, *, is_read: bool) -> MemberDescription:
    topics = subscribed_topics(member.metadata) if is_read and member.metadata else None
    places = assigned_partitions(member.assignment) if is_read and member.assignment else None
    return replace(
        member,
        metadata=b"" if topics is None else subscription_to([each for each in topics if caller.may_list(each)]),
        assignment=b"" if places is None else assignment_of([each for each in places if caller.may_list(each[0])]),
    )


def _committed(place: Place, kept: CommittedOffset | None) -> Committed:
    return Committed(*place) if kept is None else Committed(*place, kept.offset, kept.leader_epoch, kept.metadata)


def _lag(place: Place, kept: CommittedOffset | None, start_offset: int, high_watermark: int) -> Lag:
    if kept is None:
        return Lag(*place, None, start_offset, high_watermark, None)
    # What retention took before the group read it is not ahead of it any more.
    behind = max(0, high_watermark - max(kept.offset, start_offset))
    return Lag(*place, kept.offset, start_offset, high_watermark, behind)
