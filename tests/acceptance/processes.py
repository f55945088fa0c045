"""Starts writers, listens to them, and never leaves one behind."""

import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.acceptance.witness import Witness

ROOT = Path(__file__).resolve().parents[2]
# Nothing here waits longer: a process that hangs is killed, and its test fails for want of what it should have said.
SECONDS_MAX = 300.0
# Servers of tests note what holds up their loop for so long.
STALL_MS = 50
STALLED = "server.stalled"


def tell_stalls(notes: Path) -> None:
    """Print what a server has noted of stalls: seen when its test fails, and never a failure itself."""
    print(*(line for line in notes.read_text().splitlines() if STALLED in line), sep="\n")  # noqa: T201


class Writer:
    """One run of `tests.acceptance.writer`. What it says goes to the witness."""

    def __init__(
        self, folder: Path, witness: Witness, *options: str, environment: Mapping[str, str] | None = None
    ) -> None:
        self._witness = witness
        command = [sys.executable, "-m", "tests.acceptance.writer", str(folder), "--run", str(witness.next_run())]
        self._process = subprocess.Popen(
            [*command, *options],
            cwd=ROOT,
            env={**os.environ, **(environment or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self._watchdog = threading.Timer(SECONDS_MAX, self._process.kill)
        self._watchdog.start()
        self.lines: list[str] = []
        self.acknowledged = 0
        # What it wrote to its standard error, known when it has ended.
        self.errors = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def listen(self, until_acknowledged: int) -> None:
        """Return when so many records were acknowledged, 0 for as soon as the log is open, or the process has ended."""
        while not self.lines or self.acknowledged < until_acknowledged:
            if not self._hear_line():
                break

    def finish(self) -> int:
        """Listen to the end and return the exit code."""
        while self._hear_line():
            pass
        return self._wait()

    def kill(self) -> int:
        """Kill the process, hear what it had said before, and return its exit code."""
        self._process.kill()
        return self.finish()

    def _hear_line(self) -> bool:
        assert self._process.stdout is not None
        if self._process.stdout.closed:
            return False
        line = self._process.stdout.readline().decode()
        # Death may cut the last line short: then it was not said.
        if not line.endswith("\n"):
            return False
        self.lines.append(line.strip())
        self.acknowledged += line.startswith("ack ")
        self._witness.hear(line)
        return True

    def _wait(self) -> int:
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        if not self._process.stdout.closed:
            self.errors = self._process.stderr.read().decode()
            self._process.wait()
            self._watchdog.cancel()
            self._watchdog.join()
            self._process.stdout.close()
            self._process.stderr.close()
        return self._process.wait()
