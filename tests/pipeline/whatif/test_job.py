"""What if: the simulation against what can be worked out by hand, and the job against a history that is known."""

import csv
import random
import subprocess
import sys
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from penstock.contract.queue_settings import QueueSettings
from penstock.pipeline.job import JobFailed, Silent
from penstock.pipeline.locations import HistoryLocation
from penstock.pipeline.queue_info import settings_of
from penstock.pipeline.whatif.job import WhatIfOptions, arrivals_of, run
from penstock.pipeline.whatif.simulation import Arrivals, Scenario, of_weights, read_scenario, simulate
from tests.pipeline.archived import archive
from tests.pipeline.rows import at, history

NO_AGING = (0, 0, 0, 0, 0)
COST_MS = 10


def burst(*tiers: int, count: int, attempts: int = 1) -> Arrivals:
    """Return so many messages of each tier, all there at once, each of the same cost."""
    total = count * len(tiers)
    return Arrivals(
        arrived_ms=[0] * total,
        tiers=bytes(tiers) * count,
        handling_ms=[COST_MS] * total,
        attempts=[attempts] * total,
        rest_ms=[0] * total,
    )


def settings_with(weights: tuple[int, ...] = (1, 1, 1, 1, 1), *, is_strict: bool = False) -> QueueSettings:
    return QueueSettings(weights=weights, aging_ms=NO_AGING, is_strict=is_strict)


def of_tier(given: Arrivals, received: Sequence[int], tier: int) -> list[int]:
    return [at_ms for at_ms, mine in zip(received, given.tiers, strict=True) if mine == tier]


def test_two_equal_tiers_take_turns_and_end_together() -> None:
    given = burst(0, 1, count=100)
    received = simulate(given, settings_with(), workers=1)
    assert of_tier(given, received, 0) == [2 * COST_MS * turn for turn in range(100)]
    assert of_tier(given, received, 1) == [2 * COST_MS * turn + COST_MS for turn in range(100)]


def test_a_tier_of_nine_times_the_weight_is_served_nine_times_as_often() -> None:
    given = burst(0, 1, count=90)
    received = simulate(given, settings_with((9, 1, 1, 1, 1)), workers=1)
    urgent, other = of_tier(given, received, 0), of_tier(given, received, 1)
    # Nine of ten turns are the first tier's: its last message begins in turn 99 or 100, at equal weights in turn 179.
    assert 98 * COST_MS <= max(urgent) <= 100 * COST_MS
    assert sum(at_ms <= max(urgent) for at_ms in other) in {9, 10, 11}
    # No worker rests while there is work, so both together take as long as ever.
    assert sorted(received) == [COST_MS * turn for turn in range(180)]


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 1), st.integers(0, 40)), min_size=1, max_size=60))
def test_a_strict_queue_serves_its_urgent_tier_as_if_it_were_alone(rows: list[tuple[int, int, int]]) -> None:
    arrived, total = [], 0
    for gap, _, _ in rows:
        total += gap
        arrived.append(total)
    everything = Arrivals(
        arrived_ms=arrived,
        tiers=bytes(tier for _, tier, _ in rows),
        # What is not urgent costs nothing, so it never holds the worker.
        handling_ms=[cost if tier == 0 else 0 for _, tier, cost in rows],
        attempts=[1] * len(rows),
        rest_ms=[0] * len(rows),
    )
    received = simulate(everything, settings_with(is_strict=True), workers=1)
    expected, free_ms = [], 0
    for at_ms, (_, tier, cost) in zip(arrived, rows, strict=True):
        if tier == 0:
            expected.append(max(at_ms, free_ms))
            free_ms = expected[-1] + cost
    assert of_tier(everything, received, 0) == expected


def test_a_message_of_two_attempts_costs_twice_and_rests_between() -> None:
    given = Arrivals(arrived_ms=[0, 0], tiers=bytes([0, 0]), handling_ms=[10, 10], attempts=[2, 1], rest_ms=[25, 0])
    later = Arrivals(arrived_ms=[0, 36], tiers=bytes([0, 0]), handling_ms=[10, 10], attempts=[2, 1], rest_ms=[25, 0])
    assert list(simulate(given, settings_with(), workers=1)) == [0, 10]
    # It is back at 35 and holds the worker until 45.
    assert list(simulate(later, settings_with(), workers=1)) == [0, 45]


def test_more_workers_wait_less_and_a_batch_is_received_at_once() -> None:
    given = burst(2, count=12)
    assert max(simulate(given, settings_with(), workers=3)) == 3 * COST_MS
    assert max(simulate(given, settings_with(), workers=12)) == 0
    assert list(simulate(given, settings_with(), workers=1, batch=6)) == [0] * 6 + [6 * COST_MS] * 6


def test_messages_of_one_group_of_a_fifo_queue_wait_for_each_other() -> None:
    given = Arrivals(
        arrived_ms=[0, 0, 0],
        tiers=bytes([2, 2, 2]),
        handling_ms=[10, 10, 10],
        attempts=[1, 1, 1],
        rest_ms=[0, 0, 0],
        groups=[b"a", b"a", b"b"],
    )
    queue = QueueSettings(is_fifo=True, aging_ms=NO_AGING)
    assert list(simulate(given, QueueSettings(aging_ms=NO_AGING), workers=3)) == [0, 0, 0]
    assert list(simulate(given, queue, workers=3)) == [0, 10, 0]


def test_aging_lifts_what_waits_long_in_a_strict_queue() -> None:
    # An urgent message comes whenever one is done, and one of the least urgent waits from the beginning.
    given = Arrivals(
        arrived_ms=[0, *(COST_MS * turn for turn in range(50))],
        tiers=bytes([4, *[0] * 50]),
        handling_ms=[COST_MS] * 51,
        attempts=[1] * 51,
        rest_ms=[0] * 51,
    )
    kept = simulate(given, settings_with(is_strict=True), workers=1)
    aged = simulate(given, QueueSettings(is_strict=True, aging_ms=(0, 20, 20, 20, 20)), workers=1)
    assert kept[0] == 50 * COST_MS
    # It is critical after four times 20 ms, and stands behind those that came before then.
    assert 80 <= aged[0] <= 80 + 2 * COST_MS


def test_executors_simulate_with_nothing_but_the_core_and_arrow() -> None:
    told = "import sys, penstock.pipeline.whatif.simulation; print(*sys.modules)"
    loaded = set(
        subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True).stdout.split()
    )
    assert "penstock.core.queue.queue" in loaded
    assert loaded & {"msgspec", "crc32c", "httptools", "typer", "pyspark", "starlette", "asyncio"} == set()


def test_a_scenario_is_read_as_it_is_typed() -> None:
    assert read_scenario("night:weights=8,4,2,1,1,aging=0,0,500ms,10m,1h,mode=strict,workers=8") == Scenario(
        "night", (8, 4, 2, 1, 1), (0, 0, 500, 600_000, 3_600_000), True, 8
    )
    assert of_weights("5,4,3,2,1") == Scenario("weights 5,4,3,2,1", (5, 4, 3, 2, 1))
    described = {"a": {"settings": {"fifo": True, "tiers": {"mode": "strict", "weights": [8, 4, 2, 1, 0.5]}}}}
    found = settings_of(described)["a"]
    assert (found.is_fifo, found.is_strict, found.weights) == (True, True, (16, 8, 4, 2, 1))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("weights=1,2,3,4,5", "no scenario"),
        ("baseline:mode=strict", "a name of its own"),
        ("a:weights=1,2,3", "5 tiers"),
        ("a:weights=0,1,1,1,1", "weights"),
        ("a:mode=fair", "strict or weighted"),
        ("a:workers=0", "1 to 10,000"),
        ("a:aging=0,0,0,0,soon", "no time"),
        ("a:colour=red", "may say weights, aging, mode, workers"),
    ],
)
def test_a_scenario_that_is_not_understood_is_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(JobFailed, match=reason):
        read_scenario(text)


def test_a_message_arrives_when_it_was_sent_or_when_it_left_another_queue(spark: SparkSession) -> None:
    rows = history(
        spark,
        [
            {
                "number": 1,
                "first_received_at": at(4),
                "last_received_at": at(20),
                "settled_at": at(22),
                "delivery_count": 3,
            },
            {"number": 2, "outcome": "buried", "settled_at": at(5), "delivery_count": 5},
            {
                "number": 2,
                "queue": "orders.dead",
                "queue_id": 2,
                "first_queue": 1,
                "key": 0,
                "tier": 2,
                "outcome": "redriven",
                "settled_at": at(60),
                "delivery_count": 5,
                "first_received_at": None,
                "last_received_at": None,
            },
            {"number": 2, "key": 99 * 8 + 1, "first_received_at": at(61), "settled_at": at(70), "delivery_count": 6},
            {"number": 3, "first_queue": 77, "settled_at": at(80)},
        ],
    )
    found = {(row.queue, row.settled_ms): row for row in arrivals_of(rows).collect()}
    noon_ms = round(at(0).timestamp() * 1_000)

    def told(queue: str, seconds: int) -> tuple[Any, ...]:
        row = found[queue, noon_ms + seconds * 1_000]
        arrived = None if row.arrived_ms is None else (row.arrived_ms - noon_ms) / 1_000
        return arrived, row.lane, row.attempts, row.handling_ms, row.rest_ms

    # Sixteen seconds for two more attempts: each is two of handling, four of waiting as at first, and two of rest.
    assert told("orders", 22) == (0, 2, 3, 2_000, 2_000)
    assert told("orders.dead", 60)[:2] == (5, 0)
    assert told("orders", 70)[:4] == (60, 1, 1, 9_000)
    assert told("orders", 80)[0] is None


def worked(seed: int, count: int, queue: QueueSettings, *, workers: int) -> list[dict[str, Any]]:
    """Return the history of a queue that the simulation itself has served."""
    dice = random.Random(seed)
    arrived, at_ms = [], 0
    for _ in range(count):
        at_ms += dice.randrange(0, 12)
        arrived.append(at_ms)
    # Every hundredth of a second a message comes, and each costs about that of all workers.
    given = Arrivals(
        arrived_ms=arrived,
        tiers=bytes(dice.choices((0, 2, 4), k=count)),
        handling_ms=[dice.randrange(1, 12 * workers) for _ in range(count)],
        attempts=[1] * count,
        rest_ms=[0] * count,
    )
    received = simulate(given, queue, workers=workers)
    next_number = dict.fromkeys(range(5), 0)
    rows = []
    for row, tier in enumerate(given.tiers):
        got = at(received[row] / 1_000)
        spent = timedelta(milliseconds=given.handling_ms[row])
        said = {"sent_at": at(arrived[row] / 1_000), "first_received_at": got, "settled_at": got + spent}
        rows.append({"tier": tier, "number": next_number[tier], **said})
        next_number[tier] += 1
    return rows


def test_the_baseline_is_what_happened_if_a_queue_was_served_as_simulated(spark: SparkSession, tmp_path: Path) -> None:
    root, out = tmp_path / "archive", tmp_path / "out"
    rows = worked(7, 800, QueueSettings(weights=(4, 4, 2, 2, 1)), workers=3)
    expired = {"number": 9_000, "outcome": "expired", "settled_at": at(999), "sent_at": at(900)}
    rows.append({**expired, "first_received_at": None, "last_received_at": None})
    weights = {"tiers": {"weights": [4, 4, 2, 2, 1], "mode": "weighted"}}
    where = archive(history(spark, rows), root, {"orders": {"queue_id": "1", "settings": weights}})

    strict = [Scenario("strict", is_strict=True), Scenario("many", workers=1_000)]
    options = WhatIfOptions(place=HistoryLocation(where=where), scenarios=strict, out=str(out))
    outcome = run(spark, options, Silent())

    with (out / "waits.csv").open() as file:
        told = {(row["scenario"], int(row["tier"])): row for row in csv.DictReader(file)}
    waits = [f"wait_ms_{name}" for name in ("p50", "p90", "p99", "max", "mean")]
    assert {tier for _, tier in told} == {0, 2, 4}
    for tier in (0, 2, 4):
        happened, baseline = told["happened", tier], told["baseline", tier]
        assert [happened[name] for name in ("messages", *waits)] == [baseline[name] for name in ("messages", *waits)]
        assert (baseline["workers"], happened["bound_share"]) == ("3", "1.0")
        assert float(told["many", tier]["wait_ms_max"]) == 0
        assert told["strict", tier]["bound_share"] == ""
    assert float(told["strict", 0]["wait_ms_p99"]) <= float(told["baseline", 0]["wait_ms_p99"])
    assert float(told["strict", 4]["wait_ms_mean"]) > float(told["baseline", 4]["wait_ms_mean"])
    assert outcome.figures["simulated"] == 3 * len(rows)
    assert "do not believe" not in outcome.sentence
    ElementTree.fromstring((out / "report.html").read_text().removeprefix("<!DOCTYPE html>\n"))
    # Fewer rows are the newest, and it is said.
    few = run(
        spark, WhatIfOptions(place=HistoryLocation(where=str(root)), scenarios=[], rows=100, workers=900), Silent()
    )
    assert few.figures["simulated"] == 100
    assert "the newest 100 of 801" in few.sentence
    # So many workers there never were: no message waits in the baseline, and that is said as well.
    assert "orders: do not believe these scenarios" in few.sentence
