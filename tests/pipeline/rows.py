"""Small frames for the tests of transforms: a row is what differs from a plain acked message."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession

from penstock.contract.history_columns import HISTORY, ddl
from penstock.contract.messages import PRIORITIES
from penstock.pipeline.locations import with_id
from penstock.pipeline.signals.stays import is_moved, steps_of_moved, steps_of_plain

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def at(seconds: float) -> datetime:
    """Return a time so many seconds after noon."""
    return NOON + timedelta(seconds=seconds)


def history(spark: SparkSession, rows: Sequence[Mapping[str, Any]]) -> DataFrame:
    """Return a history: each row is acked at its first delivery, a second after that, unless it says otherwise."""
    return with_id(spark.createDataFrame([_row(number, row) for number, row in enumerate(rows)], ddl(HISTORY)))


def steps(rows: DataFrame, tenant: Column) -> DataFrame:
    """Return all stays of a history, as jobs put them together."""
    return steps_of_plain(rows, tenant).union(steps_of_moved(rows.where(is_moved()), tenant))


def _row(number: int, said: Mapping[str, Any]) -> tuple[Any, ...]:
    tier = said.get("tier", 2)
    sent_tier = said.get("sent_tier", tier)
    number = said.get("number", number)
    row = {
        "queue": "orders",
        "queue_id": 1,
        "first_queue": said.get("queue_id", 1),
        "sent_tier": sent_tier,
        "number": number,
        "key": number * 8 + sent_tier,
        "tier": tier,
        "priority": PRIORITIES[tier],
        "sent_at": at(0),
        "first_received_at": at(1),
        "last_received_at": said.get("first_received_at", at(1)),
        "settled_at": at(2),
        "delivery_count": 1,
        "outcome": "acked",
        "group": None,
        "error": None,
        "data": None,
        "attributes": None,
        "shard": 0,
        "offset": number,
        **said,
    }
    return tuple(row[column.name] for column in HISTORY)
