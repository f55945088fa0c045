"""Celery and kombu, unchanged, on a server of ours."""

import io
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from celery import Celery
from kombu import Connection
from kombu.asynchronous.aws.sqs.connection import AsyncSQSConnection
from kombu.asynchronous.http.base import Headers, Response

from penstock.settings import ServerSettings
from tests.docs.serving import stop
from tests.server.serving import Running, server
from tests.sqs.conftest import attributes_of, bodies, client_of, made, name_of, received
from tests.sqs.older import older_client
from tests.waiting import wait_until

OPTIONS = {"region": "us-east-1", "is_secure": False, "wait_time_seconds": 1, "polling_interval": 0.05}
SECONDS_MAX = 180


def broker_of(running: Running) -> str:
    host, port = running.address
    return f"sqs://test:test@{host}:{port}"


@contextmanager
def worker(running: Running, done: Path, queue: str) -> Iterator[None]:
    """Run a worker in a process of its own, on one queue."""
    environment = os.environ | {"BROKER": broker_of(running), "DONE": str(done)}
    options = ["--pool", "solo", "--queues", queue, "--without-gossip", "--without-mingle", "--without-heartbeat"]
    command = [sys.executable, "-m", "celery", "-A", "tests.sqs.celery_app", "--quiet", "worker", *options]
    with (
        done.with_suffix(".log").open("w") as log,
        subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, text=True
        ) as process,
    ):
        try:
            yield
        finally:
            stop(process)


def lines_of(done: Path, count: int) -> list[str]:
    """Return what tasks have written, once it is so much."""

    def written() -> list[str] | None:
        found = done.read_text().splitlines() if done.exists() else []
        return found if len(found) >= count else None

    try:
        found: list[str] = wait_until(written, within_s=SECONDS_MAX)
    except AssertionError:
        raise AssertionError(f"the worker said: {done.with_suffix('.log').read_text()}") from None
    return found


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
        first = simple.get(timeout=60)
        assert first.payload == {"größe": 1}
        first.ack()
        second = simple.get(timeout=60)
        second.requeue()
        again = simple.get(timeout=60)
        assert again.payload == {"b": 2}
        again.ack()
        assert simple.qsize() == 0
        simple.close()
    assert attributes_of(sqs, queue)["ApproximateNumberOfMessagesNotVisible"] == "0"


class AtOnce:
    """Sends what kombu's event loop would send through pycurl, and waits for the answer."""

    def add_request(self, asked: Any) -> Any:
        body = asked.body.encode() if isinstance(asked.body, str) else asked.body
        fields = {name: value.decode() if isinstance(value, bytes) else value for name, value in asked.headers.items()}
        try:
            with urlopen(Request(asked.url, data=body, headers=fields, method=asked.method)) as answer:
                status, headers, content = answer.status, answer.headers, answer.read()
        except HTTPError as error:
            status, headers, content = error.code, error.headers, error.read()
            error.close()
        asked.on_ready(Response(asked, status, Headers(headers.items()), io.BytesIO(content)))
        return asked


@pytest.mark.parametrize("protocol", ["json", "query"])
def test_what_the_event_loop_of_kombu_sends_is_understood_and_its_signatures_are_good(
    tmp_path: Path, protocol: str
) -> None:
    pair = {"aws_access_key_id": "shop", "aws_secret_access_key": "a long random text"}
    settings = ServerSettings(
        port=0, store="memory:", sqs_access_key_id="shop", sqs_secret_access_key=pair["aws_secret_access_key"]
    )
    with server(settings) as running:
        sqs = client_of(running.url, **pair) if protocol == "json" else older_client(running.url, tmp_path, **pair)
        url = made(sqs)
        for body in "ab":
            sqs.send_message(QueueUrl=url, MessageBody=body)
        loop = AsyncSQSConnection(sqs, region="us-east-1", http_client=AtOnce())
        found: list[dict[str, Any]] = []
        loop.receive_message(None, url, 10, wait_time_seconds=1, callback=found.append)
        first, second = found[0]["Messages"]
        assert (first["Body"], first["Attributes"]) == ("a", {"ApproximateReceiveCount": "1"})
        statuses: list[int] = []
        # In the older protocol these are signed in the URL.
        loop.delete_message(url, first["ReceiptHandle"], callback=statuses.append)
        loop.change_message_visibility(QueueOfKombu(url), second["ReceiptHandle"], 0, callback=statuses.append)
        assert statuses == [200, 200]
        assert bodies(received(sqs, url)) == ["b"]
        sqs.close()


class QueueOfKombu:
    """What kombu calls a queue by."""

    def __init__(self, url: str) -> None:
        self.id = url
