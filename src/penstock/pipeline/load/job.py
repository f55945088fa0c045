"""`load`: files of Parquet, CSV or JSON lines become messages of a queue, or records of a topic; what cannot is put
aside with the reason.

    files ──read──▶ rows ──map, check──▶ staged ──┬─ good ──▶ the queue or topic
                                                 └─ bad ───▶ rejects

Run twice, it adds nothing: files that were loaded are known by path, size and time of change,
and a run that was killed is completed first. See `staging` for how.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from penstock.pipeline.job import JobFailed, Outcome, Progress, Table, counted, first_line
from penstock.pipeline.load.files import File, find_files, read_files, union
from penstock.pipeline.load.rows import MAPPABLE, Bounds, RecordBounds, checked, checked_records, mapped
from penstock.pipeline.reports.html import excerpt
from penstock.pipeline.sink.topic_columns import COLUMNS as RECORD_COLUMNS
from penstock.pipeline.staging import (
    Generation,
    QueueFacts,
    Staging,
    Target,
    TopicFacts,
    ask_queue,
    ask_topic,
    open_staging,
)

_SAMPLE_ROWS = 5
_SAMPLE_CHARACTERS = 60
_SAME_NAMES = ". If two names differ in their case only, say --conf spark.sql.caseSensitive=true"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadOptions:
    paths: Sequence[str]
    target: Target
    work: str
    now: datetime
    # One of them.
    queue: str = ""
    topic: str = ""
    # By default named after the queue or topic.
    job: str = ""
    # By the ending of each file, if it is not said.
    form: str = ""
    mapping: Mapping[str, str] = field(default_factory=dict)
    # A column whose values keep a second message with the same one away.
    id_column: str = ""
    # Where rejected rows go; by default beside the generations.
    rejects: str = ""
    is_dry_run: bool = False
    reader_options: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class _Counts:
    sent: int = 0
    resumed: int = 0
    rejected: dict[str, int] = field(default_factory=dict)
    written: list[str] = field(default_factory=list)

    @property
    def rejected_rows(self) -> int:
        return sum(self.rejected.values())


def run(spark: SparkSession, options: LoadOptions, progress: Progress) -> Outcome:
    _check(options)
    facts = ask_topic(options.target, options.topic) if options.topic else ask_queue(options.target, options.queue)
    progress.step("Looking for files")
    files = find_files(spark, options.paths)
    default = f"load-topic-{options.topic}" if options.topic else f"load-{options.queue}"
    with open_staging(spark, options.work, options.job or default) as staging:
        counts = _Counts()
        if not options.is_dry_run:
            # What an earlier run left unfinished comes first.
            for generation in staging.generations():
                if not generation.is_done:
                    counts.resumed += _complete(staging, generation, options, progress, counts)
        known = {_identity(note) for each in staging.generations() for note in each.note["files"]}
        fresh = [file for file in files if _identity(file.as_note()) not in known]
        skipped = len(files) - len(fresh)
        if options.is_dry_run:
            if not fresh:
                return _nothing(skipped)
            body = "value" if options.topic else "data"
            return _foretell(_judged(spark, options, facts, fresh), fresh, skipped, body=body)
        if fresh:
            progress.step(f"Reading {counted(len(fresh), 'file')}")
            rows = _judged(spark, options, facts, fresh)
            note = {"files": [file.as_note() for file in fresh]}
            generation = staging.stage(rows, note=note, rate=options.target.rate, topic=options.topic)
            counts.sent = _complete(staging, generation, options, progress, counts)
    return _summary(options, counts, files=len(fresh), skipped=skipped)


def _complete(
    staging: Staging, generation: Generation, options: LoadOptions, progress: Progress, counts: _Counts
) -> int:
    rejected = staging.rows(generation).where(f.col("reason").isNotNull()).select("reason", "file", "row")
    by_reason = {str(row["reason"]): int(row["count"]) for row in rejected.groupBy("reason").count().collect()}
    if by_reason:
        # Another job may have the same folder for its rejects.
        own = f"{options.rejects.rstrip('/')}/{staging.job}/{generation.name}" if options.rejects else ""
        where = own or staging.path(generation.name, "rejects")
        rejected.coalesce(1).write.mode("overwrite").json(where)
        counts.written.append(where)
    for reason, count in by_reason.items():
        counts.rejected[reason] = counts.rejected.get(reason, 0) + count
    return staging.send(generation, options.target, progress)


def _judged(
    spark: SparkSession, options: LoadOptions, facts: QueueFacts | TopicFacts, files: Sequence[File]
) -> DataFrame:
    try:
        frames = read_files(spark, files, form=options.form, options=options.reader_options)
        return union([_judge(frame, options, facts) for frame in frames])
    except AnalysisException as error:
        hint = _SAME_NAMES if "COLUMN_ALREADY_EXISTS" in str(error) else ""
        raise JobFailed(f"the files do not fit the mapping: {first_line(str(error))}{hint}") from error


def _judge(frame: DataFrame, options: LoadOptions, facts: QueueFacts | TopicFacts) -> DataFrame:
    if isinstance(facts, TopicFacts):
        limits = RecordBounds(
            now=options.now,
            partitions=facts.partitions,
            batch_bytes_max=facts.batch_bytes_max,
            is_compacted=facts.is_compacted,
        )
        return checked_records(mapped(frame, options.mapping, names=RECORD_COLUMNS, body="value"), limits)
    mapping = dict(options.mapping)
    if options.id_column:
        mapping["dedup_id"] = f"`{options.id_column}`"
    bounds = Bounds(now=options.now, body_bytes_max=facts.body_bytes_max, delay_s_max=facts.delay_s_max)
    return checked(mapped(frame, mapping), bounds, queue=options.queue)


def _check(options: LoadOptions) -> None:
    if bool(options.queue) == bool(options.topic):
        raise JobFailed("where to? give --queue or --topic, and not both")
    if options.topic and options.id_column:
        raise JobFailed(f"--id: a topic knows no dedup ids; a key is given with --map key={options.id_column}")
    noun, names = ("record", RECORD_COLUMNS) if options.topic else ("message", MAPPABLE)
    unknown = [name for name in options.mapping if name not in names]
    if unknown:
        raise JobFailed(f"--map {unknown[0]}: no column of a {noun} is called so; there are {', '.join(names)}")


def _identity(note: Mapping[str, object]) -> tuple[object, ...]:
    return note["path"], note["size"], note["changed_at_ms"]


def _foretell(rows: DataFrame, files: Sequence[File], skipped: int, *, body: str) -> Outcome:
    found = {row["reason"]: int(row["count"]) for row in rows.groupBy("reason").count().collect()}
    good = found.pop(None, 0)
    text = excerpt(f.col(body), _SAMPLE_CHARACTERS)
    sample = rows.where("reason IS NULL").select(text).limit(_SAMPLE_ROWS).collect()
    tables = [Table("Would be sent, a sample", [body], [[row[0]] for row in sample])]
    if found:
        tables.append(_rejects_table(found))
    bad = sum(found.values())
    would = f"{counted(good, 'row')} of {counted(len(files), 'file')} would be sent"
    sentence = f"A dry run: {would}, {bad:,} rejected; nothing was sent."
    figures: dict[str, int | float | str] = {
        "read": good + bad,
        "sent": 0,
        "would_send": good,
        "rejected": bad,
        "skipped_files": skipped,
    }
    return Outcome(sentence=sentence, tables=tables, figures=figures)


def _nothing(skipped: int) -> Outcome:
    sentence = f"A dry run: {counted(skipped, 'file was', 'files were')} loaded before; nothing would be sent."
    return Outcome(sentence=sentence, figures={"read": 0, "sent": 0, "would_send": 0, "skipped_files": skipped})


def _summary(options: LoadOptions, counts: _Counts, *, files: int, skipped: int) -> Outcome:
    sent = counts.sent + counts.resumed
    parts = [f"{counted(sent, 'row was', 'rows were')} sent to {options.queue or options.topic}"]
    if counts.resumed:
        parts.append(f"{counted(counts.resumed, 'of them was', 'of them were')} left by an earlier run")
    parts.append(counted(counts.rejected_rows, "was rejected", "were rejected"))
    parts.append(f"{skipped:,} of {counted(files + skipped, 'file')} had been loaded before")
    figures: dict[str, int | float | str] = {
        "read": sent + counts.rejected_rows,
        "sent": sent,
        "resumed": counts.resumed,
        "rejected": counts.rejected_rows,
        "files": files,
        "skipped_files": skipped,
    }
    tables = [_rejects_table(counts.rejected)] if counts.rejected else []
    return Outcome(sentence=f"{'; '.join(parts)}.", tables=tables, written=counts.written, figures=figures)


def _rejects_table(by_reason: Mapping[str, int]) -> Table:
    return Table("Rejected", ["reason", "rows"], [[reason, count] for reason, count in sorted(by_reason.items())])
