"""A real server in a process of its own, which a test can kill and start again at the same port and folder."""

import os
import subprocess
import sys
import threading
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.ports import HeldPort

ROOT = Path(__file__).resolve().parents[2]
# A server that hangs is killed, and its test fails for want of an answer. It lives for as long as all the tests of a
# process that share it take, on a slow machine too.
SECONDS_MAX = 3_600.0
STOP_SECONDS_MAX = 60.0


class Server:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._port = HeldPort()
        self.start()

    def start(self) -> None:
        options = ["--port", str(self._port.number), "--data", str(self._folder), "--log-level", "error"]
        errors = self._folder.with_suffix(".err")
        with errors.open("wb") as written:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "penstock", "serve", *options],
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=written,
            )
        self._watchdog = threading.Timer(SECONDS_MAX, self._process.kill)
        self._watchdog.daemon = True
        self._watchdog.start()
        assert self._process.stdout is not None
        said = self._process.stdout.readline().decode()
        if "http" not in said:
            # Nothing said at all is the end of it; otherwise it runs, and is at fault.
            if said:
                self.kill()
            else:
                self._wait()
            raise AssertionError(
                f"the server said {said!r}, ended with {self._process.returncode}: {errors.read_text()}"
            )
        self.url = said.split()[-1]

    def kill(self) -> None:
        """End it in the middle of whatever it does."""
        self._process.kill()
        self._wait()

    def stop(self) -> None:
        self._process.terminate()
        self._wait()

    def _wait(self) -> None:
        self._process.wait(STOP_SECONDS_MAX)
        self._watchdog.cancel()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        self._port.give_back()
