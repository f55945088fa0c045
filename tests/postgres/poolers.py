"""A real PgBouncer in front of a server of tests: it lends a connection for one transaction, and may be killed.

It listens on a Unix socket in a folder of its own and nowhere else, and lets everybody in as the superuser, as the
server behind it does. It knows no prepared statements, as none before version 1.21 does.
"""

import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Self

import psycopg
import pytest

from tests.postgres.servers import START_S, Server, unprivileged_user

PROGRAM = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin:/usr/local/sbin")
needs_pgbouncer = pytest.mark.skipif(PROGRAM is None, reason="there is no pgbouncer: apt-get install pgbouncer")

_LOOK_S = 0.02
_PORT = 6432
_SETTINGS = """
[databases]
* = host={server} user=postgres

[pgbouncer]
listen_addr =
listen_port = {port}
unix_socket_dir = {folder}
auth_type = any
pool_mode = transaction
default_pool_size = {size}
max_client_conn = 200
server_fast_close = 1
"""


class Pooler:
    """PgBouncer in transaction mode, running from the start; leave its `with` to end it."""

    def __init__(self, server: Server, *, size: int = 4) -> None:
        assert PROGRAM is not None
        self._user = unprivileged_user()
        # Short, since the path of a Unix socket may have about a hundred characters.
        self.folder = Path(tempfile.mkdtemp(prefix="bouncer-", dir="/tmp"))
        settings = _SETTINGS.format(server=server.folder, folder=self.folder, port=_PORT, size=size)
        (self.folder / "pgbouncer.ini").write_text(settings)
        if self._user is not None:
            shutil.chown(self.folder, self._user)
        self.folder.chmod(0o755)
        self._server = server
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._end(signal.SIGTERM)
        shutil.rmtree(self.folder, ignore_errors=True)

    def url(self, dsn: str) -> str:
        """Return the way to a database of the server that leads through here."""
        return dsn.replace(str(self._server.folder), f"{self.folder}&port={_PORT}")

    def start(self) -> None:
        """Start it, and return when it answers."""
        assert PROGRAM is not None
        until = time.monotonic() + START_S
        (self.folder / f".s.PGSQL.{_PORT}").unlink(missing_ok=True)
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [PROGRAM, "pgbouncer.ini"],
                cwd=self.folder,
                user=self._user,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"PgBouncer does not answer:\n{(self.folder / 'log').read_text()}")
            time.sleep(_LOOK_S)  # Real time: another process.

    def kill(self) -> None:
        """`kill -9`: all connections through it are gone, whatever the server was doing for them."""
        self._end(signal.SIGKILL)

    def _answers(self) -> bool:
        try:
            psycopg.connect(self.url(self._server.dsn), connect_timeout=2).close()
        except psycopg.OperationalError:
            return False
        return True

    def _end(self, how: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(how)
        self._process.wait()
        self._process = None
