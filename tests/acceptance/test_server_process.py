"""A server in a process of its own: told to stop, killed, and on a disk that fails or is full."""

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from penstock.runtime.interface import EXIT_STORAGE_FAILED
from tests.acceptance.mounts import needs_to_mount, tmpfs
from tests.acceptance.processes import ROOT
from tests.acceptance.server_process import Senders, ServerProcess
from tests.acceptance.test_failing_disk import failing, needs_a_compiler, shim

__all__ = ["shim"]

MIB = 1024 * 1024


def create(server: ServerProcess, queue: str = "orders", **settings: object) -> None:
    with server.client() as client:
        assert client.ask("POST", "/api/queues", {"queue_name": queue, **settings}).status in {200, 201}


@pytest.mark.parametrize("what", [signal.SIGTERM, signal.SIGINT])
def test_a_server_that_is_told_to_stop_keeps_what_it_acknowledged_and_refuses_the_rest(
    tmp_path: Path, what: int
) -> None:
    with ServerProcess(tmp_path / "data") as server:
        create(server)
        senders = Senders(server, "orders", name="a")
        senders.wait_for(200)
        server.tell(what)
        senders.join()
        assert server.finish() == 0
        assert "server.stopped" in server.notes()
        assert "Traceback" not in server.notes()
    # Each was told in words, or found its connection closed after an answer that said so.
    assert set(senders.endings) <= {503, 0}
    with ServerProcess(tmp_path / "data") as server:
        assert server.notes().count('"was_clean": true') == 2, "journal and history"
        found = server.drain("orders")
    assert len(found) == len(set(found))
    assert senders.acknowledged <= set(found) <= senders.tried


def test_long_polls_return_at_once_when_the_server_stops(tmp_path: Path) -> None:
    # One that waited on would be cut off after half of its time, and have no answer.
    with (
        ServerProcess(tmp_path / "data", "--stop-timeout-s", "10") as server,
        server.client() as waiting,
        server.client() as asking,
    ):
        create(server)
        waiting.send(b"GET /api/queues/orders/messages?wait_s=20&limit=5 HTTP/1.1\r\nhost: localhost\r\n\r\n")
        while b"penstock_long_polls_waiting 1.0" not in asking.ask("GET", "/metrics").body:
            pass
        server.tell()
        assert waiting.answer().json() == {"messages": []}
        assert server.finish() == 0
        assert "server.requests_aborted" not in server.notes()


def test_a_second_signal_ends_the_waiting_for_a_client_that_does_not_go_on(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data", "--stop-timeout-s", "200") as server, server.client() as slow:
        create(server)
        # Begun and never finished, so that the server has to wait for it.
        slow.send(b"POST /api/queues/orders/messages HTTP/1.1\r\nhost: localhost\r\ncontent-length: 10\r\n\r\nabc")
        _wait_until_arrived(server)
        server.tell()
        while "server.stopping" not in server.notes():
            pass
        server.tell()
        begun = time.monotonic()
        assert server.finish() == 0
        assert time.monotonic() - begun < 100
        assert '"server.requests_aborted", "requests": 1' in server.notes()
    with ServerProcess(tmp_path / "data") as server:
        assert '"was_clean": false' not in server.notes()


def _wait_until_arrived(server: ServerProcess) -> None:
    with server.client() as asking:
        while b"penstock_connections 2.0" not in asking.ask("GET", "/metrics").body:
            pass


@pytest.mark.slow
def test_kill_nine_among_many_senders_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    dice = random.Random("server kill")
    acknowledged: set[str] = set()
    tried: set[str] = set()
    for number in range(5):
        with ServerProcess(tmp_path / "data", "--shards", "2") as server:
            create(server)
            senders = Senders(server, "orders", name=f"{number}")
            senders.wait_for(dice.randint(1, 300))
            server.tell(signal.SIGKILL)
            senders.join()
            assert server.finish() == -signal.SIGKILL
        acknowledged |= senders.acknowledged
        tried |= senders.tried
    with ServerProcess(tmp_path / "data", "--shards", "2") as server:
        found = server.drain("orders")
    assert len(acknowledged) > 200
    assert len(found) == len(set(found))
    assert acknowledged <= set(found) <= tried


@needs_a_compiler
def test_a_failed_fsync_ends_the_server_and_nothing_is_acknowledged_after_it(tmp_path: Path, shim: Path) -> None:
    trigger = tmp_path / "trigger"
    environment = failing("fdatasync", shim=shim, trigger=trigger)
    with ServerProcess(tmp_path / "data", environment=environment) as server:
        create(server)
        senders = Senders(server, "orders", name="a")
        senders.wait_for(50)
        trigger.touch()
        senders.join()
        assert server.finish() == EXIT_STORAGE_FAILED
        assert "stopped, because the disk failed" in server.notes()
    # No client was told that it failed, and none that it did not.
    assert set(senders.endings) == {0}
    with ServerProcess(tmp_path / "data") as server:
        found = set(server.drain("orders"))
    assert senders.acknowledged <= found <= senders.tried


@needs_to_mount
def test_a_server_on_a_full_disk_is_not_ready_and_becomes_so_when_there_is_room(tmp_path: Path) -> None:
    with tmpfs(tmp_path / "disk", 48 * MIB) as disk, ServerProcess(disk / "data") as server, server.client() as client:
        create(server)
        assert client.ask("GET", "/health/ready").status == 200
        ballast = disk / "ballast"
        with ballast.open("wb") as file:
            try:
                while True:
                    file.write(bytes(MIB))
            except OSError:
                pass
        status = 201
        while status == 201:
            status = client.ask("POST", "/api/queues/orders/messages", {"data": "x" * 900_000}).status
        assert status == 507
        ready = client.ask("GET", "/health/ready")
        assert (ready.status, ready.json()["reasons"]) == (503, ["disk_full"])
        assert client.ask("GET", "/health/live").status == 200
        ballast.unlink()
        assert client.ask("GET", "/health/ready").status == 200
        assert client.ask("POST", "/api/queues/orders/messages", {"data": "x"}).status == 201


def test_a_server_that_cannot_start_says_why_and_what_to_do(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data") as server:
        for options, words in [
            (["--port", str(server.address[1]), "--data", str(tmp_path / "other")], "something else does"),
            (["--port", "0", "--data", str(tmp_path / "data")], "in use by another process"),
            (["--port", "0", "--host", "0.0.0.0", "--data", str(tmp_path / "other")], "penstock key create"),
        ]:
            done = subprocess.run(
                [sys.executable, "-m", "penstock", "serve", *options],
                cwd=ROOT,
                capture_output=True,
                text=True,
                timeout=120,
                check=False,
            )
            assert done.returncode > 0
            assert words in " ".join(done.stderr.split())
            assert "Traceback" not in done.stderr
