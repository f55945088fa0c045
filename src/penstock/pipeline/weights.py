"""By which weights the tiers of each queue share, for whoever holds the history against the promise.

The caller's word comes first, then what the server says, or what the archive remembers of it (`queues.json`), then the
defaults of a new queue. A strict queue promises nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

from penstock.contract.queue_settings import BadSettings, QueueSettings, whole_weights
from penstock.core.fairness import TIERS
from penstock.pipeline.job import JobFailed
from penstock.pipeline.locations import QUEUES, Place
from penstock.pipeline.queue_info import present_settings, whole

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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
