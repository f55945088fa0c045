"""A skew that goes on from the last one: only what is new is read, and the results are those of all."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from penstock.pipeline import incremental
from penstock.pipeline.job import JobFailed, Outcome, Silent
from penstock.pipeline.locations import HistoryLocation
from penstock.pipeline.skew import SkewOptions, run
from tests.pipeline.archived import files_of, grow
from tests.pipeline.growing import blinded, contents
from tests.pipeline.rows import at

DAY_S = 86_400
DEAD = {"queue": "orders.dead", "queue_id": 2, "first_queue": 1, "key": 16}


def message(number: int, group: str | None, settled: float, **said: Any) -> dict[str, Any]:
    received = {"first_received_at": at(settled - 1), "settled_at": at(settled), "attributes": '{"customer": "acme"}'}
    return {"number": number, "group": group, "sent_at": at(settled - 7.003), **received, **said}


def moved(number: int, settled: float, **said: Any) -> dict[str, Any]:
    return message(number, "moved", settled, outcome="buried", delivery_count=4, **said)


STEPS: list[list[dict[str, Any]]] = [
    [
        *[message(number, "first", number) for number in range(20)],
        *[message(number, f"g{number % 7}", number, shard=1) for number in range(20, 30)],
        moved(100, 40),
        # It is told of before the row that says when it came.
        moved(101, 60, **DEAD, shard=1, last_received_at=at(58)),
    ],
    [
        # What was rare is now the heaviest, and a group that was not known is there.
        *[message(number, "g3", DAY_S + number, delivery_count=3) for number in range(200, 240)],
        *[message(number, "late", DAY_S + number) for number in range(240, 250)],
        message(250, None, DAY_S, first_received_at=None, last_received_at=None, outcome="expired"),
        moved(100, DAY_S, **DEAD, last_received_at=at(DAY_S - 5)),
        moved(101, 50),
    ],
    [],
    [message(100, "moved", 2 * DAY_S, key=8_000, delivery_count=6, shard=1)],
]


def skew(spark: SparkSession, where: str, out: Path, queues: tuple[str, ...] = (), **said: Any) -> Outcome:
    place = HistoryLocation(where=where, queues=queues)
    return run(spark, SkewOptions(place=place, out=str(out), attributes=["customer"], **said), Silent())


@pytest.mark.parametrize("queues", [(), ("orders.dead",)])
def test_a_skew_in_steps_is_the_skew_of_all_and_reads_each_row_once(
    spark: SparkSession, tmp_path: Path, queues: tuple[str, ...]
) -> None:
    root, rows = tmp_path / "archive", 0
    for step in STEPS:
        read = files_of(root)
        if step:
            grow(spark, root, step)
        whole = skew(spark, str(root), tmp_path / "anew", queues, full_refresh=True)
        with blinded(read):
            grown = skew(spark, str(root), tmp_path / "grown", queues)
        new = sum(not queues or row.get("queue", "orders") in queues for row in step)

        assert (grown.figures["rows_new"], grown.figures["rows_known"]) == (new, rows)
        rows += new
        assert grown.figures["rows"] == whole.figures["rows"] == rows
        assert contents(tmp_path / "grown") == contents(tmp_path / "anew")


def test_a_skew_that_has_too_much_to_keep_keeps_nothing_and_says_so(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = grow(spark, tmp_path / "archive", STEPS[0])
    monkeypatch.setattr(incremental, "ROWS_MAX", 1)
    outcome = skew(spark, where, tmp_path / "out")

    assert "more to remember than 1 rows" in outcome.sentence
    assert not (tmp_path / "out" / "state").exists()


def test_a_skew_without_a_folder_keeps_nothing_and_reads_everything(spark: SparkSession, tmp_path: Path) -> None:
    where = grow(spark, tmp_path / "archive", STEPS[0])
    for _ in range(2):
        outcome = run(spark, SkewOptions(place=HistoryLocation(where=where)), Silent())
        assert outcome.sentence.endswith("32 rows were read.")
    with pytest.raises(JobFailed, match="no settled messages"):
        run(spark, SkewOptions(place=HistoryLocation(where=where, since="2030-01-01T00:00:00Z")), Silent())
