"""`penstock probe`, against a server that works, one that does not, and with a probe that is killed."""

import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

import penstock
from penstock.cli.probe import LEFTOVER_S, PREFIX
from penstock.telemetry import PROBE_METRICS
from tests.cli.conftest import Run
from tests.cli.servers import Served
from tests.ports import HeldPort

HAPPY_STEPS = ["create", "send", "receive", "ack", "describe", "delete"]
DEAD_LETTER_STEPS = ["create", "send", "receive", "bury", "requeue", "receive_again", "ack", "delete"]


def names(served: Served) -> list[str]:
    with penstock.connect(served.url) as client:
        return [queue.queue_name for queue in client.queues()]


@pytest.mark.parametrize(("probe", "steps"), [("happy-path", HAPPY_STEPS), ("dead-letter", DEAD_LETTER_STEPS)])
def test_a_probe_of_a_server_that_works_takes_all_steps_and_leaves_no_queue(
    run: Run, served: Served, probe: str, steps: list[str]
) -> None:
    done = run("probe", probe, "--json")

    assert done.exit_code == 0, done.output
    said = json.loads(done.stdout)
    assert (said["probe"], said["ok"], said["failed_step"], said["error"]) == (probe, True, None, None)
    assert list(said["steps"]) == steps
    assert names(served) == []


def test_a_probe_prints_its_steps_for_a_person(run: Run) -> None:
    lines = run("probe", "happy-path").stdout.splitlines()

    assert [line.split()[0] for line in lines[1:-1]] == HAPPY_STEPS
    assert lines[-1].startswith("happy-path works. It took ")


@pytest.fixture
def silent() -> Iterator[str]:
    """Give the URL of a port where nothing listens."""
    port = HeldPort()
    yield f"http://127.0.0.1:{port.number}"
    port.give_back()


def test_a_probe_that_reaches_no_server_ends_with_69(run: Run, silent: str) -> None:
    done = run("probe", "happy-path", "--url", silent, "--timeout", "0", "--json")

    assert done.exit_code == 69
    assert json.loads(done.stdout)["ok"] is False


def test_a_probe_whose_queue_is_taken_away_fails_with_1(served: Served, tmp_path: Path) -> None:
    with probing(served, "dead-letter", "--json") as process:
        name = until(lambda: next((each for each in names(served) if each.startswith(PREFIX)), ""))
        with penstock.connect(served.url) as client:
            client.queue(name).delete()
        said, _ = process.communicate(timeout=120)

    assert process.returncode == 1
    assert json.loads(said)["error"]


def test_a_textfile_has_every_metric_of_a_probe(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "penstock.prom"
    assert run("probe", "happy-path", "--textfile", str(file)).exit_code == 0

    found = {
        sample.name: sample for each in text_string_to_metric_families(file.read_text()) for sample in each.samples
    }
    assert {metric.name for metric in PROBE_METRICS} <= set(found)
    assert found["penstock_probe_success"].value == 1
    assert found["penstock_probe_runs_total"].labels == {"probe": "happy-path", "result": "success"}


def test_a_probe_goes_on_and_tells_its_metrics_until_it_is_told_to_stop(served: Served) -> None:
    port = HeldPort()
    metrics = f"127.0.0.1:{port.number}"
    with probing(served, "happy-path", "--json", "--every", "1s", "--metrics", metrics) as process:
        assert process.stdout is not None
        said = [json.loads(process.stdout.readline()) for _ in range(2)]
        with urllib.request.urlopen(f"http://{metrics}/metrics", timeout=30) as answer:
            text = answer.read().decode()
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=120)
    port.give_back()

    assert [each["ok"] for each in said] == [True, True]
    assert 'penstock_probe_success{probe="happy-path"} 1.0' in text
    assert process.returncode == 0
    assert names(served) == []


@pytest.mark.parametrize("by", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_probe_that_is_killed_leaves_no_queue_behind(served: Served, by: signal.Signals) -> None:
    with probing(served, "dead-letter") as process:
        until(lambda: names(served))
        process.send_signal(by)
        process.communicate(timeout=120)

    until(lambda: not names(served))


def test_a_probe_deletes_what_an_earlier_one_left_and_nothing_that_is_young(run: Run, served: Served) -> None:
    with penstock.connect(served.url) as client:
        old = f"{PREFIX}happy-path-{1_700_000_000 - LEFTOVER_S}-abcd"
        young = f"{PREFIX}happy-path-99999999999-abcd"
        for name in (old, young, f"{PREFIX}mine"):
            client.create_queue(name)
    assert run("probe", "happy-path").exit_code == 0

    assert names(served) == [young, f"{PREFIX}mine"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--every", "soon"], "--every is 'soon'"),
        (["--metrics", "127.0.0.1:9188"], "--metrics needs --every"),
        (["--every", "1s", "--metrics", "9188x"], "it must be HOST:PORT"),
    ],
)
def test_a_wrong_option_of_a_probe_is_refused_before_anything_is_tried(run: Run, options: list[str], said: str) -> None:
    done = run("probe", "happy-path", *options)

    assert done.exit_code == 2
    assert said in done.stderr


def test_whether_a_server_is_ready_is_told_by_the_exit_code(run: Run, silent: str) -> None:
    assert run("probe", "ready").stdout == "ready\n"
    assert json.loads(run("probe", "ready", "--json").stdout) == {"status": "ready", "reasons": []}
    assert run("probe", "ready", "--url", silent, "--timeout", "0").exit_code == 69


@contextmanager
def probing(served: Served, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}
    process = subprocess.Popen(
        [sys.executable, "-m", "penstock", "probe", *arguments],
        env=environment | {"PENSTOCK_URL": served.url},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def until(look: Callable[[], Any]) -> Any:
    """Ask the server until the answer is yes; a test that waits in vain is ended by its runner."""
    while not (found := look()):
        pass
    return found
