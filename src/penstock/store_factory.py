"""Opens what everything is kept in: a folder, memory or databases for queues, a folder for topics; keys of a database.

Only `server.py` uses it, and `penstock key`; with the server it knows every class.
"""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.api.rest.request import Streams
from penstock.broker.api_keys import Change, Keyring, decode, encode
from penstock.broker.audit_files import FOLDER, FolderAuditLog
from penstock.broker.consumer_groups import open_groups
from penstock.broker.topics import Topics
from penstock.contract.limits import BODY_BYTES_MAX, KIB
from penstock.contract.queue_settings import DAY_MS
from penstock.core.routes import Routes, is_map
from penstock.log.disk_log import DiskLog
from penstock.log.interface import LogBusy, LogClosed, LogFull
from penstock.log.inventory import NAME as INVENTORY
from penstock.log.inventory import LogMissing, check_listed, enlist, listed
from penstock.log.writer_queue import off_loop
from penstock.metrics.health import Journal
from penstock.runtime.disk import make_folders
from penstock.runtime.interface import Runtime, Space, beside
from penstock.runtime.memory import memory_runtime
from penstock.runtime.open_files import files_for_topics
from penstock.runtime.system import SystemClock, SystemDice, ThreadWorkers, halt, system_runtime
from penstock.settings import BadSetting, ServerSettings
from penstock.store.audit_log import AuditLog, Entry, MemoryAuditLog
from penstock.store.embedded.shard import Shard
from penstock.store.embedded.shard_lifecycle import JOURNAL_SETTINGS
from penstock.store.embedded.shard_set import HISTORY, JOURNAL
from penstock.store.embedded.shard_state import ON_DISK
from penstock.store.embedded.store import EmbeddedStore
from penstock.store.interface import KeptRedrives
from penstock.store.placement import Placement, RoutedPlacement, RoutedRedrives
from penstock.streams.embedded.offset_store import Offsets
from penstock.streams.embedded.topic_store import PARTITION_LOG, StreamsSettings
from penstock.streams.embedded.topic_store import Streams as TopicFolder
from penstock.telemetry import STORE_DURABILITY_WARNING

if TYPE_CHECKING:
    from penstock.store.postgres.caller_transaction import Transactions
    from penstock.store.postgres.database import PostgresSettings
    from penstock.store.postgres.durability import DatabaseHealth
    from penstock.store.postgres.multi_database import RoutedTransactions
    from penstock.store.postgres.shared_tables import Identity, KeyTable, NodeTable
    from penstock.store.postgres.store import PostgresStore

DISK_THREADS = 4
# How often it is looked whether the files of a store were taken away.
WATCH_S = 0.5
# Partitions have their own, so that the journals of queues do not wait behind them.
STREAM_THREADS = 4
_STREAMS = "streams"
_EVERYWHERE = {"0.0.0.0", "[::]", "::", ""}
# The log that says which topics there are.
_CATALOG = f"{_STREAMS}/catalog"
DRIVER = "pip install 'penstock[postgres]'"
# How many queues a log event names.
_NAMED_MAX = 10
# What the largest message needs: a journal without room for it is full.
_PROBE_BYTES = BODY_BYTES_MAX + 64 * KIB


class NoFolder(OSError):
    """There is no folder for the data, and none can be made; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenStore:
    """A store that is open, and what can be seen of where it keeps things."""

    placement: Placement
    runtime: Runtime
    journals: Callable[[], Sequence[Journal]] = tuple
    # The room on the file system of the folder, if it is in one.
    space: Callable[[], Space] | None = None
    # Of a store in a database, or in several.
    vitals: Callable[[], "Sequence[DatabaseHealth]"] | None = None
    transactions: "Transactions | RoutedTransactions | None" = None
    # Where redrives are kept so that other servers know of them; None if the broker keeps them to itself.
    redrives: KeptRedrives | None = None
    # The keys that all servers of a database share; None if they are in the folder of the server.
    keys: "KeyTable | None" = None
    # The servers of a database, or of the first one of a map.
    nodes: "NodeTable | None" = None
    # The database that keeps topics, too, and which of its servers this is.
    database: "PostgresStore | None" = None
    identity: "Identity | None" = None
    audit_log: AuditLog = field(default_factory=MemoryAuditLog)


def audit_log_of(settings: ServerSettings) -> FolderAuditLog | None:
    """Return the audit log of a store in a folder; None for another one."""
    folder = settings.store_folder
    if folder is None:
        return None
    bytes_max, age_ms_max = settings.audit_bytes_max, settings.audit_days * DAY_MS
    return FolderAuditLog(folder / FOLDER, bytes_max=bytes_max, age_ms_max=age_ms_max)


@asynccontextmanager
async def open_store(settings: ServerSettings, *, is_watched: bool) -> AsyncIterator[OpenStore]:
    if settings.is_on_postgres:
        async with _open_postgres(settings, is_watched=is_watched) as opened:
            yield opened
        return
    if settings.store_folder is None:
        runtime = memory_runtime()
        async with await EmbeddedStore.in_memory(runtime) as store:
            yield OpenStore(placement=store, runtime=runtime, journals=partial(_journals, store))
        return
    folder = _make_folder(settings.store_folder)
    audit_log = audit_log_of(settings)
    assert audit_log is not None
    audit_log.check()
    async with ThreadWorkers(DISK_THREADS, halt) as workers:
        runtime = system_runtime(folder.parent, workers)
        if not await off_loop(workers, lambda: runtime.disk.exists(f"{folder.name}/{INVENTORY}")):
            await check_listed(runtime, folder.name, JOURNAL, later=[HISTORY, _STREAMS])
        journal = replace(JOURNAL_SETTINGS, sync=settings.fsync.value)
        keep = replace(ON_DISK, trusts_clock=settings.trust_clock)
        opening = EmbeddedStore.open(runtime, folder.name, journal, shards=settings.shards, keep=keep)
        async with await opening as store, _watching(store):
            await _begin_audit_log(runtime, folder.name, audit_log)
            yield OpenStore(
                placement=store,
                runtime=runtime,
                journals=partial(_journals, store),
                space=partial(runtime.disk.space, folder.name),
                audit_log=audit_log,
            )


async def _begin_audit_log(runtime: Runtime, folder: str, audit_log: FolderAuditLog) -> None:
    """Begin the audit log of a folder and list it; raise `LogMissing` if it is listed and gone."""

    def begin() -> bool:
        is_listed = FOLDER in listed(runtime.disk, folder)
        if not audit_log.is_begun():
            if is_listed:
                raise LogMissing(folder, FOLDER)
            audit_log.append_now([])
        return is_listed

    if not await off_loop(runtime.workers, begin):
        await enlist(runtime, folder, FOLDER)


@asynccontextmanager
async def _watching(store: EmbeddedStore) -> AsyncIterator[None]:
    """Look for as long as this is entered whether the files of a store are still there."""

    async def look() -> None:
        while True:
            await asyncio.sleep(WATCH_S)
            await store.check_files()

    async with beside(look()):
        yield


@asynccontextmanager
async def _open_postgres(settings: ServerSettings, *, is_watched: bool) -> AsyncIterator[OpenStore]:
    try:
        # The driver is an extra: who keeps messages in a folder needs none.
        from penstock.store.postgres.database import PostgresSettings  # noqa: PLC0415
    except ImportError as error:
        raise BadSetting(f"store is in PostgreSQL, and its driver is not installed: {DRIVER}") from error
    databases = [
        PostgresSettings(
            url=route.url,
            schema=settings.postgres_schema,
            connections_max=settings.postgres_connections_max,
            is_pooled=settings.postgres_transaction_pooling,
            may_lose=settings.postgres_allow_unsafe_durability,
            history_retention_ms=settings.postgres_history_retention_s * 1_000,
            drops_history=settings.postgres_history_drops,
            commit_timeout_s=settings.postgres_commit_timeout_ms / 1_000,
            requires_standby=settings.postgres_requires_standby,
        )
        for route in settings.routes
    ]
    # Nothing of it is on a disk of ours.
    runtime = memory_runtime()
    if is_map(settings.store):
        opening = _open_databases(databases, settings, runtime, is_watched=is_watched)
    else:
        opening = _open_database(databases[0], settings, runtime, is_watched=is_watched)
    async with opening as opened:
        yield opened


@asynccontextmanager
async def _open_database(
    database: "PostgresSettings", settings: ServerSettings, runtime: Runtime, *, is_watched: bool
) -> AsyncIterator[OpenStore]:
    from penstock.store.postgres.caller_transaction import transactions  # noqa: PLC0415
    from penstock.store.postgres.durability import Watch, watching  # noqa: PLC0415
    from penstock.store.postgres.leadership import FollowingClock  # noqa: PLC0415
    from penstock.store.postgres.store import PostgresStore  # noqa: PLC0415

    async with (
        await PostgresStore.open(
            database,
            clock=FollowingClock(runtime.clock),
            dice=runtime.dice,
            may_migrate=settings.postgres_auto_migrate,
            log_event=runtime.log_event,
            timings=runtime.timings,
        ) as store,
        watching(Watch(database.url, database.schema)) if is_watched else nullcontext() as look,
        transactions(store, database, asyncio.to_thread) as within,
    ):
        _doubt(runtime, store.durability_warnings)
        vitals = None if look is None else lambda: [_with_commits(look, store)]
        yield OpenStore(
            placement=store,
            runtime=runtime,
            vitals=vitals,
            transactions=within,
            redrives=store.redrives,
            keys=store.keys,
            nodes=store.nodes,
            database=store,
            identity=_identity(settings, runtime),
            audit_log=_audit_log_in(store, settings),
        )


@asynccontextmanager
async def _open_databases(
    databases: "list[PostgresSettings]", settings: ServerSettings, runtime: Runtime, *, is_watched: bool
) -> AsyncIterator[OpenStore]:
    """Open those of a map; what is the same database by two names, once."""
    from penstock.store.postgres.caller_transaction import transactions  # noqa: PLC0415
    from penstock.store.postgres.durability import Watch, watching  # noqa: PLC0415
    from penstock.store.postgres.leadership import FollowingClock  # noqa: PLC0415
    from penstock.store.postgres.multi_database import RoutedTransactions, open_several  # noqa: PLC0415

    clock = FollowingClock(runtime.clock)
    async with AsyncExitStack() as stack:
        stores, places = await stack.enter_async_context(
            open_several(
                databases,
                clock=clock,
                dice=runtime.dice,
                may_migrate=settings.postgres_auto_migrate,
                log_event=runtime.log_event,
                timings=runtime.timings,
            )
        )
        routes = Routes([route.pattern for route in settings.routes], places)
        looks: list[Callable[[], DatabaseHealth]] = []
        within: list[Transactions] = []
        for place, store in enumerate(stores):
            database = databases[places.index(place)]
            within.append(await stack.enter_async_context(transactions(store, database, asyncio.to_thread)))
            if is_watched:
                watch = Watch(database.url, database.schema, database=routes.patterns_of(place))
                look = await stack.enter_async_context(watching(watch))
                looks.append(partial(_with_commits, look, store))
            _doubt(runtime, [f"{routes.name_of(place)}: {doubt}" for doubt in store.durability_warnings])
        placement = RoutedPlacement(stores, routes)
        _doubt(runtime, [_misplaced(place, names) for place, names in (await placement.misplaced()).items()])
        yield OpenStore(
            placement=placement,
            runtime=runtime,
            vitals=(lambda: [look() for look in looks]) if is_watched else None,
            transactions=RoutedTransactions(routes, within, runtime.dice),
            redrives=RoutedRedrives([store.redrives for store in stores], routes),
            # One rule for all: keys and topics are in the first database of the map.
            keys=stores[places[0]].keys,
            nodes=stores[places[0]].nodes,
            database=stores[places[0]],
            identity=_identity(settings, runtime),
            audit_log=_audit_log_in(stores[places[0]], settings),
        )


def _identity(settings: ServerSettings, runtime: Runtime) -> "Identity":
    from penstock.store.postgres.shared_tables import Identity  # noqa: PLC0415

    incarnation = runtime.dice.token()
    # A server that listens is called by where it does: see `server._presenting`.
    return Identity(settings.node or f"{socket.gethostname()}:{incarnation:x}", incarnation)


def _audit_log_in(store: "PostgresStore", settings: ServerSettings) -> AuditLog:
    return store.audit_log(bytes_max=settings.audit_bytes_max, age_ms_max=settings.audit_days * DAY_MS)


def _with_commits(look: "Callable[[], DatabaseHealth]", store: "PostgresStore") -> "DatabaseHealth":
    return replace(look(), commits=store.commits)


def _doubt(runtime: Runtime, durability_warnings: Sequence[str]) -> None:
    for doubt in durability_warnings:
        runtime.log_event(STORE_DURABILITY_WARNING, reason=doubt)


def _misplaced(place: str, names: list[str]) -> str:
    some = ", ".join(names[:_NAMED_MAX]) + (", …" if len(names) > _NAMED_MAX else "")
    return f"{place} has {len(names)} queues that the map leads elsewhere for, so no request reaches them: {some}"


@asynccontextmanager
async def open_streams(settings: ServerSettings, opened: OpenStore, kafka: str | None) -> AsyncIterator[Streams | None]:
    """Open topics and groups, in the database of the queues or in a folder; None if no client could reach them."""
    if not settings.kafka:
        yield None
    elif opened.database is not None:
        async with _topics_in_database(settings, opened, opened.database, kafka) as streams:
            yield streams
    else:
        async with _topics_in_folder(settings, opened, kafka) as streams:
            yield streams


@asynccontextmanager
async def _topics_in_database(
    settings: ServerSettings, opened: OpenStore, store: "PostgresStore", kafka: str | None
) -> AsyncIterator[Streams]:
    from penstock.streams.postgres.brokers import PostgresBrokers  # noqa: PLC0415
    from penstock.streams.postgres.offset_store import PostgresOffsets  # noqa: PLC0415
    from penstock.streams.postgres.topic_store import PostgresTopics  # noqa: PLC0415

    assert opened.identity is not None
    folder = settings.data / _STREAMS
    partitions = folder / "partitions"
    if partitions.is_dir() and any(partitions.iterdir()):
        raise BadSetting(
            f"{folder} has topics, and this server keeps them in its database: serve the folder with --store "
            f"file:{settings.data}, or move {folder} away"
        )
    opened.identity.kafka = settings.kafka_advertised or _reachable(kafka)
    runtime = replace(opened.runtime, clock=store)
    kept = await PostgresTopics.open(store, runtime.dice, runtime.timings)
    async with Topics(runtime, kept) as topics:
        offsets = PostgresOffsets(store.database, kept, opened.identity)
        async with open_groups(runtime, offsets, topics) as groups:
            brokers = PostgresBrokers(store.nodes, opened.identity)
            yield Streams(topics, groups, settings.kafka_advertised or kafka, brokers)


def _reachable(address: str | None) -> str:
    """Return where other servers' clients reach us: a name of this machine, if we listen everywhere."""
    if address is None:
        return ""
    host, _, port = address.rpartition(":")
    return f"{socket.gethostname()}:{port}" if host in _EVERYWHERE else address


@asynccontextmanager
async def _topics_in_folder(settings: ServerSettings, opened: OpenStore, kafka: str | None) -> AsyncIterator[Streams]:
    """Open topics and groups in a folder of their own within that of the store.

    By the clock of the store records grow old: it may doubt the one of the system.
    """
    runtime, clock = opened.runtime, opened.placement
    async with AsyncExitStack() as stack:
        folder = _STREAMS
        parent = settings.store_folder
        if parent is not None:
            parent = _make_folder(parent)
            folder = f"{parent.name}/{folder}"
            workers = await stack.enter_async_context(ThreadWorkers(STREAM_THREADS, halt))
            runtime = system_runtime(parent.parent, workers)
        # What topics there are, and what groups have committed, is little: it is forced to the disk always.
        logs = StreamsSettings(
            partition_log=replace(PARTITION_LOG, sync=settings.fsync.value), open_files_max=files_for_topics()
        )
        # The list within the folder goes with the folder.
        is_listed = parent is None or await check_listed(runtime, parent.name, _CATALOG)
        topics = await stack.enter_async_context(Topics(runtime, await TopicFolder.open(runtime, folder, logs, clock)))
        kept = await Offsets.open(runtime, f"{folder}/groups")
        groups = await stack.enter_async_context(open_groups(runtime, kept, topics))
        if parent is not None and not is_listed:
            await enlist(runtime, parent.name, _CATALOG)
        yield Streams(topics, groups, settings.kafka_advertised or kafka)


def _make_folder(folder: Path) -> Path:
    # A path such as `.` has no name of its own.
    folder = folder.resolve()
    try:
        make_folders(folder)
    except OSError as error:
        raise NoFolder(f"cannot make the folder {folder}: {error.strerror}. Choose another with --data.") from error
    return folder


def _journals(store: EmbeddedStore) -> list[Journal]:
    is_clock_doubted = store.doubts_clock
    return [_journal(place, shard, is_clock_doubted) for place, shard in enumerate(store.shards)]


def _journal(place: int, shard: Shard, is_clock_doubted: bool) -> Journal:
    log = shard.log
    assert isinstance(log, DiskLog)
    is_full = False
    try:
        log.reserve(_PROBE_BYTES).__exit__(None, None, None)
    except LogFull:
        is_full = True
    except (LogBusy, LogClosed):
        pass
    return Journal(
        name=str(place),
        size_bytes=sum(segment.size_bytes for segment in log.segments),
        end_offset=log.end_offset,
        durable_offset=log.durable_offset,
        is_full=is_full,
        is_history_behind=shard.history is not None and shard.history.is_behind,
        is_clock_doubted=is_clock_doubted,
        history_lag=log.durable_offset - shard.told_offset(),
    )


def entry_of(change: Change | None, *, actor: str) -> Entry:
    """Return what the audit log says of a change of keys; None stands for a reset of all of them."""
    action = "key.reset" if change is None else f"key.{change.action}"
    name, key_id = ("*", "") if change is None else (change.key.name, change.key.id)
    at_ms = SystemClock().now_ms()
    return Entry(at_ms=at_ms, actor=actor, action=action, target=name, detail=key_id, via="command")


async def change_shared_keys(
    settings: ServerSettings, change: Callable[[Keyring | None], Change], *, actor: str
) -> Change:
    """Change the keys of a database, or of the first one of a map. Its servers know within a second or two."""
    done: list[Change] = []

    def decide(data: bytes | None) -> bytes:
        done[:] = [change(None if data is None else decode(data, place="the table of keys"))]
        return encode(done[0].keyring)

    async with _key_table(settings) as table:
        await table.change(decide)
        await table.audit_log(SystemDice()).append([entry_of(done[0], actor=actor)])
    return done[0]


async def read_shared_keys(settings: ServerSettings) -> Keyring | None:
    async with _key_table(settings) as table:
        found = await table.read(0)
    return None if found is None or found[1] is None else decode(found[1], place="the table of keys")


async def reset_shared_keys(settings: ServerSettings, *, actor: str) -> bool:
    async with _key_table(settings) as table:
        had_keys = await table.reset()
        await table.audit_log(SystemDice()).append([entry_of(None, actor=actor)])
    return had_keys


@asynccontextmanager
async def _key_table(settings: ServerSettings) -> "AsyncIterator[KeyTable]":
    """Connect for keys alone; the schema is made if it is not there and that is allowed."""
    from penstock.store.postgres.database import Database, PostgresSettings  # noqa: PLC0415
    from penstock.store.postgres.migrate import check, migrate  # noqa: PLC0415
    from penstock.store.postgres.shared_tables import KeyTable  # noqa: PLC0415

    database = Database(
        PostgresSettings(
            url=settings.routes[0].url,
            schema=settings.postgres_schema,
            connections_max=1,
            is_pooled=settings.postgres_transaction_pooling,
        )
    )
    try:
        async with await database.connect() as connection:
            if settings.postgres_auto_migrate:
                await migrate(connection, settings.postgres_schema)
            await check(connection, settings.postgres_schema)
        yield KeyTable(database)
    finally:
        await database.close()
