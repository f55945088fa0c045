"""Where the tests of the SDK run: over HTTP to a server of their own, and in process."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.client.serving import Server


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server for all tests that do it no harm; each uses queues of its own."""
    with Server(tmp_path_factory.mktemp("server") / "data") as found:
        yield found
        found.stop()


@pytest.fixture(params=["http", "file", "memory"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A place with queues."""
    if request.param == "http":
        found: Server = request.getfixturevalue("server")
        return found.url
    return "memory:" if request.param == "memory" else f"file:{tmp_path / 'data'}"


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """The name of a queue that no other test has."""
    digest = abs(hash(request.node.nodeid))
    return f"queue-{digest:x}"
