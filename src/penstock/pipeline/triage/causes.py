"""Dead letters by their cause: burials of one signature are one cause, with all that helps to judge it.

    history ──▶ burials ──▶ judged ──▶ causes       one row for each cause
                              │    └──▶ buckets     burials of each cause over time
                              └───────▶ signatures  what `replay` knows them by again

A *burial* is a row of the history with the outcome `buried`; a message that was redriven and failed again has two. A
*cause* is a signature with all its burials. A *tenant* is a group of messages, as their sender named it.

The body of a burial is in the history if its queue keeps full history. Otherwise it may still be among the dead
letters, and is taken from there. `signatures` then has the id without a body as well, because that is what `replay`
sees in the history.

A file of deploys is CSV with the columns `at` and `name`, or JSON lines with the same names. A time is RFC 3339, or
milliseconds since 1970:

    at,name                                {"at": "2026-03-01T12:00:00Z", "name": "shop 4.2"}
    2026-03-01T12:00:00Z,shop 4.2          {"at": 1772366400000, "name": "shop 4.2"}

What a run has found is remembered in `memory.json` among its results. The next run into the same folder compares:

    new    a cause that the last run did not find
    gone   a cause that only the last run found

So a run over the same history finds nothing new and nothing gone. A run that groups otherwise compares with nothing.
"""

import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

from penstock.pipeline.job import JobFailed
from penstock.pipeline.reports.html import excerpt
from penstock.pipeline.triage.signatures import (
    ERROR_SIGNATURE,
    body_shape,
    signature_id_of,
    signature_of,
    with_error_signature,
)


class Deploy(NamedTuple):
    at: datetime
    name: str


def read_deploys(path: str) -> list[Deploy]:
    """Return the marks of a file, the earliest first. Raises `JobFailed` that names the line it cannot read."""
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise JobFailed(f"the marks of deploys cannot be read: {error}") from None
    found = []
    for line, row in _rows(text):
        try:
            found.append(Deploy(read_time(row["at"]), str(row["name"])))
        except (KeyError, TypeError, ValueError):
            raise JobFailed(
                f"{path}, line {line}: a mark has `at`, as 2026-03-01T12:00:00Z or in milliseconds, and `name`"
            ) from None
    return sorted(found)


def read_time(said: object) -> datetime:
    """
    >>> read_time("2026-03-01T12:00:00Z") == read_time(1772366400000) == read_time("1772366400000")
    True
    """
    text = str(said).strip()
    if text.isdecimal():
        return datetime.fromtimestamp(int(text) / 1_000, UTC)
    at = datetime.fromisoformat(text)
    return at if at.tzinfo else at.replace(tzinfo=UTC)


def began_with(first_seen: datetime, marks: Sequence[Deploy], *, within: timedelta, known_from: datetime) -> str | None:
    """Return the latest deploy that a cause first seen then may have begun with, or None.

    A mark at which nothing is known of the time before does not count: the cause may be older than the history.
    """
    fitting = [mark for mark in marks if known_from < mark.at <= first_seen < mark.at + within]
    return fitting[-1].name if fitting else None


def _rows(text: str) -> Iterator[tuple[int, Any]]:
    if text.lstrip().startswith("{"):
        for number, line in enumerate(text.splitlines(), 1):
            if line.strip():
                yield number, _object(line)
        return
    rows = csv.DictReader(text.splitlines(), skipinitialspace=True)
    if text.strip() and not {"at", "name"}.issubset(rows.fieldnames or ()):
        # A file without this header has no marks; without an error that would go unnoticed.
        yield 1, None
    for row in rows:
        yield rows.line_num, row


def _object(line: str) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        return None


MEMORY = "memory.json"
_VERSION = 1

# A trend compares the last quarter of the time with what was before, and is not read out of a handful.
_FEW = 8
_STEEP = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """One row of the table of causes."""

    cause_id: str
    signature: str
    burials: int
    since_last: int
    messages: int
    first_seen: datetime
    last_seen: datetime
    queues: Sequence[str]
    # One number for each tier.
    tiers: Sequence[int]
    tenants: int
    # With how many burials each has, the most first.
    top_tenants: Sequence[tuple[str, int]]
    deliveries: int
    still_dead: int
    sample_ids: Sequence[str]
    sample_error: str | None
    sample_body: str | None
    # Burials in equal parts of the time.
    buckets: Sequence[int]
    trend: str
    deploy: str | None
    is_new: bool


class Remembered(NamedTuple):
    """What the last run kept of a cause."""

    signature: str
    burials: int
    first_seen: datetime
    last_seen: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """What a run found, and until when it knew the history."""

    by_shape: bool
    known_to: datetime
    causes: Mapping[str, Remembered]


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What the causes of a run are seen against."""

    known_from: datetime
    last: Memory | None
    marks: Sequence[Deploy]
    within: timedelta


def cause_of(row: Mapping[str, Any], buckets: Sequence[int], setting: Setting) -> Cause:
    """Make a cause of a row of `causes_of`."""
    last = setting.last.causes.get(row["cause_id"]) if setting.last else None
    first_seen = min(row["first_seen"], last.first_seen) if last else row["first_seen"]
    told = {name: row[name] for name in row if name not in {"first_seen", "top_tenants"}}
    return Cause(
        **told,
        first_seen=first_seen,
        top_tenants=[(tenant["tenant"], tenant["burials"]) for tenant in row["top_tenants"] or ()],
        buckets=buckets,
        trend=trend(buckets),
        deploy=began_with(first_seen, setting.marks, within=setting.within, known_from=setting.known_from),
        is_new=setting.last is not None and last is None,
    )


def trend(buckets: Sequence[int]) -> str:
    """Say how a cause goes on at the end of the time.

    >>> trend([0, 0, 0, 1]), trend([5] * 4), trend([1, 1, 1, 9]), trend([9, 9, 9, 1]), trend([9, 9, 9, 0])
    ('few', 'steady', 'rising', 'falling', 'stopped')
    """
    quarter = max(1, len(buckets) // 4)
    before, lately = sum(buckets[:-quarter]) / max(1, len(buckets) - quarter), sum(buckets[-quarter:]) / quarter
    if sum(buckets) < _FEW:
        return "few"
    if not lately:
        return "stopped"
    if lately > before * _STEEP:
        return "rising"
    return "falling" if lately * _STEEP < before else "steady"


def gone(causes: Sequence[Cause], last: Memory | None) -> dict[str, Remembered]:
    """Return what only the last run found."""
    found = {cause.cause_id for cause in causes}
    return {} if last is None else {name: cause for name, cause in last.causes.items() if name not in found}


def remember(folder: Path, memory: Memory) -> None:
    causes = {
        name: [cause.signature, cause.burials, cause.first_seen.isoformat(), cause.last_seen.isoformat()]
        for name, cause in memory.causes.items()
    }
    said = {"version": _VERSION, "by_shape": memory.by_shape, "known_to": memory.known_to.isoformat(), "causes": causes}
    (folder / MEMORY).write_text(json.dumps(said, indent=1) + "\n", encoding="utf-8")


def recall(folder: Path, *, by_shape: bool) -> Memory | None:
    """Return what the last run found; None if there was none, or it grouped otherwise."""
    try:
        said = json.loads((folder / MEMORY).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    if said["version"] != _VERSION or said["by_shape"] != by_shape:
        return None
    causes = {
        name: Remembered(signature, burials, datetime.fromisoformat(first), datetime.fromisoformat(last))
        for name, (signature, burials, first, last) in said["causes"].items()
    }
    return Memory(by_shape=by_shape, known_to=datetime.fromisoformat(said["known_to"]), causes=causes)


TIERS = 5
SAMPLES = 3
TENANTS_TOLD = 5
QUEUES_TOLD = 20
EXCERPT_CHARACTERS = 400
BUCKETS = 24
# What `buried` gives, as Spark takes a schema.
BURIED = (
    "id STRING, queue STRING, tier TINYINT, tenant STRING, buried_at TIMESTAMP, delivery_count INT, error STRING, "
    f"{ERROR_SIGNATURE} STRING, has_body BOOLEAN, shape STRING, excerpt STRING"
)

_NOTHING = "CAST(NULL AS STRING)"


def burials_in(history: DataFrame) -> DataFrame:
    """Return the burials of a history with all that it tells of them; what is still a dead letter is another matter."""
    rows = with_error_signature(history.where(f.col("outcome") == "buried"))
    return rows.select(
        "id",
        "queue",
        "tier",
        f.col("group").alias("tenant"),
        f.col("settled_at").alias("buried_at"),
        "delivery_count",
        "error",
        ERROR_SIGNATURE,
        f.col("data").isNotNull().alias("has_body"),
        body_shape(f.col("data")).alias("shape"),
        excerpt(f.col("data"), EXCERPT_CHARACTERS).alias("excerpt"),
    )


def judged_burials(burials: DataFrame, dead_letters: DataFrame | None, *, by_shape: bool = True) -> DataFrame:
    """Return burials, as `buried` gives them, each with its cause and the facts about it.

    ``dead_letters`` has `id` and `data` of messages that are still dead letters, or is None if that is not known.
    """
    if dead_letters is None:
        known = burials.withColumns({"letter": f.expr("CAST(NULL AS BINARY)"), "is_dead_letter": f.lit(False)})
    else:
        letters = dead_letters.select("id", f.col("data").alias("letter")).dropDuplicates(["id"])
        known = burials.join(letters.withColumn("is_dead_letter", f.lit(True)), "id", "left")
    shape = f.expr(_NOTHING)
    if by_shape:
        shape = f.when(f.col("has_body"), f.col("shape")).otherwise(body_shape(f.col("letter")))
    known = known.withColumn("_shape", shape)
    error = f.col(ERROR_SIGNATURE)
    letter = excerpt(f.col("letter"), EXCERPT_CHARACTERS)
    return known.select(
        signature_id_of(error, f.col("_shape")).alias("cause_id"),
        signature_of(error, f.col("_shape")).alias("signature"),
        signature_id_of(error, f.col("shape")).alias("replay_id"),
        signature_of(error, f.col("shape")).alias("replay_signature"),
        *("id", "queue", "tier", "tenant", "buried_at", "delivery_count", "error"),
        f.when(f.col("has_body"), f.col("excerpt")).otherwise(letter).alias("excerpt"),
        f.coalesce("is_dead_letter", f.lit(False)).alias("is_dead_letter"),
    )


def causes_of(burials: DataFrame, *, since: datetime | None = None) -> DataFrame:
    """Return one row for each cause, the most frequent first; `since_last` counts its burials after ``since``."""
    is_later = f.lit(True) if since is None else f.col("buried_at") > f.lit(since)
    told = f.struct("buried_at", "id", "error", "excerpt")
    tiers = [f.count(f.when(f.col("tier") == tier, 1)) for tier in range(TIERS)]
    summed = burials.groupBy("cause_id").agg(
        f.first("signature").alias("signature"),
        f.count("*").alias("burials"),
        f.count(f.when(is_later, 1)).alias("since_last"),
        f.countDistinct("id").alias("messages"),
        f.min("buried_at").alias("first_seen"),
        f.max("buried_at").alias("last_seen"),
        f.slice(f.array_sort(f.collect_set("queue")), 1, QUEUES_TOLD).alias("queues"),
        f.array(*tiers).alias("tiers"),
        f.countDistinct("tenant").alias("tenants"),
        f.sum("delivery_count").alias("deliveries"),
        f.max(told).alias("_newest"),
        f.countDistinct(f.when(f.col("is_dead_letter"), f.col("id"))).alias("still_dead"),
    )
    return (
        summed.join(_samples(burials), "cause_id", "left")
        .join(_top_tenants(burials), "cause_id", "left")
        .select(
            "cause_id",
            "signature",
            "burials",
            "since_last",
            "messages",
            "first_seen",
            "last_seen",
            "queues",
            "tiers",
            "tenants",
            "top_tenants",
            "deliveries",
            "still_dead",
            "sample_ids",
            f.col("_newest.error").alias("sample_error"),
            f.col("_newest.excerpt").alias("sample_body"),
        )
        .orderBy(f.desc("burials"), "cause_id")
    )


def burials_over_time(burials: DataFrame, *, first: datetime, last: datetime) -> DataFrame:
    """Return how many burials each cause had in each of `BUCKETS` equal parts of the time between two moments."""
    began_s, ended_s = first.timestamp(), last.timestamp()
    part_s = max((ended_s - began_s) / BUCKETS, 1e-6)
    seconds = f.unix_micros("buried_at") / 1e6 - f.lit(began_s)
    bucket = f.least(f.floor(seconds / part_s), f.lit(BUCKETS - 1)).cast("int")
    return burials.groupBy("cause_id", bucket.alias("bucket")).agg(f.count("*").alias("burials"))


def signatures_of(burials: DataFrame) -> DataFrame:
    """Return by which signatures `replay` finds the burials of each cause in the history."""
    return (
        burials.groupBy("cause_id", "replay_id", "replay_signature")
        .agg(
            f.count("*").alias("burials"),
            f.array_sort(f.collect_set("queue")).alias("queues"),
            f.min("buried_at").alias("first_seen"),
            f.max("buried_at").alias("last_seen"),
        )
        .orderBy(f.desc("burials"), "replay_id")
    )


def _samples(burials: DataFrame) -> DataFrame:
    """The newest messages of each cause."""
    newest = Window.partitionBy("cause_id").orderBy(f.desc("buried_at"), "id")
    each = burials.groupBy("cause_id", "id").agg(f.max("buried_at").alias("buried_at"))
    few = each.withColumn("_row", f.row_number().over(newest)).where(f.col("_row") <= SAMPLES)
    ids = f.transform(f.array_sort(f.collect_list(f.struct("_row", "id"))), lambda row: row["id"])
    return few.groupBy("cause_id").agg(ids.alias("sample_ids"))


def _top_tenants(burials: DataFrame) -> DataFrame:
    most = Window.partitionBy("cause_id").orderBy(f.desc("burials"), "tenant")
    each = burials.where("tenant IS NOT NULL").groupBy("cause_id", "tenant").agg(f.count("*").alias("burials"))
    few = each.withColumn("_row", f.row_number().over(most)).where(f.col("_row") <= TENANTS_TOLD)
    told = f.transform(
        f.array_sort(f.collect_list(f.struct("_row", "tenant", "burials"))),
        lambda row: f.struct(row["tenant"].alias("tenant"), row["burials"].alias("burials")),
    )
    return few.groupBy("cause_id").agg(told.alias("top_tenants"))
