"""A server, the zip that is shipped, and what every cluster is asked to do with them: see `cluster_job.py`."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import penstock
from penstock.pipeline.spark import write_package
from tests.docs.serving import server
from tests.pipeline import clusters
from tests.pipeline.archived import rows_of
from tests.pipeline.cluster_job import COPIES
from tests.waiting import wait_until

JOB = Path(__file__).with_name("cluster_job.py")
PACKAGE = "penstock.zip/penstock/__init__.py"
ACKED = 40
BURIED = 3
PATIENCE_S = 60.0


class Site(NamedTuple):
    """A server with a history to read, the zip to ship, and a folder for clusters to work in."""

    url: str
    shipped: Path
    folder: Path


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("clusters")
    shipped = folder / "shipped" / "penstock.zip"
    shipped.parent.mkdir()
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
        wait_until(lambda: len(orders.history().rows) >= ACKED + BURIED, within_s=PATIENCE_S)


def submitted(site: Site, master: str, queue: str) -> dict[str, Any]:
    """Run the job on a cluster and return what it told."""
    answer = site.folder / f"{queue}.json"
    prepare(site, queue)
    command: list[str | Path] = [JOB, answer, site.url, queue, site.folder / f"{queue}.archive"]
    clusters.submit(master, command, shipped=site.shipped, folder=site.folder)
    told: dict[str, Any] = json.loads(answer.read_text())
    # Each worker has an executor in a folder of its own, and both had tasks.
    assert len({folder for _, folder in told["executors"]}) == 2
    assert archived(site.folder / f"{queue}.archive") == ACKED + BURIED
    return told


def ran(site: Site, answer: str, *words: str | Path, imports: Path) -> dict[str, Any]:
    """Run the job in a Python without spark-submit, which imports Penstock from one place, and return what it told."""
    command: list[str | Path] = [site.folder / clusters.PYTHON, JOB, site.folder / answer, *words]
    environment = {**clusters.environment(site.folder), "PYTHONPATH": str(imports)}
    done = subprocess.run(command, env=environment, cwd=site.folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4_000:]
    told: dict[str, Any] = json.loads((site.folder / answer).read_text())
    return told


def archived(root: Path) -> int:
    """Count the rows of the queue that every cluster reads, as any reader of Delta sees them."""
    return sum(row["queue"] == "orders" for row in rows_of(root, ["queue"]))


def prepare(site: Site, queue: str) -> None:
    with penstock.connect(site.url) as client:
        client.create_queue(queue)


def check(site: Site, told: dict[str, Any], queue: str) -> None:
    assert told["driver"] == f"{site.shipped}/penstock/__init__.py"
    # Not the driver's own, which is on the same machine here, but a copy that the executor was given.
    assert {PACKAGE in file and str(site.shipped) not in file for file, _ in told["executors"]} == {True}
    assert told["history"] == {"acked": ACKED, "buried": BURIED}
    with penstock.connect(site.url) as client:
        copies = client.queue(queue).receive(limit=1_000)
        assert sorted(int(message.text) for message in copies) == list(range(COPIES))
