"""`penstock pipeline run` as a process: killed, refused beside another one, started again and told to stop."""

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

from pyspark.sql import SparkSession

from bench.pipeline_data import write_history
from penstock.pipeline.locations import HistoryLocation, read_history
from tests.waiting import wait_until

WITHIN_S = 600.0
PENSTOCK = Path(sys.executable).with_name("penstock")


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


@contextmanager
def service(folder: Path) -> Iterator["subprocess.Popen[str]"]:
    command = [str(PENSTOCK), "pipeline", "run", "pipeline.toml", "--master", "local[2]"]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def archived(port: int, process: "subprocess.Popen[str]") -> tuple[int, int]:
    """How many rows were archived, in how many runs that worked."""
    assert process.poll() is None, process.communicate()
    try:
        with urlopen(f"http://127.0.0.1:{port}/status") as answer:
            (job,) = json.loads(answer.read())["jobs"]
    except OSError:
        return 0, 0
    return int(job["past"]["rows"]), int(job["past"]["runs"]) - int(job["past"]["failed"])


def test_a_service_that_is_killed_is_started_again_and_stops_when_it_is_told(
    spark: SparkSession, tmp_path: Path
) -> None:
    port = free_port()
    write_history(tmp_path / "data", 2_000, seed=1, rows_per_frame=250, with_bodies=False)
    (tmp_path / "pipeline.toml").write_text(
        f'[pipeline]\nsource = "data"\narchive = "archive"\nlisten = "127.0.0.1:{port}"\n[jobs.archive]\nevery = "1s"\n'
    )
    with service(tmp_path) as first:
        wait_until(lambda: archived(port, first)[0] == 2_000, within_s=WITHIN_S)
        runs = archived(port, first)[1]
        refused = subprocess.run(
            [PENSTOCK, "pipeline", "run", "pipeline.toml"], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert refused.returncode == 78
        assert f"another `penstock pipeline run` works in ./pipeline: process {first.pid} on" in refused.stderr
        first.kill()
        first.wait()

    with service(tmp_path) as again:
        # It goes on from what the first one has left.
        wait_until(lambda: archived(port, again)[1] > runs + 2, within_s=WITHIN_S)
        assert archived(port, again)[0] == 2_000
        again.send_signal(signal.SIGTERM)
        out, said = again.communicate(timeout=WITHIN_S)
    assert (again.returncode, "1 job of 1 worked" in out) == (0, True), said

    rows = read_history(spark, HistoryLocation(where=str(tmp_path / "archive")), ("shard", "offset"))
    assert (rows.count(), rows.distinct().count()) == (2_000, 2_000)
