"""Rows become chunks, and a chunk becomes one request: a record batch for each partition that it has rows for.

    rows of a partition of Spark  ──cut──▶   windows: so many rows, and what one batch of the topic may have
    rows of a window              ──sort─▶   by partition of the topic, in their order

As with queues (`sink/chunks.py`), where a chunk ends depends on the rows alone. The digest of a chunk is that of its
rows and their partitions, and not of who sends it, when, and how it is packed.

All tasks of a write must agree on the partitions of the topic and on its producers, whenever they run:

    <manifest>/<job>/topic.json   written by the driver, before a task of the job has sent anything

A key goes to another partition when the topic has more of them, so a job keeps to the number it began with. A stream
takes up a new number with the first batch after it was started again. Where a chunk ends depends on how large a batch
may be, so a job keeps to that, too.

Producers are a range of ids that the server gave to this job alone. A task has one of them:

    id = first of the range + (batch // 32768) · 65536 + partition of Spark
    epoch = batch % 32768

So every attempt of a task is the same producer, and what two of them send at once is there once. A task of an earlier
batch that is still alive is fenced off. A stream needs no more producers than it has tasks. Sequences count the records
of a partition that a task sends. They follow from the chunks before, sent by whichever attempt, so a chunk always has
the same.

A server forgets a silent producer after a day (`PRODUCER_MS`). By then no task of that time is alive, and what was not
yet tried goes on under new ids: the next generation.
"""

import json
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, NamedTuple
from urllib.parse import quote

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]

from penstock.contract.limits import PRODUCER_MS
from penstock.pipeline.http import ServerClient, ServerRefused, ServerUnreachable
from penstock.pipeline.options import BadOption, WriteOptions
from penstock.pipeline.sink.chunks import WINDOW_BYTES_MAX, windows_of
from penstock.pipeline.sink.manifest import Manifest, ManifestDamaged, Memory, batch_of, job_place
from penstock.pipeline.sink.send import Answered, Meanwhile, Sending
from penstock.pipeline.sink.topic_batches import (
    HEAD_BYTES,
    NO_HEADERS,
    NO_PRODUCER,
    Batch,
    encode_batches,
    sizes_of,
    without_null,
)
from penstock.pipeline.sink.topic_columns import NOT_SAID, Bounds, content_bytes, partitions_of, read_rows
from penstock.pipeline.storage import Folder, open_folder

VERSION = 1
PLAN_FILE = "topic.json"
# Half of what a server promises: clocks differ, and a send takes its time.
REMEMBERED_MS = PRODUCER_MS // 2
TASKS_MAX = 1 << 16
_EPOCHS = 1 << 15
_IDS = 1 << 32


class TopicChanged(Exception):
    """The topic is not the one that the job has written to; nothing was sent."""


class Producer(NamedTuple):
    id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """What the driver tells its tasks."""

    batch_bytes_max: int
    chunk_bytes_max: int
    # From which batch on there are how many partitions.
    partitions: tuple[tuple[int, int], ...]
    # The first id of each generation; none if the write may send twice.
    producers: tuple[int, ...]

    @property
    def memory(self) -> Memory:
        return Memory(len(self.producers) - 1, REMEMBERED_MS, "topic")

    def bounds(self, batch: int | None) -> Bounds:
        fitting = [count for first, count in self.partitions if first <= (batch or 0)]
        return Bounds(fitting[-1], self.batch_bytes_max, self.chunk_bytes_max)

    def producer(self, partition: int, batch: int | None) -> Producer | None:
        if not self.producers:
            return None
        if partition >= TASKS_MAX:
            raise BadOption(f"a write to a topic has at most {TASKS_MAX} partitions of Spark: coalesce it")
        turn, epoch = divmod(batch or 0, _EPOCHS)
        return Producer(self.producers[-1] + turn * TASKS_MAX + partition, epoch)


def plan_write(options: WriteOptions, *, is_stream: bool) -> TopicPlan:
    """Return what was planned for the job, or plan it. Raises `BadOption` or `TopicChanged`."""
    if not options.manifest:
        found = _ask(options, 1)
        return TopicPlan(found["max_message_bytes"], _chunk_bytes(found), ((0, found["partition_count"]),), ())
    folder = open_folder(options.manifest)
    place = f"{job_place(options.job)}/{PLAN_FILE}"
    kept = _kept(folder.get(place))
    needs_ids = kept is None or _is_forgotten(folder, options.job, len(kept["producers"]) - 1)
    found = _ask(options, _IDS if needs_ids else 1)
    told = kept or {
        "version": VERSION,
        "topic": options.topic,
        "topic_id": found["topic_id"],
        "chunk_bytes_max": _chunk_bytes(found),
    }
    _check_same(options, told, found)
    told = {
        **told,
        "partitions": _partitions(folder, options.job, told, found["partition_count"], is_stream=is_stream),
        "producers": [*told.get("producers", ()), *([found["producer_id"]] if needs_ids else ())],
    }
    if told != kept:
        folder.put(place, json.dumps(told) + "\n")
    partitions = tuple((int(first), int(count)) for first, count in told["partitions"])
    return TopicPlan(found["max_message_bytes"], told["chunk_bytes_max"], partitions, tuple(told["producers"]))


def _chunk_bytes(found: Mapping[str, Any]) -> int:
    """All rows of a chunk may be of one partition, and then they are one batch."""
    return min(int(found["max_message_bytes"]), WINDOW_BYTES_MAX)


def _ask(options: WriteOptions, count: int) -> dict[str, Any]:
    try:
        with ServerClient(options.url, options.key) as client:
            path = f"/api/topics/{quote(options.topic, safe='')}/producers"
            found: dict[str, Any] = client.post(path, {"count": count})
    except (ServerRefused, ServerUnreachable) as error:
        raise BadOption(f"option topic is {options.topic!r}: {error}") from None
    return found


def _kept(text: str | None) -> dict[str, Any] | None:
    if text is None:
        return None
    try:
        told: dict[str, Any] = json.loads(text)
    except ValueError:
        raise ManifestDamaged(f"{PLAN_FILE} is not what was written") from None
    if told.get("version") != VERSION:
        raise ManifestDamaged(f"{PLAN_FILE} of version {told.get('version')}; this code knows {VERSION}")
    return told


def _check_same(options: WriteOptions, told: Mapping[str, Any], found: Mapping[str, Any]) -> None:
    advice = "name another job, or delete its manifest if all of it shall be sent again"
    if told["topic"] != options.topic:
        raise TopicChanged(f"job {options.job!r} has written to topic {told['topic']}, not {options.topic}: {advice}")
    if told["topic_id"] != found["topic_id"]:
        raise TopicChanged(
            f"topic {options.topic} was deleted and made again since job {options.job!r} wrote to it: {advice}"
        )


def _partitions(
    folder: Folder, job: str, told: Mapping[str, Any], count: int, *, is_stream: bool
) -> list[tuple[int, int]]:
    """A stream may take up new partitions, from the first batch on that nothing is on record of."""
    known = [(int(first), int(most)) for first, most in told.get("partitions", ())]
    if not known:
        return [(0, count)]
    if not is_stream or count == known[-1][1]:
        return known
    last = _last_batch(folder, job)
    return [*known, (0 if last is None else last + 1, count)]


def _is_forgotten(folder: Folder, job: str, generation: int) -> bool:
    """Whether a server may not know the producers any more of what is half sent: a write, or the last batch."""
    now_ms = time.time_ns() // 1_000_000
    for batch in {None, _last_batch(folder, job)}:
        manifest = Manifest(folder, job, batch, "look")
        if manifest.is_done:
            continue
        parts = manifest.everything().values()
        if any(generation in part.forgotten for part in parts):
            return True
        tried = [entry.at_ms for part in parts for entry in part.chunks.values() if entry.generation == generation]
        if tried and now_ms - max(tried) > REMEMBERED_MS:
            return True
    return False


def _last_batch(folder: Folder, job: str) -> int | None:
    """The last batch on record. Those before it are done and may be a hundred thousand: they are not read."""
    return max(
        (batch for name in folder.folders(job_place(job)) if (batch := batch_of(name)) is not None), default=None
    )


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


class TopicRoute:
    def __init__(
        self, options: WriteOptions, sending: Sending, plan: TopicPlan, *, partition: int, batch: int | None
    ) -> None:
        self._options = options
        self._sending = sending
        self._partition = partition
        self._bounds = plan.bounds(batch)
        self._sequences = Sequences(plan.producer(partition, batch))

    def chunks(self, batches: Iterable[pa.RecordBatch]) -> Iterator[TopicChunk]:
        return topic_chunks_of(
            self._read(batches),
            topic=self._options.topic,
            bounds=self._bounds,
            partition=self._partition,
            rows_max=self._options.messages_per_send,
        )

    def post(self, chunk: TopicChunk, *, is_repeat: bool, meanwhile: Meanwhile) -> Answered:
        numbered = self._sequences.batches(chunk)
        body = chunk.encode(numbered, codec=self._options.compression, now_ms=time.time_ns() // 1_000_000)
        answered = self._sending.produce(chunk.topic, chunk.partitions, body, is_repeat=is_repeat, meanwhile=meanwhile)
        self._sequences.advance(chunk)
        return answered

    def passed(self, chunk: TopicChunk) -> None:
        self._sequences.advance(chunk)

    def _read(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        row = 0
        for batch in batches:
            yield read_rows(batch, row, self._bounds)
            row += batch.num_rows
