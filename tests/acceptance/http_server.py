"""A real server in a process of its own, on a port of its own, and gone after the test."""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from tests.acceptance.processes import ROOT, STALL_MS, STALLED, tell_stalls

# A server that hangs is killed, and its test fails for want of an answer.
SECONDS_MAX = 1_200.0

_PROGRAM = """
import resource
import sys
from pathlib import Path
from penstock.server import serve
from penstock.settings import LogLevel, ServerSettings

if files_max := int(sys.argv[4]):
    resource.setrlimit(resource.RLIMIT_NOFILE, (files_max, files_max))
settings = ServerSettings(
    port=0,
    data=Path(sys.argv[1]),
    log_level=LogLevel.WARNING,
    stall_ms=int(sys.argv[5]),
    request_bytes_max=int(sys.argv[2]),
    buffered_bytes_max=int(sys.argv[3]),
    connections_max=2_000,
    kafka=True,
    kafka_port=0,
)
kafka = []
serve(settings, announce=lambda address: print(address, *kafka, flush=True), announce_kafka=kafka.append)
"""


@dataclass(frozen=True)
class RunningServer:
    address: str
    # Where Kafka clients find it, as HOST:PORT.
    kafka: str
    process: "subprocess.Popen[bytes]"
    notes: Path

    @property
    def port(self) -> int:
        port = urlsplit(self.address).port
        assert port is not None
        return port

    def memory_kib(self, name: str) -> int:
        """Return a figure of the kernel's about the process: `VmRSS` now, `VmHWM` at its highest."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return next(int(line.split()[1]) for line in status.splitlines() if line.startswith(f"{name}:"))


@contextmanager
def running_server(
    folder: Path,
    *,
    request_bytes_max: int = 16 * 1024 * 1024,
    buffered_bytes_max: int = 256 * 1024 * 1024,
    may_note: str | None = None,
    files_max: int = 0,
) -> Iterator[RunningServer]:
    """Start a server and stop it; fail if it exits with an error, or has noted something without ``may_note`` in it."""
    folder.mkdir(parents=True, exist_ok=True)
    notes = folder / "notes.txt"
    with notes.open("wb") as written:
        process = subprocess.Popen(
            [
                sys.executable,
                "-c",
                _PROGRAM,
                str(folder / "data"),
                *map(str, (request_bytes_max, buffered_bytes_max, files_max, STALL_MS)),
            ],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=written,
        )
    watchdog = threading.Timer(SECONDS_MAX, process.kill)
    watchdog.start()
    try:
        assert process.stdout is not None
        said = process.stdout.readline().decode()
        assert said, f"the server ended with {process.wait()} and did not start: {notes.read_text()}"
        address, kafka = said.split()
        yield RunningServer(address, kafka, process, notes)
        process.terminate()
        assert process.wait(60) == 0
        noted = [line for line in notes.read_text().splitlines() if STALLED not in line]
        assert [line for line in noted if may_note is None or may_note not in line] == []
    finally:
        process.kill()
        process.wait()
        tell_stalls(notes)
        watchdog.cancel()
        watchdog.join()
        if process.stdout is not None:
            process.stdout.close()
