"""Writing to a topic from Spark: each row once, where a Kafka client looks for it."""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from penstock.core.routes import partition_of
from penstock.pipeline.options import BadOption, write_options
from penstock.pipeline.sink.partition import WriteFailed, Written, write_partition
from penstock.pipeline.sink.send import Answered, SendFailed
from penstock.pipeline.sink.topic_chunks import REMEMBERED_MS, TopicChanged, TopicPlan, plan_write
from tests.kafka.brokers import Broker
from tests.kafka.librdkafka import create
from tests.pipeline.answering import HANGS_UP, answering, waiting
from tests.pipeline.topics import ask, consumed, held

STREAM_S_MAX = 120


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(tmp_path_factory.mktemp("topics") / "data") as found:
        yield found
        assert found.stop() == 0


def said(broker: Broker, topic: str, manifest: Path | None, **options: Any) -> dict[str, str]:
    usual = {"url": broker.url, "topic": topic, "job": "nightly", "manifest": manifest or "", "messagesPerSend": 10}
    return {name: str(value) for name, value in (usual | options).items() if value != ""}


class Stopped(Exception):
    """What a task sees that is killed."""


def batches(count: int, stop_after: int | None = None) -> Iterator[pa.RecordBatch]:
    for start in range(0, count, 5):
        if start == stop_after:
            raise Stopped
        names = [f"{number:04}" for number in range(start, min(start + 5, count))]
        yield pa.RecordBatch.from_pydict({"key": names, "value": names})


def task(options: dict[str, str], rows: Iterator[pa.RecordBatch], plan: TopicPlan | None = None) -> Written:
    """What a task of a write does, without Spark around it, and what its driver does before."""
    read = write_options(options)
    plan = plan or plan_write(read, is_stream=False)
    return write_partition(rows, read, partition=0, batch=None, run="run", plan=plan)


def facts(manifest: Path) -> list[Path]:
    return sorted(manifest.rglob("*.jsonl"))


def test_a_chunk_whose_answer_was_lost_is_sent_again_and_adds_nothing(broker: Broker, tmp_path: Path) -> None:
    create(broker.servers, "lost", 3)
    options = said(broker, "lost", tmp_path)
    with pytest.raises(WriteFailed, match=r"partition 0 had sent 40 messages.*in the manifest"):
        task(options, batches(100, stop_after=40))
    (path,) = facts(tmp_path)
    *kept, last = path.read_text().splitlines()
    assert json.loads(last)["fact"] == "sent"
    path.write_text("".join(line + "\n" for line in kept))

    written = task(options, batches(100))

    # The fourth chunk went once more.
    assert (written.skipped, written.sent) == (30, 70)
    assert sum(held(broker, "lost")) == 100
    found = consumed(broker, "lost")
    assert sorted(each.value() for each in found) == [b"%04d" % number for number in range(100)]
    assert all(each.partition() == partition_of(each.key(), 3) for each in found)
    assert len(Counter(each.partition() for each in found)) == 3


def test_a_job_keeps_to_the_partitions_it_began_with(broker: Broker, tmp_path: Path) -> None:
    create(broker.servers, "grown", 2)
    options = said(broker, "grown", tmp_path)
    with pytest.raises(WriteFailed):
        task(options, batches(60, stop_after=30))
    ask(broker, "PATCH", "/grown", {"partitions": 5})

    task(options, batches(60))

    assert held(broker, "grown")[2:] == [0, 0, 0]
    assert sum(held(broker, "grown")) == 60
    task(said(broker, "grown", tmp_path, job="another"), batches(60))
    assert all(held(broker, "grown"))


def test_a_job_that_is_run_again_after_days_goes_on_under_new_producers(broker: Broker, tmp_path: Path) -> None:
    create(broker.servers, "late", 1)
    options = said(broker, "late", tmp_path)
    with pytest.raises(WriteFailed):
        task(options, batches(60, stop_after=40))
    _age(tmp_path)

    plan = plan_write(write_options(options), is_stream=False)
    assert (len(plan.producers), plan.memory.generation) == (2, 1)
    assert task(options, batches(60)).skipped == 40
    assert held(broker, "late") == [60]
    # It is remembered which chunks the new ones have sent.
    assert task(options, batches(60)).sent == 0


def _age(manifest: Path) -> None:
    """Let everything on record have happened before a server may forget it."""
    for path in facts(manifest):
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        for line in lines:
            if "at_ms" in line:
                line["at_ms"] -= REMEMBERED_MS + 1
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))


@pytest.mark.parametrize(("in_doubt", "count"), [("send", 50), ("skip", 40)])
def test_a_chunk_that_the_server_has_forgotten_is_the_users_to_decide(
    broker: Broker, tmp_path: Path, in_doubt: str, count: int
) -> None:
    topic = f"doubt-{in_doubt}"
    create(broker.servers, topic, 1)
    options = said(broker, topic, tmp_path)
    with pytest.raises(WriteFailed):
        task(options, batches(60, stop_after=40))
    (path,) = facts(tmp_path)
    # As if the last chunk had never left the task.
    ask(broker, "DELETE", f"/{topic}")
    create(broker.servers, topic, 1)
    plan = json.loads((tmp_path / "nightly" / "topic.json").read_text())
    plan["topic_id"] = ask(broker, "GET", f"/{topic}")["topic_id"]
    (tmp_path / "nightly" / "topic.json").write_text(json.dumps(plan))
    task(said(broker, topic, None, job="", delivery="at-least-once"), batches(20))
    path.write_text("".join(line + "\n" for line in path.read_text().splitlines()[:-1]))
    _age(tmp_path)

    with pytest.raises(
        WriteFailed, match=r"chunk 3 .* was tried 12.0 hours ago and never answered.*Look into the topic"
    ):
        task(options, batches(60))
    assert held(broker, topic) == [20]
    task({**options, "inDoubt": in_doubt}, batches(60))
    assert held(broker, topic) == [count]


def test_a_producer_that_the_server_has_forgotten_stops_its_task_and_doubles_nothing(
    broker: Broker, tmp_path: Path
) -> None:
    create(broker.servers, "forgotten", 1)
    options = said(broker, "forgotten", tmp_path)
    with pytest.raises(WriteFailed):
        task(options, batches(60, stop_after=40))
    plan = plan_write(write_options(options), is_stream=False)
    # To the server, these producers are as good as forgotten: it has never heard of them.
    strange = replace(plan, producers=(plan.producers[0] + 5_000,))

    with pytest.raises(WriteFailed, match=r"409 producer_unknown.*field batches\[0\].producer_id.*run it again"):
        task(options, batches(60), strange)
    assert held(broker, "forgotten") == [40]

    task(options, batches(60))
    assert held(broker, "forgotten") == [60]
    assert len(plan_write(write_options(options), is_stream=False).producers) == 2


def test_a_write_says_what_a_topic_does_not_take(broker: Broker, tmp_path: Path) -> None:
    ask(broker, "POST", "", {"topic_name": "keyed", "cleanup": "compact"})
    keyless = [pa.RecordBatch.from_pydict({"value": ["a"]})]
    with pytest.raises(WriteFailed, match=r"topic keyed refuses it: 409 record_refused.*field batches\[0\]"):
        task(said(broker, "keyed", tmp_path), iter(keyless))
    assert task(said(broker, "keyed", tmp_path), batches(5)).sent == 5
    with pytest.raises(BadOption, match=r"option topic is 'nowhere': .* 404 topic_not_found"):
        plan_write(write_options(said(broker, "nowhere", tmp_path)), is_stream=False)
    with pytest.raises(TopicChanged, match="job 'nightly' has written to topic keyed, not lost: name another job"):
        plan_write(write_options(said(broker, "lost", tmp_path)), is_stream=False)
    ask(broker, "DELETE", "/keyed")
    create(broker.servers, "keyed", 1)
    with pytest.raises(TopicChanged, match="topic keyed was deleted and made again"):
        plan_write(write_options(said(broker, "keyed", tmp_path)), is_stream=False)


def test_records_that_may_have_arrived_are_sent_again_as_a_repeat() -> None:
    produced = (201, b'{"batches": [{"partition": 1, "offset": 7}]}')
    with answering((503, b"{}"), HANGS_UP, produced, (507, b"{}")) as asked:
        sending, _slept = waiting(asked.url)
        assert sending.produce("a b", [1], b"batch", is_repeat=False) == Answered("1@7", "1@7")
        with pytest.raises(SendFailed, match=r"topic events at .* given up") as failed:
            sending.produce("events", [1, 2], b"batches", is_repeat=True)
        sending.close()

    plain = "/api/topics/a%20b/records?partitions=1"
    assert asked.paths[:3] == [plain, plain, f"{plain}&repeat=true"]
    assert asked.paths[3] == "/api/topics/events/records?partitions=1,2&repeat=true"
    # Of several partitions, some may have their records.
    assert failed.value.is_unsure


def test_a_write_of_spark_that_is_tried_again_and_run_again_adds_nothing(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    create(broker.servers, "written", 3, retention_ms="-1")
    mark = str(tmp_path / "failed-once")
    at = datetime(2026, 3, 1, 12, tzinfo=UTC)

    def fail_once_after_sending(parts: Iterator[Any]) -> Iterator[Any]:
        yield from parts
        if not Path(mark).exists():
            Path(mark).touch()
            raise RuntimeError("a task fails after it has sent")

    headers = "headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
    schema = f"key STRING, value STRING, {headers}, partition INT, timestamp TIMESTAMP"
    number = f.col("id")
    rows = spark.range(0, 200, 1, 2).select(
        f.when(number % 4 != 0, f.format_string("%04d", "id")).alias("key"),
        f.when(number % 10 != 1, f.format_string("%04d", "id")).alias("value"),
        f.when(number == 7, f.array(f.struct(f.lit("a").alias("key"), f.lit(b"\xff").alias("value")))).alias("headers"),
        f.when(number < 3, number.cast("int")).alias("partition"),
        f.when(number % 2 == 0, f.lit(at)).alias("timestamp"),
    )
    given = rows.mapInArrow(fail_once_after_sending, schema)
    for _ in range(2):
        options = said(broker, "written", tmp_path / "manifest", messagesPerSend=20, compression="zstd")
        given.write.format("penstock").mode("append").options(**options).save()

    assert Path(mark).exists()
    assert sum(held(broker, "written")) == 200
    found = consumed(broker, "written")
    assert Counter(each.value() for each in found) == Counter(
        None if row % 10 == 1 else b"%04d" % row for row in range(200)
    )
    by_key = {each.key(): each for each in found if each.key() is not None}
    assert len(by_key) == 150
    placed = {key: each.partition() for key, each in by_key.items() if int(key) > 2}
    assert placed == {key: partition_of(key, 3) for key in placed}
    assert (by_key[b"0001"].partition(), by_key[b"0002"].partition()) == (1, 2)
    assert by_key[b"0007"].headers() == [("a", b"\xff")]
    assert by_key[b"0006"].timestamp()[1] == int(at.timestamp() * 1_000)
    assert by_key[b"0007"].timestamp()[1] > int(at.timestamp() * 1_000)
    done = json.loads((tmp_path / "manifest" / "nightly" / "write" / "done.json").read_text())
    assert (done["messages"], done["chunks"]) == (200, 10)


def test_a_stream_writes_each_row_once_and_takes_up_new_partitions_when_it_is_started_again(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    create(broker.servers, "streamed", 2)
    (tmp_path / "in").mkdir()

    def run() -> None:
        lines = spark.readStream.schema("value STRING").text(str(tmp_path / "in"))
        query = (
            lines.select(f.col("value").alias("key"), "value")
            .writeStream.format("penstock")
            .options(**said(broker, "streamed", tmp_path / "manifest", job="stream"))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(STREAM_S_MAX)

    (tmp_path / "in" / "0.txt").write_text("\n".join(f"{number:04}" for number in range(40)))
    run()
    ask(broker, "PATCH", "/streamed", {"partitions": 4})
    # As if the driver had been killed after sending the batch, and the manifest had not got to its end.
    for name in ("0", ".0.crc"):
        (tmp_path / "checkpoint" / "commits" / name).unlink()
    (tmp_path / "in" / "1.txt").write_text("\n".join(f"{number:04}" for number in range(40, 80)))
    run()

    found = consumed(broker, "streamed")
    assert sorted(each.key() for each in found) == [b"%04d" % number for number in range(80)]
    assert all(each.partition() == partition_of(each.key(), 2 if each.key() < b"0040" else 4) for each in found)
    plan = json.loads((tmp_path / "manifest" / "stream" / "topic.json").read_text())
    assert (plan["partitions"], len(plan["producers"])) == ([[0, 2], [1, 4]], 1)
