"""The console of one server of several over one database: it shows the others, and acts on what they did."""

import json
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

import penstock
from tests.cli.servers import Served
from tests.console.chromium import pages
from tests.postgres.servers import NoPostgres, shared_server


@pytest.fixture
def two(tmp_path: Path) -> Iterator[tuple[Served, Served]]:
    try:
        store = shared_server().new_database()
    except NoPostgres as error:
        pytest.skip(str(error))
    with ExitStack() as stack:

        def start(name: str) -> Served:
            options = ("--store", store, "--node", name, "--kafka-port", "0")
            return stack.enter_context(closing(Served(tmp_path / name, *options)))

        yield start("one"), start("two")


def test_the_servers_of_a_database_are_shown_and_one_that_is_lost_is_said(
    chromium: Any, two: tuple[Served, Served]
) -> None:
    one, other = two
    with pages(chromium, one.url) as console:
        console.open()
        console.sees("2 servers")
        console.sees(other.url, within=".health")
        other.kill()
        console.sees("The server two has not been heard for", within="[role=alert]")


def test_offsets_are_reset_to_the_end_that_another_server_has_made(two: tuple[Served, Served]) -> None:
    one, other = two
    body = {"group": "readers", "topic": "read", "to": "latest", "dry_run": True}
    asked = Request(f"{one.url}/api/console/offsets", json.dumps(body).encode(), {"content-type": "application/json"})
    with penstock.connect(other.url) as client:
        client.create_topic("read", partitions=1)
        for records in (30, 50):
            client.topic("read").add(["x"] * (records - client.topic("read").describe().record_count))
            with urlopen(asked, timeout=60) as answer:
                (partition,) = json.load(answer)["partitions"]
            assert partition["to"] == records
