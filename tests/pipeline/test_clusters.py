"""The pipeline on clusters: executors that have no Penstock get it in a zip, and do the same as one machine does.

Each cluster takes many seconds to start, so each does everything at once: `cluster_job.py`.
"""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.dataset as ds  # type: ignore[import-untyped]
import pytest

import penstock
from penstock.pipeline.packaging import write_package
from tests.docs.serving import server
from tests.pipeline import clusters
from tests.pipeline.cluster_job import COPIES

pytestmark = [pytest.mark.slow, pytest.mark.real_time]

JOB = Path(__file__).with_name("cluster_job.py")
ACKED = 40
BURIED = 3
PATIENCE_S = 30.0


class Site(NamedTuple):
    """A server with a history to read, the zip to ship, and a folder for clusters to work in."""

    url: str
    shipped: Path
    folder: Path


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("clusters")
    shipped = folder / "penstock.zip"
    write_package(shipped)
    clusters.write_bare_python(folder)
    with server(folder / "data") as address:
        make_history(f"http://{address}")
        yield Site(f"http://{address}", shipped, folder)


def make_history(url: str) -> None:
    with penstock.connect(url) as client:
        client.create_queue("orders", max_deliveries=1)
        orders = client.queue("orders")
        orders.send_many([f"order {number}" for number in range(ACKED + BURIED)])
        batch = orders.receive(limit=ACKED + BURIED)
        for message in batch[:BURIED]:
            message.reject("no such address")
        for message in batch[BURIED:]:
            message.ack()
        ends_at = time.monotonic() + PATIENCE_S
        while len(orders.history().rows) < ACKED + BURIED:
            assert time.monotonic() < ends_at, "the history does not follow"
            time.sleep(0.1)


def test_the_python_of_the_executors_has_no_penstock_of_its_own(site: Site) -> None:
    command: list[str | Path] = [site.folder / clusters.PYTHON, "-c", "import pyspark, pyarrow; import penstock"]
    done = subprocess.run(
        command, env=clusters.environment(site.folder), cwd=site.folder, capture_output=True, text=True, check=False
    )

    assert "ModuleNotFoundError: No module named 'penstock'" in done.stderr


def test_a_cluster_in_one_process_tree_runs_what_is_shipped(site: Site) -> None:
    told = submitted(site, "local-cluster[2,1,1024]", "copies-local")

    check(site, told, "copies-local")


def test_a_standalone_master_with_two_workers_runs_what_is_shipped(site: Site) -> None:
    with clusters.standalone(site.folder, workers=2) as master:
        told = submitted(site, master, "copies-standalone")

    check(site, told, "copies-standalone")


def test_a_client_of_spark_connect_ships_the_package_itself(site: Site) -> None:
    answer = site.folder / "connect.json"
    with clusters.connect_server(site.folder) as remote:
        prepare(site, "copies-connect")
        command: list[str | Path] = [sys.executable, JOB, site.url, "copies-connect", "-", answer, remote, site.shipped]
        environment = {**clusters.environment(site.folder), "PYTHONPATH": str(site.shipped)}
        done = subprocess.run(command, env=environment, cwd=site.folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4_000:]

    check(site, json.loads(answer.read_text()), "copies-connect")


def submitted(site: Site, master: str, queue: str) -> dict[str, Any]:
    """Run the job on a cluster and return what it told."""
    answer = site.folder / f"{queue}.json"
    prepare(site, queue)
    command: list[str | Path] = [JOB, site.url, queue, site.folder / f"{queue}.archive", answer]
    clusters.submit(master, command, shipped=site.shipped, folder=site.folder)
    told: dict[str, Any] = json.loads(answer.read_text())
    # Each worker has an executor in a folder of its own, and both had tasks.
    assert len({folder for _, folder in told["executors"]}) == 2
    archived = ds.dataset(site.folder / f"{queue}.archive" / "messages", partitioning="hive")
    assert archived.count_rows(filter=ds.field("queue") == "orders") == ACKED + BURIED
    return told


def prepare(site: Site, queue: str) -> None:
    with penstock.connect(site.url) as client:
        client.create_queue(queue)


def check(site: Site, told: dict[str, Any], queue: str) -> None:
    assert f"{site.shipped.name}/penstock" in told["driver"]
    assert all(f"{site.shipped.name}/penstock" in file for file, _ in told["executors"])
    assert told["history"] == {"acked": ACKED, "buried": BURIED}
    with penstock.connect(site.url) as client:
        copies = client.queue(queue).receive(limit=1_000)
        assert sorted(int(message.text) for message in copies) == list(range(COPIES))
