"""`df.write.format("penstock")` and `writeStream`: what Spark calls, on the driver and in its tasks.

A writer is made on the driver, sent to each task (`write`), and told there how it went (`commit`, `abort`).

A stream writes as a write does, batch by batch. Spark gives a batch the same number when it repeats it after a restart,
so job, batch and partition name the same rows if the source repeats itself, as every source with offsets does.
"""

import logging
import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa  # type: ignore[import-untyped]
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from penstock.pipeline.options import BadOption, WriteOptions, write_options
from penstock.pipeline.sink.columns import check_columns
from penstock.pipeline.sink.manifest import Manifest, Part
from penstock.pipeline.sink.partition import Written, finish_partition, write_partition
from penstock.pipeline.sink.topic_chunks import TopicPlan, plan_write
from penstock.pipeline.sink.topic_columns import check_columns as check_topic_columns
from penstock.pipeline.storage import open_folder

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_log = logging.getLogger("penstock.pipeline")
_BATCH = "streaming.sql.batchId"
_NUMBER = re.compile(r"\d+")


class MessageWriter(DataSourceArrowWriter):
    def __init__(self, options: Mapping[str, str], schema: "StructType", *, is_overwrite: bool) -> None:
        if is_overwrite:
            raise BadOption(
                "mode overwrite: a queue is not replaced by a write, nor is a topic. Use mode append; empty it first "
                "if it must go"
            )
        self._options = write_options(options)
        self._plan = plan_of(self._options, schema, is_stream=False)
        # Made once for all tasks of this write.
        self._run = uuid.uuid4().hex[:12]

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        check_name_of_batch(self._options.job, batch_of_stream())
        return write_partition(
            iterator, self._options, partition=this_partition(), batch=None, run=self._run, plan=self._plan
        )

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        commit_write(self._options, messages, batch=None, run=self._run, plan=self._plan)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        abort_write(self._options, messages, batch=None, run=self._run)


def plan_of(options: WriteOptions, schema: "StructType", *, is_stream: bool) -> TopicPlan | None:
    """Check the columns and the manifest of a write, and return what the tasks of one to a topic agree on."""
    if options.topic:
        check_topic_columns(schema)
    else:
        check_columns(schema, has_queue=bool(options.queue))
    _check_manifest(options)
    return plan_write(options, is_stream=is_stream) if options.topic else None


def _check_manifest(options: WriteOptions) -> None:
    if not options.manifest:
        return
    try:
        open_folder(options.manifest).prepare()
    except (OSError, pa.ArrowException) as error:
        raise BadOption(f"option manifest is {options.manifest!r}, and nothing can be kept there: {error}") from None


def this_partition() -> int:
    context = TaskContext.get()
    assert context is not None
    return context.partitionId()


def batch_of_stream() -> str | None:
    """Return the number of the batch that a task is for, if it is for one: a writer is not told, the task knows it."""
    context = TaskContext.get()
    return None if context is None else context.getLocalProperty(_BATCH)


def check_name_of_batch(job: str, batch: str | None) -> None:
    """Refuse one name for all batches of `foreachBatch`: rows that come again in a later one would be taken for sent.

    The first batch is 0, so a forgotten number shows at once.
    """
    if job and batch is not None and batch not in _NUMBER.findall(job):
        raise BadOption(
            f"option job is {job!r} in batch {batch} of foreachBatch: a name stands for the same rows, so each batch "
            f"needs its own, such as f'{job}-{{batch_id}}'"
        )


def commit_write(
    options: WriteOptions,
    messages: Sequence[WriterCommitMessage | None],
    *,
    batch: int | None,
    run: str,
    plan: TopicPlan | None,
) -> None:
    """Send what tasks had to hold, and note that all of it was sent.

    A task that ends well has seen all that is on record of its partition, so only those that are not there any more
    can be different.
    """
    if not options.manifest:
        return
    manifest = Manifest(open_folder(options.manifest), options.job, batch, run)
    manifest.check_partitions(len(messages))
    ended = {}
    for each in messages:
        if isinstance(each, Written):
            done = finish_partition(each, options, batch=batch, run=run, plan=plan) if each.is_held else each
            ended[each.partition] = done.chunks
    manifest.complete(ended)


def abort_write(
    options: WriteOptions, messages: Sequence[WriterCommitMessage | None], *, batch: int | None, run: str
) -> None:
    """Say what was sent by a write that failed: it cannot be taken back, and users must not have to guess."""
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


class MessageStreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, options: Mapping[str, str], schema: "StructType", *, is_overwrite: bool) -> None:
        if is_overwrite:
            raise BadOption("output mode complete: a queue is not replaced by every batch. Use output mode append")
        self._options = write_options(options)
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
