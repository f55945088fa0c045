"""The job `signals`: an archive in, tables and a page out."""

from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pyarrow.csv  # type: ignore[import-untyped]
import pyarrow.parquet  # type: ignore[import-untyped]
import pytest
from pyspark.sql import SparkSession

from penstock.pipeline.incremental import begin
from penstock.pipeline.job import JobFailed, Silent
from penstock.pipeline.locations import HistoryLocation
from penstock.pipeline.queue_info import parse
from penstock.pipeline.signals.inputs import read_input
from penstock.pipeline.signals.job import SignalsOptions, choose_windows, run
from tests.pipeline.archived import archive
from tests.pipeline.rows import NOON, at, history

EVIL = '<script>alert("&")</script>'
START_MS = int(NOON.timestamp() * 1_000)


def _message(second: float, **said: Any) -> dict[str, Any]:
    return {"sent_at": at(second), "first_received_at": at(second + 1), "settled_at": at(second + 3), **said}


def _flood() -> list[dict[str, Any]]:
    """A message of the last tier waits while sixty of the first go by: more than 36."""
    flood = [_message(10 + 0.1 * number, tier=0, first_received_at=at(11 + 0.1 * number)) for number in range(60)]
    return [_message(9, tier=4, number=500, first_received_at=at(60), settled_at=at(61)), *flood]


def _files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def test_an_archive_becomes_tables_and_a_page_and_the_same_ones_again(spark: SparkSession, tmp_path: Path) -> None:
    rows = [
        *_flood(),
        *[_message(number * 7, number=100 + number, group=EVIL) for number in range(10)],
        _message(20, number=200, outcome="buried", delivery_count=5, settled_at=at(50)),
        {
            **_message(20, number=200, key=8_002, outcome="expired", delivery_count=5, settled_at=at(110)),
            "queue": "orders.dead",
            "queue_id": 2,
            "first_queue": 1,
            "first_received_at": None,
        },
        # A strict queue promises nothing, however long its last tier waits.
        *[{**row, "queue": "strict", "queue_id": 3} for row in _flood()],
    ]
    told = {"settings": {"tiers": {"mode": "strict", "weights": [16, 8, 4, 2, 1]}}}
    place = HistoryLocation(where=archive(history(spark, rows), tmp_path / "archive", {"strict": told}))
    options = SignalsOptions(place=place, out=str(tmp_path / "report"), window="10s")
    outcome = run(spark, options, Silent())
    files = _files(tmp_path / "report")

    assert outcome.figures == {
        "rows": 134,
        "windows": 12,
        "breaches": 1,
        "starved": 6,
        "rows_new": 134,
        "rows_known": 0,
        "rows_again": 0,
    }
    names = {"queues", "queue_windows", "tiers", "tier_windows", "tenants", "tenant_windows"}
    names |= {"bounds", "breaches", "starvation"}
    plain = {".penstock-results", "about.json", "report.html"}
    assert set(files) == {f"{name}.{kind}" for name in names for kind in ("parquet", "csv")} | plain

    tables = {name: pyarrow.parquet.read_table(tmp_path / "report" / f"{name}.parquet") for name in names}
    for name, table in tables.items():
        assert pyarrow.csv.read_csv(tmp_path / "report" / f"{name}.csv").num_rows == table.num_rows
    queues = {row["queue"]: row for row in tables["queues"].to_pylist()}
    assert (queues["orders"]["sent"], queues["orders"]["buried"], queues["orders"]["retries"]) == (72, 1, 4)
    assert (queues["orders.dead"]["moved_in"], queues["orders.dead"]["sent"]) == (1, 0)
    dead = [row["depth"] for row in tables["queue_windows"].to_pylist() if row["queue"] == "orders.dead"]
    assert dead == [0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 0]
    assert [row["tenant"] for row in tables["tenants"].to_pylist()] == [None, EVIL, None, None]
    breach = tables["breaches"].to_pylist()
    assert [(row["id"], row["ahead"], row["leases"], row["bound"]) for row in breach] == [("1-fa4", 0, 69, 36)]
    strict = [row for row in tables["bounds"].to_pylist() if row["queue"] == "strict"]
    assert {(row["is_strict"], row["checked"], row["breaches"]) for row in strict} == {(True, 0, 0)}

    text = files["report.html"].decode()
    root = ElementTree.fromstring(text.removeprefix("<!DOCTYPE html>\n"))
    assert "<script" not in text
    assert sum(element.tag.endswith("svg") for element in root.iter()) > 30

    run(spark, options, Silent())
    assert _files(tmp_path / "report") == files


def test_one_queue_of_an_archive_still_knows_when_its_messages_came(spark: SparkSession, tmp_path: Path) -> None:
    dead = {"queue": "orders.dead", "queue_id": 2, "first_queue": 1, "key": 16}
    rows = [
        _message(0, number=1, outcome="buried", settled_at=at(30)),
        {**_message(0, number=1, settled_at=at(100), first_received_at=at(90)), **dead},
    ]
    place = HistoryLocation(where=archive(history(spark, rows), tmp_path / "archive"), queues=["orders.dead"])
    start = begin(place, "", {}, full_refresh=False)
    found = read_input(spark, place, "group", start, lambda frame: frame).steps.collect()

    assert [(row.queue, row.came_ms - START_MS) for row in found] == [("orders.dead", 30_000)]


def test_an_archive_without_such_messages_says_so(spark: SparkSession, tmp_path: Path) -> None:
    where = archive(history(spark, [_message(0)]), tmp_path / "archive")
    options = SignalsOptions(
        place=HistoryLocation(where=where, since="2027-01-01T00:00:00Z"), out=str(tmp_path / "report")
    )

    with pytest.raises(JobFailed, match="no settled messages"):
        run(spark, options, Silent())
    assert not (tmp_path / "report").exists()


@pytest.mark.parametrize(
    ("seconds", "size_ms", "count"),
    [(0, 1_000, 1), (499, 1_000, 500), (500, 10_000, 51), (86_400, 300_000, 289), (700 * 86_400, 86_400_000, 701)],
)
def test_windows_are_as_small_as_a_plot_can_show(seconds: int, size_ms: int, count: int) -> None:
    options = SignalsOptions(place=HistoryLocation(where="x"), out="y")
    windows = choose_windows(options, since_ms=START_MS, until_ms=START_MS + seconds * 1_000)

    assert (windows.size_ms, windows.count) == (size_ms, count)


def test_too_many_windows_are_refused_with_the_way_out() -> None:
    options = SignalsOptions(place=HistoryLocation(where="x"), out="y", window="1s")

    with pytest.raises(JobFailed, match="Choose a longer one"):
        choose_windows(options, since_ms=START_MS, until_ms=START_MS + 86_400_000)
    with pytest.raises(JobFailed, match="is no time"):
        choose_windows(SignalsOptions(place=HistoryLocation(where="x", since="noon"), out="y"), since_ms=0, until_ms=0)


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        ({"window": "2m"}, "one of 1s"),
        ({"tenant": "attribute:a'b"}, "without quotes"),
        ({"tenants": 0}, "between 1"),
        ({"place": HistoryLocation(where="x", until="noon")}, "is no time"),
    ],
)
def test_options_that_cannot_be_meant_are_refused(spark: SparkSession, said: dict[str, Any], sentence: str) -> None:
    with pytest.raises(JobFailed, match=sentence):
        run(spark, replace(SignalsOptions(place=HistoryLocation(where="x"), out="y"), **said), Silent())


@pytest.mark.parametrize("text", ["", "1,2,3", "1,2,3,4,0", "1,2,3,4,x", "1,2,3,4,inf"])
def test_weights_are_five_numbers_above_zero(text: str) -> None:
    assert parse("8,4,2,1,0.5") == (16, 8, 4, 2, 1)
    with pytest.raises(JobFailed, match="weights"):
        parse(text)
