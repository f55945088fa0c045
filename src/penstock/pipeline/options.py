"""What `format("penstock")` may be told, for reads and for writes: a table of options for each, and one reader of both.

Spark hands over a dictionary of texts whose keys know no case. It is read once, on the driver. What comes of it is sent
to executors, the API key included.

Law: nothing is ignored. A name that is not in the table, and a value that is not what the table says, are errors. They
name the option and its value and say what is allowed. A misspelt `manifest` would otherwise be a write without one.
"""

import difflib
import json
import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar
from urllib.parse import urlsplit

from penstock.contract.history_columns import HISTORY, LIVE, TOPIC, Column
from penstock.contract.limits import REQUEST_MESSAGES_MAX, TOPIC_NAME_CHARACTERS_MAX
from penstock.contract.names import TOPIC_NAME_PATTERN, BadName, BadSchema, check_name, check_schema
from penstock.pipeline.http import is_key, is_server
from penstock.pipeline.locations import SCHEMA, is_database, schema_in, without_password

T = TypeVar("T")

# Offsets by shard, or one of Kafka's two words.
Offsets: TypeAlias = "dict[int, int] | Literal['earliest', 'latest']"
_WORDS: dict[str, Literal["earliest", "latest"]] = {"earliest": "earliest", "latest": "latest"}

KEY_VARIABLE = "PENSTOCK_KEY"
ROWS_PER_PARTITION = 500_000
SHARD, PARTITION = "shard", "partition"
MESSAGES_PER_SEND_MAX = REQUEST_MESSAGES_MAX
# A topic takes whole batches, and their bytes end them before.
RECORDS_PER_SEND_MAX = 10_000
AT_LEAST_ONCE, ONCE = "at-least-once", "once"
_COMPRESSIONS, _IN_DOUBT = ("none", "gzip", "zstd"), ("fail", "send", "skip")
_JOB_BYTES_MAX = 200

_OFFSETS_ALLOWED = 'earliest, latest, or an offset for each shard or partition as JSON: {"0": 131072}'
# As Kafka's connector has them, within the JSON.
NEWEST, OLDEST = -1, -2
_TIME_ALLOWED = "a time as RFC 3339, such as 2026-03-01T12:00:00Z, or milliseconds since 1970"
_TIMES_ALLOWED = 'milliseconds since 1970 for each shard or partition as JSON: {"0": 1772366400000}'
_SPAN_ALLOWED = "a time such as 500ms, 30s, 15m or 1h"
_TOPIC_ALLOWED = f"the name of a topic: 1 to {TOPIC_NAME_CHARACTERS_MAX} of A-Z a-z 0-9 _ - and dots"
_MS = 1_000
# What a server takes as a number. There are fewer rows than that anywhere.
_COUNT_MAX = 2**53
_TASKS_MAX = 100_000
# The last millisecond that a server takes.
_TIME_MS_MAX = 253_402_300_799_999
# What Spark itself says to the sink of a stream.
_OF_SPARK = {"checkpointlocation"}


class BadOption(ValueError):
    """An option is missing or unknown, or its value is not allowed; the message says what is."""


class _Reason(ValueError):
    """What is wrong with a value, where that is more than that it is not allowed."""


class Option(NamedTuple):
    name: str
    # What is allowed, and what it is if nothing is said.
    allowed: str
    default: str
    meaning: str


READ_OPTIONS = (
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
    Option("startingTimestamp", _TIME_ALLOWED, "", "The same as `startingTime`; give one."),
    Option("endingTimestamp", _TIME_ALLOWED, "", "The same as `endingTime`; give one."),
    Option("startingOffsets", _OFFSETS_ALLOWED, "earliest", "Where to begin: rows at this offset or above."),
    Option(
        "startingOffsetsByTimestamp",
        _TIMES_ALLOWED,
        "",
        "Where to begin: at or a little before the first row of this time. In place of `startingOffsets`.",
    ),
    Option("endingOffsets", _OFFSETS_ALLOWED, "latest", "Where to end: rows below this offset. Not for streams."),
    Option("maxRowsPerTrigger", "a number from 1 on", "", "Of a stream: about how many rows a batch has at most."),
    Option("maxOffsetsPerTrigger", "a number from 1 on", "", "The same as `maxRowsPerTrigger`; give one."),
    Option(
        "minOffsetsPerTrigger",
        "a number from 1 on",
        "",
        "Of a stream of a topic: wait until there are so many new records, or `maxTriggerDelay` is over.",
    ),
    Option("maxTriggerDelay", _SPAN_ALLOWED, "15m", "How long `minOffsetsPerTrigger` waits."),
    Option("rowsPerPartition", "a number from 1 on", f"{ROWS_PER_PARTITION}", "About how many rows a task reads."),
    Option(
        "minPartitions",
        "a whole number from 1 to 100000",
        "",
        "Cut into at least so many tasks, if there are so many frames or records.",
    ),
    Option("includeHeaders", "true or false", "true", "Of a topic: whether there is the column `headers`."),
    Option("bodies", "true or false", "true", "Of live messages: whether bodies and attributes are fetched."),
    Option(
        "failOnDataLoss",
        "true or false",
        "true",
        "Whether it is an error that rows between where to begin and what is kept are gone.",
    ),
)
WRITE_OPTIONS = (
    Option("url", "the address of a server, such as http://127.0.0.1:8080", "", "The server."),
    Option("key", "an API key", KEY_VARIABLE + " of the driver", "The API key."),
    Option("queue", "the name of a queue", "", "The queue; without it, the column `queue` says one for each row."),
    Option("topic", _TOPIC_ALLOWED, "", "The topic, if records are written and not messages."),
    Option("job", "a name", "", "What this write is called: the same job never sends the same rows twice."),
    Option(
        "manifest",
        "a folder",
        "",
        "A folder that driver and executors reach, for what was sent: it makes `once` hold for ever.",
    ),
    Option(
        "delivery",
        f"{ONCE} or {AT_LEAST_ONCE}",
        ONCE,
        "`once`, or `at-least-once`: needs no job, and a task that is tried again sends again.",
    ),
    Option(
        "maxWait",
        "a number from 0 to 86400",
        "300",
        "Seconds that one send is tried for while the server is full, busy or away.",
    ),
    Option(
        "rate",
        "a number from 0.001 to 1e+09",
        "",
        "Messages per second of the whole write; by default as fast as it goes.",
    ),
    Option(
        "concurrency",
        "a whole number from 1 to 1000000",
        "",
        "How many tasks run at once, to share `rate`; needed with it.",
    ),
    Option(
        "messagesPerSend",
        f"a whole number from 1 to {MESSAGES_PER_SEND_MAX}, or of records to {RECORDS_PER_SEND_MAX}",
        "the most",
        "Messages of one send, or records of one. A job keeps to one figure.",
    ),
    Option("compression", "none, gzip or zstd, and none for a queue", "none", "Of records: how batches are packed."),
    Option(
        "inDoubt",
        "fail, send or skip",
        "fail",
        "A send of days ago that was never answered: `fail`, `send` again, or `skip` it.",
    ),
)


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
    # Where to begin, by shard or partition, as a time.
    starting_ms: dict[int, int]
    rows_per_trigger: int | None
    # Of a topic; and how long a stream waits for them.
    records_per_trigger_min: int
    trigger_delay_ms_max: int
    rows_per_partition: int
    tasks_min: int
    has_bodies: bool
    fails_on_data_loss: bool

    @property
    def noun(self) -> str:
        """What the numbers are called that offsets are given by."""
        return PARTITION if self.topic else SHARD

    @property
    def is_database(self) -> bool:
        return is_database(self.url)


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """The options of one write."""

    url: str
    key: str
    queue: str
    # Empty if it goes to queues.
    topic: str = ""
    # Empty if the write may send twice.
    job: str
    manifest: str
    wait_s_max: float
    # Of one task, in messages per second; 0 for no limit.
    task_rate: float
    messages_per_send: int
    in_doubt: str
    compression: str = "none"


class _Given:
    """What was said, by the names of a table."""

    def __init__(self, said: Mapping[str, str], table: Sequence[Option], *, ignored: Collection[str] = ()) -> None:
        self._table = {option.name.lower(): option for option in table}
        self._said = said
        for name in sorted(set(said) - set(self._table) - set(ignored)):
            close = difflib.get_close_matches(name, self._table, n=1)
            hint = f" Do you mean {self._table[close[0]].name}?" if close else ""
            known = ", ".join(option.name for option in table)
            raise BadOption(f"there is no option {name!r}.{hint} There are: {known}")

    def __contains__(self, name: str) -> bool:
        return name.lower() in self._said

    def either(self, name: str, other: str, read: Callable[[str], T], default: T) -> T:
        """Return the value of an option that has a second name."""
        if name in self and other in self:
            raise BadOption(f"{name} and {other} are two names of one option; give one of them")
        return self.read(other if other in self else name, read, default)

    def read(self, name: str, read: Callable[[str], T], default: T) -> T:
        """Return the value of an option as ``read`` makes it; a `ValueError` of it says that it is not allowed."""
        text = self._said.get(name.lower())
        if text is None:
            return default
        try:
            return read(text.strip())
        except ValueError as error:
            reason = f" ({error})" if isinstance(error, _Reason) else ""
            allowed = self._table[name.lower()].allowed
            raise BadOption(f"option {name} is {without_password(text)!r}; it must be {allowed}{reason}") from None


def read_options(given: Mapping[str, str]) -> ReadOptions:
    """Return what the options of a read say; raises `BadOption`."""
    said = {name.lower(): value for name, value in given.items()}
    if not said or "provider" in said:
        # Spark 4.3 hands on the options of a table in a catalog when it is made, and none later.
        raise BadOption(
            "a table of a catalog cannot be read from Penstock, as Spark keeps its options to itself: say CREATE "
            "TEMPORARY VIEW … USING penstock OPTIONS (url 'http://127.0.0.1:8080'), or spark.read with url or path"
        )
    _take_schema(said)
    found = _Given(said, READ_OPTIONS)
    is_live = found.read("read", _one_of("history", "live"), "history") == "live"
    topic = found.read("topic", _topic, "")
    known = known_columns(is_live=is_live, is_topic=bool(topic))
    if not found.read("includeHeaders", _is_true, True):
        known = tuple(column for column in known if column.name != "headers")
    options = ReadOptions(
        url=found.read("url", _url, ""),
        path=found.read("path", _path, ""),
        key=_key(said.get("key") or os.environ.get(KEY_VARIABLE, "")),
        schema=found.read("schema", _schema, SCHEMA),
        queues=found.read("queue", _queues, ()),
        is_live=is_live,
        topic=topic,
        partitions=found.read("partitions", _numbers, ()),
        columns=found.read("columns", _columns_of(known), known),
        from_ms=found.either("startingTime", "startingTimestamp", _time_ms, None),
        until_ms=found.either("endingTime", "endingTimestamp", _time_ms, None),
        starting=found.read("startingOffsets", _offsets_of(topic), "earliest"),
        ending=found.read("endingOffsets", _offsets_of(topic), "latest"),
        starting_ms=found.read("startingOffsetsByTimestamp", _times_of(topic), {}),
        rows_per_trigger=found.either("maxRowsPerTrigger", "maxOffsetsPerTrigger", _count, None),
        records_per_trigger_min=found.read("minOffsetsPerTrigger", _count, 0),
        trigger_delay_ms_max=found.read("maxTriggerDelay", _span_ms, 15 * 60 * _MS),
        rows_per_partition=found.read("rowsPerPartition", _count, ROWS_PER_PARTITION),
        tasks_min=int(found.read("minPartitions", _number(least=1, most=_TASKS_MAX, is_whole=True), 1.0)),
        has_bodies=found.read("bodies", _is_true, True),
        fails_on_data_loss=found.read("failOnDataLoss", _is_true, True),
    )
    _check_together(options, found)
    return options


def write_options(given: Mapping[str, str], *, environment: Mapping[str, str] = os.environ) -> WriteOptions:
    """Return what the options of a write say; raises `BadOption`. An empty text is as if nothing was said."""
    if not given:
        raise BadOption(
            "a table of a catalog cannot be written to, as Spark keeps its options to itself: use df.write with options"
        )
    said = {"url": ""} | {name.lower(): str(value).strip() for name, value in given.items()}
    there = {name: text for name, text in said.items() if text or name == "url"}
    found = _Given(there, WRITE_OPTIONS, ignored=_OF_SPARK)
    queue, topic = found.read("queue", _queue, ""), found.read("topic", _topic, "")
    if queue and topic:
        raise BadOption("option queue and option topic are both there; give one of them")
    delivery = found.read("delivery", _one_of(ONCE, AT_LEAST_ONCE), ONCE)
    job, manifest = said.get("job", ""), said.get("manifest", "")
    _check_delivery(delivery, job=job, manifest=manifest, is_topic=bool(topic))
    compressions, most = (_COMPRESSIONS, RECORDS_PER_SEND_MAX) if topic else (_COMPRESSIONS[:1], MESSAGES_PER_SEND_MAX)
    # Executors work elsewhere: a path from here is no path for them.
    is_path = manifest and not urlsplit(manifest).scheme
    return WriteOptions(
        url=found.read("url", _server, ""),
        key=_key(said.get("key") or environment.get(KEY_VARIABLE, "")),
        queue=queue,
        topic=topic,
        job=job if delivery == ONCE else "",
        manifest=str(Path(manifest).absolute()) if is_path else manifest,
        wait_s_max=found.read("maxWait", _number(least=0, most=86_400), 300.0),
        task_rate=_task_rate(found),
        messages_per_send=int(found.read("messagesPerSend", _number(least=1, most=most, is_whole=True), float(most))),
        in_doubt=found.read("inDoubt", _one_of(*_IN_DOUBT), "fail"),
        compression=found.read("compression", _one_of(*compressions), "none"),
    )


def check_server(url: str, key: str) -> None:
    """Raise `BadOption` unless this may be the address of a server, and a key for it."""
    _Given({"url": url}, WRITE_OPTIONS).read("url", _server, "")
    _key(key)


def known_columns(*, is_live: bool, is_topic: bool) -> tuple[Column, ...]:
    if is_topic:
        return TOPIC
    return LIVE if is_live else HISTORY


def _take_schema(said: dict[str, str]) -> None:
    """Let the address of a database name the schema: jobs are given an address and no options."""
    if not is_database(said.get("url", "").strip()):
        return
    said["url"], named = schema_in(said["url"].strip())
    if named and said.setdefault("schema", named) != named:
        raise BadOption(f"schema is {said['schema']!r}, and url says {named!r}: say one")


def _check_together(options: ReadOptions, found: _Given) -> None:
    if bool(options.url) == bool(options.path):
        given = "both url and path are given" if options.url else "neither url nor path is given"
        raise BadOption(f"{given}; say one: url for a server (http://127.0.0.1:8080), path for the data folder of one")
    if "schema" in found and not options.is_database:
        raise BadOption("schema is for a database: url must be one, such as postgresql://penstock@db/shop")
    if options.starting_ms and "startingOffsets" in found:
        raise BadOption("startingOffsets and startingOffsetsByTimestamp both say where to begin; give one of them")
    if options.topic:
        _check_topic(options, found)
    else:
        _check_no_topic(found)
    if options.is_live:
        _check_live(options, found)


def _check_topic(options: ReadOptions, found: _Given) -> None:
    if options.is_database:
        raise BadOption("topic is given, and url is a database: topics are kept by a server in its data folder")
    for name in ("queue", "read", "bodies"):
        if name in found:
            raise BadOption(f"{name} is for queues, and topic is given: say one or the other")


def _check_no_topic(found: _Given) -> None:
    for name in ("partitions", "includeHeaders"):
        if name in found:
            raise BadOption(f"{name} is for a topic, and no topic is named")
    if "minOffsetsPerTrigger" in found:
        raise BadOption(
            "minOffsetsPerTrigger is for a topic: offsets of a history rise by frames and do not count rows. Let the "
            "stream wait by its trigger, as in trigger(processingTime='30 seconds')"
        )


_FOR_HISTORY = (
    "startingTime", "startingTimestamp", "endingTime", "endingTimestamp", "startingOffsets",
    "startingOffsetsByTimestamp", "endingOffsets", "maxRowsPerTrigger", "maxOffsetsPerTrigger", "minPartitions",
)  # fmt: skip


def _check_live(options: ReadOptions, found: _Given) -> None:
    if options.path or options.is_database:
        given = "path is a folder" if options.path else "url is a database"
        raise BadOption(f"read is live, and {given}: only a server knows what is in its queues now; say url")
    for name in _FOR_HISTORY:
        if name in found:
            raise BadOption(f"{name} is for history; live messages are not settled and have no offset")


def _check_delivery(delivery: str, *, job: str, manifest: str, is_topic: bool) -> None:
    if delivery == AT_LEAST_ONCE:
        if manifest:
            raise BadOption("option manifest is for delivery=once; at-least-once remembers nothing")
        return
    if not job:
        raise BadOption(
            "option job is missing: a name for this write, such as nightly-orders-2026-03-01, under which the same "
            f"rows are never sent twice. To do without, say delivery={AT_LEAST_ONCE}"
        )
    if is_topic and not manifest:
        raise BadOption(
            "option manifest is missing: of a topic, a server remembers little of what a job has sent, so a folder "
            f"that driver and executors reach has to. To do without, say delivery={AT_LEAST_ONCE}"
        )
    if len(job.encode()) > _JOB_BYTES_MAX:
        raise BadOption(f"option job has {len(job.encode())} bytes; a name has at most {_JOB_BYTES_MAX}")


def _task_rate(found: _Given) -> float:
    if "rate" not in found:
        return 0.0
    if "concurrency" not in found:
        raise BadOption("option rate needs option concurrency: how many tasks of this write run at once and share it")
    share = found.read("concurrency", _number(least=1, most=1_000_000, is_whole=True), 1.0)
    return found.read("rate", _number(least=0.001, most=1e9), 0.0) / share


def _columns_of(known: tuple[Column, ...]) -> Callable[[str], tuple[Column, ...]]:
    by_name = {column.name: column for column in known}

    def read(text: str) -> tuple[Column, ...]:
        names = _list(text)
        unknown = [name for name in names if name not in by_name]
        if unknown:
            raise _Reason(f"there is no column {unknown[0]!r}; there are: {', '.join(by_name)}")
        if len(set(names)) < len(names):
            raise _Reason("a column is named twice")
        return tuple(by_name[name] for name in names)

    return read


def _url(text: str) -> str:
    return text if is_database(text) else _server(text)


def _server(text: str) -> str:
    if not is_server(text):
        raise ValueError
    return text.rstrip("/")


def _key(key: str) -> str:
    if not is_key(key.strip()):
        # A header that cannot be sent would show the key in its error.
        raise BadOption("option key has a character that a header cannot have")
    return key.strip()


def _path(text: str) -> str:
    if not text or is_database(text) or text.startswith(("http://", "https://")):
        raise _Reason("the option for a server is url")
    # Hadoop's own class puts a scheme before a path.
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


def _topic(text: str) -> str:
    if not re.fullmatch(TOPIC_NAME_PATTERN, text) or len(text) > TOPIC_NAME_CHARACTERS_MAX:
        raise ValueError
    return text


def _queue(text: str) -> str:
    if text.startswith("topic:"):
        raise _Reason("for a topic, give option topic")
    try:
        check_name(text, field="a name")
    except BadName as error:
        raise _Reason(str(error)) from None
    return text


def _queues(text: str) -> tuple[str, ...]:
    """A queue that was deleted may be asked for; one that there can never have been has no history to be empty."""
    return tuple(map(_queue, _list(text)))


def _numbers(text: str) -> tuple[int, ...]:
    numbers = tuple(sorted({int(each) for each in text.split(",")}))
    if numbers[0] < 0:
        raise ValueError
    return numbers


def _number(*, least: float, most: float, is_whole: bool = False) -> Callable[[str], float]:
    def read(text: str) -> float:
        value = int(text) if is_whole else float(text)
        if not least <= value <= most:
            raise ValueError
        return value

    return read


def _list(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(","))
    if not all(names):
        raise _Reason("a name is empty")
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


_SPAN = re.compile(r"(\d{1,12})(ms|s|m|min|h|d)")
_SPAN_MS = {"ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


def _span_ms(text: str) -> int:
    found = _SPAN.fullmatch(text)
    if found is None:
        raise ValueError
    return int(found[1]) * _SPAN_MS[found[2]]


def _offsets_of(topic: str) -> Callable[[str], Offsets]:
    def read(text: str) -> Offsets:
        return _WORDS[text] if text in _WORDS else _by_shard(text, topic, least=OLDEST, noun="an offset")

    return read


def _times_of(topic: str) -> Callable[[str], dict[int, int]]:
    return lambda text: _by_shard(text, topic, least=0, noun="a time")


def _by_shard(text: str, topic: str, *, least: int, noun: str) -> dict[int, int]:
    """Return a number for each shard or partition. Kafka's connector has them below the name of the topic."""
    found: Any = json.loads(text)
    if not isinstance(found, dict):
        raise _Reason("it is no JSON object")
    if topic and isinstance(found.get(topic), dict):
        if len(found) > 1:
            raise _Reason(f"it names other topics than {topic}, and a read is of one")
        found = found[topic]
    for shard, number in found.items():
        if not shard.isdecimal() or not isinstance(number, int) or isinstance(number, bool) or number < least:
            words = ", or -1 for the newest and -2 for the oldest" if least < 0 else ""
            raise _Reason(f"{shard!r}: {number!r} is no shard with {noun} from 0 on{words}")
    return {int(shard): number for shard, number in found.items()}
