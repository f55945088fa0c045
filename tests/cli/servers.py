"""A server in a process of its own, as `penstock serve` starts it, and never left behind."""

import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import TracebackType
from typing import Self

# Nothing here waits longer for a process to end.
SECONDS_MAX = 60.0
# A server that hangs is killed, and its test fails for want of what it should have said.
_LIFE_SECONDS_MAX = 600.0
_LISTENS = re.compile(r"Penstock listens on (\S+)")


class Served:
    """One run of `penstock serve` on a port of its own."""

    def __init__(self, folder: Path, *options: str, seconds_max: float = _LIFE_SECONDS_MAX) -> None:
        command = [sys.executable, "-m", "penstock", "serve", "--port", "0", "--data", str(folder), *options]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}
        self._errors = folder.with_suffix(".err").open("w+")
        self._process = subprocess.Popen(
            command,
            cwd=folder.parent,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )
        self._watchdog = threading.Timer(seconds_max, self._process.kill)
        self._watchdog.start()
        self.greeting = self._listen()
        found = _LISTENS.search(self.greeting)
        if found is None:
            said = f"the server ended with {self._process.wait()}: {self.greeting}\n{self.errors()}"
            self.close()
            raise AssertionError(said)
        self.url = found[1]

    def _listen(self) -> str:
        assert self._process.stdout is not None
        lines: list[str] = []
        for line in self._process.stdout:
            lines.append(line)
            if "/docs" in line:
                break
        return "".join(lines)

    def errors(self) -> str:
        self._errors.seek(0)
        return self._errors.read()

    @property
    def pid(self) -> int:
        return self._process.pid

    def kill(self) -> None:
        """`kill -9`."""
        self._process.kill()
        self._process.wait()

    def wait(self) -> int:
        """Return its exit code, once it has ended."""
        return self._process.wait(SECONDS_MAX)

    def send(self, by: signal.Signals) -> None:
        self._process.send_signal(by)

    def stop(self, by: signal.Signals = signal.SIGTERM) -> int:
        """Tell it to stop and return its exit code."""
        self._process.send_signal(by)
        return self._process.wait()

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        self._watchdog.cancel()
        self._watchdog.join()
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._errors.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
