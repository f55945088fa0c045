"""`load`: files of Parquet, CSV or JSON lines become messages of a queue; what cannot is put aside with the reason.

    files ──read──▶ rows ──map, check──▶ staged ──┬─ good ──▶ the queue
                                                 └─ bad ───▶ rejects

Run twice, it adds nothing: files that were loaded are known by path, size and time of change,
and a run that was killed is completed first. See `staging` for how.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING

from penstock.pipeline.jobs.inputs import File, find_files, read_files, union
from penstock.pipeline.jobs.queues import QueueFacts, ask_queue
from penstock.pipeline.jobs.staging import Generation, Staging, Target, open_staging
from penstock.pipeline.outcome import JobFailed, Outcome, Progress, Table
from penstock.pipeline.transforms.loading import MAPPABLE, Bounds, checked, mapped

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_SAMPLE_ROWS = 5
_SAMPLE_CHARACTERS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadOptions:
    paths: Sequence[str]
    target: Target
    queue: str
    work: str
    now: datetime
    # By default named after the queue.
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


def run(spark: "SparkSession", options: LoadOptions, progress: Progress) -> Outcome:
    _check_mapping(options.mapping)
    facts = ask_queue(options.target, options.queue)
    progress.step("Looking for files")
    files = find_files(spark, options.paths)
    with open_staging(spark, options.work, options.job or f"load-{options.queue}") as staging:
        counts = _Counts()
        if not options.is_dry_run:
            _finish(staging, options, progress, counts)
        known = {_identity(note) for each in staging.generations() for note in each.note["files"]}
        fresh = [file for file in files if _identity(file.as_note()) not in known]
        skipped = len(files) - len(fresh)
        if options.is_dry_run:
            return _foretell(_judged(spark, options, facts, fresh), fresh, skipped) if fresh else _nothing(skipped)
        if fresh:
            progress.step(f"Reading {len(fresh):,} files")
            rows = _judged(spark, options, facts, fresh)
            note = {"files": [file.as_note() for file in fresh]}
            generation = staging.stage(rows, note=note, rate=options.target.rate)
            counts.sent = _complete(staging, generation, options, progress, counts)
    return _summary(options, counts, files=len(fresh), skipped=skipped)


def _finish(staging: Staging, options: LoadOptions, progress: Progress, counts: _Counts) -> None:
    """Complete what an earlier run left unfinished."""
    for generation in staging.generations():
        if not generation.is_done:
            counts.resumed += _complete(staging, generation, options, progress, counts)


def _complete(
    staging: Staging, generation: Generation, options: LoadOptions, progress: Progress, counts: _Counts
) -> int:
    from pyspark.sql import functions as f  # noqa: PLC0415

    rejected = staging.rows(generation).where(f.col("reason").isNotNull()).select("reason", "file", "row")
    by_reason = {str(row["reason"]): int(row["count"]) for row in rejected.groupBy("reason").count().collect()}
    if by_reason:
        where = f"{options.rejects.rstrip('/')}/{generation.name}" if options.rejects else ""
        where = where or staging.path(generation.name, "rejects")
        rejected.coalesce(1).write.mode("overwrite").json(where)
        counts.written.append(where)
    for reason, count in by_reason.items():
        counts.rejected[reason] = counts.rejected.get(reason, 0) + count
    return staging.send(generation, options.target, progress)


def _judged(spark: "SparkSession", options: LoadOptions, facts: QueueFacts, files: Sequence[File]) -> "DataFrame":
    from pyspark.errors import AnalysisException  # noqa: PLC0415

    mapping = dict(options.mapping)
    if options.id_column:
        mapping["dedup_id"] = f"`{options.id_column}`"
    bounds = Bounds(now=options.now, body_bytes_max=facts.body_bytes_max, delay_s_max=facts.delay_s_max)
    try:
        frames = read_files(spark, files, form=options.form, options=options.reader_options)
        return union([checked(mapped(frame, mapping), bounds, queue=options.queue) for frame in frames])
    except AnalysisException as error:
        raise JobFailed(f"the files do not fit the mapping: {str(error).splitlines()[0]}") from error


def _check_mapping(mapping: Mapping[str, str]) -> None:
    unknown = [name for name in mapping if name not in MAPPABLE]
    if unknown:
        raise JobFailed(f"--map {unknown[0]}: no column of a message is called so; there are {', '.join(MAPPABLE)}")


def _identity(note: Mapping[str, object]) -> tuple[object, ...]:
    return note["path"], note["size"], note["changed_at_ms"]


def _foretell(rows: "DataFrame", files: Sequence[File], skipped: int) -> Outcome:
    from pyspark.sql import functions as f  # noqa: PLC0415

    found = {row["reason"]: int(row["count"]) for row in rows.groupBy("reason").count().collect()}
    good = found.pop(None, 0)
    text = f.substring(f.decode(f.col("data"), "UTF-8"), 1, _SAMPLE_CHARACTERS)
    sample = rows.where("reason IS NULL").select(text).limit(_SAMPLE_ROWS).collect()
    tables = [Table("Would be sent, a sample", ["data"], [[row[0]] for row in sample])]
    if found:
        tables.append(_rejects_table(found))
    bad = sum(found.values())
    sentence = f"A dry run: {good:,} rows of {len(files):,} files would be sent, {bad:,} rejected; nothing was sent."
    figures: dict[str, int | float | str] = {
        "read": good + bad,
        "sent": 0,
        "would_send": good,
        "rejected": bad,
        "skipped_files": skipped,
    }
    return Outcome(sentence=sentence, tables=tables, figures=figures)


def _nothing(skipped: int) -> Outcome:
    sentence = f"A dry run: all {skipped:,} files were loaded before; nothing would be sent."
    return Outcome(sentence=sentence, figures={"read": 0, "sent": 0, "would_send": 0, "skipped_files": skipped})


def _summary(options: LoadOptions, counts: _Counts, *, files: int, skipped: int) -> Outcome:
    sent = counts.sent + counts.resumed
    parts = [f"{sent:,} rows were sent to {options.queue}"]
    if counts.resumed:
        parts.append(f"{counts.resumed:,} of them were left by an earlier run")
    parts.append(f"{counts.rejected_rows:,} were rejected")
    parts.append(f"{skipped:,} of {files + skipped:,} files had been loaded before")
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
