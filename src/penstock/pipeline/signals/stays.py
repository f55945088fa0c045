"""What a message did in a queue, as times in milliseconds: the one frame that all signals are made from.

A row of the history is one stay in one queue. A message that was buried or redriven has several
rows with one id, and `sent_at` is that of its first send in each of them. So when it *came*:

    its first queue       when it was sent; such a row is at home: it still has the key it was sent with
    any other stay        when it left the queue before: `settled_at` of the row before it of the same id
    that row is missing   unknown: it was settled before the range, or its queue keeps no history

Two rows of one queue are never neighbours in the life of a message, so if they seem to be, the row
between them is missing and the time is unknown too. A message that crosses shards is settled on one
side some milliseconds after it came to the other; it has then come no later than it was received.

`delivery_count` goes on through moves, so the deliveries of one stay are what the row before has less.
"""

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, Window, WindowSpec
from pyspark.sql import functions as f

from penstock.pipeline.locations import message_id

MOVES = ("buried", "redriven")
# A stay that ended in the hands of a worker, well or badly: only these were handled.
HANDLED = ("acked", "buried")

NO_TENANT = 0
_ATTRIBUTE = "attribute:"


COLUMNS = (
    *("queue", "queue_id", "first_queue", "sent_tier", "number", "key", "tier", "group"),
    *("sent_at", "first_received_at", "last_received_at", "settled_at", "delivery_count", "outcome"),
)


def steps_of_plain(rows: DataFrame, tenant: Column, *more: Column) -> DataFrame:
    """One row for each stay: when it came, was received first and last, and left; what it was, and whose.

    ``rows`` need `COLUMNS`, and what ``tenant`` and ``more``, columns of the history to keep beside, are made of. Here
    are the stays of messages that never moved: each row tells all of itself, whatever else there is.
    """
    plain = rows.where(~is_moved())
    return _steps(plain, f.unix_millis("sent_at"), f.lit(0), (tenant.alias("tenant"), *more))


def steps_of_moved(rows: DataFrame, tenant: Column, *more: Column) -> DataFrame:
    """The same for messages that moved: it takes their other rows to tell when they came. All ``rows`` are such."""
    here = (
        rows.withColumn("before_queue", f.lag("queue_id").over(_life()))
        .withColumn("before_ms", f.lag(f.unix_millis("settled_at")).over(_life()))
        .withColumn("before_count", f.lag("delivery_count").over(_life()))
    )
    is_followed = f.col("before_ms").isNotNull() & (f.col("before_queue") != f.col("queue_id"))
    came_ms = f.when(_is_home(), f.unix_millis("sent_at")).when(is_followed, f.col("before_ms"))
    earlier = f.when(_is_home(), 0).when(is_followed, f.col("before_count"))
    return _steps(here, came_ms, earlier, (tenant.alias("tenant"), *more))


def is_moved() -> Column:
    """Whether a stay is one of several of its message, or was meant to be."""
    return ~_is_home() | _has_moved()


def tenant_of(choice: str) -> Column:
    """Whose a message is: `group`, or `attribute:<name>`. A name with a quote is refused by the job."""
    if choice == "group":
        return f.col("group")
    name = choice.removeprefix(_ATTRIBUTE)
    return f.get_json_object("attributes", f"$['{name}']")


def columns_of(choice: str) -> tuple[str, ...]:
    """The columns of the history that `steps` needs if whose a message is was chosen so."""
    return (*COLUMNS, "attributes") if choice.startswith(_ATTRIBUTE) else COLUMNS


def tenant_counts(given: DataFrame, *more: str) -> DataFrame:
    """How many messages each tenant has in each queue, and for each of ``more``."""
    by_tenant = given.where(f.col("tenant").isNotNull()).groupBy("queue", "tenant", *more)
    return by_tenant.agg(f.count("*").alias("messages"))


def top_tenants(counts: DataFrame, count: int) -> DataFrame:
    """The tenants with the most messages in each queue, ranked from 1 on; by name where they have as many."""
    by_size = Window.partitionBy("queue").orderBy(f.desc("messages"), "tenant")
    return (
        counts.groupBy("queue", "tenant")
        .agg(f.sum("messages").alias("messages"))
        .withColumn("tenant_rank", f.row_number().over(by_size))
        .where(f.col("tenant_rank") <= count)
        .select("queue", "tenant", "tenant_rank", "messages")
    )


def with_rank(given: DataFrame, top: DataFrame, count: int) -> DataFrame:
    """Add `tenant_rank`: 0 for messages without a tenant, 1 to ``count`` for the top, one more for all others."""
    ranks = f.broadcast(top.select("queue", "tenant", "tenant_rank"))
    rank = f.when(f.col("tenant").isNull(), NO_TENANT).otherwise(f.coalesce("tenant_rank", f.lit(count + 1)))
    return given.join(ranks, ["queue", "tenant"], "left").withColumn("tenant_rank", rank)


def _steps(rows: DataFrame, came_ms: Column, earlier: Column, more: Sequence[Column]) -> DataFrame:
    received_ms = f.unix_millis("first_received_at")
    here = f.col("delivery_count") - earlier
    retries = f.when(received_ms.isNull(), 0).otherwise(f.greatest(here - 1, f.lit(0)))
    return rows.select(
        "queue",
        "queue_id",
        "key",
        message_id().alias("id"),
        f.col("tier").cast("int").alias("tier"),
        *more,
        f.col("group").isNotNull().alias("is_grouped"),
        _is_home().alias("is_home"),
        # Null if it is not known.
        f.when(came_ms.isNotNull(), f.least(came_ms, received_ms)).alias("came_ms"),
        received_ms.alias("received_ms"),
        f.unix_millis("last_received_at").alias("last_ms"),
        f.unix_millis("settled_at").alias("settled_ms"),
        "outcome",
        f.when(earlier.isNotNull() | received_ms.isNull(), retries).cast("int").alias("retries"),
    )


def _is_home() -> Column:
    return (f.col("queue_id") == f.col("first_queue")) & (f.col("key") == f.col("number") * 8 + f.col("sent_tier"))


def _has_moved() -> Column:
    return f.col("outcome").isin(*MOVES)


def _life() -> WindowSpec:
    """The stays of one message, in order. At the same millisecond it leaves one queue before it leaves the next."""
    return Window.partitionBy("first_queue", "sent_tier", "number").orderBy(
        f.desc(_is_home()), "settled_at", f.desc(_has_moved()), "queue_id"
    )


def is_asked() -> Column:
    """Whether a stay is one that the bound is for."""
    return ~f.col("is_grouped") & f.col("came_ms").isNotNull() & f.col("received_ms").isNotNull()


def left_ms() -> Column:
    """When it left the line, received or not."""
    return f.coalesce("received_ms", "settled_ms")
