"""Reads `pipeline.toml`: which jobs there are, when each runs, and where its results go.

    [pipeline]                   what all jobs share
    source = "http://…"
    archive = "…"
    [jobs.NAME]                  a job; its kind is its name, unless `kind` says otherwise
    every = "5m"                 or at = "03:00"
    [spark]                      settings of Spark, as they are

Tables below say every key, what it may be and what it is by default: the reader, its errors and the reference follow
from them. An unknown key or a wrong value is an error that names the key and says what is allowed. A key that is
misspelt must not pass for a default.
"""

import difflib
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from penstock.pipeline.job import JobFailed
from penstock.pipeline.locations import HistoryLocation, without_password

DAY_S = 86_400
EVERY_S_MIN, EVERY_S_MAX = 1, 30 * DAY_S
_SPANS = {"s": 1, "m": 60, "h": 3_600, "d": DAY_S}
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")


class BadPlan(JobFailed):
    """The file is not a plan; the message names the key and says what is allowed."""


class Key(NamedTuple):
    name: str
    allowed: str
    # As it is written in a file; empty for none.
    default: str
    meaning: str
    read: Callable[[Any], Any]


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError
    return value


def _texts(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(each, str) and each for each in value):
        raise ValueError
    return tuple(value)


def _flag(value: Any) -> bool:
    if value is True or value is False:
        return bool(value)
    raise ValueError


def _count(least: int, most: int) -> Callable[[Any], int]:
    def read(value: Any) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise ValueError
        return value

    return read


def _span_s(value: Any) -> int:
    """Return a time in seconds.

    >>> _span_s("5m"), _span_s("1d")
    (300, 86400)
    """
    found = re.fullmatch(r"(\d{1,7})([smhd])", value) if isinstance(value, str) else None
    if found is None or not EVERY_S_MIN <= (seconds := int(found[1]) * _SPANS[found[2]]) <= EVERY_S_MAX:
        raise ValueError
    return seconds


def _time_of_day(value: Any) -> int:
    """Return the second of the day, in UTC.

    >>> _time_of_day("03:30")
    12600
    """
    found = re.fullmatch(r"([01]\d|2[0-3]):([0-5]\d)", value) if isinstance(value, str) else None
    if found is None:
        raise ValueError
    return int(found[1]) * 3_600 + int(found[2]) * 60


def _address(value: Any) -> tuple[str, int]:
    host, _, port = _text(value).rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65_535:
        raise ValueError
    return host, int(port)


ARCHIVE, SOURCE = "archive", "source"


def _reads(value: Any) -> str:
    if value not in {ARCHIVE, SOURCE}:
        raise ValueError
    return str(value)


SPAN = 'a time such as "30s", "5m", "1h" or "1d"; 30 days at most'
_NAMES = 'a list of texts, such as ["orders", "mail"]'
PIPELINE_KEYS = (
    Key("source", "a server, its data folder or its database", "", "Where history comes from; must be there.", _text),
    Key("archive", "a folder or a URI", "", "The archive: what `archive` writes, and what reports read.", _text),
    Key("out", "a folder", "./pipeline", "Results, tables, and what the service remembers.", _text),
    Key("listen", "HOST:PORT", "127.0.0.1:9189", "Where the status page and the metrics are.", _address),
    Key("master", "a master of Spark", "", "Where Spark runs; by default this machine.", _text),
    Key("retry", SPAN, "10s", "How long a job that failed waits; doubled each time it fails again.", _span_s),
    Key("retry_max", SPAN, "10m", "The longest such wait.", _span_s),
    Key("stop_wait", SPAN, "60s", "How long a stop waits for jobs that run, before it cancels them.", _span_s),
    Key("keep", SPAN, "30d", "How long rows of `audit` and `quality` are kept as tables.", _span_s),
)
JOB_KEYS = (
    Key("kind", "a kind of job", "", "What it does; by default its name.", _text),
    Key("every", SPAN, "", "From the beginning of one run to the next. This or `at`.", _span_s),
    Key(
        "at",
        'a time of day in UTC, such as "03:00"',
        "",
        "Once a day. A run that was missed is made up for.",
        _time_of_day,
    ),
    Key("queues", _NAMES, "", "Only these queues; by default all.", _texts),
)
_FROM = Key("from", "archive or source", "", "What it reads; by default the archive, if there is one.", _reads)


class Kind(NamedTuple):
    """What a job may be told beside `JOB_KEYS`, and when it runs if nothing is said."""

    meaning: str
    every: str
    keys: tuple[Key, ...] = ()


KINDS = {
    "archive": Kind(
        "Adds what was settled since to the archive.",
        'every = "10s"',
        (
            Key("trim", "true or false", "false", "Whether the server drops what the archive has.", _flag),
            Key("rows_per_batch", "a number from 1 on", "2000000", "Rows of one commit.", _count(1, 2**53)),
        ),
    ),
    "signals": Kind(
        "The golden signals, by window.",
        'every = "5m"',
        (
            _FROM,
            Key("window", "1s, 10s, 1m, 5m, 1h or 1d", "", "By default the shortest that gives 500.", _text),
            Key("tenant", "group, or attribute:NAME", "group", "Whose a message is.", _text),
            Key("tenants", "a number from 1 to 100", "10", "How many tenants are shown apart.", _count(1, 100)),
            Key("weights", 'weights, as "16,8,4,2,1"', "", "If the archive does not know them.", _text),
        ),
    ),
    "skew": Kind(
        "Hot groups, heavy tenants, uneven shards.",
        'every = "1h"',
        (_FROM, Key("attributes", _NAMES, "", "Attributes whose values are compared.", _texts)),
    ),
    "triage": Kind(
        "Buried messages by cause.",
        'every = "15m"',
        (_FROM, Key("deploys", "a file of CSV or JSON lines", "", "Marks of deploys.", _text)),
    ),
    "audit": Kind("Proves that nothing was lost or doubled; needs a server.", 'at = "03:00"'),
    "upkeep": Kind(
        "Puts small files of the archive together, and removes those that nothing names any more.",
        'at = "02:00"',
        (Key("keep_days", "a number from 1 to 36500", "", "Rows of older days are taken away.", _count(1, 36_500)),),
    ),
    "quality": Kind("Counts, nulls and impossible times by queue.", 'every = "1h"', (_FROM,)),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedJob:
    name: str
    kind: str
    # One of the two: a time between two runs, or the second of the day.
    every_s: int | None
    at_s: int | None
    options: Mapping[str, Any]

    @property
    def interval_s(self) -> int:
        """How long it is from one run to the next, when all is well."""
        return DAY_S if self.every_s is None else self.every_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    source: str
    archive: str
    key: str = field(repr=False)
    out: str
    listen: tuple[str, int]
    master: str | None
    spark: Mapping[str, str]
    retry_s: int
    retry_s_max: int
    stop_wait_s: int
    keep_s: int
    jobs: tuple[PlannedJob, ...]

    def place_of(self, job: PlannedJob) -> HistoryLocation:
        """Where a job reads."""
        where = self.source
        if job.kind not in {"archive", "audit"} and self.archive and job.options.get("from") != SOURCE:
            where = self.archive
        return HistoryLocation(where=where, key=self.key, queues=job.options.get("queues", ()))

    def out_of(self, job: PlannedJob) -> str:
        return self.archive if job.kind in {"archive", "upkeep"} else f"{self.out}/{job.name}"


def read_plan(path: Path, *, key: str = "") -> Plan:
    """Return the plan in a file; raises `BadPlan`."""
    try:
        said = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadPlan(f"{path} cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadPlan(f"{path} is no TOML: {error}") from None
    try:
        return _plan(said, key)
    except BadPlan as error:
        raise BadPlan(f"{path}: {error}") from None


def _plan(said: Mapping[str, Any], key: str) -> Plan:
    for name in said:
        if name not in {"pipeline", "jobs", "spark"}:
            raise BadPlan(f"there is no section [{name}]; there are [pipeline], [jobs.NAME] and [spark]")
    shared = _section(said.get("pipeline", {}), PIPELINE_KEYS, "pipeline")
    if "source" not in shared:
        raise BadPlan("pipeline.source is missing: a server, its data folder or its database")
    jobs = said.get("jobs", {})
    if not isinstance(jobs, dict) or not jobs:
        raise BadPlan(f"there is no job: add a section such as [jobs.signals]; kinds are {', '.join(KINDS)}")
    plan = Plan(
        source=shared["source"],
        archive=shared.get("archive", ""),
        key=key,
        out=shared["out"],
        listen=shared["listen"],
        master=shared.get("master"),
        spark=_spark(said.get("spark", {})),
        retry_s=shared["retry"],
        retry_s_max=shared["retry_max"],
        stop_wait_s=shared["stop_wait"],
        keep_s=shared["keep"],
        jobs=tuple(_job(name, values) for name, values in jobs.items()),
    )
    _check(plan)
    return plan


def _job(name: str, values: Any) -> PlannedJob:
    where = f"jobs.{name}"
    if not _NAME.fullmatch(name) or name == "tables":
        raise BadPlan(f"{where}: a name has A-Z a-z 0-9 _ - and is not `tables`, as it is that of a folder")
    if not isinstance(values, dict):
        raise BadPlan(f"{where} is {values!r}; it must be a section, as [{where}]")
    kind = values.get("kind", name)
    if kind not in KINDS:
        raise BadPlan(f"{where}.kind is {kind!r}; it must be one of {', '.join(KINDS)}{_nearest(str(kind), KINDS)}")
    given = {each: value for each, value in values.items() if each not in {"every", "at"}}
    if "every" in values and "at" in values:
        raise BadPlan(f"{where}.every and {where}.at are both there; give one of them")
    when, _, said = KINDS[kind].every.partition(" = ")
    given |= {each: values[each] for each in ("every", "at") if each in values} or {when: said.strip('"')}
    read = _section(given, (*JOB_KEYS, *KINDS[kind].keys), where)
    return PlannedJob(name=name, kind=kind, every_s=read.pop("every", None), at_s=read.pop("at", None), options=read)


def _check(plan: Plan) -> None:
    is_server = plan.source.startswith(("http://", "https://"))
    for job in plan.jobs:
        if job.kind in {"archive", "upkeep"} and not plan.archive:
            raise BadPlan(f"jobs.{job.name} needs pipeline.archive: a folder or a URI")
        if job.kind == "audit" and not is_server:
            raise BadPlan(f"jobs.{job.name} audits a server, and pipeline.source is {without_password(plan.source)!r}")
        if job.options.get("trim") and (not is_server or job.options.get("queues")):
            raise BadPlan(f"jobs.{job.name}.trim is for a server, and for an archive of all its queues")
    archives = [job.name for job in plan.jobs if job.kind == "archive"]
    if len(archives) > 1:
        raise BadPlan(f"jobs.{archives[1]} writes the archive of jobs.{archives[0]}: one job of this kind is enough")


def _section(said: Any, keys: Sequence[Key], where: str) -> dict[str, Any]:
    """Return the values of a section, with what is not said by default."""
    if not isinstance(said, dict):
        raise BadPlan(f"{where} is {said!r}; it must be a section, as [{where}]")
    known = {key.name: key for key in keys}
    for name in said:
        if name not in known:
            raise BadPlan(f"{where} has no key {name}; there are: {', '.join(known)}{_nearest(name, known)}")
    found = {}
    for key in keys:
        if key.name in said:
            found[key.name] = _read(key, said[key.name], where)
        elif key.default:
            found[key.name] = key.read(_by_default(key.default))
    return found


def _by_default(text: str) -> Any:
    return {"true": True, "false": False}.get(text, int(text) if text.isdecimal() else text)


def _read(key: Key, value: Any, where: str) -> Any:
    try:
        return key.read(value)
    except ValueError:
        shown = without_password(value) if isinstance(value, str) else value
        raise BadPlan(f"{where}.{key.name} is {shown!r}; it must be {key.allowed}") from None


def _spark(said: Any) -> dict[str, str]:
    """Settings of Spark by their names, which have dots: in quotes, or as sections within sections."""
    if not isinstance(said, dict):
        raise BadPlan(f"spark is {said!r}; it must be a section, as [spark]")
    found: dict[str, str] = {}
    for name, value in said.items():
        if isinstance(value, dict):
            found |= {f"{name}.{rest}": text for rest, text in _spark(value).items()}
        elif isinstance(value, str | int | float):
            found[name] = str(value).lower() if isinstance(value, bool) else str(value)
        else:
            raise BadPlan(f"spark.{name} is {value!r}; it must be a text, a number, true or false")
    return found


def _nearest(name: str, known: Mapping[str, Any]) -> str:
    close = difflib.get_close_matches(name, list(known), n=1)
    return f". Do you mean {close[0]}?" if close else ""
