"""`replay`: settled messages of an archive, a server or a folder are sent once more.

Which ones is said by time, queue, outcome, attribute, signature, ids or a condition in SQL. A
job of one name replays a message once in all of its runs: ids that were staged are left
out, with the messages that were made of them, and a run that was killed is completed first. See `staging` for how.

A message that moved has a row for each queue it left; its id is the same in all of them, and it is replayed once:
from the last row that has its body.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as f

from penstock.contract.limits import ATTRIBUTES_BYTES_MAX
from penstock.contract.messages import OUTCOMES
from penstock.contract.names import DEAD
from penstock.pipeline.job import JobFailed, Outcome, Progress, Table, counted, first_line
from penstock.pipeline.load.rows import pairs_of, record_bytes
from penstock.pipeline.locations import HistoryLocation, read_history
from penstock.pipeline.reports.html import excerpt
from penstock.pipeline.staging import Staging, Target, TopicFacts, ask_queue, ask_topic, check_target, open_staging
from penstock.pipeline.triage.signatures import with_signature

REPLAYED_FROM = "replayed-from"
# What of a record may be said with an expression over the columns of the history.
RECORD_MAPPABLE = ("value", "key", "headers", "timestamp")
_PAIRS = "array<struct<key:string,value:binary>>"
# What a name of ours looks like in the text of attributes. A quote inside a text has a backslash before it.
_EARLIER = rf',?\s*"{REPLAYED_FROM}"\s*:\s*"[^"\\]*"'


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Which messages; what is empty does not choose."""

    outcomes: Sequence[str] = ()
    attributes: Mapping[str, str] = field(default_factory=dict)
    # A condition in SQL over the columns of the history.
    where: str = ""


def chosen(history: DataFrame, choice: Choice) -> DataFrame:
    rows = history
    if choice.outcomes:
        rows = rows.where(f.col("outcome").isin(list(choice.outcomes)))
    for name, value in choice.attributes.items():
        rows = rows.where(_attribute(name) == value)
    return rows.where(choice.where) if choice.where else rows


def with_signatures(rows: DataFrame, wanted: DataFrame) -> DataFrame:
    """Keep rows whose `signature` is one of those wanted."""
    return rows.join(wanted.select("signature").distinct(), "signature", "left_semi")


def with_ids(rows: DataFrame, wanted: DataFrame) -> DataFrame:
    return rows.join(wanted.select("id").distinct(), "id", "left_semi")


def without_sent(rows: DataFrame, sent: DataFrame) -> DataFrame:
    """Leave out what was sent, and what became of it: a worker that acks it makes a settled message of it, too."""
    ids = sent.select("id").distinct()
    origins = ids.withColumnRenamed("id", "_origin")
    fresh = rows.join(ids, "id", "left_anti").withColumn("_origin", _attribute(REPLAYED_FROM))
    return fresh.join(origins, "_origin", "left_anti").drop("_origin")


def once_each(rows: DataFrame) -> DataFrame:
    """One row for each id: one with a body if there is any, and of these the last."""
    best = Window.partitionBy("id").orderBy(
        f.col("data").isNull(), f.col("settled_at").desc(), f.col("queue_id").desc(), f.col("key").desc()
    )
    return rows.withColumn("_best", f.row_number().over(best)).where("_best = 1").drop("_best")


def messages(rows: DataFrame, *, into: str = "") -> DataFrame:
    """Return what would be sent, in the order it was first sent in, with `id`, `outcome`, `from_queue` and a `reason`.

    The reason is null for what can be sent. Dead letters go to the queue they were buried from.
    """
    home = f.regexp_replace("queue", rf"{DEAD.replace('.', '[.]')}$", "")
    attributes = _marked()
    reason = f.coalesce(
        f.when(f.col("data").isNull(), f.lit("body not kept")),
        f.when(f.octet_length(attributes) > ATTRIBUTES_BYTES_MAX, f.lit("no room for the attribute")),
    )
    made = rows.select(
        f.lit(into).alias("queue") if into else home.alias("queue"),
        "data",
        f.col("tier").cast("int").alias("priority"),
        f.when(f.col("group") != "", f.col("group")).alias("group"),
        attributes.alias("attributes"),
        "id",
        "outcome",
        f.col("queue").alias("from_queue"),
        reason.alias("reason"),
        "sent_at",
        "first_queue",
        "number",
        "sent_tier",
    )
    return made.orderBy("sent_at", "first_queue", "number", "sent_tier").drop(
        "sent_at", "first_queue", "number", "sent_tier"
    )


def records(rows: DataFrame, mapping: Mapping[str, str], *, topic: str) -> DataFrame:
    """Return what would be sent to a topic, as `messages` does. The key is the group, headers are the attributes."""
    own = f.expr(mapping["headers"]).cast("map<string,string>") if "headers" in mapping else _attributes()
    texts = f.map_filter(own, lambda name, value: (name != REPLAYED_FROM) & value.isNotNull())
    mark = f.array(f.struct(f.lit(REPLAYED_FROM).alias("key"), f.col("id").cast("binary").alias("value")))
    usual = {"value": f.col("data"), "key": f.when(f.col("group") != "", f.col("group")), "timestamp": None}
    made = {name: f.expr(mapping[name]) if name in mapping else column for name, column in usual.items()}
    columns = [
        column.cast("timestamp" if name == "timestamp" else "binary").alias(name)
        for name, column in made.items()
        if column is not None
    ]
    found = rows.select(
        f.lit(topic).alias("queue"),
        *columns,
        f.concat(f.coalesce(pairs_of(texts), f.array().cast(_PAIRS)), mark).alias("headers"),
        "id",
        "outcome",
        f.col("queue").alias("from_queue"),
        "sent_at",
        "first_queue",
        "number",
        "sent_tier",
    )
    reason = f.when(f.col("value").isNull(), f.lit("body not kept"))
    ordered = found.withColumn("reason", reason).orderBy("sent_at", "first_queue", "number", "sent_tier")
    return ordered.drop("sent_at", "first_queue", "number", "sent_tier")


def refused_by_topic(rows: DataFrame, *, batch_bytes_max: int, is_compacted: bool) -> DataFrame:
    """Give a reason to records that their topic does not take."""
    found = f.coalesce(
        f.col("reason"),
        f.when(f.col("key").isNull() & f.lit(is_compacted), f.lit("no key, and the topic is compacted")),
        f.when(record_bytes(set(rows.columns)) > batch_bytes_max, f.lit("too large for the topic")),
    )
    return rows.withColumn("reason", found)


def too_large(rows: DataFrame, limits: Mapping[str, int]) -> DataFrame:
    """Give a reason to messages that their queue does not take; queues without a limit take none."""
    most = f.coalesce(*(f.when(f.col("queue") == name, f.lit(limit)) for name, limit in limits.items()), f.lit(-1))
    found = f.coalesce(
        f.col("reason"),
        f.when(most < 0, f.lit("its queue is gone")),
        f.when(f.octet_length("data") > most, f.lit("too large for its queue")),
    )
    return rows.withColumn("reason", found)


def _marked() -> Column:
    """The attributes, and where the message comes from; if it was replayed before, from here now."""
    mark = f.concat(f.lit(f'"{REPLAYED_FROM}":"'), f.col("id"), f.lit('"}'))
    earlier = f.regexp_replace(f.coalesce("attributes", f.lit("")), _EARLIER, "")
    inner = f.regexp_replace(earlier, r"^\s*\{,?|\}\s*$", "")
    return f.concat(f.lit("{"), f.when(f.trim(inner) == "", f.lit("")).otherwise(f.concat(inner, f.lit(","))), mark)


def _attribute(name: str) -> Column:
    """The text of an attribute; the name is one key, whatever dots and quotes it has."""
    return _attributes()[f.lit(name)]


def _attributes() -> Column:
    return f.from_json("attributes", "map<string,string>")


_SAMPLE_ROWS = 5
_SAMPLE_CHARACTERS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOptions:
    place: HistoryLocation
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


def run(spark: SparkSession, options: ReplayOptions, progress: Progress) -> Outcome:
    facts = _check(options)
    with open_staging(spark, options.work, options.job) as staging:
        counts = _Counts()
        if not options.is_dry_run:
            for generation in staging.generations():
                if not generation.is_done:
                    counts.resumed += staging.send(generation, options.target, progress)
        progress.step("Choosing messages")
        rows = _chosen(spark, options, staging).cache()
        try:
            return _replay(staging, _judged(rows, options, facts), options, progress, counts)
        finally:
            rows.unpersist()


def _replay(staging: Staging, rows: DataFrame, options: ReplayOptions, progress: Progress, counts: _Counts) -> Outcome:
    """Count, and unless it is a dry run: fix and send."""
    by = ("from_queue", "outcome", "reason")
    counted_rows = rows.groupBy(*by).count().orderBy(*by).collect()
    found = [(row["from_queue"], row["outcome"], int(row["count"]), row["reason"]) for row in counted_rows]
    if options.is_dry_run:
        return _foretell(rows, found, body="value" if options.topic else "data")
    good = rows.where("reason IS NULL")
    if any(reason is None for _, _, _, reason in found):
        sendable = good.drop("outcome", "from_queue", "reason")
        generation = staging.stage(sendable, note={}, rate=options.target.rate, kept=("id",), topic=options.topic)
        counts.sent = staging.send(generation, options.target, progress)
    return _summary(found, counts)


def _chosen(spark: SparkSession, options: ReplayOptions, staging: Staging) -> DataFrame:
    rows = read_history(spark, options.place)
    if options.ids:
        rows = with_ids(rows, _ids(spark, options.ids))
    try:
        rows = chosen(rows, _choice(options))
    except PySparkException as error:
        raise JobFailed(f"--where cannot be understood: {first_line(str(error))}") from error
    if options.signatures:
        wanted = spark.createDataFrame([(each,) for each in read_signatures(options.signatures)], "signature STRING")
        rows = with_signatures(with_signature(rows), wanted)
    sent = staging.kept()
    if sent is not None:
        rows = without_sent(rows, sent)
    once = once_each(rows)
    if not options.topic:
        return messages(once, into=options.into)
    try:
        return records(once, options.mapping, topic=options.topic)
    except PySparkException as error:
        raise JobFailed(f"--map cannot be understood: {first_line(str(error))}") from error


def _choice(options: ReplayOptions) -> Choice:
    """By signature, what was buried unless an outcome is said: triage looks at burials, and what was acked after a
    retry, or without any error, has a signature too."""
    if options.signatures and not options.choice.outcomes:
        return replace(options.choice, outcomes=("buried",))
    return options.choice


def _ids(spark: SparkSession, path: str) -> DataFrame:
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
            raise JobFailed("where to? give either --target-queue or --topic")
        unknown = [name for name in options.mapping if name not in RECORD_MAPPABLE]
        if unknown:
            raise JobFailed(f"--map {unknown[0]}: there are {', '.join(RECORD_MAPPABLE)}")
        return ask_topic(options.target, options.topic)
    if options.mapping:
        raise JobFailed("--map is for --topic: a message goes back as it was")
    if options.into:
        check_target(options.into)
    return None


def _judged(rows: DataFrame, options: ReplayOptions, topic: TopicFacts | None) -> DataFrame:
    """Give a reason to what its queue, or the topic, does not take."""
    if topic is None:
        return too_large(rows, _limits(rows, options))
    return refused_by_topic(rows, batch_bytes_max=topic.batch_bytes_max, is_compacted=topic.is_compacted)


def read_signatures(path: str) -> Sequence[str]:
    """Return the signatures in a file of triage."""
    try:
        found = [str(each["signature"]) for each in json.loads(Path(path).read_text(encoding="utf-8"))["signatures"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise JobFailed(
            f"{path} is not a file of signatures as `penstock pipeline triage` writes it: {error}"
        ) from error
    if not found:
        raise JobFailed(f"{path} has no signatures")
    return found


def _limits(rows: DataFrame, options: ReplayOptions) -> dict[str, int]:
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


def _foretell(rows: DataFrame, found: Sequence[tuple[str, str, int, str | None]], *, body: str) -> Outcome:
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
