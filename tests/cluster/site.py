"""Three servers over a pair, each a process of its own, on ports that stay when a server is started again."""

import signal
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.cli.servers import Served
from tests.cluster.pair import Pair
from tests.ports import HeldPort

NAMES = ("one", "two", "three")
_DAY_S = 86_400.0


class Site:
    """``options`` go to each server. One that was killed or stopped is None until it is started again."""

    def __init__(self, pair: Pair, *options: str, kafka: bool = False) -> None:
        self.pair = pair
        self.store = pair.new_database()
        self._options = options
        self._folder = Path(tempfile.mkdtemp(prefix="cluster-"))
        self._ports = {name: HeldPort() for name in NAMES}
        self._kafka_ports = {name: HeldPort() for name in NAMES} if kafka else {}
        self.servers: dict[str, Served | None] = dict.fromkeys(NAMES)
        # The first one alone: it makes the schema.
        self.start(NAMES[0])
        with ThreadPoolExecutor() as threads:
            list(threads.map(self.start, NAMES[1:]))

    @property
    def url(self) -> str:
        """The URL of all servers, for a client or a worker."""
        return "http://" + ",".join(f"127.0.0.1:{self._ports[name].number}" for name in NAMES)

    @property
    def bootstrap(self) -> str:
        """What Kafka's clients are given to find all servers; empty if topics are not served."""
        return ",".join(f"127.0.0.1:{port.number}" for port in self._kafka_ports.values())

    def environment(self) -> str:
        """What `make cluster` writes down for a shell: where everything is, and what to kill."""
        pids = {name.upper(): server.pid for name, server in self.servers.items() if server is not None}
        pids["PRIMARY"] = self.pair.primary.pid
        promote = f"import psycopg; psycopg.connect('{self.pair.standby.dsn}', autocommit=True)"
        lines = [
            f"export PENSTOCK_URL='{self.url}'",
            f"export PENSTOCK_STORE='{self.store}'",
            f"export BOOTSTRAP='{self.bootstrap}'",
            *(f"{name}={pid}" for name, pid in pids.items()),
            f"""promote() {{ '{sys.executable}' -c "{promote}.execute('SELECT pg_promote()')"; }}""",
        ]
        return "\n".join(lines) + "\n"

    def start(self, name: str) -> None:
        port = self._kafka_ports.get(name)
        kafka = ("--no-kafka",) if port is None else ("--kafka-port", str(port.number))
        options = (
            "--port",
            str(self._ports[name].number),
            "--store",
            self.store,
            "--node",
            name,
            *kafka,
            *self._options,
        )
        self.servers[name] = Served(self._folder / name, *options, seconds_max=_DAY_S)

    def server(self, name: str) -> Served:
        found = self.servers[name]
        assert found is not None, f"{name} does not run"
        return found

    def kill(self, name: str) -> None:
        """`kill -9` of a server."""
        self._ended(name).close()

    def stop(self, name: str) -> None:
        """Stop a server in good order, as SIGTERM does."""
        server = self._ended(name)
        assert server.stop() == 0, server.errors()
        server.close()

    def pause(self, name: str) -> None:
        self.server(name).send(signal.SIGSTOP)

    def resume(self, name: str) -> None:
        self.server(name).send(signal.SIGCONT)

    def _ended(self, name: str) -> Served:
        server = self.server(name)
        self.servers[name] = None
        return server

    def close(self) -> None:
        for server in self.servers.values():
            if server is not None:
                server.close()
        for port in (*self._ports.values(), *self._kafka_ports.values()):
            port.give_back()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
