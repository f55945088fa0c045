"""Faults that are made on purpose: a real Prometheus and `penstock watch` see the same, and a webhook is told."""

import json
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.cli.alerts import RULES, Alerts
from penstock.cli.watch import Servers
from penstock.client.failover import addresses_of
from tests.cli.servers import Served
from tests.deploy.prometheus import samples, scraping
from tests.deploy.tools import DEPLOY, needs
from tests.waiting import wait_until

PAGE = DEPLOY.parent / "docs" / "how-to" / "monitor-a-server.md"
CONNECTIONS_MAX = 40
MADE = {
    "PenstockConnectionsNearLimit",
    "PenstockDeadLetters",
    "PenstockMayLose",
    "PenstockQueueErrors",
    "PenstockQueueNearlyFull",
    "PenstockQueueStuck",
    "PenstockSendsRefused",
}


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Serve queues with dead letters, stuck messages and no room, on a server that answers before the fsync."""
    folder = tmp_path_factory.mktemp("faulty")
    options = ("--no-kafka", "--fsync", "os", "--connections-max", str(CONNECTIONS_MAX))
    with Served(folder / "data", *options) as server:
        with penstock.connect(server.url) as client:
            client.create_queue("graves", queue_size=1)
            client.create_queue("orders", dead_letter_queue="graves", max_deliveries=1)
            orders = client.queue("orders")
            orders.send_many(["a", "b"])
            for message in orders.receive(limit=2):
                message.reject()
            client.create_queue("full", queue_size=10)
            client.queue("full").send_many([b"x"] * 10)
        yield server


def be_refused(url: str) -> None:
    """Send to a queue that is full."""
    with penstock.connect(url, timeout_s=0) as client:
        for _ in range(5):
            with pytest.raises(penstock.QueueFull):
                client.queue("full").send("one more")


@contextmanager
def crowd(url: str) -> Iterator[Callable[[], None]]:
    """Take all connections but three, for Prometheus, the watch and a client; yield what keeps them."""
    held = [HTTPConnection(url.removeprefix("http://")) for _ in range(CONNECTIONS_MAX - 3)]

    def keep() -> None:
        for connection in held:
            connection.request("GET", "/health/live")
            connection.getresponse().read()

    keep()
    yield keep
    for connection in held:
        connection.close()


def at_once(rules: str) -> str:
    """Return the rules without the time that each condition has to last."""
    return re.sub(r"\n +for: \d+m", "", rules)


@needs("prometheus")
def test_prometheus_and_the_watch_see_the_faults_that_were_made_and_no_others(faulty: Served, tmp_path: Path) -> None:
    watched, servers = Alerts(waits=False), Servers(addresses_of(faulty.url), "")
    be_refused(faulty.url)
    with crowd(faulty.url) as keep, scraping(tmp_path, faulty.url, at_once) as address:

        def fired() -> set[str]:
            keep()
            be_refused(faulty.url)
            # Probes are not there.
            return {each["metric"]["alertname"] for each in samples(address, 'ALERTS{job!="penstock-probe"}')}

        seen = wait_until(lambda: found if (found := fired()) >= MADE else None)
        at_s = 0.0
        for _ in range(2):
            keep()
            be_refused(faulty.url)
            watched.look(at_s, servers.look())
            at_s += 60

    assert seen == MADE
    assert {alert.rule.name for alert in watched.firing()} == MADE


@needs("prometheus")
def test_a_server_that_is_gone_is_told_by_prometheus_and_by_the_watch(tmp_path: Path) -> None:
    with Served(tmp_path / "data", "--no-kafka") as server:
        watched, servers = Alerts(), Servers(addresses_of(server.url), "")
        assert watched.look(0.0, servers.look()) == []
        with scraping(tmp_path, server.url, at_once) as address:
            server.kill()
            gone = 'ALERTS{alertname="PenstockGone",job="penstock"}'
            assert wait_until(lambda: samples(address, gone))

        # Not before it has lasted.
        assert watched.look(60.0, servers.look()) == []
        [alert] = watched.look(180.0, servers.look())
        assert alert.summary == f"{server.url.removeprefix('http://')} does not answer"


class Receiver(HTTPServer):
    """Takes what a webhook is told, after it has refused the first."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Hook)
        self.told: list[dict[str, Any]] = []
        self.refused = 0


class _Hook(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        assert isinstance(self.server, Receiver)
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if not self.server.refused:
            self.server.refused += 1
            self.send_error(503)
            return
        self.server.told.append(body)
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as made:
        thread = threading.Thread(target=made.serve_forever)
        thread.start()
        yield made
        made.shutdown()
        thread.join()


def command(url: str, *options: str) -> list[str]:
    return [sys.executable, "-m", "penstock", "watch", "--url", url, *options]


def test_the_command_tells_a_webhook_what_fires_and_what_ends_and_tries_again(
    tmp_path: Path, receiver: Receiver
) -> None:
    hook = f"http://127.0.0.1:{receiver.server_port}/"
    with Served(tmp_path / "data", "--no-kafka") as server, penstock.connect(server.url) as client:
        client.create_queue("orders", max_deliveries=1)
        client.queue("orders").send("a")
        client.queue("orders").receive(limit=1)[0].reject()
        watching = command(server.url, "--interval", "1s", "--webhook", hook)
        with subprocess.Popen(watching, stdout=subprocess.DEVNULL) as process:
            try:
                [body] = wait_until(lambda: receiver.told)
                client.queue("orders.dead").purge()
                _, after = wait_until(lambda: receiver.told if len(receiver.told) > 1 else None)
            finally:
                process.terminate()

    assert receiver.refused == 1
    [alert] = body["alerts"]
    assert (body["version"], body["status"], after["status"]) == ("4", "firing", "resolved")
    assert alert["labels"] == {"alertname": "PenstockDeadLetters", "severity": "warning", "queue": "orders"}
    assert alert["annotations"]["summary"] == "orders has 1 dead letters"
    [documented] = re.findall(r"^```text\n(\{.*?^\})$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    said = json.loads(documented)
    assert (body.keys(), alert.keys()) == (said.keys(), said["alerts"][0].keys())
    assert after["alerts"][0]["startsAt"] == alert["startsAt"] < after["alerts"][0]["endsAt"]


def test_the_command_ends_with_1_if_anything_is_wrong_at_this_moment_and_with_0_if_not(
    faulty: Served, tmp_path: Path
) -> None:
    done = subprocess.run(command(faulty.url, "--once", "--json"), capture_output=True, text=True, check=False)
    told = [json.loads(line) for line in done.stdout.splitlines()]

    assert done.returncode == 1, done.stderr
    assert {each["labels"]["alertname"] for each in told} == {
        "PenstockDeadLetters",
        "PenstockMayLose",
        "PenstockQueueNearlyFull",
        "PenstockQueueStuck",
    }

    with Served(tmp_path / "data", "--no-kafka") as server:
        well = subprocess.run(command(server.url, "--once"), capture_output=True, text=True, check=True)
    assert well.stdout == "Nothing is wrong.\n"


def test_a_webhook_that_never_answers_does_not_hold_up_the_watch(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent, Served(tmp_path / "data", "--fsync", "os") as server:
        hook = f"http://127.0.0.1:{silent.getsockname()[1]}/"
        watching = command(server.url, "--interval", "1s", "--webhook", hook, "--json")
        with subprocess.Popen(watching, stdout=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout is not None
                assert json.loads(process.stdout.readline())["labels"]["alertname"] == "PenstockMayLose"
                server.kill()
                # Two minutes without an answer are an alert; one look after it shows that looks go on.
                with penstock.connect(server.url, timeout_s=0) as client, pytest.raises(penstock.ConnectionFailed):
                    client.health()
                told = json.loads(process.stdout.readline())
                assert (told["labels"]["alertname"], told["status"]) == ("PenstockMayLose", "resolved")
            finally:
                process.kill()


def test_a_watch_without_the_right_key_says_which_one_it_needs(tmp_path: Path) -> None:
    made = subprocess.run(
        [
            sys.executable,
            "-m",
            "penstock",
            "key",
            "create",
            "--name",
            "a",
            "--role",
            "send",
            "--data",
            str(tmp_path / "data"),
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    with Served(tmp_path / "data", "--no-kafka") as server:
        done = subprocess.run(command(server.url, "--once"), capture_output=True, text=True, check=False)
        key = ("--key", made.stdout.strip())
        wrong = subprocess.run(command(server.url, "--once", *key), capture_output=True, text=True, check=False)

    assert (done.returncode, wrong.returncode) == (77, 77)
    assert "a key with the role metrics on all queues" in done.stderr


def test_every_rule_of_the_watch_has_labels_for_its_summary() -> None:
    for rule in RULES:
        said = dict.fromkeys((*rule.labels, "value", "percent", "duration"), "")
        assert rule.summary.format(**said)
