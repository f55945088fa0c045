"""Celery and kombu, unchanged, on a server of ours."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from celery import Celery
from kombu import Connection

from tests.docs.serving import stop
from tests.server.serving import Running
from tests.sqs.conftest import attributes_of, made, name_of

OPTIONS = {"region": "us-east-1", "is_secure": False, "wait_time_seconds": 1, "polling_interval": 0.05}
SECONDS_MAX = 60


def broker_of(running: Running) -> str:
    host, port = running.address
    return f"sqs://test:test@{host}:{port}"


@contextmanager
def worker(running: Running, done: Path, queue: str) -> Iterator[None]:
    """Run a worker in a process of its own, on one queue."""
    environment = os.environ | {"BROKER": broker_of(running), "DONE": str(done)}
    options = ["--pool", "solo", "--queues", queue, "--without-gossip", "--without-mingle", "--without-heartbeat"]
    command = [sys.executable, "-m", "celery", "-A", "tests.sqs.celery_app", "--quiet", "worker", *options]
    with subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        try:
            yield
        finally:
            stop(process)


def lines_of(done: Path, count: int) -> list[str]:
    """Return what tasks have written, once it is so much."""
    until = time.monotonic() + SECONDS_MAX
    while time.monotonic() < until:
        found = done.read_text().splitlines() if done.exists() else []
        if len(found) >= count:
            return found
        # Another process writes the file, and nothing tells us when.
        time.sleep(0.05)
    raise AssertionError(f"only {found} after {SECONDS_MAX} s")


@pytest.mark.slow
def test_a_celery_worker_runs_retries_and_waits_for_tasks(running: Running, sqs: Any, tmp_path: Path) -> None:
    done, queue = tmp_path / "done", name_of(made(sqs))
    sender = Celery("sender", broker=broker_of(running), set_as_current=False)
    sender.conf.update(broker_transport_options=OPTIONS)
    began = time.time()
    sender.send_task("add", args=(1, 2), queue=queue)
    sender.send_task("fail_twice", queue=queue)
    sender.send_task("add", args=(3, 4), queue=queue, countdown=2)
    sender.close()
    with worker(running, done, queue):
        lines = lines_of(done, 5)
        assert time.time() >= began + 2
        assert sorted(lines) == ["1 + 2 = 3", "3 + 4 = 7", "attempt 0", "attempt 1", "attempt 2"]
        assert [line for line in lines if line.startswith("attempt")] == ["attempt 0", "attempt 1", "attempt 2"]
    url = sqs.get_queue_url(QueueName=queue)["QueueUrl"]
    found = attributes_of(sqs, url)
    # Everything was acknowledged.
    assert (found["ApproximateNumberOfMessages"], found["ApproximateNumberOfMessagesNotVisible"]) == ("0", "0")


def test_kombu_puts_gets_rejects_and_counts(running: Running, sqs: Any, queue: str) -> None:
    with Connection(broker_of(running), transport_options=OPTIONS) as connection:
        simple = connection.SimpleQueue(name_of(queue))
        simple.put({"größe": 1})
        simple.put({"b": 2})
        first = simple.get(timeout=10)
        assert first.payload == {"größe": 1}
        first.ack()
        second = simple.get(timeout=10)
        second.requeue()
        again = simple.get(timeout=10)
        assert again.payload == {"b": 2}
        again.ack()
        assert simple.qsize() == 0
        simple.close()
    assert attributes_of(sqs, queue)["ApproximateNumberOfMessagesNotVisible"] == "0"
