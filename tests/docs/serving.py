"""A real server in a process of its own, for the pages and the examples that speak to one.

It listens on any free port and keeps its messages in the folder it is given. Pages
say the address that a reader has; who runs them puts this one in its place.
"""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# The address a server has unless it is told another.
SAID = "127.0.0.1:8080"
KAFKA_SAID = "127.0.0.1:9092"
START_SECONDS_MAX = 60
STOP_SECONDS_MAX = 60

_SERVE = """
import sys
from pathlib import Path

from penstock.server import serve
from penstock.settings import LogLevel, ServerSettings

has_kafka = len(sys.argv) > 2
settings = ServerSettings(
    port=0, data=Path(sys.argv[1]), sqs=True, kafka=has_kafka, kafka_port=0, log_level=LogLevel.WARNING
)
kafka = []
serve(settings, announce=lambda address: print(address, *kafka, flush=True), announce_kafka=kafka.append)
"""


@contextmanager
def server(data: Path) -> Iterator[str]:
    """Run a server with its messages in ``data``; give its address, such as `127.0.0.1:49152`."""
    with _started(data) as (address, *_):
        yield address


@contextmanager
def kafka_server(data: Path) -> Iterator[tuple[str, str]]:
    """Run a server that speaks Kafka, too; give both of its addresses."""
    with _started(data, "kafka") as (address, kafka):
        yield address, kafka


@contextmanager
def _started(data: Path, *more: str) -> Iterator[list[str]]:
    # Its environment is bare of settings: those of the tests' own environment are not the page's.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}
    command = [sys.executable, "-c", _SERVE, str(data), *more]
    with subprocess.Popen(
        command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
    ) as process:
        # A server that hangs says nothing, and reading would wait for it for ever.
        alarm = threading.Timer(START_SECONDS_MAX, process.kill)
        alarm.start()
        try:
            assert process.stdout is not None
            address = process.stdout.readline().strip()
            alarm.cancel()
            assert address, f"the server did not start; it ended with {process.wait()}"
            yield address.removeprefix("http://").split()
        finally:
            alarm.cancel()
            stop(process)


def stop(process: "subprocess.Popen[str]") -> None:
    """Tell a server to stop, in good order; one that does not has failed."""
    process.terminate()
    try:
        process.wait(STOP_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
