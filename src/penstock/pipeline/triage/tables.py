"""Dead letters by their cause: burials of one signature are one cause, with all that helps to judge it.

    history ──▶ buried ──▶ judged ──▶ causes       one row for each cause
                             │    └──▶ buckets     burials of each cause over time
                             └───────▶ signatures  what `replay` knows them by again

Words: a *burial* is a row of the history with the outcome `buried`; a message that was redriven and failed again has
two. A *cause* is a signature with all its burials. A *tenant* is a group of messages, as their sender named it.

The body of a burial is in the history if its queue keeps full history. Otherwise it may still be among the dead
letters, and is taken from there; `signatures` then has the id without a body as well, because that is what `replay`
sees in the history.
"""

from datetime import datetime
from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as f

from penstock.pipeline.reports.excerpt import excerpt
from penstock.pipeline.triage.signatures import (
    ERROR_SIGNATURE,
    body_shape,
    signature_id_of,
    signature_of,
    with_error_signature,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

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


def buried(history: "DataFrame") -> "DataFrame":
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


def judged(burials: "DataFrame", dead_letters: "DataFrame | None", *, by_shape: bool = True) -> "DataFrame":
    """Return burials, as `buried` gives them, each with its cause and what is told of it.

    ``dead_letters`` has `id` and `data` of messages that are still dead letters, or is None if nobody knows.
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


def causes(burials: "DataFrame", *, since: datetime | None = None) -> "DataFrame":
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


def buckets(burials: "DataFrame", *, first: datetime, last: datetime) -> "DataFrame":
    """Return how many burials each cause had in each of `BUCKETS` equal parts of the time between two moments."""
    began_s, ended_s = first.timestamp(), last.timestamp()
    part_s = max((ended_s - began_s) / BUCKETS, 1e-6)
    seconds = f.unix_micros("buried_at") / 1e6 - f.lit(began_s)
    bucket = f.least(f.floor(seconds / part_s), f.lit(BUCKETS - 1)).cast("int")
    return burials.groupBy("cause_id", bucket.alias("bucket")).agg(f.count("*").alias("burials"))


def signatures(burials: "DataFrame") -> "DataFrame":
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


def _samples(burials: "DataFrame") -> "DataFrame":
    """The newest messages of each cause."""
    newest = Window.partitionBy("cause_id").orderBy(f.desc("buried_at"), "id")
    each = burials.groupBy("cause_id", "id").agg(f.max("buried_at").alias("buried_at"))
    few = each.withColumn("_row", f.row_number().over(newest)).where(f.col("_row") <= SAMPLES)
    ids = f.transform(f.array_sort(f.collect_list(f.struct("_row", "id"))), lambda row: row["id"])
    return few.groupBy("cause_id").agg(ids.alias("sample_ids"))


def _top_tenants(burials: "DataFrame") -> "DataFrame":
    most = Window.partitionBy("cause_id").orderBy(f.desc("burials"), "tenant")
    each = burials.where("tenant IS NOT NULL").groupBy("cause_id", "tenant").agg(f.count("*").alias("burials"))
    few = each.withColumn("_row", f.row_number().over(most)).where(f.col("_row") <= TENANTS_TOLD)
    told = f.transform(
        f.array_sort(f.collect_list(f.struct("_row", "tenant", "burials"))),
        lambda row: f.struct(row["tenant"].alias("tenant"), row["burials"].alias("burials")),
    )
    return few.groupBy("cause_id").agg(told.alias("top_tenants"))
