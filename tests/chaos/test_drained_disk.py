"""A server whose disk has filled up is emptied by the usual verbs, and then takes messages again."""

import signal
import threading
from pathlib import Path

import pytest

from tests.acceptance.mounts import needs_to_mount, tmpfs
from tests.acceptance.server_process import ServerProcess
from tests.server.serving import Client

pytestmark = [needs_to_mount, pytest.mark.real_time]

MB = 1_000_000
# Far more than it takes: a server that never gets there fails the test.
PATIENCE_S = 280.0


def send(client: Client, body: str, count: int) -> int:
    return client.ask("POST", "/api/queues/jobs/messages", {"messages": [{"data": body}] * count}).status


def fill(server: ServerProcess, body_bytes: int) -> int:
    """Send until the server refuses for want of space, and return how many messages it took."""
    body, sent, count = "x" * body_bytes, 0, min(1_000, 1_000_000 // body_bytes)
    with server.client() as client:
        assert client.ask("POST", "/api/queues", {"queue_name": "jobs"}).status in {200, 201}
        # It may be busy for a moment, with a new segment.
        while (status := send(client, body, count)) in {201, 503}:
            sent += count if status == 201 else 0
        assert status == 507
        assert client.ask("GET", "/health/ready").status == 503
    return sent


def wait_until_it_takes_messages(server: ServerProcess) -> None:
    deadline = threading.Event()
    timer = threading.Timer(PATIENCE_S, deadline.set)
    timer.start()
    try:
        with server.client() as client:
            while client.ask("GET", "/health/ready").status != 200:
                assert not deadline.wait(0.05), f"still not ready: {server.notes()[-2000:]}"
            assert send(client, "again", 1) == 201
    finally:
        timer.cancel()


@pytest.mark.parametrize(("size_bytes", "body_bytes"), [(64 * MB, 200), (64 * MB, 50_000), (256 * MB, 50_000)])
def test_a_disk_that_was_filled_and_drained_takes_messages_again(
    tmp_path: Path, size_bytes: int, body_bytes: int
) -> None:
    with tmpfs(tmp_path / "disk", size_bytes) as disk, ServerProcess(disk / "data") as server:
        sent = fill(server, body_bytes)
        assert len(server.drain("jobs")) == sent
        wait_until_it_takes_messages(server)


def test_a_server_that_was_killed_on_a_full_disk_starts_is_purged_and_takes_messages_again(tmp_path: Path) -> None:
    with tmpfs(tmp_path / "disk", 64 * MB) as disk:
        with ServerProcess(disk / "data") as server:
            sent = fill(server, 50_000)
            server.tell(signal.SIGKILL)
            server.finish()
        with ServerProcess(disk / "data") as server, server.client() as client:
            assert client.ask("GET", "/api/queues/jobs").json()["ready"] == sent
            assert client.ask("GET", "/health/ready").status == 503
            assert client.ask("POST", "/api/queues/jobs/purge").status == 200
            wait_until_it_takes_messages(server)
            server.tell()
            assert server.finish() == 0
        with ServerProcess(disk / "data") as server:
            assert server.drain("jobs") == ["again"]


def test_a_disk_that_holds_no_more_files_is_full_and_then_emptied_like_any_other(tmp_path: Path) -> None:
    with tmpfs(tmp_path / "disk", 256 * MB, files=200) as disk, ServerProcess(disk / "data") as server:
        with server.client() as client:
            assert client.ask("POST", "/api/queues", {"queue_name": "jobs"}).status in {200, 201}
            assert send(client, "kept", 1) == 201
            for number in range(200):
                try:
                    (disk / f"file-{number}").touch()
                except OSError:
                    break
            # What is allocated already is still filled.
            while (status := send(client, "x" * 50_000, 20)) in {201, 503}:
                pass
            assert status == 507
            assert client.ask("GET", "/health/ready").json()["reasons"] == ["disk_full"]
        assert server.drain("jobs")[0] == "kept"
        for number in range(100):
            (disk / f"file-{number}").unlink()
        wait_until_it_takes_messages(server)
