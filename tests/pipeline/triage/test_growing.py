"""A triage that goes on from the last one: only what is new is read, and the results are those of all."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from penstock.pipeline import incremental
from penstock.pipeline.job import Outcome, Silent
from penstock.pipeline.locations import HistoryLocation
from penstock.pipeline.triage.job import TriageOptions, run
from tests.pipeline.archived import files_of, grow, put_letters
from tests.pipeline.growing import blinded, contents
from tests.pipeline.rows import at
from tests.pipeline.triage.test_job import ACKED, BODY, NO_CUSTOMER, REFUSED, buried

DAY_S = 86_400
STEPS: list[list[dict[str, Any]]] = [
    [*ACKED, *REFUSED, *NO_CUSTOMER],
    # The same message again, another sample, another tenant, and one that was settled before all that is known.
    [
        buried(DAY_S, "10.0.0.9:5432 refused order 9", group="zen", number=3),
        buried(DAY_S + 5, "10.0.0.9:5432 refused order 9", group="zen", number=11),
        {"settled_at": at(-50), "number": 12},
    ],
    [],
    [buried(2 * DAY_S, "no stock", number=20, data=b"\xff", queue="mail"), {"settled_at": at(2 * DAY_S), "number": 21}],
]


def triage(spark: SparkSession, where: str, out: Path, **said: Any) -> Outcome:
    return run(spark, TriageOptions(place=HistoryLocation(where=where), out=str(out), **said), Silent())


def test_a_triage_in_steps_is_the_triage_of_all_and_reads_each_row_once(spark: SparkSession, tmp_path: Path) -> None:
    root, rows = tmp_path / "archive", 0
    for number, step in enumerate(STEPS):
        read = files_of(root)
        if step:
            grow(spark, root, step)
        # What is still a dead letter changes from run to run, and with it the causes of burials that are known.
        put_letters(root, [{"id": f"1-{row:x}", "data": BODY} for row in (number * 8 + 2, 26)])
        whole = triage(spark, str(root), tmp_path / "anew", full_refresh=True)
        with blinded(read):
            grown = triage(spark, str(root), tmp_path / "grown")

        assert (grown.figures["rows_new"], grown.figures["rows_known"]) == (len(step), rows)
        rows += len(step)
        assert f"{len(step):,} rows were read" in grown.sentence
        assert grown.figures["settled"] == whole.figures["settled"] == rows
        assert contents(tmp_path / "grown") == _named(contents(tmp_path / "anew"), tmp_path)


def _named(results: dict[str, bytes], root: Path) -> dict[str, bytes]:
    """The report says how to replay, with the folder that it is in."""
    return {
        name: content.replace(str(root / "anew").encode(), str(root / "grown").encode())
        for name, content in results.items()
    }


def test_a_triage_that_groups_otherwise_reads_nothing_again(spark: SparkSession, tmp_path: Path) -> None:
    where = grow(spark, tmp_path / "archive", STEPS[0])
    triage(spark, where, tmp_path / "out")
    with blinded(files_of(tmp_path / "archive")):
        outcome = triage(spark, where, tmp_path / "out", by_shape=False, with_dead_letters=False)

    assert outcome.figures["rows_new"] == 0
    assert outcome.figures["causes"] == 2


def test_a_triage_of_too_many_burials_keeps_none_and_says_so(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = grow(spark, tmp_path / "archive", STEPS[0])
    monkeypatch.setattr(incremental, "ROWS_MAX", 3)
    first = triage(spark, where, tmp_path / "out")
    second = triage(spark, where, tmp_path / "out")

    assert "The next run computes everything again" in first.sentence
    assert not (tmp_path / "out" / "state").exists()
    assert "Everything was computed again: the last run left no whole state." in second.sentence
    assert (second.figures["rows_new"], second.figures["new"]) == (6, 0)
