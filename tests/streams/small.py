"""Topics on a simulated machine, with small segments, and looked after when a test says so."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from aiokafka.record.default_records import (
    DefaultRecordBatch,
    DefaultRecordBatchBuilder,
)

from penstock.broker.topics import FetchOne, Topics
from penstock.contract.topic_settings import TopicSettings
from penstock.log.record import header as read_header
from penstock.log.settings import LogSettings
from penstock.runtime.interface import Runtime
from penstock.streams.embedded.topic_store import Streams, StreamsSettings
from tests.simulation.clock import EPOCH_MS
from tests.simulation.world import Machine

FOLDER = "streams"
NEVER_MS = 10**9
HOUR_MS = 3_600_000
SMALL = StreamsSettings(
    partition_log=LogSettings(
        allocate_bytes=0, spare_bytes=0, index_every_bytes=200, open_segments_max=2, rolls_before_full=True
    ),
    # Fewer than partitions: files are closed and opened all the time.
    open_files_max=2,
    catalog_log=LogSettings(allocate_bytes=0, spare_bytes=0, segment_bytes_max=2_000),
    upkeep_ms=NEVER_MS,
    retention_check_ms=NEVER_MS,
)
# A few batches are a segment.
TINY = TopicSettings(segment_bytes=1_024)
CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}

Pair = tuple[bytes | None, bytes | None]


@dataclass(frozen=True)
class Sender:
    """An idempotent producer."""

    id: int = 1
    epoch: int = 0


def batch(
    *records: Pair,
    at_ms: int | Sequence[int] = EPOCH_MS,
    codec: str = "none",
    sender: Sender | None = None,
    sequence: int = 0,
    is_transactional: bool = False,
) -> bytes:
    """Return a record batch as aiokafka's producer would send it."""
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=CODECS[codec],
        is_transactional=int(is_transactional),
        producer_id=-1 if sender is None else sender.id,
        producer_epoch=-1 if sender is None else sender.epoch,
        base_sequence=-1 if sender is None else sequence,
        batch_size=1 << 30,
    )
    for delta, (key, value) in enumerate(records):
        time_ms = at_ms if isinstance(at_ms, int) else at_ms[delta]
        builder.append(delta, timestamp=time_ms, key=key, value=value, headers=[("trace", b"1")])
    return bytes(builder.build())


def values(*bodies: bytes, **how: object) -> bytes:
    """Return a batch of records without keys."""
    return batch(*((None, body) for body in bodies), **how)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Read:
    """A record, as a consumer sees it."""

    offset: int
    key: bytes | None
    value: bytes | None
    at_ms: int


def records_of(batches: Sequence[memoryview]) -> list[Read]:
    """Return the records of fetched batches, by aiokafka's own reader."""
    found: list[Read] = []
    for each in batches:
        if read_header(each).record_count == 0:
            continue
        reader = DefaultRecordBatch(bytes(each))
        assert reader.validate_crc()
        found += (Read(entry.offset, entry.key, entry.value, entry.timestamp) for entry in reader)
    return found


async def read_all(topics: Topics, topic: str = "events", partition: int = 0, start: int | None = None) -> list[Read]:
    """Return every record from ``start`` on, a little at a time, as a consumer would."""
    offset = topics.earliest(topic, partition) if start is None else start
    found: list[Read] = []
    while offset < topics.latest(topic, partition):
        (answer,) = await topics.fetch([FetchOne(topic, partition, offset, 300)], bytes_max=300)
        assert answer.error is None
        found += (entry for entry in records_of(answer.batches) if entry.offset >= offset)
        offset = read_header(answer.batches[-1]).next_offset
    return found


async def bodies(topics: Topics, topic: str = "events", partition: int = 0) -> list[bytes | None]:
    return [entry.value for entry in await read_all(topics, topic, partition)]


async def open_topics(runtime: Runtime, folder: str, settings: StreamsSettings | None = None) -> Topics:
    return Topics(runtime, await Streams.open(runtime, folder, settings))


def in_folder(topics: Topics) -> Streams:
    """Return what keeps them, to look at its files."""
    assert isinstance(topics.streams, Streams)
    return topics.streams


@asynccontextmanager
async def running(machine: Machine, settings: StreamsSettings = SMALL) -> AsyncIterator[Topics]:
    """Start a process that has the topics open, and stop it in good order."""
    topics = await open_topics(machine.start(), FOLDER, settings)
    try:
        yield topics
    finally:
        await topics.close()
        machine.kill()


async def look_after(topics: Topics, topic: str = "events", partition: int = 0) -> None:
    """Have the upkeep do now what it does from time to time."""
    upkeep = in_folder(topics)._maintenance
    found = in_folder(topics).find(topic)
    await upkeep.look_after(found, partition)
    upkeep._to_clean.clear()
    if found.settings.is_compacted:
        await upkeep.clean(found, partition)
