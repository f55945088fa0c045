"""The composition root: builds the parts, starts them, stops them; the one place that knows every class.

    store ◀── broker ◀── REST, SQS, health, metrics ◀── listener
    streams ◀── broker ◀── Kafka, at a port of its own

Starting goes from the front to the back: keys and address are checked and the door is
open before the store is, so that health checks are answered
while a long journal is read. Stopping goes the same way: no new connections and no
new work, long polls are answered, running requests are finished, then the broker ends
its tasks and the store syncs and marks its journal clean.
"""

import asyncio
import gc
import logging
import signal
import socket
import ssl
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, MutableMapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, nullcontext, suppress
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

import uvloop
from starlette.routing import Route

from penstock.api.console.app import FOLDER as CONSOLE_FOLDER
from penstock.api.console.app import Console
from penstock.api.console.monitor import Monitor
from penstock.api.console.monitor import running as watching_queues
from penstock.api.front import OPERATION, ASGIApplication, ProtocolDispatch
from penstock.api.rest.app import RestApplication, hot
from penstock.api.rest.hosts import LoopbackGuard, NamedHosts
from penstock.api.rest.operations import HOT, OPERATIONS
from penstock.api.rest.request import Service, Streams
from penstock.api.sqs.app import SqsApplication, is_for_sqs
from penstock.api.sqs.request import Account
from penstock.api.sqs.request import Service as SqsService
from penstock.api.sqs.signature import Credentials
from penstock.broker.access import Access
from penstock.broker.activity import Activity, keeping_activity
from penstock.broker.api_keys import Keys, KeysDamaged, SharedKeys, following
from penstock.broker.queues import Queues, open_queues
from penstock.broker.redrives import Redrives
from penstock.broker.sessions import Sessions
from penstock.contract.topic_settings import TopicSettings
from penstock.listening.http_connection import Shared
from penstock.listening.http_exchange import USUAL, ConnectionLimits
from penstock.listening.listener import BufferBudget, Listener, listening
from penstock.listening.sockets import CannotListen, Files, address_of, allow_connections, bind, tls_context
from penstock.log.settings import MAY_LOSE
from penstock.metrics.health import Health, Watchdog, starting, watching
from penstock.metrics.prometheus import Connections, Prometheus, Requests, Scope
from penstock.metrics.streams import Clients, families_of_clients, families_of_streams
from penstock.runtime.system import JsonLines, log_event
from penstock.settings import KAFKA_PORT, Fsync, LogFormat, ServerSettings, check_is_secured, without_password
from penstock.store_factory import OpenStore, open_store, open_streams
from penstock.telemetry import (
    KAFKA_PORT_IN_USE,
    SERVER_FILES_LIMITED,
    SERVER_MAY_LOSE,
    SERVER_REQUESTS_ABORTED,
    SERVER_STARTED,
    SERVER_STOPPED,
    SERVER_STOPPING,
)

# Requests leave no cycles behind, so there is little to collect, and each look at thousands of long polls costs. With
# Python's own thresholds 10,000 idle ones took twice as much CPU. The first two numbers are small because a look at the
# young generations holds up the loop: 400,000 objects took half a second while thousands of topics were made,
# and 60,000 up to 38 ms. All looks together took the same time.
GC_THRESHOLDS = (5_000, 1, 4_000)
# How often it is looked at how far the journals have come.
LOOK_S = 1.0


class Told:
    """What a server was told from outside: to stop and, the second time, to hurry."""

    def __init__(self) -> None:
        self.to_stop = asyncio.Event()
        self.to_hurry = asyncio.Event()
        # What to do the first time, while there is nothing yet that could be stopped in order.
        self.at_once: Callable[[], None] | None = None

    def stop(self) -> None:
        at_once, self.at_once = self.at_once, None
        if at_once is not None:
            at_once()
        if self.to_stop.is_set():
            self.to_hurry.set()
        self.to_stop.set()


class Application:
    """Everything behind the port."""

    def __init__(self, opened: OpenStore, queues: Queues, service: Service, streams: Streams | None) -> None:
        self.streams = streams
        # What is counted of Kafka clients, once they are served.
        self.kafka_clients: Callable[[], Clients] | None = None
        self.placement = opened.placement
        self.queues = queues
        self.runtime = opened.runtime
        self.journals = opened.journals
        self.space = opened.space
        self.vitals = opened.vitals
        self.transactions = opened.transactions
        self.key_table = opened.keys
        self.nodes = opened.nodes
        self.identity = opened.identity
        self.service = service

    @cached_property
    def asgi(self) -> RestApplication:
        """The REST API alone."""
        return RestApplication(self.service, self.runtime.log_event)

    def rest(self, routes: Sequence[Route], console: Console | None = None) -> RestApplication:
        """The REST API and others at the same port, with the console if there is one."""
        if console is None:
            return RestApplication(self.service, self.runtime.log_event, routes=routes)
        return RestApplication(
            console.service,
            self.runtime.log_event,
            routes=[*console.routes(), *routes],
            operations=console.operations(),
        )

    def sqs(self, settings: ServerSettings) -> SqsApplication:
        """The same queues, as SQS has them."""
        key_id, secret = settings.sqs_access_key_id, settings.sqs_secret_access_key
        service = SqsService(
            queues=self.queues,
            access=self.service.access,
            account=Account(settings.sqs_account, settings.sqs_region),
            has_cooldowns=settings.sqs_cooldowns,
            credentials=Credentials(key_id, secret) if key_id else None,
            request_bytes_max=settings.request_bytes_max,
            is_behind_proxy=settings.behind_proxy,
        )
        return SqsApplication(service, self.runtime.log_event)

    def stop(self) -> None:
        """Take no new work: long polls are answered, sends refused, redrives ended or left to others."""
        self.queues.waiting.stop()
        self.queues.redrives.stop()
        if self.streams is not None:
            self.streams.topics.stop()
            self.streams.groups.coordinator.stop()


@asynccontextmanager
async def open_application(
    settings: ServerSettings,
    access: Access | None = None,
    *,
    kafka: str | None = None,
    is_watched: bool = False,
) -> AsyncIterator[Application]:
    """Open the store and whatever stands on it; nothing listens yet.

    Without ``access`` every caller may do everything: a program that can open the folder can do that anyway. ``kafka``
    is the address for Kafka clients, if they are served. A server watches its database (``is_watched``) over one more
    connection, for health, metrics and redrives whose server is gone; a short-lived program does not.
    """
    async with (
        open_store(settings, is_watched=is_watched) as opened,
        open_queues(
            opened.placement,
            opened.runtime,
            long_polls_max=settings.long_polls_max,
            is_tidied=settings.is_on_postgres,
            redrives=Redrives(opened.placement, opened.runtime, kept=opened.redrives, takes_over=is_watched),
        ) as queues,
        open_streams(settings, opened, kafka) as streams,
        keeping_activity(Activity(opened.audit_log, opened.runtime.clock.now_ms, opened.runtime.log_event)) as activity,
    ):
        queues.activity = activity
        if streams is not None:
            topics = streams.topics
            queues.topic_names = lambda: [topic.name for topic in topics.list()]
        for share in (queues.share, *(() if streams is None else (streams.topics.share, streams.groups.share))):
            share.percent = settings.key_share_percent
        service = Service(queues, access or Access.open(), settings.request_bytes_max, streams)
        yield Application(opened, queues, service, streams)


def _say_nothing(_address: str) -> None:
    pass


def serve(
    settings: ServerSettings,
    *,
    announce: Callable[[str], None],
    announce_kafka: Callable[[str], None] = _say_nothing,
) -> None:
    """Run a server until a signal tells it to stop; ``announce`` is called with its address once it is ready.

    Before that ``announce_kafka`` is called with where Kafka clients find it, as HOST:PORT, if they are served.

    Raises `NotSecured`, `KeysDamaged`, `CannotListen`, `BadCertificate`, `NoFolder`, and what opening the store raises:
    `FolderTaken`, `TooFewShards`, `LogCorrupted` and others.
    """
    logging.basicConfig(level=settings.log_level.value.upper(), format="%(asctime)s %(levelname)s %(message)s")
    is_for_programs = settings.log_format is LogFormat.AUTO and not sys.stderr.isatty()
    if is_for_programs or settings.log_format is LogFormat.JSON:
        for handler in logging.getLogger().handlers:
            handler.setFormatter(JsonLines())

    def freeze_and_announce(address: str) -> None:
        # What was opened stays: a full collection would look at all of it, and stall everyone meanwhile.
        gc.freeze()
        announce(address)

    # Before anything is opened: health is answered meanwhile, and what is opened may be millions of objects.
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)

    async def run_until_told() -> None:
        told = Told()
        loop = asyncio.get_running_loop()
        for each in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(each, told.stop)
        await run(settings, told, announce=freeze_and_announce, announce_kafka=announce_kafka)

    uvloop.run(run_until_told())


async def run(
    settings: ServerSettings,
    told: Told,
    *,
    announce: Callable[[str], None],
    announce_kafka: Callable[[str], None] = _say_nothing,
    limits: ConnectionLimits = USUAL,
) -> None:
    """Run a server until it is told to stop; see `serve`."""
    keys = _keys(settings)
    tls = tls_context(settings.tls_cert, settings.tls_key) if settings.has_tls else None
    doors, kafka_doors = _bind(settings)
    address = address_of(doors[0], has_tls=settings.has_tls)
    kafka = address_of(kafka_doors[0], has_tls=False).removeprefix("http://") if kafka_doors else None
    health = Health()
    budget = BufferBudget(settings.buffered_bytes_max, asyncio.get_running_loop().time)
    files = _files(settings)
    shared = Shared(
        starting(health),
        limits,
        log_event,
        connections_max=files.connections_max,
        budget=budget,
        file_number_max=files.number_max,
    )
    async with (
        listening(doors, shared, tls) as listener,
        following(keys, log_event),
        watching(settings.stall_ms, log_event) as watchdog,
    ):
        async with AsyncExitStack() as stack:
            opening = open_application(settings, keys.access, kafka=kafka, is_watched=True)
            application = await _entered(stack, opening, told if settings.is_on_postgres else None)
            if application is None:
                log_event(SERVER_STOPPED)
                return
            if isinstance(keys, SharedKeys):
                assert application.key_table is not None
                await keys.open(application.key_table.read, application.key_table.change)
                check_is_secured(settings, has_keys=not keys.access.is_open)
            await stack.enter_async_context(_connected(application, keys, shared, health, settings, watchdog))
            async with (
                _presenting(application, settings, address, told),
                _listening_for_kafka(application, keys.access, settings, kafka_doors, tls, shared) as drain_kafka,
            ):
                log_event(SERVER_STARTED, address=address, data=without_password(settings.store) or settings.data)
                if kafka is not None:
                    announce_kafka(kafka)
                announce(address)
                await _watch_until_told(told, health)
                log_event(SERVER_STOPPING)
                with suppress(TimeoutError):
                    # A load balancer reads meanwhile that this server stops.
                    await asyncio.wait_for(told.to_hurry.wait(), settings.stop_delay_s)
                application.stop()
                async with asyncio.TaskGroup() as draining:
                    draining.create_task(drain_kafka(told.to_hurry))
                    # At once, not in a task: the answers to long polls are to be the last of their connections.
                    await _drain(listener, settings, told)
        log_event(SERVER_STOPPED)


def _presenting(
    application: Application, settings: ServerSettings, address: str, told: Told
) -> AbstractAsyncContextManager[None]:
    """Let the other servers of the database, and its operators, know of this one."""
    if application.nodes is None:
        return nullcontext()
    # The driver of PostgreSQL is an extra.
    from penstock.store.postgres.shared_tables import DRAINING, SERVING, Node  # noqa: PLC0415

    assert application.identity is not None
    application.identity.name = settings.node or f"{socket.gethostname()}:{address.rpartition(':')[2]}"
    node = Node(
        identity=application.identity,
        address=address,
        state=lambda: DRAINING if told.to_stop.is_set() else SERVING,
        drain=told.stop,
    )
    return application.nodes.presenting(node, log_event)


def _keys(settings: ServerSettings) -> Keys | SharedKeys:
    """Return the keys of a server: those of its folder, or of its database, which are read when that is open."""
    if not settings.is_on_postgres:
        keys = Keys(settings.keys_path)
        check_is_secured(settings, has_keys=not keys.access.is_open)
        return keys
    if settings.keys_path.exists():
        raise KeysDamaged(
            f"{settings.keys_path} holds keys, and this server takes those of its database. Make them there, with "
            "penstock key create --store postgresql://…, and remove the file."
        )
    return SharedKeys()


async def _entered(
    stack: AsyncExitStack, opening: AbstractAsyncContextManager[Application], told: Told | None
) -> Application | None:
    """Open an application; None if it is told to stop meanwhile.

    A silent database would be waited for without end, so a request to stop ends that wait. A folder is always opened to
    the end, and then closed in order.
    """
    try:
        async with asyncio.timeout(None) as giving_up:
            if told is not None:
                told.at_once = lambda: giving_up.reschedule(asyncio.get_running_loop().time())
            return await stack.enter_async_context(opening)
    except TimeoutError:
        if not giving_up.expired():
            raise
        return None
    finally:
        if told is not None:
            told.at_once = None


def _bind(settings: ServerSettings) -> tuple[list[socket.socket], list[socket.socket]]:
    """Bind the doors for HTTP, and those for Kafka; both, or neither."""
    doors = bind(settings.host, settings.port)
    if not settings.kafka:
        return doors, []
    try:
        return doors, bind(settings.host, settings.kafka_port, option="--kafka-port")
    except CannotListen as error:
        # The default port was not chosen by the operator, and queues are served all the same.
        if settings.kafka_port == KAFKA_PORT:
            log_event(KAFKA_PORT_IN_USE, reason=error)
            return doors, []
        for door in doors:
            door.close()
        raise


@asynccontextmanager
async def _listening_for_kafka(
    application: Application,
    access: Access,
    settings: ServerSettings,
    doors: list[socket.socket],
    tls: ssl.SSLContext | None,
    by_http: Shared,
) -> AsyncIterator[Callable[[asyncio.Event], Coroutine[Any, Any, None]]]:
    """Serve Kafka clients, if they are to be; what is yielded lets them go."""
    streams = application.streams
    if streams is None:

        async def nothing(_hurry: asyncio.Event) -> None:
            pass

        yield nothing
        return
    # The tables of Kafka's messages take memory that servers without Kafka do not need.
    from penstock.api.kafka.connection import Limits  # noqa: PLC0415
    from penstock.api.kafka.errors import ANSWERED  # noqa: PLC0415
    from penstock.api.kafka.request import Service as KafkaService  # noqa: PLC0415
    from penstock.api.kafka.session import serving  # noqa: PLC0415
    from penstock.api.kafka.wire.schema import Api  # noqa: PLC0415

    service = KafkaService(
        topics=streams.topics,
        groups=streams.groups,
        access=access,
        advertised=settings.advertised,
        has_auto_create=settings.kafka_auto_create,
        topic_defaults=TopicSettings(partitions=settings.topic_partitions),
        making_topics=application.queues.making_topics,
        activity=application.queues.activity,
        brokers=streams.brokers,
    )
    limits = Limits(
        frame_bytes_max=settings.request_bytes_max,
        connections_max=by_http.connections_max,
        file_number_max=by_http.file_number_max,
    )
    async with serving(service, doors, tls, limits, log_event, by_http.budget) as listener:
        shared = listener.shared
        application.kafka_clients = lambda: Clients(
            connections=len(shared.connections),
            durations=shared.durations,
            errors=ANSWERED,
            names={api.value: api.name.lower() for api in Api},
            refused=shared.turned_away,
            timed_out=shared.timed_out,
        )

        async def drain(hurry: asyncio.Event) -> None:
            cut_off = await listener.drain(settings.stop_timeout_s, hurry)
            if cut_off:
                log_event(SERVER_REQUESTS_ABORTED, requests=cut_off)

        yield drain


@asynccontextmanager
async def _connected(
    application: Application,
    keys: Keys | SharedKeys,
    shared: Shared,
    health: Health,
    settings: ServerSettings,
    watchdog: Watchdog | None,
) -> AsyncIterator[None]:
    """Give requests to the application, and look at its queues for the console for as long as this is entered."""
    now_ms, now_s = application.runtime.clock.now_ms, asyncio.get_running_loop().time
    service = replace(application.service, access=keys.access, sessions=Sessions(keys.access, now_ms))
    monitor = Monitor(application.queues, service.streams, partial(_about, application, health, settings), now_s)
    if application.nodes is not None:
        monitor.list_servers = partial(_list_servers, application)
    async with watching_queues(monitor):
        console = Console(service, monitor, keys, is_secure=settings.has_tls or settings.behind_proxy)
        metrics = _connect(application, shared, console, health, settings, watchdog)
        async with _telling_collector(settings, metrics, shared):
            yield


@asynccontextmanager
async def _telling_collector(settings: ServerSettings, metrics: Prometheus, shared: Shared) -> AsyncIterator[None]:
    """Export metrics, and spans of requests, if there is a collector."""
    if not settings.otlp_url:
        yield
        return
    from penstock.metrics.otlp import RequestSpans, Target, exporting  # noqa: PLC0415 - it parses and exports.

    instance = settings.node or f"{socket.gethostname()}:{settings.port}"
    target = Target(settings.otlp_url.rstrip("/"), settings.otlp_every_s, instance)
    spans, count = RequestSpans(target, operation_of), shared.count

    def count_and_trace(scope: MutableMapping[str, Any], status: int, seconds: float) -> None:
        count(scope, status, seconds)
        spans.count(scope, status, seconds)

    shared.count = count_and_trace
    try:
        async with exporting(target, metrics.page):
            yield
    finally:
        await asyncio.to_thread(spans.close)


async def _list_servers(application: Application) -> list[dict[str, object]]:
    """Return what the console shows of the servers of a database that have not stopped in good order."""
    assert application.nodes is not None
    return [
        {"name": each.name, "address": each.address, "state": each.condition, "silent_ms": each.silent_ms}
        for each in await application.nodes.list()
        if each.condition != "stopped"
    ]


def _about(application: Application, health: Health, settings: ServerSettings) -> dict[str, object]:
    """Return what the console shows of the server itself, to those who may see all queues."""
    vitals = () if application.vitals is None else application.vitals()
    return {
        "server": {
            "store": without_password(settings.store) or str(settings.data),
            "is_on_postgres": settings.is_on_postgres,
            "reasons": health.reasons(),
            "warnings": health.warnings(),
            "may_lose": health.may_lose,
            "journals": [
                {
                    "name": each.name,
                    "bytes": each.size_bytes,
                    "behind": each.end_offset - each.durable_offset,
                    "is_full": each.is_full,
                }
                for each in health.journals()
            ],
            "databases": [
                {
                    "name": each.database,
                    "is_answering": each.is_answering,
                    "rows": sum(each.live_rows.values()),
                    "dead_rows": sum(each.dead_rows.values()),
                    "oldest_snapshot_s": each.oldest_snapshot_s,
                }
                for each in vitals
            ],
            "long_polls": application.queues.waiting.count,
            "kafka": None if application.streams is None else application.streams.kafka,
        }
    }


def _connect(
    application: Application,
    shared: Shared,
    console: Console,
    health: Health,
    settings: ServerSettings,
    watchdog: Watchdog | None,
) -> Prometheus:
    """Give requests to the application from now on; return what counts them."""
    requests = Requests(operation_of)
    metrics = Prometheus(
        application.queues,
        requests,
        health,
        lambda: _connections(shared),
        application.vitals,
        application.runtime.timings,
    )
    metrics.watchdog = watchdog
    metrics.space = application.space
    streams = application.streams
    if streams is not None:
        metrics.of_streams = partial(_stream_families, application, streams)
        if streams.topics.streams.timings is not application.runtime.timings:
            metrics.of_partitions = streams.topics.streams.timings
    access = console.service.access
    routes = [*health.routes(), *metrics.routes(access, is_key_needed=not settings.metrics_without_key)]
    front: ASGIApplication = application.rest(routes, console)
    if settings.sqs:
        front = ProtocolDispatch(usual=front, special=application.sqs(settings), is_for_special=is_for_sqs)
    if settings.is_on_loopback and not settings.behind_proxy:
        front = LoopbackGuard(front, settings.host_names)
    elif settings.host_names:
        front = NamedHosts(front, settings.host_names, is_on_loopback=settings.is_on_loopback)
    shared.application = front
    shared.count = requests.count
    only = application.queues.placement.only
    if only is not None and not only.needs_tasks:
        shared.needs_no_task = lambda scope: hot(scope)[0] is not None
    if settings.fsync is not Fsync.BATCH and settings.store_folder is not None:
        health.fsync, health.may_lose = settings.fsync.value, MAY_LOSE[settings.fsync.value]
        log_event(SERVER_MAY_LOSE, fsync=health.fsync, may_lose=health.may_lose)
    health.look = application.journals
    health.vitals = application.vitals
    return metrics


async def _stream_families(application: Application, streams: Streams) -> list[Any]:
    clients = application.kafka_clients
    counted = [] if clients is None else families_of_clients(clients())
    return [*await families_of_streams(streams.topics, streams.groups), *counted]


async def _watch_until_told(told: Told, health: Health) -> None:
    loop = asyncio.get_running_loop()
    while not told.to_stop.is_set():
        health.watch(loop.time())
        try:
            await asyncio.wait_for(told.to_stop.wait(), LOOK_S)
        except TimeoutError:
            pass
    health.is_stopping = True


async def _drain(listener: Listener[Shared], settings: ServerSettings, told: Told) -> None:
    cut_off = await listener.drain(settings.stop_timeout_s, told.to_hurry)
    if cut_off:
        log_event(SERVER_REQUESTS_ABORTED, requests=cut_off)


def _files(settings: ServerSettings) -> Files:
    files = allow_connections(settings.connections_max)
    if files.connections_max < settings.connections_max:
        log_event(
            SERVER_FILES_LIMITED,
            connections_max=settings.connections_max,
            possible=files.connections_max,
            files=files.allowed,
        )
    return files


def _connections(shared: Shared) -> Connections:
    return Connections(
        now=len(shared.connections),
        most=shared.connections_max,
        accepted=shared.accepted,
        refused=shared.turned_away,
        timed_out=shared.timed_out,
        buffered_bytes=shared.budget.held_bytes,
        shed=shared.budget.shed,
    )


_FRONT = "/api/queues/"
_HOT_NAMES = {key: operation.name for key, operation in HOT.items()}
_NAMES = {
    **{(operation.method, operation.path): operation.name for operation in OPERATIONS},
    ("GET", "/health/live"): "health",
    ("GET", "/health/ready"): "health",
    ("GET", "/metrics"): "metrics",
}


def operation_of(scope: Scope) -> str:
    """Return the name of the operation a request was for, as the OpenAPI document has it; `other` for no such."""
    route = scope.get("route")
    if route is not None:
        if route.path.startswith(CONSOLE_FOLDER):
            return "console"
        return _NAMES.get((scope["method"], route.path), "other")
    # A front end that is not routed by Starlette may say it itself; nor is the hot way.
    said: str | None = scope.get(OPERATION)
    if said is not None:
        return said
    path: str = scope["path"]
    if not path.startswith(_FRONT):
        return "other"
    return _HOT_NAMES.get((scope["method"], path[len(_FRONT) :].partition("/")[2]), "other")
