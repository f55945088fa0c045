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
START_SECONDS_MAX = 60
STOP_SECONDS_MAX = 30

_SERVE = """
import sys
from pathlib import Path

from penstock.server import serve
from penstock.settings import LogLevel, ServerSettings

settings = ServerSettings(port=0, data=Path(sys.argv[1]), sqs=True, log_level=LogLevel.WARNING)
serve(settings, announce=lambda address: print(address, flush=True))
"""


@contextmanager
def server(data: Path) -> Iterator[str]:
    """Run a server with its messages in ``data``; give its address, such as `127.0.0.1:49152`."""
    # Its environment is bare of settings: those of whoever runs the tests are not the page's.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}
    command = [sys.executable, "-c", _SERVE, str(data)]
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
            yield address.removeprefix("http://")
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
