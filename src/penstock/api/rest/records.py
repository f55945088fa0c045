"""Records of topics: produce a few, look at a page of them, or send and read whole record batches.

Reading here commits nothing and takes nothing. A client that reads all of a topic accepts
`application/vnd.penstock.record-batches` and gets whole batches as they are stored, without decoding any record.
A client without Kafka's protocol can send batches as Kafka's producers make them:

    POST /api/topics/{topic}/producers                     ids for producers that number what they send
    POST /api/topics/{topic}/records?partitions=0,3        two batches, one after the other

All batches of a request are checked before the first is written, so a refused request has changed
nothing. Sequences follow Kafka's rules, with one difference: a producer that is no longer known is
refused, where Kafka accepts whatever it sends. A client that retries a batch after a lost answer
sets `repeat`.
"""

import base64
import binascii
import struct
from collections.abc import Sequence
from itertools import count
from typing import Annotated
from uuid import UUID

from msgspec import UNSET, Meta, Struct, UnsetType

from penstock.api.rest.errors import Refused, bad_field, problem_of
from penstock.api.rest.request import (
    BATCHES_TYPE,
    Answer,
    Decoder,
    Format,
    Request,
    instant,
    read_query_instant,
    sent_format,
)
from penstock.broker.access import Role
from penstock.broker.records import UNREADABLE, PlainRecord, batch_of, records_of
from penstock.broker.topics import FetchOne, Topics
from penstock.contract.limits import MIB, TOPIC_PARTITIONS_MAX
from penstock.core.routes import partition_of
from penstock.log.interface import LogBusy
from penstock.log.record import HEADER_BYTES, LENGTH_FROM, Header, header
from penstock.streams.interface import Appended, Topic
from penstock.wire import topics as wire

# What is read for one page; at least one batch comes, however large it is.
_PAGE_BYTES_MAX = MIB
_BATCHES_BYTES_MAX = 4 * MIB

_read_records = Decoder(wire.NewRecords)
# Records without a key go to one partition after the other.
_turns = count()


class RecordsQuery(Struct, forbid_unknown_fields=True):
    partition: wire.Partition = 0
    offset: Annotated[int, Meta(ge=0, le=2**62)] | UnsetType = UNSET
    since: str | UnsetType = UNSET
    limit: Annotated[int, Meta(ge=1, le=wire.RECORDS_MAX)] = 100


async def produce(request: Request) -> Answer:
    name = request.topic(Role.SEND)
    topic = request.streams.topics.streams.find(name)
    if sent_format(request.headers.get(b"content-type")) is Format.BATCHES:
        return await produce_batches(request, topic)
    # The parameters of batches have no effect on records, but unknown parameters are refused.
    request.query(ProduceQuery)
    asked: wire.NewRecords = await request.body(_read_records)
    by_partition: dict[int, list[tuple[int, PlainRecord]]] = {}
    for place, record in enumerate(asked.records):
        made = _record(place, record)
        if record.partition is not UNSET:
            partition = record.partition
        elif made.key is None:
            partition = next(_turns) % len(topic.partitions)
        else:
            partition = partition_of(made.key, len(topic.partitions))
        by_partition.setdefault(partition, []).append((place, made))
    offsets: dict[int, wire.ProducedRecord] = {}
    for partition, placed in by_partition.items():
        batch = batch_of([made for _, made in placed], at_ms=request.queues.now_ms())
        done = await request.streams.topics.produce(topic.name, partition, batch)
        for delta, (place, _) in enumerate(placed):
            offsets[place] = wire.ProducedRecord(partition, done.base_offset + delta)
    return Answer(wire.Produced([offsets[place] for place in range(len(asked.records))]), status=201)


def _record(place: int, asked: wire.NewRecord) -> PlainRecord:
    return PlainRecord(
        _bytes(f"records[{place}].key", asked.key, asked.key_base64),
        _bytes(f"records[{place}].value", asked.value, asked.value_base64),
        tuple((name, text.encode()) for name, text in (asked.headers or {}).items()),
    )


def _bytes(field: str, text: str | UnsetType | None, coded: str | UnsetType) -> bytes | None:
    if coded is UNSET:
        return text.encode() if isinstance(text, str) else None
    if text is not UNSET:
        raise bad_field(f"{field} is said twice, as text and as base64", field)
    try:
        return base64.b64decode(coded, validate=True)
    except (binascii.Error, ValueError):
        raise bad_field(f"{field}_base64 is not base64", f"{field}_base64") from None


async def browse(request: Request) -> Answer:
    name = request.topic(Role.FETCH)
    topics = request.streams.topics
    topic = topics.streams.find(name)
    asked: RecordsQuery = request.query(RecordsQuery)
    first = await _first(request, topic.name, asked)
    bytes_max = _BATCHES_BYTES_MAX if request.form is Format.BATCHES else _PAGE_BYTES_MAX
    wanted = [FetchOne(topic.name, asked.partition, first, bytes_max)]
    (fetched,) = await topics.fetch(wanted, bytes_max=bytes_max, bytes_min=0)
    if fetched.error is not None:
        raise fetched.error
    if request.form is Format.BATCHES:
        return Answer(b"".join(fetched.batches), content_type=BATCHES_TYPE.encode())
    found, after, unreadable = _page(fetched.batches, first, asked.limit, topic.settings.unpacked_bytes_max)
    rows = [_view(asked.partition, record) for record in found]
    return Answer(wire.RecordPage(rows, after, fetched.start_offset, fetched.high_watermark, unreadable))


async def _first(request: Request, topic: str, asked: RecordsQuery) -> int:
    topics = request.streams.topics
    await topics.look([(topic, asked.partition)])
    if asked.since is UNSET:
        first, end = topics.earliest(topic, asked.partition), topics.latest(topic, asked.partition)
        if asked.offset is UNSET:
            return first
        if request.form is Format.BATCHES and not first <= asked.offset <= end:
            # A program that reads on from where it was must be told that something is gone.
            raise bad_field(f"offset is {asked.offset}; partition {asked.partition} has {first} to {end}", "offset")
        # A person who looks at what is gone, or not there yet, is shown what is next to it.
        return min(max(asked.offset, first), end)
    if asked.offset is not UNSET:
        raise bad_field("since and offset are two ways to say where to begin", "since")
    found = await topics.offset_at(topic, asked.partition, read_query_instant(asked.since, "since"))
    return topics.latest(topic, asked.partition) if found is None else found[0]


def _page(
    batches: Sequence[memoryview], first: int, limit: int, unpacked_bytes_max: int
) -> tuple[list[PlainRecord], int, list[wire.Unreadable]]:
    """Return records from an offset on, the offset to go on from, and what was left out."""
    found: list[PlainRecord] = []
    unreadable: list[wire.Unreadable] = []
    after = first
    for batch in batches:
        next_offset = header(batch).next_offset
        try:
            for record in records_of(batch, unpacked_bytes_max=unpacked_bytes_max):
                if record.offset < first:
                    continue
                if len(found) == limit:
                    return found, after, unreadable
                found.append(record)
                after = record.offset + 1
        except UNREADABLE as error:
            after = max(after, header(batch).base_offset)
            unreadable.append(wire.Unreadable(after, next_offset, str(error)))
        after = max(after, next_offset)
    return found, after, unreadable


def _view(partition: int, record: PlainRecord) -> wire.RecordView:
    value, value_base64 = _text(record.value)
    key, key_base64 = _text(record.key)
    return wire.RecordView(
        partition=partition,
        offset=record.offset,
        timestamp=instant(max(0, record.at_ms)),
        value=value,
        value_base64=value_base64,
        key=key,
        key_base64=key_base64,
        headers={name: (text or b"").decode("utf-8", "replace") for name, text in record.headers},
    )


def _text(data: bytes | None) -> tuple[str | None, str | None]:
    """Return bytes as text if they are one, and else in base64."""
    if data is None:
        return None, None
    try:
        return data.decode(), None
    except UnicodeDecodeError:
        return None, base64.b64encode(data).decode()


_LENGTH = struct.Struct(">i")
_LENGTH_AT = 8

_read_producers = Decoder(wire.NewProducers)


class ProduceQuery(Struct, forbid_unknown_fields=True):
    partitions: Annotated[
        str,
        Meta(
            max_length=8 * TOPIC_PARTITIONS_MAX,
            description="Only of record batches: the partition of each, comma separated, each partition once.",
        ),
    ] = ""
    repeat: Annotated[
        bool, Meta(description="Only of record batches: they may have been sent before, and the answer was lost.")
    ] = False


async def new_producers(request: Request) -> Answer:
    name = request.topic(Role.SEND)
    topic = request.streams.topics.streams.find(name)
    asked: wire.NewProducers = await request.body(_read_producers, may_be_empty=True)
    first = await request.streams.topics.streams.new_producers(asked.count)
    view = wire.ProducersView(
        producer_id=first,
        producer_epoch=0,
        count=asked.count,
        topic_id=str(UUID(bytes=topic.id)),
        partition_count=len(topic.partitions),
        max_message_bytes=topic.settings.message_bytes_max,
    )
    return Answer(view, status=201)


async def produce_batches(request: Request, topic: Topic) -> Answer:
    asked: ProduceQuery = request.query(ProduceQuery)
    partitions = _partitions(asked.partitions)
    batches = _split(memoryview(await request.bytes()))
    if len(batches) != len(partitions):
        raise bad_field(f"there are {len(batches)} batches for {len(partitions)} partitions", "partitions")
    topics = request.streams.topics
    placed = list(zip(partitions, batches, strict=True))
    headers = [_check(topics, topic, at, *batch, is_repeat=asked.repeat) for at, batch in enumerate(placed)]
    begun = [await _append(topics, topic.name, *batch, header) for batch, header in zip(placed, headers, strict=True)]
    done = [
        (partition, await topics.settled(topic.name, partition, appended))
        for partition, appended in zip(partitions, begun, strict=True)
    ]
    rows = [wire.ProducedBatch(partition, each.base_offset, each.is_duplicate) for partition, each in done]
    return Answer(wire.ProducedBatches(rows), status=201)


def _partitions(said: str) -> list[int]:
    found: list[int] = []
    for word in said.split(",") if said else ():
        if not (word.isascii() and word.isdigit() and len(word) < 8):
            raise bad_field(f"partitions has {word[:20]!r}; it is numbers with commas between them", "partitions")
        found.append(int(word))
    if not found or len(set(found)) != len(found):
        raise bad_field("partitions names the partition of each batch, and each partition once", "partitions")
    return found


def _split(content: memoryview) -> list[memoryview]:
    """Cut a body into batches by the lengths that they say; everything else about them is checked later."""
    found: list[memoryview] = []
    at = 0
    while at < len(content):
        end = at
        if len(content) - at >= HEADER_BYTES:
            end = at + LENGTH_FROM + _LENGTH.unpack_from(content, at + _LENGTH_AT)[0]
        if not at + HEADER_BYTES <= end <= len(content):
            raise bad_field(f"batch {len(found)} is not a whole record batch", f"batches[{len(found)}]")
        found.append(content[at:end])
        at = end
    return found


def _check(topics: Topics, topic: Topic, place: int, partition: int, batch: memoryview, *, is_repeat: bool) -> Header:
    try:
        return topics.check(topic.name, partition, batch, is_repeat=is_repeat)
    except Exception as error:
        problem = problem_of(error)
        if problem is None or problem.field in {"partition", "topic_name"}:
            raise
        name = "" if problem.field == "records" else f".{problem.field}"
        limit = topic.settings.message_bytes_max if problem.code == "message_too_large" else None
        raise Refused(problem.code, problem.detail, field=f"batches[{place}]{name}", limit=limit) from error


async def _append(topics: Topics, topic: str, partition: int, batch: memoryview, header: Header) -> Appended:
    while True:
        try:
            return topics.append(topic, partition, batch, header)
        except LogBusy:
            await topics.room(topic, partition)
