"""The golden signals against the same figures computed by hand."""

from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from penstock.pipeline.signals.counts import By, Windows, class_of, facts, oldest, pairs, together
from penstock.pipeline.signals.counts import figures as added_up
from penstock.pipeline.signals.fairness_bounds import breaches, totals
from penstock.pipeline.signals.lines import before
from penstock.pipeline.signals.stays import is_asked, tenant_counts, tenant_of, top_tenants, with_rank
from penstock.pipeline.signals.tables import Figures, as_arrow, figures_of, starved
from tests.pipeline import signals_by_hand as by_hand
from tests.pipeline.rows import at, history, steps

MINUTE = 60_000
STAYS = by_hand.made_up(450, seed=7)
FIRST = by_hand.START_MS // MINUTE
LAST = (by_hand.START_MS + max(stay.settled for stay in STAYS)) // MINUTE
# As if the range began in the middle: what came before was there.
WINDOWS = Windows(MINUTE, FIRST + 4, LAST)


@pytest.fixture(scope="module")
def given(spark: SparkSession) -> Iterator[DataFrame]:
    made = steps(history(spark, [by_hand.row(stay) for stay in STAYS]), tenant_of("group"))
    ranked = with_rank(made, top_tenants(tenant_counts(made), 2), 2).persist()
    yield ranked
    ranked.unpersist()


@pytest.fixture(scope="module")
def figures(given: DataFrame) -> Figures:
    return figures_of(added_up(facts(given, WINDOWS, has_tenants=True)).toArrow(), WINDOWS)


def _rows(frame: Any) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = as_arrow(frame).to_pylist()
    return rows


def _window(row: dict[str, Any]) -> int:
    return int(row["window_start"].timestamp() * 1_000) - by_hand.START_MS


def test_every_window_of_a_queue_shows_what_was_computed_by_hand(given: DataFrame, figures: Figures) -> None:
    levels = together(figures.levels(By.TIER))
    by_tier = oldest(pairs(given, WINDOWS).toArrow().to_pandas(), WINDOWS)
    ages = by_tier.groupby(["queue", "window"], as_index=False)["oldest_ms"].min()
    table = _rows(figures.of_queue_windows(levels.merge(ages, on=["queue", "window"], how="left")))

    assert len(table) == 2 * WINDOWS.count
    for row in table:
        begin = _window(row)
        stays = [stay for stay in STAYS if stay.queue == row["queue"]]
        expected = by_hand.window(stays, begin, begin + MINUTE)
        assert by_hand.differences(row, expected) == {}, (row["queue"], begin)
    for queue in ("orders", "mails"):
        rows = [row for row in table if row["queue"] == queue]
        assert max(row["utilisation"] for row in rows) == 1.0
        assert all(row["utilisation"] == row["busy_mean"] / max(each["busy_mean"] for each in rows) for row in rows)


def test_every_window_of_a_tier_and_of_a_tenant_adds_up_to_that_of_its_queue(figures: Figures) -> None:
    for by, name in ((By.TIER, "tier"), (By.TENANT, "tenant_rank")):
        for row in _rows(figures.of_part_windows(by, figures.levels(by))):
            stays = [stay for stay in STAYS if stay.queue == row["queue"] and _kind(stay, name) == row[name]]
            expected = by_hand.window(stays, _window(row), _window(row) + MINUTE)
            del expected["oldest_age_ms"]
            assert by_hand.differences(row, expected) == {}, (name, row["queue"], _window(row))


def test_the_age_of_the_oldest_is_told_for_each_tier_by_itself(given: DataFrame) -> None:
    found = oldest(pairs(given, WINDOWS).toArrow().to_pandas(), WINDOWS)
    told = {(row.queue, row.tier, row.window): row.oldest_ms for row in found.itertuples()}
    expected: dict[tuple[str, int, int], int] = {}
    for window in range(WINDOWS.first, WINDOWS.last + 1):
        end = (window - FIRST + 1) * MINUTE
        for stay in STAYS:
            if stay.came < end <= stay.settled:
                key = (stay.queue, stay.tier, window)
                expected[key] = min(by_hand.START_MS + stay.came, expected.get(key, by_hand.START_MS + end))

    assert len(found) == len(told) == len(expected)
    assert told == expected


def _kind(stay: by_hand.Stay, by: str) -> int:
    if by == "tier":
        return stay.tier
    sizes = {
        name: sum(other.queue == stay.queue and other.group == name for other in STAYS) for name in ("a", "b", "c")
    }
    order = sorted(sizes, key=lambda name: (-sizes[name], name))
    return 0 if stay.group is None else order.index(stay.group) + 1


def test_the_whole_range_is_one_row_for_each_queue_tier_and_tenant(figures: Figures) -> None:
    begin, end = (WINDOWS.first - FIRST) * MINUTE, (LAST - FIRST + 1) * MINUTE

    def check(row: dict[str, Any], stays: list[by_hand.Stay]) -> None:
        expected = by_hand.window(stays, begin, end)
        told = {name: expected[name] for name in expected if name in row}
        assert by_hand.differences(row, told) == {}
        assert len(told) > 20

    tiers = figures.levels(By.TIER)
    for row in _rows(figures.of_queues(together(tiers))):
        check(row, [stay for stay in STAYS if stay.queue == row["queue"]])
    for by, name in ((By.TIER, "tier"), (By.TENANT, "tenant_rank")):
        for row in _rows(figures.of_parts(by, figures.levels(by))):
            check(row, [stay for stay in STAYS if stay.queue == row["queue"] and _kind(stay, name) == row[name]])
    (whole,) = _rows(figures.of_all())
    waits = [stay.received - stay.came for stay in STAYS if stay.received is not None and begin <= stay.received]
    assert by_hand.differences(whole, by_hand.spans("wait", waits)) == {}


def test_a_span_is_put_into_a_class_near_it(spark: SparkSession) -> None:
    values = [0, 1, 5, 127, 128, 129, 130, 255, 256, 1_000, 65_535, 65_536, 123_456_789, 2**41]
    frame = spark.createDataFrame([(value,) for value in values], "span BIGINT")
    found = {row.span: row.middle for row in frame.select("span", class_of(f.col("span")).alias("middle")).collect()}

    assert all(found[value] == value for value in values if value < 128)
    assert all(abs(found[value] - value) <= value * 0.008 for value in values)
    assert found[128] == found[129]


WEIGHTS = (16, 8, 4, 2, 1)


def _late(given: DataFrame, bucket_ms: int, *queues: str) -> list[Any]:
    chosen = given.where(f.col("queue").isin(list(queues)))
    return breaches(
        given, before(totals(chosen, bucket_ms).toArrow(), dict.fromkeys(queues, WEIGHTS), bucket_ms)
    ).collect()


def test_breaches_of_the_bound_are_those_counted_by_hand(given: DataFrame) -> None:
    # So small that many leave in another bucket than they came in; other sizes are in `test_signals_lines`.
    found = _late(given, 7_000, "orders", "mails")
    expected = by_hand.late(STAYS, WEIGHTS)

    assert len(expected) > 20
    assert {(row.queue, row.key // 8): (row.ahead, row.leases, row.bound) for row in found} == expected


def test_a_queue_without_weights_promises_nothing(given: DataFrame) -> None:
    late = by_hand.late(STAYS, WEIGHTS)
    found = _late(given, MINUTE, "orders")
    assert {row.queue for row in found} == {"orders"}
    assert len(found) == sum(queue == "orders" for queue, _ in late)

    asked = [stay for stay in STAYS if stay.received is not None and stay.group is None]
    assert given.where(is_asked()).count() == len(asked)


def test_a_tier_that_waits_a_whole_window_while_others_are_served_is_starved(spark: SparkSession) -> None:
    def message(tier: int, came: float, received: float | None, settled: float) -> dict[str, Any]:
        got = None if received is None else at(received)
        return {"tier": tier, "sent_at": at(came), "first_received_at": got, "settled_at": at(settled)}

    rows = [
        message(4, 10, 200, 201),
        # Tier 1 comes within a window and is served in the next but one.
        message(1, 70, 185, 186),
        # It expires in the window, so it waited for a part of it.
        {**message(3, 10, None, 100), "outcome": "expired"},
        # What is served meanwhile: in every minute but the third.
        *[message(0, second, second, second + 1) for second in (5, 65, 190)],
    ]
    minutes = Windows(MINUTE, FIRST, FIRST + 3)
    given = steps(history(spark, rows), tenant_of("group"))
    levels = figures_of(added_up(facts(given, minutes, has_tenants=False)).toArrow(), minutes).levels(By.TIER)
    found = list(starved(levels, together(levels)).itertuples())

    assert [(row.tier, row.window - FIRST, row.waiting, row.others_received) for row in found] == [(4, 1, 1, 1)]
