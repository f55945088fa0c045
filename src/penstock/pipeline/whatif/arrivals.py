"""From a history to what a simulation needs: when each message came, what it cost, and how often.

    arrived    a message came to its queue when it was sent, or when it left the queue it was moved from
    handling   from its last receipt to its end; each of its attempts is taken to have cost as much
    attempts   how often it was received in this queue
    rest       between two attempts: the time between its receipts, less handling, less what it waited at first

Of a message that was moved here from a queue that is not in the history, nobody knows when it came: it is left out.
"""

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as f

from penstock.contract.limits import LEASE_MS_MAX
from penstock.pipeline.whatif.comparison import INPUT, OUTPUT, Plan, compare

if TYPE_CHECKING:
    from pyarrow import Table  # type: ignore[import-untyped]
    from pyspark.sql import Column, DataFrame

# A lease cannot be longer.
HANDLING_MS_MAX = LEASE_MS_MAX - 1
_LANE_BITS = 7
_WANTED = [part.split()[0] for part in INPUT.split(", ") if not part.startswith("scenario ")]


# What `arrivals` needs of a history, beside `id`: no bodies.
COLUMNS = (
    *("queue", "queue_id", "first_queue", "sent_tier", "number", "key", "group", "shard", "offset", "delivery_count"),
    *("sent_at", "first_received_at", "last_received_at", "settled_at"),
)


def arrivals(history: "DataFrame") -> "DataFrame":
    """Return the messages of each queue with the columns of `comparing.INPUT`; `arrived_ms` is null if nobody knows."""
    moves = Window.partitionBy("id").orderBy("settled_at", "shard", "offset")
    is_home = f.col("first_queue") == f.col("queue_id")
    came_at = f.coalesce(f.lag("settled_at").over(moves), f.when(is_home, f.col("sent_at")))
    before = f.coalesce(f.lag("delivery_count").over(moves), f.lit(0))
    known = history.withColumns(
        {"arrived_ms": _ms(came_at), "attempts": f.greatest(f.col("delivery_count") - before, f.lit(1)).cast("int")}
    ).withColumns(
        {
            "lane": f.col("key").bitwiseAND(_LANE_BITS).cast("tinyint"),
            "received_ms": _ms(f.col("first_received_at")),
            "last_ms": _ms(f.col("last_received_at")),
            "settled_ms": _ms(f.col("settled_at")),
            "tenant": f.col("group"),
        }
    )
    handling = f.col("settled_ms") - f.col("last_ms")
    known = known.withColumn(
        "handling_ms", f.when(handling.isNotNull(), f.least(f.greatest(handling, f.lit(0)), f.lit(HANDLING_MS_MAX)))
    )
    gap = (f.col("last_ms") - f.col("received_ms")) / (f.col("attempts") - 1)
    rest = gap - f.col("handling_ms") - (f.col("received_ms") - f.col("arrived_ms"))
    rest = f.when(f.col("attempts") > 1, f.greatest(f.coalesce(rest, f.lit(0)), f.lit(0))).otherwise(f.lit(0))
    return known.withColumn("rest_ms", rest.cast("bigint")).select(*_WANTED)


def newest(rows: "DataFrame", count: int) -> "DataFrame":
    """Keep so many messages of each queue, those that came last."""
    last = Window.partitionBy("queue").orderBy(f.desc("arrived_ms"), f.desc("key"))
    return rows.withColumn("_row", f.row_number().over(last)).where(f.col("_row") <= count).drop("_row")


def simulated(rows: "DataFrame", plan: Plan) -> "DataFrame":
    """Return the waits of each queue, scenario and tier; queues and scenarios run beside each other."""

    def one(table: "Table") -> "Table":
        return compare(table, plan)

    names = f.array(*[f.lit(name) for name in plan.scenarios])
    each = rows.withColumn("scenario", f.explode(names))
    return each.groupBy("queue", "scenario").applyInArrow(one, schema=OUTPUT)


def _ms(at: "Column") -> "Column":
    return f.unix_millis(at)
