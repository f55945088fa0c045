"""One node's part in one replicated log: it leads or follows, as the metadata says."""

import asyncio

from penstock.cluster import transport
from penstock.cluster.election import control
from penstock.cluster.follower import Follower
from penstock.cluster.membership import Membership
from penstock.cluster.meta import View
from penstock.cluster.replicated_log import ReplicatedLog
from penstock.cluster.transport import Fetch, FetchAnswer, Transport
from penstock.core.replica import Leadership
from penstock.log.disk_log import DiskLog


class Node:
    def __init__(self, disk: DiskLog, membership: Membership, transport: Transport) -> None:
        # Only while this node leads.
        self.log: ReplicatedLog | None = None
        self._membership = membership
        self._disk = disk
        self._follower = Follower(disk, membership, transport)

    async def run(self) -> None:
        """Take part until cancelled; then the disk's log may be closed, not before."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._membership.run())
            tasks.create_task(control(self._membership))
            tasks.create_task(self._take_part())

    async def answer(self, fetch: Fetch) -> FetchAnswer:
        return transport.NotLeader() if self.log is None else await self.log.serve(fetch)

    async def _take_part(self) -> None:
        await self._membership.granted()
        while True:
            view = self._membership.view
            leader, epoch = view.record.leader, view.record.leader_epoch
            if leader == self._membership.node:
                await self._lead(view)
            elif leader is not None:
                await self._follower.follow(leader, epoch)
            await self._membership.epoch_over(epoch)

    async def _lead(self, view: View) -> None:
        record = view.record
        await self._disk.begin_epoch(record.leader_epoch)
        leadership = Leadership(
            node=self._membership.node,
            epoch=record.leader_epoch,
            began_at_ms=self._membership.clock.now_ms(),
            start_offset=self._disk.end_offset,
            high_watermark=self._follower.high_watermark,
            replicas=record.replicas,
            min_isr=record.min_isr,
            isr=record.isr,
        )
        self.log = ReplicatedLog(self._disk, self._membership, leadership, revision=view.revision)
        try:
            await self.log.run()
        finally:
            self._follower.high_watermark = self.log.durable_offset
            self.log = None
