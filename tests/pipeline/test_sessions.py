"""The session that jobs run in."""

import pytest
from pyspark.sql import SparkSession

from penstock.pipeline.sessions import NoSpark, open_session
from tests.pipeline.rows import at, history


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
