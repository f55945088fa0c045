"""Runs a `store_worker` until it has said so much, and lets it be killed."""

import os
import random
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from penstock.runtime.interface import EXIT_STORAGE_FAILED
from penstock.telemetry import LOG_SEGMENT_DROPPED, STORE_SNAPSHOT_MADE
from tests.acceptance.processes import ROOT, SECONDS_MAX
from tests.acceptance.store_witness import StoreWitness
from tests.acceptance.store_worker import CHILD_BEGUN


class Moment(NamedTuple):
    """When a worker is to be killed."""

    lines: int
    # The first note of this name.
    after: str | None = None


def some_moment(dice: random.Random) -> Moment:
    """Often right after the start, and as often while a journal is being made short."""
    early = [0, 1, dice.randint(0, 100)]
    lines = dice.choice([*early, dice.randint(0, 3_000), *early, dice.randint(0, 1_000)])
    return Moment(lines, dice.choice([None, CHILD_BEGUN, STORE_SNAPSHOT_MADE.name, LOG_SEGMENT_DROPPED.name]))


def run_until_killed(
    folder: Path,
    witness: StoreWitness,
    *options: str,
    moment: Moment,
    before_kill: Callable[[], int] | None = None,
) -> None:
    """Kill a worker once it has said so many lines, from the beginning or from a note on; all it had said is heard.

    ``before_kill`` may cut its power, and says when it did. The process that makes a
    snapshot for it, if there is one, ends too, without being told.
    """
    command = [sys.executable, "-m", "tests.acceptance.store_worker", str(folder), "--run", str(witness.next_run())]
    command += ["--shards", str(witness.shards)]
    cut_at_ns = None
    with subprocess.Popen(
        [*command, *options], cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        watchdog = threading.Timer(SECONDS_MAX, process.kill)
        watchdog.start()
        try:
            while moment.after is not None and (line := process.stdout.readline()):
                _hear(line, witness)
                if line.startswith(b"note ") and moment.after.encode() in line:
                    break
            for _ in range(moment.lines):
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
    witness.orphans += see_to_their_end(folder.parent)
    assert status in expected, errors
    for line in rest:
        _hear(line, witness)
    witness.end_round(cut_at_ns)


def _hear(line: bytes, witness: StoreWitness) -> None:
    # Death may cut the last line short: then it was not said.
    if line.endswith(b"\n"):
        witness.hear(line.decode())


def see_to_their_end(root: Path, *, seconds_max: float = SECONDS_MAX) -> int:
    """Return how many processes still use a folder after their parent's death; each must end by itself."""
    count = 0
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
            descriptor = os.pidfd_open(int(process.name)) if str(root).encode() in words else None
        except (FileNotFoundError, ProcessLookupError):
            continue
        if descriptor is not None:
            try:
                count += 1
                poll = select.poll()
                poll.register(descriptor, select.POLLIN)
                assert poll.poll(seconds_max * 1_000), f"{process.name} outlives its parent: {words}"
            finally:
                os.close(descriptor)
    return count
