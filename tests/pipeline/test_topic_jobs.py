"""`load` and `replay` into a topic: each row and each message once, and what cannot go is told."""

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from penstock.core.routes import partition_of
from penstock.pipeline import replay
from penstock.pipeline.job import Silent
from penstock.pipeline.load import job as load
from penstock.pipeline.load.job import LoadOptions
from penstock.pipeline.load.rows import CORRUPT, FILE, ROW, RecordBounds, checked_records, mapped
from penstock.pipeline.locations import HistoryLocation
from penstock.pipeline.replay import Choice, ReplayOptions, once_each, records, refused_by_topic
from penstock.pipeline.staging import Target
from tests.kafka.brokers import Broker
from tests.kafka.librdkafka import create
from tests.pipeline.archived import archive
from tests.pipeline.rows import at, history
from tests.pipeline.topics import consumed

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(tmp_path_factory.mktemp("topics") / "data") as found:
        yield found
        assert found.stop() == 0


def test_a_row_that_cannot_be_a_record_has_its_reason_beside_it(spark: SparkSession) -> None:
    wrong: list[tuple[Any, ...]] = [
        ("a", "v", '{"source": "shop", "n": 1}', "2", "2026-03-01T11:00:00Z", None),
        ("a", None, None, None, None, None),
        (None, None, None, None, None, "no value and no key"),
        (None, "v", None, None, None, "no key"),
        ("a", "v", "not json", None, None, "bad headers"),
        ("a", "v", None, "3", None, "bad partition"),
        ("a", "v", None, "first", None, "bad partition"),
        ("a", "v", None, None, "soon", "bad timestamp"),
        ("a", "v", None, None, "2026-03-01T14:00:00Z", "bad timestamp"),
        ("a", "v" * 200, None, None, None, "too large"),
        ("a", "v" * 90, json.dumps({"long": "h" * 100}), None, None, "too large"),
    ]
    rows = [(*row[:5], f"row {number}", "file.csv", None) for number, row in enumerate(wrong)]
    rows.append(("a", "v", None, None, None, "row", "file.csv", "as it was"))
    names = ["customer", "body", "headers", "partition", "timestamp", ROW, FILE, CORRUPT]
    frame = spark.createDataFrame(rows, ", ".join(f"`{name}` STRING" for name in names)).coalesce(1)

    bounds = RecordBounds(now=NOW, partitions=3, batch_bytes_max=250, is_compacted=True)
    given = mapped(
        frame, {"key": "customer", "value": "body"}, names=("value", "key", "headers", "partition", "timestamp")
    )
    found = checked_records(given, bounds).collect()

    assert [row["reason"] for row in found] == [row[5] for row in wrong] + ["malformed row"]
    first = found[0].asDict(recursive=True)
    assert (first["key"], first["value"], first["to_partition"]) == (b"a", b"v", 2)
    assert first["headers"] == [{"key": "source", "value": b"shop"}, {"key": "n", "value": b"1"}]
    assert (found[2]["row"], found[2]["file"], found[-1]["row"]) == ("row 2", "file.csv", "as it was")


def test_files_are_loaded_into_a_topic_once(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    create(broker.servers, "loaded", 3)
    lines = [json.dumps({"customer": f"c{number % 5}", "n": number}) for number in range(20)]
    (tmp_path / "in.jsonl").write_text("\n".join([*lines, "{broken"]) + "\n")
    given = LoadOptions(
        paths=[str(tmp_path / "in.jsonl")],
        target=Target(url=broker.url, wait_s_max=5),
        topic="loaded",
        work=str(tmp_path / "work"),
        now=NOW,
        mapping={"key": "customer", "headers": "map('source', 'shop')"},
    )

    dry = load.run(spark, replace(given, is_dry_run=True), Silent())
    assert (dry.figures["would_send"], dry.figures["rejected"], consumed(broker, "loaded")) == (20, 1, [])
    first = load.run(spark, given, Silent())
    again = load.run(spark, given, Silent())

    assert (first.figures["sent"], first.figures["rejected"], again.figures["sent"]) == (20, 1, 0)
    found = consumed(broker, "loaded")
    assert sorted(each.value().decode() for each in found) == sorted(lines)
    assert all(each.partition() == partition_of(each.key(), 3) for each in found)
    assert all(each.headers() == [("source", b"shop")] for each in found)
    # What has one key is in the order of the file.
    numbers = [json.loads(each.value())["n"] for each in found if each.key() == b"c3"]
    assert numbers == [3, 8, 13, 18]


def test_settled_messages_become_records_with_where_they_come_from(spark: SparkSession) -> None:
    rows = history(
        spark,
        [
            {"data": b"one", "group": "g", "attributes": '{"tenant":"north","n":1,"replayed-from":"1-9"}'},
            {"data": b"two", "sent_at": at(-5)},
            {"group": "g"},
            {"data": b"x" * 200, "group": "g"},
        ],
    )

    made = records(once_each(rows), {"timestamp": "sent_at"}, topic="events")
    found = [
        row.asDict(recursive=True) for row in refused_by_topic(made, batch_bytes_max=250, is_compacted=True).collect()
    ]

    told = [(row["queue"], row["from_queue"], row["key"], row["value"], row["reason"]) for row in found]
    assert told == [
        ("events", "orders", None, b"two", "no key, and the topic is compacted"),
        ("events", "orders", b"g", b"one", None),
        ("events", "orders", b"g", None, "body not kept"),
        ("events", "orders", b"g", b"x" * 200, "too large for the topic"),
    ]
    assert {pair["key"]: pair["value"] for pair in found[1]["headers"]} == {
        "tenant": b"north",
        "n": b"1",
        "replayed-from": b"1-2",
    }
    assert [pair["key"] for pair in found[0]["headers"]] == ["replayed-from"]


def test_a_replay_into_a_topic_sends_each_message_once(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    create(broker.servers, "replayed", 2)
    rows: list[dict[str, Any]] = [{"data": b"%d" % number, "group": "g"} for number in range(5)]
    given = ReplayOptions(
        place=HistoryLocation(where=archive(history(spark, rows), tmp_path / "archive")),
        target=Target(url=broker.url, wait_s_max=5),
        work=str(tmp_path / "work"),
        job="to-events",
        choice=Choice(outcomes=["acked"]),
        topic="replayed",
        mapping={"key": "concat(queue, '/', `group`)"},
    )

    sent = [replay.run(spark, given, Silent()).figures["sent"] for _ in range(2)]

    assert sent == [5, 0]
    found = consumed(broker, "replayed")
    assert [(each.key(), each.value(), each.headers()) for each in found] == [
        (b"orders/g", b"%d" % number, [("replayed-from", b"1-%x" % (number * 8 + 2))]) for number in range(5)
    ]
