"""Rows become chunks, and a chunk becomes one request: a record batch for each partition that it has rows for.

    rows of a partition of Spark  ──cut──▶   windows: so many rows, and what one batch of the topic may have
    rows of a window              ──sort─▶   by partition of the topic, in their order

As with queues (`sink/chunks.py`), where a chunk ends depends on the rows alone. The digest of a
chunk is that of its rows and their partitions; who sends it, when, and how it is packed is not.

Sequences count the records of a partition that this task sends. They follow from the chunks
before, sent by whichever attempt, so a chunk always has the same.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from hashlib import blake2b

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]

from penstock.pipeline.sink.chunks import windows_of
from penstock.pipeline.sink.topic_batches import (
    HEAD_BYTES,
    NO_HEADERS,
    NO_PRODUCER,
    Batch,
    encode_batches,
    sizes_of,
    without_null,
)
from penstock.pipeline.sink.topic_columns import Bounds, content_bytes
from penstock.pipeline.sink.topic_keys import NOT_SAID, partitions_of
from penstock.pipeline.sink.topic_plan import Producer

TOPIC = "topic:"
_SEQUENCES = 2**31
_DIGEST_BYTES = 16
# What a record takes beside its bytes, at most.
_ROW_BYTES = 40
_NO_SIZES = np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True)
class TopicChunk:
    """What one request takes. ``index`` counts the chunks of a partition of Spark from 0 on."""

    index: int
    # The topic, in the words of the manifest.
    queue: str
    digest: str
    partitions: list[int]
    counts: list[int]
    records: pa.RecordBatch

    @property
    def rows(self) -> int:
        return int(self.records.num_rows)

    @property
    def topic(self) -> str:
        return self.queue.removeprefix(TOPIC)

    def encode(self, batches: list[Batch], *, codec: str, now_ms: int) -> bytes:
        records = self.records
        said = records.column("timestamp").to_numpy(zero_copy_only=False)
        at_ms = pa.array(np.where(said == NOT_SAID, now_ms, said))
        place = records.schema.get_field_index("timestamp")
        return encode_batches(records.set_column(place, "timestamp", at_ms), self.counts, batches, codec)


@dataclass(slots=True)
class Sequences:
    """How many records a producer has numbered in each partition."""

    producer: Producer | None
    _next: dict[int, int] = field(default_factory=dict)

    def batches(self, chunk: TopicChunk) -> list[Batch]:
        """How the next chunk is numbered, if it is this one."""
        if self.producer is None:
            return [Batch(NO_PRODUCER, -1, -1)] * len(chunk.partitions)
        who = self.producer
        return [Batch(who.id, who.epoch, self._next.get(partition, 0)) for partition in chunk.partitions]

    def advance(self, chunk: TopicChunk) -> None:
        for partition, count in zip(chunk.partitions, chunk.counts, strict=True):
            self._next[partition] = (self._next.get(partition, 0) + count) % _SEQUENCES


def topic_chunks_of(
    batches: Iterable[pa.RecordBatch], *, topic: str, bounds: Bounds, partition: int, rows_max: int
) -> Iterator[TopicChunk]:
    """Return the chunks of a partition of Spark, whose columns are those of `columns.read_rows`."""
    windows = windows_of(batches, rows_max=rows_max, bytes_max=bounds.chunk_bytes_max - HEAD_BYTES, sizes=_sizes)
    for index, window in enumerate(windows):
        # Tasks that run side by side begin with different partitions.
        where = partitions_of(window, partitions=bounds.partitions, otherwise=partition + index)
        yield _chunk(index, topic, window, where)


def _sizes(rows: pa.RecordBatch) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    found = content_bytes(dict(zip(rows.schema.names, rows.columns, strict=True))) + _ROW_BYTES
    assert isinstance(found, np.ndarray)
    return found


def _chunk(
    index: int, topic: str, window: pa.RecordBatch, where: "np.ndarray[tuple[int], np.dtype[np.int32]]"
) -> TopicChunk:
    if (where != where[0]).any():
        order = np.argsort(where, kind="stable")
        where, window = where[order], window.take(pa.array(order))
    counts = np.bincount(where)
    partitions = np.flatnonzero(counts)
    if "timestamp" not in window.schema.names:
        window = window.append_column("timestamp", pa.repeat(pa.scalar(NOT_SAID, pa.int64()), window.num_rows))
    return TopicChunk(
        index, TOPIC + topic, _digest(topic, window, where), partitions.tolist(), counts[partitions].tolist(), window
    )


def _digest(topic: str, rows: pa.RecordBatch, where: "np.ndarray[tuple[int], np.dtype[np.int32]]") -> str:
    found = blake2b(topic.encode() + b"\n", digest_size=_DIGEST_BYTES)
    found.update(where.astype("<i4").tobytes())
    found.update(rows.column("timestamp").to_numpy(zero_copy_only=False).astype("<i8").tobytes())
    for name in ("key", "value", "headers"):
        sizes = sizes_of(rows.column(name)) if name in rows.schema.names else _NO_SIZES
        # A column that says nothing is as none: here, and in what follows.
        if (sizes > (len(NO_HEADERS) if name == "headers" else -1)).any():
            found.update(f"\n{name}\n".encode() + sizes.astype("<i8").tobytes())
            found.update(_content(without_null(rows.column(name))))
    return found.hexdigest()


def _content(column: pa.Array) -> memoryview:
    _, offsets, data = column.buffers()
    ends = np.frombuffer(offsets, np.int32)[column.offset : column.offset + len(column) + 1]
    return memoryview(b"") if data is None else memoryview(data)[int(ends[0]) : int(ends[-1])]
