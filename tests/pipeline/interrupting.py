"""Writes that end half way, and what has arrived by then, for the tests of writes that resume them."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from penstock.pipeline.options import WriteOptions, write_options
from penstock.pipeline.sink.partition import WriteFailed, Written, write_partition
from penstock.pipeline.sink.topic_chunks import plan_write
from penstock.pipeline.sink.writer import commit_write
from tests.kafka.brokers import Broker
from tests.kafka.librdkafka import create
from tests.pipeline.sending import make_queue, take_all
from tests.pipeline.topics import consumed

ROWS = 400
PARTITIONS = 4
PARTITION_ROWS = ROWS // PARTITIONS
CHUNK_ROWS = 10


class Stopped(Exception):
    """What a task sees that is killed."""


@dataclass
class Target:
    """A queue or a topic, and all that has ever arrived there."""

    broker: Broker
    noun: str
    name: str
    _taken: "Counter[bytes]" = field(default_factory=Counter)

    @property
    def column(self) -> str:
        return "value" if self.noun == "topic" else "data"

    def make(self) -> "Target":
        if self.noun == "topic":
            create(self.broker.servers, self.name, 3)
        else:
            make_queue(self.broker.url, self.name)
        return self

    def arrived(self) -> "Counter[bytes]":
        if self.noun == "topic":
            return Counter(each.value() for each in consumed(self.broker, self.name))
        self._taken.update(bytes(each.body) for each in take_all(self.broker.url, self.name))
        return Counter(self._taken)

    def said(self, manifest: Path, **more: Any) -> dict[str, str]:
        usual = {"url": self.broker.url, self.noun: self.name, "job": "nightly", "manifest": manifest}
        return {name: str(value) for name, value in (usual | {"messagesPerSend": CHUNK_ROWS} | more).items()}


def texts(numbers: Iterable[int]) -> list[str]:
    return [f"{number:06}" for number in numbers]


def everything(count: int = ROWS) -> "Counter[bytes]":
    return Counter(text.encode() for text in texts(range(count)))


def frame(spark: SparkSession, column: str, partitions: int = PARTITIONS, number: str = "id") -> DataFrame:
    """All rows; unless another ``number`` is said, those of `interrupt` in the same partitions and order."""
    rows = spark.range(0, ROWS, 1, partitions)
    return rows.select(f.format_string("%06d", f.expr(number).cast("long")).alias(column))


def save(rows: DataFrame, target: Target, manifest: Path, **more: Any) -> None:
    rows.write.format("penstock").mode("append").options(**target.said(manifest, **more)).save()


def interrupt(target: Target, manifest: Path, progress: Mapping[int, int], said: str = "") -> None:
    """Leave a write behind that was killed when so many rows of these partitions were sent."""
    for partition, rows in progress.items():
        first = partition * PARTITION_ROWS
        given = [said] * PARTITION_ROWS if said else texts(range(first, first + PARTITION_ROWS))
        if rows == PARTITION_ROWS:
            task(target, manifest, partition, batches(target.column, given), run="killed")
        else:
            with pytest.raises(WriteFailed):
                task(target, manifest, partition, batches(target.column, given, rows), run="killed")


def batches(column: str, given: list[str], stop_after: int | None = None) -> Iterator[pa.RecordBatch]:
    for start in range(0, len(given), 5):
        if start == stop_after:
            raise Stopped
        yield pa.RecordBatch.from_pydict({column: given[start : start + 5]})


def task(
    target: Target, manifest: Path, partition: int, rows: Iterable[pa.RecordBatch], *, run: str, **more: Any
) -> Written:
    """What a task of a write does, without Spark around it, and what its driver does before."""
    options = write_options(target.said(manifest, **more))
    plan = plan_write(options, is_stream=False) if options.topic else None
    return write_partition(rows, options, partition=partition, batch=None, run=run, plan=plan)


def commit(target: Target, manifest: Path, written: list[Written], *, run: str, **more: Any) -> None:
    """What the driver does when all tasks have ended."""
    options: WriteOptions = write_options(target.said(manifest, **more))
    plan = plan_write(options, is_stream=False) if options.topic else None
    commit_write(options, written, batch=None, run=run, plan=plan)
