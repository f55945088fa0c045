"""Every setting of a server and of a client, read once, and where each value came from.

    option  ──▶  environment  ──▶  penstock.toml  ──▶  default        the first that has a value decides

The comment above a setting is its meaning, and `docs/reference/settings.md` is made from them. An unknown
setting or a value of the wrong type is an error that names the place, the setting and what is allowed: a
misspelt setting must not pass for a default.

This module does not read the environment by itself, and nothing below `server` imports it: parts are given values.
"""

import difflib
import ipaddress
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import Enum
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Generic, TypeVar, get_type_hints

from penstock.contract.limits import GIB, KEY_SHARE_PERCENT, MIB, SHARDS_MAX, TOPIC_PARTITIONS_MAX
from penstock.contract.names import BadSchema, check_schema
from penstock.core.routes import BadRoutes, Route, is_map, parse, split

FILE_NAME = "penstock.toml"
PREFIX = "PENSTOCK_"
CONFIG_VARIABLE = "PENSTOCK_CONFIG"
KEYS_FILE = "keys.json"

_TRUE, _FALSE = {"true", "yes", "on", "1"}, {"false", "no", "off", "0"}
# Kubernetes sets variables named after a Service: PENSTOCK_PORT is tcp://10.0.0.1:8080 beside a Service `penstock`.
_OF_KUBERNETES = "tcp://"


# Where Kafka clients look by themselves.
KAFKA_PORT = 9092


class BadSetting(ValueError):
    """A setting is unknown, of another type or out of bounds; the message says where and what is allowed."""


class NotSecured(ValueError):
    """Other machines could reach this server without a key or TLS; the message says what to do."""


class LogLevel(Enum):
    # Everything.
    DEBUG = "debug"
    # What happened; you need not act.
    INFO = "info"
    # Look at it when you have time.
    WARNING = "warning"
    # Act on it.
    ERROR = "error"


class LogFormat(Enum):
    # As `text` on a terminal, and as `json` elsewhere.
    AUTO = "auto"
    # A line for people: the time, the level, the event and its fields.
    TEXT = "text"
    # An object of JSON on each line, for programs that gather logs.
    JSON = "json"


class Fsync(Enum):
    # Before each answer, one fsync for all that wait: nothing confirmed is lost.
    BATCH = "batch"
    # Every 100 ms: a power cut may lose what was confirmed since.
    INTERVAL = "interval"
    # When the operating system decides: a power cut may lose what it had not written yet, often 30 seconds.
    OS = "os"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    # The address to listen on. By default only this machine can reach the server. On any other address it needs keys
    # and TLS.
    host: str = "127.0.0.1"
    # The port for HTTP: REST, SQS, metrics and documentation. 0 takes any free port.
    port: int = 8080
    # Serve Kafka clients, on a port of their own.
    kafka: bool = True
    # The port for Kafka clients. 0 takes any free port. If the default port is in use, the server starts without Kafka
    # and logs `kafka.port_in_use`; if a port that you chose is in use, it does not start.
    kafka_port: int = KAFKA_PORT
    # The address of this server that Kafka clients get, as HOST:PORT; empty for the address that they connected to. Set
    # it behind a proxy, in a container, or if the certificate has another name.
    kafka_advertised: str = ""
    # Create a topic when a Kafka client asks for one that does not exist.
    kafka_auto_create: bool = True
    # How many partitions a new topic has by default.
    topic_partitions: int = 1
    # The folder of the server: its store, and its keys in `keys.json`. A relative path starts at the folder in which
    # the server was started, even if it comes from a configuration file elsewhere.
    data: Path = Path("penstock-data")
    # Where messages are kept: empty for a store in the folder `data`, `file:PATH` for another folder, `postgresql://…`
    # for a PostgreSQL database, `memory:` for memory only, which a stop empties.
    # `orders.*=postgresql://…,*=postgresql://…` spreads queues over several databases: the first pattern that matches
    # the queue name decides.
    store: str = ""
    # When messages and records in a folder are synced to disk: `batch` before each answer, `interval` every 100 ms,
    # `os` when the operating system decides. With `interval` and `os` a power cut may lose confirmed messages; a crash
    # of the process alone loses nothing. Only for a store in a folder.
    fsync: Fsync = Fsync.BATCH
    # The schema that holds all tables and functions of a PostgreSQL store.
    postgres_schema: str = "penstock"
    # The most connections that this server opens to each PostgreSQL database.
    postgres_connections_max: int = 8
    # Create or upgrade the schema in PostgreSQL at start. Otherwise run `penstock migrate`.
    postgres_auto_migrate: bool = True
    # Connect through a pooler in transaction mode, such as PgBouncer. The server then prepares no statements, and polls
    # for new messages instead of listening for them.
    postgres_transaction_pooling: bool = False
    # Start even if fsync or synchronous_commit is off. A crash of the database can then lose confirmed messages.
    postgres_allow_unsafe_durability: bool = False
    # How long a commit may wait for a synchronous standby, in milliseconds. After that its outcome is unknown (REST
    # answers 504, SQS 503), and further requests are refused at once until a standby confirms again.
    postgres_commit_timeout_ms: int = 10_000
    # Acknowledge only what a synchronous standby has confirmed. Without `synchronous_standby_names`, or without a
    # standby, the server refuses every request that changes something, and is not ready. Otherwise a database without
    # a synchronous standby has the durability of one machine.
    postgres_requires_standby: bool = False
    # The name of this server among those of one PostgreSQL database, for `penstock cluster`. Empty for the name of the
    # machine and the port.
    node: str = ""
    # How long the history in PostgreSQL keeps settled messages, in seconds; 0 keeps them for ever. Whole periods of a
    # day are removed, once their last message is older than this; the last two periods stay.
    postgres_history_retention_s: int = 0
    # Drop periods that are older than `postgres_history_retention_s`. Otherwise they are detached: each stays as a
    # table `history_N` outside the history, for you to copy and drop.
    postgres_history_drops: bool = False
    # The file with the certificate and its chain, in PEM.
    tls_cert: str = ""
    # The file with the private key of the certificate, in PEM.
    tls_key: str = ""
    # A proxy in front of this server ends TLS, so that other machines can reach it although it has no TLS of its own.
    # This needs keys and `hosts`, on loopback too.
    behind_proxy: bool = False
    # The names by which clients reach this server, separated by commas, such as `queues.example.com`. Requests with
    # another `Host` are refused, except for `/health/…`. Required with `behind_proxy`. If empty, any name is accepted;
    # on loopback, only names of loopback.
    hosts: str = ""
    # Serve SQS clients on the same port: set their `endpoint_url` to this server.
    sqs: bool = True
    # The account id in the URLs and ARNs of queues.
    sqs_account: str = "000000000000"
    # The region in the ARNs of queues. Signatures must be for this region.
    sqs_region: str = "us-east-1"
    # The id of an access key that may sign SQS requests of every kind; empty for none. While there is neither this pair
    # nor a key, signatures are ignored. `penstock key create --sqs` creates pairs with the rights of a key.
    sqs_access_key_id: str = ""
    # The secret of that access key.
    sqs_secret_access_key: str = ""
    # Enforce AWS's cooldowns: 60 s until the name of a deleted queue can be used again, and 60 s between two purges of
    # a queue. Without them both are allowed at once, as test suites need that create the same queue for every test.
    sqs_cooldowns: bool = False
    # How many journals the queues share. You can raise the number between starts, but never lower it.
    shards: int = 1
    # Trust the clock although it is hours ahead of the newest entry in the journals. Otherwise time continues from that
    # entry, so that a wrong clock expires nothing. Use it for one start, after a long stop.
    trust_clock: bool = False
    # The most open connections, those of long polls included. More are refused.
    connections_max: int = 16_000
    # The most requests that wait for messages at the same time. More get 429.
    long_polls_max: int = 16_000
    # The largest request, in bytes. Larger ones get 413.
    request_bytes_max: int = 16 * MIB
    # The most memory, in bytes, that unanswered requests may use, over HTTP and Kafka together. Beyond it the server
    # refuses the largest of those that have been arriving for longest: with 503, or over Kafka by closing the
    # connection.
    buffered_bytes_max: int = 256 * MIB
    # The largest share of a common limit that one key may use, in percent. It applies to long polls (`long_polls_max`),
    # waiting fetches, redrives, consumer groups and partitions. A key with the role `admin` on `*` has no such limit.
    key_share_percent: int = KEY_SHARE_PERCENT
    # Serve `/metrics` without a key, even on a server with keys. The metrics name all queues; by default they need a
    # key with the role `metrics` on all of them.
    metrics_without_key: bool = False
    # The size of the audit log, in bytes. Beyond it the oldest entries are removed.
    audit_bytes_max: int = 64 * MIB
    # How many days the audit log keeps an entry.
    audit_days: int = 90
    # Watch the event loop: log what it is doing when it does not respond for this many milliseconds, and export its lag
    # as a metric. 0 turns this off.
    stall_ms: int = 0
    # Send metrics, and spans of requests that carry a trace, to this collector by OTLP over HTTP, such as
    # `http://127.0.0.1:4318`. Empty for none. It needs the extra `opentelemetry`.
    otlp_url: str = ""
    # How often the metrics are sent, in seconds.
    otlp_every_s: int = 60
    # How long a stopping server waits for running requests, in seconds.
    stop_timeout_s: float = 10.0
    # How long a stopping server goes on serving after `/health/ready` says that it stops, in seconds. Set it to more
    # than a load balancer takes to notice.
    stop_delay_s: float = 0.0
    # The lowest level of events that are logged.
    log_level: LogLevel = LogLevel.INFO
    # How events are written to standard error.
    log_format: LogFormat = LogFormat.AUTO

    def __post_init__(self) -> None:
        _between("port", self.port, 0, 65_535)
        _between("kafka_port", self.kafka_port, 0, 65_535)
        _between("topic_partitions", self.topic_partitions, 1, TOPIC_PARTITIONS_MAX)
        _between("shards", self.shards, 1, SHARDS_MAX)
        _between("connections_max", self.connections_max, 1, 1_000_000)
        _between("long_polls_max", self.long_polls_max, 0, 1_000_000)
        _between("request_bytes_max", self.request_bytes_max, 1_024, GIB)
        _between("buffered_bytes_max", self.buffered_bytes_max, self.request_bytes_max, 1_024 * GIB)
        _between("key_share_percent", self.key_share_percent, 1, 100)
        _between("audit_bytes_max", self.audit_bytes_max, 64 * 1_024, GIB)
        _between("audit_days", self.audit_days, 1, 3_650)
        _between("stall_ms", self.stall_ms, 0, 60_000)
        _between("stop_delay_s", self.stop_delay_s, 0, 3_600)
        _between("otlp_every_s", self.otlp_every_s, 1, 3_600)
        _between("stop_timeout_s", self.stop_timeout_s, 0, 3_600)
        if not self.host:
            raise BadSetting("host is empty; set an address, such as 127.0.0.1, or 0.0.0.0 for all of them")
        if bool(self.tls_cert) != bool(self.tls_key):
            raise BadSetting("tls_cert and tls_key belong together: set both, or neither")
        _check_store(self.store)
        if self.is_on_postgres and self.fsync is not Fsync.BATCH:
            raise BadSetting(
                f"fsync is {self.fsync.value}; a store in PostgreSQL is as durable as the database: it must be batch"
            )
        _check_postgres(self)
        _check_sqs(self)
        _check_advertised(self.kafka_advertised)
        _check_otlp(self.otlp_url)
        for name in self.host_names:
            if not re.fullmatch(r"[A-Za-z0-9_.-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\]", name):
                raise BadSetting(f"hosts has {name!r}; it must be names without a port, separated by commas")

    @property
    def store_folder(self) -> Path | None:
        """Where the embedded store is; None if there is none: everything is in memory, or in PostgreSQL."""
        if self.store == "memory:" or self.is_on_postgres:
            return None
        return Path(self.store.removeprefix("file:")) if self.store else self.data

    @property
    def is_on_postgres(self) -> bool:
        return is_postgres(self.store)

    @property
    def routes(self) -> tuple[Route, ...]:
        """The databases, each with the pattern of its queues; a single one has all."""
        return parse(self.store) if is_map(self.store) else (Route("*", self.store),)

    @property
    def advertised(self) -> tuple[str, int] | None:
        """The address that Kafka clients get; None for the one that they connected to."""
        host, _, port = self.kafka_advertised.rpartition(":")
        return (host.strip("[]"), int(port)) if host else None

    @property
    def host_names(self) -> frozenset[str]:
        """The names by which clients reach the server, in lower case; none if there is no such setting."""
        return frozenset(name.strip().lower() for name in self.hosts.split(",") if name.strip())

    @property
    def keys_path(self) -> Path:
        return self.data / KEYS_FILE

    @property
    def has_tls(self) -> bool:
        return bool(self.tls_cert)

    @property
    def is_on_loopback(self) -> bool:
        """Whether only this machine can reach the server."""
        try:
            return ipaddress.ip_address(self.host.strip("[]")).is_loopback
        except ValueError:
            return self.host == "localhost"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    # Where the server is. Of several equal servers all, as `http://a:8080,b:8080,c:8080`: one is used while it serves.
    url: str = "http://127.0.0.1:8080"
    # The API key to show to it; empty for none. `penstock key create` makes one.
    key: str = ""


SECTIONS: dict[str, type[ServerSettings] | type[ClientSettings]] = {"server": ServerSettings, "client": ClientSettings}
SECRETS = frozenset({"key", "sqs_secret_access_key"})

Kind = TypeVar("Kind", ServerSettings, ClientSettings)


@dataclass(frozen=True, slots=True)
class Loaded(Generic[Kind]):
    """Settings, and for each by name where its value came from: `--port`, `PENSTOCK_PORT`, a file, `default`."""

    settings: Kind
    origins: dict[str, str]


def check_is_secured(settings: ServerSettings, *, has_keys: bool) -> None:
    """Raise `NotSecured` if other machines can reach the server and it lacks keys, TLS or, behind a proxy, a name.

    Keys without TLS can be read on the network; TLS without keys lets everyone in. A proxy makes a server on loopback
    reachable as well, and forwards requests for any name that leads to it.
    """
    if settings.is_on_loopback and not settings.behind_proxy:
        return
    reached = f"The server would listen on {settings.host}, where other machines can reach it, "
    home = "Or listen on this machine only: --host 127.0.0.1."
    if settings.behind_proxy:
        reached = "The server would be behind a proxy, through which other machines can reach it, "
        home = "Or listen on this machine only: without --behind-proxy."
    if not has_keys:
        mend = f"penstock key create --name admin --role admin {_kept_in(settings)}"
        raise NotSecured(f"{reached}and it has no keys: anyone could do anything.\nCreate one: {mend}\n{home}")
    if not settings.has_tls and not settings.behind_proxy:
        mend = "Set --tls-cert and --tls-key; or --behind-proxy if a proxy ends TLS."
        raise NotSecured(f"{reached}without TLS: keys and messages could be read on the network.\n{mend}\n{home}")
    if settings.behind_proxy and not settings.host_names:
        mend = "Set the names by which clients reach it: --hosts queues.example.com"
        raise NotSecured(f"{reached}and it has no name: requests for any name would be accepted.\n{mend}\n{home}")


def _kept_in(settings: ServerSettings) -> str:
    if settings.is_on_postgres:
        return f"--store {without_password(settings.routes[0].url)}"
    return f"--data {settings.data}"


def find_file(config: Path | None, environment: Mapping[str, str], folder: Path) -> Path | None:
    """Return the file to read: the one that was named, or `penstock.toml` in ``folder`` if it is there."""
    if config is None and environment.get(CONFIG_VARIABLE):
        config = Path(environment[CONFIG_VARIABLE])
    if config is None:
        config = folder / FILE_NAME
        return config if config.is_file() else None
    if not config.is_file():
        raise BadSetting(f"{config}: there is no such file")
    return config


def read_file(path: Path | None) -> dict[str, dict[str, Any]]:
    """Return what a file says, by section; raise `BadSetting` for anything it may not say."""
    if path is None:
        return {}
    try:
        said = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise BadSetting(f"{path}: {error}") from error
    for section, values in said.items():
        if section not in SECTIONS or not isinstance(values, dict):
            raise BadSetting(f"{path}: there is no section [{section}]; there are [server] and [client]")
        names = [field.name for field in fields(SECTIONS[section])]
        for name in values:
            if name not in names:
                raise BadSetting(f"{path}: [{section}] has no setting {name}{_nearest(name, names)}")
    return said


def load(
    kind: type[Kind], *, options: Mapping[str, Any], environment: Mapping[str, str], file: Path | None
) -> Loaded[Kind]:
    """Read settings from everywhere; an option that is None says nothing."""
    section = next(name for name, each in SECTIONS.items() if each is kind)
    said = read_file(file).get(section, {})
    types = get_type_hints(kind)
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for field in fields(kind):
        name = field.name
        variable = PREFIX + name.upper()
        origins[name] = "default"
        if options.get(name) is not None:
            values[name], origins[name] = options[name], f"--{name.replace('_', '-')}"
        elif (text := environment.get(variable, "")) and not text.startswith(_OF_KUBERNETES):
            values[name], origins[name] = _parse(variable, text, types[name]), variable
        elif name in said:
            origins[name] = f"{file} [{section}]"
            values[name] = _checked(f"{file}: [{section}] {name}", said[name], types[name])
    try:
        return Loaded(kind(**values), origins)
    except BadSetting as error:
        place = origins.get(str(error).partition(" ")[0], "settings")
        raise BadSetting(f"{place}: {error}") from None


def _parse(variable: str, text: str, kind: type) -> Any:
    """Return the value that a variable of the environment spells."""
    value: Any = text
    try:
        if kind is bool:
            value = True if text.lower() in _TRUE else False if text.lower() in _FALSE else text
        elif kind in {int, float}:
            value = kind(text)
    except ValueError:
        pass
    return _checked(variable, value, kind)


def _checked(place: str, value: Any, kind: type) -> Any:
    """Return a value as its type wants it, or say what would be right."""
    if kind is float and type(value) is int:
        return float(value)
    if issubclass(kind, Enum):
        choices = [choice.value for choice in kind]
        if value in choices:
            return kind(value)
        raise BadSetting(f"{place} is {value!r}; it must be one of {', '.join(choices)}")
    if kind is Path and type(value) is str and value:
        return Path(value)
    # A bool is an int to Python, and a mistake here.
    if type(value) is kind:
        return value
    raise BadSetting(f"{place} is {value!r}; it must be {_ALLOWED[kind]}")


_ALLOWED: dict[type, str] = {
    str: "text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    Path: "the path of a folder",
}


def _between(name: str, value: float, least: float, most: float) -> None:
    # Written so that it is also wrong for "not a number", which a file or a variable may say.
    if not least <= value <= most:
        raise BadSetting(f"{name} is {value}; it must be from {least} to {most}")


def is_postgres(url: str) -> bool:
    """Whether a store is in PostgreSQL: in one database, or in those of a map."""
    return url.startswith(("postgresql://", "postgres://")) or is_map(url)


def without_password(url: str) -> str:
    """Return a URL as it may be shown: a password in it is not.

    >>> without_password("postgresql://penstock:secret@db/shop?password=secret&sslmode=require")
    'postgresql://penstock:…@db/shop?password=…&sslmode=require'
    >>> without_password("orders.*=postgresql://penstock:secret@a/shop,*=postgresql://b/shop")
    'orders.*=postgresql://penstock:…@a/shop,*=postgresql://b/shop'
    """
    if is_map(url):
        return ",".join(f"{pattern}={without_password(each)}" for pattern, each in split(url))
    shown = re.sub(r"(\w+:/*[^:/@]*):[^/]*@", r"\1:…@", url)
    return re.sub(r"([?&](?:ssl)?password=)[^&]*", r"\1…", shown)


def _check_store(store: str) -> None:
    if is_map(store):
        try:
            parse(store)
        except BadRoutes as error:
            raise BadSetting(f"store is a map, and {error}") from None
        return
    is_known = store in {"", "memory:"} or (store.startswith("file:") and len(store) > len("file:"))
    if not is_known and not is_postgres(store):
        shown = without_password(store)
        raise BadSetting(
            f"store is {shown!r}; it must be file:PATH, postgresql://…, a map of them such as "
            "orders.*=postgresql://…,*=postgresql://…, memory:, or empty for a store in `data`"
        )


_YEAR_S = 366 * 24 * 60 * 60


def _check_postgres(settings: ServerSettings) -> None:
    _between("postgres_connections_max", settings.postgres_connections_max, 2, 1_000)
    if not re.fullmatch(r"[A-Za-z0-9._:-]{0,128}", settings.node):
        raise BadSetting(f"node is {settings.node!r}; it must be up to 128 letters, digits, '.', '_', ':' and '-'")
    _between("postgres_commit_timeout_ms", settings.postgres_commit_timeout_ms, 100, 600_000)
    _between("postgres_history_retention_s", settings.postgres_history_retention_s, 0, 100 * _YEAR_S)
    try:
        check_schema(settings.postgres_schema, field="postgres_schema")
    except BadSchema as error:
        raise BadSetting(str(error)) from None


def _check_otlp(url: str) -> None:
    if not url:
        return
    if not url.startswith(("http://", "https://")):
        raise BadSetting(f"otlp_url is {url!r}; it must be the http:// or https:// address of a collector")
    if find_spec("opentelemetry") is None or find_spec("opentelemetry.exporter") is None:
        raise BadSetting("otlp_url needs OpenTelemetry: pip install 'penstock[opentelemetry]'")


def _check_sqs(settings: ServerSettings) -> None:
    if not (len(settings.sqs_account) == 12 and settings.sqs_account.isascii() and settings.sqs_account.isdigit()):
        raise BadSetting(f"sqs_account is {settings.sqs_account!r}; it must be twelve digits")
    if not re.fullmatch(r"[a-z0-9-]{1,64}", settings.sqs_region):
        raise BadSetting(f"sqs_region is {settings.sqs_region!r}; it must be a name such as us-east-1")
    if bool(settings.sqs_access_key_id) != bool(settings.sqs_secret_access_key):
        raise BadSetting("sqs_access_key_id and sqs_secret_access_key belong together: set both, or neither")


def _check_advertised(text: str) -> None:
    host, _, port = text.rpartition(":")
    if text and not (host and port.isascii() and port.isdigit() and 0 < int(port) < 65_536):
        raise BadSetting(f"kafka_advertised is {text!r}; it must be HOST:PORT, such as broker.example.com:9092")


def _nearest(name: str, names: list[str]) -> str:
    near = difflib.get_close_matches(name, names, n=1)
    return f"; is {near[0]} meant?" if near else f"; there are {', '.join(names)}"
