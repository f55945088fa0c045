"""`replay`: settled messages of an archive, a server or a folder are sent once more.

Which ones is said by time, queue, outcome, attribute, signature, ids or a condition in SQL. A
job of one name replays a message once, however often it runs: ids that were staged are left
out, with the messages that were made of them, and a run that was killed is completed first. See `staging` for how.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from penstock.contract.messages import OUTCOMES
from penstock.pipeline import replay_rows
from penstock.pipeline.failures import first_line
from penstock.pipeline.job import JobFailed, Outcome, Progress, Table, counted
from penstock.pipeline.locations import Place, read_history
from penstock.pipeline.replay_rows import OUTCOMES, RECORD_MAPPABLE, Choice
from penstock.pipeline.reports.html import excerpt
from penstock.pipeline.staging import Staging, Target, open_staging
from penstock.pipeline.targets import TopicFacts, ask_queue, ask_topic, check_target

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Adds a column `signature` to rows of the history.
Signing = Callable[["DataFrame"], "DataFrame"]
_SAMPLE_ROWS = 5
_SAMPLE_CHARACTERS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOptions:
    place: Place
    target: Target
    work: str
    job: str
    choice: Choice = field(default_factory=Choice)
    # A file that triage wrote: messages that failed in one of its ways.
    signatures: str = ""
    # A file with an id in each line.
    ids: str = ""
    # The queue they go to; by default the one each came from.
    into: str = ""
    # Or the topic, and expressions for what its records have.
    topic: str = ""
    mapping: Mapping[str, str] = field(default_factory=dict)
    is_dry_run: bool = False


@dataclass(slots=True)
class _Counts:
    sent: int = 0
    resumed: int = 0


def run(
    spark: "SparkSession", options: ReplayOptions, progress: Progress, *, signing: Signing | None = None
) -> Outcome:
    facts = _check(options)
    with open_staging(spark, options.work, options.job) as staging:
        counts = _Counts()
        if not options.is_dry_run:
            for generation in staging.generations():
                if not generation.is_done:
                    counts.resumed += staging.send(generation, options.target, progress)
        progress.step("Choosing messages")
        rows = _chosen(spark, options, staging, signing).cache()
        try:
            return _replay(staging, _judged(rows, options, facts), options, progress, counts)
        finally:
            rows.unpersist()


def _replay(
    staging: Staging, rows: "DataFrame", options: ReplayOptions, progress: Progress, counts: _Counts
) -> Outcome:
    """Count, and unless it is a dry run: fix and send."""
    found = _counted(rows)
    if options.is_dry_run:
        return _foretell(rows, found, body="value" if options.topic else "data")
    good = rows.where("reason IS NULL")
    if any(reason is None for _, _, _, reason in found):
        sendable = good.drop("outcome", "from_queue", "reason")
        generation = staging.stage(sendable, note={}, rate=options.target.rate, kept=("id",), topic=options.topic)
        counts.sent = staging.send(generation, options.target, progress)
    return _summary(found, counts)


def _chosen(spark: "SparkSession", options: ReplayOptions, staging: Staging, signing: Signing | None) -> "DataFrame":
    from pyspark.errors import PySparkException  # noqa: PLC0415

    rows = read_history(spark, options.place)
    if options.ids:
        rows = replay_rows.with_ids(rows, _ids(spark, options.ids))
    try:
        rows = replay_rows.chosen(rows, _choice(options))
    except PySparkException as error:
        raise JobFailed(f"--where cannot be understood: {first_line(str(error))}") from error
    if options.signatures:
        wanted = spark.createDataFrame([(each,) for each in read_signatures(options.signatures)], "signature STRING")
        rows = replay_rows.with_signatures((signing or _signing())(rows), wanted)
    sent = staging.kept()
    if sent is not None:
        rows = replay_rows.without_sent(rows, sent)
    once = replay_rows.once_each(rows)
    if not options.topic:
        return replay_rows.messages(once, into=options.into)
    try:
        return replay_rows.records(once, options.mapping, topic=options.topic)
    except PySparkException as error:
        raise JobFailed(f"--map cannot be understood: {first_line(str(error))}") from error


def _choice(options: ReplayOptions) -> Choice:
    """By signature, what was buried unless an outcome is said: triage looks at burials, and what was acked after a
    retry, or without any error, has a signature too."""
    if options.signatures and not options.choice.outcomes:
        return replace(options.choice, outcomes=("buried",))
    return options.choice


def _ids(spark: "SparkSession", path: str) -> "DataFrame":
    from pyspark.errors import AnalysisException  # noqa: PLC0415

    try:
        return spark.read.text(path).selectExpr("trim(value) AS id")
    except AnalysisException as error:
        raise JobFailed(f"--ids: {path} cannot be read: {first_line(str(error))}") from None


def _check(options: ReplayOptions) -> TopicFacts | None:
    """Look at what can be wrong before anything is read; return what is known of the topic, if it goes to one."""
    unheard = [each for each in options.choice.outcomes if each not in OUTCOMES]
    if unheard:
        raise JobFailed(f"--outcome {unheard[0]}: no message ends so; they are {', '.join(OUTCOMES)}")
    if options.topic:
        if options.into:
            raise JobFailed("where to? give --into or --topic, and not both")
        unknown = [name for name in options.mapping if name not in RECORD_MAPPABLE]
        if unknown:
            raise JobFailed(f"--map {unknown[0]}: there are {', '.join(RECORD_MAPPABLE)}")
        return ask_topic(options.target, options.topic)
    if options.mapping:
        raise JobFailed("--map is for --topic: a message goes back as it was")
    if options.into:
        check_target(options.into)
    return None


def _judged(rows: "DataFrame", options: ReplayOptions, topic: TopicFacts | None) -> "DataFrame":
    """Give a reason to what its queue, or the topic, does not take."""
    if topic is None:
        return replay_rows.too_large(rows, _limits(rows, options))
    return replay_rows.refused_by_topic(rows, batch_bytes_max=topic.batch_bytes_max, is_compacted=topic.is_compacted)


def read_signatures(path: str) -> Sequence[str]:
    """Return the signatures in a file of triage."""
    try:
        with open(path, encoding="utf-8") as file:  # noqa: PTH123 - a path is a text here, as everywhere in a job.
            found = [str(each["signature"]) for each in json.load(file)["signatures"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise JobFailed(
            f"{path} is not a file of signatures as `penstock pipeline triage` writes it: {error}"
        ) from error
    if not found:
        raise JobFailed(f"{path} has no signatures")
    return found


def _signing() -> Signing:
    from importlib import import_module  # noqa: PLC0415

    try:
        found: Signing = import_module("penstock.pipeline.triage.signatures").with_signature
    except ImportError:
        raise JobFailed("this build has no signatures: choose by --where or --ids") from None
    return found


def _limits(rows: "DataFrame", options: ReplayOptions) -> dict[str, int]:
    """What each queue takes that something goes to; one that is gone is left out."""
    if options.into:
        return {options.into: ask_queue(options.target, options.into).body_bytes_max}
    limits = {}
    for row in rows.select("queue").distinct().collect():
        try:
            limits[row["queue"]] = ask_queue(options.target, row["queue"]).body_bytes_max
        except JobFailed as error:
            if "queue_not_found" not in str(error):
                raise
    return limits


def _counted(rows: "DataFrame") -> list[tuple[str, str, int, str | None]]:
    found = rows.groupBy("from_queue", "outcome", "reason").count().orderBy("from_queue", "outcome", "reason").collect()
    return [(row["from_queue"], row["outcome"], int(row["count"]), row["reason"]) for row in found]


def _tables(found: Sequence[tuple[str, str, int, str | None]]) -> list[Table]:
    good: list[list[str | int | None]]
    good = [[queue, outcome, count] for queue, outcome, count, reason in found if reason is None]
    bad: list[list[str | int | None]]
    bad = [[queue, outcome, reason, count] for queue, outcome, count, reason in found if reason is not None]
    tables = [Table("Chosen", ["queue", "outcome", "messages"], good)]
    return [*tables, Table("Not sent", ["queue", "outcome", "reason", "messages"], bad)] if bad else tables


def _figures(found: Sequence[tuple[str, str, int, str | None]]) -> tuple[int, int]:
    good = sum(count for _, _, count, reason in found if reason is None)
    return good, sum(count for _, _, count, reason in found) - good


def _foretell(rows: "DataFrame", found: Sequence[tuple[str, str, int, str | None]], *, body: str) -> Outcome:
    from pyspark.sql import functions as f  # noqa: PLC0415

    text = excerpt(f.col(body), _SAMPLE_CHARACTERS)
    sample = rows.where("reason IS NULL").select("id", "queue", text.alias("data")).limit(_SAMPLE_ROWS).collect()
    good, bad = _figures(found)
    tables = [*_tables(found), Table("A sample", ["id", "to", "data"], [list(row) for row in sample])]
    sentence = f"A dry run: {counted(good, 'message')} would be sent, {bad:,} cannot be; nothing was sent."
    return Outcome(sentence=sentence, tables=tables, figures={"would_send": good, "unsendable": bad, "sent": 0})


def _summary(found: Sequence[tuple[str, str, int, str | None]], counts: _Counts) -> Outcome:
    _, bad = _figures(found)
    sent = counts.sent + counts.resumed
    parts = [counted(sent, "message was sent", "messages were sent")]
    if counts.resumed:
        parts.append(f"{counted(counts.resumed, 'of them was', 'of them were')} left by an earlier run")
    parts.append(f"{bad:,} could not be")
    figures: dict[str, int | float | str] = {"sent": sent, "resumed": counts.resumed, "unsendable": bad}
    return Outcome(sentence=f"{'; '.join(parts)}.", tables=_tables(found), figures=figures)
