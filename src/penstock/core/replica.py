"""One replica of one log: what counts as acknowledged, what must be cut, who may lead.

    offset  0 ───────────── HW ───────────── durable ───────── end
            │ acknowledged  │ on this disk   │ on its way to it │

A leader hands out batches it has on disk; a follower writes them, syncs them,
and only then asks for more *from its durable end*. So the offset in a fetch is
a promise about the follower's disk, and the least of these promises is the high
watermark (HW): what every in-sync replica would still have after a power cut of
all of them.

Rules of this file
------------------
1. Nothing here reads a clock, a disk or a network: values in, values out.
2. Leadership is numbered by epochs. What was reported in one epoch counts in no
   other, and a replica that disagrees with its leader is cut back by comparing
   epochs, never by its high watermark, which may be behind the truth.
3. Who is in sync is only what the metadata store has committed. While a change
   is on its way both sets count (`Leadership.max_isr`).

Invariant: every member of ``isr`` and ``elr`` has everything acknowledged.

The letters of the rules (R2, T1, …) are those of the replication design. Read
beside it: KIP-101 and KIP-279 (truncation by epoch), KIP-497 (changes of the
ISR), KIP-966 (eligible leader replicas).
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeAlias

Epochs: TypeAlias = Sequence[tuple[int, int]]  # (epoch, first offset written under it), rising in both.

NO_EPOCH = -1


class EpochEnd(NamedTuple):
    """An epoch and the first offset after it, in one replica's log."""

    epoch: int
    end_offset: int


def last_epoch(epochs: Epochs) -> int:
    return epochs[-1][0] if epochs else NO_EPOCH


def epoch_end(epochs: Epochs, end_offset: int, *, up_to: int) -> EpochEnd:
    """Return the newest epoch not above ``up_to`` in this log, and where it ends.

    >>> epoch_end([(1, 0), (4, 10)], 15, up_to=4)
    EpochEnd(epoch=4, end_offset=15)
    >>> epoch_end([(1, 0), (4, 10)], 15, up_to=3)
    EpochEnd(epoch=1, end_offset=10)
    >>> epoch_end([(1, 0), (4, 10)], 15, up_to=0)
    EpochEnd(epoch=-1, end_offset=0)
    """
    end = end_offset
    for epoch, start in reversed(epochs):
        if epoch <= up_to:
            return EpochEnd(epoch, end)
        end = start
    return EpochEnd(NO_EPOCH, end)


def divergence(epochs: Epochs, end_offset: int, follower: EpochEnd) -> EpochEnd | None:
    """Return where a follower's log leaves this leader's, or None if it is a part of it (T2).

    A follower that ends in an epoch unknown here has diverged even if it is the
    shorter one: its last records were written by a leader we never followed.

    >>> divergence([(1, 0), (4, 10)], 15, EpochEnd(1, 8)) is None
    True
    >>> divergence([(1, 0), (4, 10)], 15, EpochEnd(1, 12))
    EpochEnd(epoch=1, end_offset=10)
    >>> divergence([(1, 0), (4, 10)], 15, EpochEnd(3, 8))
    EpochEnd(epoch=1, end_offset=10)
    """
    ours = epoch_end(epochs, end_offset, up_to=follower.epoch)
    is_part = ours.epoch == follower.epoch and follower.end_offset <= ours.end_offset
    return None if is_part else ours


def truncation_offset(epochs: Epochs, end_offset: int, leader: EpochEnd) -> int:
    """Return where a follower cuts its log after its leader said where they part (T1).

    What is cut was written in an epoch the leader does not have, or beyond the
    end of one it has; so nothing is cut that the leader has. One cut may not be
    enough: the follower asks again until the leader finds its log a part of its own.

    >>> truncation_offset([(1, 0), (3, 8)], 12, EpochEnd(1, 10))
    8
    >>> truncation_offset([(1, 0)], 12, EpochEnd(1, 10))
    10
    """
    ours = epoch_end(epochs, end_offset, up_to=leader.epoch)
    return min(leader.end_offset, ours.end_offset)


@dataclass(frozen=True, slots=True)
class Position:
    """What a follower's last fetch in this epoch told its leader."""

    offset: int  # Everything below is durable on the follower's disk.
    broker_epoch: int
    fetched_at_ms: int
    leader_offset: int  # How far the leader's own disk was at that moment.
    caught_up_at_ms: int  # When the follower last had everything its leader could give.


@dataclass(slots=True)
class Leadership:
    """What a leader knows, for one epoch. All of it is gone with the epoch."""

    node: int
    epoch: int
    began_at_ms: int
    # The end of the log at the election. What lies below may be acknowledged already, by a leader before us.
    start_offset: int
    # Rises only. Inherited from our time as a follower, so it may be behind the truth while below `start_offset`.
    high_watermark: int
    replicas: tuple[int, ...]
    min_isr: int
    # As last read from the metadata store.
    isr: frozenset[int]
    # Asked of the metadata store and not settled: it may have been granted, be granted later, or never.
    proposed: frozenset[int] | None = None
    # Only fetches made in this epoch get in here.
    positions: dict[int, Position] = field(default_factory=dict)

    @property
    def max_isr(self) -> frozenset[int]:
        """Whoever may be in the committed ISR, however the proposal ends."""
        return self.isr if self.proposed is None else self.isr | self.proposed

    @property
    def is_caught_up(self) -> bool:
        """Whether the high watermark is known to hold everything ever acknowledged (L2)."""
        return self.high_watermark >= self.start_offset

    def fetched(self, follower: int, offset: int, *, broker_epoch: int, leader_offset: int, now_ms: int) -> None:
        """Take down a fetch of this epoch.

        A follower under steady load is always a little behind. It counts as
        caught up at the time of its last fetch if it now has what we had then.
        """
        before = self.positions.get(follower)
        caught_up_at_ms = self.began_at_ms if before is None else before.caught_up_at_ms
        if before is not None and offset >= before.leader_offset:
            caught_up_at_ms = before.fetched_at_ms
        if offset >= leader_offset:
            caught_up_at_ms = now_ms
        self.positions[follower] = Position(offset, broker_epoch, now_ms, leader_offset, caught_up_at_ms)

    def advance(self, durable_offset: int) -> bool:
        """Move the high watermark to what every possible member of the ISR has on disk (R2).

        Returns whether it moved. With fewer than ``min_isr`` in sync it stands still.
        """
        if len(self.isr) < self.min_isr:
            return False
        reached = durable_offset
        for member in self.max_isr - {self.node}:
            position = self.positions.get(member)
            if position is None:
                return False
            reached = min(reached, position.offset)
        has_moved = reached > self.high_watermark
        self.high_watermark = max(self.high_watermark, reached)
        return has_moved

    def wanted_isr(self, *, now_ms: int, lag_ms_max: int) -> frozenset[int]:
        """Return the ISR as it should be: without those who lag, with those who have everything (R4)."""
        stay = {member for member in self.isr if member == self.node or not self._lags(member, now_ms, lag_ms_max)}
        join = {node for node in self.replicas if node not in self.isr and self._may_join(node, now_ms, lag_ms_max)}
        return frozenset(stay | join)

    def propose(self, isr: frozenset[int]) -> None:
        """Count with ``isr`` too, from before it is asked for until it is settled."""
        assert self.proposed is None
        self.proposed = isr

    def settle(self, isr: frozenset[int]) -> None:
        """Take over the committed ISR; a proposal on the way cannot change it any more (M5)."""
        self.isr = isr
        self.proposed = None

    def _lags(self, member: int, now_ms: int, lag_ms_max: int) -> bool:
        position = self.positions.get(member)
        caught_up_at_ms = self.began_at_ms if position is None else position.caught_up_at_ms
        return now_ms - caught_up_at_ms > lag_ms_max

    def _may_join(self, node: int, now_ms: int, lag_ms_max: int) -> bool:
        """Whether a replica has everything that may have been acknowledged.

        The high watermark alone does not say so: right after an election it may
        be behind what earlier leaders acknowledged, but our log's start is not.
        """
        position = self.positions.get(node)
        if position is None or now_ms - position.fetched_at_ms > lag_ms_max:
            return False
        return position.offset >= self.high_watermark and position.offset >= self.start_offset


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRecord:
    """Who leads and who is in sync, as the metadata store has it.

    Invariant: ``isr`` and ``elr`` are disjoint, and ``elr`` is empty unless
    ``isr`` is smaller than ``min_isr``.
    """

    replicas: tuple[int, ...]  # The first are preferred as leaders.
    leader: int | None
    leader_epoch: int  # Rises with every change of leader and is never used twice.
    isr: frozenset[int]
    # Left the ISR when nothing could be acknowledged without it: complete still, so it may be elected (KIP-966).
    elr: frozenset[int]
    min_isr: int


def with_isr(record: PartitionRecord, isr: frozenset[int]) -> PartitionRecord:
    """Return the record with another ISR, and the ELR that follows from it (E2)."""
    left = (record.elr | record.isr) - isr
    elr = frozenset() if len(isr) >= record.min_isr else left
    return replace(record, isr=isr, elr=elr)


def fence(record: PartitionRecord, node: int, *, is_whole: bool) -> PartitionRecord:
    """Return the record without a node that has started anew (F1, F2).

    It may come back by election only if its disk is ``is_whole``: the one that
    wrote what was reported from it.
    """
    fenced = with_isr(record, record.isr - {node})
    if not is_whole:
        fenced = replace(fenced, elr=fenced.elr - {node})
    if record.leader == node:
        fenced = replace(fenced, leader=None, leader_epoch=record.leader_epoch + 1)
    return fenced


def elect(record: PartitionRecord, unfenced: Collection[int]) -> PartitionRecord:
    """Return the record with a leader that is there and has everything acknowledged (E1).

    The same record, if its leader is there, or if nobody who is there is known
    to be complete: then the log is offline rather than short.
    """
    if record.leader in unfenced:
        return record
    for complete in (record.isr, record.elr):
        for node in record.replicas:
            if node in complete and node in unfenced:
                elected = with_isr(record, record.isr | {node})
                return replace(elected, leader=node, leader_epoch=record.leader_epoch + 1)
    return record
