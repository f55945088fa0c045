"""The peer of the SQS front end: moto's server, which many Python teams test with in the place of AWS.

It keeps everything in memory and promises nothing of the disk; it is Flask in threads of one process. Its notes of
every request are turned off, as they would cost it more than they tell us.

`python -m bench.moto_peer` serves until it is ended, and says where.
"""

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from threading import Event

from bench import processes
from bench.processes import Server

MISSING = "no moto here, so nothing to compare with"


def is_installed() -> bool:
    return find_spec("moto") is not None and find_spec("flask") is not None


@contextmanager
def server(folder: Path) -> Iterator[Server]:
    with processes.started([sys.executable, "-m", "bench.moto_peer"], folder, "listens on ") as (line, pid):
        yield Server("moto", line.split()[-1], pid)


def _serve() -> None:
    # Without moto to compare with nothing of it is needed.
    from moto.server import ThreadedMotoServer  # noqa: PLC0415

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    found = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    found.start()
    host, port = found.get_host_and_port()
    sys.stdout.write(f"moto listens on http://{host}:{port}\n")
    sys.stdout.flush()
    Event().wait()


if __name__ == "__main__":
    _serve()
