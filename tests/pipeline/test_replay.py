"""`replay`: settled messages are sent once more, and only once."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from penstock.pipeline import replay
from penstock.pipeline.job import JobFailed, Silent
from penstock.pipeline.locations import HistoryLocation
from penstock.pipeline.replay import (
    Choice,
    ReplayOptions,
    chosen,
    messages,
    once_each,
    read_signatures,
    too_large,
    with_signatures,
    without_sent,
)
from penstock.pipeline.staging import Target
from tests.pipeline.archived import archive
from tests.pipeline.rows import at, history
from tests.pipeline.sending import held, make_queue, running, take_all


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running(tmp_path_factory.mktemp("server")) as found:
        yield found


def test_a_message_is_made_of_its_last_row_that_has_a_body(spark: SparkSession) -> None:
    buried = {"number": 0, "outcome": "buried", "data": b"zero", "attributes": '{"tenant":"north"}', "group": "g"}
    rows = history(
        spark,
        [
            buried,
            buried
            | {"queue": "orders.dead", "queue_id": 2, "first_queue": 1, "outcome": "purged", "settled_at": at(9)},
            {"number": 1, "data": b"one", "tier": 0, "sent_tier": 2, "sent_at": at(-5)},
            {"number": 2, "data": b"two", "attributes": '{"replayed-from":"1-9","a":"\\"replayed-from\\":\\"x\\""}'},
            {"number": 3, "data": b"three", "attributes": '{"a":1,"replayed-from":"1-9"}'},
            {"number": 4},
            {"number": 5, "data": b"five", "attributes": "{}", "queue": "gone", "queue_id": 7},
            {"number": 6, "data": b"much too large"},
        ],
    )

    found = too_large(messages(once_each(rows)), {"orders": 10}).collect()

    told = [
        (row["queue"], row["from_queue"], row["data"], row["priority"], row["group"], row["reason"]) for row in found
    ]
    assert told == [
        ("orders", "orders", b"one", 0, None, None),
        ("orders", "orders.dead", b"zero", 2, "g", None),
        ("orders", "orders", b"two", 2, None, None),
        ("orders", "orders", b"three", 2, None, None),
        ("orders", "orders", None, 2, None, "body not kept"),
        ("orders", "orders", b"much too large", 2, None, "too large for its queue"),
        ("gone", "gone", b"five", 2, None, "its queue is gone"),
    ]
    attributes = {row["id"]: json.loads(row["attributes"]) for row in found}
    assert attributes["1-2"] == {"tenant": "north", "replayed-from": "1-2"}
    assert attributes["1-a"] == {"replayed-from": "1-a"}
    assert attributes["1-12"] == {"a": '"replayed-from":"x"', "replayed-from": "1-12"}
    assert attributes["1-1a"] == {"a": 1, "replayed-from": "1-1a"}
    assert attributes["7-2a"] == {"replayed-from": "7-2a"}


def test_messages_are_chosen_by_outcome_attribute_condition_and_signature(spark: SparkSession) -> None:
    rows = history(
        spark,
        [
            {"outcome": "buried", "error": "timeout 1", "attributes": '{"a.b":"x"}'},
            {"outcome": "buried", "error": "timeout 2", "attributes": '{"a":{"b":"x"}}'},
            {"outcome": "acked", "attributes": '{"a.b":"x"}'},
            {"outcome": "buried", "error": "no such customer"},
        ],
    )
    wanted = spark.createDataFrame([("timeout",), ("timeout",)], "signature STRING")

    def numbers(found: DataFrame) -> list[int]:
        return sorted(row["number"] for row in found.select("number").collect())

    assert numbers(chosen(rows, Choice(outcomes=["buried"], attributes={"a.b": "x"}))) == [0]
    assert numbers(chosen(rows, Choice(where="error LIKE 'timeout%' AND number > 0"))) == [1]
    assert numbers(with_signatures(_signed(rows), wanted)) == [0, 1]


def test_what_a_replay_has_made_is_not_replayed_by_it(spark: SparkSession) -> None:
    rows = history(
        spark,
        [
            {"number": 0},
            {"number": 1, "attributes": '{"replayed-from":"1-2"}'},
            {"number": 2, "attributes": '{"replayed-from":"9-9"}'},
            {"number": 3, "attributes": '{"a":"1-2"}'},
        ],
    )
    sent = spark.createDataFrame([("1-2",), ("1-2",)], "id STRING")

    assert sorted(row["number"] for row in without_sent(rows, sent).collect()) == [2, 3]


def _signed(rows: DataFrame) -> DataFrame:
    return rows.withColumn("signature", f.regexp_replace("error", " [0-9]+$", ""))


def test_a_replay_sends_what_it_chose_once_however_often_it_runs(spark: SparkSession, url: str, tmp_path: Path) -> None:
    make_queue(url, "orders")
    failed: dict[str, Any] = {"outcome": "buried", "error": "timeout 7", "group": "g", "tier": 1}
    bodies = [b"0", b"1", b"\xff"]
    rows: list[dict[str, Any]] = [failed | {"data": body} for body in bodies]
    # The last error of a message stays with it when it is acked in the end.
    retried = {"outcome": "acked", "error": "timeout 7", "data": b"retried"}
    rows += [retried, failed, {"data": b"elsewhere", "queue": "other", "queue_id": 3} | failed]
    signatures = tmp_path / "signatures.json"
    told = ("timeout <n>", "timeout <n> | JSON number", "timeout <n> | binary, below 1 KiB")
    signatures.write_text(json.dumps({"version": 1, "signatures": [{"id": "x", "signature": each} for each in told]}))
    given = ReplayOptions(
        place=HistoryLocation(where=archive(history(spark, rows), tmp_path / "archive"), queues=["orders"]),
        target=Target(url=url, wait_s_max=5),
        work=str(tmp_path / "work"),
        job="fix-42",
        signatures=str(signatures),
    )

    dry = replay.run(spark, replace(given, is_dry_run=True), Silent())
    assert (dry.figures["would_send"], dry.figures["unsendable"], held(url, "orders")) == (3, 1, 0)
    assert [list(row) for row in dry.tables[0].rows] == [["orders", "buried", 3]]
    assert [list(row) for row in dry.tables[1].rows] == [["orders", "buried", "body not kept", 1]]
    assert [row[2] for row in dry.tables[2].rows] == ["0", "1", "0xff"]

    first = replay.run(spark, given, Silent())
    second = replay.run(spark, given, Silent())

    assert (first.figures["sent"], second.figures["sent"]) == (3, 0)
    found = take_all(url, "orders")
    sent = [(each.body, each.group, each.priority, each.attributes["replayed-from"]) for each in found]
    assert sorted(sent) == [(body, "g", "HIGH", f"1-{number * 8 + 1:x}") for number, body in enumerate(bodies)]


def test_a_replay_that_cannot_work_says_why(spark: SparkSession, tmp_path: Path) -> None:
    nowhere = Target(url="http://127.0.0.1:9")
    given = ReplayOptions(
        place=HistoryLocation(where="x"), target=nowhere, work=str(tmp_path), job="a", into="topic:orders"
    )

    for said, told in (
        ({}, "topic:orders is a topic, not a queue: name it with --topic orders"),
        ({"topic": "orders"}, "give either --target-queue or --topic"),
        (
            {"topic": "orders", "into": "", "mapping": {"priority": "1"}},
            "--map priority: there are value, key, headers",
        ),
        ({"into": "", "mapping": {"key": "id"}}, "--map is for --topic"),
        ({"into": "", "choice": Choice(outcomes=["lost"])}, "--outcome lost: no message ends so; they are acked, bur"),
        ({"into": "", "place": HistoryLocation(where="x", since="noon")}, "'noon' is no time: write it as 2026-"),
    ):
        with pytest.raises(JobFailed, match=told):
            replay.run(spark, replace(given, **said), Silent())
    (tmp_path / "bad.json").write_text('{"groups": []}')
    (tmp_path / "none.json").write_text('{"signatures": []}')
    with pytest.raises(JobFailed, match="is not a file of signatures"):
        read_signatures(str(tmp_path / "bad.json"))
    with pytest.raises(JobFailed, match="has no signatures"):
        read_signatures(str(tmp_path / "none.json"))
