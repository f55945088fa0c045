"""`df.write.format("penstock")`: what Spark calls, on the driver and in its tasks.

A writer is made on the driver, sent to each task (`write`), and told there how it went
(`commit`, `abort`).
"""

import logging
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa  # type: ignore[import-untyped]
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from penstock.pipeline.sink.columns import check_columns
from penstock.pipeline.sink.folders import open_folder
from penstock.pipeline.sink.manifest import Manifest, Part
from penstock.pipeline.sink.options import BadOption, WriteOptions, read_options
from penstock.pipeline.sink.partitions import Written, write_partition

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_log = logging.getLogger("penstock.pipeline")


class MessageWriter(DataSourceArrowWriter):
    def __init__(self, options: Mapping[str, str], schema: "StructType", *, is_overwrite: bool) -> None:
        if is_overwrite:
            raise BadOption(
                "mode overwrite: a queue is not replaced by a write. Use mode append; purge it first if it must go"
            )
        self._options = read_options(options)
        check_columns(schema, has_queue=bool(self._options.queue))
        # Made once for all tasks of this write.
        self._run = uuid.uuid4().hex[:12]

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        return write_partition(iterator, self._options, partition=this_partition(), batch=None, run=self._run)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        commit_write(self._options, messages, batch=None, run=self._run)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        abort_write(self._options, messages, batch=None, run=self._run)


def this_partition() -> int:
    context = TaskContext.get()
    assert context is not None
    return context.partitionId()


def commit_write(
    options: WriteOptions, messages: Sequence[WriterCommitMessage | None], *, batch: int | None, run: str
) -> None:
    if options.manifest:
        Manifest(open_folder(options.manifest), options.job, batch, run).complete(len(messages))


def abort_write(
    options: WriteOptions, messages: Sequence[WriterCommitMessage | None], *, batch: int | None, run: str
) -> None:
    """Say what was sent by a write that failed: it cannot be taken back, and nobody shall have to guess."""
    if options.manifest:
        parts = Manifest(open_folder(options.manifest), options.job, batch, run).abort()
        _log.warning("penstock: the write failed. %s", _of_parts(options, parts))
        return
    sent = sum(each.sent for each in messages if isinstance(each, Written))
    _log.warning(
        "penstock: the write failed. Tasks that had ended by then sent %s messages; what the others sent is in their "
        "errors. With option manifest it would be on record",
        f"{sent:,}",
    )


def _of_parts(options: WriteOptions, parts: Mapping[int, Part]) -> str:
    sent = sum(part.sent_messages for part in parts.values())
    unsure = sum(part.unsure_messages for part in parts.values())
    return (
        f"Job {options.job!r} has sent {sent:,} messages so far, and of {unsure:,} it is not known; both are on record "
        f"in {options.manifest}. Run it again to send the rest"
    )
