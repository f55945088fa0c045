"""Reads the history of one queue, or of all queues of a shard: frames of many in, one page of columns out.

    history log    │ frame 7: a a b a │ frame 8: b b │ frame 9: a b │
    page for a       ├── 3 rows ──┤                    ├ 1 ┤          offset 7 << 17 | 0, next 10 << 17

An offset is that of a frame in the history log, and the row in it: so a page may end
in the middle of a frame, and asking again from there gives what follows. Programs that read
parts of it side by side ask for offsets by time and by rows. The key of a frame says how many
rows it has, so nothing but keys is read for that.

Laws of this file
-----------------
1. Nothing is said of what is not durable: the log reads no further.
2. One call reads a limited number of bytes, so rows of other queues cost no more than
   an empty page.
3. A page of one frame in which all rows are sought copies nothing, and rows of one frame
   that follow each other are views into it.
4. Numbers of several frames are joined as bytes. No loop goes over rows, except
   where only some rows of a frame are sought, or words get one table for all.
"""

from array import array
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

from penstock.contract.history_columns import FRAME_ROW_BITS, NUMBERS, BodyState
from penstock.contract.limits import HISTORY_PAGE_BYTES_MAX, HISTORY_ROWS_MAX, MIB
from penstock.frame import Blobs
from penstock.log import record
from penstock.log.disk_log import DiskLog
from penstock.log.interface import OffsetOutOfRange
from penstock.log.writer_queue import off_loop
from penstock.runtime.interface import Runtime
from penstock.store.embedded.history_format import HistoryFrame, decode, read_head
from penstock.store.errors import NotWrittenYet
from penstock.store.pages import Coded, HistoryPage, HistoryRange, HistorySpan

T = TypeVar("T")

READ_BYTES = MIB
# Frames of more bytes than this are cut in a worker.
_INLINE_BYTES = 64 * 1024


async def read_page(runtime: Runtime, log: DiskLog, wanted: HistoryRange, *, queue: int | None = None) -> HistoryPage:
    """Return rows of one queue, or of all queues."""
    while True:
        try:
            return await _Reading(runtime, log, wanted, queue).page()
        except OffsetOutOfRange:
            # Retention was faster: what is kept begins further on now.
            continue


class _Reading:
    def __init__(self, runtime: Runtime, log: DiskLog, wanted: HistoryRange, queue: int | None) -> None:
        self._runtime = runtime
        self._log = log
        self._wanted = wanted
        self._queue = queue
        self._pieces: list[Piece] = []
        self._left = wanted.most

    async def page(self) -> HistoryPage:
        kept, end = self._log.start_offset << FRAME_ROW_BITS, self._log.durable_offset << FRAME_ROW_BITS
        offset = max(kept, self._wanted.from_offset or 0)
        if self._wanted.from_ms is not None and offset < end:
            offset = max(offset, await self._log.offset_at(self._wanted.from_ms) << FRAME_ROW_BITS)
        stop = end if self._wanted.until_offset is None else min(end, self._wanted.until_offset)
        at, size_bytes = offset, 0
        while at < stop and self._left and size_bytes < HISTORY_PAGE_BYTES_MAX:
            batches = await self._log.read(at >> FRAME_ROW_BITS, bytes_max=READ_BYTES)
            read_bytes = sum(map(len, batches))
            at = await self._run(read_bytes, lambda: self._cut(batches, at))  # noqa: B023 - it runs before the next turn.
            size_bytes += read_bytes
        columns = await self._run(size_bytes, lambda: columns_of(self._pieces))
        return HistoryPage(offset, at, kept, max(end, kept), **columns)

    async def _run(self, size_bytes: int, work: Callable[[], T]) -> T:
        return work() if size_bytes <= _INLINE_BYTES else await off_loop(self._runtime.workers, work)

    def _cut(self, batches: Sequence[memoryview], at: int) -> int:
        """Take the rows of some frames, and return where to go on."""
        until = self._wanted.until_offset
        for batch in batches:
            if not self._left or (until is not None and at >= until):
                break
            header = record.header(batch)
            for frame_at, entry in enumerate(record.records(batch), start=header.base_offset):
                if frame_at >= at >> FRAME_ROW_BITS:
                    frame = decode(entry.key, entry.value)
                    first = at & ((1 << FRAME_ROW_BITS) - 1) if frame_at == at >> FRAME_ROW_BITS else 0
                    stop = self._take(frame, frame_at << FRAME_ROW_BITS, first)
                    if stop < frame.head.rows:
                        return frame_at << FRAME_ROW_BITS | stop
            # Offsets lost to damage are passed over.
            at = max(at, header.next_offset << FRAME_ROW_BITS)
        return at

    def _take(self, frame: HistoryFrame, offset: int, first: int) -> int:
        """Take rows of a frame from one on, and return the row after the last that was looked at."""
        until = self._wanted.until_offset
        end = frame.head.rows if until is None else max(0, min(frame.head.rows, until - offset))
        rows = self._rows(frame, first, end)
        if len(rows) > self._left:
            rows = rows[: self._left]
        if rows:
            self._pieces.append(Piece(frame, rows, offset))
            self._left -= len(rows)
        return end if self._left or not rows else rows[-1] + 1

    def _rows(self, frame: HistoryFrame, first: int, end: int) -> Sequence[int]:
        """Return which rows of a frame are wanted, from one on and before another."""
        queue, from_ms = self._queue, self._wanted.from_ms
        if queue is not None and queue not in frame.queue_numbers:
            return range(0)
        rows: Sequence[int] = range(min(first, end), end)
        if queue is not None and len(frame.queue_numbers) > 1:
            queues = frame.queue.tolist()
            rows = [row for row in rows if queues[row] == queue]
        if from_ms is not None and frame.head.settled_from_ms < from_ms:
            times = frame.settled_at_ms.tolist()
            rows = [row for row in rows if times[row] >= from_ms]
        return rows


class Piece(NamedTuple):
    """Some rows of a frame, rising; a range if they follow each other. The offset is that of its row 0."""

    frame: HistoryFrame
    rows: Sequence[int]
    offset: int


def columns_of(pieces: Sequence[Piece]) -> dict[str, Any]:
    """Return the columns of a `HistoryPage`, by name."""
    columns: dict[str, Any] = {
        name: _numbers(code, [(getattr(piece.frame, name), piece.rows) for piece in pieces])
        for name, code in NUMBERS.items()
    }
    columns["names"] = {number: name for piece in pieces for number, name in piece.frame.names().items()}
    columns["offsets"] = _offsets(pieces)
    if any(piece.frame.key is not None for piece in pieces):
        columns["key"] = _numbers("Q", [(_keys(piece.frame), piece.rows) for piece in pieces])
    columns["group"] = _coded([(piece.frame.group, piece.rows) for piece in pieces])
    columns["error"] = _coded([(piece.frame.error, piece.rows) for piece in pieces])
    if any(piece.frame.body_state is not None for piece in pieces):
        columns["body_state"] = _numbers("B", [_states(piece) for piece in pieces])
        columns["body"] = _blobs([(piece.frame.body, piece.rows) for piece in pieces])
    if any(piece.frame.attributes is not None for piece in pieces):
        columns["attributes"] = _blobs([(piece.frame.attributes, piece.rows) for piece in pieces])
    return columns


def _offsets(pieces: Sequence[Piece]) -> memoryview:
    offsets = array("q")
    for _, rows, offset in pieces:
        if isinstance(rows, range):
            offsets.extend(range(offset + rows.start, offset + rows.stop))
        else:
            offsets.extend([offset + row for row in rows])
    return memoryview(offsets)


def _keys(frame: HistoryFrame) -> memoryview:
    if frame.key is not None:
        return frame.key
    return memoryview(
        array("Q", [number << 3 | tier for number, tier in zip(frame.number, frame.sent_tier, strict=True)])
    )


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
            codes.frombytes(bytes(codes.itemsize * len(rows)))
        else:
            ours = [known.setdefault(bytes(word), len(known)) for word in column.words]
            codes.extend([ours[code] for code in _some("i", column.codes, rows).tolist()])
    return Coded(memoryview(codes), Blobs.of(list(known)))


def _blobs(parts: Sequence[tuple[Blobs | None, Sequence[int]]]) -> Blobs:
    if len(parts) == 1 and isinstance(parts[0][1], range) and parts[0][0] is not None:
        return parts[0][0].part(parts[0][1].start, parts[0][1].stop)
    found: list[memoryview | bytes] = []
    for column, rows in parts:
        found += [b""] * len(rows) if column is None else [column[row] for row in rows]
    return Blobs.of(found)


# The header of a batch, that of its record, and the key.
_FRONT_BYTES = 160
# One call steps over so many frames at most, and over so many at a time.
FRAMES_MAX = 10_000
_STEP = 256


def span_of(log: DiskLog, shard: int) -> HistorySpan:
    kept = log.start_offset << FRAME_ROW_BITS
    return HistorySpan(shard, kept, max(kept, log.durable_offset << FRAME_ROW_BITS))


async def offset_at(log: DiskLog, at_ms: int) -> int:
    """Return an offset below which nothing was settled at ``at_ms`` or later; the end if nothing was at all."""
    return await log.offset_at(at_ms) << FRAME_ROW_BITS


async def offset_after(log: DiskLog, from_offset: int, rows: int) -> int:
    """Return where about so many rows end: after a whole frame, one at least if there is one."""
    at, left = max(log.start_offset, from_offset >> FRAME_ROW_BITS), rows + (from_offset & ((1 << FRAME_ROW_BITS) - 1))
    frames = FRAMES_MAX
    while left > 0 and frames and at < log.durable_offset:
        try:
            fronts = await log.fronts(at, most=min(frames, _STEP), front_bytes=_FRONT_BYTES)
        except OffsetOutOfRange:
            # Retention was faster.
            at = max(at, log.start_offset)
            continue
        for front in fronts:
            at = record.header(front).next_offset
            left -= _rows(front)
            frames -= 1
            if left <= 0:
                break
    return min(at, log.durable_offset) << FRAME_ROW_BITS


def _rows(front: bytes) -> int:
    header = record.header(front)
    if header.is_hole:
        return 0
    # A frame is alone in its batch. Were it not, the others would count as full ones.
    return read_head(record.first_key(front)).rows + (header.record_count - 1) * HISTORY_ROWS_MAX


async def trim(log: DiskLog, before: int) -> int:
    """Let go of whole segments in which every row is below an offset, and return what is kept from now on."""
    if before > log.durable_offset << FRAME_ROW_BITS:
        raise NotWrittenYet(f"before is {before}; the history ends at {log.durable_offset << FRAME_ROW_BITS}")
    await log.drop_before(before >> FRAME_ROW_BITS)
    return log.start_offset << FRAME_ROW_BITS
