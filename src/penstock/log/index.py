"""Offset → position in one segment: sparse, unchecked, rebuildable.

An entry is made for the first batch after every few kilobytes. Three columns of
equal length, in memory and on disk:

    .index      n × u32 offset relative to the segment · n × u32 position
    .timeindex  n × i64 the largest timestamp of all batches *before* the entry

Neither file has a checksum, because nothing trusts them: a reader checks the
batch it was led to, and a wrong index is made anew from its segment. Callers
never see relative offsets.
"""

from array import array
from bisect import bisect_left, bisect_right

_NEVER = -(2**63)


class BadIndex(Exception):
    """These bytes are no index of this segment."""


class Index:
    __slots__ = ("base_offset", "every_bytes", "_offsets", "_positions", "_times", "max_timestamp_ms", "_next_at")

    def __init__(self, base_offset: int, every_bytes: int) -> None:
        self.base_offset = base_offset
        self.every_bytes = every_bytes
        self._offsets = array("I")
        self._positions = array("I")
        self._times = array("q")
        self.max_timestamp_ms = _NEVER
        # The position from which on the next batch gets an entry.
        self._next_at = 0

    def add(self, offset: int, position: int, timestamp_ms: int) -> None:
        """Take note of the batch at ``position``; batches come in order."""
        if position >= self._next_at:
            self._offsets.append(offset - self.base_offset)
            self._positions.append(position)
            self._times.append(self.max_timestamp_ms)
            self._next_at = position + self.every_bytes
        if timestamp_ms > self.max_timestamp_ms:  # noqa: PLR1730 - on the way of every append.
            self.max_timestamp_ms = timestamp_ms

    def entry_of(self, offset: int) -> tuple[int, int]:
        """Return offset and position of an indexed batch at or before the one holding ``offset``."""
        found = bisect_right(self._offsets, offset - self.base_offset) - 1
        if found < 0:
            return self.base_offset, 0
        return self.base_offset + self._offsets[found], self._positions[found]

    def position_at(self, timestamp_ms: int) -> int:
        """Return a position at or before the first batch with a timestamp this late."""
        found = bisect_left(self._times, timestamp_ms) - 1
        return self._positions[found] if found >= 0 else 0

    def last(self) -> tuple[int, int]:
        """Return offset and position of the last entry: where a walk to the end may begin."""
        if not self._offsets:
            return self.base_offset, 0
        return self.base_offset + self._offsets[-1], self._positions[-1]

    def cut(self, position: int, max_timestamp_ms: int) -> None:
        """Forget every entry at or after ``position``."""
        keep = bisect_left(self._positions, position)
        del self._offsets[keep:], self._positions[keep:], self._times[keep:]
        self.max_timestamp_ms = max_timestamp_ms
        self._next_at = self._positions[-1] + self.every_bytes if keep else 0

    def to_bytes(self) -> tuple[bytes, bytes]:
        """Return the two files."""
        # The time of the end stands last, one entry more than there are offsets.
        times = self._times + array("q", [self.max_timestamp_ms])
        return self._offsets.tobytes() + self._positions.tobytes(), times.tobytes()

    @classmethod
    def from_bytes(cls, base_offset: int, every_bytes: int, files: tuple[bytes, bytes]) -> "Index":
        offsets_and_positions, times = files
        count, rest = divmod(len(offsets_and_positions), 8)
        if rest or len(times) != (count + 1) * 8:
            raise BadIndex("the two files do not belong together")
        index = cls(base_offset, every_bytes)
        index._offsets = _column("I", offsets_and_positions[: count * 4])
        index._positions = _column("I", offsets_and_positions[count * 4 :])
        index._times = _column("q", times)
        index.max_timestamp_ms = index._times.pop()
        if count:
            index._next_at = index._positions[-1] + every_bytes
        return index


def _column(code: str, data: bytes) -> "array[int]":
    column: array[int] = array(code)
    column.frombytes(data)
    return column
