"""A `penstock serve` of its own process, and many clients that remember what they were promised."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.acceptance.processes import ROOT, STALL_MS, STALLED, tell_stalls
from tests.server.serving import Client
from tests.waiting import wait_until

# A server that hangs is killed, and its test fails for want of what it should have said.
SECONDS_MAX = 300.0
_ADDRESS = re.compile(r"(https?)://(\[?[^\s\]]+\]?):(\d+)")


class ServerProcess:
    """Started on entering, killed on leaving if it is still there."""

    def __init__(self, data: Path, *options: str, environment: Mapping[str, str] | None = None) -> None:
        self._notes = data.parent / f"notes-{time.monotonic_ns()}.txt"
        with self._notes.open("wb") as notes:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "penstock", "serve", "--port", "0", "--data", str(data), *options],
                cwd=ROOT,
                env={**os.environ, "PENSTOCK_STALL_MS": str(STALL_MS), **(environment or {})},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=notes,
            )
        self._watchdog = threading.Timer(SECONDS_MAX, self.process.kill)
        self._watchdog.start()
        self.address = ("", 0)

    def __enter__(self) -> Self:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            found = _ADDRESS.search(line.decode())
            if found:
                self.address = found[2].strip("[]"), int(found[3])
                return self
        raise AssertionError(f"the server ended with {self.finish()} and did not start: {self.notes()}")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.kill()
        self.finish()

    def client(self) -> Client:
        return Client(self.address)

    def tell(self, what: int = signal.SIGTERM) -> None:
        self.process.send_signal(what)

    def finish(self) -> int:
        """Return the exit code, once there is one."""
        code = self.process.wait()
        self._watchdog.cancel()
        self._watchdog.join()
        if self.process.stdout is not None:
            self.process.stdout.close()
        tell_stalls(self._notes)
        return code

    def notes(self) -> str:
        """Return what the server has noted, without its stalls, which depend on the machine."""
        return "".join(line for line in self._notes.read_text().splitlines(keepends=True) if STALLED not in line)

    def drain(self, queue: str) -> list[str]:
        """Receive and ack everything in a queue, and return the bodies."""
        bodies: list[str] = []
        with self.client() as client:
            while messages := client.ask("GET", f"/api/queues/{queue}/messages?limit=1000").json()["messages"]:
                bodies += [message["data"] for message in messages]
                receipts = [message["receipt"] for message in messages]
                assert client.ask("POST", f"/api/queues/{queue}/ack", {"receipts": receipts}).status == 200
        return bodies


class Senders:
    """Threads that send one message after the other until they are refused or cut off."""

    def __init__(self, server: ServerProcess, queue: str, *, name: str, count: int = 8) -> None:
        self._address = server.address
        self._queue = queue
        self._lock = threading.Lock()
        self.tried: set[str] = set()
        self.acknowledged: set[str] = set()
        # What ended each: a status, or 0 for a connection that ended.
        self.endings: list[int] = []
        self._threads = [threading.Thread(target=self._send, args=(f"{name}/{place}",)) for place in range(count)]
        for thread in self._threads:
            thread.start()

    def wait_for(self, count: int) -> None:
        wait_until(lambda: len(self.acknowledged) >= count or not any(map(threading.Thread.is_alive, self._threads)))
        assert len(self.acknowledged) >= count, self.endings

    def join(self) -> None:
        for thread in self._threads:
            thread.join()

    def _send(self, name: str) -> None:
        status = 0
        try:
            with Client(self._address) as client:
                number = 0
                while True:
                    body = f"{name}/{number}"
                    with self._lock:
                        self.tried.add(body)
                    status = client.ask("POST", f"/api/queues/{self._queue}/messages", {"data": body}).status
                    if status != 201:
                        break
                    with self._lock:
                        self.acknowledged.add(body)
                    number += 1
        except (OSError, ValueError, json.JSONDecodeError):
            status = 0
        with self._lock:
            self.endings.append(status)
