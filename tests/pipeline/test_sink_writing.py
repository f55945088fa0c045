"""`df.write.format("penstock")` and `writeStream`, to a real server."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.readwriter import DataFrameWriter

from tests.pipeline.sending import bodies, make_queue, running, sent_count, take_all


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
    assert sent_count(url, "other") == 3


def test_a_task_that_is_tried_again_and_a_job_that_is_run_again_add_nothing(
    spark: SparkSession, url: str, tmp_path: Path
) -> None:
    for queue in ("remembered", "manifested"):
        make_queue(url, queue)
        mark = str(tmp_path / f"{queue}-failed-once")

        def fail_once_after_sending(batches: Iterator[Any], mark: str = mark) -> Iterator[Any]:
            yield from batches
            # By now most of the partition is sent.
            if not Path(mark).exists():
                Path(mark).touch()
                raise RuntimeError("a task fails after it has sent")

        rows = numbers(spark, 200).mapInArrow(fail_once_after_sending, "data STRING")
        manifest = tmp_path / "manifest" if queue == "manifested" else ""
        for _ in range(2):
            writing(rows, url, queue, messagesPerSend=7, manifest=manifest).save()
        assert Path(mark).exists()
        assert sent_count(url, queue) == 200
        assert bodies(url, queue) == expected(200)
    done = json.loads((tmp_path / "manifest" / "nightly" / "write" / "done.json").read_text())
    assert (done["messages"], done["chunks"], sorted(done["partitions"])) == (200, 30, ["0", "1"])
    assert not list((tmp_path / "manifest").rglob("*.jsonl"))


def test_changed_rows_under_the_same_job_are_refused(spark: SparkSession, url: str, tmp_path: Path) -> None:
    make_queue(url, "changed")
    writing(numbers(spark, 20), url, "changed", manifest=tmp_path).save()

    with pytest.raises(PySparkException, match="input of job 'nightly' changed or is not in a fixed order"):
        writing(numbers(spark, 21), url, "changed", manifest=tmp_path).save()
    writing(numbers(spark, 21), url, "changed", manifest=tmp_path, job="another").save()

    assert sent_count(url, "changed") == 41


def test_a_full_queue_is_waited_for_and_the_rest_is_sent_by_the_next_run(
    spark: SparkSession, url: str, tmp_path: Path
) -> None:
    make_queue(url, "small", queue_size=30)
    rows = numbers(spark, 50, partitions=1)

    with pytest.raises(PySparkException, match=r"given up after .* queue_full.* had sent 30 messages") as failed:
        writing(rows, url, "small", manifest=tmp_path, messagesPerSend=10, maxWait=0.2).save()
    assert "job 'nightly' will not send them again" in str(failed.value)
    (aborted,) = tmp_path.rglob("aborted-*.json")
    assert json.loads(aborted.read_text())["sent_messages"] == 30

    assert bodies(url, "small") == expected(30)
    writing(rows, url, "small", manifest=tmp_path, messagesPerSend=10, maxWait=30).save()
    assert bodies(url, "small") == expected(50)[30:]


def test_what_cannot_be_written_is_refused_before_anything_is_sent(spark: SparkSession, url: str) -> None:
    make_queue(url, "refused", message_bytes_max=3)
    rows = numbers(spark, 3, partitions=1)

    with pytest.raises(PySparkException, match="a queue is not replaced by a write"):
        writing(rows, url, "refused").mode("overwrite").save()
    with pytest.raises(PySparkException, match="no column of a write is called level; there are data"):
        writing(rows.withColumn("level", f.lit(1)), url, "refused").save()
    with pytest.raises(PySparkException, match=r"413 message_too_large.*field messages\[0\].data, limit 3"):
        writing(rows, url, "refused").save()
    with pytest.raises(PySparkException, match="404 queue_not_found"):
        writing(rows, url, "nowhere").save()
    assert sent_count(url, "refused") == 0


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
    assert sent_count(url, "streamed") == 10

    # As if the driver had been killed after sending the last batch, before Spark noted that it was done.
    for name in ("1", ".1.crc"):
        (tmp_path / "checkpoint" / "commits" / name).unlink()
    run()
    assert sent_count(url, "streamed") == 10
    assert bodies(url, "streamed") == expected(10)
    folder = tmp_path / "manifest" / "stream"
    assert sorted(path.name for path in folder.iterdir()) == ["batch-0000000000", "batch-0000000001"]
