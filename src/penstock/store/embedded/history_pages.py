"""Reads the history of one queue, or of all queues of a shard: frames of many in, one page of columns out.

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

Not done here: how rows of several frames become one page (`history_columns.py`).
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

from penstock.contract.history_columns import FRAME_ROW_BITS
from penstock.contract.limits import HISTORY_PAGE_BYTES_MAX, MIB
from penstock.log import record
from penstock.log.disk_log import DiskLog
from penstock.log.interface import OffsetOutOfRange
from penstock.log.writer_queue import off_loop
from penstock.runtime.interface import Runtime
from penstock.store.embedded.history_columns import Piece, columns_of
from penstock.store.embedded.history_frames import HistoryFrame, decode
from penstock.store.pages import HistoryPage, HistoryRange

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
