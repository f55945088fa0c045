"""By which weights the tiers of each queue share, for whoever holds the history against the promise.

The caller's word comes first, then what the archive remembers of the server (`queues.json`), then the
defaults of a new queue. A strict queue promises nothing.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import lcm
from typing import TYPE_CHECKING, Any

from penstock.core.fairness import TIERS
from penstock.core.settings import QueueSettings
from penstock.pipeline.files import has_path
from penstock.pipeline.outcome import JobFailed
from penstock.pipeline.places import Place, is_archive

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

QUEUES = "queues.json"


@dataclass(frozen=True, slots=True)
class Sharing:
    """How the tiers of a queue share, and who said so."""

    weights: tuple[int, ...] = QueueSettings().weights
    is_strict: bool = False
    source: str = "default"


def whole(weights: Iterable[float]) -> tuple[int, ...]:
    """Return weights of the same ratios as whole numbers.

    >>> whole([8, 4, 2, 1, 0.5])
    (16, 8, 4, 2, 1)
    """
    parts = [Fraction(weight).limit_denominator(1_000) for weight in weights]
    if len(parts) != TIERS or min(parts) <= 0:
        raise JobFailed(f"weights are {TIERS} numbers above 0, the most urgent tier first, as in 16,8,4,2,1")
    common = lcm(*(part.denominator for part in parts))
    return tuple(int(part * common) for part in parts)


def parse(text: str) -> tuple[int, ...]:
    """Read weights as somebody types them.

    >>> parse("8,4,2,1,0.5")
    (16, 8, 4, 2, 1)
    """
    try:
        return whole([float(word) for word in text.split(",")])
    except (ValueError, OverflowError):
        raise JobFailed(f"{text!r} are no weights: they are {TIERS} numbers, as in 16,8,4,2,1") from None


def sharing(spark: "SparkSession", place: Place, said: str) -> Mapping[str, Sharing]:
    """What is known of each queue by name; a queue that is not there has the defaults."""
    if said:
        return _Everywhere(Sharing(parse(said), source="--weights"))
    if place.is_server or not is_archive(spark, place.where) or not has_path(spark, f"{place.where}/{QUEUES}"):
        return _Everywhere(Sharing())
    text = spark.read.text(f"{place.where}/{QUEUES}", wholetext=True).collect()[0].value
    return _Everywhere(Sharing(), _read(text))


def frame(spark: "SparkSession", by_queue: Mapping[str, Sharing]) -> "DataFrame":
    """The weights of queues that promise something, as the transforms take them."""
    rows = [
        (queue, tier, weight, sum(found.weights))
        for queue, found in by_queue.items()
        if not found.is_strict
        for tier, weight in enumerate(found.weights)
    ]
    return spark.createDataFrame(rows, "queue STRING, tier INT, weight INT, total INT")


class _Everywhere(dict[str, Sharing]):
    """What is known, and one answer for all the rest."""

    def __init__(self, rest: Sharing, known: Mapping[str, Sharing] | None = None) -> None:
        super().__init__(known or {})
        self._rest = rest

    def __missing__(self, queue: str) -> Sharing:
        return self._rest


def _read(text: str) -> dict[str, Sharing]:
    try:
        described: dict[str, Any] = json.loads(text)
        return {queue: _of(settings["settings"].get("tiers", {})) for queue, settings in described.items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise JobFailed(f"{QUEUES} of the archive is not as it was written ({error}): say --weights instead") from None


def _of(tiers: Mapping[str, Any]) -> Sharing:
    weights = whole(tiers["weights"]) if "weights" in tiers else Sharing().weights
    return Sharing(weights, is_strict=tiers.get("mode") == "strict", source=QUEUES)
