"""The composition root: builds the parts, starts them, stops them; the one place that knows every class.

    store ◀── broker ◀── REST ◀── uvicorn

Stopping goes from the front to the back: no new connections and no new work, long
polls are answered, running requests are finished, then the broker ends its tasks and
the store syncs and marks its journal clean.
"""

import asyncio
import gc
import logging
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import uvicorn
import uvloop

from penstock.api.rest.app import RestApplication
from penstock.api.rest.calling import Service
from penstock.broker.access import Access
from penstock.broker.keys import Keys, following
from penstock.broker.queues import Queues, open_queues
from penstock.runtime.interface import Runtime
from penstock.runtime.system import halt, system_runtime
from penstock.runtime.workers import ThreadWorkers
from penstock.settings import ServerSettings, check_is_secured
from penstock.store.embedded.store import EmbeddedStore
from penstock.telemetry import SERVER_STARTED, SERVER_STOPPED, SERVER_STOPPING

DISK_THREADS = 4
# A client that keeps a connection for longer than this without a request has to open another.
IDLE_S = 75
BACKLOG = 2_048


class Application:
    """Everything behind the port."""

    def __init__(self, queues: Queues, runtime: Runtime, access: Access, settings: ServerSettings) -> None:
        self.queues = queues
        self.runtime = runtime
        self.asgi = RestApplication(Service(queues, access, settings.request_bytes_max), runtime.note)


@asynccontextmanager
async def open_application(settings: ServerSettings, access: Access | None = None) -> AsyncIterator[Application]:
    """Open the store and whatever stands on it; nothing listens yet.

    Without ``access`` everybody may do everything: whoever can open the folder can do that anyway.
    """
    folder = settings.store_folder
    assert folder is not None
    folder.mkdir(parents=True, exist_ok=True)
    async with ThreadWorkers(DISK_THREADS, halt) as workers:
        runtime = system_runtime(folder.parent, workers)
        async with (
            await EmbeddedStore.open(runtime, folder.name, shards=settings.shards) as store,
            open_queues(store, runtime, waiting_max=settings.waiting_max) as queues,
        ):
            yield Application(queues, runtime, access or Access.open(), settings)


def serve(settings: ServerSettings, *, announce: Callable[[str], None]) -> None:
    """Run a server until it is told to stop; ``announce`` is called with its address once it listens."""
    logging.basicConfig(level=settings.log_level.value.upper(), format="%(asctime)s %(levelname)s %(message)s")
    uvloop.run(_serve(settings, announce))


async def _serve(settings: ServerSettings, announce: Callable[[str], None]) -> None:
    keys = Keys(settings.keys_path)
    check_is_secured(settings, has_keys=not keys.access.is_open)
    async with (
        open_application(settings, keys.access) as application,
        following(keys, application.runtime.note),
    ):
        # What is there now stays: a full collection would look at all of it, and stall everyone meanwhile.
        gc.collect()
        gc.freeze()
        server = Server(application, settings)
        await server.run(announce)
        application.runtime.note(SERVER_STOPPED)


class Server(uvicorn.Server):
    """A server that stops from the front to the back."""

    def __init__(self, application: Application, settings: ServerSettings) -> None:
        self._application = application
        config = uvicorn.Config(
            application.asgi,
            host=settings.host,
            port=settings.port,
            http="httptools",
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            backlog=BACKLOG,
            timeout_keep_alive=IDLE_S,
            timeout_graceful_shutdown=int(settings.stop_timeout_s),
            ssl_certfile=settings.tls_cert or None,
            ssl_keyfile=settings.tls_key or None,
        )
        super().__init__(config)

    async def run(self, announce: Callable[[str], None]) -> None:  # type: ignore[override]
        loop = asyncio.get_running_loop()
        for each in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(each, self._stop)
        self.config.load()
        self.lifespan: Any = self.config.lifespan_class(self.config)
        try:
            await self.startup()
        except SystemExit:
            # It has said why, and would end the process without closing the store.
            raise OSError(f"cannot listen on {self.config.host}:{self.config.port}") from None
        address = self.address()
        self._application.runtime.note(SERVER_STARTED, address=address)
        announce(address)
        await self.main_loop()
        await self.shutdown()

    def address(self) -> str:
        host, port = self.servers[0].sockets[0].getsockname()[:2]
        scheme = "https" if self.config.ssl_certfile else "http"
        return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"

    def _stop(self) -> None:
        if self.should_exit:
            # Told twice: those who are still at work are left alone.
            self.force_exit = True
        else:
            self._application.runtime.note(SERVER_STOPPING)
            self._application.queues.waiting.stop()
        self.should_exit = True
