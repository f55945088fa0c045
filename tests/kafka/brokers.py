"""A real `penstock serve` that speaks Kafka, in a process of its own, and small clients that speak bytes to it."""

import os
import re
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, Self

from kio.serial import entity_reader

from penstock.api.kafka.wire.schema import Api, is_flexible
from tests.acceptance.processes import ROOT
from tests.kafka.messages import encoded, request_type, response_type
from tests.ports import HeldPort

SECONDS_MAX = 3_600.0
ANSWER_S = 60.0
_KAFKA = re.compile(r"kafka +(\S+):(\d+)")
_HTTP = re.compile(r"(https?://\S+:\d+)")


class Broker:
    """Started on entering, killed on leaving. It may be killed and started again at the same port meanwhile."""

    def __init__(self, data: Path, *options: str) -> None:
        self._data = data
        self._options = options
        self._held = HeldPort()
        self.host, self.port = "127.0.0.1", self._held.number
        self.url = ""
        self.process: subprocess.Popen[bytes] | None = None
        self._watchdog: threading.Timer | None = None

    @property
    def servers(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def notes(self) -> str:
        return (self._data.parent / "notes.txt").read_text()

    def start(self) -> None:
        self._data.parent.mkdir(parents=True, exist_ok=True)
        command = ["penstock", "serve", "--port", "0", "--kafka", "--kafka-port", str(self.port)]
        with (self._data.parent / "notes.txt").open("ab") as notes:
            self.process = subprocess.Popen(
                [sys.executable, "-m", *command, "--data", str(self._data), *self._options],
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=notes,
            )
        self._watchdog = threading.Timer(SECONDS_MAX, self.process.kill)
        self._watchdog.start()
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if found := _HTTP.search(line.decode()):
                self.url = self.url or found[1]
            if found := _KAFKA.search(line.decode()):
                self.host, self.port = found[1].strip("[]"), int(found[2])
                return
        raise AssertionError(f"the server ended with {self._gone()} and did not start: {self.notes}")

    def kill(self) -> None:
        """End it as a power cut would, as far as the process is concerned."""
        assert self.process is not None
        self.process.kill()
        self._gone()

    def stop(self) -> int:
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self._gone()

    def _gone(self) -> int:
        assert self.process is not None
        assert self.process.stdout is not None
        assert self._watchdog is not None
        status = self.process.wait(60)
        self._watchdog.cancel()
        self.process.stdout.close()
        self.url = ""
        return status

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self._held.give_back()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        assert self.process is not None
        if self.process.returncode is None:
            self.kill()
        self._held.give_back()


class RawClient:
    """A connection that sends requests made by kio, or whatever bytes it is told."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.socket = socket.create_connection(address, ANSWER_S)
        self._correlation = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, request: Any, *, key: int | None = None, version: int | None = None) -> int:
        """Send a request; return what its answer will begin with."""
        self._correlation += 1
        number = request.__api_key__ if key is None else key
        of = request.__version__ if version is None else version
        head = number.to_bytes(2, "big") + of.to_bytes(2, "big") + self._correlation.to_bytes(4, "big") + b"\0\4test"
        if request.__flexible__:
            head += b"\0"
        self.send_frame(head + encoded(request))
        return self._correlation

    def send_frame(self, frame: bytes) -> None:
        self.socket.sendall(len(frame).to_bytes(4, "big") + frame)

    def frame(self) -> bytes:
        """Return the next frame; raises `ConnectionError` if the connection ends."""
        return self._exactly(int.from_bytes(self._exactly(4), "big"))

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = self.socket.recv(size - len(data))
            if not more:
                raise ConnectionError("the connection has ended")
            data += more
        return data

    def answer(self, key: int, version: int, correlation: int) -> Any:
        """Read the answer to a request, all of it, with kio."""
        frame = self.frame()
        assert int.from_bytes(frame[:4], "big") == correlation
        place = 4
        if is_flexible(key, version) and key != Api.API_VERSIONS:
            assert frame[4] == 0
            place = 5
        found, size = entity_reader(response_type(key, version))(frame, place)
        assert place + size == len(frame), "bytes are left over"
        return found

    def ask(self, request: Any) -> Any:
        return self.answer(request.__api_key__, request.__version__, self.send(request))

    def is_closed(self) -> bool:
        try:
            return self.socket.recv(1) == b""
        except ConnectionError:
            return True


def request(key: int, version: int, **values: Any) -> Any:
    """Return a request of kio's."""
    return request_type(key, version)(**values)
