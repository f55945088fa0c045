"""Offsets in the history of a shard: what is kept, where a time begins, where so many rows end, and letting go.

Whoever reads a history in parts, side by side, has to know where to cut it. The key of
a frame says how many rows it has, so nothing but keys is read for that.
"""

from penstock.contract.history_columns import FRAME_ROW_BITS
from penstock.contract.limits import HISTORY_ROWS_MAX
from penstock.log import record
from penstock.log.disk_log import DiskLog
from penstock.log.interface import OffsetOutOfRange
from penstock.store.embedded.history_frames import read_head
from penstock.store.errors import NotWrittenYet
from penstock.store.pages import HistorySpan

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
