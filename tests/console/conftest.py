"""A server on each store for all tests of the console, and a window of it for each test."""

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import penstock
from tests.cli.servers import Served
from tests.console.chromium import PROGRAM, Pages, driving, pages
from tests.ports import HeldPort
from tests.postgres.servers import NoPostgres, shared_server

_STORES = ("embedded", "postgres")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    missing = PROGRAM is None or importlib.util.find_spec("playwright") is None
    for item in items:
        if missing and "tests/console" in str(item.path):
            item.add_marker(pytest.mark.skip(reason="shows the console in a browser: needs chromium and playwright"))


def start(folder: Path, store: str, *options: str) -> Served:
    """Start a server on a store of its own."""
    if store == "postgres":
        try:
            options = (*options, "--store", shared_server().new_database())
        except NoPostgres as error:
            pytest.skip(str(error))
    port = HeldPort()
    try:
        return Served(folder, "--kafka", "--kafka-port", str(port.number), *options)
    finally:
        port.give_back()


@pytest.fixture(scope="session", params=_STORES)
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    served = start(tmp_path_factory.mktemp("console") / "data", request.param)
    with penstock.connect(served.url) as client:
        # For the charts: it takes some time until there are points.
        client.create_queue("charted")
        for _ in range(50):
            client.queue("charted").send("x", priority="HIGH")
    yield served
    served.close()


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with driving() as browser:
        yield browser


@pytest.fixture
def console(chromium: Any, server: Served) -> Iterator[Pages]:
    with pages(chromium, server.url) as found:
        yield found


@pytest.fixture
def client(server: Served) -> Iterator[Any]:
    with penstock.connect(server.url) as found:
        yield found
