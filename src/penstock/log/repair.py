"""Makes a damaged log usable again, by a way its owner has chosen.

    skip   what is damaged becomes a hole: its offsets are used up, its records
           are gone, everything before and after it stays
    cut    the log ends before the first damage; everything after it goes

Either way nothing is destroyed: a file that is replaced or goes is kept beside
the log with the ending `.damaged`. A repaired segment is written aside, synced,
and only then given its name; the manifest comes last.
"""

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Literal

from penstock.log import manifest as manifests
from penstock.log.manifest import Manifest
from penstock.log.record import (
    HEAD,
    HEAD_BYTES,
    LEADER_EPOCH,
    LENGTH_FROM,
    MARKER_BYTES,
    MarkerPosition,
    encode_marker,
    hole,
)
from penstock.log.segment import WINDOW_BYTES, index_names, segment_name, walk
from penstock.log.survey import Survey, SurveyedSegment
from penstock.runtime.interface import Buffer, Disk, File

Way = Literal["skip", "cut"]

DAMAGED = ".damaged"
REPAIRED = ".repaired"

# The offsets of one batch are counted in 31 bits.
HOLE_OFFSETS_MAX = 2**31


def repair(disk: Disk, found: Survey, way: Way) -> None:
    """Mend what a survey found. The folder must be locked by the caller. Blocks on the disk."""
    if found.is_sound:
        return
    state = _skip(disk, found) if way == "skip" else _cut(disk, found)
    # Both slots: whatever the old ones said no longer counts.
    manifests.create(disk, found.folder, replace(state, sequence=0, clean_end_offset=None))


def _skip(disk: Disk, found: Survey) -> Manifest:
    segments = list(found.segments)
    expected = found.manifest.start_offset
    for segment in segments:
        if segment.base_offset > expected:
            _write_segment(disk, found, SurveyedSegment(expected, expected, 0), end_offset=segment.base_offset)
        following = [other.base_offset for other in segments if other.base_offset > segment.base_offset]
        # What a closed segment lost at its end is known by where the next begins.
        end_offset = min(following) if following else _end_offset(found, segment)
        if segment.damages or end_offset != segment.next_offset:
            _write_segment(disk, found, segment, end_offset=end_offset)
        expected = end_offset
    if not segments or segments[-1].base_offset < found.manifest.active_offset:
        _write_segment(disk, found, SurveyedSegment(found.manifest.active_offset, expected, 0), end_offset=expected)
    return found.manifest


def _end_offset(found: Survey, segment: SurveyedSegment) -> int:
    if segment.base_offset == found.manifest.active_offset:
        # Offsets that were given out are not given out again.
        return max(segment.next_offset, found.manifest.clean_end_offset or 0, found.floor_offset)
    return max(segment.next_offset, found.manifest.active_offset)


def _cut(disk: Disk, found: Survey) -> Manifest:
    damage = next((damage for damage in found.damages if not damage.is_torn and damage.lost_offsets != 0), None)
    if damage is None:
        # Nothing is lost that a cut could end before.
        return _skip(disk, found)
    end_offset = damage.first_offset
    kept = [segment for segment in found.segments if segment.base_offset < end_offset] or found.segments[:1]
    last = kept[-1]
    for segment in found.segments:
        if segment.base_offset > last.base_offset:
            _set_aside(disk, found.folder, segment.base_offset)
    if last.damages:
        good = [stretch for stretch in last.good if stretch[1] <= damage.position]
        whole = SurveyedSegment(last.base_offset, end_offset, last.size_bytes, good=good)
        _write_segment(disk, found, whole, end_offset=end_offset)
    return replace(found.manifest, active_offset=last.base_offset)


def _write_segment(disk: Disk, found: Survey, segment: SurveyedSegment, *, end_offset: int) -> None:
    """Rewrite a segment, with holes for what is lost, and put it in the place of the old one."""
    name = f"{found.folder}/{segment_name(segment.base_offset)}"
    source = disk.open(name)
    target = disk.open(name + REPAIRED)
    try:
        target.truncate(0)
        writer = _Writer(target, found.manifest, segment.base_offset)
        for base_offset, next_offset, batch in _batches(source, segment):
            writer.fill_to(base_offset)
            writer.write(base_offset, next_offset, batch)
        writer.fill_to(end_offset)
        writer.close_commit()
        target.sync()
    finally:
        source.close()
        target.close()
    # A copy, not a rename: at every moment there must be a file under the segment's own name.
    _copy(disk, name, _free_name(disk, name))
    _remove_index(disk, found.folder, segment.base_offset)
    disk.rename(name + REPAIRED, name)
    disk.sync_folder(found.folder)


def _batches(source: File, segment: SurveyedSegment) -> Iterator[tuple[int, int, memoryview]]:
    for start, end in segment.good:
        for _, header, batch in walk(source, start, end):
            if not header.is_marker:
                yield header.base_offset, header.next_offset, batch


def _set_aside(disk: Disk, folder: str, base_offset: int) -> None:
    name = f"{folder}/{segment_name(base_offset)}"
    _remove_index(disk, folder, base_offset)
    disk.rename(name, _free_name(disk, name))
    disk.sync_folder(folder)


def _remove_index(disk: Disk, folder: str, base_offset: int) -> None:
    for index_name in index_names(base_offset):
        if disk.exists(f"{folder}/{index_name}"):
            disk.remove(f"{folder}/{index_name}")


def _free_name(disk: Disk, name: str) -> str:
    """Return a name to keep a damaged file under; an earlier repair may have taken the first."""
    suffixes = itertools.chain([""], (f".{number}" for number in itertools.count(2)))
    return next(free for suffix in suffixes if not disk.exists(free := name + DAMAGED + suffix))


def _copy(disk: Disk, old: str, new: str) -> None:
    source, target = disk.open(old), disk.open(new)
    try:
        for position in range(0, source.size(), WINDOW_BYTES):
            target.write(source.read(position, WINDOW_BYTES), position)
        target.sync()
    finally:
        source.close()
        target.close()


class _Writer:
    """Writes batches, and holes where offsets are missing, with a marker after every megabyte."""

    COMMIT_BYTES = 1 << 20

    def __init__(self, file: File, manifest: Manifest, base_offset: int) -> None:
        self._file = file
        self._manifest = manifest
        self._position = 0
        self._next_offset = base_offset
        self._parts: list[Buffer] = []
        self._heads: list[bytes] = []
        self._size = 0

    def fill_to(self, offset: int) -> None:
        """Use up the offsets below ``offset`` that have no records any more."""
        while self._next_offset < offset:
            end = min(offset, self._next_offset + HOLE_OFFSETS_MAX)
            self.write(self._next_offset, end, hole(self._next_offset, end))

    def write(self, base_offset: int, next_offset: int, data: Buffer) -> None:
        head = HEAD.pack(base_offset, len(data) - LENGTH_FROM, LEADER_EPOCH)
        self._heads.append(head)
        self._parts += [head, memoryview(data)[HEAD_BYTES:]]
        self._size += len(data)
        self._next_offset = next_offset
        if self._size >= self.COMMIT_BYTES:
            self.close_commit()

    def close_commit(self) -> None:
        if not self._heads:
            return
        place = MarkerPosition(self._next_offset - 1, self._position + self._size)
        self._parts.append(
            encode_marker(place, durable_bytes=self._position, log_id=self._manifest.log_id, heads=self._heads)
        )
        self._file.write(b"".join(self._parts), self._position)
        self._file.sync()
        self._position += self._size + MARKER_BYTES
        self._parts, self._heads, self._size = [], [], 0
