"""The witness: sees everything in a simulated cluster, and says when a promise is broken.

It keeps its own books and trusts nobody's word: `committed` is what any leader
ever acknowledged, as it was at that moment; each `Mirror` is one replica's log as
the calls to its disk log made it. A step is checked when it happens:

| when                        | what                                                              |
|-----------------------------|-------------------------------------------------------------------|
| a high watermark moves      | I1 I4 I6 I7: it acknowledges what is committed, and only rises     |
|                             | I5: all who may be in sync were counted. I16: there are enough     |
| the record changes          | I2: epochs rise, one leader each. I10 I17: who is in sync has all  |
| a node begins to lead       | I2 I3: nobody else led this epoch; it has all that is committed    |
| a node appends              | I4: nobody else has other bytes at this offset and epoch           |
| a node cuts its log         | I9: nothing committed goes                                         |
| a node fetches, or answers  | I8: what it reports is durable; fetches of other epochs do not count |
| a node restarts             | I8: everything it reported is still there                          |

Beside each replica's own books there is the loss of a whole disk: the replica is
`is_lost` until the cluster has heard of it, and not blamed for what it lacks.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

from penstock.cluster.node import Node
from penstock.cluster.replicated_log import ReplicatedLog
from penstock.cluster.transport import Diverged, Fetch, Fetched
from penstock.core.replica import PartitionRecord
from penstock.log.disk_log import DiskLog
from penstock.log.interface import Reservation
from penstock.log.record import header
from penstock.runtime.interface import Buffer
from tests.simulation.meta import SimMeta


class Violation(AssertionError):
    """A promise of the replication design was broken."""


class Entry(NamedTuple):
    """One batch, known by where it stands, who wrote it, and its CRC."""

    offset: int
    next_offset: int
    epoch: int
    crc: int


@dataclass(slots=True)
class Mirror:
    """One replica's log, as the witness has seen it being written."""

    entries: list[Entry] = field(default_factory=list)
    # How far it was durable when its process died; while one lives, the disk log says it.
    durable_offset_at_death: int = 0
    disk: DiskLog | None = None
    log_id: int | None = None
    # While its log is being cut: a crash may leave it cut or whole.
    cutting_at: int | None = None
    is_lost: bool = False
    # So many of the first entries are known to be the committed ones.
    agreeing: int = 0

    @property
    def durable_offset(self) -> int:
        if self.disk is None:
            return self.durable_offset_at_death
        if self.cutting_at is None:
            return self.disk.durable_offset
        # A cut inside a batch takes all of the batch.
        kept = [entry.next_offset for entry in self.entries if entry.next_offset <= self.cutting_at]
        return min(self.disk.durable_offset, kept[-1] if kept else 0)

    @property
    def end_offset(self) -> int:
        return self.entries[-1].next_offset if self.entries else 0

    def cut(self, offset: int) -> list[Entry]:
        """Forget what does not end below or at ``offset``, and return it."""
        kept = len(self.entries)
        while kept and self.entries[kept - 1].next_offset > offset:
            kept -= 1
        gone = self.entries[kept:]
        del self.entries[kept:]
        self.agreeing = min(self.agreeing, kept)
        return gone


class Witness:
    def __init__(self, meta: SimMeta) -> None:
        self.committed: list[Entry] = []
        self.committed_at: dict[int, Entry] = {}
        self.mirrors = {node: Mirror() for node in meta.record.replicas}
        # Those that lead now, or did until they notice; looked at in every turn of the loop.
        self.nodes: dict[int, Node] = {}
        self.facts_checked = 0
        self._meta = meta
        self._granted: set[int] = set()
        self._disks_lost = 0
        self._leaders: dict[int, tuple[int, Node]] = {}
        self._written: dict[tuple[int, int], tuple[Entry, int]] = {}
        # By node: its log, the high watermark, and how many were in sync for it, at the end of the last turn.
        self._known: dict[int, tuple[ReplicatedLog, int, int]] = {}
        meta.on_change = self.record_changed
        meta.on_grant = self.granted

    @property
    def committed_offset(self) -> int:
        return self.committed[-1].next_offset if self.committed else 0

    # At every turn of the loop.

    def look(self) -> None:
        for node, running in self.nodes.items():
            log = running.log
            if log is None:
                continue
            known = self._known.get(node)
            high_watermark, in_sync = log.durable_offset, len(log._leadership.isr)
            if known is None or known[0] is not log:
                self._moved(node, log, 0, high_watermark)
            elif known[1] != high_watermark:
                self._moved(node, log, known[1], high_watermark)
                # In one and the same turn it may have acknowledged and then learned that it has lost a follower.
                enough = max(in_sync, known[2]) >= log._leadership.min_isr
                self._expect(enough, f"I16: node {node} acknowledged with {in_sync} in sync")
            self._known[node] = (log, high_watermark, in_sync)
            self._check_lease(node, log)

    def _check_lease(self, node: int, log: ReplicatedLog) -> None:
        if log.epoch != self._meta.record.leader_epoch and log.leads():
            is_sure = log._membership.has_lease
            self._expect(not is_sure, f"I7: node {node} would answer reads in epoch {log.epoch}: {self._meta.record}")

    def _moved(self, node: int, log: ReplicatedLog, before: int, high_watermark: int) -> None:
        self._expect(
            high_watermark >= before, f"I6: the high watermark of node {node} fell from {before} to {high_watermark}"
        )
        mirror = self.mirrors[node]
        self._agree(mirror)
        if high_watermark > self.committed_offset:
            agrees = mirror.agreeing == len(self.committed)
            self._expect(
                agrees, f"I1: node {node} acknowledges up to {high_watermark} without what was acknowledged before"
            )
            fresh = [entry for entry in mirror.entries[len(self.committed) :] if entry.next_offset <= high_watermark]
            self.committed += fresh
            self.committed_at.update((entry.offset, entry) for entry in fresh)
            self._expect(self.committed_offset == high_watermark, f"I6: {high_watermark} is inside a batch")
            self._check_quorum(node, log)
            self.check_complete()
        else:
            reached = self.committed[mirror.agreeing - 1].next_offset if mirror.agreeing else 0
            self._expect(
                reached >= high_watermark, f"I7: node {node} acknowledges {high_watermark}, but agrees up to {reached}"
            )

    def _check_quorum(self, node: int, log: ReplicatedLog) -> None:
        record, leadership = self._meta.record, log._leadership
        if record.leader_epoch == log.epoch:
            for isr in (record.isr | record.elr, *self._meta.isr_on_the_way()):
                left_out = isr - leadership.max_isr
                self._expect(not left_out, f"I5: node {node} moved the high watermark without {sorted(left_out)}")
        # A leader that was paused may have counted disks that were lost since.
        if not self._disks_lost:
            copies = sum(self._is_complete(mirror) for mirror in self.mirrors.values())
            self._expect(copies >= record.min_isr, f"I16: only {copies} replicas have what node {node} acknowledged")

    # When something happens.

    def record_changed(self, before: PartitionRecord, after: PartitionRecord) -> None:
        self._expect(after.leader_epoch >= before.leader_epoch, f"I2: the epoch fell: {before} to {after}")
        same_leader = after.leader == before.leader
        has_risen = after.leader_epoch > before.leader_epoch
        self._expect(same_leader or has_risen, f"I2: a new leader in an old epoch: {before} to {after}")
        self._expect(not after.isr & after.elr, f"E2: in sync and eligible at once: {after}")
        self._expect(after.isr <= set(after.replicas), f"E2: strangers in sync: {after}")
        if not has_risen:
            self._check_expansion(after, after.isr - before.isr)
        self.check_complete()

    def _check_expansion(self, record: PartitionRecord, added: frozenset[int]) -> None:
        leader = None if record.leader is None else self.nodes.get(record.leader)
        log = None if leader is None else leader.log
        for node in sorted(added):
            mirror = self.mirrors[node]
            if log is not None and log.epoch == record.leader_epoch and not mirror.is_lost:
                start = log._leadership.start_offset
                reached = mirror.durable_offset
                is_of_now = log._leadership.positions[node].broker_epoch == self._meta.broker_epoch(node)
                self._expect(is_of_now, f"I17: node {node} joined by what an earlier process of it had")
                self._expect(reached >= start, f"I17: node {node} joined at {reached}, and its leader began at {start}")

    def check_complete(self) -> None:
        """Whoever may be elected has everything that was acknowledged (I1, I3, I10, I17)."""
        record = self._meta.record
        for node in sorted(record.isr | record.elr):
            mirror = self.mirrors[node]
            if mirror.is_lost:
                continue
            has_all = self._is_complete(mirror)
            place = "in sync" if node in record.isr else "eligible"
            self._expect(
                has_all,
                f"I1: node {node} is {place}, but has {mirror.durable_offset} of {self.committed_offset} on disk",
            )

    def granted(self, node: int, log_id: int) -> None:
        """A node takes part again: what it lost before is known to all."""
        record = self._meta.record
        mirror = self.mirrors[node]
        # A process that died before it was granted an epoch may have had the disk that is lost now.
        is_newest = mirror.log_id == log_id
        # One that never took part has lost nothing.
        is_empty = mirror.is_lost and is_newest and node in self._granted
        is_trusted = node in record.isr or node == record.leader or (is_empty and node in record.elr)
        self._expect(not is_trusted, f"I10: node {node} started anew and is still trusted: {record}")
        mirror.is_lost = mirror.is_lost and not is_newest
        self._granted.add(node)
        self.check_complete()

    def began_epoch(self, node: int, epoch: int) -> None:
        running = self.nodes[node]
        self._expect(
            self._leaders.setdefault(epoch, (node, running))[1] is running, f"I2: two leaders of epoch {epoch}"
        )
        self._expect(self._is_complete(self.mirrors[node]), f"I3: node {node} leads epoch {epoch} without all")

    def appended(self, node: int, entry: Entry) -> None:
        mirror = self.mirrors[node]
        self._expect(entry.offset == mirror.end_offset, f"I4: node {node} left a gap before {entry}")
        before = mirror.entries[-1].epoch if mirror.entries else -1
        known = self._written.setdefault((entry.offset, entry.epoch), (entry, before))
        self._expect(known == (entry, before), f"I4: node {node} has {entry} after {before}, another one has {known}")
        mirror.entries.append(entry)

    def cuts(self, node: int, offset: int) -> None:
        mirror = self.mirrors[node]
        self._agree(mirror)
        reached = self.committed[mirror.agreeing - 1].next_offset if mirror.agreeing else 0
        self._expect(offset >= reached, f"I9: node {node} cuts its log at {offset}, and {reached} was acknowledged")
        mirror.cutting_at = offset

    def cut(self, node: int, end_offset: int) -> None:
        mirror = self.mirrors[node]
        mirror.cut(end_offset)
        mirror.cutting_at = None

    def fetches(self, fetch: Fetch) -> None:
        durable = self.mirrors[fetch.replica].durable_offset
        self._expect(fetch.offset <= durable, f"I8: node {fetch.replica} reports {fetch.offset}, and has {durable}")

    def answers(self, node: int, fetch: Fetch, answer: object) -> None:
        log = self.nodes[node].log
        if isinstance(answer, Fetched | Diverged):
            counts = log is not None and log.epoch == fetch.epoch
            self._expect(counts, f"R2: node {node} takes a fetch of epoch {fetch.epoch} for one of its own")

    # Lives and deaths.

    def opened(self, node: int, disk: DiskLog) -> None:
        mirror = self.mirrors[node]
        lost = mirror.durable_offset_at_death > disk.end_offset
        self._expect(not lost, f"I8: node {node} had {mirror.durable_offset_at_death}, and has {disk.end_offset} now")
        mirror.cut(disk.end_offset)
        self._expect(mirror.end_offset == disk.end_offset, f"I4: node {node} found records nobody wrote")
        mirror.disk, mirror.log_id = disk, disk.log_id

    def died(self, node: int) -> None:
        mirror = self.mirrors[node]
        mirror.durable_offset_at_death, mirror.disk, mirror.cutting_at = mirror.durable_offset, None, None
        self.nodes.pop(node, None)
        self._known.pop(node, None)

    def disk_lost(self, node: int) -> None:
        assert self.mirrors[node].disk is None, "a disk is lost while its process is dead"
        self._disks_lost += 1
        self.mirrors[node] = Mirror(is_lost=True)

    def may_lose(self, node: int) -> bool:
        """Whether the cluster promises to survive it if this disk burns now.

        It survives the loss of fewer than ``min_isr`` disks at a time, and of
        none that is the last to have everything.
        """
        record = self._meta.record
        lost = {name for name, mirror in self.mirrors.items() if mirror.is_lost} | {node}
        return len(lost) < record.min_isr and bool((record.isr | record.elr) - lost)

    # The books.

    def _is_complete(self, mirror: Mirror) -> bool:
        self._agree(mirror)
        return mirror.agreeing == len(self.committed) and mirror.durable_offset >= self.committed_offset

    def _agree(self, mirror: Mirror) -> None:
        limit = min(len(mirror.entries), len(self.committed))
        while mirror.agreeing < limit and mirror.entries[mirror.agreeing] == self.committed[mirror.agreeing]:
            mirror.agreeing += 1

    def _expect(self, holds: bool, otherwise: str) -> None:
        self.facts_checked += 1
        if not holds:
            raise Violation(otherwise)


class WatchedLog(DiskLog):
    """A disk log that tells the witness what is done to it."""

    witness: Witness
    node: int

    def append(self, batch: Buffer, space: Reservation) -> int:
        offset = super().append(batch, space)
        self._tell(batch, offset, self.epochs[-1][0])
        return offset

    def append_copy(self, batch: Buffer, space: Reservation) -> int:
        offset = super().append_copy(batch, space)
        self._tell(batch, offset, header(batch).epoch)
        return offset

    async def begin_epoch(self, epoch: int) -> None:
        await super().begin_epoch(epoch)
        self.witness.began_epoch(self.node, epoch)

    async def truncate(self, offset: int) -> None:
        self.witness.cuts(self.node, offset)
        before = (self.end_offset, self.epochs)
        await super().truncate(offset)
        self.witness.cut(self.node, self.end_offset)
        if before == (self.end_offset, self.epochs):
            raise Violation(f"T1: node {self.node} cuts nothing at {offset}, and will be told the same again")

    def _tell(self, batch: Buffer, offset: int, epoch: int) -> None:
        found = header(batch)
        next_offset = offset + found.last_offset_delta + 1
        self.witness.appended(self.node, Entry(offset, next_offset, epoch, found.crc))
