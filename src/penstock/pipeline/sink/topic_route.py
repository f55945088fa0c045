"""The way of rows to a topic: read, cut, numbered, sent."""

import time
from collections.abc import Iterable, Iterator

import pyarrow as pa  # type: ignore[import-untyped]

from penstock.pipeline.sink.options import WriteOptions
from penstock.pipeline.sink.send import Answered, Meanwhile, Sending
from penstock.pipeline.sink.topic_chunks import Sequences, TopicChunk, topic_chunks_of
from penstock.pipeline.sink.topic_columns import read_rows
from penstock.pipeline.sink.topic_plan import TopicPlan


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
