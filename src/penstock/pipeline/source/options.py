"""What `spark.read.format("penstock")` may be told, and what is wrong with what it was told.

Spark hands over a dictionary of texts whose keys know no case. It is read once, on the
driver; what comes of it is sent to executors, the API key included.

Law: nothing is ignored. A name that is not in the table, and a value that is not what
the table says, are errors that name option and value and say what is allowed.
"""

import difflib
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar

from penstock.contract.names import BadName, check_name
from penstock.core.schema_names import BadSchema, check_schema
from penstock.pipeline.http import is_key, is_server
from penstock.pipeline.locations import SCHEMA, is_database, schema_in, without_password
from penstock.pipeline.schemas import HISTORY, LIVE, TOPIC, Column

T = TypeVar("T")

# Offsets by shard, or one of Kafka's two words.
Offsets: TypeAlias = "dict[int, int] | Literal['earliest', 'latest']"
_WORDS: dict[str, Literal["earliest", "latest"]] = {"earliest": "earliest", "latest": "latest"}

KEY_VARIABLE = "PENSTOCK_KEY"
ROWS_PER_PARTITION = 500_000
SHARD, PARTITION = "shard", "partition"

_OFFSETS_ALLOWED = 'earliest, latest, or an offset for each shard or partition as JSON: {"0": 131072}'
_TIME_ALLOWED = "a time as RFC 3339, such as 2026-03-01T12:00:00Z, or milliseconds since 1970"
_MS = 1_000
# What a server takes as a number. There are fewer rows than that anywhere.
_COUNT_MAX = 2**53
# The last millisecond that a server takes.
_TIME_MS_MAX = 253_402_300_799_999


class Option(NamedTuple):
    name: str
    # What is allowed, and what it is if nothing is said.
    allowed: str
    default: str
    meaning: str


OPTIONS = (
    Option(
        "url",
        "an address such as http://127.0.0.1:8080, or postgresql://penstock@db/shop",
        "",
        "The server to read from, or the database of its store; this or `path`.",
    ),
    Option("path", "a folder", "", "The data folder to read from, while a server uses it or not; this or `url`."),
    Option("key", "an API key", KEY_VARIABLE + " of the driver", "The key for the server; it must see all queues."),
    Option(
        "schema",
        "a name of a-z 0-9 _",
        SCHEMA,
        "Of a database: the schema that the store is in; `url` may say it too, as `?schema=`.",
    ),
    Option("queue", "names of queues, with commas between them", "all", "Only messages of these queues."),
    Option("topic", "the name of a topic", "", "Read the records of this topic, and not messages of queues."),
    Option("partitions", "numbers, with commas between them", "all", "Of a topic: only these partitions."),
    Option("read", "history or live", "history", "Messages that left a queue, or those that are in one now."),
    Option("columns", "names of columns, with commas between them", "all", "Only these, in this order."),
    Option("startingTime", _TIME_ALLOWED, "", "Only messages settled, or records made, at this time or later."),
    Option("endingTime", _TIME_ALLOWED, "", "Only messages settled, or records made, before this time."),
    Option("startingOffsets", _OFFSETS_ALLOWED, "earliest", "Where to begin: rows at this offset or above."),
    Option("endingOffsets", _OFFSETS_ALLOWED, "latest", "Where to end: rows below this offset. Not for streams."),
    Option("maxRowsPerTrigger", "a number from 1 on", "", "Of a stream: about how many rows a batch has at most."),
    Option("rowsPerPartition", "a number from 1 on", f"{ROWS_PER_PARTITION}", "About how many rows a task reads."),
    Option("bodies", "true or false", "true", "Of live messages: whether bodies and attributes are fetched."),
    Option(
        "failOnDataLoss",
        "true or false",
        "true",
        "Whether it is an error that rows between where to begin and what is kept are gone.",
    ),
)
_BY_NAME = {option.name.lower(): option for option in OPTIONS}


class BadOption(ValueError):
    """An option that is unknown, or has a value that is not allowed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """The options of one read."""

    # One of the two is empty. The address of a database may have a password in it.
    url: str = field(repr=False)
    path: str
    key: str = field(repr=False)
    schema: str
    # Empty for all.
    queues: tuple[str, ...]
    is_live: bool
    # Empty unless records of a topic are read; and which of its partitions, empty for all.
    topic: str
    partitions: tuple[int, ...]
    columns: tuple[Column, ...]
    # By the time a message was settled, or a record made.
    from_ms: int | None
    until_ms: int | None
    starting: Offsets
    ending: Offsets
    rows_per_trigger: int | None
    rows_per_partition: int
    has_bodies: bool
    fails_on_data_loss: bool

    @property
    def noun(self) -> str:
        """What the numbers are called that offsets are given by."""
        return PARTITION if self.topic else SHARD

    @property
    def is_database(self) -> bool:
        return is_database(self.url)


def read_options(given: Mapping[str, str]) -> ReadOptions:
    """Return what the options of a read say; raises `BadOption`."""
    said = {name.lower(): value for name, value in given.items()}
    _check_asked_for(said)
    for name in said:
        if name not in _BY_NAME:
            raise _unknown(name)
    _take_schema(said)
    is_live = _read(said, "read", _one_of("history", "live"), "history") == "live"
    options = ReadOptions(
        url=_read(said, "url", _url, ""),
        path=_read(said, "path", _path, ""),
        key=_key(said.get("key") or os.environ.get(KEY_VARIABLE, "")),
        schema=_read(said, "schema", _schema, SCHEMA),
        queues=_read(said, "queue", _queues, ()),
        is_live=is_live,
        topic=_read(said, "topic", _name, ""),
        partitions=_read(said, "partitions", _numbers, ()),
        columns=_columns(said, known_columns(is_live=is_live, is_topic="topic" in said)),
        from_ms=_read(said, "startingTime", _time_ms, None),
        until_ms=_read(said, "endingTime", _time_ms, None),
        starting=_read(said, "startingOffsets", _offsets, "earliest"),
        ending=_read(said, "endingOffsets", _offsets, "latest"),
        rows_per_trigger=_read(said, "maxRowsPerTrigger", _count, None),
        rows_per_partition=_read(said, "rowsPerPartition", _count, ROWS_PER_PARTITION),
        has_bodies=_read(said, "bodies", _is_true, True),
        fails_on_data_loss=_read(said, "failOnDataLoss", _is_true, True),
    )
    _check_together(options, said)
    return options


def _check_asked_for(said: Mapping[str, str]) -> None:
    """Refuse what comes of a table in a catalog: Spark 4.3 hands on its options when it is made, and none later."""
    if not said or "provider" in said:
        raise BadOption(
            "a table of a catalog cannot be read from Penstock, as Spark keeps its options to itself: say CREATE "
            "TEMPORARY VIEW … USING penstock OPTIONS (url 'http://127.0.0.1:8080'), or spark.read with url or path"
        )


def _take_schema(said: dict[str, str]) -> None:
    """Let the address of a database name the schema: jobs are given an address and no options."""
    if not is_database(said.get("url", "").strip()):
        return
    said["url"], named = schema_in(said["url"].strip())
    if named and said.setdefault("schema", named) != named:
        raise BadOption(f"schema is {said['schema']!r}, and url says {named!r}: say one")


def known_columns(*, is_live: bool, is_topic: bool) -> tuple[Column, ...]:
    if is_topic:
        return TOPIC
    return LIVE if is_live else HISTORY


def _check_together(options: ReadOptions, said: Mapping[str, str]) -> None:
    if bool(options.url) == bool(options.path):
        found = "both url and path are given" if options.url else "neither url nor path is given"
        raise BadOption(f"{found}; say one: url for a server (http://127.0.0.1:8080), path for the data folder of one")
    if "schema" in said and not options.is_database:
        raise BadOption("schema is for a database: url must be one, such as postgresql://penstock@db/shop")
    if options.topic:
        _check_topic(options, said)
    elif options.partitions:
        raise BadOption("partitions is for a topic, and no topic is named")
    if options.is_live:
        _check_live(options, said)


def _check_topic(options: ReadOptions, said: Mapping[str, str]) -> None:
    if options.is_database:
        raise BadOption("topic is given, and url is a database: topics are kept by a server in its data folder")
    for name in ("queue", "read", "bodies"):
        if name in said:
            raise BadOption(f"{name} is for queues, and topic is given: say one or the other")


def _check_live(options: ReadOptions, said: Mapping[str, str]) -> None:
    if options.path or options.is_database:
        found = "path is a folder" if options.path else "url is a database"
        raise BadOption(f"read is live, and {found}: only a server knows what is in its queues now; say url")
    for name in ("startingTime", "endingTime", "startingOffsets", "endingOffsets", "maxRowsPerTrigger"):
        if name.lower() in said:
            raise BadOption(f"{name} is for history; live messages are not settled and have no offset")


def _unknown(name: str) -> BadOption:
    close = difflib.get_close_matches(name, _BY_NAME, n=1)
    hint = f" Do you mean {_BY_NAME[close[0]].name}?" if close else ""
    return BadOption(f"there is no option {name!r}.{hint} There are: {', '.join(option.name for option in OPTIONS)}")


def _read(said: Mapping[str, str], name: str, read: Callable[[str], T], default: T) -> T:
    """Return the value of an option as ``read`` makes it; a `ValueError` of it says that it is not allowed."""
    text = said.get(name.lower())
    if text is None:
        return default
    try:
        return read(text.strip())
    except ValueError as error:
        reason = f" ({error})" if isinstance(error, _Reason) else ""
        raise BadOption(
            f"{name} is {without_password(text)!r}; it must be {_BY_NAME[name.lower()].allowed}{reason}"
        ) from None


class _Reason(ValueError):
    """What is wrong, where that is more than that the value is not allowed."""


def _columns(said: Mapping[str, str], known: tuple[Column, ...]) -> tuple[Column, ...]:
    by_name = {column.name: column for column in known}

    def read(text: str) -> tuple[Column, ...]:
        names = _list(text)
        unknown = [name for name in names if name not in by_name]
        if unknown:
            raise _Reason(f"there is no column {unknown[0]!r}; there are: {', '.join(by_name)}")
        if len(set(names)) < len(names):
            raise _Reason("a column is named twice")
        return tuple(by_name[name] for name in names)

    return _read(said, "columns", read, known)


def _url(text: str) -> str:
    if is_database(text):
        return text
    if not is_server(text):
        raise ValueError
    return text.rstrip("/")


def _key(key: str) -> str:
    if not is_key(key.strip()):
        # Whoever sends it nevertheless has it in the error.
        raise BadOption("key has a character that a header cannot have")
    return key.strip()


def _path(text: str) -> str:
    if not text or is_database(text) or text.startswith(("http://", "https://")):
        raise _Reason("the option for a server is url")
    # Whoever passes a path through Hadoop's own class gets a scheme before it.
    plain = text.removeprefix("file://") if text.startswith("file:///") else text.removeprefix("file:")
    if "://" in plain:
        raise _Reason("segments are read as files: one that every executor has under this name, mounted or its own")
    # Executors work elsewhere.
    return str(Path(plain).absolute())


def _schema(text: str) -> str:
    try:
        check_schema(text)
    except BadSchema as error:
        raise _Reason(str(error)) from None
    return text


def _name(text: str) -> str:
    if not text:
        raise ValueError
    return text


def _numbers(text: str) -> tuple[int, ...]:
    numbers = tuple(sorted({int(each) for each in text.split(",")}))
    if numbers[0] < 0:
        raise ValueError
    return numbers


def _list(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(","))
    if not all(names):
        raise _Reason("a name is empty")
    return names


def _queues(text: str) -> tuple[str, ...]:
    """A queue that was deleted may be asked for; one that there can never have been has no history to be empty."""
    names = _list(text)
    for name in names:
        try:
            check_name(name, field="a name")
        except BadName as error:
            raise _Reason(str(error)) from None
    return names


def _one_of(*words: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text not in words:
            raise ValueError
        return text

    return read


def _is_true(text: str) -> bool:
    return {"true": True, "false": False}[_one_of("true", "false")(text.lower())]


def _count(text: str) -> int:
    count = int(text)
    if count < 1:
        raise ValueError
    return min(count, _COUNT_MAX)


def _time_ms(text: str) -> int:
    """Return a time in milliseconds, rounded up: rows have whole ones, so «from it on» and «before it» stay exact."""
    at_ms = int(text) if text.isdigit() else _instant_ms(text)
    if not 0 <= at_ms <= _TIME_MS_MAX:
        raise _Reason("it is outside the years 1970 to 9999")
    return at_ms


def _instant_ms(text: str) -> int:
    at = datetime.fromisoformat(text)
    if at.tzinfo is None:
        at = at.replace(tzinfo=UTC)
    since = at - datetime(1970, 1, 1, tzinfo=UTC)
    whole_us = (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
    return -(-whole_us // _MS)


def _offsets(text: str) -> Offsets:
    if text in _WORDS:
        return _WORDS[text]
    found: Any = json.loads(text)
    if not isinstance(found, dict):
        raise _Reason("it is no JSON object")
    for shard, offset in found.items():
        if not shard.isdigit() or not isinstance(offset, int) or isinstance(offset, bool) or offset < 0:
            raise _Reason(f"{shard!r}: {offset!r} is no shard with an offset from 0 on")
    return {int(shard): offset for shard, offset in found.items()}
