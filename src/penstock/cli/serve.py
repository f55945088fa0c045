"""`penstock serve`: runs the server until it is told to stop."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from penstock.broker.api_keys import are_needed
from penstock.cli.config import Config, loaded
from penstock.cli.output import ExitCode, refuse, say
from penstock.core.routes import is_map
from penstock.settings import BadSetting, Fsync, LogLevel, NotSecured, ServerSettings, without_password

Secured = "Keys and TLS"
Limited = "Limits"
Postgres = "PostgreSQL"

SchemaOption = Annotated[str | None, typer.Option(help="The schema that everything is in.", rich_help_panel=Postgres)]
DatabaseConnections = Annotated[
    int | None, typer.Option(help="Connections to the database, at most.", rich_help_panel=Postgres)
]
AutoMigrate = Annotated[
    bool | None,
    typer.Option("--migrate/--no-migrate", help="Bring the schema up to date at the start.", rich_help_panel=Postgres),
]
TransactionPooling = Annotated[
    bool | None,
    typer.Option("--pooled", help="PgBouncer in transaction mode is in between.", rich_help_panel=Postgres),
]
AllowUnsafeDurability = Annotated[
    bool | None,
    typer.Option(
        "--allow-unsafe-durability", help="Start even if fsync or synchronous_commit is off.", rich_help_panel=Postgres
    ),
]
StoreOption = Annotated[
    str | None,
    typer.Option(
        help="file:PATH for another folder for messages, postgresql://…, memory:, or PATTERN=postgresql://…,… for "
        "several databases."
    ),
]
TrustClock = Annotated[
    bool | None, typer.Option("--trust-clock", help="After a long stop: let what is too old by the clock expire.")
]
BehindProxy = Annotated[
    bool | None,
    typer.Option("--behind-proxy", help="A proxy before this server ends TLS.", rich_help_panel=Secured),
]
Hosts = Annotated[
    str | None,
    typer.Option(
        help="The names that clients reach it by, separated by commas; others are refused.", rich_help_panel=Secured
    ),
]
ConnectionsMax = Annotated[
    int | None, typer.Option(help="Connections at once, waiting ones included.", rich_help_panel=Limited)
]
LongPollsMax = Annotated[int | None, typer.Option(help="Requests that may wait for messages.", rich_help_panel=Limited)]
RequestBytesMax = Annotated[int | None, typer.Option(help="The largest request, in bytes.", rich_help_panel=Limited)]
StopTimeout = Annotated[
    float | None, typer.Option(help="How long running requests may take at the end.", rich_help_panel=Limited)
]


def serve(
    *,
    host: Annotated[str | None, typer.Option(help="The address to listen on. Default: this machine only.")] = None,
    port: Annotated[int | None, typer.Option(help="The port for HTTP; 0 takes any that is free.")] = None,
    kafka: Annotated[
        bool | None, typer.Option("--kafka/--no-kafka", help="Serve programs that speak Kafka, too.")
    ] = None,
    kafka_port: Annotated[int | None, typer.Option(help="The port for Kafka; 0 takes any that is free.")] = None,
    data: Annotated[Path | None, typer.Option(help="The folder for messages and keys.", file_okay=False)] = None,
    store: StoreOption = None,
    fsync: Annotated[
        Fsync | None, typer.Option(help="When it is forced to the disk: before each answer, every 100 ms, or never.")
    ] = None,
    shards: Annotated[int | None, typer.Option(help="How many journals share the queues.")] = None,
    trust_clock: TrustClock = None,
    tls_cert: Annotated[str | None, typer.Option(help="The certificate, in PEM.", rich_help_panel=Secured)] = None,
    tls_key: Annotated[str | None, typer.Option(help="Its private key, in PEM.", rich_help_panel=Secured)] = None,
    behind_proxy: BehindProxy = None,
    hosts: Hosts = None,
    sqs: Annotated[bool | None, typer.Option("--sqs/--no-sqs", help="Serve programs that speak SQS, too.")] = None,
    postgres_schema: SchemaOption = None,
    postgres_connections_max: DatabaseConnections = None,
    postgres_auto_migrate: AutoMigrate = None,
    postgres_transaction_pooling: TransactionPooling = None,
    postgres_allow_unsafe_durability: AllowUnsafeDurability = None,
    connections_max: ConnectionsMax = None,
    long_polls_max: LongPollsMax = None,
    request_bytes_max: RequestBytesMax = None,
    stop_timeout_s: StopTimeout = None,
    log_level: Annotated[LogLevel | None, typer.Option(help="The least important events that are logged.")] = None,
    config: Config = None,
) -> None:
    """Run the server. Ctrl-C, or SIGTERM, stops it in good order.

    Everything is in one folder; without --data it is ./penstock-data. Bound to this
    machine it needs nothing else. Where others can reach it, it starts only with keys
    (penstock key create) and TLS.

    [bold]Examples:[/]

    penstock serve
    penstock serve --port 9000 --data /var/lib/penstock
    penstock serve --kafka-port 19092
    penstock serve --host 0.0.0.0 --tls-cert cert.pem --tls-key key.pem
    penstock serve --store postgresql://penstock@db.example.com/shop
    penstock serve --store 'orders.*=postgresql://a.example.com/shop,*=postgresql://b.example.com/shop'
    """
    options = {name: value for name, value in locals().items() if name != "config"}
    _run(loaded(ServerSettings, options, config).settings)


def _run(settings: ServerSettings) -> None:
    with _refusals(settings):
        # Only this command needs the whole server.
        from penstock.server import serve as run

        listeners: list[str] = []
        run(settings, announce=lambda address: _greet(address, settings, listeners), announce_kafka=listeners.append)


def _greet(address: str, settings: ServerSettings, kafka_addresses: list[str]) -> None:
    """Say where everything is, once requests are taken."""
    kept = [str(settings.store_folder or "in memory only: gone when it stops")]
    if is_map(settings.store):
        kept = [f"{pattern}  {without_password(url)}" for pattern, url in settings.routes]
    elif settings.is_on_postgres:
        kept = [without_password(settings.store)]
    keys = "needed" if are_needed(settings.keys_path) else "not needed: only this machine reaches it"
    if settings.is_on_postgres:
        keys = "those of the database: penstock key list"
    say(f"Penstock listens on {address}")
    for each in kafka_addresses:
        say(f"  kafka     {each}")
    for place in kept:
        say(f"  messages  {place}")
    say(f"  keys      {keys}")
    say(f"  docs      {address}/docs")


@contextmanager
def _refusals(settings: ServerSettings) -> Iterator[None]:
    """Turn what keeps a server from starting into a sentence and an exit code."""
    try:
        yield
    except Exception as error:
        cause: BaseException = error
        # A group of tasks may have wrapped it.
        while isinstance(cause, BaseExceptionGroup) and len(cause.exceptions) == 1:
            cause = cause.exceptions[0]
        for kinds, ending, advice in _reasons():
            if isinstance(cause, kinds):
                refuse(_with_whole_paths(f"{cause}{advice}", settings), ending)
        raise


def _with_whole_paths(sentence: str, settings: ServerSettings) -> str:
    """Let the paths of logs begin where the person stands: the server names them from the folder above its own."""
    folder = settings.store_folder or settings.data
    name = re.escape(folder.resolve().name)
    return re.sub(rf"(?<!\S){name}/", lambda _: f"{folder}/", sentence)


Reason = tuple[tuple[type[BaseException], ...], ExitCode, str]


def _reasons() -> list[Reason]:
    """Return what can keep a server from starting; the first that fits counts."""
    from penstock.broker.keyring import KeysDamaged
    from penstock.listening.sockets import BadCertificate
    from penstock.log.manifest import UnknownFormat
    from penstock.log.recovery import LogCorrupted
    from penstock.runtime.interface import FolderTaken
    from penstock.store.embedded.codec import UnknownEvent
    from penstock.store.embedded.recall import JournalHasNoBeginning
    from penstock.store.embedded.replay import JournalHasHole
    from penstock.store.embedded.shards import TooFewShards
    from penstock.store.embedded.snapshot import SnapshotUnknown

    damages = (LogCorrupted, UnknownFormat, UnknownEvent, JournalHasHole, JournalHasNoBeginning, SnapshotUnknown)
    return [
        *_reasons_of_postgres(),
        ((NotSecured, BadSetting, BadCertificate, TooFewShards), ExitCode.BAD_SETTINGS, ""),
        ((FolderTaken,), ExitCode.CONFLICT, "\nOr give this server a folder of its own: --data."),
        ((*damages, KeysDamaged), ExitCode.STORAGE_FAILED, ""),
        # An address or a folder that cannot be had; the message says what to do.
        ((OSError,), ExitCode.CONFLICT, ""),
    ]


def _reasons_of_postgres() -> list[Reason]:
    try:
        from penstock.store.interface import StoreUnreachable
        from penstock.store.postgres.database import NotDurable
        from penstock.store.refusals import StoreForbids, StoreUnfit
    except ImportError:
        # Without the driver nothing of it can be the reason.
        return []
    return [
        ((NotDurable,), ExitCode.BAD_SETTINGS, "\nOr accept that: --allow-unsafe-durability."),
        ((StoreUnfit,), ExitCode.BAD_SETTINGS, ""),
        ((StoreForbids,), ExitCode.NOT_ALLOWED, ""),
        ((StoreUnreachable,), ExitCode.UNREACHABLE, ""),
    ]
