"""How queues are set, and by which weights their tiers share: as the server says now, or as the archive last saw it.

The history does not say by which settings it came about. A queue that is not described has the defaults. For weights,
the caller's word comes first, then what the server says, or what the archive remembers of it (`queues.json`), then
the defaults of a new queue. A strict queue promises nothing.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import Any
from urllib.parse import quote

from penstock.contract.messages import TIERS
from penstock.contract.queue_settings import SAID_NAMES, BadSettings, QueueSettings, from_said, whole_weights
from penstock.pipeline.job import JobFailed
from penstock.pipeline.locations import QUEUES, HistoryLocation, client_of, is_archive
from penstock.pipeline.storage import open_folder
from penstock.pipeline.tables import uri_for_tasks


def described_queues(place: HistoryLocation) -> dict[str, dict[str, Any]]:
    """Return each queue of a server by name: its id and its settings, in the words of REST."""
    with client_of(place) as client:
        names = [each["queue_name"] for each in client.queues()]
        said = {name: client.json(f"/api/queues/{quote(name, safe='')}") for name in names}
    return {
        name: {"queue_id": each["queue_id"], "settings": {word: each[word] for word in SAID_NAMES if word in each}}
        for name, each in said.items()
    }


def present_settings(place: HistoryLocation) -> dict[str, QueueSettings]:
    """Return the settings of the queues that are described, by name."""
    if place.is_server:
        return settings_of(described_queues(place))
    text = open_folder(uri_for_tasks(place.where)).get(QUEUES) if is_archive(place.where) else None
    try:
        return settings_of(json.loads(text or "{}"))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise JobFailed(
            f"{place.where}/{QUEUES} does not describe queues ({error}): archive once more, and it is written again"
        ) from None


def settings_of(described: Mapping[str, Mapping[str, Any]]) -> dict[str, QueueSettings]:
    return {name: QueueSettings(**from_said(queue["settings"])) for name, queue in described.items()}


_LEAST = 0.001


@dataclass(frozen=True, slots=True)
class Sharing:
    """How the tiers of a queue share, and where that is set."""

    weights: tuple[int, ...] = QueueSettings().weights
    is_strict: bool = False
    source: str = "default"


def parse(text: str) -> tuple[int, ...]:
    """Read weights as a user types them.

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


def sharing(place: HistoryLocation, said: str) -> Mapping[str, Sharing]:
    """What is known of each queue by name; a queue that is not there has the defaults."""
    if said:
        return _Everywhere(Sharing(parse(said), source="--weights"))
    source = "server" if place.is_server else QUEUES
    found = present_settings(place)
    known = {queue: Sharing(each.weights, is_strict=each.is_strict, source=source) for queue, each in found.items()}
    return _Everywhere(Sharing(), known)


class _Everywhere(dict[str, Sharing]):
    """What is known, and one answer for all the rest."""

    def __init__(self, rest: Sharing, known: Mapping[str, Sharing] | None = None) -> None:
        super().__init__(known or {})
        self._rest = rest

    def __missing__(self, queue: str) -> Sharing:
        return self._rest
