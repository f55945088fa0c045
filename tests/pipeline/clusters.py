"""Clusters on this machine, from the pip package alone: what a test of one needs, and nothing that lives on after it.

Everything listens on loopback, on any free port. Python on a cluster is one that cannot import
Penstock (`write_bare_python`), so whatever runs there came in the zip.
"""

import os
import re
import subprocess
import sys
import sysconfig
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark

# In the folder of a test.
PYTHON = "bare-python"
START_SECONDS_MAX = 300
RUN_SECONDS_MAX = 900
STOP_SECONDS_MAX = 60

LOOPBACK = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.ui.enabled": "false",
    "spark.log.level": "ERROR",
    "spark.sql.shuffle.partitions": "2",
}


def write_bare_python(folder: Path) -> None:
    """Make a Python that has all that is installed here, but not this checkout.

    Without `site` no .pth file is read, which is how an editable install is found; the
    packages beside it come by path. Spark puts what was shipped before that.
    """
    packages = sysconfig.get_path("purelib")
    python = folder / PYTHON
    python.write_text(f'#!/bin/sh\nPYTHONPATH="$PYTHONPATH:{packages}" exec "{sys.executable}" -S "$@"\n')
    python.chmod(0o755)


def spark_home(folder: Path) -> Path:
    """Make a home for Spark in ``folder``: links to all that the pip package has, and room for what executors leave.

    The executors of a `local-cluster` work in a folder of that home, and the package is not ours to write to.
    """
    home = folder / "spark"
    home.mkdir(exist_ok=True)
    for path in Path(pyspark.__file__).parent.iterdir():
        if not (home / path.name).exists() and path.name != "work":
            (home / path.name).symlink_to(path)
    return home


def environment(folder: Path) -> dict[str, str]:
    """Return what a process of a cluster may see of ours: no path to the checkout, no settings, another Python."""
    python = str(folder / PYTHON)
    dropped = ("PYTHONPATH", "PYSPARK_", "PENSTOCK_", "SPARK_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
    return kept | {
        "SPARK_HOME": str(spark_home(folder)),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "512m",
        # A master would listen on port 6066, too.
        "SPARK_MASTER_OPTS": "-Dspark.master.rest.enabled=false",
        "PYSPARK_PYTHON": python,
        "PYSPARK_DRIVER_PYTHON": python,
    }


def submit(master: str, command: Sequence[str | Path], *, shipped: Path, folder: Path) -> str:
    """Run a script with spark-submit and return what it printed."""
    options = [f"--conf={name}={value}" for name, value in LOOPBACK.items()]
    done = subprocess.run(
        [spark_home(folder) / "bin" / "spark-submit", "--master", master, "--py-files", shipped, *options, *command],
        cwd=folder,
        env=environment(folder),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS_MAX,
        check=False,
    )
    # spark-submit prints Python's traceback on standard output.
    assert done.returncode == 0, f"{done.stdout[-4_000:]}\n{done.stderr[-4_000:]}"
    return done.stdout


@contextmanager
def standalone(folder: Path, *, workers: int) -> Iterator[str]:
    """Run a master and workers with one core each; give the master's address."""
    with ExitStack() as running:
        command = ["org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
        master = running.enter_context(_daemon(command, r"Starting Spark master at (spark://\S+)", folder))
        for number in range(workers):
            command = ["org.apache.spark.deploy.worker.Worker", "--host", "127.0.0.1", "--port", "0"]
            command += ["--webui-port", "0", "--cores", "1", "--memory", "1g", "--work-dir", f"work-{number}", master]
            running.enter_context(_daemon(command, r"Successfully registered with master (\S+)", folder))
        yield master


@contextmanager
def connect_server(folder: Path) -> Iterator[str]:
    """Run a server of Spark Connect; give its address as a client says it."""
    conf = LOOPBACK | {"spark.connect.grpc.binding.port": "0", "spark.connect.grpc.binding.address": "127.0.0.1"}
    # Its own word that it has started is information, not an error.
    conf["spark.log.level"] = "INFO"
    command = [
        "org.apache.spark.deploy.SparkSubmit",
        "--master",
        "local[2]",
        *(f"--conf={n}={v}" for n, v in conf.items()),
    ]
    command += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal"]
    with _daemon(command, r"Spark Connect server started at: (\S+)", folder) as address:
        yield f"sc://{address}"


@contextmanager
def _daemon(command: Sequence[str], ready: str, folder: Path) -> Iterator[str]:
    """Run a class of Spark's until the block ends; give what its log says, once it says it is ``ready``."""
    with subprocess.Popen(
        [spark_home(folder) / "bin" / "spark-class", *command],
        cwd=folder,
        env=environment(folder),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        # One that hangs says nothing, and reading would wait for it for ever.
        alarm = threading.Timer(START_SECONDS_MAX, process.kill)
        alarm.start()
        try:
            assert process.stderr is not None
            lines: list[str] = []
            for line in process.stderr:
                lines.append(line)
                if found := re.search(ready, line):
                    break
            else:
                raise AssertionError(f"{command[0]} did not start:\n{''.join(lines[-50:])}")
            alarm.cancel()
            # Its log is not read any more, and a full pipe would stop it.
            drain = threading.Thread(target=process.stderr.read)
            drain.start()
            yield found[1]
        finally:
            alarm.cancel()
            _stop(process)
        drain.join()


def _stop(process: "subprocess.Popen[str]") -> None:
    process.terminate()
    try:
        process.wait(STOP_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
