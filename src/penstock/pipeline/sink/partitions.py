"""What a task does with its partition: rows to chunks, and each chunk sent unless it was.

A failed task tells in its error what it had sent by then.
"""

import time
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql.datasource import WriterCommitMessage

from penstock.pipeline.sink.chunks import Chunk, chunks_of
from penstock.pipeline.sink.columns import read_batch
from penstock.pipeline.sink.folders import open_folder
from penstock.pipeline.sink.manifest import Manifest, Recorder
from penstock.pipeline.sink.options import WriteOptions
from penstock.pipeline.sink.sending import Answered, SendFailed, Sending


class WriteFailed(Exception):
    """A task could not send all of its rows; the message says why, and what it had sent."""


@dataclass
class Written(WriterCommitMessage):
    """What a task sent, and what it had no need to send."""

    partition: int
    sent: int = 0
    skipped: int = 0
    chunks: int = 0


@dataclass(slots=True)
class Pace:
    """So many messages per second, counted from the first one; 0 for no limit."""

    rate: float
    _due_s: float = field(default=0.0)

    def wait_s(self, rows: int, now_s: float) -> float:
        """How long to wait before the next rows go.

        >>> pace = Pace(10.0)
        >>> [pace.wait_s(5, now_s=100.0), pace.wait_s(5, now_s=100.2), pace.wait_s(5, now_s=103.0)]
        [0.0, 0.3, 0.0]
        """
        if not self.rate:
            return 0.0
        self._due_s = max(self._due_s, now_s)
        wait_s, self._due_s = self._due_s - now_s, self._due_s + rows / self.rate
        return round(wait_s, 6)


def write_partition(
    batches: Iterable[pa.RecordBatch], options: WriteOptions, *, partition: int, batch: int | None, run: str
) -> Written:
    """Send the rows of a partition that were not sent before."""
    attempt = uuid.uuid4().hex[:12]
    recorder = None
    if options.manifest:
        recorder = Manifest(open_folder(options.manifest), options.job, batch, run).recorder(partition, attempt)
    sending = Sending(options.url, options.key, wait_s_max=options.wait_s_max)
    task = _Task(options, sending, recorder, sender_name(options.job or attempt, batch, partition))
    written = Written(partition)
    try:
        for chunk in chunks_of(_read(batches), queue=options.queue, rows_max=options.messages_per_send):
            is_sent = task.send(chunk)
            written.sent += chunk.rows if is_sent else 0
            written.skipped += 0 if is_sent else chunk.rows
            written.chunks += 1
        if recorder is not None:
            recorder.note_end(chunks=written.chunks, rows=written.sent + written.skipped)
    except Exception as error:
        raise WriteFailed(_told(error, written, options)) from error
    finally:
        sending.close()
        if recorder is not None:
            # Whatever went wrong: what was answered is on record.
            recorder.flush()
    return written


def sender_name(job: str, batch: int | None, partition: int) -> str:
    return f"penstock-spark\n{job}\n{'' if batch is None else batch}\n{partition}"


class _Task:
    def __init__(self, options: WriteOptions, sending: Sending, recorder: Recorder | None, sender: str) -> None:
        self._options = options
        self._sending = sending
        self._recorder = recorder
        self._sender = sender
        self._pace = Pace(options.task_rate)

    def send(self, chunk: Chunk) -> bool:
        """Send a chunk; return False if it was sent before."""
        now_ms = time.time_ns() // 1_000_000
        recorder = self._recorder
        if recorder is not None and not recorder.must_send(chunk, now_ms=now_ms, in_doubt=self._options.in_doubt):
            return False
        wait_s = self._pace.wait_s(chunk.rows, time.monotonic())
        if wait_s:
            time.sleep(wait_s)
        if recorder is None:
            self._post(chunk)
            return True
        recorder.note_intent(chunk, now_ms=now_ms)
        try:
            answered = self._post(chunk)
        except SendFailed as error:
            if not error.is_unsure:
                recorder.note_refused(chunk)
            raise
        recorder.note_sent(chunk, answered)
        return True

    def _post(self, chunk: Chunk) -> Answered:
        return self._sending.send(chunk.queue, chunk.encode(self._sender))


def _read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    row = 0
    for batch in batches:
        yield read_batch(batch, row)
        row += batch.num_rows


def _told(error: Exception, written: Written, options: WriteOptions) -> str:
    so_far = (
        f"partition {written.partition} had sent {written.sent:,} messages, and {written.skipped:,} were sent before"
    )
    if options.manifest:
        then = f"job {options.job!r} will not send them again: they are in the manifest {options.manifest}"
    elif options.job:
        then = f"job {options.job!r} will not send them again as long as the server remembers them"
    else:
        then = "another try will send them again"
    return f"{error}. So far {so_far}; {then}"
