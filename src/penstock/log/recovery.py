"""What is true after a crash.

Opening a log answers three questions, in this order:

1. *Are all segments there?* The manifest says where the log starts and which
   segment was active. Between the two no offset may be missing. Segments beyond
   the active one were made by a roll that was cut short: nothing acknowledged is
   in them, and they go.
2. *How far is the active segment whole?* All of it is read and checked.
3. *Is what follows torn or damaged?* It is damaged if the last stop was clean,
   or if a later commit marker, or the floor (`group_commit.py`), says that it was
   durable: then the log refuses to open, says where, and changes nothing. Otherwise power was lost while it was
   being written, before anyone was told it is safe: it is cut off and reported.

Closed segments are checked at their ends here and batch by batch when read.
Reading all of them on every start would make the start as slow as the log is
long; `penstock repair` does it on demand.

What cannot be told apart: a torn tail, and damage inside the very last commit.
"""

import errno
from collections.abc import Iterator
from dataclasses import dataclass, replace

from penstock.log import manifest as manifests
from penstock.log.manifest import Manifest
from penstock.log.record import (
    HEAD_BYTES,
    LEADER_EPOCH,
    MARKER_BYTES,
    MARKER_VERSION,
    Header,
    MarkerPosition,
    UnknownVersion,
    decode_marker,
    encode_marker,
    heads_crc,
)
from penstock.log.segment import (
    BadAt,
    BadIndex,
    Index,
    Segment,
    base_offsets,
    index_names,
    markers_from,
    segment_name,
    walk,
)
from penstock.log.settings import LogSettings
from penstock.runtime.interface import NO_SPACE, Disk, File, Runtime
from penstock.telemetry import LOG_INDEX_REBUILT, LOG_TAIL_CUT

# Opening a log may be refused by the system without anything being wrong with the disk.
REFUSALS = NO_SPACE | {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOENT, errno.EMFILE, errno.ENFILE, errno.ELOOP}


class LogCorrupted(Exception):
    """Bytes that were durable are not what was written. Nothing was changed."""

    def __init__(self, file: str, reason: str, *, position: int = 0, offset: int | None = None) -> None:
        where = f" at byte {position}" + ("" if offset is None else f" (offset {offset})")
        folder = file.rpartition("/")[0]
        super().__init__(
            f"{file} is damaged{where}: {reason}. Nothing was changed. "
            f"To see what can be saved, run: penstock repair {folder}"
        )
        self.file = file
        self.reason = reason
        self.position = position
        self.offset = offset


@dataclass(slots=True)
class Recovered:
    """A log that may be used, with its active segment open."""

    manifest: Manifest
    closed: list[Segment]
    active: "Scan"
    active_file: File
    was_clean: bool


def recover(runtime: Runtime, folder: str, settings: LogSettings) -> Recovered:
    """Make a log whole and return what is in it, creating it where there is none. Blocks on the disk."""
    disk = runtime.disk
    # A process that was killed may have left names that only the kernel's memory knows: nothing may be
    # acknowledged in a file that a power cut could still take away.
    disk.sync_folder(folder)
    found = manifests.read(disk, folder)
    if found is None:
        found = manifests.ManifestRead(_create(runtime, folder), is_fallback=False)
    state = found.manifest
    _remove_unacknowledged(disk, folder, found)
    closed = [
        closed_segment(runtime, folder, base, settings)
        for base in base_offsets(disk.names(folder))
        if base < state.active_offset
    ]
    closed = _without_replaced(disk, folder, closed)
    _check_chain(folder, state, closed)

    file = disk.open(f"{folder}/{segment_name(state.active_offset)}")
    try:
        active = _recover_active(runtime, folder, found, file, settings)
        state = replace(state, sequence=state.sequence + 1, clean_end_offset=None)
        # What is there was synced at the end of the last process, or a moment ago.
        manifests.write(disk, folder, state, floor_offset=active.next_offset)
    except BaseException:
        file.close()
        raise
    return Recovered(state, closed, active, file, was_clean=found.manifest.clean_end_offset is not None)


def _create(runtime: Runtime, folder: str) -> Manifest:
    disk = runtime.disk
    for base in base_offsets(disk.names(folder)):
        if _size(disk, folder, base):
            raise LogCorrupted(f"{folder}/{manifests.NAME}", "it is missing or unreadable, but there are segments")
    disk.open(f"{folder}/{segment_name(0)}").close()
    manifest = Manifest(log_id=runtime.dice.token(), clean_end_offset=0)
    manifests.create(disk, folder, manifest)
    return manifest


def _remove_unacknowledged(disk: Disk, folder: str, found: manifests.ManifestRead) -> None:
    state = found.manifest
    bases = base_offsets(disk.names(folder))
    if state.active_offset not in bases:
        raise LogCorrupted(f"{folder}/{segment_name(state.active_offset)}", "the file is missing")
    for base in reversed(bases):
        if base < state.start_offset:
            remove_segment(disk, folder, base)
        elif base > state.active_offset:
            if found.is_fallback and _size(disk, folder, base):
                raise LogCorrupted(f"{folder}/{manifests.NAME}", f"it does not know of {segment_name(base)}")
            remove_segment(disk, folder, base)


def _without_replaced(disk: Disk, folder: str, closed: list[Segment]) -> list[Segment]:
    """Remove segments whose offsets are all used up by the one before: `DiskLog.replace_closed`."""
    kept: list[Segment] = []
    for segment in closed:
        if kept and segment.next_offset <= kept[-1].next_offset:
            remove_segment(disk, folder, segment.base_offset)
        else:
            kept.append(segment)
    return kept


def _check_chain(folder: str, state: Manifest, closed: list[Segment]) -> None:
    expected = state.start_offset
    for segment in closed:
        if segment.base_offset != expected:
            raise LogCorrupted(f"{folder}/{segment_name(expected)}", "the file is missing")
        expected = segment.next_offset
    if expected != state.active_offset:
        last = closed[-1].base_offset if closed else expected
        raise LogCorrupted(
            f"{folder}/{segment_name(last)}",
            f"it ends at offset {expected}, and the next segment begins at {state.active_offset}",
        )


def closed_segment(runtime: Runtime, folder: str, base_offset: int, settings: LogSettings) -> Segment:
    """Look at a closed segment: where it ends, and that its last batches are whole."""
    name = f"{folder}/{segment_name(base_offset)}"
    file = runtime.disk.open(name)
    try:
        index = load_index(runtime, folder, base_offset, file, settings)
        next_offset, start = index.last()
        # The index is unchecked, and retention must not drop a segment for a wrong number in it: what the
        # last batches say themselves counts if it is later.
        max_timestamp_ms = index.max_timestamp_ms
        for _, header in batches_of(name, file, start, next_offset):
            next_offset = header.next_offset
            max_timestamp_ms = max(max_timestamp_ms, header.max_timestamp_ms)
        return Segment(base_offset, next_offset, file.size(), max_timestamp_ms)
    finally:
        file.close()


def batches_of(name: str, file: File, start: int, next_offset: int) -> Iterator[tuple[int, Header]]:
    """Iterate over position and header of a closed segment's batches, in which nothing may be wrong."""
    try:
        for position, header, _ in walk(file, start, file.size()):
            if header.is_marker:
                continue
            if header.base_offset != next_offset:
                reason = f"base offset {header.base_offset} where {next_offset} belongs"
                raise LogCorrupted(name, reason, position=position, offset=next_offset)
            yield position, header
            next_offset = header.next_offset
    except BadAt as damage:
        raise LogCorrupted(name, damage.reason, position=damage.position, offset=next_offset) from None
    except UnknownVersion as error:
        raise UnknownVersion(f"{name}: {error}") from None


def load_index(runtime: Runtime, folder: str, base_offset: int, file: File, settings: LogSettings) -> Index:
    """Return the index of a closed segment, rebuilt if its files are missing or wrong."""
    names = index_names(base_offset)
    if all(runtime.disk.exists(f"{folder}/{name}") for name in names):
        try:
            index = Index.from_bytes(
                base_offset,
                settings.index_every_bytes,
                (_content(runtime, folder, names[0]), _content(runtime, folder, names[1])),
            )
            _, header, _ = next(walk(file, index.last()[1], file.size()))
            if header.base_offset == index.last()[0]:
                return index
        except (BadIndex, BadAt, UnknownVersion, StopIteration):
            pass
    return rebuild_index(runtime, folder, base_offset, file, settings)


def rebuild_index(runtime: Runtime, folder: str, base_offset: int, file: File, settings: LogSettings) -> Index:
    index = Index(base_offset, settings.index_every_bytes)
    for position, header in batches_of(f"{folder}/{segment_name(base_offset)}", file, 0, base_offset):
        index.add(header.base_offset, position, header.max_timestamp_ms)
    save_index(runtime.disk, folder, index)
    runtime.log_event(LOG_INDEX_REBUILT, file=f"{folder}/{index_names(base_offset)[0]}")
    return index


def save_index(disk: Disk, folder: str, index: Index) -> None:
    """Write the index files, if the disk has room. They are not synced: what is left of them is checked when used."""
    for name, data in zip(index_names(index.base_offset), index.to_bytes(), strict=True):
        try:
            _replace_content(disk, f"{folder}/{name}", data)
        except OSError as error:
            if error.errno not in NO_SPACE:
                raise


def _replace_content(disk: Disk, path: str, data: bytes) -> None:
    file = disk.open(path)
    try:
        file.truncate(0)
        file.write(data, 0)
    finally:
        file.close()


def remove_segment(disk: Disk, folder: str, base_offset: int) -> None:
    disk.remove(f"{folder}/{segment_name(base_offset)}")
    for name in index_names(base_offset):
        if disk.exists(f"{folder}/{name}"):
            disk.remove(f"{folder}/{name}")
    disk.sync_folder(folder)


def _scan_segment(folder: str, state: Manifest, file: File, index: Index) -> "Scan":
    """Scan a segment; what can be no torn tail in any case is refused here."""
    name = f"{folder}/{segment_name(index.base_offset)}"
    try:
        return scan(file, index, log_id=state.log_id, end=file.size())
    except ForeignSegment:
        raise LogCorrupted(name, "it was written by another log") from None
    except UnknownVersion as error:
        raise UnknownVersion(f"{name}: {error}") from None


def _recover_active(
    runtime: Runtime, folder: str, known: manifests.ManifestRead, file: File, settings: LogSettings
) -> "Scan":
    state = known.manifest
    if state.clean_end_offset is None:
        # After a failed sync the kernel takes the pages it lost for written: its memory still shows them, and the
        # next sync succeeds for nothing (decision 0004). What is judged here, and acknowledged later, must come
        # from the disk.
        file.sync()
        file.forget_cached()
    found = _scan_segment(folder, state, file, Index(state.active_offset, settings.index_every_bytes))
    _refuse_damage(folder, known, file, found)
    if state.clean_end_offset is None:
        _cut_torn_tail(runtime, folder, state, file, found)
    return found


def _refuse_damage(folder: str, known: manifests.ManifestRead, file: File, found: "Scan") -> None:
    state = known.manifest
    name = f"{folder}/{segment_name(state.active_offset)}"
    size = file.size()
    if state.clean_end_offset is not None:
        reason = None
        if found.damage is not None:
            reason = f"{found.damage.reason}, and the log had been closed in good order"
        elif found.next_offset != state.clean_end_offset:
            reason = f"the log was closed at offset {state.clean_end_offset}, and this is where it ends now"
        if reason is not None:
            raise LogCorrupted(name, reason, position=found.end_position, offset=found.next_offset)
    elif found.next_offset < known.floor_offset:
        reason = f"the log was durable up to offset {known.floor_offset}, and this is where it ends now"
        raise LogCorrupted(name, reason, position=found.end_position, offset=found.next_offset)
    elif found.damage is not None:
        durable = durable_beyond(file, start=found.end_position, end=size, log_id=state.log_id)
        if durable > found.end_position:
            reason = f"{found.damage.reason}, and a later commit says that it was durable up to byte {durable}"
            raise LogCorrupted(name, reason, position=found.end_position, offset=found.next_offset)


def _cut_torn_tail(runtime: Runtime, folder: str, state: Manifest, file: File, found: "Scan") -> None:
    size = file.size()
    if found.damage is not None:
        runtime.log_event(
            LOG_TAIL_CUT,
            file=f"{folder}/{segment_name(state.active_offset)}",
            position=found.end_position,
            cut_bytes=size - found.end_position,
            end_offset=found.next_offset,
            reason=found.damage.reason,
        )
    seal(file, found, log_id=state.log_id)


def seal(file: File, found: "Scan", *, log_id: int) -> None:
    """Cut a segment where the scan ended and make what is left durable and closed by a marker.

    After `kill -9` the bytes may only be in the kernel's memory: they count as
    durable, and may be acknowledged, only after this sync.
    """
    if file.size() > found.end_position:
        # Not otherwise: what is allocated behind the end may be all the space there is on a full disk.
        file.truncate(found.end_position)
    file.sync()
    if found.open_heads:
        place = MarkerPosition(found.next_offset - 1, found.end_position)
        data = encode_marker(place, durable_bytes=found.end_position, log_id=log_id, heads=found.open_heads)
        file.write(data, found.end_position)
        file.sync()
        found.open_heads.clear()
        found.is_confirmed = True
        found.end_position += MARKER_BYTES


def _size(disk: Disk, folder: str, base_offset: int) -> int:
    file = disk.open(f"{folder}/{segment_name(base_offset)}")
    try:
        return file.size()
    finally:
        file.close()


def _content(runtime: Runtime, folder: str, name: str) -> bytes:
    file = runtime.disk.open(f"{folder}/{name}")
    try:
        return file.read(0, file.size())
    finally:
        file.close()


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
        found = decode_marker(header)
        if found.log_id != log_id:
            raise ForeignSegment
        if found.version != MARKER_VERSION or found.position != position or header.base_offset != self.next_offset - 1:
            raise BadAt(position, "a commit marker that belongs elsewhere")
        if found.heads_crc != heads_crc(self.open_heads, head):
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
    found = (decode_marker(header) for _, header in markers_from(file, start, end, log_id))
    return max((marker.durable_bytes for marker in found), default=0)
