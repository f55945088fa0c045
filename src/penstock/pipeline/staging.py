"""How a job sends rows that it computed: first they are fixed, then they are sent, and a run that was killed goes on.

    <work>/<job>/
        lock                     one run at a time
        generations/000001/
            rows/                the rows as Parquet, with their partition and place in it
            kept/                what later runs must know of them, such as ids
            plan.json            written last: from now on the generation is fixed
            done.json            all of it was sent; rows/ is gone
        manifest/                of the sink, one job for each generation

Laws of the file
----------------
1. Nothing is sent that is not staged: what Spark computes twice may come out in another
   order, what lies in a file does not.
2. An unfinished generation is sent before a new one is staged, with the partitions and the
   chunks that its plan says, whatever the options of this run are.
3. A folder without a plan is what a kill left behind, and is removed.
"""

import fcntl
import json
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any
from urllib.parse import quote, urlsplit

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from penstock.contract.limits import DURATION_MS_MAX
from penstock.contract.names import BadName, check_name
from penstock.pipeline.http import TRIES_BY_HAND, ServerClient, ServerRefused, ServerUnreachable
from penstock.pipeline.job import JobFailed, Progress, counted, first_line
from penstock.pipeline.options import MESSAGES_PER_SEND_MAX, RECORDS_PER_SEND_MAX, BadOption, check_server
from penstock.pipeline.sink.columns import COLUMNS
from penstock.pipeline.sink.manifest import Manifest
from penstock.pipeline.sink.topic_columns import COLUMNS as RECORD_COLUMNS
from penstock.pipeline.storage import open_folder

VERSION = 1
REASON = "reason"
# What a staged row calls the partition of its record: it has one of its own.
TO_PARTITION = "to_partition"
_BLOCK_ROWS = 10_000
_LOOK_S = 2.0
_JOB = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,99}")
_SENTENCE = re.compile(r"(?:WriteFailed|BadOption|BadColumns|TopicChanged): (.*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where a job sends to, and how fast."""

    url: str
    key: str = ""
    # Messages per second of the whole job; None as fast as it goes.
    rate: float | None = None
    wait_s_max: float = 300.0


@dataclass(frozen=True, slots=True)
class Generation:
    """Rows that are fixed. ``note`` is what the job wrote beside them."""

    name: str
    rows: int
    partitions: int
    messages_per_send: int
    note: Mapping[str, Any]
    is_done: bool
    # Empty if its rows are messages, which say their queue themselves.
    topic: str = ""


class Staging:
    """The generations of one job; to be had from `open_staging`."""

    def __init__(self, spark: SparkSession, where: str, job: str) -> None:
        self._spark = spark
        self._where = where
        self.job = job
        self._folder = open_folder(where)
        # Spark takes a bare path for one of its default file system, which need not be this machine's.
        self._spark_where = where if urlsplit(where).scheme else f"file://{where}"

    def generations(self) -> list[Generation]:
        """All that are fixed, the oldest first."""
        names = sorted({name.split("/")[1] for name in self._folder.names("generations")})
        found = [self._read(name) for name in names]
        return [each for each in found if each is not None]

    def path(self, generation: str, part: str) -> str:
        """Where Spark finds a part of a generation."""
        return f"{self._spark_where}/generations/{generation}/{part}"

    def stage(
        self,
        rows: DataFrame,
        *,
        note: Mapping[str, Any],
        rate: float | None,
        kept: Sequence[str] = (),
        topic: str = "",
    ) -> Generation:
        """Fix rows: columns of a write with `queue`, in the order in which they shall be sent, and whatever else.

        Of a ``topic``, they are columns of its records, with `to_partition` for `partition`.
        """
        name = self._fresh_name()
        partitions = max(1, self._spark.sparkContext.defaultParallelism)
        placed(rows, partitions, together=("key",) if topic else ("queue", "group")).write.mode("overwrite").parquet(
            self.path(name, "rows")
        )
        staged = self._spark.read.parquet(self.path(name, "rows"))
        if kept:
            staged.select(*kept).write.mode("overwrite").parquet(self.path(name, "kept"))
        plan = {
            "version": VERSION,
            "rows": _sendable(staged).count(),
            "partitions": partitions,
            "messages_per_send": messages_per_send(
                rate, partitions, most=RECORDS_PER_SEND_MAX if topic else MESSAGES_PER_SEND_MAX
            ),
            "note": dict(note),
            "topic": topic,
        }
        self._folder.put(f"generations/{name}/plan.json", json.dumps(plan) + "\n")
        found = self._read(name)
        assert found is not None
        return found

    def rows(self, generation: Generation) -> DataFrame:
        return self._spark.read.parquet(self.path(generation.name, "rows"))

    def kept(self) -> DataFrame | None:
        """What all generations have kept; None if there is none."""
        paths = [self.path(each.name, "kept") for each in self.generations()]
        return self._spark.read.parquet(*paths) if paths else None

    def send(self, generation: Generation, target: Target, progress: Progress) -> int:
        """Send what of a generation was not sent, and note that it is done; return how many messages it has."""
        if generation.rows:
            progress.step(f"Sending {counted(generation.rows, 'record' if generation.topic else 'message')}")
            with self._telling(generation, progress):
                self._write(generation, target)
            progress.rows(generation.rows, total=generation.rows)
        self._folder.put(f"generations/{generation.name}/done.json", json.dumps({"messages": generation.rows}) + "\n")
        self._folder.remove(f"generations/{generation.name}/rows")
        return generation.rows

    def _write(self, generation: Generation, target: Target) -> None:
        partitions = generation.partitions
        # The plan says which partition a row is in, and AQE leaves a number of partitions alone that was asked for.
        rows = _sendable(self.rows(generation)).repartitionById(partitions, "partition")
        options = {
            "url": target.url,
            "job": self._sink_job(generation),
            "manifest": f"{self._where}/manifest",
            "messagesPerSend": str(generation.messages_per_send),
            "maxWait": str(target.wait_s_max),
        }
        if target.key:
            options["key"] = target.key
        if target.rate:
            options |= {"rate": str(target.rate), "concurrency": str(partitions)}
        ordered = _ordered(rows, generation.topic)
        if generation.topic:
            options["topic"] = generation.topic
        try:
            ordered.write.format("penstock").mode("append").options(**options).save()
        except PySparkException as error:
            raise JobFailed(f"{sentence_of(error)} Run the job again to go on where it stopped.") from error

    @contextmanager
    def _telling(self, generation: Generation, progress: Progress) -> Iterator[None]:
        """Look now and then into the manifest, and say how far it is."""
        is_over = threading.Event()

        def look() -> None:
            while not is_over.wait(_LOOK_S):
                parts = Manifest(
                    open_folder(f"{self._where}/manifest"), self._sink_job(generation), None, "look"
                ).everything()
                progress.rows(sum(part.sent_messages for part in parts.values()), total=generation.rows)

        looker = threading.Thread(target=look, daemon=True)
        looker.start()
        try:
            yield
        finally:
            is_over.set()
            looker.join()

    def _sink_job(self, generation: Generation) -> str:
        return f"{self.job} {generation.name}"

    def _fresh_name(self) -> str:
        """The next number. What a kill left under it goes."""
        last = max((int(each.name) for each in self.generations()), default=0)
        name = f"{last + 1:06}"
        self._folder.remove(f"generations/{name}")
        return name

    def _read(self, name: str) -> Generation | None:
        text = self._folder.get(f"generations/{name}/plan.json")
        if text is None:
            return None
        plan = json.loads(text)
        if plan["version"] != VERSION:
            raise JobFailed(f"generation {name} is of version {plan['version']}; this code knows {VERSION}")
        is_done = self._folder.get(f"generations/{name}/done.json") is not None
        return Generation(
            name,
            plan["rows"],
            plan["partitions"],
            plan["messages_per_send"],
            plan["note"],
            is_done=is_done,
            topic=plan.get("topic", ""),
        )


@contextmanager
def open_staging(spark: SparkSession, work: str, job: str) -> Iterator[Staging]:
    """Give the generations of a job to one run at a time. Runs on several machines have to see to it themselves."""
    if not _JOB.fullmatch(job):
        raise JobFailed(f"the job is called {job!r}; a name has 1 to 100 of A-Z a-z 0-9 _ - and dots, and no dot first")
    is_local = urlsplit(work).scheme in ("", "file")
    root = str(Path(work.removeprefix("file://")).resolve()) if is_local else work.rstrip("/")
    where = f"{root}/{job}"
    with _locked(Path(where) / "lock", job) if is_local else nullcontext():
        yield Staging(spark, where, job)


@contextmanager
def _locked(path: Path, job: str) -> Iterator[None]:
    path.parent.mkdir(parents=True, exist_ok=True)
    file: IO[bytes]
    with path.open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise JobFailed(f"job {job!r} is running already, with the same work folder {path.parent}") from None
        yield


def _ordered(rows: DataFrame, topic: str) -> DataFrame:
    """The columns of a write, in their order."""
    if not topic:
        return rows.sortWithinPartitions("queue", "position").select(
            *(name for name in COLUMNS if name in rows.columns)
        )
    own = rows.sortWithinPartitions("position").drop("partition").withColumnRenamed(TO_PARTITION, "partition")
    return own.select(*(name for name in RECORD_COLUMNS if name in own.columns))


def placed(rows: DataFrame, partitions: int, *, together: Sequence[str] = ("queue", "group")) -> DataFrame:
    """Give each row a partition and a place in it: rows of one group, or key, stay together, the others go in even
    blocks."""
    position = f.col("position")
    block = f.shiftrightunsigned(position, 33) + f.floor(position % (1 << 33) / _BLOCK_ROWS)
    last = together[-1]
    by_name = f.when(f.col(last).isNotNull(), f.xxhash64(*together)) if last in rows.columns else f.lit(None)
    numbered = rows.withColumn("position", f.monotonically_increasing_id())
    return numbered.withColumn(
        "partition", f.pmod(f.coalesce(by_name.cast("bigint"), block), f.lit(partitions)).cast("int")
    )


def messages_per_send(rate: float | None, partitions: int, *, most: int = MESSAGES_PER_SEND_MAX) -> int:
    """A slow job sends small chunks, about one a second from each task, instead of a thousand now and then.

    >>> messages_per_send(None, 4), messages_per_send(20, 4), messages_per_send(0.5, 4)
    (1000, 5, 1)
    """
    if rate is None:
        return most
    return max(1, min(most, int(rate / partitions)))


def sentence_of(error: Exception) -> str:
    """What our own code said in the long error that Spark makes of it."""
    found = _SENTENCE.search(str(error))
    return f"{found[1].rstrip('.')}." if found else f"Spark failed: {first_line(str(error))}."


def _sendable(staged: DataFrame) -> DataFrame:
    return staged.where(f"{REASON} IS NULL") if REASON in staged.columns else staged


TOPIC = "topic:"


@dataclass(frozen=True, slots=True)
class QueueFacts:
    name: str
    body_bytes_max: int
    delay_s_max: float


@dataclass(frozen=True, slots=True)
class TopicFacts:
    name: str
    partitions: int
    batch_bytes_max: int
    is_compacted: bool


def check_target(queue: str) -> None:
    if queue.startswith(TOPIC):
        raise JobFailed(f"{queue} is a topic, not a queue: name it with --topic {queue.removeprefix(TOPIC)}")
    try:
        check_name(queue)
    except BadName as error:
        raise JobFailed(str(error)) from None


def ask_queue(target: Target, queue: str) -> QueueFacts:
    check_target(queue)
    found = _ask(target, f"/api/queues/{queue}")
    retention_s = float(str(found.get("retention_s") or 0))
    delay_s_max = DURATION_MS_MAX / 1_000
    return QueueFacts(
        queue,
        int(str(found["max_message_bytes"])),
        min(delay_s_max, retention_s) if retention_s else delay_s_max,
    )


def ask_topic(target: Target, topic: str) -> TopicFacts:
    found = _ask(target, f"/api/topics/{quote(topic, safe='')}")
    return TopicFacts(
        topic,
        int(str(found["partition_count"])),
        int(str(found["max_message_bytes"])),
        is_compacted="compact" in str(found["cleanup"]),
    )


def _ask(target: Target, path: str) -> dict[str, object]:
    try:
        check_server(target.url, target.key)
        with ServerClient(target.url, target.key, tries_max=TRIES_BY_HAND) as client:
            found: dict[str, object] = client.json(path)
    except (BadOption, ServerRefused) as error:
        raise JobFailed(str(error)) from None
    except ServerUnreachable as error:
        raise JobFailed(f"{error}. If it is another server, name it with --url or in PENSTOCK_URL") from None
    return found
