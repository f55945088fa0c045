"""`load`: files into a queue, once, and what cannot go is put aside."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from penstock.pipeline.job import JobFailed, Silent
from penstock.pipeline.load import job as load
from penstock.pipeline.load.files import format_of
from penstock.pipeline.load.job import LoadOptions
from penstock.pipeline.load.rows import CORRUPT, FILE, ROW, Bounds, checked, mapped
from penstock.pipeline.staging import Target, open_staging
from tests.pipeline.sending import bodies, held, make_queue, running, take_all

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running(tmp_path_factory.mktemp("server")) as found:
        yield found


def options(url: str, queue: str, folder: Path, *paths: Path, **said: Any) -> LoadOptions:
    return LoadOptions(
        paths=[str(path) for path in paths],
        target=Target(url=url, wait_s_max=5),
        queue=queue,
        work=str(folder / "work"),
        now=NOW,
        **said,
    )


def test_a_row_that_cannot_be_sent_has_its_reason_beside_it(spark: SparkSession) -> None:
    wrong = [
        ("high", "1.5", "g", '{"a": 1, "b": "x", "c": true, "d": 1.5}', "3", None),
        ("urgent", None, None, None, None, "unknown priority"),
        (None, "soon", None, None, None, "bad delay"),
        (None, "-1", None, None, None, "bad delay"),
        (None, "NaN", None, None, None, "bad delay"),
        (None, "7200", None, None, None, "bad delay"),
        (None, None, "g" * 129, None, None, "group too long"),
        (None, None, None, "{not json", None, "bad attributes"),
        (None, None, None, '{"a": {}}', None, "bad attributes"),
        (None, None, None, '{"a": null}', None, "bad attributes"),
        (None, None, None, "[1]", None, "bad attributes"),
        (None, None, None, "{'a': 1}", None, "bad attributes"),
        (None, None, None, "{}", None, None),
        (None, None, None, None, "0", "bad max_deliveries"),
    ]
    rows: list[Any] = [
        (f"{number:02}", *row[:5], f"row {number}", "file.csv", None) for number, row in enumerate(wrong)
    ]
    rows.append((None, None, None, None, None, None, "row 14", "file.csv", None))
    rows.append(("x" * 11, None, None, None, None, None, "row 15", "file.csv", None))
    rows.append(("16", None, None, None, None, None, "row 16", "file.csv", "as it was"))
    names = ["body", "priority", "delay", "group", "attributes", "max_deliveries"]
    frame = spark.createDataFrame(rows, ", ".join(f"`{name}` STRING" for name in [*names, ROW, FILE, CORRUPT]))

    bounds = Bounds(now=NOW, body_bytes_max=10, delay_s_max=3_600)
    found = checked(mapped(frame, {"data": "body"}), bounds, queue="orders").collect()

    expected = [row[5] for row in wrong] + ["no data", "too large", "malformed row"]
    assert [row["reason"] for row in found] == expected
    assert found[0].asDict() == {
        "queue": "orders",
        "data": b"00",
        "priority": 1,
        "delay": 1.5,
        "group": "g",
        "attributes": '{"a": 1, "b": "x", "c": true, "d": 1.5}',
        "max_deliveries": 3,
        "reason": None,
        "file": None,
        "row": None,
    }
    assert (found[1]["row"], found[1]["file"], found[16]["row"]) == ("row 1", "file.csv", "as it was")


def test_files_are_loaded_once_and_bad_rows_are_put_aside(spark: SparkSession, url: str, tmp_path: Path) -> None:
    make_queue(url, "loaded", max_message_bytes=100)
    lines = ['{"n": 1, "level": "high"}', '{"n": 2, "level": "odd"}', "{broken", "", '{"n": 3, "level": null}']
    (tmp_path / "a.jsonl").write_text("\n".join(lines) + "\n")
    (tmp_path / "b.csv").write_text("level,n\nlow,4\nlow,5,6\n")
    (tmp_path / "c.csv").write_text("n,level\n7,bulky\n")
    (tmp_path / "d.csv").write_text("")
    said = {"mapping": {"priority": "level"}, "id_column": "n", "rejects": str(tmp_path / "rejects")}
    given = options(url, "loaded", tmp_path, tmp_path / "*.*", **said)

    dry = load.run(spark, LoadOptions(**{**_said(given), "is_dry_run": True}), Silent())
    assert (dry.figures["would_send"], dry.figures["rejected"], held(url, "loaded")) == (3, 4, 0)

    outcome = load.run(spark, given, Silent())

    assert (outcome.figures["sent"], outcome.figures["rejected"], outcome.figures["read"]) == (3, 4, 7)
    assert [list(row) for row in outcome.tables[0].rows] == [["malformed row", 2], ["unknown priority", 2]]
    assert outcome.written == [str(tmp_path / "rejects" / "load-loaded" / "000001")]
    rejected = [
        json.loads(line) for path in Path(outcome.written[0]).glob("*.json") for line in path.read_text().splitlines()
    ]
    assert {(Path(row["file"]).name, row["reason"], row["row"]) for row in rejected} == {
        ("a.jsonl", "unknown priority", lines[1]),
        ("a.jsonl", "malformed row", "{broken"),
        ("b.csv", "malformed row", "low,5,6"),
        ("c.csv", "unknown priority", '{"n":"7","level":"bulky"}'),
    }
    again = load.run(spark, given, Silent())
    assert (again.figures["sent"], again.figures["skipped_files"]) == (0, 4)
    assert sorted((each.body, each.priority) for each in take_all(url, "loaded")) == [
        (b'{"level":"low","n":"4"}', "LOW"),
        (lines[0].encode(), "HIGH"),
        (lines[4].encode(), "NORMAL"),
    ]


def test_a_line_with_more_than_one_json_value_is_rejected(spark: SparkSession, url: str, tmp_path: Path) -> None:
    make_queue(url, "single")
    good = ['{"n": 1}', '  {"n": {"a": [1, {"b": "}{"}]}}  ', '{"n": "a, b"}']
    bad = ['{"n": 2} {"n": 3}', '{"n": 4},{"n": 5}', '{"n": 6},', '{"n": 7}]', '{"n": 8} and more']
    (tmp_path / "lines.jsonl").write_text("\n".join(good + bad))
    outcome = load.run(
        spark, options(url, "single", tmp_path, tmp_path / "lines.jsonl", rejects=str(tmp_path / "rejects")), Silent()
    )

    assert [list(row) for row in outcome.tables[0].rows] == [["malformed row", len(bad)]]
    rejected = [
        json.loads(line) for path in Path(outcome.written[0]).glob("*.json") for line in path.read_text().splitlines()
    ]
    assert sorted(row["row"] for row in rejected) == sorted(bad)
    assert sorted(bodies(url, "single")) == sorted(line.encode() for line in good)


def test_a_load_that_stopped_midway_is_completed_by_the_next_run(spark: SparkSession, url: str, tmp_path: Path) -> None:
    make_queue(url, "resumed", queue_size=10)
    spark.range(0, 12, 1, 1).selectExpr("CAST(id AS STRING) AS data").write.parquet(str(tmp_path / "in.parquet"))
    slow = Target(url=url, rate=8, wait_s_max=0)
    given = LoadOptions(**{**_said(options(url, "resumed", tmp_path, tmp_path / "in.parquet")), "target": slow})

    with pytest.raises(JobFailed, match=r"queue_full.*Run the job again to go on where it stopped"):
        load.run(spark, given, Silent())
    first = bodies(url, "resumed")
    assert 0 < len(first) < 12

    outcome = load.run(spark, given, Silent())
    assert (outcome.figures["resumed"], outcome.figures["skipped_files"]) == (12, 1)
    assert sorted(first + bodies(url, "resumed")) == sorted(str(number).encode() for number in range(12))


def test_a_load_that_cannot_work_says_why_at_once(spark: SparkSession, url: str, tmp_path: Path) -> None:
    make_queue(url, "strict")
    (tmp_path / "a.csv").write_text("n\n1\n")
    for queue, said, told in (
        ("nowhere", {}, "404 queue_not_found"),
        ("topic:orders", {}, "topic:orders is a topic, not a queue: name it with --topic orders"),
        ("strict", {"topic": "events"}, "give --queue or --topic, and not both"),
        ("", {}, "give --queue or --topic, and not both"),
        ("", {"topic": "events", "id_column": "n"}, "--id: a topic knows no dedup ids; .* --map key=n"),
        ("", {"topic": "events", "mapping": {"data": "n"}}, "no column of a record is called so; there are value, key"),
        ("", {"topic": "events"}, "404 topics_disabled"),
        ("strict", {"mapping": {"body": "n"}}, "--map body: no column of a message is called so; there are data"),
        ("strict", {"mapping": {"data": "missing"}}, "the files do not fit the mapping.*missing"),
        ("strict", {"mapping": {"data": "substr(n"}}, "the files do not fit the mapping: .*PARSE_SYNTAX_ERROR"),
        ("strict", {"form": "xml"}, "--format is 'xml'; it is one of parquet, csv, json"),
        ("strict", {"job": "../up"}, "the job is called '../up'"),
    ):
        with pytest.raises(JobFailed, match=told):
            load.run(spark, options(url, queue, tmp_path, tmp_path / "a.csv", **said), Silent())
    (tmp_path / "case.jsonl").write_text('{"n": 1, "N": 2}\n')
    with pytest.raises(JobFailed, match=r"`n` already exists.* say --conf spark.sql.caseSensitive=true"):
        load.run(spark, options(url, "strict", tmp_path, tmp_path / "case.jsonl"), Silent())
    (tmp_path / "empty.csv").write_text("")
    with pytest.raises(JobFailed, match=r"empty.csv is empty: CSV begins with a line that names the columns"):
        load.run(spark, options(url, "strict", tmp_path, tmp_path / "empty.csv"), Silent())
    with pytest.raises(JobFailed, match="there is no file"):
        load.run(spark, options(url, "strict", tmp_path, tmp_path / "none.csv"), Silent())
    with (
        open_staging(spark, str(tmp_path / "work"), "load-strict"),
        pytest.raises(JobFailed, match="is running already"),
    ):
        load.run(spark, options(url, "strict", tmp_path, tmp_path / "a.csv"), Silent())
    with pytest.raises(JobFailed, match=r"the ending of a\.dat says no format"):
        format_of("a.dat", "")


def _said(given: LoadOptions) -> dict[str, Any]:
    return {name: getattr(given, name) for name in LoadOptions.__dataclass_fields__}
