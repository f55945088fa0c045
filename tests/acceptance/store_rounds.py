"""Runs a `store_worker` until it has said so much, and lets it be killed."""

import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from penstock.runtime.interface import EXIT_STORAGE_FAILED
from tests.acceptance.processes import ROOT, SECONDS_MAX
from tests.acceptance.store_witness import StoreWitness


def run_until_killed(
    folder: Path,
    witness: StoreWitness,
    *options: str,
    lines: int,
    before_kill: Callable[[], int] | None = None,
) -> None:
    """Kill a worker once it has said so many lines, 0 for at once; all it had said is heard.

    ``before_kill`` may cut its power, and says when it did.
    """
    command = [sys.executable, "-m", "tests.acceptance.store_worker", str(folder), "--run", str(witness.next_run())]
    cut_at_ns = None
    with subprocess.Popen(
        [*command, *options], cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        watchdog = threading.Timer(SECONDS_MAX, process.kill)
        watchdog.start()
        try:
            for _ in range(lines):
                _hear(process.stdout.readline(), witness)
            if before_kill is not None:
                cut_at_ns = before_kill()
        finally:
            process.kill()
            rest = process.stdout.readlines()
            errors = process.stderr.read().decode()
            status = process.wait()
            watchdog.cancel()
            watchdog.join()
    expected = {-signal.SIGKILL} if before_kill is None else {-signal.SIGKILL, EXIT_STORAGE_FAILED}
    assert status in expected, errors
    for line in rest:
        _hear(line, witness)
    witness.end_round(cut_at_ns)


def _hear(line: bytes, witness: StoreWitness) -> None:
    # Death may cut the last line short: then it was not said.
    if line.endswith(b"\n"):
        witness.hear(line.decode())
