"""`penstock work`: finds the worker of an application and runs it until it is told to stop."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from penstock.cli import app
from tests.cli.servers import SECONDS_MAX, Served

APPLICATION = """
import penstock

worker = penstock.Worker(penstock.connect())
nothing = None


@worker.handler("orders")
async def print_it(message):
    print(message.text, flush=True)
"""


def test_a_worker_of_an_application_works_until_it_is_told_to_stop(tmp_path: Path) -> None:
    pytest.importorskip("penstock.client.worker")
    (tmp_path / "shop.py").write_text(APPLICATION)
    with Served(tmp_path / "data") as server:
        environment = {**os.environ, "PENSTOCK_URL": server.url, "PENSTOCK_KEY": ""}
        for words in (["queue", "create", "orders"], ["send", "orders", "teapot"]):
            assert CliRunner().invoke(app, words, env=environment).exit_code == 0
        command = [sys.executable, "-m", "penstock", "work", "shop:worker"]
        with subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"teapot\n"
            process.send_signal(signal.SIGTERM)
            assert process.wait(SECONDS_MAX) == 0
        assert CliRunner().invoke(app, ["receive", "orders"], env=environment).exit_code == 1


@pytest.mark.parametrize(
    ("target", "code", "sentence"),
    [
        ("shop", 2, "say MODULE:NAME"),
        (":worker", 2, "say MODULE:NAME"),
        ("nowhere:worker", 66, "There is no module nowhere in"),
        ("simple:boss", 66, "simple has no worker called boss"),
        ("simple:nothing", 66, "simple has no worker called nothing"),
    ],
)
def test_a_worker_that_cannot_be_found_is_named(tmp_path: Path, target: str, code: int, sentence: str) -> None:
    (tmp_path / "simple.py").write_text("nothing = None\n")
    done = CliRunner().invoke(app, ["work", target, "--folder", str(tmp_path)])
    assert done.exit_code == code
    assert sentence in done.stderr


def test_a_module_that_is_missing_in_the_application_shows_where(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("import does_not_exist\n")
    done = CliRunner().invoke(app, ["work", "broken:worker", "--folder", str(tmp_path)])
    assert isinstance(done.exception, ModuleNotFoundError)
    assert done.exception.name == "does_not_exist"
