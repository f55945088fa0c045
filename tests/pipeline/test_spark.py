"""The session that jobs run in."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock.pipeline.spark import SMALL_BYTES_MAX, NoSpark, open_session, settings_for
from tests.pipeline.rows import at, history
from tests.pipeline.test_java import fake_java


def test_times_of_a_session_are_in_utc(spark: SparkSession) -> None:
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"


def test_a_machine_without_java_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("JAVA_HOME", raising=False)

    with pytest.raises(NoSpark, match="apt-get install openjdk-17-jre-headless"):
        open_session(master="local[1]", name="nowhere")


def test_the_id_of_a_row_is_the_one_that_rest_shows(spark: SparkSession) -> None:
    rows = history(spark, [{"number": 5, "sent_tier": 1, "queue_id": 18, "settled_at": at(7)}])

    assert [row.id for row in rows.collect()] == ["12-29"]


def test_a_machine_with_an_old_java_is_told_so_before_spark_starts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fake_java(tmp_path, 'openjdk version "11.0.2" 2019-01-15')
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)

    with pytest.raises(NoSpark, match="is Java 11"):
        open_session(master="local[1]", name="nowhere")


def test_a_small_folder_is_read_by_a_java_that_compiles_quickly(tmp_path: Path) -> None:
    (tmp_path / "messages").mkdir()
    file = tmp_path / "messages" / "a.parquet"
    file.write_bytes(b"PAR1")
    assert "TieredStopAtLevel=1" in settings_for(str(tmp_path))["spark.driver.extraJavaOptions"]

    with file.open("r+b") as large:
        large.truncate(SMALL_BYTES_MAX + 1)
    assert settings_for(str(tmp_path)) == {}
    assert settings_for("http://127.0.0.1:8080") == settings_for("s3a://bucket/archive") == {}
