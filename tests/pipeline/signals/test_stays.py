"""What each message did in each queue: arrivals, deliveries, tenants."""

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from penstock.pipeline.signals.stays import tenant_counts, tenant_of, top_tenants, with_rank
from tests.pipeline.rows import NOON, at, history, steps

DEAD = {"queue": "orders.dead", "queue_id": 2, "first_queue": 1}
START_MS = int(NOON.timestamp() * 1_000)


def _received(first: float | None, last: float | None = None) -> dict[str, object]:
    return {
        "first_received_at": None if first is None else at(first),
        "last_received_at": None if first is None else at(first if last is None else last),
    }


def test_a_message_comes_to_a_queue_when_it_leaves_the_one_before(spark: SparkSession) -> None:
    rows = [
        # Sent, failed three times, buried; redriven; failed once more; buried; and still there.
        {"number": 1, "settled_at": at(30), "outcome": "buried", "delivery_count": 3, **_received(1, 20)},
        {
            **DEAD,
            "number": 1,
            "key": 802,
            "settled_at": at(100),
            "outcome": "redriven",
            "delivery_count": 3,
            **_received(None),
        },
        {
            "number": 1,
            "key": 902,
            "settled_at": at(150),
            "outcome": "buried",
            "delivery_count": 5,
            **_received(110, 140),
        },
        {
            **DEAD,
            "number": 1,
            "key": 818,
            "settled_at": at(400),
            "outcome": "expired",
            "delivery_count": 5,
            **_received(None),
        },
        # Only the end of its life is in the range.
        {**DEAD, "number": 2, "key": 810, "settled_at": at(50), "delivery_count": 7, **_received(40)},
        # The dead letters keep no history: it cannot have come to `orders` from `orders`.
        {"number": 3, "settled_at": at(30), "outcome": "buried", "delivery_count": 3, **_received(1, 20)},
        {"number": 3, "key": 910, "settled_at": at(90), "delivery_count": 4, **_received(80)},
        # It crossed shards: its first queue heard of it after it had been received again.
        {"number": 4, "settled_at": at(30.005), "outcome": "buried", "delivery_count": 3, **_received(1)},
        {**DEAD, "number": 4, "key": 826, "settled_at": at(31), "delivery_count": 4, **_received(30.001)},
        # Nothing special.
        {"number": 5, "settled_at": at(9)},
    ]
    found = steps(history(spark, rows), tenant_of("group")).collect()
    told = {
        (row.id, row.settled_ms - START_MS): (
            row.queue,
            row.is_home,
            None if row.came_ms is None else row.came_ms - START_MS,
            row.retries,
        )
        for row in found
    }

    assert told == {
        ("1-a", 30_000): ("orders", True, 0, 2),
        ("1-a", 100_000): ("orders.dead", False, 30_000, 0),
        ("1-a", 150_000): ("orders", False, 100_000, 1),
        ("1-a", 400_000): ("orders.dead", False, 150_000, 0),
        ("1-12", 50_000): ("orders.dead", False, None, None),
        ("1-1a", 30_000): ("orders", True, 0, 2),
        ("1-1a", 90_000): ("orders", False, None, None),
        ("1-22", 30_005): ("orders", True, 0, 2),
        ("1-22", 31_000): ("orders.dead", False, 30_001, 0),
        ("1-2a", 9_000): ("orders", True, 0, 0),
    }


def test_tenants_are_groups_or_an_attribute_and_the_small_ones_are_others(spark: SparkSession) -> None:
    names = ["b", "b", "b", "a", "a", "a", "c", None]
    rows = [{"group": name, "attributes": '{"the customer": "x"}' if name == "a" else None} for name in names]
    frame = history(spark, rows)
    given = steps(frame, tenant_of("group"))
    top = top_tenants(tenant_counts(given), 2)

    ranked = with_rank(given, top, 2).groupBy("tenant", "tenant_rank").count().collect()
    assert {tuple(row) for row in ranked} == {("a", 1, 3), ("b", 2, 3), ("c", 3, 1), (None, 0, 1)}
    by_attribute = steps(frame, tenant_of("attribute:the customer")).groupBy("tenant").agg(f.count("*")).collect()
    assert {tuple(row) for row in by_attribute} == {("x", 3), (None, 5)}
