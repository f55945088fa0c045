"""The service with a real Spark: jobs when they are due, a failure that stops nothing else, and its end."""

import json
import socket
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any, Self
from urllib.request import urlopen

import pyarrow.dataset as ds  # type: ignore[import-untyped]
import pytest
from pyspark.sql import SparkSession

from bench.pipeline_data import write_history
from penstock.pipeline.job import JobFailed, Outcome
from penstock.pipeline.service.plan import Plan, read_plan
from penstock.pipeline.service.runner import Service, only_instance
from penstock.pipeline.service.status import PIPELINE_METRICS
from tests.waiting import wait_until

ROWS = 3_000
WITHIN_S = 600.0
FILE = """
[pipeline]
source = "{folder}/data"
archive = "{folder}/archive"
out = "{folder}/out"
listen = "127.0.0.1:0"
retry = "1s"
retry_max = "1s"

[jobs.quality]
every = "1s"
[jobs.triage]
deploys = "{folder}/missing.csv"
[jobs.skew]
from = "source"
[jobs.archive]
every = "1s"
[jobs.upkeep]
every = "1h"
keep_days = 36500
"""


class Told:
    """What a service says, and the address in it."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def __call__(self, text: str) -> None:
        self.lines.append(text)

    def has(self, *words: str) -> bool:
        return any(all(word in line for word in words) for line in self.lines)

    def get(self, path: str) -> str:
        (address,) = (line.rpartition(" ")[2] for line in self.lines if "status and metrics at" in line)
        with urlopen(f"{address}{path}") as answer:
            return str(answer.read().decode())

    def jobs(self) -> dict[str, Any]:
        return {each["name"]: each for each in json.loads(self.get("/status"))["jobs"]}


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    write_history(tmp_path / "data", ROWS, seed=1, rows_per_frame=250, with_bodies=False)
    (tmp_path / "pipeline.toml").write_text(FILE.format(folder=tmp_path))
    (tmp_path / "out").mkdir()
    return read_plan(tmp_path / "pipeline.toml")


class Serving:
    def __init__(self, spark: SparkSession, plan: Plan) -> None:
        self.told = Told()
        self.stopping = threading.Event()
        self.ended: list[Outcome] = []
        service = Service(spark, plan, tell=self.told, stopping=self.stopping)
        self._thread = threading.Thread(target=lambda: self.ended.append(service.serve()))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stopping.set()
        self._thread.join(WITHIN_S)


def test_jobs_go_on_beside_one_that_fails_and_a_restart_goes_on_from_what_was_done(
    spark: SparkSession, plan: Plan, tmp_path: Path
) -> None:
    with Serving(spark, plan) as serving:
        told = serving.told
        wait_until(lambda: told.has("quality:", f"{ROWS:,} rows") and told.has("triage failed (2)"), within_s=WITHIN_S)
        wait_until(lambda: told.has("skew:") and told.has("upkeep:"), within_s=WITHIN_S)
        jobs, metrics, page = told.jobs(), told.get("/metrics"), told.get("/")
    (outcome,) = serving.ended

    assert jobs["archive"]["past"]["rows"] == ROWS
    # The report on the archive has waited for it.
    assert jobs["quality"]["past"]["failed"] == 0
    assert jobs["triage"]["past"]["failures"] >= 2
    assert "missing.csv" in jobs["triage"]["past"]["error"]
    assert {metric.name for metric in PIPELINE_METRICS} <= {line.split("{")[0] for line in metrics.splitlines()}
    assert f'penstock_pipeline_rows_total{{job_name="archive"}} {ROWS}.0' in metrics
    assert "missing.csv" in page
    assert not outcome.is_good
    assert "triage failed" in outcome.sentence
    assert jobs["upkeep"]["past"]["failed"] == 0
    found = ds.dataset(tmp_path / "out" / "tables" / "quality").to_table()
    assert sum(found.filter(ds.field("run_at") == found["run_at"][0]).column("rows").to_pylist()) == ROWS
    assert set(ds.dataset(tmp_path / "out" / "tables" / "skew").to_table().column("job").to_pylist()) == {"skew"}

    with Serving(spark, plan) as again:
        wait_until(lambda: again.told.has("status and metrics at"))
        wait_until(
            lambda: again.told.jobs()["archive"]["past"]["runs"] > jobs["archive"]["past"]["runs"], within_s=WITHIN_S
        )
        later = again.told.jobs()
    # Its next run is an hour away, and nothing is archived twice.
    assert later["skew"]["past"]["runs"] == jobs["skew"]["past"]["runs"] == 1
    assert later["archive"]["past"]["rows"] == ROWS


def test_a_service_refuses_a_folder_that_another_one_works_in(tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    refused = pytest.raises(JobFailed, match=r"another .* works in .*: process \d+ on .*, since 20")
    with only_instance(out), refused, only_instance(out):
        raise AssertionError
    with only_instance(out):
        pass


def test_an_address_that_is_taken_ends_a_service_with_a_sentence(spark: SparkSession, plan: Plan) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        service = Service(spark, replace(plan, listen=("127.0.0.1", port)), tell=Told(), stopping=threading.Event())
        with pytest.raises(
            JobFailed, match=rf"pipeline.listen 127.0.0.1:{port} cannot be listened on: Address already"
        ):
            service.serve()
