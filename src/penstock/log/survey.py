"""Reads a whole log and lists everything that is wrong with it, changing nothing.

Recovery stops at the first damage, because it must not guess. A survey goes on:
behind damage it looks for the next batch or commit marker that proves itself,
and so learns which bytes and which offsets are lost.
"""

from dataclasses import dataclass, field, replace

from penstock.log import manifest as manifests
from penstock.log.manifest import Manifest
from penstock.log.record import HEAD_BYTES, MARKER_BYTES, Header, UnknownVersion, decode_marker, heads_crc
from penstock.log.recovery import durable_beyond
from penstock.log.segment import WINDOW_BYTES, BadAt, base_offsets, batch_size, markers_from, segment_name, walk
from penstock.runtime.interface import Disk, File


@dataclass(frozen=True, slots=True)
class Damage:
    file: str
    position: int
    size_bytes: int
    reason: str
    first_offset: int
    # The first offset behind it that is whole, or None if nothing is.
    next_offset: int | None
    # A tail that power loss tore before it was acknowledged: opening the log cuts it off by itself.
    is_torn: bool = False

    @property
    def lost_offsets(self) -> int | None:
        """How many offsets are lost; None if that cannot be known."""
        return None if self.next_offset is None else self.next_offset - self.first_offset


@dataclass(slots=True)
class SurveyedSegment:
    base_offset: int
    next_offset: int
    size_bytes: int
    # Whole batches, as (position, end) of stretches without damage between them.
    good: list[tuple[int, int]] = field(default_factory=list)
    damages: list[Damage] = field(default_factory=list)


@dataclass(slots=True)
class Survey:
    folder: str
    # As found, or put together from the segments.
    manifest: Manifest
    segments: list[SurveyedSegment]
    # Everything wrong, in the order of the log; what stands between segments too.
    damages: list[Damage]
    # Everything below was durable, whatever is there now.
    floor_offset: int = 0

    @property
    def is_sound(self) -> bool:
        return all(damage.is_torn for damage in self.damages)


class NothingToRead(Exception):
    """There is no log in this folder, or nothing in it says which log it was."""


def survey(disk: Disk, folder: str) -> Survey:
    """Read every byte of a log that no process has open. Blocks on the disk."""
    check_is_log(disk, folder)
    bases = base_offsets(disk.names(folder))
    found = manifests.read(disk, folder)
    state = found.manifest if found else _put_together(disk, folder, bases)
    kept = [base for base in bases if state.start_offset <= base <= state.active_offset]
    if found is None or found.is_fallback:
        # What an older manifest does not know of may still be whole.
        kept = [base for base in bases if base >= state.start_offset]
        state = replace(state, active_offset=max(kept, default=state.active_offset))
    floor = found.floor_offset if found else 0
    segments = _without_replaced([_survey_file(disk, folder, base, state, floor) for base in kept], state)
    damages = _in_order(folder, state, segments, floor)
    if found is None:
        damages.insert(0, Damage(f"{folder}/{manifests.NAME}", 0, 0, "it is missing or unreadable", 0, 0))
    return Survey(folder, state, segments, damages, floor)


def check_is_log(disk: Disk, folder: str) -> None:
    """Raise `NothingToRead` unless the folder holds a log, or what is left of one."""
    if not base_offsets(disk.names(folder)):
        raise NothingToRead(f"there is no log in {folder}: it has no segment files")


def _without_replaced(segments: list[SurveyedSegment], state: Manifest) -> list[SurveyedSegment]:
    """Leave out what a crash in the middle of `DiskLog.replace_closed` has left: opening the log removes it.

    Only a file that has replaced them reaches beyond the beginning of those after it.
    """
    kept: list[SurveyedSegment] = []
    for segment in segments:
        if kept and segment.base_offset < kept[-1].next_offset and segment.base_offset < state.active_offset:
            continue
        kept.append(segment)
    return kept


def _in_order(folder: str, state: Manifest, segments: list[SurveyedSegment], floor: int) -> list[Damage]:
    damages: list[Damage] = []
    expected = state.start_offset
    for segment in segments:
        if segment.base_offset > expected:
            damages.append(_missing(folder, expected, segment.base_offset))
        damages.extend(segment.damages)
        expected = segment.next_offset
    if not segments or segments[-1].base_offset < state.active_offset:
        name = f"{folder}/{segment_name(state.active_offset)}"
        damages.append(Damage(name, 0, 0, "the file is missing", max(expected, state.active_offset), None))
    was_closed = state.clean_end_offset is not None
    end_offset = state.clean_end_offset if state.clean_end_offset is not None else floor
    if expected < end_offset:
        name = f"{folder}/{segment_name(state.active_offset)}"
        was = "closed at" if was_closed else "durable up to"
        reason = f"the log was {was} offset {end_offset}, and this is where it ends now"
        size = segments[-1].size_bytes if segments else 0
        damages.append(Damage(name, size, 0, reason, expected, end_offset))
    return damages


def _missing(folder: str, first_offset: int, next_offset: int) -> Damage:
    reason = f"a file with offsets {first_offset} to {next_offset - 1} is missing or cut short"
    return Damage(f"{folder}/{segment_name(first_offset)}", 0, 0, reason, first_offset, next_offset)


def _survey_file(disk: Disk, folder: str, base_offset: int, state: Manifest, floor: int) -> SurveyedSegment:
    file = disk.open(f"{folder}/{segment_name(base_offset)}", must_exist=True)
    try:
        surveyed = _survey_segment(file, f"{folder}/{segment_name(base_offset)}", base_offset, state.log_id)
        is_open_ended = base_offset == state.active_offset and state.clean_end_offset is None
        if is_open_ended and surveyed.damages and surveyed.damages[-1].next_offset is None:
            last = surveyed.damages[-1]
            durable = durable_beyond(file, start=last.position, end=surveyed.size_bytes, log_id=state.log_id)
            surveyed.damages[-1] = replace(last, is_torn=durable <= last.position and last.first_offset >= floor)
        return surveyed
    finally:
        file.close()


def _survey_segment(file: File, name: str, base_offset: int, log_id: int) -> SurveyedSegment:
    size = file.size()
    found = SurveyedSegment(base_offset, base_offset, size)
    position = 0
    while position < size:
        whole = _WholeRange(found, position, log_id)
        reason = whole.follow(file, name)
        if reason is None:
            break
        position = whole.end
        anchor = _next_neighbour(file, position, size, found.next_offset) if not whole.is_foreign else None
        anchor = anchor or _next_commit(file, position, size, found.next_offset, log_id)
        end, next_offset = anchor or (size, None)
        found.damages.append(Damage(name, position, end - position, reason, found.next_offset, next_offset))
        position = end
        found.next_offset = found.next_offset if next_offset is None else next_offset
    return found


class _WholeRange:
    """Whole batches one after the other, up to the first that is not."""

    def __init__(self, found: SurveyedSegment, start: int, log_id: int) -> None:
        self._found = found
        self._start = start
        self._log_id = log_id
        self.end = start
        self.is_foreign = False
        self._heads: list[bytes] = []
        # Behind damage the first heads of a commit are unknown, so its marker says nothing about the rest.
        self._is_commit_whole = start == 0
        self._commit = (start, found.next_offset)

    def follow(self, file: File, name: str) -> str | None:
        """Add what is whole to the segment; return what is wrong with what follows, or None at the end."""
        reason: str | None = None
        try:
            for position, header, batch in walk(file, self._start, self._found.size_bytes):
                head = bytes(batch[:HEAD_BYTES])
                if header.is_marker:
                    self._add_marker(position, header, head, name)
                else:
                    self._add_batch(position, header, head)
                self.end = position + header.size
        except BadAt as damage:
            reason = damage.reason
        except UnknownVersion as error:
            reason = str(error)
        if self.end > self._start:
            self._found.good.append((self._start, self.end))
        return reason

    def _add_batch(self, position: int, header: Header, head: bytes) -> None:
        found = self._found
        if header.base_offset != found.next_offset:
            raise BadAt(position, f"base offset {header.base_offset} where {found.next_offset} belongs")
        found.next_offset = header.next_offset
        self._heads.append(head)

    def _add_marker(self, position: int, header: Header, head: bytes, name: str) -> None:
        found = self._found
        marker = decode_marker(header)
        if marker.log_id != self._log_id:
            # What came before this marker is not of this log either.
            self.is_foreign = True
            self.end, found.next_offset = self._commit
            raise BadAt(self.end, "it was written by another log")
        if self._is_commit_whole and marker.heads_crc != heads_crc(self._heads, head):
            # Each batch is whole and where it belongs: only its leader epoch, which is always the same, can be wrong.
            reason = "a leader epoch of this commit is not what was committed"
            found.damages.append(Damage(name, self._commit[0], 0, reason, found.next_offset, found.next_offset))
        self._heads.clear()
        self._is_commit_whole = True
        self._commit = (position + header.size, found.next_offset)


def _next_neighbour(file: File, position: int, end: int, expected: int) -> tuple[int, int] | None:
    """Return where the next batch is, if the length of the damaged one leads to it, and its offset."""
    window = memoryview(file.read(position, min(WINDOW_BYTES, end - position)))
    neighbour = position + batch_size(window, 0)
    header = _whole(file, neighbour, end)
    if header is None or header.is_marker or header.base_offset <= expected:
        return None
    return neighbour, header.base_offset


def _next_commit(file: File, position: int, end: int, expected: int, log_id: int) -> tuple[int, int] | None:
    """Return where the next commit begins, and with which offset."""
    for at, found in markers_from(file, position, end, log_id):
        if found.base_offset >= expected:
            return at + MARKER_BYTES, found.base_offset + 1
    return None


def _whole(file: File, position: int, end: int) -> Header | None:
    try:
        return next((header for _, header, _ in walk(file, position, end)), None)
    except (BadAt, UnknownVersion):
        return None


def _put_together(disk: Disk, folder: str, bases: list[int]) -> Manifest:
    """Make a manifest from what the segments say of themselves."""
    for base in bases:
        file = disk.open(f"{folder}/{segment_name(base)}", must_exist=True)
        try:
            for _, header, _ in walk(file, 0, file.size()):
                if header.is_marker:
                    log_id = decode_marker(header).log_id
                    return Manifest(log_id=log_id, start_offset=bases[0], active_offset=bases[-1])
        except (BadAt, UnknownVersion):
            continue
        finally:
            file.close()
    raise NothingToRead(f"neither the manifest of {folder} nor any segment says which log it was")
