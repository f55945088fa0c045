"""Real servers for the tests of writing, and what is in their queues."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from penstock.connect import connect
from tests.docs.serving import server


@contextmanager
def running(data: Path) -> Iterator[str]:
    """A server in a process of its own; its URL."""
    with server(data) as address:
        yield f"http://{address}"


def make_queue(url: str, name: str, **settings: Any) -> None:
    with connect(url) as client:
        client.create_queue(name, **settings)


def take_all(url: str, queue: str) -> list[Any]:
    """Receive and ack all that can be received now, in order."""
    found: list[Any] = []
    with connect(url) as client:
        while batch := client.queue(queue).receive(limit=1_000):
            found += list(batch)
            assert all(batch.ack())
    return found


def bodies(url: str, queue: str) -> list[bytes]:
    """The bodies of all that can be received now, sorted: tasks send side by side."""
    return sorted(bytes(message.body) for message in take_all(url, queue))


def held(url: str, queue: str) -> int:
    """How many messages are in a queue, whatever they do there."""
    with connect(url) as client:
        view = client.queue(queue).describe()
    return view.ready + view.delayed + view.in_flight
