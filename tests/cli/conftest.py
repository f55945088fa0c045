"""One server for the tests of commands, and commands that ask it."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import penstock
from penstock.cli import app
from tests.cli.servers import Served

Run = Callable[..., Result]


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    # For as long as all the tests take, on a slow machine too.
    with Served(tmp_path_factory.mktemp("served") / "data", seconds_max=3_600) as server:
        yield server


@pytest.fixture
def run(served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    """Run a command against the server, in an empty folder; the server has no queues before and after each test."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PENSTOCK_URL", served.url)
    monkeypatch.setenv("COLUMNS", "250")
    for name in ("PENSTOCK_KEY", "PENSTOCK_CONFIG"):
        monkeypatch.delenv(name, raising=False)

    def invoke(*arguments: str, stdin: str | bytes | None = None) -> Result:
        return CliRunner().invoke(app, list(arguments), input=stdin)

    yield invoke
    with penstock.connect(served.url) as client:
        for queue in list(client.queues()):
            client.queue(queue.queue_name).delete()
