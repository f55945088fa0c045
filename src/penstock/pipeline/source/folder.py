"""Read the history out of the data folder of a store, which a server may be writing.

    <data>/history, history-1, …    one log for each shard (docs/reference/log-format.md)

The CRC of every batch is checked. Retention may drop a segment that was planned: an open one stays readable. One that
is gone is skipped, or is an error, as the options say.

Importing this module needs `crc32c`, which is installed with `penstock`.
"""

import re
from collections.abc import Iterator, Sequence
from functools import reduce
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
from pyarrow import compute

from penstock.contract.history_columns import FRAME_ROW_BITS
from penstock.contract.limits import MIB
from penstock.frame import BadFrame
from penstock.history_arrow import KeptRows, Part, record_batch
from penstock.log import record
from penstock.log.recovery import LogCorrupted
from penstock.log.segment import Index, segment_name
from penstock.pipeline.source import log_files
from penstock.pipeline.source.log_files import Front, Span
from penstock.pipeline.source.ranges import NoHistory, Range, Slice, Wanted, dropped
from penstock.store.embedded.history_format import HistoryFrame, UnknownFrame, decode

# A record batch has so many rows, or bytes of frames, unless its last frame has more.
BATCH_ROWS = 32_768
BATCH_BYTES = 16 * MIB
# How many frames are looked at to know how large a row is.
_SAMPLES = 8

_FOLDER = re.compile(r"history(?:-([1-9][0-9]*))?")


class Piece(NamedTuple):
    """Consecutive rows of a frame."""

    offset: int
    frame: HistoryFrame
    first: int
    stop: int


class FolderHistories:
    def __init__(self, path: str) -> None:
        self._path = Path(path)

    def kept(self) -> dict[int, Range]:
        found = {}
        for shard in self._shards():
            spans = log_files.list_spans(self._folder(shard))
            found[shard] = Range(shard, spans[0].base_offset << FRAME_ROW_BITS, spans[-1].next_offset << FRAME_ROW_BITS)
        return found

    def _shards(self) -> list[int]:
        names = [path.name for path in self._path.iterdir()] if self._path.is_dir() else []
        matches = [_FOLDER.fullmatch(name) for name in names]
        shards = sorted(int(match[1] or 0) for match in matches if match is not None)
        if not shards:
            raise NoHistory(f"there is no history in {self._path}: the option path names the data folder of a server")
        # A shard whose folder was just made has no history yet.
        return [shard for shard in shards if log_files.is_created(self._folder(shard))]

    def _folder(self, shard: int) -> Path:
        return self._path / (f"history-{shard}" if shard else "history")

    def offset_since(self, kept: Range, at_ms: int) -> int:
        folder = self._folder(kept.shard)
        for span in log_files.list_spans(folder):
            if span.next_offset == span.base_offset:
                continue
            index = log_files.index_of(folder, span)
            if index.max_timestamp_ms < at_ms:
                continue
            return min(max(_first_since(folder, span, index, at_ms) << FRAME_ROW_BITS, kept.start), kept.end)
        return kept.end

    def offset_after(self, rows: Range, count: int) -> int:
        taken = 0
        for front in self._fronts(rows):
            taken += front.rows - max(rows.start - (front.offset << FRAME_ROW_BITS), 0)
            if taken > count:
                # Whole frames, and one at least.
                least = max(rows.start, front.offset << FRAME_ROW_BITS)
                return min(least if least > rows.start else front.next_offset << FRAME_ROW_BITS, rows.end)
        return rows.end

    def _fronts(self, rows: Range) -> Iterator[Front]:
        folder = self._folder(rows.shard)
        spans = log_files.list_spans(folder)
        for span in spans[log_files.span_of(spans, rows.start >> FRAME_ROW_BITS) :]:
            if span.base_offset << FRAME_ROW_BITS >= rows.end:
                return
            entry = log_files.index_of(folder, span).entry_of(rows.start >> FRAME_ROW_BITS)
            for front in log_files.fronts(folder, span, entry):
                if rows.start < front.next_offset << FRAME_ROW_BITS and front.offset << FRAME_ROW_BITS < rows.end:
                    yield front

    def slices(self, rows: Range, count: int, *, goes_on: bool) -> list[Slice]:
        """Cut a range where segments have an index, by bytes: rows of one segment are about equally large.

        Nothing but the range says where, not what came behind it since: a batch of a stream that is repeated has the
        same parts, and a sink that goes by parts knows them.
        """
        cuts: list[tuple[int, tuple[int, int] | None]] = [(rows.start, None)]
        room = float(count)
        for span in log_files.list_spans(self._folder(rows.shard)):
            if rows.start < span.next_offset << FRAME_ROW_BITS and span.base_offset << FRAME_ROW_BITS < rows.end:
                room = self._cut(rows, span, count, room, cuts)
        ends = [start for start, _ in cuts[1:]] + [rows.end]
        return [
            Slice(Range(rows.shard, start, end), goes_on=goes_on, hint=hint)
            for (start, hint), end in zip(cuts, ends, strict=True)
        ]

    def _cut(
        self, rows: Range, span: Span, count: int, room: float, cuts: list[tuple[int, tuple[int, int] | None]]
    ) -> float:
        """Add cuts within one segment, and return how many rows still fit into the last slice."""
        folder = self._folder(rows.shard)
        index = log_files.index_of(folder, span)
        frames = range(
            max(rows.start >> FRAME_ROW_BITS, span.base_offset), min(-(-rows.end >> FRAME_ROW_BITS), span.next_offset)
        )
        _, position = index.entry_of(frames.start)
        if cuts[0][1] is None:
            cuts[0] = (rows.start, index.entry_of(rows.start >> FRAME_ROW_BITS))
        end_bytes = span.end_bytes
        if rows.end <= span.next_offset << FRAME_ROW_BITS:
            _, end_bytes = index.entry_of(frames.stop - 1)
        row_bytes = _row_bytes(folder, span, index, frames)
        while position + room * row_bytes < end_bytes:
            offset, position = log_files.entry_at(index, span, int(position + max(room, 1) * row_bytes))
            if not cuts[-1][0] < offset << FRAME_ROW_BITS < rows.end:
                break
            room = count
            if offset == span.next_offset:
                cuts.append((offset << FRAME_ROW_BITS, (offset, 0)))
                return room
            cuts.append((offset << FRAME_ROW_BITS, (offset, position)))
        return room - max(end_bytes - position, 0) / row_bytes

    def has_reached(self, shard: int, offset: int) -> bool:
        folder = self._folder(shard)
        return offset <= log_files.written_end(folder, log_files.list_spans(folder)[-1]) << FRAME_ROW_BITS

    def read(self, part: Slice, wanted: Wanted) -> Iterator[Any]:
        shard = part.rows.shard
        pieces: list[Piece] = []
        rows = size_bytes = 0
        for piece, piece_bytes in self._pieces(part, wanted):
            pieces.append(piece)
            rows, size_bytes = rows + piece.stop - piece.first, size_bytes + piece_bytes
            if rows >= BATCH_ROWS or size_bytes >= BATCH_BYTES:
                yield from batches_of(pieces, shard, wanted)
                pieces, rows, size_bytes = [], 0, 0
        if pieces:
            yield from batches_of(pieces, shard, wanted)

    def _pieces(self, part: Slice, wanted: Wanted) -> Iterator[tuple[Piece, int]]:
        """Yield the rows of each frame of a part, and how large the frame is."""
        folder = self._folder(part.rows.shard)
        _, start, end = part.rows
        for header, batch in self._batches(part):
            at = header.base_offset
            try:
                for at, entry in enumerate(record.records(batch), start=header.base_offset):
                    # A copy of its own: Arrow wants numbers where the processor does, and a batch begins anywhere.
                    frame = decode(entry.key, None if entry.value is None else bytes(entry.value))
                    piece = piece_of(at, frame, start=start, end=end)
                    if piece.first < piece.stop and is_wanted(frame, wanted):
                        yield piece, len(batch)
            except (BadFrame, UnknownFrame) as error:
                raise type(error)(f"{folder}, the frame at offset {at}: {error}") from error

    def _batches(self, part: Slice) -> Iterator[tuple[record.Header, memoryview]]:
        """Yield all batches with frames of a part, segment by segment."""
        folder, first = self._folder(part.rows.shard), part.rows.start >> FRAME_ROW_BITS
        stop = -(-part.rows.end >> FRAME_ROW_BITS)
        at, hint = first, part.hint
        while at < stop:
            try:
                span = self._span(part, at, stop)
                if span is None:
                    return
                is_led = hint is not None and span.base_offset <= hint[0] <= at
                entry = hint if hint is not None and is_led else (span.base_offset, 0)
                for header, batch in log_files.batches(folder, span, entry):
                    if header.next_offset > at:
                        yield header, batch
                        at = header.next_offset
                    if at >= stop:
                        return
            except FileNotFoundError:
                # It was dropped since it was listed, and is listed no more.
                continue
            at, hint = max(at, span.next_offset), None

    def _span(self, part: Slice, at: int, stop: int) -> Span | None:
        """Return the segment that holds an offset or, if that may be passed over, what is kept after it."""
        folder = self._folder(part.rows.shard)
        first_kept = log_files.read_state(folder).start_offset
        if first_kept > at and not part.goes_on:
            raise dropped(part.rows.shard, part.rows.start, first_kept << FRAME_ROW_BITS)
        if first_kept >= stop:
            return None
        at = max(at, first_kept)
        # What is below is being removed.
        bases = [base for base in log_files.list_bases(folder) if base >= first_kept]
        found = [base for base in bases if base <= at]
        if not found:
            raise LogCorrupted(f"{folder}/{segment_name(first_kept)}", "the file is missing", offset=first_kept)
        after = next((base for base in bases if base > at), stop)
        size = (folder / segment_name(found[-1])).stat().st_size
        return Span(found[-1], min(after, stop), size, is_active=False)


def _first_since(folder: Path, span: Span, index: Index, at_ms: int) -> int:
    """Return the offset of the first frame of a segment with a row of this time or later, or an earlier one."""
    entry = log_files.entry_at(index, span, index.position_at(at_ms))
    for front in log_files.fronts(folder, span, entry):
        if front.max_timestamp_ms >= at_ms:
            return front.offset
    # The index has promised one. A reader of the whole segment will see what is wrong with it.
    return span.base_offset


def _row_bytes(folder: Path, span: Span, index: Index, frames: range) -> float:
    """Return about how many bytes a row of some frames of a segment takes."""
    step = max(len(frames) // _SAMPLES, 1)
    found = [
        front
        for offset in frames[::step]
        if (front := next(log_files.fronts(folder, span, index.entry_of(offset)), None)) is not None
    ]
    return max(sum(front.size_bytes for front in found) / max(sum(front.rows for front in found), 1), 1.0)


def piece_of(offset: int, frame: HistoryFrame, *, start: int, end: int) -> Piece:
    """Return the rows of the frame at an offset of the log that are within a range of rows' offsets."""
    base, rows = offset << FRAME_ROW_BITS, frame.head.rows
    first = min(max(start - base, 0), rows)
    return Piece(offset, frame, first, max(min(end - base, rows), first))


def is_wanted(frame: HistoryFrame, wanted: Wanted) -> bool:
    """Whether a frame may have wanted rows, by what it says of all of them."""
    head = frame.head
    if not head.rows:
        return False
    if wanted.from_ms is not None and head.settled_to_ms < wanted.from_ms:
        return False
    if wanted.until_ms is not None and head.settled_from_ms >= wanted.until_ms:
        return False
    return not wanted.queues or any(name in wanted.queues for name in frame.names().values())


def batches_of(pieces: list[Piece], shard: int, wanted: Wanted) -> Iterator[Any]:
    """Yield one batch of all wanted rows, if there are any.

    It has as many frames as fill it: where little happens a frame has a row or two, and a batch for each would cost
    more than all its rows.
    """
    names: dict[int, str] = {}
    for piece in pieces:
        names |= piece.frame.names()
    rows = KeptRows([Part(piece.frame, piece.first, piece.stop) for piece in pieces], names)
    mask = _mask(rows, pieces, wanted)
    if mask is not None and not compute.any(mask).as_py():
        return
    given: dict[str, Any] = {"shard": shard}
    if any(column.name == "offset" for column in wanted.columns):
        offsets = [np.arange(piece.first, piece.stop) + (piece.offset << FRAME_ROW_BITS) for piece in pieces]
        given["offset"] = pa.array(np.concatenate(offsets))
    batch = record_batch(rows, wanted.columns, given, dictionary=False)
    yield batch if mask is None else batch.filter(mask)


def _mask(rows: KeptRows, pieces: Sequence[Piece], wanted: Wanted) -> Any:
    """Return which rows are wanted; None if all are."""
    masks = []
    if wanted.queues:
        chosen = [number for number, name in rows.names.items() if name in wanted.queues]
        if len(chosen) < len(rows.names):
            masks.append(compute.is_in(rows.field("queue"), value_set=pa.array(chosen, pa.uint32())))
    heads = [piece.frame.head for piece in pieces]
    if wanted.from_ms is not None and min(head.settled_from_ms for head in heads) < wanted.from_ms:
        masks.append(compute.greater_equal(rows.field("settled_at_ms"), wanted.from_ms))
    if wanted.until_ms is not None and max(head.settled_to_ms for head in heads) >= wanted.until_ms:
        masks.append(compute.less(rows.field("settled_at_ms"), wanted.until_ms))
    return reduce(compute.and_, masks) if masks else None
