"""The golden signals against the same figures computed by hand."""

from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from penstock.pipeline.transforms.signals import of_range, of_windows
from penstock.pipeline.transforms.signals_bounds import breaches, checked, starved
from penstock.pipeline.transforms.signals_counts import Windows, counts, filled, oldest, together
from penstock.pipeline.transforms.signals_spans import class_of, classes, percentiles
from penstock.pipeline.transforms.signals_steps import steps, tenant_of, top_tenants, with_rank
from tests.pipeline import signals_by_hand as by_hand
from tests.pipeline.archived import plain_plans
from tests.pipeline.rows import at, history

MINUTE = 60_000
STAYS = by_hand.made_up(300, seed=7)
FIRST = by_hand.START_MS // MINUTE
LAST = (by_hand.START_MS + max(stay.settled for stay in STAYS)) // MINUTE
# As if the range began in the middle: what came before was there.
WINDOWS = Windows(MINUTE, FIRST + 4, LAST)


@pytest.fixture(scope="module", autouse=True)
def _plain(spark: SparkSession) -> Iterator[None]:
    with plain_plans(spark):
        yield


@pytest.fixture(scope="module")
def given(spark: SparkSession) -> Iterator[DataFrame]:
    made = steps(history(spark, [by_hand.row(stay) for stay in STAYS]), tenant_of("group"))
    ranked = with_rank(made, top_tenants(made, 2), 2).persist()
    yield ranked
    ranked.unpersist()


def _window(row: Any) -> int:
    return int(row.window_start.timestamp() * 1_000) - by_hand.START_MS


def test_every_window_of_a_queue_shows_what_was_computed_by_hand(given: DataFrame) -> None:
    levels = together(filled(counts(given, WINDOWS), "tier", WINDOWS))
    spans = percentiles(classes(given, "tier", WINDOWS), "queue", "window")
    ages = oldest(given, WINDOWS).groupBy("queue", "window").agg(f.min("oldest_ms").alias("oldest_ms"))
    table = of_windows(levels.join(ages, ["queue", "window"], "left"), spans, ["queue"], WINDOWS).collect()

    assert len(table) == 2 * WINDOWS.count
    for row in table:
        begin = _window(row)
        stays = [stay for stay in STAYS if stay.queue == row.queue]
        expected = by_hand.window(stays, begin, begin + MINUTE)
        assert by_hand.differences(row.asDict(), expected) == {}, (row.queue, begin)
    for queue in ("orders", "mails"):
        rows = [row for row in table if row.queue == queue]
        assert max(row.utilisation for row in rows) == 1.0
        assert all(row.utilisation == row.busy_mean / max(each.busy_mean for each in rows) for row in rows)


def test_every_window_of_a_tier_and_of_a_tenant_adds_up_to_that_of_its_queue(given: DataFrame) -> None:
    counted = counts(given, WINDOWS).persist()
    for by in ("tier", "tenant_rank"):
        spans = percentiles(classes(given, by, WINDOWS), "queue", by, "window")
        table = of_windows(filled(counted, by, WINDOWS), spans, ["queue", by], WINDOWS).collect()
        for row in table:
            stays = [stay for stay in STAYS if stay.queue == row.queue and _kind(stay, by) == row[by]]
            expected = by_hand.window(stays, _window(row), _window(row) + MINUTE)
            del expected["oldest_age_ms"]
            assert by_hand.differences(row.asDict(), expected) == {}, (by, row.queue, _window(row))
    counted.unpersist()


def _kind(stay: by_hand.Stay, by: str) -> int:
    if by == "tier":
        return stay.tier
    sizes = {
        name: sum(other.queue == stay.queue and other.group == name for other in STAYS) for name in ("a", "b", "c")
    }
    order = sorted(sizes, key=lambda name: (-sizes[name], name))
    return 0 if stay.group is None else order.index(stay.group) + 1


def test_the_whole_range_is_one_row_for_each_queue(given: DataFrame) -> None:
    levels = together(filled(counts(given, WINDOWS), "tier", WINDOWS))
    spans = percentiles(classes(given, "tier", WINDOWS), "queue")
    begin, end = (WINDOWS.first - FIRST) * MINUTE, (LAST - FIRST + 1) * MINUTE
    for row in of_range(levels, spans, ["queue"], WINDOWS).collect():
        expected = by_hand.window([stay for stay in STAYS if stay.queue == row.queue], begin, end)
        told = {name: expected[name] for name in expected if name in row.asDict()}
        assert by_hand.differences(row.asDict(), told) == {}
        assert len(told) > 20


def test_a_span_is_put_into_a_class_near_it(spark: SparkSession) -> None:
    values = [0, 1, 5, 127, 128, 129, 130, 255, 256, 1_000, 65_535, 65_536, 123_456_789, 2**41]
    frame = spark.createDataFrame([(value,) for value in values], "span BIGINT")
    found = {row.span: row.middle for row in frame.select("span", class_of(f.col("span")).alias("middle")).collect()}

    assert all(found[value] == value for value in values if value < 128)
    assert all(abs(found[value] - value) <= value * 0.008 for value in values)
    assert found[128] == found[129]


WEIGHTS = (16, 8, 4, 2, 1)


def _weights(spark: SparkSession, *queues: str) -> DataFrame:
    rows = [(queue, tier, weight, sum(WEIGHTS)) for queue in queues for tier, weight in enumerate(WEIGHTS)]
    return spark.createDataFrame(rows, "queue STRING, tier INT, weight INT, total INT")


@pytest.mark.parametrize("bucket_ms", [7_000, 10**9])
def test_breaches_of_the_bound_are_those_counted_by_hand(given: DataFrame, spark: SparkSession, bucket_ms: int) -> None:
    found = breaches(given, _weights(spark, "orders", "mails"), bucket_ms).collect()
    expected = by_hand.late(STAYS, WEIGHTS)

    assert len(expected) > 20
    assert {(row.queue, row.key // 8): (row.ahead, row.leases, row.bound) for row in found} == expected


def test_a_queue_without_weights_promises_nothing(given: DataFrame, spark: SparkSession) -> None:
    late = by_hand.late(STAYS, WEIGHTS)
    found = breaches(given, _weights(spark, "orders"), MINUTE).groupBy("queue").count().collect()
    assert {row.queue: row["count"] for row in found} == {"orders": sum(queue == "orders" for queue, _ in late)}

    asked = [stay for stay in STAYS if stay.received is not None and stay.group is None]
    for row in checked(given).collect():
        assert row.checked == sum(stay.queue == row.queue and stay.tier == row.tier for stay in asked)


def test_a_tier_that_waits_a_whole_window_while_others_are_served_is_starved(spark: SparkSession) -> None:
    def message(tier: int, came: float, received: float | None, settled: float) -> dict[str, Any]:
        got = None if received is None else at(received)
        return {"tier": tier, "sent_at": at(came), "first_received_at": got, "settled_at": at(settled)}

    rows = [
        message(4, 10, 200, 201),
        # Tier 1 comes within a window and is served in the next but one.
        message(1, 70, 185, 186),
        # It expires in the window, so nobody waited for all of it.
        {**message(3, 10, None, 100), "outcome": "expired"},
        # What is served meanwhile: in every minute but the third.
        *[message(0, second, second, second + 1) for second in (5, 65, 190)],
    ]
    minutes = Windows(MINUTE, FIRST, FIRST + 3)
    given = steps(history(spark, rows), tenant_of("group")).withColumn("tenant_rank", f.lit(0))
    levels = filled(counts(given, minutes), "tier", minutes)
    found = starved(levels, together(levels)).collect()

    assert [(row.tier, row.window - FIRST, row.waiting, row.others_received) for row in found] == [(4, 1, 1, 1)]
