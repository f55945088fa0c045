"""A benchmark of the pipeline that is stopped leaves nothing behind."""

import signal
import subprocess
import sys
from pathlib import Path

from tests.waiting import wait_until

ROOT = Path(__file__).parent.parent.parent
WAIT_S_MAX = 300


def test_a_benchmark_that_is_ended_takes_its_folders_with_it(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "bench.pipeline", "--rows", "20000000", "--data", str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as child:
        try:
            # Something in the folder: one that is just being made is not registered for removal yet.
            wait_until(lambda: any(tmp_path.glob("*/*")) or child.poll() is not None, within_s=WAIT_S_MAX)
            assert child.poll() is None, "it ended by itself"
            child.send_signal(signal.SIGTERM)
            assert child.wait(WAIT_S_MAX) == 1
        finally:
            child.kill()
    assert list(tmp_path.iterdir()) == []
