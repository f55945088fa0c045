"""What a task does with its partition: rows become chunks, and each chunk is sent unless it was sent before.

A task has one request under way at most, so chunks arrive in their order and the manifest has one of them in doubt at
most. The task does not wait idly: it fetches, cuts and encodes the next rows between a request and its answer.

Rows that may not be sent yet are kept as Arrow in the folder of the manifest:

    first pass    rows are kept as they pass, while they are compared with what is on record
    not yet       the rest is kept too, with a look now and then whether that is still needed
    second pass   all of them once more: in the same task, or on the driver when all tasks have ended

A second pass is the same work with the same rows, so it needs no rules of its own. What is kept is for this run alone:
the next run has its rows from where this one had them.

The error of a failed task says what the task had sent by then.
"""

import time
import uuid
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from itertools import chain
from typing import Generic, Protocol, TypeVar

import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql.datasource import WriterCommitMessage

from penstock.pipeline.options import WriteOptions
from penstock.pipeline.sink.chunks import Chunk, chunks_of
from penstock.pipeline.sink.columns import read_batch
from penstock.pipeline.sink.manifest import OF_A_QUEUE, Manifest, Memory, NotYet, Recorder, ResumeBarrier, Sendable
from penstock.pipeline.sink.send import UNKNOWN, Answered, Meanwhile, SendFailed, Sending
from penstock.pipeline.sink.topic_chunks import TopicPlan, TopicRoute
from penstock.pipeline.storage import Folder, open_folder

Item = TypeVar("Item")


class Prefetch(Generic[Item]):
    """The items of an iterator, of which one may be made ahead of time.

    >>> items = Ahead(iter("ab"))
    >>> items.make()
    >>> list(items)
    ['a', 'b']
    """

    def __init__(self, items: Iterator[Item]) -> None:
        self._items = items
        # One at most.
        self._made: list[Item] = []
        self._failure: Exception | None = None

    def make(self) -> None:
        """Make the next item, unless it is there. An error is raised when that item is taken."""
        if self._made or self._failure is not None:
            return
        try:
            self._made.append(next(self._items))
        except StopIteration:
            pass
        except Exception as failure:
            self._failure = failure

    def __iter__(self) -> Iterator[Item]:
        return self

    def __next__(self) -> Item:
        self.make()
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        if not self._made:
            raise StopIteration
        return self._made.pop()


# A look costs a listing: little beside so much.
LOOK_BYTES = 32 * 1024 * 1024


class HeldRows:
    """The rows of a partition, each of which is kept as long as it may be needed again."""

    def __init__(self, batches: Iterable[pa.RecordBatch], folder: Folder, name: str, resumption: ResumeBarrier) -> None:
        self._batches = iter(batches)
        self._folder = folder
        self._name = name
        self._resumption = resumption
        self._file: pa.NativeFile | None = None
        self._writer: pa.RecordBatchFileWriter | None = None

    @property
    def name(self) -> str:
        """Where the rows are; empty if there are none."""
        return "" if self._file is None else self._name

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self

    def __next__(self) -> pa.RecordBatch:
        batch = next(self._batches)
        if self._writer is None and self._resumption.look():
            return batch
        if not self._resumption.is_clear:
            self._keep(batch)
        return batch

    def keep_rest(self) -> bool:
        """Keep what is left. Returns False as soon as that is not needed any more."""
        since_look = 0
        for batch in self:
            since_look += batch.nbytes
            if since_look >= LOOK_BYTES:
                since_look = 0
                if self._resumption.look():
                    return False
        return not self._resumption.look()

    def again(self) -> Iterator[pa.RecordBatch]:
        """All rows from the first one on: those that were kept, and those that are still to come."""
        self.close()
        return chain(held_rows(self._folder, self.name), self._batches)

    def close(self) -> None:
        if self._writer is not None and self._file is not None:
            self._writer.close()
            self._file.close()
            self._writer = None

    def _keep(self, batch: pa.RecordBatch) -> None:
        if self._writer is None:
            self._file = self._folder.open_output(self._name)
            self._writer = pa.ipc.new_file(self._file, batch.schema)
        self._writer.write_batch(batch)


def held_rows(folder: Folder, name: str) -> Iterator[pa.RecordBatch]:
    """Return what was kept under a name of `HeldRows`; raises `FileNotFoundError` if it is not there."""
    return _read_held(folder.open_input(name)) if name else iter(())


def _read_held(file: pa.NativeFile) -> Iterator[pa.RecordBatch]:
    with file:
        # It has its end on record: one that is cut short is no file.
        reader = pa.ipc.open_file(file)
        for place in range(reader.num_record_batches):
            yield reader.get_batch(place)


class WriteFailed(Exception):
    """A task could not send all of its rows; the message says why, and what it had sent."""


@dataclass
class Written(WriterCommitMessage):
    """What a task sent, and what it had no need to send; or that it may not send yet."""

    partition: int
    sent: int = 0
    skipped: int = 0
    chunks: int = 0
    # Left to the driver, and where its rows are; nowhere if it has none.
    is_held: bool = False
    rows: str = ""


@dataclass(slots=True)
class RateLimiter:
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
    batches: Iterable[pa.RecordBatch],
    options: WriteOptions,
    *,
    partition: int,
    batch: int | None,
    run: str,
    plan: TopicPlan | None = None,
) -> Written:
    """Send the rows of a partition that were not sent before; ``plan`` is what the tasks of a topic agree on."""
    work = _Work(options, partition, batch, plan)
    if not options.manifest:
        return work.send(batches, None)
    folder = open_folder(options.manifest)
    recorder = Manifest(folder, options.job, batch, run).recorder(partition, work.attempt, work.memory)
    if recorder.part.end is not None:
        # All of it is on record: there is nothing to hold.
        return work.send(batches, recorder)
    resumption = recorder.resumption
    with closing(HeldRows(batches, folder, resumption.rows_name(work.attempt), resumption)) as rows:
        try:
            return work.send(rows, recorder)
        except NotYet:
            if rows.keep_rest():
                return Written(partition, is_held=True, rows=rows.name)
            return work.send(rows.again(), recorder)


def finish_partition(
    held: Written, options: WriteOptions, *, batch: int | None, run: str, plan: TopicPlan | None
) -> Written:
    """Send what a task held, on the driver: all tasks have ended, and each partition on record was seen."""
    work = _Work(options, held.partition, batch, plan)
    folder = open_folder(options.manifest)
    manifest = Manifest(folder, options.job, batch, run)
    try:
        rows = held_rows(folder, held.rows)
    except FileNotFoundError:
        raise manifest.elsewhere(held.partition) from None
    return work.send(rows, manifest.recorder(held.partition, work.attempt, work.memory, is_clear=True))


@dataclass(frozen=True, slots=True)
class _Work:
    """An attempt at a partition; it may take more than one pass over its rows."""

    options: WriteOptions
    partition: int
    batch: int | None
    plan: TopicPlan | None
    attempt: str = field(default_factory=lambda: uuid.uuid4().hex[:12])

    @property
    def memory(self) -> Memory:
        return self.plan.memory if self.plan else OF_A_QUEUE

    def send(self, batches: Iterable[pa.RecordBatch], recorder: Recorder | None) -> Written:
        """Send what is to be sent of all rows; raises `NotYet` if it may not be, and then nothing was."""
        options, partition, batch = self.options, self.partition, self.batch
        sending = Sending(options.url, options.key, wait_s_max=options.wait_s_max)
        written = Written(partition)
        try:
            if self.plan is not None:
                topic = TopicRoute(options, sending, self.plan, partition=partition, batch=batch)
                _Task(options, recorder, topic, batches).send_all(written)
            else:
                queue = QueueRoute(options, sending, sender_name(options.job or self.attempt, batch, partition))
                _Task(options, recorder, queue, batches).send_all(written)
            if recorder is not None:
                recorder.note_end(chunks=written.chunks, rows=written.sent + written.skipped)
        except NotYet:
            raise
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


AnyChunk = TypeVar("AnyChunk", bound=Sendable)


class Route(Protocol[AnyChunk]):
    """How rows become chunks of one kind, and how one is sent."""

    def chunks(self, batches: Iterable[pa.RecordBatch]) -> Iterator[AnyChunk]: ...

    def post(self, chunk: AnyChunk, *, is_repeat: bool, meanwhile: Meanwhile) -> Answered:
        """Send a chunk; ``is_repeat`` if it may have been sent before; ``meanwhile`` is done before the answer."""
        ...

    def passed(self, chunk: AnyChunk) -> None:
        """Take note of a chunk that was sent before, under the name that is used now."""
        ...


class QueueRoute:
    def __init__(self, options: WriteOptions, sending: Sending, sender: str) -> None:
        self._options = options
        self._sending = sending
        self._sender = sender

    def chunks(self, batches: Iterable[pa.RecordBatch]) -> Iterator[Chunk]:
        return chunks_of(_read(batches), queue=self._options.queue, rows_max=self._options.messages_per_send)

    def post(self, chunk: Chunk, *, is_repeat: bool, meanwhile: Meanwhile) -> Answered:
        del is_repeat  # A server knows a sender and its sequence.
        return self._sending.send(chunk.queue, chunk.encode(self._sender), meanwhile=meanwhile)

    def passed(self, chunk: Chunk) -> None:
        pass


class _Task(Generic[AnyChunk]):
    def __init__(
        self,
        options: WriteOptions,
        recorder: Recorder | None,
        route: Route[AnyChunk],
        batches: Iterable[pa.RecordBatch],
    ) -> None:
        self._options = options
        self._recorder = recorder
        self._route = route
        self._chunks = Prefetch(route.chunks(batches))
        self._pace = RateLimiter(options.task_rate)

    def send_all(self, written: Written) -> None:
        for chunk in self._chunks:
            is_sent = self._send(chunk)
            written.sent += chunk.rows if is_sent else 0
            written.skipped += 0 if is_sent else chunk.rows
            written.chunks += 1

    def _send(self, chunk: AnyChunk) -> bool:
        """Send a chunk; return False if it was sent before."""
        now_ms = time.time_ns() // 1_000_000
        recorder = self._recorder
        if recorder is not None and not recorder.must_send(chunk, now_ms=now_ms, in_doubt=self._options.in_doubt):
            if recorder.is_of_now(chunk):
                self._route.passed(chunk)
            return False
        wait_s = self._pace.wait_s(chunk.rows, time.monotonic())
        if wait_s:
            time.sleep(wait_s)
        if recorder is None:
            self._route.post(chunk, is_repeat=False, meanwhile=self._chunks.make)
        else:
            self._send_on_record(chunk, recorder, now_ms)
        return True

    def _send_on_record(self, chunk: AnyChunk, recorder: Recorder, now_ms: int) -> None:
        is_repeat = recorder.is_in_doubt(chunk)
        recorder.note_intent(chunk, now_ms=now_ms)
        try:
            answered = self._route.post(chunk, is_repeat=is_repeat, meanwhile=self._chunks.make)
        except SendFailed as error:
            if error.code == UNKNOWN:
                recorder.note_forgotten()
            if not error.is_unsure:
                recorder.note_refused(chunk)
            raise
        recorder.note_sent(chunk, answered)


def _read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    row = 0
    for batch in batches:
        yield read_batch(batch, row)
        row += batch.num_rows


def _told(error: Exception, written: Written, options: WriteOptions) -> str:
    is_unsure = isinstance(error, SendFailed) and error.is_unsure
    unsure = "; whether what failed has arrived is not known" if is_unsure else ""
    if not written.sent + written.skipped:
        return f"{error}. So far partition {written.partition} had sent nothing{unsure}"
    so_far = (
        f"partition {written.partition} had sent {written.sent:,} messages, and {written.skipped:,} were sent before"
    )
    if options.manifest:
        then = f"job {options.job!r} will not send them again: they are in the manifest {options.manifest}"
    elif options.job:
        then = f"job {options.job!r} will not send them again as long as the server remembers them"
    else:
        then = "another try will send them again"
    return f"{error}. So far {so_far}{unsure}; {then}"
