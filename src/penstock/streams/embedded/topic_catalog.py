"""Which topics there are: a log of its own, read from the start when it is opened.

    created   number, id, name, settings      all of a topic's partitions are on the disk before this is
    changed   number, settings                its new partitions are on the disk before this is
    deleted   number                          its partitions go from the disk after this
    trimmed   number, partition, offset       records below were dropped on purpose
    cleaned   number, partition, offset, at   compaction has looked at everything below
    producers upto                            producer ids below may have been given out

A snapshot is everything once more, in parts, so that what led to it can go:

    begun     next number, next producer      a snapshot begins
    kept      topics                          some of them
    state     how many topics                 it is whole: what is known follows from it alone

Laws of this file
-----------------
1. A fact is one record, and counts from the moment that its batch is durable.
2. Numbers, topic ids and producer ids are never used again.
3. A partition on the disk that the catalog does not know was half made or half
   deleted: it goes. One that the catalog knows and the disk does not is damage.
4. A fact costs what it changes. A snapshot costs all there is, so it is made only
   when there is as much again to be dropped, and in parts, between which others run.
5. A snapshot that a crash cut short says nothing. It is followed by other facts, or by
   another snapshot.
"""

import asyncio
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields
from itertools import islice
from typing import Any, TypeAlias

from penstock.contract.limits import KIB
from penstock.contract.topic_settings import TopicSettings
from penstock.log import record
from penstock.log.disk_log import DiskLog
from penstock.log.interface import LogBusy, LogFull
from penstock.log.inventory import open_listed
from penstock.log.settings import LogSettings
from penstock.runtime.interface import Runtime

LOG_SETTINGS = LogSettings(
    segment_bytes_max=256 * KIB, allocate_bytes=64 * KIB, spare_bytes=64 * KIB, open_segments_max=1
)

_READ_BYTES = 1 << 20
# Of a snapshot, in one record.
_TOPICS_AT_ONCE = 200
_OF_SNAPSHOTS = frozenset({"begun", "kept", "state"})
_FREEING = frozenset({"deleted", "trimmed"})

Fact: TypeAlias = tuple[str, dict[str, Any]]


@dataclass(slots=True)
class PartitionFacts:
    """What must be known of a partition besides its log."""

    trimmed_offset: int = 0
    # (offset, time): at that time a cleaning had looked at everything below. Rising.
    cleanings: list[tuple[int, int]] = field(default_factory=list)

    @property
    def cleaned_offset(self) -> int:
        return self.cleanings[-1][0] if self.cleanings else 0


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
    # Whether all facts since the first, or since a snapshot, were applied.
    is_known: bool = False
    _snapshot: "Facts | None" = None

    def apply(self, kind: str, fact: dict[str, Any]) -> None:
        if kind in _OF_SNAPSHOTS:
            self._apply_snapshot(kind, fact)
            return
        self._snapshot = None
        # Whole segments were dropped before a snapshot: what is known of nothing is the end of what led to it.
        if self.is_known:
            self._apply_one(kind, fact)

    def _apply_one(self, kind: str, fact: dict[str, Any]) -> None:
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
            case _:
                raise UnknownFact(f"the catalog of topics has a record {kind!r}: it was written by a later version")

    def _apply_snapshot(self, kind: str, fact: dict[str, Any]) -> None:
        if kind == "begun":
            self._snapshot = Facts(next_number=fact["next_number"], next_producer=fact["next_producer"])
        elif self._snapshot is None:
            # Its beginning was cut off with the segment it was in, so another follows.
            return
        elif kind == "kept":
            self._snapshot._keep(fact["topics"])
        elif len(self._snapshot.topics) == fact["topics"]:
            self.topics = self._snapshot.topics
            self.next_number, self.next_producer = self._snapshot.next_number, self._snapshot.next_producer
            self.is_known, self._snapshot = True, None

    def _keep(self, rows: list[dict[str, Any]]) -> None:
        for row in rows:
            topic = TopicFacts(row["number"], row["id"], row["name"], _settings(row["settings"]))
            self.topics[topic.number] = topic
            for index, (trimmed_offset, cleanings) in row["partitions"].items():
                topic.partitions[int(index)] = PartitionFacts(trimmed_offset, list(map(tuple, cleanings)))

    def snapshot(self) -> Iterator[Fact]:
        """Yield everything as facts, some topics at a time. Nothing may be applied meanwhile."""
        yield "begun", {"next_number": self.next_number, "next_producer": self.next_producer}
        topics = iter(self.topics.values())
        while some := [_row(topic) for topic in islice(topics, _TOPICS_AT_ONCE)]:
            yield "kept", {"topics": some}
        yield "state", {"topics": len(self.topics)}


class UnknownFact(Exception):
    """The catalog was written by a later version. Nothing was changed."""


class Catalog:
    def __init__(self, runtime: Runtime, log: DiskLog) -> None:
        self._clock = runtime.clock
        self._log = log
        # When closed segments have this many bytes, they may be worth a snapshot.
        self._snapshot_bytes = 0
        self.facts = Facts(is_known=log.start_offset == 0)

    @classmethod
    async def open(cls, runtime: Runtime, folder: str, log_settings: LogSettings = LOG_SETTINGS) -> "Catalog":
        parent, _, name = folder.rpartition("/")
        log = await open_listed(runtime, parent, name, log_settings, later=("partitions", "groups"))
        catalog = cls(runtime, log)
        try:
            await catalog._replay()
        except BaseException:
            await log.close()
            raise
        return catalog

    async def close(self) -> None:
        await self._log.close()

    async def watch(self) -> None:
        await self._log.watch()

    async def write(self, kind: str, **fact: Any) -> None:
        """Write a fact and return when it is durable and known. Raises `LogFull`, and then nothing happened.

        Facts are written one after the other: the caller sees to that.
        """
        await self.write_all([(kind, fact)])

    async def write_all(self, facts: Sequence[Fact]) -> None:
        """Write facts at once: all of them are durable and known on return, or none."""
        self._append(facts, is_freeing=all(kind in _FREEING for kind, _ in facts))
        await self._log.wait_durable(self._log.end_offset)
        for kind, fact in facts:
            self.facts.apply(kind, json.loads(json.dumps(fact)))
        await self._shorten()

    def _append(self, facts: Sequence[Fact], *, is_freeing: bool) -> tuple[int, int]:
        """Append facts as one batch; return its first offset and its size."""
        rows = [(kind.encode(), json.dumps(fact, separators=(",", ":")).encode()) for kind, fact in facts]
        batch = record.encode(rows, at_ms=self._clock.now_ms())
        with self._log.reserve(len(batch), from_spare=is_freeing) as space:
            return self._log.append(batch, space), len(batch)

    async def _shorten(self) -> None:
        """If most of the log is of the past, write everything once more, so that what led to it can go."""
        closed_bytes = self._closed_bytes()
        if closed_bytes <= self._snapshot_bytes:
            return
        parts: list[tuple[int, int]] = []
        try:
            for fact in self.facts.snapshot():
                parts.append(self._append([fact], is_freeing=True))
                # There may be thousands of topics: others have their turn between.
                await self._log.wait_durable(self._log.end_offset)
        except (LogFull, LogBusy):
            # Nothing is lost: it is tried again when there is more to be dropped.
            self._snapshot_bytes = 2 * closed_bytes
            return
        await self._log.drop_before(parts[0][0])
        # The next one is due when twice as much has come as this one took: so facts are cheap, however many there are.
        self._snapshot_bytes = self._closed_bytes() + 2 * sum(size_bytes for _, size_bytes in parts)

    def _closed_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self._log.segments[:-1])

    async def _replay(self) -> None:
        offset = self._log.start_offset
        while offset < self._log.end_offset:
            for batch in await self._log.read(offset, bytes_max=_READ_BYTES):
                for kind, fact in facts_of(batch):
                    self.facts.apply(kind, fact)
                    await asyncio.sleep(0)
                offset = record.header(batch).next_offset
        # How much of it still counts is not known. Half as much again has to come until that is looked at.
        self._snapshot_bytes = self._closed_bytes() * 3 // 2


def facts_of(batch: memoryview) -> Iterator[Fact]:
    """Yield the facts of a batch of the catalog, each with its kind."""
    if record.header(batch).is_hole:
        raise UnknownFact("a part of the catalog of topics was lost and cut out; which topics there are is not known")
    for entry in record.records(batch):
        assert entry.key is not None
        assert entry.value is not None
        yield bytes(entry.key).decode(), json.loads(bytes(entry.value))


def _row(topic: TopicFacts) -> dict[str, Any]:
    partitions = {index: (facts.trimmed_offset, facts.cleanings) for index, facts in topic.partitions.items()}
    settings = written(topic.settings)
    return {
        "number": topic.number,
        "id": topic.id,
        "name": topic.name,
        "settings": settings,
        "partitions": partitions,
    }


def written(settings: TopicSettings) -> dict[str, Any]:
    """Return settings as they are written in the catalog."""
    # Not `asdict`, which copies deeply: a snapshot writes those of all topics.
    return {each.name: getattr(settings, each.name) for each in fields(settings)}


def _settings(found: dict[str, Any]) -> TopicSettings:
    return TopicSettings.read(found)
