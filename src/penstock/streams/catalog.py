"""Which topics there are: a log of its own, read from the start when it is opened.

    created   number, id, name, settings      all of a topic's partitions are on the disk before this is
    changed   number, settings                its new partitions are on the disk before this is
    deleted   number                          its partitions go from the disk after this
    trimmed   number, partition, offset       records below were let go of on purpose
    cleaned   number, partition, offset, at   compaction has looked at everything below
    producers upto                            producer ids below may have been given out
    state     everything                      begins the catalog anew; what is before it can go

Laws of this file
-----------------
1. A fact is one record batch, and counts from the moment that it is durable.
2. Numbers, topic ids and producer ids are never used again.
3. A partition on the disk that the catalog does not know was half made or half
   deleted: it goes. One that the catalog knows and the disk does not is damage.
"""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from penstock.core.limits import CLEANINGS_MAX, KIB
from penstock.log import record
from penstock.log.disk_log import DiskLog
from penstock.log.interface import LogBusy, LogFull
from penstock.log.settings import LogSettings
from penstock.runtime.interface import Runtime
from penstock.streams.settings import TopicSettings

LOG_SETTINGS = LogSettings(
    segment_bytes_max=256 * KIB, allocate_bytes=64 * KIB, spare_bytes=64 * KIB, open_segments_max=1
)

_READ_BYTES = 1 << 20


@dataclass(slots=True)
class PartitionFacts:
    """What must be known of a partition besides its log."""

    trimmed_offset: int = 0
    # (offset, time): at that time a cleaning had looked at everything below. Rising.
    cleanings: list[tuple[int, int]] = field(default_factory=list)

    @property
    def cleaned_offset(self) -> int:
        return self.cleanings[-1][0] if self.cleanings else 0

    def cleaned_before(self, at_ms: int) -> int:
        """Return up to where everything had been looked at by a cleaning at that time."""
        return max((offset for offset, cleaned_at_ms in self.cleanings if cleaned_at_ms <= at_ms), default=0)


@dataclass(slots=True)
class TopicFacts:
    number: int
    id: str
    name: str
    settings: TopicSettings
    partitions: dict[int, PartitionFacts] = field(default_factory=dict)

    def partition(self, index: int) -> PartitionFacts:
        return self.partitions.setdefault(index, PartitionFacts())


@dataclass(slots=True)
class Facts:
    """What follows from the records of the catalog."""

    topics: dict[int, TopicFacts] = field(default_factory=dict)
    next_number: int = 1
    next_producer: int = 1

    def apply(self, kind: str, fact: dict[str, Any]) -> None:
        match kind:
            case "created":
                number = fact["number"]
                self.topics[number] = TopicFacts(number, fact["id"], fact["name"], _settings(fact["settings"]))
                self.next_number = max(self.next_number, number + 1)
            case "changed":
                self.topics[fact["number"]].settings = _settings(fact["settings"])
            case "deleted":
                del self.topics[fact["number"]]
            case "trimmed":
                self.topics[fact["number"]].partition(fact["partition"]).trimmed_offset = fact["offset"]
            case "cleaned":
                self.topics[fact["number"]].partition(fact["partition"]).cleanings = list(map(tuple, fact["cleanings"]))
            case "producers":
                self.next_producer = fact["upto"]
            case "state":
                self._begin(fact)
            case _:
                raise UnknownFact(f"the catalog of topics has a record {kind!r}: it was written by a later version")

    def _begin(self, fact: dict[str, Any]) -> None:
        self.next_number, self.next_producer = fact["next_number"], fact["next_producer"]
        self.topics = {}
        for row in fact["topics"]:
            topic = TopicFacts(row["number"], row["id"], row["name"], _settings(row["settings"]))
            self.topics[topic.number] = topic
            for index, (trimmed_offset, cleanings) in row["partitions"].items():
                topic.partitions[int(index)] = PartitionFacts(trimmed_offset, list(map(tuple, cleanings)))

    def state(self) -> dict[str, Any]:
        rows = [
            {
                "number": topic.number,
                "id": topic.id,
                "name": topic.name,
                "settings": written(topic.settings),
                "partitions": {
                    index: (facts.trimmed_offset, facts.cleanings) for index, facts in topic.partitions.items()
                },
            }
            for topic in self.topics.values()
        ]
        return {"next_number": self.next_number, "next_producer": self.next_producer, "topics": rows}


class UnknownFact(Exception):
    """The catalog was written by a later version. Nothing was changed."""


class Catalog:
    def __init__(self, runtime: Runtime, log: DiskLog) -> None:
        self._clock = runtime.clock
        self._log = log
        self.facts = Facts()

    @classmethod
    async def open(cls, runtime: Runtime, folder: str, log_settings: LogSettings = LOG_SETTINGS) -> "Catalog":
        log = await DiskLog.open(runtime, folder, log_settings)
        catalog = cls(runtime, log)
        try:
            await catalog._replay()
        except BaseException:
            await log.close()
            raise
        return catalog

    async def close(self) -> None:
        await self._log.close()

    async def write(self, kind: str, **fact: Any) -> None:
        """Write a fact and return when it is durable and known. Raises `LogFull`, and then nothing happened.

        Facts are written one after the other: the caller sees to that.
        """
        await self._append(kind, fact, is_freeing=kind in {"deleted", "trimmed"})
        self.facts.apply(kind, json.loads(json.dumps(fact)))
        await self._shorten()

    async def _append(self, kind: str, fact: dict[str, Any], *, is_freeing: bool) -> int:
        value = json.dumps(fact, separators=(",", ":")).encode()
        batch = record.encode_one(kind.encode(), value, at_ms=self._clock.now_ms())
        with self._log.reserve(len(batch), from_spare=is_freeing) as space:
            offset = self._log.append(batch, space)
        await self._log.wait_durable(offset + 1)
        return offset

    async def _shorten(self) -> None:
        """If most of the log is of the past, write everything at once, so that what led to it can go."""
        closed = self._log.segments[:-1]
        if not closed:
            return
        state = self.facts.state()
        if sum(segment.size_bytes for segment in closed) < 2 * len(json.dumps(state)):
            return
        try:
            offset = await self._append("state", state, is_freeing=True)
        except (LogFull, LogBusy):
            # Nothing is lost: it is tried again with the next fact.
            return
        await self._log.drop_before(offset)

    async def _replay(self) -> None:
        offset = self._log.start_offset
        # Whole segments were dropped before a state, so what is left may begin in the middle of what led to it.
        is_known = offset == 0
        while offset < self._log.end_offset:
            for batch in await self._log.read(offset, bytes_max=_READ_BYTES):
                for kind, fact in facts_of(batch):
                    is_known = is_known or kind == "state"
                    if is_known:
                        self.facts.apply(kind, fact)
                offset = record.header(batch).next_offset


def with_cleaning(
    cleanings: list[tuple[int, int]], offset: int, at_ms: int, tombstone_ms: int
) -> list[tuple[int, int]]:
    """Return the cleanings that must be known after another one: of those old enough, only the last matters."""
    known = [*cleanings, (offset, at_ms)]
    old = [entry for entry in known if entry[1] <= at_ms - tombstone_ms]
    kept = old[-1:] + known[len(old) :]
    while len(kept) > CLEANINGS_MAX:
        # Of two neighbours the earlier is forgotten: its tombstones then wait for the later one's time.
        del kept[1]
    return kept


def facts_of(batch: memoryview) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the facts of a batch of the catalog, each with its kind."""
    if record.header(batch).is_hole:
        raise UnknownFact("a part of the catalog of topics was lost and cut out; which topics there are is not known")
    for entry in record.records(batch):
        assert entry.key is not None
        assert entry.value is not None
        yield bytes(entry.key).decode(), json.loads(bytes(entry.value))


def written(settings: TopicSettings) -> dict[str, Any]:
    """Return settings as they are written in the catalog."""
    return asdict(settings)


def _settings(found: dict[str, Any]) -> TopicSettings:
    return TopicSettings.read(found)
