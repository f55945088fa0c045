"""Looks at the segments of a log that another process may be writing: nothing is locked, and nothing is changed.

    ├─ closed segment ─┼─ closed segment ─┼─ active segment ──────────────┤
                                          ├─ a marker says: durable ─┤ · · ·  not confirmed to anyone yet

Laws of this file
-----------------
1. Files are opened for reading only. `penstock.log` opens a log to own it, and would
   sync, cut and lock; so only its pure parts are used.
2. What is read is durable. A closed segment is; of the active one, what is below the
   position that a whole commit marker names; all of it if the log was closed in good
   order. The marker that ends a commit cannot know that it is safe: the next one says
   it, or a lone marker, which a log that is quiet writes within two seconds (decision 0031).
3. Indexes are hints: a reader that follows one checks the batch it leads to.

Importing this module needs `crc32c`, which is installed with `penstock`.
"""

import errno
import os
import stat
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, cast

from penstock.contract.limits import BATCH_BYTES_MAX, MIB
from penstock.frame import BadFrame
from penstock.log.manifest import NAME, SLOT_BYTES, Manifest, newest
from penstock.log.record import HEADER_BYTES, MARKER_BYTES, BadBatch, Header, check, decode_marker, first_key
from penstock.log.record import header as read_header
from penstock.log.recovery import LogCorrupted
from penstock.log.segment import BadAt, BadIndex, Index, base_offsets, index_names, markers_from, segment_name, walk
from penstock.runtime.interface import File
from penstock.store.embedded.history_format import UnknownFrame, read_head

_INDEX_EVERY_BYTES = 16 * 1024
# Of a batch: its header, the front of its record and the key of a frame, with a margin.
_FRONT_BYTES = 192
# A manifest may be written, and a segment dropped, during a look.
_LOOKS_MAX = 20


class Span(NamedTuple):
    """A segment: its offsets, and up to where it is durable."""

    base_offset: int
    next_offset: int
    end_bytes: int
    is_active: bool


class Front(NamedTuple):
    """What the front of a batch says, without a look at its CRC: enough to plan, not to believe."""

    offset: int
    next_offset: int
    position: int
    size_bytes: int
    rows: int
    max_timestamp_ms: int


class ReadOnlyFile:
    """As much of `runtime.interface.File` as reading takes."""

    def __init__(self, path: Path) -> None:
        # As the server opens them: no link is followed, and no pipe is waited for.
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        if not stat.S_ISREG(os.fstat(self._fd).st_mode):
            os.close(self._fd)
            raise OSError(errno.ELOOP, "it is no regular file", str(path))

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def read(self, position: int, size: int) -> bytes:
        data = os.pread(self._fd, size, position)
        while 0 < len(data) < size and (more := os.pread(self._fd, size - len(data), position + len(data))):
            data += more
        return data

    def close(self) -> None:
        os.close(self._fd)


@contextmanager
def opened(folder: Path, base_offset: int) -> Iterator[File]:
    """Lend a segment, to be read; raises `FileNotFoundError`."""
    file = ReadOnlyFile(folder / segment_name(base_offset))
    try:
        # A walk over a segment only reads it.
        yield cast("File", file)
    finally:
        file.close()


def _content(path: Path) -> bytes:
    file = ReadOnlyFile(path)
    try:
        return file.read(0, file.size())
    finally:
        file.close()


def is_created(folder: Path) -> bool:
    """Whether there is a log. A process that was killed while it made one may have left an empty manifest."""
    try:
        return (folder / NAME).stat().st_size > 0
    except FileNotFoundError:
        return False


def read_state(folder: Path) -> Manifest:
    """Return the newest state of a log; raises `LogCorrupted` if there is none."""
    for _ in range(_LOOKS_MAX):
        content = _content(folder / NAME)
        found = newest([content[:SLOT_BYTES], content[SLOT_BYTES:]])
        if found is not None:
            return found.manifest
    raise LogCorrupted(f"{folder}/{NAME}", "none of its two states is whole")


def list_bases(folder: Path) -> list[int]:
    return base_offsets([path.name for path in folder.iterdir()])


def list_spans(folder: Path) -> list[Span]:
    """Return the segments of a log in order, the active one last; raises `LogCorrupted` where one is missing."""
    for _ in range(_LOOKS_MAX):
        state = read_state(folder)
        bases = [base for base in list_bases(folder) if state.start_offset <= base <= state.active_offset]
        if bases and (bases[0], bases[-1]) == (state.start_offset, state.active_offset):
            try:
                return [*_closed(folder, bases), _active(folder, state)]
            except FileNotFoundError:
                continue
    raise LogCorrupted(f"{folder}/{segment_name(state.start_offset)}", "the file is missing", offset=state.start_offset)


def _closed(folder: Path, bases: list[int]) -> list[Span]:
    sizes = [(folder / segment_name(base)).stat().st_size for base in bases[:-1]]
    return [Span(base, after, size, False) for base, after, size in zip(bases, bases[1:], sizes, strict=False)]


def _active(folder: Path, state: Manifest) -> Span:
    base = state.active_offset
    with opened(folder, base) as file:
        if state.clean_end_offset is not None:
            return Span(base, state.clean_end_offset, file.size(), True)
        return Span(base, *_durable_end(folder, file, state), True)


def _durable_end(folder: Path, file: File, state: Manifest) -> tuple[int, int]:
    """Return the offset and the position up to which the active segment is proven durable."""
    size, back = file.size(), 4 * MIB
    while True:
        # From the end back: the last marker knows most.
        found = list(markers_from(file, max(size - back, 0), size, state.log_id))
        best = max(found, key=lambda each: decode_marker(each[1]).durable_bytes, default=None)
        if best is not None or back >= size:
            break
        back *= 4
    durable = decode_marker(best[1]).durable_bytes if best is not None else 0
    if best is None or not durable:
        return state.active_offset, 0
    if durable == best[0]:
        # A lone marker, or one that closes what was found open after a crash, and made durable before.
        return best[1].base_offset + 1, durable
    at = durable - MARKER_BYTES
    try:
        header = check(file.read(at, MARKER_BYTES))
    except BadBatch as error:
        raise _damaged(folder, state.active_offset, at, str(error)) from None
    if not header.is_marker:
        raise _damaged(folder, state.active_offset, at, "there is no commit marker where a commit ends")
    return header.base_offset + 1, durable


def written_end(folder: Path, span: Span) -> int:
    """Return the offset at which the active segment ends, durable or not."""
    next_offset = span.next_offset
    with opened(folder, span.base_offset) as file:
        try:
            for _, header, _ in walk(file, span.end_bytes, file.size()):
                next_offset = max(next_offset, header.base_offset + 1 if header.is_marker else header.next_offset)
        except BadAt:
            pass
    return next_offset


def batches(folder: Path, span: Span, start: tuple[int, int]) -> Iterator[tuple[Header, memoryview]]:
    """Yield the checked batches of a segment from one on that begins at this offset and position.

    A position at which another batch begins, or none, is a wrong hint: then the
    segment is read from its first byte. Raises `LogCorrupted`, `FileNotFoundError`.
    """
    expected, position = start
    with opened(folder, span.base_offset) as file:
        if not _leads_to(file, expected, position):
            expected, position = span.base_offset, 0
        try:
            for at, header, batch in walk(file, position, span.end_bytes):
                if header.is_marker:
                    continue
                _check_follows(at, header, expected)
                yield header, batch
                expected = header.next_offset
                # What follows the end may be half written just now.
                if expected >= span.next_offset:
                    return
        except BadAt as damage:
            raise _damaged(folder, span.base_offset, damage.position, damage.reason, expected) from None
    if expected < span.next_offset:
        reason = f"it ends at offset {expected}, and should at {span.next_offset}"
        raise _damaged(folder, span.base_offset, span.end_bytes, reason, expected)


def _check_follows(position: int, header: Header, expected: int) -> None:
    """No CRC covers a base offset, so each must follow from the one before."""
    if header.base_offset != expected:
        raise BadAt(position, f"base offset {header.base_offset} where {expected} belongs")


def _leads_to(file: File, offset: int, position: int) -> bool:
    front = file.read(position, HEADER_BYTES)
    if len(front) < HEADER_BYTES:
        return False
    header = read_header(front)
    return header.base_offset == offset and not header.is_marker


def _damaged(folder: Path, base_offset: int, position: int, reason: str, offset: int | None = None) -> LogCorrupted:
    return LogCorrupted(f"{folder}/{segment_name(base_offset)}", reason, position=position, offset=offset)


def fronts(folder: Path, span: Span, start: tuple[int, int]) -> Iterator[Front]:
    """Yield what the batches of a segment say of themselves, from one on, up to its end or to something strange.

    A wrong hint is treated as in `batches`. The reader of the batches names what is strange.
    """
    expected, position = start
    with opened(folder, span.base_offset) as file:
        if not _leads_to(file, expected, position):
            expected, position = span.base_offset, 0
        while position < span.end_bytes and expected < span.next_offset:
            found = _front(file.read(position, _FRONT_BYTES), position)
            if found is None:
                return
            if found.next_offset > found.offset:
                if found.offset != expected:
                    return
                yield found
                expected = found.next_offset
            position += found.size_bytes


def _front(content: bytes, position: int) -> Front | None:
    """Return what the front of a batch says; of a marker, that it has no offsets. None if it is neither."""
    if len(content) < HEADER_BYTES:
        return None
    header = read_header(content)
    if not HEADER_BYTES <= header.size <= BATCH_BYTES_MAX:
        return None
    next_offset, rows = header.next_offset, 0
    if header.is_marker:
        next_offset = header.base_offset
    elif not header.is_hole:
        try:
            rows = read_head(first_key(content)).rows
        except (BadBatch, BadFrame, UnknownFrame):
            return None
    return Front(header.base_offset, next_offset, position, header.size, rows, header.max_timestamp_ms)


def index_of(folder: Path, span: Span) -> Index:
    """Return where batches of a segment are: as its files say or, where there are none, as its batches do."""
    names = index_names(span.base_offset)
    if not span.is_active:
        try:
            files = _content(folder / names[0]), _content(folder / names[1])
            return Index.from_bytes(span.base_offset, _INDEX_EVERY_BYTES, files)
        except (FileNotFoundError, BadIndex):
            pass
    index = Index(span.base_offset, _INDEX_EVERY_BYTES)
    for front in fronts(folder, span, (span.base_offset, 0)):
        index.add(front.offset, front.position, front.max_timestamp_ms)
    return index


def entry_at(index: Index, span: Span, position: int) -> tuple[int, int]:
    """Return offset and position of the first indexed batch at or after a position; the end if there is none."""
    offsets = range(span.base_offset, span.next_offset)
    found = bisect_left(offsets, position, key=lambda offset: index.entry_of(offset)[1])
    if found == len(offsets):
        return span.next_offset, span.end_bytes
    return index.entry_of(offsets[found])


def span_of(spans: list[Span], offset: int) -> int:
    """Return which of the segments holds an offset, or the last one."""
    return max(bisect_right(spans, offset, key=lambda span: span.base_offset) - 1, 0)
