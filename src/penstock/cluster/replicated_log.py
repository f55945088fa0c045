"""The log as its leader offers it: durable once every in-sync replica has it on disk.

    append ──▶ own disk ─────────────┐
                 │ fetched by        ├─ least of all ──▶ high watermark ──▶ wait_durable returns
                 ▼                   │
              followers' disks ──────┘  (the offset of their next fetch)

A `ReplicatedLog` lives for one epoch. When that is over it says `NotLeader` for
ever, also if the same node is elected again: in between, another may have
written, and whatever was decided on the old state must be decided anew.

How it satisfies `log.interface.Log`:

- `durable_offset` is the high watermark.
- `reserve` is the only step that refuses, here also with `NotEnoughReplicas`.
- `wait_durable` waits as long as there is hope. Its caller's patience is shorter;
  giving up leaves the outcome unknown (R3).
- `read` first waits until this leader is sure to know everything acknowledged
  before it (L2), and refuses once somebody may have been elected in its place (R6).
"""

import asyncio
from collections.abc import Mapping

from penstock.cluster import transport
from penstock.cluster.membership import Membership
from penstock.cluster.meta import Conflict, OutcomeUnknown, View
from penstock.cluster.transport import Diverged, FencedEpoch, Fetch, FetchAnswer, Fetched, UnknownEpoch
from penstock.core.replica import EpochEnd, Leadership, divergence, with_isr
from penstock.log.disk_log import DiskLog
from penstock.log.interface import LogBusy, LogClosed, OffsetOutOfRange, Reservation
from penstock.log.record import header
from penstock.runtime.interface import Buffer


class NotLeader(LogClosed):
    """This node does not lead the log, or no longer. What was appended may be durable or gone: ask the leader."""


class NotEnoughReplicas(LogBusy):
    """Too few replicas are in sync to promise anything. Nothing was written."""


class ReplicatedLog:
    """Satisfies `log.interface.Log`; see there for what the verbs promise."""

    def __init__(self, disk: DiskLog, membership: Membership, leadership: Leadership, *, revision: int) -> None:
        self._disk = disk
        self._leadership = leadership
        # Of the record that `leadership.isr` was read from; proposals are compared with it.
        self._revision = revision
        self._membership = membership
        self._settings = membership.settings
        self._appended = asyncio.Event()
        self._news = asyncio.Event()

    # The log.

    @property
    def start_offset(self) -> int:
        return self._disk.start_offset

    @property
    def durable_offset(self) -> int:
        return self._leadership.high_watermark

    @property
    def end_offset(self) -> int:
        return self._disk.end_offset

    @property
    def epoch(self) -> int:
        return self._leadership.epoch

    def leads(self) -> bool:
        """Whether no newer leader is known here. There may be one all the same."""
        return self._membership.epoch == self.epoch

    def reserve(self, size_bytes: int, *, from_spare: bool = False) -> Reservation:
        self._check_leads()
        in_sync, needed = len(self._leadership.isr), self._leadership.min_isr
        if in_sync < needed:
            raise NotEnoughReplicas(f"{in_sync} replicas are in sync; min_isr is {needed}")
        return self._disk.reserve(size_bytes, from_spare=from_spare)

    def append(self, batch: Buffer, space: Reservation) -> int:
        self._check_leads()
        offset = self._disk.append(batch, space)
        self._appended.set()
        return offset

    async def wait_durable(self, offset: int) -> None:
        while self.durable_offset < offset:
            self._check_leads()
            await self._news.wait()
        self._check_leads()

    async def read(self, offset: int, *, bytes_max: int) -> list[memoryview]:
        await self.wait_durable(self._leadership.start_offset)
        if not self._membership.has_lease:
            raise NotLeader(f"node {self._leadership.node} may have been replaced without knowing it")
        high_watermark = self.durable_offset
        if not self.start_offset <= offset <= high_watermark:
            raise OffsetOutOfRange(
                f"offset {offset}: there are offsets from {self.start_offset} to {high_watermark - 1}"
            )
        batches = [] if offset == high_watermark else await self._disk.read(offset, bytes_max=bytes_max)
        # While we waited for the disk, a follower of this node's next epoch may have cut it.
        self._check_leads()
        return [batch for batch in batches if header(batch).next_offset <= high_watermark]

    async def drop_before(self, offset: int) -> None:
        """Let go of what every replica has, in sync or not.

        A replica that is behind the start of its leader's log could only begin
        anew from a snapshot, which is not done here.
        """
        followers = [node for node in self._leadership.replicas if node != self._leadership.node]
        if all(node in self._leadership.positions for node in followers):
            least = min((self._leadership.positions[node].offset for node in followers), default=offset)
            await self._disk.drop_before(min(offset, self.durable_offset, least))

    def _check_leads(self) -> None:
        if not self.leads():
            raise NotLeader(f"node {self._leadership.node} no longer leads: epoch {self.epoch} is over")

    # For the followers.

    async def serve(self, fetch: Fetch) -> FetchAnswer:
        if fetch.epoch < self.epoch:
            return FencedEpoch()
        if fetch.epoch > self.epoch:
            return UnknownEpoch()
        if not self.leads():
            return transport.NotLeader()
        parting = divergence(self._disk.epochs, self._disk.end_offset, EpochEnd(fetch.last_epoch, fetch.offset))
        if parting is not None:
            return Diverged(parting.epoch, parting.end_offset)
        self._leadership.fetched(
            fetch.replica,
            fetch.offset,
            broker_epoch=fetch.broker_epoch,
            leader_offset=self._disk.durable_offset,
            now_ms=self._membership.clock.now_ms(),
        )
        self._advance()
        await self._wait_for_more_than(fetch.offset)
        batches: list[memoryview] = []
        if self.leads() and fetch.offset < self._disk.durable_offset:
            batches = await self._disk.read(fetch.offset, bytes_max=self._settings.fetch_bytes_max)
        # What a later epoch wrote over it must not go out in the name of this one.
        if not self.leads():
            return transport.NotLeader()
        return Fetched(
            batches=tuple(map(bytes, batches)), high_watermark=self.durable_offset, start_offset=self.start_offset
        )

    async def _wait_for_more_than(self, offset: int) -> None:
        try:
            async with asyncio.timeout(self._settings.fetch_wait_ms / 1_000):
                while self.leads() and self._disk.durable_offset <= offset:
                    await self._news.wait()
        except TimeoutError:
            pass

    # While it leads.

    async def run(self) -> None:
        """Keep high watermark and ISR up to date; return when the epoch is over."""
        async with asyncio.TaskGroup() as tasks:
            chores = [tasks.create_task(self._watch_disk()), tasks.create_task(self._keep_isr())]
            await self._membership.epoch_over(self.epoch)
            self._ring()
            for chore in chores:
                chore.cancel()

    async def _watch_disk(self) -> None:
        while True:
            self._appended.clear()
            await self._disk.wait_durable(self._disk.end_offset)
            self._advance()
            self._ring()
            await self._appended.wait()

    def _advance(self) -> None:
        if self._leadership.advance(self._disk.durable_offset):
            self._ring()

    def _ring(self) -> None:
        self._news.set()
        self._news = asyncio.Event()

    async def _keep_isr(self) -> None:
        while self.leads():
            self._learn(self._membership.view)
            wanted = self._leadership.wanted_isr(
                now_ms=self._membership.clock.now_ms(), lag_ms_max=self._settings.lag_ms_max
            )
            if wanted != self._leadership.isr:
                await self._change_isr(wanted)
            await asyncio.sleep(self._settings.isr_every_ms / 1_000)

    async def _change_isr(self, isr: frozenset[int]) -> None:
        """Ask for another ISR until it is granted or can never be."""
        record = with_isr(self._membership.view.record, isr)
        broker_epochs = self._broker_epochs(isr)
        self._leadership.propose(isr)
        while self._leadership.proposed is not None and self.leads():
            is_refused = False
            try:
                await self._membership.meta.swap(record, revision=self._revision, broker_epochs=broker_epochs)
            except Conflict:
                is_refused = True
            except OutcomeUnknown:
                pass
            self._learn(await self._membership.refresh(), is_refused=is_refused)

    def _broker_epochs(self, isr: frozenset[int]) -> Mapping[int, int]:
        added = {node: self._leadership.positions[node].broker_epoch for node in sorted(isr - self._leadership.isr)}
        return {self._leadership.node: self._membership.broker_epoch, **added}

    def _learn(self, view: View, *, is_refused: bool = False) -> None:
        """Take over a record newer than the one we know.

        Only that settles a proposal whose answer was lost: while the record is the
        old one, a copy of the proposal may still be on its way and be granted (M5).
        """
        if view.record.leader_epoch == self.epoch and (view.revision > self._revision or is_refused):
            self._leadership.settle(view.record.isr)
            self._revision = view.revision
            self._advance()
