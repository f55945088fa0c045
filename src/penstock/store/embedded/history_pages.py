"""Reads the history of one queue: frames of many queues in, one page of columns out.

    history log    │ frame 7: a a b a │ frame 8: b b │ frame 9: a b │
    page for a       ├── 3 rows ──┤                    ├ 1 ┤          offset 7 << 17 | 0, next 10 << 17

An offset is that of a frame in the history log, and the row in it: so a page may end
in the middle of a frame, and asking again from there gives what follows.

Laws of this file
-----------------
1. Nothing is said of what is not durable: the log reads no further.
2. One call reads a limited number of bytes, so rows of other queues cost no more than
   an empty page.
3. A page of one frame in which all rows are sought copies nothing.
"""

from array import array
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, TypeVar

from penstock.core.limits import HISTORY_PAGE_BYTES_MAX, HISTORY_ROWS_MAX, MIB
from penstock.frame import Blobs
from penstock.log import record
from penstock.log.disk_log import DiskLog
from penstock.log.interface import OffsetOutOfRange
from penstock.log.jobs import off_loop
from penstock.runtime.interface import Runtime
from penstock.store.embedded.history_frames import HistoryFrame, decode
from penstock.store.history import BodyState, Coded, HistoryPage

T = TypeVar("T")

# How far up in an offset that of the frame stands.
ROW_BITS = HISTORY_ROWS_MAX.bit_length()
READ_BYTES = MIB
# Frames of more bytes than this are cut in a worker.
_INLINE_BYTES = 64 * 1024

_NUMBERS = {
    "home": "home",
    "lane": "sent_tier",
    "number": "number",
    "tier": "tier",
    "sent_at_ms": "sent_at_ms",
    "first_leased_ms": "first_leased_ms",
    "last_leased_ms": "last_leased_ms",
    "settled_at_ms": "settled_at_ms",
    "deliveries": "deliveries",
    "ending": "ending",
}
_FORMATS = dict(zip(_NUMBERS, "IBQBqqqqIB", strict=True))


class Sought(NamedTuple):
    """Whose rows, from when on, and how many."""

    queue: int
    from_ms: int | None
    most: int


class Piece(NamedTuple):
    """Some rows of a frame, rising; a range if they follow each other."""

    frame: HistoryFrame
    rows: Sequence[int]


def check(from_offset: int | None, most: int) -> None:
    if not 1 <= most <= HISTORY_ROWS_MAX:
        raise ValueError(f"most is {most}; it must be from 1 to HISTORY_ROWS_MAX ({HISTORY_ROWS_MAX})")
    if from_offset is not None and from_offset < 0:
        raise ValueError(f"from_offset is {from_offset}; it must not be negative")


async def read_page(runtime: Runtime, log: DiskLog, sought: Sought, from_offset: int | None) -> HistoryPage:
    """Return rows from an offset on or, without one, from a time on."""
    while True:
        try:
            return await _Reading(runtime, log, sought).page(from_offset)
        except OffsetOutOfRange:
            # Retention was faster: what is kept begins further on now.
            continue


class _Reading:
    def __init__(self, runtime: Runtime, log: DiskLog, sought: Sought) -> None:
        self._runtime = runtime
        self._log = log
        self._sought = sought
        self._pieces: list[Piece] = []
        self._left = sought.most

    async def page(self, from_offset: int | None) -> HistoryPage:
        kept, end = self._log.start_offset << ROW_BITS, self._log.durable_offset << ROW_BITS
        offset = max(kept, from_offset or 0)
        if self._sought.from_ms is not None and offset < end:
            offset = max(offset, await self._log.offset_at(self._sought.from_ms) << ROW_BITS)
        at, size_bytes = offset, 0
        while at < end and self._left and size_bytes < HISTORY_PAGE_BYTES_MAX:
            batches = await self._log.read(at >> ROW_BITS, bytes_max=READ_BYTES)
            read_bytes = sum(map(len, batches))
            at = await self._run(read_bytes, lambda: self._cut(batches, at))  # noqa: B023 - it runs before the next turn.
            size_bytes += read_bytes
        columns = await self._run(size_bytes, lambda: _columns(self._pieces))
        return HistoryPage(offset, at, kept, max(end, kept), **columns)

    async def _run(self, size_bytes: int, work: Callable[[], T]) -> T:
        return work() if size_bytes <= _INLINE_BYTES else await off_loop(self._runtime.workers, work)

    def _cut(self, batches: Sequence[memoryview], at: int) -> int:
        """Take the rows of some frames, and return where to go on."""
        for batch in batches:
            header = record.header(batch)
            for frame_at, entry in enumerate(record.records(batch), start=header.base_offset):
                if frame_at >= at >> ROW_BITS:
                    frame = decode(entry.key, entry.value)
                    first = at & ((1 << ROW_BITS) - 1) if frame_at == at >> ROW_BITS else 0
                    stop = self._take(frame, first)
                    if stop < frame.head.rows:
                        return frame_at << ROW_BITS | stop
            # Offsets lost to damage are passed over.
            at = max(at, header.next_offset << ROW_BITS)
            if not self._left:
                break
        return at

    def _take(self, frame: HistoryFrame, first: int) -> int:
        """Take rows of a frame from one on, and return the row after the last that was looked at."""
        rows = _rows(frame, self._sought, first)
        if len(rows) > self._left:
            rows = rows[: self._left]
        if rows:
            self._pieces.append(Piece(frame, rows))
            self._left -= len(rows)
        return frame.head.rows if self._left or not rows else rows[-1] + 1


def _rows(frame: HistoryFrame, sought: Sought, first: int) -> Sequence[int]:
    """Return which rows of a frame are sought, from one on."""
    count = frame.head.rows
    if sought.queue not in frame.queue_numbers:
        return range(0)
    rows: Sequence[int] = range(min(first, count), count)
    if len(frame.queue_numbers) > 1:
        queues = frame.queue.tolist()
        rows = [row for row in rows if queues[row] == sought.queue]
    if sought.from_ms is not None and frame.head.settled_from_ms < sought.from_ms:
        times = frame.settled_at_ms.tolist()
        rows = [row for row in rows if times[row] >= sought.from_ms]
    return rows


def _columns(pieces: Sequence[Piece]) -> dict[str, Any]:
    columns: dict[str, Any] = {
        ours: _numbers(_FORMATS[name], [(getattr(piece.frame, name), piece.rows) for piece in pieces])
        for name, ours in _NUMBERS.items()
    }
    columns["group"] = _coded([(piece.frame.group, piece.rows) for piece in pieces])
    columns["error"] = _coded([(piece.frame.error, piece.rows) for piece in pieces])
    if any(piece.frame.body_state is not None for piece in pieces):
        columns["body_state"] = _numbers("B", [_states(piece) for piece in pieces])
        columns["body"] = _blobs([(piece.frame.body, piece.rows) for piece in pieces])
    if any(piece.frame.attributes is not None for piece in pieces):
        columns["attributes"] = _blobs([(piece.frame.attributes, piece.rows) for piece in pieces])
    return columns


def _states(piece: Piece) -> tuple[memoryview, Sequence[int]]:
    states = piece.frame.body_state
    if states is None:
        return memoryview(bytes([BodyState.NOT_KEPT]) * len(piece.rows)), range(len(piece.rows))
    return states, piece.rows


def _numbers(code: str, parts: Sequence[tuple[memoryview, Sequence[int]]]) -> memoryview:
    found = [_some(code, column, rows) for column, rows in parts]
    if len(found) == 1:
        return found[0]
    return memoryview(b"".join(found)).cast(code)  # type: ignore[call-overload, no-any-return]


def _some(code: str, column: memoryview, rows: Sequence[int]) -> memoryview:
    if isinstance(rows, range):
        return column[rows.start : rows.stop]
    values = column.tolist()
    return memoryview(array(code, [values[row] for row in rows]))


def _coded(parts: Sequence[tuple[Coded | None, Sequence[int]]]) -> Coded | None:
    """Return coded columns as one, with one table."""
    if all(column is None for column, _ in parts):
        return None
    known: dict[bytes, int] = {b"": 0}
    codes = array("i")
    for column, rows in parts:
        if column is None:
            codes.extend([0] * len(rows))
        else:
            ours = [known.setdefault(bytes(word), len(known)) for word in column.words]
            codes.extend([ours[code] for code in _some("i", column.codes, rows)])
    return Coded(memoryview(codes), Blobs.of(list(known)))


def _blobs(parts: Sequence[tuple[Blobs | None, Sequence[int]]]) -> Blobs:
    if len(parts) == 1 and isinstance(parts[0][1], range) and parts[0][0] is not None:
        return parts[0][0].part(parts[0][1].start, parts[0][1].stop)
    found: list[memoryview | bytes] = []
    for column, rows in parts:
        found += [b""] * len(rows) if column is None else _picked(column, rows)
    return Blobs.of(found)


def _picked(column: Blobs, rows: Iterable[int]) -> list[memoryview]:
    return [column[row] for row in rows]
