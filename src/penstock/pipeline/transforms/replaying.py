"""Settled messages become messages again: which of them, where to, and what they carry.

A message that moved has a row for each queue it left; its id is the same in all of them, and
it is replayed once: from the last row that has its body.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.core.names import DEAD
from penstock.pipeline.sink.columns import ATTRIBUTES_BYTES_MAX

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

REPLAYED_FROM = "replayed-from"
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


def without_ids(rows: "DataFrame", sent: "DataFrame") -> "DataFrame":
    return rows.join(sent.select("id").distinct(), "id", "left_anti")


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

    return f.from_json("attributes", "map<string,string>")[f.lit(name)]
