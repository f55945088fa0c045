"""What a run leaves for the next one, and when it is not used."""

import json
from pathlib import Path
from typing import Any

import pyarrow  # type: ignore[import-untyped]
import pytest
from pyspark.sql import SparkSession

from penstock.pipeline import incremental
from penstock.pipeline.incremental import State, begin, leave
from penstock.pipeline.locations import HistoryLocation
from penstock.pipeline.reports.folder import results
from tests.pipeline.told import run, write_frames

OPTIONS = {"job": "counting", "by": "hand"}


@pytest.fixture
def left(spark: SparkSession, tmp_path: Path) -> tuple[HistoryLocation, Path]:
    """A place, and a folder of results with a state in it."""
    place, out = HistoryLocation(where=str(tmp_path / "data")), tmp_path / "out"
    write_frames(tmp_path / "data", [[run(0)]])
    start = begin(place, str(out), OPTIONS, full_refresh=False)
    assert (start.known, start.reason) == (None, "")
    tables = {
        "numbers": pyarrow.table({"number": [1, 2]}),
        "nothing": pyarrow.table({"number": pyarrow.array([], "int64")}),
    }
    with results(str(out)) as folder:
        leave(folder, place, OPTIONS, State(extent=start.extent, rows=3, figures={"most": 2}, tables=tables))
    return place, out


def test_what_a_run_left_is_what_the_next_one_knows(spark: SparkSession, left: tuple[HistoryLocation, Path]) -> None:
    place, out = left
    start = begin(place, str(out), OPTIONS, full_refresh=False)

    assert start.known is not None
    assert (start.rows_known, start.known.figures, start.reason) == (3, {"most": 2}, "")
    assert [row.number for row in start.table(spark, "numbers", "number BIGINT").collect()] == [1, 2]
    assert start.table(spark, "nothing", "number BIGINT").collect() == []
    assert start.told(5) == "5 rows were read, and 3 were known."


@pytest.mark.parametrize(
    ("options", "said", "reason"),
    [
        ({"by": "heart"}, {}, "by is not what it was"),
        ({"more": 1}, {}, "more is not what it was"),
        ({}, {"queues": ("orders",)}, "queues is not what it was"),
        ({}, {"since": "2026-03-01T00:00:00Z"}, "since is not what it was"),
    ],
)
def test_a_state_of_other_options_is_not_used(
    spark: SparkSession, left: tuple[HistoryLocation, Path], options: dict[str, Any], said: dict[str, Any], reason: str
) -> None:
    place, out = left
    start = begin(HistoryLocation(where=place.where, **said), str(out), {**OPTIONS, **options}, full_refresh=False)

    assert start.known is None
    assert reason in start.told(3)


def test_a_state_of_another_place_or_version_is_not_used(
    spark: SparkSession, left: tuple[HistoryLocation, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, out = left
    (tmp_path / "data").rename(tmp_path / "moved")
    moved = HistoryLocation(where=str(tmp_path / "moved"))
    assert begin(moved, str(out), OPTIONS, full_refresh=False).reason == "place is not what it was then"
    (tmp_path / "moved").rename(tmp_path / "data")
    monkeypatch.setattr(incremental, "__version__", "99.0")
    assert begin(place, str(out), OPTIONS, full_refresh=False).reason == "version is not what it was then"


def test_a_state_is_not_used_if_it_was_asked_to_compute_again(
    spark: SparkSession, left: tuple[HistoryLocation, Path]
) -> None:
    place, out = left
    start = begin(place, str(out), OPTIONS, full_refresh=True)

    assert start.told(3) == "3 rows were read. Everything was computed again: that was asked for."


def _lose(state: Path) -> None:
    (state / "numbers.parquet").unlink()


def _flip(state: Path) -> None:
    content = bytearray((state / "numbers.parquet").read_bytes())
    content[9] ^= 1
    (state / "numbers.parquet").write_bytes(content)


def _change(state: Path) -> None:
    said = json.loads((state / "about.json").read_text())
    (state / "about.json").write_text(json.dumps({**said, "rows": 4}))


def _cut(state: Path) -> None:
    text = (state / "about.json").read_text()
    (state / "about.json").write_text(text[: len(text) // 2])


def _empty(state: Path) -> None:
    (state / "about.json").write_text("[]")


@pytest.mark.parametrize("harm", [_lose, _flip, _change, _cut, _empty])
def test_a_damaged_state_is_not_used(spark: SparkSession, left: tuple[HistoryLocation, Path], harm: Any) -> None:
    place, out = left
    harm(out / "state")
    start = begin(place, str(out), OPTIONS, full_refresh=False)

    assert start.known is None
    assert start.reason in {"the state that the last run left is damaged", "the last run left no whole state"}
