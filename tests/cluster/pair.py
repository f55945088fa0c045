"""A PostgreSQL primary with a synchronous standby, and the URL that finds whichever of the two is the primary."""

import os
import signal
import subprocess
from contextlib import suppress
from types import TracebackType
from typing import Self

import psycopg

from tests.postgres.servers import STANDBY, Server
from tests.waiting import wait_until

_IN_SYNC = "SELECT 1 FROM pg_stat_replication WHERE sync_state IN ('sync', 'quorum')"


class Pair:
    """``names`` is what the primary waits for; it may be changed later with `wait_for`."""

    def __init__(self, version: int | None = None, *, options: dict[str, str] | None = None) -> None:
        # Autovacuum would take its turn when a test measures.
        self._options = {
            "autovacuum": "off",
            "wal_receiver_status_interval": "1",
            "wal_retrieve_retry_interval": "200ms",
            **(options or {}),
        }
        self.primary = Server(version, options=self._options)
        try:
            self.standby = Server(options=self._options, follows=self.primary)
            self.wait_for(STANDBY)
        except BaseException:
            self.primary.close()
            raise

    def wait_for(self, names: str) -> None:
        """Let commits wait for the standbys of these names, or for none."""
        self.primary.set("synchronous_standby_names", names)
        wait_until(lambda: self._shown("SHOW synchronous_standby_names") == names)
        if names:
            wait_until(lambda: self._shown(_IN_SYNC))

    def url_of(self, database: str) -> str:
        """The URL of a database on whichever of the two takes changes."""
        hosts = f"{self.primary.folder},{self.standby.folder}"
        return f"postgresql://postgres@/{database}?host={hosts}&target_session_attrs=read-write&connect_timeout=2"

    def new_database(self) -> str:
        """Make a database, and return its URL."""
        name = psycopg.conninfo.conninfo_to_dict(self.primary.new_database())["dbname"]
        return self.url_of(str(name))

    def kill_primary(self) -> None:
        """`kill -9` of the primary; the standby becomes the primary."""
        self.primary.kill()
        self.standby.promote()

    def follow(self) -> None:
        """Give the promoted one a standby of its own: a new copy, in the place of the lost one."""
        lost, self.primary = self.primary, self.standby
        lost.close()
        self.standby = Server(options=self._options, follows=self.primary, folder=lost.folder)
        self.wait_for(STANDBY)

    def pause_standby(self) -> None:
        """Stop the process that receives the log, as a machine that hangs."""
        self._signal_standby(signal.SIGSTOP)

    def resume_standby(self) -> None:
        self._signal_standby(signal.SIGCONT)

    def _signal_standby(self, how: signal.Signals) -> None:
        children = subprocess.run(["pgrep", "-P", str(self.standby.pid)], capture_output=True, check=False, text=True)
        for pid in [self.standby.pid, *map(int, children.stdout.split())]:
            with suppress(ProcessLookupError):
                os.kill(pid, how)

    def _shown(self, text: str) -> object:
        with psycopg.connect(self.primary.dsn) as connection:
            row = connection.execute(text.encode()).fetchone()
            return None if row is None else row[0]

    def close(self) -> None:
        if self.standby.is_running:
            self.resume_standby()
        self.standby.close()
        self.primary.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
