"""What can be said about a write: every option of `df.write.format("penstock")`, read and checked once, on the driver.

Spark hands options over as text, and their names in any case. A name that nobody knows
is an error: a misspelt `manifest` would otherwise be a write without one.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import urlsplit

from penstock.core.names import BadName, check_name

MESSAGES_PER_SEND_MAX = 1_000
AT_LEAST_ONCE, ONCE = "at-least-once", "once"
IN_DOUBT = ("fail", "send", "skip")


class BadOption(ValueError):
    """An option is missing, unknown or wrong; the message names it and what is allowed."""


class Option(NamedTuple):
    name: str
    default: str
    meaning: str


OPTIONS = (
    Option("url", "", "The server, such as http://127.0.0.1:8080."),
    Option("key", "", "The API key; by default PENSTOCK_KEY of the driver's environment."),
    Option("queue", "", "The queue; without it, the column `queue` says one for each row."),
    Option("job", "", "What this write is called: the same job never sends the same rows twice."),
    Option(
        "manifest", "", "A folder that driver and executors reach, for what was sent: it makes `once` hold for ever."
    ),
    Option("delivery", ONCE, "`once`, or `at-least-once`: needs no job, and a task that is tried again sends again."),
    Option("maxWait", "300", "Seconds that one send is tried for while the server is full, busy or away."),
    Option("rate", "", "Messages per second of the whole write; by default as fast as it goes."),
    Option("concurrency", "", "How many tasks run at once, to share `rate`; needed with it."),
    Option("messagesPerSend", "1000", "Messages of one send, at most 1,000. A job keeps to one figure."),
    Option("inDoubt", "fail", "A send of days ago that was never answered: `fail`, `send` again, or `skip` it."),
)
# What Spark itself says to a sink of a stream.
_OF_SPARK = {"checkpointlocation"}


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    url: str
    key: str
    queue: str
    # Empty if the write may send twice.
    job: str
    manifest: str
    wait_s_max: float
    # Of one task, in messages per second; 0 for no limit.
    task_rate: float
    messages_per_send: int
    in_doubt: str


def read_options(said: Mapping[str, str], *, environment: Mapping[str, str] = os.environ) -> WriteOptions:
    found = _known({name.lower(): str(value).strip() for name, value in said.items()})
    queue, job, manifest = found["queue"], found["job"], found["manifest"]
    if queue:
        _check_queue(queue)
    _check_delivery(found["delivery"], job=job, manifest=manifest)
    _one_of("inDoubt", found["indoubt"], IN_DOUBT)
    return WriteOptions(
        url=_url(found["url"]),
        key=_key(found["key"] or environment.get("PENSTOCK_KEY", "")),
        queue=queue,
        job=job if found["delivery"] == ONCE else "",
        manifest=manifest,
        wait_s_max=_number("maxWait", found["maxwait"], least=0, most=86_400),
        task_rate=_task_rate(found["rate"], found["concurrency"]),
        messages_per_send=int(
            _number("messagesPerSend", found["messagespersend"], least=1, most=MESSAGES_PER_SEND_MAX, is_whole=True)
        ),
        in_doubt=found["indoubt"],
    )


def check_server(url: str, key: str) -> None:
    """Raise `BadOption` unless this may be the address of a server, and a key for it."""
    _url(url)
    _key(key)


def _known(said: dict[str, str]) -> dict[str, str]:
    if "topic" in said:
        raise BadOption("option topic: topics are read and not yet written; this version writes to queues")
    names = {option.name.lower(): option for option in OPTIONS}
    unknown = sorted(set(said) - set(names) - _OF_SPARK)
    if unknown:
        known = ", ".join(option.name for option in OPTIONS)
        raise BadOption(f"no option is called {', '.join(unknown)}; there are {known}")
    return {name: said.get(name) or option.default for name, option in names.items()}


def _url(url: str) -> str:
    try:
        parts = urlsplit(url)
        is_good = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        is_good = False
    if not is_good or parts.query or parts.fragment or parts.username is not None:
        raise BadOption(f"option url is {url!r}; it names a server, such as http://127.0.0.1:8080")
    return url.rstrip("/")


def _key(key: str) -> str:
    if not key.isascii() or not (key.isprintable() or not key):
        raise BadOption("option key has a character that a header cannot have")
    return key


def _check_queue(queue: str) -> None:
    if queue.startswith("topic:"):
        raise BadOption(f"{queue}: topics are read and not yet written; this version writes to queues")
    try:
        check_name(queue, field="option queue")
    except BadName as error:
        raise BadOption(str(error)) from None


def _check_delivery(delivery: str, *, job: str, manifest: str) -> None:
    _one_of("delivery", delivery, (ONCE, AT_LEAST_ONCE))
    if delivery == AT_LEAST_ONCE:
        if manifest:
            raise BadOption("option manifest is for delivery=once; at-least-once remembers nothing")
        return
    if not job:
        raise BadOption(
            "option job is missing: a name for this write, such as nightly-orders-2026-03-01, under which the same "
            f"rows are never sent twice. To do without, say delivery={AT_LEAST_ONCE}"
        )
    if len(job.encode()) > 200:
        raise BadOption(f"option job has {len(job.encode())} bytes; a name has at most 200")


def _task_rate(rate: str, concurrency: str) -> float:
    if not rate:
        return 0.0
    if not concurrency:
        raise BadOption("option rate needs option concurrency: how many tasks of this write run at once and share it")
    share = _number("concurrency", concurrency, least=1, most=1_000_000, is_whole=True)
    return _number("rate", rate, least=0.001, most=1e9) / share


def _number(name: str, text: str, *, least: float, most: float, is_whole: bool = False) -> float:
    try:
        value = int(text) if is_whole else float(text)
    except ValueError:
        value = float("nan")
    if not least <= value <= most:
        kind = "a whole number" if is_whole else "a number"
        raise BadOption(f"option {name} is {text!r}; it is {kind} from {least:g} to {most:g}")
    return value


def _one_of(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise BadOption(f"option {name} is {value!r}; it is one of {', '.join(allowed)}")
