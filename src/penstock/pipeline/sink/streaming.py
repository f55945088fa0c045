"""`df.writeStream.format("penstock")`: as a write, for each batch of a stream.

Spark gives a batch the same number when it repeats it after a restart, so job, batch and
partition name the same rows: if the source is one that repeats itself, as every source
with offsets is.
"""

import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from penstock.pipeline.sink.options import BadOption, read_options
from penstock.pipeline.sink.partition import Written, write_partition
from penstock.pipeline.sink.writer import abort_write, batch_of_stream, commit_write, plan_of, this_partition

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class MessageStreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, options: Mapping[str, str], schema: "StructType", *, is_overwrite: bool) -> None:
        if is_overwrite:
            raise BadOption("output mode complete: a queue is not replaced by every batch. Use output mode append")
        self._options = read_options(options)
        self._plan = plan_of(self._options, schema, is_stream=True)
        self._run = uuid.uuid4().hex[:12]

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        batch = batch_of_stream()
        assert batch is not None, "Spark did not say which batch it is"
        return write_partition(
            iterator,
            self._options,
            partition=this_partition(),
            batch=int(batch),
            run=self._run,
            plan=self._plan,
        )

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name.
        commit_write(self._options, messages, batch=batchId, run=self._run, plan=self._plan)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name.
        abort_write(self._options, messages, batch=batchId, run=self._run)
