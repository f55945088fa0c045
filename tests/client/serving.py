"""A real server in a process of its own, which a test can kill and start again at the same port and folder."""

import os
import subprocess
import sys
import threading
from pathlib import Path
from types import TracebackType
from typing import Self

ROOT = Path(__file__).resolve().parents[2]
SECONDS_MAX = 120.0


class Server:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._port = 0
        self.start()

    def start(self) -> None:
        options = ["--port", str(self._port), "--data", str(self._folder), "--log-level", "error"]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "penstock", "serve", *options],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
        )
        self._watchdog = threading.Timer(SECONDS_MAX, self._process.kill)
        self._watchdog.daemon = True
        self._watchdog.start()
        assert self._process.stdout is not None
        self.url = self._process.stdout.readline().decode().split()[-1]
        assert self.url.startswith("http"), "the server did not say its address"
        self._port = int(self.url.rpartition(":")[2])

    def kill(self) -> None:
        """End it in the middle of whatever it does."""
        self._process.kill()
        self._wait()

    def stop(self) -> None:
        self._process.terminate()
        self._wait()

    def _wait(self) -> None:
        self._process.wait(SECONDS_MAX)
        self._watchdog.cancel()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
