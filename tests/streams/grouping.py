"""Groups on a simulated machine, and consumers that speak to them."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from penstock.broker.consumer_groups import (
    Groups,
    Joined,
    JoinRequest,
    MemberIdNeeded,
    Synced,
    SyncRequest,
    open_groups,
)
from penstock.core.consumer_group.members import GroupSettings
from penstock.log.settings import LogSettings
from penstock.runtime.interface import Runtime
from penstock.streams.embedded.offset_store import Offsets, OffsetsSettings
from penstock.streams.group_coordinator import CoordinatorSettings
from tests.scenarios.group_story import subscription
from tests.simulation.world import Machine

FOLDER = "streams/offsets"
LOG = LogSettings(allocate_bytes=0, spare_bytes=0, segment_bytes_max=4_000)
OFFSETS = OffsetsSettings(log=LOG, compact_bytes_min=20_000)
SETTINGS = CoordinatorSettings(group=GroupSettings(initial_delay_ms=0))


class Topics:
    """The partitions that there are, each with its first offset and its high watermark."""

    def __init__(self, **topics: list[tuple[int, int]]) -> None:
        self.topics = topics or {"events": [(0, 100), (0, 100)]}

    def ends(self, topic: str, partition: int) -> tuple[int, int] | None:
        partitions = self.topics.get(topic, [])
        return partitions[partition] if partition < len(partitions) else None


@asynccontextmanager
async def groups_on(
    where: Machine | Runtime,
    *,
    topics: Topics | None = None,
    settings: CoordinatorSettings = SETTINGS,
    offsets: OffsetsSettings = OFFSETS,
) -> AsyncIterator[Groups]:
    runtime = where.start() if isinstance(where, Machine) else where
    async with open_groups(
        runtime, await Offsets.open(runtime, FOLDER, offsets), topics or Topics(), settings=settings
    ) as groups:
        yield groups


class Consumer:
    """One that knows the protocol, and does each step when it is told to."""

    def __init__(self, groups: Groups, name: str, *, group: str = "readers", instance_id: str | None = None) -> None:
        self.groups = groups
        self.name = name
        self.group = group
        self.instance_id = instance_id
        self.member_id = ""
        self.generation = -1
        self.session_timeout_ms = 10_000
        self.protocol_type = "consumer"

    async def join(self, *protocols: str) -> Joined:
        try:
            return await self._join(*protocols)
        except MemberIdNeeded as needed:
            self.member_id = needed.member_id
            return await self._join(*protocols)

    async def _join(self, *protocols: str) -> Joined:
        request = JoinRequest(
            member_id=self.member_id,
            instance_id=self.instance_id,
            client_id=self.name,
            client_host="127.0.0.1",
            session_timeout_ms=self.session_timeout_ms,
            rebalance_timeout_ms=30_000,
            protocol_type=self.protocol_type,
            protocols=tuple((name, subscription("events")) for name in protocols or ("range",)),
        )
        joined = await self.groups.coordinator.join(self.group, request)
        self.member_id, self.generation = joined.member_id, joined.generation
        return joined

    async def sync(self, assignments: Mapping[str, bytes] | None = None) -> Synced:
        request = SyncRequest(
            member_id=self.member_id,
            generation=self.generation,
            instance_id=self.instance_id,
            assignments=assignments or {},
        )
        return await self.groups.coordinator.sync(self.group, request)

    async def beat(self) -> None:
        await self.groups.coordinator.heartbeat(self.group, self.member_id, self.instance_id, self.generation)

    async def enter(self) -> bytes:
        """Join and sync; a leader gives each member its own name."""
        joined = await self.join()
        names = {each.member_id: each.member_id.split("-")[0].encode() for each in joined.members}
        return (await self.sync(names)).assignment


async def enter_together(*consumers: Consumer) -> list[bytes]:
    """Let consumers join one generation of a group that is empty, and return what each is given."""
    async with asyncio.TaskGroup() as tasks:
        joins = [tasks.create_task(each.join()) for each in consumers]
    leader = next(each for each, join in zip(consumers, joins, strict=True) if join.result().members)
    names = {each.member_id: each.name.encode() for each in consumers}
    async with asyncio.TaskGroup() as tasks:
        syncs = [tasks.create_task(each.sync(names if each is leader else None)) for each in consumers]
    return [sync.result().assignment for sync in syncs]
