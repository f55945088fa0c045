"""How queues are set, and by which weights their tiers share: as the server says now, or as the archive last saw it.

The history does not say by which settings it came about. A queue that is not described has the defaults. For weights,
the caller's word comes first, then what the server says, or what the archive remembers of it (`queues.json`), then
the defaults of a new queue. A strict queue promises nothing.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from penstock.contract.messages import TIERS
from penstock.contract.queue_settings import SAID_NAMES, BadSettings, QueueSettings, from_said, whole_weights
from penstock.pipeline.http import TRIES_BY_HAND, Asking, ServerRefused, ServerUnreachable
from penstock.pipeline.job import JobFailed
from penstock.pipeline.locations import QUEUES, Place, is_archive
from penstock.pipeline.storage import has_path

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = 1_000


class Server:
    def __init__(self, url: str, key: str) -> None:
        self._url = url.rstrip("/")
        self._key = key

    def queues(self) -> dict[str, dict[str, Any]]:
        """Return each queue by name: its id and its settings, in the words of REST."""
        return {name: self._queue(name) for name in self._names()}

    def trim(self, shard: int, *, before: int) -> int:
        """Let the server drop its history before an offset, in whole segments; return the first offset it keeps."""
        answer = self._told(lambda asking: asking.post("/api/history/trim", {"shard": shard, "before": before}))
        return int(answer["first_kept_offset"])

    def _names(self) -> Iterator[str]:
        cursor: str | None = ""
        while cursor is not None:
            page = self._ask("/api/queues", limit=PAGE, cursor=cursor)
            yield from (each["queue_name"] for each in page["queues"])
            cursor = page["next"]

    def _queue(self, name: str) -> dict[str, Any]:
        said = self._ask(f"/api/queues/{quote(name, safe='')}")
        return {"queue_id": said["queue_id"], "settings": {each: said[each] for each in SAID_NAMES if each in said}}

    def _ask(self, path: str, **query: object) -> Any:
        return self._told(lambda asking: asking.json(path, **query))

    def _told(self, question: Callable[[Asking], Any]) -> Any:
        try:
            with Asking(self._url, self._key, tries_max=TRIES_BY_HAND) as asking:
                return question(asking)
        except (ServerRefused, ServerUnreachable) as error:
            raise JobFailed(str(error)) from error


def present_settings(spark: "SparkSession", place: Place) -> dict[str, QueueSettings]:
    """Return the settings of the queues that are described, by name."""
    if place.is_server:
        return settings_of(Server(place.where, place.key).queues())
    where = f"{place.where}/{QUEUES}"
    if not is_archive(spark, place.where) or not has_path(spark, where):
        return {}
    row = spark.read.text(where, wholetext=True).first()
    try:
        return settings_of(json.loads(row["value"] if row else "{}"))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise JobFailed(
            f"{where} does not describe queues ({error}): archive once more, and it is written anew"
        ) from None


def settings_of(described: Mapping[str, Mapping[str, Any]]) -> dict[str, QueueSettings]:
    return {name: QueueSettings(**from_said(queue["settings"])) for name, queue in described.items()}


_LEAST = 0.001


@dataclass(frozen=True, slots=True)
class Sharing:
    """How the tiers of a queue share, and who said so."""

    weights: tuple[int, ...] = QueueSettings().weights
    is_strict: bool = False
    source: str = "default"


def parse(text: str) -> tuple[int, ...]:
    """Read weights as somebody types them.

    >>> parse("8,4,2,1,0.5")
    (16, 8, 4, 2, 1)
    """
    try:
        weights = [float(word) for word in text.split(",")]
    except ValueError:
        weights = []
    if len(weights) != TIERS or not all(_LEAST <= weight < inf for weight in weights):
        raise JobFailed(f"{text!r} are no weights: they are {TIERS} numbers of {_LEAST} and more, as in 16,8,4,2,1")
    try:
        return whole_weights(weights)
    except BadSettings as error:
        raise JobFailed(str(error)) from None


def sharing(spark: "SparkSession", place: Place, said: str) -> Mapping[str, Sharing]:
    """What is known of each queue by name; a queue that is not there has the defaults."""
    if said:
        return _Everywhere(Sharing(parse(said), source="--weights"))
    source = "server" if place.is_server else QUEUES
    found = present_settings(spark, place)
    known = {queue: Sharing(each.weights, is_strict=each.is_strict, source=source) for queue, each in found.items()}
    return _Everywhere(Sharing(), known)


class _Everywhere(dict[str, Sharing]):
    """What is known, and one answer for all the rest."""

    def __init__(self, rest: Sharing, known: Mapping[str, Sharing] | None = None) -> None:
        super().__init__(known or {})
        self._rest = rest

    def __missing__(self, queue: str) -> Sharing:
        return self._rest
