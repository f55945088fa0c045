"""A worker: functions for queues, and a process that calls them until it is stopped.

worker = Worker(client)

@worker.handler("orders", concurrency=20)
async def ship(message): ...

await worker.run()            # until SIGTERM, SIGINT or worker.stop()
"""

import asyncio
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

from penstock.client.caller import Headers
from penstock.client.client import Client
from penstock.client.failover import addresses_of, transport_of
from penstock.client.http import HttpTransport
from penstock.client.idempotency import IdempotencyStore
from penstock.client.message import Message
from penstock.client.worker.attempt import HURRIED, STARTED, STOPPED, STOPPING, Attempts, Middleware, log_event
from penstock.client.worker.consumer import Consumer, Shutdown
from penstock.client.worker.settings import ConsumerSettings, ConsumerStats, Retry, Rule, as_retry

DRAIN_S = 30.0
CONCURRENCY = 10

F = TypeVar("F", bound=Callable[..., Any])


class Worker:
    """Calls functions with the messages of queues. ``client`` may be the URL of a server, with its ``key``.

    When it is to stop, work that runs has ``shutdown_timeout_s`` to end.
    """

    def __init__(self, client: Client | str, *, key: str = "", shutdown_timeout_s: float = DRAIN_S) -> None:
        self._given = client
        self._key = key
        self._drain_s = shutdown_timeout_s
        self._settings: dict[str, ConsumerSettings] = {}
        self._middleware: list[Middleware] = []
        self._consumers: dict[str, Consumer] = {}
        self._shutdown: Shutdown | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def queues(self) -> list[str]:
        """The queues it works on."""
        return list(self._settings)

    def handler(  # noqa: PLR0913 - all but the queue have defaults.
        self,
        queue: str,
        *,
        concurrency: int = CONCURRENCY,
        time_limit_s: float | None = None,
        visibility_timeout: float | None = None,
        retry: Retry | Mapping[type[BaseException], Rule] | None = None,
        idempotency: IdempotencyStore | None = None,
        idempotency_key: Callable[[Message], str] | None = None,
        cancel_on_lost_lease: bool = True,
        transactional: bool = False,
    ) -> Callable[[F], F]:
        """Let a function work on the messages of a queue, ``concurrency`` at once; a plain function runs in threads.

        When it returns, the message is acked; when it raises, released, as ``retry`` says. The function itself is not
        changed, so tests may call it.

        One that is ``transactional`` is called with the message and a connection in a transaction of the database that
        the queues are in. What it writes there and the ack commit together, or not at all.
        """

        def register(function: F) -> F:
            if queue in self._settings:
                raise ValueError(f"there is a handler for {queue!r} already")
            self._settings[queue] = ConsumerSettings(
                queue=queue,
                function=function,
                concurrency=concurrency,
                time_limit_s=time_limit_s,
                visibility_timeout=visibility_timeout,
                retry=as_retry(retry),
                idempotency=idempotency,
                idempotency_key=idempotency_key,
                cancel_on_lost_lease=cancel_on_lost_lease,
                is_transactional=transactional,
            )
            return function

        return register

    def use(self, middleware: Middleware) -> None:
        """Put something around the work on every message; the first is outermost."""
        self._middleware.append(middleware)

    async def run(self, *, until_idle: bool = False) -> None:
        """Work until SIGTERM, SIGINT or `stop`; a second signal does not wait for work that runs.

        With ``until_idle`` it ends once nothing can be received, for tests: messages that rest are not waited for,
        and an error of the server is raised.
        """
        if self._shutdown is not None:
            raise RuntimeError("the worker runs already")
        if not self._settings:
            raise RuntimeError("the worker has no handlers; say which function is for which queue with `handler`")
        self._shutdown, self._loop = (
            Shutdown(shutdown_timeout_s=self._drain_s, is_until_idle=until_idle),
            asyncio.get_running_loop(),
        )
        client = self._given if isinstance(self._given, Client) else _client_of(self._given, self._key)
        try:
            with self._signals():
                await self._consume(client, self._shutdown)
        finally:
            self._shutdown = self._loop = None
            if client is not self._given:
                await client.close()

    def run_sync(self) -> None:
        """`run`, for a program without an event loop. The client is closed in the end."""
        asyncio.run(self._run_and_close())

    def stop(self) -> None:
        """Let `run` end in good order; a second time, without waiting for work that runs. From any thread."""
        shutdown, loop = self._shutdown, self._loop
        if shutdown is not None and loop is not None:
            loop.call_soon_threadsafe(self._stop, shutdown)

    def stats(self) -> dict[str, ConsumerStats]:
        """For each queue, what came of its messages in the run that goes on, or in the last one."""
        return {queue: consumer.stats() for queue, consumer in self._consumers.items()}

    async def _consume(self, client: Client, shutdown: Shutdown) -> None:
        attempts = {
            queue: Attempts(each, self._middleware, client.transaction) for queue, each in self._settings.items()
        }
        self._consumers = {
            queue: Consumer(client.queue(queue), each, attempts[queue], shutdown)
            for queue, each in self._settings.items()
        }
        log_event(STARTED, queues=",".join(self._settings))
        try:
            async with asyncio.TaskGroup() as tasks:
                for consumer in self._consumers.values():
                    tasks.create_task(consumer.run())
        finally:
            for each in attempts.values():
                each.close()
            for store in {
                id(each.idempotency): each.idempotency for each in self._settings.values() if each.idempotency
            }.values():
                await store.close()
            log_event(STOPPED, queues=",".join(self._settings))

    async def _run_and_close(self) -> None:
        try:
            await self.run()
        finally:
            if isinstance(self._given, Client):
                await self._given.close()

    def _stop(self, shutdown: Shutdown) -> None:
        log_event(HURRIED if shutdown.begun.is_set() else STOPPING)
        shutdown.stop()

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """Signals stop the worker, where they can be had: in the main thread."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        loop = asyncio.get_running_loop()
        kinds = (signal.SIGTERM, signal.SIGINT)
        try:
            for kind in kinds:
                loop.add_signal_handler(kind, self.stop)
        except NotImplementedError:
            yield
            return
        try:
            yield
        finally:
            for kind in kinds:
                loop.remove_signal_handler(kind)


def _client_of(url: str, key: str) -> Client:
    addresses = addresses_of(url)
    headers: Headers = (("authorization", f"Bearer {key}"),) if key else ()
    return Client(lambda: transport_of(addresses, lambda each: HttpTransport(each, headers=headers, tls=None)))
