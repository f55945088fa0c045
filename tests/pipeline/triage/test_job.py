"""Triage: burials become causes, a run compares itself with the last one, and its files are whole."""

import csv
import json
from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest
from pyspark.sql import Row, SparkSession

from penstock.pipeline.job import JobFailed, Outcome, Silent
from penstock.pipeline.locations import HistoryLocation
from penstock.pipeline.triage.causes import (
    BUCKETS,
    Deploy,
    began_with,
    burials_over_time,
    causes_of,
    judged_burials,
    read_deploys,
    signatures_of,
)
from penstock.pipeline.triage.causes import burials_in as buried_of
from penstock.pipeline.triage.job import TriageOptions, run
from penstock.pipeline.triage.signatures import with_signature
from tests.pipeline.archived import grow
from tests.pipeline.rows import at, history

BODY = b'{"id": 1}'


def buried(seconds: float, error: str, **said: Any) -> dict[str, Any]:
    return {"outcome": "buried", "settled_at": at(seconds), "error": error, "delivery_count": 5, **said}


REFUSED = [
    buried(10, "10.0.0.1:5432 refused order 1", group="acme", tier=0),
    buried(20, "10.0.0.2:5432 refused order 2", group="acme", queue="mail"),
    buried(30, "10.0.0.3:5432 refused order 3", group="zen", number=3),
]
NO_CUSTOMER = [buried(40, "no such customer 7", data=BODY)]
ACKED: list[dict[str, Any]] = [{"settled_at": at(0)}, {"settled_at": at(100), "error": "10.0.0.1:5432 refused order 9"}]


def by_signature(rows: Sequence[Row]) -> dict[str, Row]:
    return {row.signature: row for row in rows}


def test_burials_of_one_signature_are_one_cause_with_all_that_is_known(spark: SparkSession) -> None:
    burials = judged_burials(buried_of(history(spark, [*ACKED, *REFUSED, *NO_CUSTOMER])), None).cache()
    found = causes_of(burials, since=at(20)).collect()
    told = by_signature(found)

    assert [row.signature for row in found] == ["<host> refused order <n>", "no such customer <n> | {id: number}"]
    refused = told["<host> refused order <n>"]
    # The last two rows have one number, so they are one message that was buried twice.
    assert (refused.burials, refused.since_last, refused.messages, refused.deliveries) == (3, 1, 2, 15)
    assert (refused.queues, refused.tiers) == (["mail", "orders"], [1, 0, 2, 0, 0])
    assert (refused.tenants, [tuple(each) for each in refused.top_tenants]) == (2, [("acme", 2), ("zen", 1)])
    assert (refused.sample_error, refused.sample_body) == ("10.0.0.3:5432 refused order 3", None)
    assert len(refused.sample_ids) == 2
    customer = told["no such customer <n> | {id: number}"]
    assert (customer.first_seen, customer.sample_body, customer.still_dead) == (customer.last_seen, '{"id": 1}', 0)

    parts = burials_over_time(burials, first=at(0), last=at(48)).collect()
    assert sorted(row.bucket for row in parts if row.cause_id == refused.cause_id) == [5, 10, 15]
    assert max(row.bucket for row in burials_over_time(burials, first=at(0), last=at(40)).collect()) == BUCKETS - 1
    burials.unpersist()


def test_a_body_that_only_the_dead_letters_have_shapes_the_cause_but_not_what_replay_looks_for(
    spark: SparkSession,
) -> None:
    rows = history(spark, [buried(1, "bad order 1"), buried(2, "bad order 2")])
    letters = rows.select("id").limit(1).collect()[0].id
    dead = spark.createDataFrame([(letters, bytearray(BODY)), ("ff-ff", bytearray(b"other"))], "id STRING, data BINARY")
    burials = judged_burials(buried_of(rows), dead).cache()
    found = by_signature(causes_of(burials).collect())
    listed = signatures_of(burials).collect()
    replayed = {row.signature_id for row in with_signature(rows).collect()}
    burials.unpersist()

    assert {signature: row.still_dead for signature, row in found.items()} == {
        "bad order <n>": 0,
        "bad order <n> | {id: number}": 1,
    }
    assert {row.replay_id for row in listed} == replayed
    assert {row.cause_id for row in listed} == {row.cause_id for row in found.values()}


def triage(spark: SparkSession, root: str | Path, out: Path, **said: Any) -> Outcome:
    return run(spark, TriageOptions(place=HistoryLocation(where=str(root)), out=str(out), **said), Silent())


def test_a_second_run_tells_what_is_new_and_what_is_gone(spark: SparkSession, tmp_path: Path) -> None:
    out = tmp_path / "out"
    deploys = tmp_path / "deploys.csv"
    deploys.write_text("at,name\n2026-03-01T12:00:35Z,shop 4.2\n")
    hostile = buried(15, "<script>alert(1)</script> ]]> \x07", queue="mail", group="=1+1")

    first = triage(spark, grow(spark, tmp_path / "a", [*ACKED, *REFUSED, hostile]), out)
    again = triage(spark, tmp_path / "a", out)
    moved = triage(
        spark,
        grow(spark, tmp_path / "b", [*ACKED, *REFUSED, *NO_CUSTOMER]),
        out,
        deploys=str(deploys),
        deploy_window=timedelta(seconds=10),
    )

    assert [(each.figures["causes"], each.figures["new"], each.figures["gone"]) for each in (first, again, moved)] == [
        (2, 0, 0),
        (2, 0, 0),
        (2, 1, 1),
    ]
    assert "nothing to compare with" in first.sentence
    assert "1 new and 1 gone" in moved.sentence
    told = pq.read_table(out / "causes.parquet").to_pylist()
    assert [(row["burials"], row["deploy"], row["is_new"]) for row in told] == [(3, None, False), (1, "shop 4.2", True)]
    with (out / "causes.csv").open() as file:
        assert [row["signature"] for row in csv.DictReader(file)] == [row["signature"] for row in told]
    listed = json.loads((out / "signatures.json").read_text())
    assert listed["version"] == 1
    assert [(entry["count"], entry["queues"]) for entry in listed["signatures"]] == [
        (3, ["mail", "orders"]),
        (1, ["orders"]),
    ]
    one = json.loads((out / "signatures" / f"{told[1]['cause_id']}.json").read_text())
    assert one["signatures"] == listed["signatures"][1:]
    page = (out / "report.html").read_text()
    ElementTree.fromstring(page.removeprefix("<!DOCTYPE html>\n"))
    # What is gone is told, and nothing of it can run.
    assert "&lt;script&gt;" in page
    assert "<script" not in page


def test_a_history_without_burials_is_a_triage_without_causes(spark: SparkSession, tmp_path: Path) -> None:
    outcome = triage(spark, grow(spark, tmp_path / "a", ACKED), tmp_path / "out", by_shape=False)
    rows = {"rows_new": 2, "rows_known": 0}
    assert outcome.figures == {"settled": 2, "buried": 0, "causes": 0, "new": 0, "gone": 0, **rows}
    assert json.loads((tmp_path / "out" / "signatures.json").read_text())["signatures"] == []


def test_a_cause_began_with_the_latest_deploy_before_it_if_the_time_before_is_known() -> None:
    marks = [Deploy(at(0), "one"), Deploy(at(50), "two"), Deploy(at(60), "three")]
    began = partial(began_with, marks=marks, within=timedelta(seconds=30), known_from=at(-10))

    assert [began(at(seconds)) for seconds in (70, 55, 49, 90)] == ["three", "two", None, None]
    assert began_with(at(10), marks, within=timedelta(seconds=30), known_from=at(5)) is None


@pytest.mark.parametrize(
    "text",
    [
        "at,name\n2026-03-01T12:00:00Z,one\n2026-03-01T12:00:01Z,two\n",
        '{"at": 1772366401000, "name": "two"}\n\n{"at": "2026-03-01T12:00:00Z", "name": "one"}\n',
    ],
)
def test_marks_of_deploys_are_read_from_csv_and_json_lines(text: str, tmp_path: Path) -> None:
    path = tmp_path / "deploys"
    path.write_text(text)
    assert read_deploys(str(path)) == [Deploy(at(0), "one"), Deploy(at(1), "two")]


@pytest.mark.parametrize(
    "text", ["at,name\nyesterday,one\n", "when,what\n1,2\n", "no marks\n", '{"at": 1}\n', "{nonsense\n"]
)
def test_a_mark_that_cannot_be_read_is_an_error_that_names_its_line(text: str, tmp_path: Path) -> None:
    path = tmp_path / "deploys"
    path.write_text(text)
    with pytest.raises(JobFailed, match=r"deploys, line [12]: a mark has"):
        read_deploys(str(path))
