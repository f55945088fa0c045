"""`penstock serve` runs the server until it is stopped, `penstock work` the worker of an application."""

import importlib
import inspect
import logging
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from penstock.broker.api_keys import are_needed
from penstock.cli.config import Config, loaded
from penstock.cli.output import ExitCode, refuse, say
from penstock.core.routes import is_map
from penstock.settings import BadSetting, LogLevel, NotSecured, ServerSettings, without_password

# The options of `serve`, by panel. An option has the name and the type of its setting.
_OPTIONS = {
    None: {
        "host": "The address to listen on. Default: this machine only.",
        "port": "The port for HTTP; 0 takes any that is free.",
        "kafka": "Serve programs that speak Kafka, too.",
        "kafka_port": "The port for Kafka; 0 takes any that is free.",
        "data": "The folder for messages and keys.",
        "store": "file:PATH for another folder for messages, postgresql://…, memory:, or PATTERN=postgresql://…,… for "
        "several databases.",
        "fsync": "When it is forced to the disk: before each answer, every 100 ms, or never.",
        "shards": "How many journals share the queues.",
        "trust_clock": "After a long stop: let what is too old by the clock expire.",
        "sqs": "Serve programs that speak SQS, too.",
        "log_level": "The least important events that are logged.",
        "log_format": "Lines for people, or an object of JSON each; auto is for people on a terminal.",
    },
    "Keys and TLS": {
        "tls_cert": "The certificate, in PEM.",
        "tls_key": "Its private key, in PEM.",
        "behind_proxy": "A proxy before this server ends TLS.",
        "hosts": "The names that clients reach it by, separated by commas; others are refused.",
    },
    "PostgreSQL": {
        "postgres_schema": "The schema that everything is in.",
        "postgres_connections_max": "Connections to the database, at most.",
        "postgres_auto_migrate": "Bring the schema up to date at the start.",
        "postgres_transaction_pooling": "PgBouncer in transaction mode is in between.",
        "postgres_allow_unsafe_durability": "Start even if fsync or synchronous_commit is off.",
        "node": "The name of this server among those of the database.",
        "postgres_requires_standby": "Acknowledge only what a synchronous standby has confirmed.",
    },
    "Telemetry": {
        "otlp_url": "The collector that is told metrics and traces by OTLP over HTTP, such as http://127.0.0.1:4318.",
        "otlp_every_s": "How often it is told the metrics, in seconds.",
    },
    "Limits": {
        "connections_max": "Connections at once, waiting ones included.",
        "long_polls_max": "Requests that may wait for messages.",
        "request_bytes_max": "The largest request, in bytes.",
        "stop_delay_s": "How long it serves on after it has said that it stops.",
        "stop_timeout_s": "How long running requests may take at the end.",
    },
}
# Of flags that are not called as their settings.
_FLAGS = {
    "postgres_auto_migrate": "--migrate/--no-migrate",
    "postgres_transaction_pooling": "--pooled",
    "postgres_allow_unsafe_durability": "--allow-unsafe-durability",
    "postgres_requires_standby": "--require-standby",
}


def _parameters() -> Iterator[inspect.Parameter]:
    kinds, defaults = get_type_hints(ServerSettings), ServerSettings()
    for panel, options in _OPTIONS.items():
        for name, meaning in options.items():
            flag = f"--{name.replace('_', '-')}"
            if getattr(defaults, name) is True:
                # What is on by default can be switched off.
                flag = f"{flag}/--no-{flag[2:]}"
            flag = _FLAGS.get(name, flag)
            option = typer.Option(flag, help=meaning, rich_help_panel=panel, file_okay=kinds[name] is not Path)
            annotation = Annotated[kinds[name] | None, option]  # type: ignore[valid-type]
            yield inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def _has_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of `_OPTIONS`, before its own."""
    own = inspect.signature(command, eval_str=True).parameters.values()
    parameters = [*_parameters(), *(each for each in own if each.kind is not each.VAR_KEYWORD)]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {each.name: each.annotation for each in parameters}
    return command


@_has_options
def serve(*, config: Config = None, **options: Any) -> None:
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
    settings = loaded(ServerSettings, options, config).settings
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
    say(f"  console   {address}/")
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
    from penstock.broker.api_keys import KeysDamaged
    from penstock.listening.sockets import BadCertificate
    from penstock.log.manifest import UnknownFormat
    from penstock.log.recovery import LogCorrupted
    from penstock.runtime.interface import FolderTaken
    from penstock.store.embedded.event_codec import UnknownEvent
    from penstock.store.embedded.shard_lifecycle import JournalHasNoBeginning
    from penstock.store.embedded.shard_set import TooFewShards
    from penstock.store.embedded.shard_state import JournalHasHole
    from penstock.store.embedded.snapshot_file import SnapshotUnknown

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
        from penstock.store.errors import StoreForbids, StoreUnfit, StoreUnreachable
        from penstock.store.postgres.durability import NotDurable
    except ImportError:
        # Without the driver there is no database to blame.
        return []
    return [
        ((NotDurable,), ExitCode.BAD_SETTINGS, "\nOr accept that: --allow-unsafe-durability."),
        ((StoreUnfit,), ExitCode.BAD_SETTINGS, ""),
        ((StoreForbids,), ExitCode.NOT_ALLOWED, ""),
        ((StoreUnreachable,), ExitCode.UNREACHABLE, ""),
    ]


def work(
    target: Annotated[str, typer.Argument(metavar="MODULE:NAME", help="Where the worker is, as in app:worker.")],
    *,
    folder: Annotated[Path, typer.Option(help="Where modules are looked for first.", exists=True)] = Path(),
    log_level: Annotated[LogLevel, typer.Option(help="The least important events that are logged.")] = LogLevel.INFO,
) -> None:
    """Run a worker until Ctrl-C or SIGTERM; it finishes what it has begun.

    The module is looked for in the working directory, then where Python looks. The
    name is that of a penstock.Worker in it; it names its server, or
    PENSTOCK_URL and PENSTOCK_KEY do. Stopped twice, it leaves what it has begun.

    [bold]Examples:[/]

    penstock work app:worker
    penstock work shop.orders:worker --folder ./src
    """
    worker = find_worker(target, folder)
    logging.basicConfig(level=log_level.value.upper(), format="%(asctime)s %(levelname)s %(message)s")
    worker.run_sync()


def find_worker(target: str, folder: Path) -> Any:
    """Import the module and return the worker in it; end the command with what is wrong if that cannot be."""
    module_name, colon, name = target.partition(":")
    if not (module_name and colon and name):
        refuse(f"{target!r} names no worker; say MODULE:NAME, as in app:worker")
    sys.path.insert(0, str(folder.resolve()))
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        # If the worker's own module misses a module, its traceback is worth seeing.
        if error.name is None or not (module_name == error.name or module_name.startswith(f"{error.name}.")):
            raise
        refuse(f"There is no module {module_name} in {folder.resolve()}; say --folder", ExitCode.NOT_FOUND)
    found: Any = module
    for part in name.split("."):
        found = getattr(found, part, None)
    if not callable(getattr(found, "run_sync", None)):
        refuse(f"{module_name} has no worker called {name}; make one: {name} = penstock.Worker(…)", ExitCode.NOT_FOUND)
    return found
