"""Rows become chunks, and a chunk becomes one send: the unit that is sent once or not at all.

Where a chunk ends depends on the rows of the partition and their order, never on how Arrow
happened to cut them into batches: a second run of the same rows makes the same chunks, and
that is what everything about "once" rests on.

    rows of a partition   ──cut──▶  windows: at most 1,000 rows and 4 MiB, one row at least
    rows of a window      ──split─▶ chunks: one for each queue, in the order of its first row

The digest of a chunk is that of its queue and of the bytes of its frame, without the sender.
"""

from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from typing import TypeAlias

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from penstock.contract.limits import BATCH_BYTES_MAX, BODY_BYTES_MAX, SENDER_SENDS_MAX
from penstock.contract.messages import Tier
from penstock.frame import Blobs
from penstock.wire.frames import Sender, SendFrame, encode_send, with_sender

WINDOW_BYTES_MAX = BATCH_BYTES_MAX // 4
# What a row takes beside its texts: the numbers and offsets of a frame, and room for what the journal adds.
_ROW_BYTES = 64
_TEXTS = ("data", "group", "dedup_id", "attributes")
_DIGEST_BYTES = 16
_SEQUENCE_BITS = 56
assert WINDOW_BYTES_MAX > BODY_BYTES_MAX

Sizes: TypeAlias = "np.ndarray[tuple[int], np.dtype[np.int64]]"


@dataclass(frozen=True, slots=True)
class Chunk:
    """What one send takes. ``index`` counts the chunks of a partition from 0 on."""

    index: int
    queue: str
    rows: int
    digest: str
    # The frame, without a sender.
    content: bytes

    def encode(self, sender_name: str) -> bytes:
        """Return the body of the request, with the sender that makes a repeat harmless.

        A server remembers so many sends of a sender, so a sender makes no more than that: the next ones are
        of the next sender, and no send of a run is forgotten for those that came after it. The content is part
        of the sequence: other rows under the same name are another send, never taken for a repeat and dropped.
        """
        block, place = divmod(self.index, SENDER_SENDS_MAX)
        name = blake2b(f"{sender_name}\n{block}".encode(), digest_size=8).digest()
        content = int(self.digest, 16) & ((1 << _SEQUENCE_BITS) - 1)
        sender = Sender(int.from_bytes(name, "little"), 0, place << _SEQUENCE_BITS | content)
        return with_sender(self.content, sender)


def chunks_of(batches: Iterable[pa.RecordBatch], *, queue: str, rows_max: int) -> Iterator[Chunk]:
    """Return the chunks of a partition, whose columns are those of `columns.read_batch`."""
    index = 0
    for window in windows_of(batches, rows_max=rows_max):
        for name, rows in _split(window, queue):
            yield _chunk(index, name, rows)
            index += 1


def windows_of(
    batches: Iterable[pa.RecordBatch],
    *,
    rows_max: int,
    bytes_max: int = WINDOW_BYTES_MAX,
    sizes: "Callable[[pa.RecordBatch], Sizes] | None" = None,
) -> Iterator[pa.RecordBatch]:
    """Cut rows by their number and their ``sizes``, by default those of messages."""
    sizes = sizes or _sizes
    rest: list[pa.RecordBatch] = []
    for batch in batches:
        if not batch.num_rows:
            continue
        parts = [*rest, batch]
        start = 0
        ends = np.cumsum(np.concatenate([sizes(part) for part in parts]))
        while (end := _end(ends, start, rows_max=rows_max, bytes_max=bytes_max)) is not None:
            yield _between(parts, start, end)
            start = end
        rest = [_between(parts, start, len(ends))] if start < len(ends) else []
    yield from rest


def _between(parts: "list[pa.RecordBatch]", start: int, end: int) -> pa.RecordBatch:
    """Rows of several batches; they are copied only where two of them meet."""
    found = []
    for part in parts:
        first, last = max(start, 0), min(end, part.num_rows)
        if first < last:
            found.append(part.slice(first, last - first))
        start, end = start - part.num_rows, end - part.num_rows
    return found[0] if len(found) == 1 else pa.concat_batches(found)


def _end(ends: Sizes, start: int, *, rows_max: int, bytes_max: int) -> int | None:
    """Where the window that begins at ``start`` ends; None as long as rows that are still to come may belong to it."""
    before = int(ends[start - 1]) if start else 0
    fitting = int(np.searchsorted(ends, before + bytes_max, side="right"))
    end = min(max(fitting, start + 1), start + rows_max)
    is_sure = end == start + rows_max or end < len(ends)
    return end if is_sure and end <= len(ends) else None


def _sizes(rows: pa.RecordBatch) -> Sizes:
    sizes = np.full(rows.num_rows, _ROW_BYTES, np.int64)
    for name in _TEXTS:
        if name in rows.schema.names:
            sizes += pc.binary_length(rows.column(name)).to_numpy(zero_copy_only=False)
    return sizes


def _split(window: pa.RecordBatch, queue: str) -> Iterator[tuple[str, pa.RecordBatch]]:
    if queue:
        yield queue, window
        return
    names = window.column("queue")
    # In the order in which they first appear.
    for name in pc.unique(names).to_pylist():
        rows = window.filter(pc.equal(names, name))
        yield name, rows


def _chunk(index: int, queue: str, rows: pa.RecordBatch) -> Chunk:
    frame = SendFrame(
        bodies=_blobs(rows.column("data")),
        tiers=_tiers(rows),
        delay_ms=_numbers(rows, "delay", "q"),
        visible_at_ms=_numbers(rows, "visible_at", "q"),
        groups=_texts(rows, "group"),
        dedup_ids=_texts(rows, "dedup_id"),
        attributes=_texts(rows, "attributes"),
        deliveries_max=_numbers(rows, "max_deliveries", "I"),
    )
    digest = blake2b(queue.encode() + b"\n", digest_size=_DIGEST_BYTES)
    content = encode_send(frame)
    digest.update(content)
    return Chunk(index, queue, rows.num_rows, digest.hexdigest(), content)


def _tiers(rows: pa.RecordBatch) -> bytes | None:
    """A column that says nothing is left out, here and below: rows are the same with it and without."""
    if "priority" not in rows.schema.names:
        return None
    tiers = rows.column("priority").to_numpy(zero_copy_only=False)
    return None if (tiers == int(Tier.NORMAL)).all() else tiers.tobytes()


def _numbers(rows: pa.RecordBatch, name: str, code: str) -> "array[int] | None":
    if name not in rows.schema.names:
        return None
    values = rows.column(name).to_numpy(zero_copy_only=False)
    return array(code, values.tobytes()) if values.any() else None


def _texts(rows: pa.RecordBatch, name: str) -> Blobs | None:
    if name not in rows.schema.names:
        return None
    blobs = _blobs(rows.column(name))
    return blobs if len(blobs.data) else None


def _blobs(column: pa.Array) -> Blobs:
    """Wrap an Arrow column of binary: the bytes stay where they are, the offsets begin at 0."""
    assert pa.types.is_binary(column.type)
    assert not column.null_count
    _, offsets, data = column.buffers()
    ends = np.frombuffer(offsets, np.int32)[column.offset : column.offset + len(column) + 1]
    first, last = int(ends[0]), int(ends[-1])
    body = memoryview(b"") if data is None else memoryview(data)[first:last]
    return Blobs(array("i", (ends - first).tobytes()), body.cast("B"))
