"""Signals that go on from the last ones: known rows are read again only where they matter, with the results of all."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from penstock.pipeline import incremental
from penstock.pipeline.job import Outcome, Silent
from penstock.pipeline.locations import HistoryLocation
from penstock.pipeline.signals.counts import Windows
from penstock.pipeline.signals.fairness_bounds import bucket_ms_of
from penstock.pipeline.signals.job import SignalsOptions, run
from tests.pipeline import signals_by_hand as by_hand
from tests.pipeline.archived import files_of, grow
from tests.pipeline.growing import blinded, contents
from tests.pipeline.rows import at
from tests.pipeline.told import run as run_of
from tests.pipeline.told import write_frames

# Into so many a quarter of an hour is cut, so that lines of one part reach far into the next.
PARTS = 3


def dead(stay: by_hand.Stay) -> dict[str, Any]:
    """The stay among the dead letters of a message that was buried; some are told of before their burial is."""
    row = by_hand.row(stay)
    settled = stay.settled + (stay.number % 5) * 60_000 + 1
    moved = {"queue": "dead", "first_queue": row["queue_id"], "queue_id": 9, "key": 80_000 + stay.number * 8}
    times = {"first_received_at": at((settled - 1) / 1_000), "last_received_at": at((settled - 1) / 1_000)}
    return {**row, **moved, **times, "settled_at": at(settled / 1_000), "outcome": "acked", "delivery_count": 9}


def history_in_parts() -> list[list[dict[str, Any]]]:
    stays = sorted(by_hand.made_up(420, seed=11), key=lambda stay: stay.settled)
    parts: list[list[dict[str, Any]]] = [[] for _ in range(PARTS)]
    for place, stay in enumerate(stays):
        part = place * PARTS // len(stays)
        # Some rows are late, as those of another shard may be; but not the first, or the windows would begin elsewhere.
        is_late = stay.number % 17 == 0 and stay.came > 60_000
        parts[0 if stay.came < 60_000 else min(part + is_late, PARTS - 1)].append(by_hand.row(stay))
        if stay.outcome == "buried":
            parts[min(part + stay.number % 2, PARTS - 1)].append(dead(stay))
    return parts


def signals(spark: SparkSession, where: str, out: Path, queues: Sequence[str] = (), **said: Any) -> Outcome:
    return run(spark, SignalsOptions(place=HistoryLocation(where=where, queues=queues), out=str(out), **said), Silent())


def test_signals_in_steps_are_the_signals_of_all(spark: SparkSession, tmp_path: Path) -> None:
    said, queues = {"window": "10s", "tenants": 2, "weights": "5,4,3,2,1"}, ("mails", "dead")
    root, known = tmp_path / "archive", 0
    for part in history_in_parts():
        grow(spark, root, part)
        whole = signals(spark, str(root), tmp_path / "anew", queues, full_refresh=True, **said)
        grown = signals(spark, str(root), tmp_path / "grown", queues, **said)

        assert contents(tmp_path / "grown") == contents(tmp_path / "anew")
        assert (grown.figures["rows_known"], "computed again" in grown.sentence) == (known, False), grown.sentence
        assert grown.figures["rows"] == whole.figures["rows"]
        known = int(grown.figures["rows"])
        assert whole.figures["breaches"] != 0
    assert int(grown.figures["rows_again"]) < known


def day(number: int, count: int, **said: Any) -> list[dict[str, Any]]:
    """Messages of one day, a minute apart, each settled within it."""
    first = number * 86_400
    return [
        {
            "number": number * 1_000 + step,
            "group": f"g{step % 5}",
            "sent_at": at(first + 60 * step),
            "first_received_at": at(first + 60 * step + 1),
            "settled_at": at(first + 60 * step + 9),
            **said,
        }
        for step in range(count)
    ]


def test_a_day_that_no_message_reaches_back_from_is_all_that_is_read(spark: SparkSession, tmp_path: Path) -> None:
    root = tmp_path / "archive"
    grow(spark, root, [*day(0, 20), *day(0, 5, queue="mail", queue_id=2)])
    signals(spark, str(root), tmp_path / "out", window="1h")
    read = files_of(root)
    grow(spark, root, day(1, 10))
    with blinded(read):
        second = signals(spark, str(root), tmp_path / "out", window="1h")
    read = files_of(root)
    with blinded(read):
        third = signals(spark, str(root), tmp_path / "out", window="1h")
    whole = signals(spark, str(root), tmp_path / "whole", window="1h")

    counted = [
        [each.figures[name] for name in ("rows_new", "rows_known", "rows_again")] for each in (second, third, whole)
    ]
    assert counted == [[10, 25, 0], [0, 35, 0], [35, 0, 0]]
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")
    assert "10 rows were read, and 25 were known." in second.sentence


def test_of_a_data_folder_the_rows_are_read_again_that_waited_with_a_new_one(
    spark: SparkSession, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    write_frames(data, [[run_of(5_000)], [run_of(6_000, number=3), run_of(7_000, queue=2)]])
    signals(spark, str(data), tmp_path / "out", window="1s")
    write_frames(data, [[run_of(8_000, number=6, count=2)]])
    outcome = signals(spark, str(data), tmp_path / "out", window="1s")

    # All were sent at once, so those of the first queue waited together; of the other one nothing is new.
    assert "2 rows were read, and 9 were known. 6 of those were read again." in outcome.sentence
    assert contents(tmp_path / "out") == contents_of_all(spark, data, tmp_path, window="1s")


def test_what_was_added_up_otherwise_is_computed_again_with_the_reason(spark: SparkSession, tmp_path: Path) -> None:
    root, out = tmp_path / "archive", tmp_path / "out"
    grow(spark, root, day(0, 9))

    def reason(**said: Any) -> str:
        outcome = signals(spark, str(root), out, **said)
        assert outcome.figures["rows_known"] == 0
        return outcome.sentence.partition("Everything was computed again: ")[2]

    grow(spark, root, [{**row, "number": row["number"] + 500, "group": None} for row in day(0, 3)])
    assert reason(tenants=1) == ""
    # Ten minutes become two days, and the windows longer.
    grow(spark, root, day(1, 9))
    assert reason(tenants=1) == "the windows are not what they were then."
    # Of five tenants three are kept apart, and the other one becomes the first.
    grow(spark, root, [{**row, "number": row["number"] + 500, "group": "g4"} for row in day(1, 20)])
    assert reason(tenants=1) == "a tenant is among the largest now that was not near them then."
    (root / "queues.json").write_text(json.dumps({"orders": {"settings": {"tiers": {"weights": [5, 4, 3, 2, 1]}}}}))
    assert reason(tenants=1) == "the weights of orders are not what they were then."
    assert reason(tenants=2) == "tenants is not what it was then."
    assert contents(out) == contents_of_all(spark, root, tmp_path, tenants=2)


def test_a_tenant_that_was_not_there_is_told_apart_without_a_second_look(spark: SparkSession, tmp_path: Path) -> None:
    root, out = tmp_path / "archive", tmp_path / "out"
    steps = [
        day(0, 9),
        [{**row, "group": "new"} for row in day(1, 20)],
        [{**row, "group": "newer"} for row in day(2, 30)],
    ]
    for step in steps:
        read = files_of(root)
        grow(spark, root, step)
        with blinded(read):
            outcome = signals(spark, str(root), out, tenants=1, window="1h")
        assert outcome.figures["rows_new"] == len(step)
    assert contents(out) == contents_of_all(spark, root, tmp_path, tenants=1, window="1h")


def test_tenants_after_messages_without_a_group_are_computed_again(spark: SparkSession, tmp_path: Path) -> None:
    root, out = tmp_path / "archive", tmp_path / "out"
    grow(spark, root, day(0, 3, group=None))
    signals(spark, str(root), out, window="1h")
    grow(spark, root, day(1, 3))
    assert "again: there were no tenants then." in signals(spark, str(root), out, window="1h").sentence
    assert contents(out) == contents_of_all(spark, root, tmp_path, window="1h")


def contents_of_all(spark: SparkSession, root: Path, tmp_path: Path, **said: Any) -> dict[str, bytes]:
    signals(spark, str(root), tmp_path / "all", full_refresh=True, **said)
    return contents(tmp_path / "all")


def test_signals_that_have_too_much_to_keep_keep_nothing_and_say_so(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = grow(spark, tmp_path / "archive", day(0, 9))
    monkeypatch.setattr(incremental, "ROWS_MAX", 5)
    outcome = signals(spark, where, tmp_path / "out")

    assert "The next run computes everything again" in outcome.sentence
    assert not (tmp_path / "out" / "state").exists()


@pytest.mark.parametrize(("size_ms", "count"), [(1_000, 20_000), (60_000, 7), (86_400_000, 3), (3_600_000, 399)])
def test_a_bucket_is_of_whole_windows_or_a_window_of_whole_buckets(size_ms: int, count: int) -> None:
    bucket_ms = bucket_ms_of(Windows(size_ms, 0, count - 1))

    assert bucket_ms % size_ms == 0 or size_ms % bucket_ms == 0
    assert size_ms * count / bucket_ms < 900
