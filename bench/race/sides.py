"""Who takes part: how each server is started, what it is told, and what its acknowledgement means.

Each is told to be as safe as its documentation has it for one machine, or is run as it ships and says so.
"""

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from time import monotonic, sleep

from bench import processes
from bench.race import install

_START_S = 120.0


@dataclass(frozen=True, slots=True)
class Running:
    """A server that runs: what a client needs to know, and which processes it is made of."""

    url: str
    pid: int
    folder: Path
    start_again: Callable[[], None] | None = None

    def processes(self) -> list[int]:
        """The process and those below it."""
        found, more = [], [self.pid]
        while more:
            pid = more.pop()
            found.append(pid)
            for children in Path(f"/proc/{pid}/task").glob("*/children"):
                try:
                    more += map(int, children.read_text().split())
                except OSError:
                    continue
        return found

    def cpu_s(self) -> float:
        return sum(map(_cpu_s, self.processes()))

    def memory_mb(self) -> float:
        """Memory of its own: of several processes, what they share counts once for each only in part."""
        return sum(map(_memory_kb, self.processes())) / 1_000

    def disk_mb(self) -> float:
        return sum(path.stat().st_blocks * 512 for path in self.folder.rglob("*") if path.is_file()) / 1e6


def _cpu_s(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _memory_kb(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return int(next((line.split()[1] for line in lines if line.startswith("Pss:")), "0"))


@dataclass(frozen=True, slots=True)
class Side:
    """One server with one setting."""

    name: str
    # Which client speaks to it.
    client: str
    start: Callable[[Path], Iterator[Running]] = field(repr=False)
    version: Callable[[], str] = field(repr=False)
    # What an acknowledgement of a send means, and what was set for that.
    means: str = ""
    settings: str = ""
    # Returns why it cannot take part, or nothing.
    missing: Callable[[], str] = field(default=lambda: "", repr=False)

    @contextmanager
    def started(self, folder: Path) -> Iterator[Running]:
        folder.mkdir(parents=True, exist_ok=True)
        yield from self.start(folder)


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


@contextmanager
def _child(command: Sequence[str], folder: Path, environment: dict[str, str] | None = None) -> Iterator[int]:
    """Run a command in its own session, and end it by its id."""
    paths = os.environ | {"LD_LIBRARY_PATH": install.libraries()} | (environment or {})
    with (folder / "log").open("wb") as log:
        child = subprocess.Popen(
            command, cwd=folder, env=paths, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
    try:
        yield child.pid
    finally:
        child.terminate()
        try:
            child.wait(30)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def _until_listening(port: int, pid: int, folder: Path) -> None:
    ends_s = monotonic() + _START_S
    while monotonic() < ends_s and not _has_ended(pid):
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            sleep(0.02)
        else:
            return
    raise processes.StartFailed(f"nothing listens: {(folder / 'log').read_text(errors='replace')[-2_000:]}")


def _has_ended(pid: int) -> bool:
    """Whether a child has ended: it is a zombie until it is waited for."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"


def _penstock(folder: Path) -> Iterator[Running]:
    port = free_port()
    command = [sys.executable, "-m", "penstock", "serve", "--port", str(port), "--data", str(folder / "data")]
    with _child([*command, "--log-level", "error"], folder, processes.environment()) as pid:
        _until_listening(port, pid, folder)
        yield Running(f"http://127.0.0.1:{port}", pid, folder)


def _redis(*policy: str) -> Callable[[Path], Iterator[Running]]:
    def start(folder: Path) -> Iterator[Running]:
        port = free_port()
        command = [str(install.program("redis-server")), "--port", str(port), "--bind", "127.0.0.1"]
        command += ["--dir", str(folder), "--save", "", "--appendonly", "yes", "--auto-aof-rewrite-percentage", "0"]
        with _child([*command, *policy], folder) as pid:
            _until_listening(port, pid, folder)
            yield Running(f"redis://127.0.0.1:{port}", pid, folder)

    return start


def _no_nats_sync() -> str:
    found = _needs("nats-server", "nats", "nats")()
    version = "" if found else _says("nats-server", "--version")()
    # `sync_interval` came with 2.10.
    is_older = not found and tuple(map(int, version.rpartition("v")[2].split(".")[:2])) < (2, 10)
    return f"{version} has no sync_interval, which came with 2.10" if is_older else found


def _nats(sync: str) -> Callable[[Path], Iterator[Running]]:
    def start(folder: Path) -> Iterator[Running]:
        port = free_port()
        config = folder / "nats.conf"
        jetstream = f'store_dir: "{folder}/jetstream"\n{sync}'
        config.write_text(f"host: 127.0.0.1\nport: {port}\njetstream {{\n{jetstream}\n}}\n")
        with _child([str(install.program("nats-server")), "-c", str(config)], folder) as pid:
            _until_listening(port, pid, folder)
            yield Running(f"nats://127.0.0.1:{port}", pid, folder)

    return start


def _rabbitmq(folder: Path) -> Iterator[Running]:
    port, names, distribution = free_port(), free_port(), free_port()
    erlang = install.ROOT / "usr/lib/erlang"
    home = install.ROOT / "usr/lib/rabbitmq/lib"
    if not home.exists():
        home, erlang = Path("/usr/lib/rabbitmq/lib"), Path("/usr/lib/erlang")
    server = next(home.glob("rabbitmq_server-*/sbin/rabbitmq-server"))
    loopback = "-kernel inet_dist_use_interface {127,0,0,1}"
    environment = {
        "PATH": f"{erlang}/bin:{erlang.parent.parent}/bin:{os.environ['PATH']}",
        "ERL_ROOTDIR": str(erlang),
        "HOME": str(folder),
        "ERL_EPMD_PORT": str(names),
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODENAME": "race@localhost",
        "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODE_PORT": str(port),
        "RABBITMQ_DIST_PORT": str(distribution),
        "RABBITMQ_MNESIA_BASE": str(folder / "data"),
        "RABBITMQ_LOG_BASE": str(folder),
        "RABBITMQ_CONF_ENV_FILE": "/dev/null",
        "RABBITMQ_CONFIG_FILE": str(folder / "none"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": loopback,
    }
    (folder / "plugins").write_text("[].\n")
    (folder / "names").mkdir()
    # The daemon of names would outlive the server: as a child of ours it ends with it.
    epmd = next((erlang.glob("erts-*/bin/epmd")), Path("epmd"))
    with (
        _child([str(epmd), "-port", str(names), "-address", "127.0.0.1"], folder / "names", environment),
        _child([str(server)], folder, environment) as pid,
    ):
        _until_listening(port, pid, folder)
        yield Running(f"amqp://guest:guest@127.0.0.1:{port}/", pid, folder)


def _pgmq(_folder: Path) -> Iterator[Running]:
    import psycopg  # noqa: PLC0415

    from tests.postgres.servers import Server  # noqa: PLC0415 - PostgreSQL as the tests start it.

    install.use_wheels()
    with Server(options={"fsync": "on", "synchronous_commit": "on", "shared_buffers": "256MB"}) as server:
        dsn = server.new_database()
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute("CREATE SCHEMA IF NOT EXISTS pgmq")
            connection.execute(_pgmq_file().read_bytes())
        yield Running(dsn, server.pid, Path(server.folder))


def _pgmq_file() -> Path:
    named = os.environ.get("PGMQ_SQL", "")
    return Path(named) if named else install.PYTHON / "pgmq/sql/pgmq.sql"


def _moto(folder: Path) -> Iterator[Running]:
    with processes.started([sys.executable, "-m", "bench.moto_peer"], folder, "listens on ") as (line, pid):
        yield Running(line.split()[-1], pid, folder)


def _needs(program: str, module: str, peer: str) -> Callable[[], str]:
    def missing() -> str:
        install.use_wheels()
        if install.program(program) is None:
            return f"there is no {program}: `python -m bench.race.install {peer}`"
        return "" if find_spec(module) else f"there is no {module}: `python -m bench.race.install {peer}`"

    return missing


def _says(*command: str) -> Callable[[], str]:
    def version() -> str:
        program = install.program(command[0]) or command[0]
        environment = os.environ | {"LD_LIBRARY_PATH": install.libraries()}
        said = subprocess.run([program, *command[1:]], capture_output=True, text=True, check=False, env=environment)
        return (said.stdout or said.stderr).strip().splitlines()[0]

    return version


def _rabbitmq_version() -> str:
    for home in (install.ROOT / "usr/lib/rabbitmq/lib", Path("/usr/lib/rabbitmq/lib")):
        for found in home.glob("rabbitmq_server-*"):
            return found.name.removeprefix("rabbitmq_server-")
    return ""


def _rabbitmq_missing() -> str:
    install.use_wheels()
    if not _rabbitmq_version() or find_spec("aio_pika") is None:
        return "there is no RabbitMQ, or no aio-pika: `python -m bench.race.install rabbitmq`"
    return ""


def _pgmq_missing() -> str:
    return "" if _pgmq_file().is_file() else "PGMQ_SQL names no file: `python -m bench.race.install pgmq` fetches one"


def _penstock_version() -> str:
    from penstock.version import __version__  # noqa: PLC0415

    folder = Path(__file__).parent
    git = shutil.which("git")
    said = subprocess.run(
        [git or "git", "rev-parse", "--short=8", "HEAD"], cwd=folder, capture_output=True, text=True, check=False
    )
    return f"{__version__} at {said.stdout.strip()}" if said.returncode == 0 else __version__


_DURABLE = "on disk: after an fsync"

SIDES = (
    Side("Penstock", "penstock", _penstock, _penstock_version, _DURABLE, "as it ships: fsync batch, history facts"),
    Side(
        "Redis Streams, always",
        "redis",
        _redis("--appendfsync", "always"),
        _says("redis-server", "--version"),
        _DURABLE,
        "appendonly yes, appendfsync always, no rewrite meanwhile",
        _needs("redis-server", "redis", "redis"),
    ),
    Side(
        "Redis Streams, everysec",
        "redis",
        _redis("--appendfsync", "everysec"),
        _says("redis-server", "--version"),
        "in the page cache: a power cut loses about a second",
        "appendonly yes, appendfsync everysec",
        _needs("redis-server", "redis", "redis"),
    ),
    Side(
        "NATS JetStream",
        "nats",
        _nats(""),
        _says("nats-server", "--version"),
        "in the page cache: a power cut loses up to two minutes",
        "as it ships: file storage, one replica",
        _needs("nats-server", "nats", "nats"),
    ),
    Side(
        "NATS JetStream, sync always",
        "nats",
        _nats("sync_interval: always"),
        _says("nats-server", "--version"),
        _DURABLE,
        "file storage, one replica, sync_interval: always",
        _no_nats_sync,
    ),
    Side(
        "RabbitMQ, quorum",
        "rabbitmq",
        _rabbitmq,
        _rabbitmq_version,
        _DURABLE,
        "a quorum queue of one node, publisher confirms",
        _rabbitmq_missing,
    ),
    Side(
        "PGMQ",
        "pgmq",
        _pgmq,
        _says("postgres", "--version"),
        _DURABLE,
        "fsync on, synchronous_commit on, shared_buffers 256 MB",
        _pgmq_missing,
    ),
    Side("moto (SQS)", "moto", _moto, lambda: "", "in memory", "moto's server, which tests use in the place of AWS"),
)
