"""One group commit: the batches that share a write, a marker and an fsync."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

from penstock.log import marker as markers
from penstock.log.index import Index
from penstock.log.marker import MARKER_BYTES, Place
from penstock.log.record import HEAD, HEAD_BYTES, LEADER_EPOCH, LENGTH_FROM
from penstock.log.tail import ActiveSegment
from penstock.runtime.interface import Buffer

# A batch that has its offsets but is not yet written: its bytes without the head, which is made anew, its base
# offset, next offset and max timestamp. A plain tuple, because one is made on every append.
Appended: TypeAlias = tuple[memoryview, int, int, int]


@dataclass(slots=True)
class Commit:
    batches: list[Appended]
    batch_bytes: int
    # Where it is to go, until a roll names another.
    active: ActiveSegment
    # Set when this commit begins a new segment.
    rolled_from: ActiveSegment | None = None
    end_bytes: int = 0
    synced_bytes: int = 0
    _positions: list[int] = field(default_factory=list)

    @property
    def next_offset(self) -> int:
        return self.batches[-1][2]

    def assemble(self, log_id: int) -> bytes:
        """Return what is written: heads, batches and the marker, in one piece."""
        position = self.active.end_bytes
        heads: list[bytes] = []
        parts: list[Buffer] = []
        for rest, base_offset, _, _ in self.batches:
            head = HEAD.pack(base_offset, HEAD_BYTES - LENGTH_FROM + len(rest), LEADER_EPOCH)
            heads.append(head)
            parts.append(head)
            parts.append(rest)
            self._positions.append(position)
            position += HEAD_BYTES + len(rest)
        place = Place(self.next_offset - 1, position)
        parts.append(markers.encode(place, durable_bytes=self.active.synced_bytes, log_id=log_id, heads=heads))
        self.end_bytes = position + MARKER_BYTES
        return b"".join(parts)

    def fill(self, index: Index) -> None:
        """Take the batches into the index of the segment they were written to."""
        for (_, base_offset, _, timestamp_ms), position in zip(self.batches, self._positions, strict=True):
            index.add(base_offset, position, timestamp_ms)


def gather(pending: Iterable[Appended], bytes_max: int) -> tuple[list[Appended], int]:
    """Return the first batches that fill a commit, and their size; at least one."""
    batches: list[Appended] = []
    total = 0
    for batch in pending:
        size = HEAD_BYTES + len(batch[0])
        if batches and total + size > bytes_max:
            break
        batches.append(batch)
        total += size
    return batches, total
