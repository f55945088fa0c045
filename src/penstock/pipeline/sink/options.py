"""What can be said about a write: every option of `df.write.format("penstock")`, read and checked once, on the driver.

Spark hands options over as text, and their names in any case. A name that nobody knows
is an error: a misspelt `manifest` would otherwise be a write without one.
"""

import difflib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from penstock.contract.names import BadName, check_name
from penstock.pipeline.http import is_key, is_server
from penstock.pipeline.locations import without_password

MESSAGES_PER_SEND_MAX = 1_000
# A topic takes whole batches, and these are bounded by their bytes before.
RECORDS_PER_SEND_MAX = 10_000
COMPRESSIONS = ("none", "gzip", "zstd")
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
    Option("topic", "", "The topic, if records are written and not messages."),
    Option("job", "", "What this write is called: the same job never sends the same rows twice."),
    Option(
        "manifest", "", "A folder that driver and executors reach, for what was sent: it makes `once` hold for ever."
    ),
    Option("delivery", ONCE, "`once`, or `at-least-once`: needs no job, and a task that is tried again sends again."),
    Option("maxWait", "300", "Seconds that one send is tried for while the server is full, busy or away."),
    Option("rate", "", "Messages per second of the whole write; by default as fast as it goes."),
    Option("concurrency", "", "How many tasks run at once, to share `rate`; needed with it."),
    Option(
        "messagesPerSend",
        "",
        "Messages of one send, at most 1,000, or records of one, at most 10,000; by default the most. A job keeps to "
        "one figure.",
    ),
    Option("compression", "none", "Of records: `none`, `gzip` or `zstd`."),
    Option("inDoubt", "fail", "A send of days ago that was never answered: `fail`, `send` again, or `skip` it."),
)
_TOPIC = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9._-]{1,249}")
# What Spark itself says to a sink of a stream.
_OF_SPARK = {"checkpointlocation"}


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
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


def read_options(said: Mapping[str, str], *, environment: Mapping[str, str] = os.environ) -> WriteOptions:
    if not said:
        raise BadOption(
            "a table of a catalog cannot be written to, as Spark keeps its options to itself: use df.write with options"
        )
    found = _known({name.lower(): str(value).strip() for name, value in said.items()})
    queue, topic, job, manifest = found["queue"], found["topic"], found["job"], found["manifest"]
    _check_names(queue, topic)
    _check_delivery(found["delivery"], job=job, manifest=manifest, is_topic=bool(topic))
    _one_of("inDoubt", found["indoubt"], IN_DOUBT)
    _one_of("compression", found["compression"], COMPRESSIONS if topic else COMPRESSIONS[:1])
    most = RECORDS_PER_SEND_MAX if topic else MESSAGES_PER_SEND_MAX
    return WriteOptions(
        url=_url(found["url"]),
        key=_key(found["key"] or environment.get("PENSTOCK_KEY", "").strip()),
        queue=queue,
        topic=topic,
        job=job if found["delivery"] == ONCE else "",
        manifest=_everywhere(manifest),
        wait_s_max=_number("maxWait", found["maxwait"], least=0, most=86_400),
        task_rate=_task_rate(found["rate"], found["concurrency"]),
        messages_per_send=int(
            _number("messagesPerSend", found["messagespersend"] or str(most), least=1, most=most, is_whole=True)
        ),
        in_doubt=found["indoubt"],
        compression=found["compression"],
    )


def check_server(url: str, key: str) -> None:
    """Raise `BadOption` unless this may be the address of a server, and a key for it."""
    _url(url)
    _key(key)


def _known(said: dict[str, str]) -> dict[str, str]:
    names = {option.name.lower(): option for option in OPTIONS}
    unknown = sorted(set(said) - set(names) - _OF_SPARK)
    if unknown:
        close = difflib.get_close_matches(unknown[0], names, n=1)
        hint = f". Do you mean {names[close[0]].name}?" if close else ";"
        known = ", ".join(option.name for option in OPTIONS)
        raise BadOption(f"no option is called {', '.join(unknown)}{hint} there are {known}")
    return {name: said.get(name) or option.default for name, option in names.items()}


def _everywhere(manifest: str) -> str:
    """Executors work elsewhere: a path from here is no path for them."""
    return str(Path(manifest).absolute()) if manifest and not urlsplit(manifest).scheme else manifest


def _url(url: str) -> str:
    if not is_server(url):
        raise BadOption(f"option url is {without_password(url)!r}; it names a server, such as http://127.0.0.1:8080")
    return url.rstrip("/")


def _key(key: str) -> str:
    if not is_key(key):
        raise BadOption("option key has a character that a header cannot have")
    return key


def _check_names(queue: str, topic: str) -> None:
    if topic:
        if queue:
            raise BadOption("option queue and option topic are both there; give one of them")
        if not _TOPIC.fullmatch(topic):
            raise BadOption(f"option topic is {topic!r}; a topic has 1 to 249 of A-Z a-z 0-9 _ - and dots")
        return
    if queue.startswith("topic:"):
        raise BadOption(f"option queue is {queue!r}; for a topic, give option topic")
    if queue:
        try:
            check_name(queue, field="option queue")
        except BadName as error:
            raise BadOption(str(error)) from None


def _check_delivery(delivery: str, *, job: str, manifest: str, is_topic: bool) -> None:
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
    if is_topic and not manifest:
        raise BadOption(
            "option manifest is missing: of a topic, a server remembers little of what a job has sent, so a folder "
            f"that driver and executors reach has to. To do without, say delivery={AT_LEAST_ONCE}"
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
