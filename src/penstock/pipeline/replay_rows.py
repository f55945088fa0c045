"""Settled messages become messages again: which of them, where to, and what they carry.

A message that moved has a row for each queue it left; its id is the same in all of them, and
it is replayed once: from the last row that has its body.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.contract.names import DEAD
from penstock.core.settling import Ending
from penstock.pipeline.load.rows import pairs_of, record_bytes
from penstock.pipeline.sink.columns import ATTRIBUTES_BYTES_MAX

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

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


def chosen(history: "DataFrame", choice: Choice) -> "DataFrame":
    from pyspark.sql import functions as f  # noqa: PLC0415

    rows = history
    if choice.outcomes:
        rows = rows.where(f.col("outcome").isin(list(choice.outcomes)))
    for name, value in choice.attributes.items():
        rows = rows.where(_attribute(name) == value)
    return rows.where(choice.where) if choice.where else rows


def with_signatures(rows: "DataFrame", wanted: "DataFrame") -> "DataFrame":
    """Keep rows whose `signature` is one of those wanted."""
    return rows.join(wanted.select("signature").distinct(), "signature", "left_semi")


def with_ids(rows: "DataFrame", wanted: "DataFrame") -> "DataFrame":
    return rows.join(wanted.select("id").distinct(), "id", "left_semi")


def without_sent(rows: "DataFrame", sent: "DataFrame") -> "DataFrame":
    """Leave out what was sent, and what became of it: a worker that acks it makes a settled message of it, too."""
    ids = sent.select("id").distinct()
    origins = ids.withColumnRenamed("id", "_origin")
    fresh = rows.join(ids, "id", "left_anti").withColumn("_origin", _attribute(REPLAYED_FROM))
    return fresh.join(origins, "_origin", "left_anti").drop("_origin")


def once_each(rows: "DataFrame") -> "DataFrame":
    """One row for each id: one with a body if there is any, and of these the last."""
    from pyspark.sql import Window  # noqa: PLC0415
    from pyspark.sql import functions as f  # noqa: PLC0415

    best = Window.partitionBy("id").orderBy(
        f.col("data").isNull(), f.col("settled_at").desc(), f.col("queue_id").desc(), f.col("key").desc()
    )
    return rows.withColumn("_best", f.row_number().over(best)).where("_best = 1").drop("_best")


def messages(rows: "DataFrame", *, into: str = "") -> "DataFrame":
    """Return what would be sent, in the order it was first sent in, with `id`, `outcome`, `from_queue` and a `reason`.

    The reason is null for what can be sent. Dead letters go to the queue they were buried from.
    """
    from pyspark.sql import functions as f  # noqa: PLC0415

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


def records(rows: "DataFrame", mapping: Mapping[str, str], *, topic: str) -> "DataFrame":
    """Return what would be sent to a topic, as `messages` does. The key is the group, headers are the attributes."""
    from pyspark.sql import functions as f  # noqa: PLC0415

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


def refused_by_topic(rows: "DataFrame", *, batch_bytes_max: int, is_compacted: bool) -> "DataFrame":
    """Give a reason to records that their topic does not take."""
    from pyspark.sql import functions as f  # noqa: PLC0415

    found = f.coalesce(
        f.col("reason"),
        f.when(f.col("key").isNull() & f.lit(is_compacted), f.lit("no key, and the topic is compacted")),
        f.when(record_bytes(set(rows.columns)) > batch_bytes_max, f.lit("too large for the topic")),
    )
    return rows.withColumn("reason", found)


def too_large(rows: "DataFrame", limits: Mapping[str, int]) -> "DataFrame":
    """Give a reason to messages that their queue does not take; queues without a limit take none."""
    from pyspark.sql import functions as f  # noqa: PLC0415

    most = f.coalesce(*(f.when(f.col("queue") == name, f.lit(limit)) for name, limit in limits.items()), f.lit(-1))
    found = f.coalesce(
        f.col("reason"),
        f.when(most < 0, f.lit("its queue is gone")),
        f.when(f.octet_length("data") > most, f.lit("too large for its queue")),
    )
    return rows.withColumn("reason", found)


def _marked() -> "Column":
    """The attributes, and where the message comes from; if it was replayed before, from here now."""
    from pyspark.sql import functions as f  # noqa: PLC0415

    mark = f.concat(f.lit(f'"{REPLAYED_FROM}":"'), f.col("id"), f.lit('"}'))
    earlier = f.regexp_replace(f.coalesce("attributes", f.lit("")), _EARLIER, "")
    inner = f.regexp_replace(earlier, r"^\s*\{,?|\}\s*$", "")
    return f.concat(f.lit("{"), f.when(f.trim(inner) == "", f.lit("")).otherwise(f.concat(inner, f.lit(","))), mark)


def _attribute(name: str) -> "Column":
    """The text of an attribute; the name is one key, whatever dots and quotes it has."""
    from pyspark.sql import functions as f  # noqa: PLC0415

    return _attributes()[f.lit(name)]


def _attributes() -> "Column":
    from pyspark.sql import functions as f  # noqa: PLC0415

    return f.from_json("attributes", "map<string,string>")
