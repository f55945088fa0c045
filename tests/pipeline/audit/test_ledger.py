"""The books balance where every number is live or settled once, and show each fault that is planted."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from penstock.pipeline.audit import ledger
from penstock.pipeline.audit.look import LOOK
from tests.pipeline.rows import at, history

ORDERS, DEAD, MAIL = 1, 2, 31
NAMES = {ORDERS: "orders", DEAD: "orders.dead", MAIL: "mail"}
LOOKED_AT = at(100)


def live(spark: SparkSession, rows: Sequence[Mapping[str, Any]]) -> DataFrame:
    """Return messages that were seen live: each in the queue it was sent to, unless it says otherwise."""
    fields = [field.strip().split(" ")[0].strip("`") for field in LOOK.split(",")]

    def row(said: Mapping[str, Any]) -> tuple[Any, ...]:
        queue_id, tier, number = said.get("queue_id", ORDERS), said.get("sent_tier", 2), said["number"]
        found = {
            "queue": NAMES[queue_id],
            "queue_id": queue_id,
            "first_queue": queue_id,
            "sent_tier": tier,
            "key": number * 8 + tier,
            "state": "ready",
            "sent_at": at(0),
            "seen_at": LOOKED_AT,
            **said,
        }
        return tuple(found.get(name) for name in fields)

    return spark.createDataFrame([row(each) for each in rows], LOOK)


def lanes(
    spark: SparkSession, *rows: tuple[int, int, int], since: datetime | None = None, may_skip: bool = False
) -> DataFrame:
    """Return lanes by queue, lane and end."""
    found = [(NAMES[queue], queue, lane, end, LOOKED_AT, since, may_skip) for queue, lane, end in rows]
    return spark.createDataFrame(found, ledger.LANES)


def moved(queue_id: int, number: int, *, key: int, **more: Any) -> dict[str, Any]:
    """Return a message that was sent to `orders` and is elsewhere now."""
    return {
        "queue": NAMES[queue_id],
        "queue_id": queue_id,
        "first_queue": ORDERS,
        "sent_tier": 2,
        "number": number,
        "key": key,
        **more,
    }


def kept(spark: SparkSession, rows: DataFrame) -> DataFrame:
    """Return the same rows without their past, which Spark would go through again."""
    return spark.createDataFrame(rows.collect(), rows.schema)


def found_in(faults: DataFrame) -> set[tuple[str, str, str]]:
    return {(row.fault, row.queue, row.id) for row in faults.collect()}


def test_each_planted_fault_is_found_and_nothing_else(spark: SparkSession) -> None:
    settled = history(
        spark,
        [
            {"number": 0},
            {"number": 1},
            # Settled twice.
            {"number": 1, "settled_at": at(9), "offset": 77},
            # Number 2 is lost, and 3 is settled before it is seen live.
            {"number": 3},
            # Settled after it was seen live, as many are.
            {"number": 4, "settled_at": at(101)},
            # A number that had not been given, and one that was given after the look.
            {"number": 40},
            {"number": 41, "sent_at": at(100.001), "settled_at": at(102)},
            # Buried, and with the dead letters; buried, and nowhere; buried after the look.
            {"number": 6, "outcome": "buried"},
            {"number": 7, "outcome": "buried"},
            {"number": 8, "outcome": "buried", "settled_at": at(100.5)},
            # Acked among the dead letters, without ever having been buried.
            moved(DEAD, 9, key=8 + 2),
            {"number": 9, "settled_at": at(50)},
        ],
    )
    there = live(
        spark, [{"number": 3}, {"number": 4}, {"number": 5}, moved(DEAD, 6, key=2), {"number": 0, "queue_id": MAIL}]
    )
    found = ledger.queue_visits(there, settled).persist()
    bounds = kept(spark, ledger.with_start(lanes(spark, (ORDERS, 2, 10), (DEAD, 2, 2), (MAIL, 2, 2)), found))
    missing = ledger.gaps(bounds, found)
    wrong = kept(spark, ledger.faults(bounds, found, missing))
    assert found_in(wrong) == {
        ("lost", "orders", "1-12"),
        ("doubled", "orders", "1-a"),
        ("doubled", "orders", "1-1a"),
        ("phantom", "orders", "1-142"),
        ("lost", "orders", "1-3a"),
        ("doubled", "orders.dead", "1-4a"),
        ("lost", "mail", "1f-a"),
    }
    table = {row.queue: row.asDict() for row in ledger.summary(bounds, found, missing, wrong).collect()}
    orders = table["orders"]
    assert (orders["audited"], orders["live"], orders["settled"], orders["unknown"]) == (10, 3, 6, 0)
    assert (orders["lost"], orders["doubled"], orders["phantom"]) == (2, 2, 1)
    assert (table["mail"]["audited"], table["mail"]["live"], table["mail"]["lost"]) == (2, 1, 1)


def test_what_is_older_than_the_history_is_unknown_and_not_lost(spark: SparkSession) -> None:
    settled = history(
        spark,
        [
            # Sent before the history begins, and settled late: what lies behind it may have been settled before.
            {"number": 3, "sent_at": at(-500), "settled_at": at(5)},
            {"number": 6, "sent_at": at(1), "settled_at": at(6)},
            {"number": 8, "sent_at": at(2), "settled_at": at(6)},
        ],
    )
    there = live(spark, [{"number": 9, "sent_at": at(3)}])
    # Of another lane nothing is known at all.
    found = ledger.queue_visits(there, settled).persist()
    bounds = kept(spark, ledger.with_start(lanes(spark, (ORDERS, 2, 10), (ORDERS, 1, 4), since=at(0)), found))
    missing = ledger.gaps(bounds, found)
    wrong = kept(spark, ledger.faults(bounds, found, missing))
    assert found_in(wrong) == {("lost", "orders", "1-3a")}
    (row,) = ledger.summary(bounds, found, missing, wrong).collect()
    assert (row.audited, row.live, row.settled, row.unknown, row.lost) == (4, 1, 2, 5 + 4, 1)


def test_gaps_are_found_across_the_edges_of_what_one_task_looks_at(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger, "BUCKET", 4)
    present = [0, 3, 4, 9, 10, 15]
    there = live(spark, [{"number": number} for number in present])
    found = ledger.queue_visits(there, history(spark, []))
    gaps = ledger.gaps(lanes(spark, (ORDERS, 2, 18)).withColumn("start", f.lit(0)), found).collect()
    missing = sorted(number for row in gaps for number in range(row.first, row.last + 1))
    assert missing == [number for number in range(18) if number not in present]


def test_a_producers_list_shows_what_the_numbers_alone_cannot(spark: SparkSession) -> None:
    settled = history(spark, [{"number": 0}, {"number": 1, "outcome": "buried"}])
    there = live(spark, [{"number": 2}, moved(DEAD, 1, key=2)])
    found = ledger.queue_visits(there, settled)
    bounds = lanes(spark, (ORDERS, 2, 3), (DEAD, 2, 1)).withColumn("start", f.lit(0))
    # The queue has never given 5, and 31-2 is of a queue that is not audited.
    sent = spark.createDataFrame([("1-2",), ("1-a",), ("1-2a",), ("31-2",)], "id STRING")
    all_of_it = ledger.unknown_to_producers(bounds, found, sent, is_complete=True)
    assert found_in(all_of_it) == {("lost", "orders", "1-2a"), ("phantom", "orders", "1-12")}


def test_a_number_that_a_rolled_back_send_left_is_unused_unless_its_producer_was_answered(spark: SparkSession) -> None:
    """Of 0 to 5 one is live and one settled; of the others a producer was answered one, and another that never was."""
    found = ledger.queue_visits(live(spark, [{"number": 0}]), history(spark, [{"number": 4}])).persist()
    bounds = kept(spark, ledger.with_start(lanes(spark, (ORDERS, 2, 6), may_skip=True), found))
    missing = ledger.gaps(bounds, found)
    wrong = ledger.faults(bounds, found, missing)
    sent = spark.createDataFrame([("1-2",), ("1-a",), ("1-fa",)], "id STRING")
    listed = kept(spark, ledger.unknown_to_producers(bounds, found, sent, is_complete=False))
    (alone,) = ledger.summary(bounds, found, missing, kept(spark, wrong)).collect()
    assert (alone["live"], alone["settled"], alone["unused"], alone["lost"]) == (1, 1, 4, 0)
    assert found_in(listed) == {("lost", "orders", "1-a"), ("lost", "orders", "1-fa")}
    (told,) = ledger.summary(bounds, found, missing, listed).collect()
    assert (told["unused"], told["lost"]) == (3, 2)
