"""Where history is read from: a server, the store of one, or an archive; all give the same columns.

    http://…             a server, over HTTP
    postgresql://…       the database of a store, read directly
    folder with journal  the data folder of a store, read directly
    folder with messages an archive: a Delta table, here or in an object store

`read_history` adds `id`, the text that REST, the SDK and the CLI name a message by.

An address of PostgreSQL may have a password and the name of a schema in it. It is shown and written down without the
password.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.contract.history_columns import HISTORY, ddl
from penstock.pipeline.http import TRIES_BY_HAND, ServerClient, ServerRefused, ServerUnreachable
from penstock.pipeline.job import JobFailed
from penstock.pipeline.tables import EVERYTHING, Bounds, Table, is_local, is_table, spark_path, uri_for_tasks

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, DataFrameReader, SparkSession

SCHEMA = "penstock"
_SCHEMA_IS = "schema="


class DatabaseRefused(Exception):
    """A database has not answered, or not with what was asked for; the message has its words."""


def is_database(where: str) -> bool:
    return where.startswith(("postgresql://", "postgres://"))


def schema_in(where: str) -> tuple[str, str]:
    """Take the schema out of an address: it is for us, and PostgreSQL refuses a parameter that it does not know.

    >>> schema_in("postgresql://penstock@db/shop?schema=queues&sslmode=require")
    ('postgresql://penstock@db/shop?sslmode=require', 'queues')
    >>> schema_in("postgresql://penstock@db/shop")
    ('postgresql://penstock@db/shop', '')
    """
    plain, _, query = where.partition("?")
    said = query.split("&") if query else []
    schemas = [each.removeprefix(_SCHEMA_IS) for each in said if each.startswith(_SCHEMA_IS)]
    rest = "&".join(each for each in said if not each.startswith(_SCHEMA_IS))
    return (f"{plain}?{rest}" if rest else plain), (schemas[-1] if schemas else "")


def without_password(where: str) -> str:
    """Return an address as it may be shown and written down.

    >>> without_password("postgresql://penstock:secret@db/shop?password=secret&sslmode=require")
    'postgresql://penstock:…@db/shop?password=…&sslmode=require'
    """
    shown = re.sub(r"^(\w+://[^:/@]*):[^/]*@", r"\1:…@", where)
    return re.sub(r"([?&](?:ssl)?password=)[^&]*", r"\1…", shown)


def passwords_in(where: str) -> list[str]:
    """Return what must not be in a message, the longest first.

    >>> passwords_in("postgresql://penstock:secret@db/shop?password=sesame")
    ['secret', 'sesame']
    """
    found = re.findall(r"^\w+://[^:/@]*:([^/]*)@|[?&](?:ssl)?password=([^&]*)", where)
    return sorted({one or other for one, other in found if one or other}, key=lambda each: (-len(each), each))


# Of an archive: the table of rows, and that of the dead letters of the last run.
MESSAGES = "messages"
DEAD_LETTERS = "dead_letters"
# And the settings of each queue, as last seen.
QUEUES = "queues.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryLocation:
    """What to read, and where; a server may want a key."""

    where: str
    key: str = ""
    # Empty for all.
    queues: Sequence[str] = ()
    # By the time a message was settled, as RFC 3339: from this one on, and before that one.
    since: str = ""
    until: str = ""

    @property
    def is_server(self) -> bool:
        return self.where.startswith(("http://", "https://"))

    @property
    def shown(self) -> str:
        """Where it is, for people and reports: without a password."""
        return without_password(self.where)


@dataclass(frozen=True, slots=True, kw_only=True)
class HistorySlice:
    """Some of the rows of a place: a range of offsets of each shard."""

    # From where on; a shard that is not there is read from its first row on.
    offsets_from: Mapping[str, int] = field(default_factory=dict)
    offsets_to: Mapping[str, int] = field(default_factory=dict)


def read_history(
    spark: "SparkSession", place: HistoryLocation, columns: Sequence[str] = (), *, part: HistorySlice | None = None
) -> "DataFrame":
    """Return settled messages with the columns of `HISTORY` and `id`, or only with ``columns`` of those.

    A caller that needs few columns names them: Spark pushes nothing down to our source, and bodies are most of it.
    """
    check_place(place)
    if is_archive(place.where):
        rows = _archived(spark, place, part or HistorySlice())
        return rows.select(*columns) if columns else rows
    check_folder(place)
    reader = _reader(spark, place)
    if part is not None:
        reader = reader.option("endingOffsets", json.dumps(dict(part.offsets_to)))
        if part.offsets_from:
            reader = reader.option("startingOffsets", json.dumps(dict(part.offsets_from)))
    return reader.option("columns", ",".join(columns)).load() if columns else with_id(reader.load())


def check_place(place: HistoryLocation) -> None:
    """Say what is wrong with a time, an address or a key before anything is read."""
    _check_times(place)
    if place.is_server:
        _check_answers(place)


def check_folder(place: HistoryLocation) -> None:
    """Say that a folder has no history. The user may have meant an archive, and has given no option `path`."""
    if place.is_server or is_database(place.where):
        return
    if not any(Path(place.where).glob("history*")):
        raise JobFailed(f"{place.where} is neither an archive nor the data folder of a server: look at the path")


def _check_times(place: HistoryLocation) -> None:
    for text in filter(None, (place.since, place.until)):
        try:
            datetime.fromisoformat(text)
        except ValueError:
            raise JobFailed(f"{text!r} is no time: write it as 2026-03-01T12:00:00Z") from None


@contextmanager
def client_of(place: HistoryLocation) -> Iterator[ServerClient]:
    """Lend a client of a server; what is wrong with the server ends the job with a sentence."""
    try:
        with ServerClient(place.where.rstrip("/"), place.key, tries_max=TRIES_BY_HAND) as client:
            yield client
    except (ServerRefused, ServerUnreachable) as error:
        raise JobFailed(str(error)) from error


def _check_answers(place: HistoryLocation) -> None:
    """Say at once what is wrong with an address or a key: a reader of Spark tries for long, and its errors are long."""
    try:
        with ServerClient(place.where, place.key, tries_max=TRIES_BY_HAND) as client:
            client.json("/api/history/shards")
    except (ServerRefused, ServerUnreachable, ValueError) as error:
        raise JobFailed(f"{place.shown} cannot be read: {error}") from None


def read_live(spark: "SparkSession", place: HistoryLocation) -> "DataFrame":
    """Return the messages that are in queues now, with the columns of `LIVE` and `id`; a server knows them."""
    if not place.is_server:
        raise JobFailed(
            f"{place.shown} does not know what is in the queues now: name a server, as in http://127.0.0.1:8080"
        )
    return with_id(_reader(spark, place).option("read", "live").load())


def is_archive(where: str) -> bool:
    is_elsewhere = is_database(where) or where.startswith(("http://", "https://"))
    return not is_elsewhere and is_table(f"{where}/{MESSAGES}")


def with_id(rows: "DataFrame") -> "DataFrame":
    """Add the text that names a message: `<first queue>-<number · 8 + tier it was sent at>`, in hexadecimal."""
    return rows.withColumn("id", message_id())


def message_id() -> "Column":
    """The text that names a message, of the columns `first_queue`, `number` and `sent_tier`."""
    from pyspark.sql import functions as f  # noqa: PLC0415

    key = f.col("number") * 8 + f.col("sent_tier")
    return f.concat_ws("-", f.lower(f.hex("first_queue")), f.lower(f.hex(key)))


def _archived(spark: "SparkSession", place: HistoryLocation, part: HistorySlice) -> "DataFrame":
    from pyspark.sql import functions as f  # noqa: PLC0415

    bounds = Bounds(
        queues=place.queues,
        since_ms=_ms(place.since),
        until_ms=_ms(place.until),
        offsets_from=part.offsets_from,
        offsets_to=part.offsets_to,
    )
    rows = read_table(spark, f"{place.where}/{MESSAGES}", ARCHIVE_SCHEMA, bounds)
    if place.queues:
        rows = rows.where(f.col("queue").isin(list(place.queues)))
    if place.since:
        rows = rows.where(f.col("settled_at") >= f.lit(place.since).cast("timestamp"))
    if place.until:
        rows = rows.where(f.col("settled_at") < f.lit(place.until).cast("timestamp"))
    for shard, offset in part.offsets_from.items():
        rows = rows.where((f.col("shard") != int(shard)) | (f.col("offset") >= offset))
    for shard, offset in part.offsets_to.items():
        rows = rows.where((f.col("shard") != int(shard)) | (f.col("offset") < offset))
    return rows


# What a reader of an archive sees: the day is for choosing files.
ARCHIVE_SCHEMA = f"{ddl(HISTORY)}, `id` STRING"


def read_table(spark: "SparkSession", where: str, schema: str, bounds: Bounds = EVERYTHING) -> "DataFrame":
    """Return rows of a Delta table as it is now, with Spark's own reader of Parquet; the schema is said, not found."""
    table = Table.open(where)
    files = table.files(bounds)
    if not files:
        return spark.createDataFrame([], schema)
    if not is_local(table.location):
        return _read_by_arrow(spark, where, files, schema)
    return spark.read.schema(schema).parquet(*(spark_path(table.location, path) for path in files))


def _read_by_arrow(spark: "SparkSession", where: str, files: Sequence[str], schema: str) -> "DataFrame":
    """Read files of an object store in Python: the Spark that pip installs has no jar for any."""
    root = uri_for_tasks(where)
    names = spark.createDataFrame([], schema).columns
    paths = spark.createDataFrame([(path,) for path in files], "path STRING").repartition(len(files))

    def read(batches: Iterator[Any]) -> Iterator[Any]:
        from penstock.pipeline.tables import read_parquet  # noqa: PLC0415 - on an executor.

        for batch in batches:
            for path in batch.column("path").to_pylist():
                yield from read_parquet(root, path, names)

    return paths.mapInArrow(read, schema)


def _ms(text: str) -> int | None:
    if not text:
        return None
    at = datetime.fromisoformat(text)
    return round((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1_000)


def text_of(at_ms: int) -> str:
    """Return an instant as an archive says it.

    >>> text_of(1_500)
    '1970-01-01T00:00:01.500Z'
    """
    return datetime.fromtimestamp(at_ms / 1_000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _reader(spark: "SparkSession", place: HistoryLocation) -> "DataFrameReader":
    return spark.read.format("penstock").options(**source_options(place))


def source_options(place: HistoryLocation) -> dict[str, str]:
    """Return a server, a database or a data folder as options of `format("penstock")`."""
    said = {
        "url" if place.is_server or is_database(place.where) else "path": place.where,
        "key": place.key,
        "queue": ",".join(place.queues),
        "startingTime": place.since,
        "endingTime": place.until,
    }
    return {name: value for name, value in said.items() if value}
