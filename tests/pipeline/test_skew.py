"""Who has most of it: the shares, how uneven they are, and what is said about it."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from penstock.pipeline.job import JobFailed, Silent
from penstock.pipeline.locations import HistoryLocation
from penstock.pipeline.skew import SkewOptions, findings, run
from tests.pipeline.archived import archive
from tests.pipeline.rows import at, history


def _message(group: str | None, wait: float, handling: float, **said: Any) -> dict[str, Any]:
    return {"group": group, "first_received_at": at(wait), "settled_at": at(wait + handling), **said}


def _gini(values: list[int]) -> float:
    """By its definition: half the mean difference of all pairs, by the mean."""
    count = len(values)
    return sum(abs(one - other) for one in values for other in values) / (2 * count * sum(values))


def test_groups_that_stand_out_are_found_with_a_suggestion(spark: SparkSession, tmp_path: Path) -> None:
    hot = [_message("hot", 24, 1, shard=0) for _ in range(43)]
    slow = [_message("slow", 2, 400, shard=1, attributes='{"customer": "acme"}') for _ in range(2)]
    failing = [_message("failing", 2, 1, delivery_count=10, shard=1) for _ in range(3)]
    others = [_message(f"g{number % 26}", 2, 1, shard=1, tier=number % 5) for number in range(52)]
    nobody = [_message(None, 2, 1, shard=1, queue="mails", queue_id=2, tier=0) for _ in range(300)]
    # Served as urgent, though not sent so.
    nobody += [_message(None, 2, 1, shard=1, queue="aged", queue_id=3, tier=0, sent_tier=3)]
    rows = [{"number": number, **row} for number, row in enumerate([*hot, *slow, *failing, *others, *nobody])]
    place = HistoryLocation(where=archive(history(spark, rows), tmp_path / "archive"))
    outcome = run(spark, SkewOptions(place=place, out=str(tmp_path / "skew"), attributes=["customer"]), Silent())
    tables = {
        name: json.loads((tmp_path / "skew" / f"{name}.json").read_text())
        for name in ("heaviest", "concentration", "findings")
    }

    spread = {(row["dimension"], row["queue"]): row for row in tables["concentration"]}
    assert set(spread) == {
        *(
            ("group", "orders"),
            ("tier", "orders"),
            ("tier", "mails"),
            ("tier", "aged"),
            ("queue", None),
            ("shard", None),
        ),
        ("attribute:customer", "orders"),
    }
    groups = spread["group", "orders"]
    assert (groups["values"], groups["messages"], groups["top_1_share"]) == (29, 100, 0.43)
    assert groups["top_10_share"] == (43 + 3 + 8 * 2) / 100
    assert groups["gini"] == pytest.approx(_gini([43, 2, 3, *[2] * 26]))
    assert groups["wait_ms_median"] == 2_000
    assert spread["shard", None]["gini"] == pytest.approx(_gini([43, 358]))

    said = {(row["kind"], row["value"]): row["suggestion"] for row in tables["findings"]}
    assert set(said) == {("hot", "hot"), ("heavy", "slow"), ("failing", "failing"), ("urgent", "0"), ("uneven", "1")}
    assert "43 % of the messages and waits 12 × longer than the median" in said["hot", "hot"]
    assert "89.1 % of the handling time with 2 %" in said["heavy", "slow"]
    assert "100 % of the retries with 3 %" in said["failing", "failing"]
    assert "CRITICAL" in said["urgent", "0"]
    assert outcome.figures == {"rows": 401, "findings": 5, "rows_new": 401, "rows_known": 0}
    with (tmp_path / "skew" / "findings.csv").open() as file:
        assert [row["suggestion"] for row in csv.DictReader(file)] == [row["suggestion"] for row in tables["findings"]]
    first = next(row for row in tables["heaviest"] if row["dimension"] == "group")
    assert (first["rank"], first["value"], first["retry_share"]) == (1, "failing", 1.0)


def _even(dimension: str, value: str, values: int) -> dict[str, Any]:
    part = 1 / values
    shares = {"message_share": part, "handling_share": part, "retry_share": part}
    return {"dimension": dimension, "queue": "orders", "value": value, "values": values, "times_median": 1.0, **shares}


@pytest.mark.parametrize(
    ("dimension", "values"), [("group", 1), ("group", 2), ("group", 50), ("shard", 4), ("tier", 5)]
)
def test_what_is_spread_evenly_is_not_spoken_of(dimension: str, values: int) -> None:
    rows = [_even(dimension, str(number % 5), values) for number in range(values)]

    assert findings(rows, [{"dimension": dimension, "queue": "orders", "gini": 0.0}]) == []


def test_an_attribute_with_a_quote_in_its_name_is_refused(spark: SparkSession) -> None:
    with pytest.raises(JobFailed, match="without quotes"):
        run(spark, SkewOptions(place=HistoryLocation(where="x"), attributes=["a'b"]), Silent())
