"""`df.write.format("penstock")` and `writeStream`, to a real server."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.readwriter import DataFrameWriter
from pyspark.sql.types import StringType, StructField, StructType

from penstock.pipeline.options import BadOption, write_options
from penstock.pipeline.sink.partition import WriteFailed, Written, write_partition
from penstock.pipeline.sink.writer import MessageStreamWriter, MessageWriter, check_name_of_batch
from tests.pipeline.sending import bodies, held, make_queue, running, take_all


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running(tmp_path_factory.mktemp("server")) as found:
        yield found


def numbers(spark: SparkSession, count: int, partitions: int = 2) -> DataFrame:
    return spark.range(0, count, 1, partitions).select(f.format_string("%06d", "id").alias("data"))


def writing(rows: DataFrame, url: str, queue: str, **options: Any) -> DataFrameWriter:
    said = {"url": url, "queue": queue, "job": "nightly"} | {name: str(value) for name, value in options.items()}
    return rows.write.format("penstock").mode("append").options(**{name: text for name, text in said.items() if text})


def expected(count: int) -> list[bytes]:
    return [b"%06d" % number for number in range(count)]


def test_every_column_of_a_row_arrives_with_its_message(spark: SparkSession, url: str) -> None:
    make_queue(url, "columns")
    make_queue(url, "other")
    late = datetime.now(UTC) + timedelta(days=1)
    rows = spark.createDataFrame(
        [
            ("columns", "a", "high", None, None, "g", {"tenant": "north"}, "d1", 3),
            ("columns", "a again", None, None, None, None, None, "d1", None),
            ("other", "later", "4", 3600.0, None, None, None, None, None),
            ("other", "at a time", None, None, late, None, None, None, None),
            ("other", "", "BACKGROUND", None, None, None, {}, None, None),
        ],
        "queue STRING, data STRING, priority STRING, delay DOUBLE, visible_at TIMESTAMP, `group` STRING, "
        "attributes MAP<STRING, STRING>, dedup_id STRING, max_deliveries INT",
    )

    writing(rows.coalesce(1), url, "").save()

    (first,) = take_all(url, "columns")
    told = (first.body, first.priority, first.group, first.attributes)
    assert told == (b"a", "HIGH", "g", {"tenant": "north"})
    assert [(each.body, each.tier) for each in take_all(url, "other")] == [(b"", 4)]
    assert held(url, "other") == 2


def test_a_task_that_is_tried_again_and_a_job_that_is_run_again_add_nothing(
    spark: SparkSession, url: str, tmp_path: Path
) -> None:
    make_queue(url, "retried")
    mark = str(tmp_path / "failed-once")

    def fail_once_after_sending(batches: Iterator[Any]) -> Iterator[Any]:
        yield from batches
        # By now most of the partition is sent.
        if not Path(mark).exists():
            Path(mark).touch()
            raise RuntimeError("a task fails after it has sent")

    rows = numbers(spark, 200).mapInArrow(fail_once_after_sending, "data STRING")
    for _ in range(2):
        writing(rows, url, "retried", messagesPerSend=7, manifest=tmp_path / "manifest").save()

    assert Path(mark).exists()
    assert bodies(url, "retried") == expected(200)
    done = json.loads((tmp_path / "manifest" / "nightly" / "write" / "done.json").read_text())
    assert (done["messages"], done["chunks"], sorted(done["partitions"])) == (200, 30, ["0", "1"])
    assert not list((tmp_path / "manifest").rglob("*.jsonl"))


def test_a_full_queue_fails_the_write_after_a_while_and_the_next_run_sends_the_rest(
    spark: SparkSession, url: str, tmp_path: Path
) -> None:
    make_queue(url, "small", queue_size=30)
    rows = numbers(spark, 50, partitions=1).withColumn("priority", f.lit("critical"))

    with pytest.raises(PySparkException, match=r"given up after .* queue_full") as failed:
        writing(rows, url, "small", manifest=tmp_path, messagesPerSend=10, maxWait=0.2).save()
    assert "30 were sent before; job 'nightly' will not send them again" in str(failed.value)
    (aborted,) = tmp_path.rglob("aborted-*.json")
    assert json.loads(aborted.read_text())["sent_messages"] == 30

    assert bodies(url, "small") == expected(30)
    writing(rows, url, "small", manifest=tmp_path, messagesPerSend=10, maxWait=30).save()
    assert bodies(url, "small") == expected(50)[30:]


def task(url: str, queue: str, count: int, **options: Any) -> Written:
    """What a task of a write does, without Spark around it."""
    said = {"url": url, "queue": queue, "job": "nightly"} | {name: str(value) for name, value in options.items()}
    rows = pa.RecordBatch.from_pydict({"data": [f"{number:06}" for number in range(count)]})
    return write_partition([rows], write_options(said), partition=0, batch=None, run="run")


def test_a_server_remembers_a_job_without_a_manifest(url: str) -> None:
    make_queue(url, "remembered")
    # More chunks than a server remembers of one sender.
    for _ in range(2):
        assert task(url, "remembered", 150, messagesPerSend=2).chunks == 75
    assert held(url, "remembered") == 150
    task(url, "remembered", 4, messagesPerSend=2, delivery="at-least-once", job="")
    assert held(url, "remembered") == 154


def test_other_rows_under_the_name_of_a_job_are_never_dropped(url: str, tmp_path: Path) -> None:
    make_queue(url, "changed")
    task(url, "changed", 20, manifest=tmp_path)

    with pytest.raises(WriteFailed, match="input of job 'nightly' changed or is not in a fixed order"):
        task(url, "changed", 21, manifest=tmp_path)
    assert held(url, "changed") == 20
    # Without a manifest it cannot be told; then they are other messages.
    task(url, "changed", 21)
    assert held(url, "changed") == 41


def test_a_run_that_is_killed_between_two_chunks_is_completed_by_the_next(url: str, tmp_path: Path) -> None:
    make_queue(url, "killed")
    options = {"url": url, "queue": "killed", "job": "nightly", "manifest": tmp_path, "messagesPerSend": 10}
    given = json.dumps({name: str(value) for name, value in options.items()})
    killed = subprocess.run([sys.executable, "-c", _KILLED, given], check=False, stderr=subprocess.PIPE)
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
    assert held(url, "killed") == 40

    written = task(url, "killed", 100, manifest=tmp_path, messagesPerSend=10)

    # The fourth chunk was answered, and the answer was not yet on record: it went once more, and made nothing.
    assert (written.skipped, written.sent) == (30, 70)
    assert bodies(url, "killed") == expected(100)


_KILLED = """
import json, os, signal, sys
import pyarrow
from penstock.pipeline.options import write_options
from penstock.pipeline.sink.partition import write_partition

def rows():
    for start in range(0, 100, 5):
        if start == 40:
            os.kill(os.getpid(), signal.SIGKILL)
        yield pyarrow.RecordBatch.from_pydict({"data": [f"{number:06}" for number in range(start, start + 5)]})

write_partition(rows(), write_options(json.loads(sys.argv[1])), partition=0, batch=None, run="killed")
"""


def test_what_a_server_refuses_fails_with_its_words(url: str) -> None:
    make_queue(url, "refused", max_message_bytes=3)

    with pytest.raises(WriteFailed, match=r"413 message_too_large.*field messages\[0\].data, limit 3"):
        task(url, "refused", 3)
    with pytest.raises(WriteFailed, match="404 queue_not_found"):
        task(url, "nowhere", 3)
    assert held(url, "refused") == 0


def test_a_queue_is_not_overwritten_by_a_write() -> None:
    schema = StructType([StructField("data", StringType())])
    for writer in (MessageWriter, MessageStreamWriter):
        with pytest.raises(BadOption, match="a queue is not replaced"):
            writer({"url": "http://127.0.0.1:1", "queue": "orders", "job": "a"}, schema, is_overwrite=True)


def test_a_stream_sends_each_row_once_and_a_batch_that_is_repeated_adds_nothing(
    spark: SparkSession, url: str, tmp_path: Path
) -> None:
    make_queue(url, "streamed")
    (tmp_path / "in").mkdir()

    def run() -> None:
        rows = spark.readStream.schema("value STRING").text(str(tmp_path / "in")).withColumnRenamed("value", "data")
        query = (
            rows.writeStream.format("penstock")
            .options(url=url, queue="streamed", job="stream", manifest=str(tmp_path / "manifest"))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    for batch in range(2):
        lines = [f"{number:06}" for number in range(batch * 5, batch * 5 + 5)]
        (tmp_path / "in" / f"{batch}.txt").write_text("\n".join(lines))
        run()
    assert held(url, "streamed") == 10

    # As if the driver had been killed after sending the last batch, before Spark noted that it was done.
    for name in ("1", ".1.crc"):
        (tmp_path / "checkpoint" / "commits" / name).unlink()
    run()
    assert held(url, "streamed") == 10
    assert bodies(url, "streamed") == expected(10)
    folder = tmp_path / "manifest" / "stream"
    assert sorted(path.name for path in folder.iterdir()) == ["batch-0000000000", "batch-0000000001"]


def test_each_batch_of_foreach_batch_needs_a_name_of_its_own(spark: SparkSession, url: str, tmp_path: Path) -> None:
    make_queue(url, "ticks")
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "0.txt").write_text("tick")

    def send(rows: DataFrame, _batch: int) -> None:
        writing(rows, url, "ticks", job="ticks").save()

    rows = spark.readStream.schema("value STRING").text(str(tmp_path / "in")).withColumnRenamed("value", "data")
    query = rows.writeStream.foreachBatch(send).option("checkpointLocation", str(tmp_path / "checkpoint"))
    # The same row in a later batch would be taken for this one.
    with pytest.raises(
        PySparkException, match=r"option job is 'ticks' in batch 0 of foreachBatch: .*'ticks-\{batch_id"
    ):
        query.trigger(availableNow=True).start().awaitTermination()
    assert held(url, "ticks") == 0


def test_the_name_of_a_batch_has_its_number_and_a_write_outside_of_a_stream_needs_none() -> None:
    check_name_of_batch("orders", None)
    check_name_of_batch("orders-v2-17", "17")
    check_name_of_batch("", "17")
    with pytest.raises(BadOption, match=r"each batch needs its own, such as f'orders-7-\{batch_id\}'"):
        check_name_of_batch("orders-7", "17")
