"""A follower: copies its leader's log to its own disk, batch by batch.

    fetch from the durable end ──▶ append ──▶ wait for the fsync ──▶ fetch …
            │
            └─ "our logs part at …" ──▶ cut by epoch ──▶ fetch …

It is the only one to touch the disk's log while it follows, and never does two
things at once. So it is not cancelled to end an epoch: it notices.
"""

import asyncio

from penstock.cluster.membership import Membership
from penstock.cluster.transport import Diverged, Fetch, Fetched, Transport
from penstock.core.replica import EpochEnd, last_epoch, truncation_offset
from penstock.log.disk_log import DiskLog
from penstock.log.interface import LogBusy, LogFull
from penstock.log.record import BadBatch, check


class Follower:
    def __init__(self, disk: DiskLog, membership: Membership, transport: Transport) -> None:
        # Never above the truth. Not remembered over a restart, but nothing above it is ever let go of.
        self.high_watermark = disk.start_offset
        self._disk = disk
        self._membership = membership
        self._transport = transport
        self._settings = membership.settings

    async def follow(self, leader: int, epoch: int) -> None:
        """Copy from ``leader`` until a newer epoch is known."""
        while self._membership.epoch == epoch:
            match await self._fetch(leader, epoch):
                case Fetched() as fetched:
                    await self._take(fetched, epoch)
                case Diverged() as parting:
                    await self._cut(EpochEnd(parting.epoch, parting.end_offset))
                case _:
                    # No answer, or one of us has missed an election: the next read of the metadata shows it.
                    await asyncio.sleep(self._settings.retry_ms / 1_000)

    async def _fetch(self, leader: int, epoch: int) -> object:
        # What is asked for tells the leader what is durable here (R1).
        await self._disk.wait_durable(self._disk.end_offset)
        request = Fetch(
            replica=self._membership.node,
            broker_epoch=self._membership.broker_epoch,
            epoch=epoch,
            offset=self._disk.end_offset,
            last_epoch=last_epoch(self._disk.epochs),
        )
        try:
            return await self._transport.call(leader, request, self._settings.call_timeout_ms)
        except (TimeoutError, ConnectionError):
            return None

    async def _take(self, fetched: Fetched, epoch: int) -> None:
        try:
            for batch in fetched.batches:
                assert check(batch).epoch <= epoch, "a leader has nothing newer than itself"
            with self._disk.reserve(sum(map(len, fetched.batches))) as space:
                for batch in fetched.batches:
                    self._disk.append_copy(batch, space)
        except (BadBatch, LogBusy, LogFull):
            await asyncio.sleep(self._settings.retry_ms / 1_000)
            return
        self.high_watermark = max(self.high_watermark, min(fetched.high_watermark, self._disk.end_offset))
        await self._disk.drop_before(fetched.start_offset)

    async def _cut(self, leader: EpochEnd) -> None:
        await self._disk.truncate(truncation_offset(self._disk.epochs, self._disk.end_offset, leader))
