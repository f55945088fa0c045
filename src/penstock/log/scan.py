"""Reads a segment from its first byte and says how far it is whole.

Used when a log opens and when it is repaired.
"""

from collections.abc import Iterator

from penstock.log import marker as markers
from penstock.log.index import Index
from penstock.log.marker import LOG_ID_AT, MARKER_BYTES, MARKER_VERSION
from penstock.log.record import HEAD_BYTES, LEADER_EPOCH, BadBatch, Header, UnknownVersion, check
from penstock.log.segment import WINDOW_BYTES, BadAt, walk
from penstock.runtime.interface import File


class ForeignSegment(Exception):
    """The segment was written by another log."""


class Scan:
    """What a segment holds, up to the first thing in it that is not right.

    Invariant: batches before `end_position` are whole, in order, and hold the
    offsets below `next_offset`; those since the last marker are in `open_heads`.
    """

    def __init__(self, base_offset: int, index: Index) -> None:
        self.index = index
        self.end_position = 0
        self.next_offset = base_offset
        self.first_timestamp_ms: int | None = None
        # Heads of batches that no marker closes yet.
        self.open_heads: list[bytes] = []
        # Nothing is there that the last marker does not say to be durable.
        self.is_confirmed = True
        self.damage: BadAt | None = None
        self._commit_position = 0
        self._commit_offset = base_offset
        self._commit_timestamp_ms = index.max_timestamp_ms
        self._commit_is_confirmed = True

    def add_batch(self, position: int, header: Header, head: bytes) -> None:
        if header.base_offset != self.next_offset:
            raise BadAt(position, f"base offset {header.base_offset} where {self.next_offset} belongs")
        if header.epoch != LEADER_EPOCH:
            raise BadAt(position, f"leader epoch {header.epoch} where {LEADER_EPOCH} belongs")
        if self.first_timestamp_ms is None:
            self.first_timestamp_ms = header.max_timestamp_ms
        self.index.add(header.base_offset, position, header.max_timestamp_ms)
        self.open_heads.append(head)
        self.is_confirmed = False
        self.end_position = position + header.size
        self.next_offset = header.next_offset

    def add_marker(self, position: int, header: Header, head: bytes, log_id: int) -> None:
        found = markers.decode(header)
        if found.log_id != log_id:
            raise ForeignSegment
        if found.version != MARKER_VERSION or found.position != position or header.base_offset != self.next_offset - 1:
            raise BadAt(position, "a commit marker that belongs elsewhere")
        if found.heads_crc != markers.heads_crc(self.open_heads, head):
            self._undo_commit()
            raise BadAt(self.end_position, "an offset, a length or an epoch of this commit is not what was committed")
        self.open_heads.clear()
        self.is_confirmed = found.durable_bytes == position
        self.end_position = position + header.size
        self._commit_position = self.end_position
        self._commit_offset = self.next_offset
        self._commit_timestamp_ms = self.index.max_timestamp_ms
        self._commit_is_confirmed = self.is_confirmed

    def _undo_commit(self) -> None:
        self.end_position = self._commit_position
        self.is_confirmed = self._commit_is_confirmed
        self.next_offset = self._commit_offset
        self.open_heads.clear()
        self.index.cut(self.end_position, self._commit_timestamp_ms)


def scan(file: File, index: Index, *, log_id: int, end: int) -> Scan:
    """Read everything below ``end``.

    ``index`` is empty and gets filled. Raises `ForeignSegment`, and
    `UnknownVersion` of `record.py`; damage is returned, for the caller to judge.
    """
    found = Scan(index.base_offset, index)
    try:
        for position, header, batch in walk(file, 0, end):
            if header.is_marker:
                found.add_marker(position, header, bytes(batch[:HEAD_BYTES]), log_id)
            else:
                found.add_batch(position, header, bytes(batch[:HEAD_BYTES]))
    except BadAt as damage:
        found.damage = damage
    return found


def durable_beyond(file: File, *, start: int, end: int, log_id: int) -> int:
    """Return the largest durable position that any whole marker after ``start`` speaks of."""
    found = (markers.decode(header) for _, header in markers_from(file, start, end, log_id))
    return max((marker.durable_bytes for marker in found), default=0)


def markers_from(file: File, start: int, end: int, log_id: int) -> Iterator[tuple[int, Header]]:
    """Iterate over position and header of the log's whole markers that stand where they say.

    Behind damage nothing can be found by its length, so markers are searched by
    the log's id, which no message body can contain but by a chance of 2^-63.
    """
    wanted = log_id.to_bytes(8, "big")
    position = start
    while position < end:
        window = file.read(position, min(WINDOW_BYTES, end - position))
        at = window.find(wanted)
        while at >= 0:
            header = _marker_at(window, at - LOG_ID_AT, position)
            if header is not None:
                yield position + at - LOG_ID_AT, header
            at = window.find(wanted, at + 1)
        if position + len(window) >= end:
            return
        position += len(window) - MARKER_BYTES + 1


def _marker_at(window: bytes, at: int, window_position: int) -> Header | None:
    if at < 0:
        return None
    try:
        header = check(window, at)
    except (BadBatch, UnknownVersion):
        return None
    return header if header.is_marker and markers.decode(header).position == window_position + at else None
