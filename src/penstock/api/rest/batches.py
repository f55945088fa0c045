"""Record batches over HTTP, as Kafka's producers make them: for programs that have nothing but HTTP.

    POST /api/topics/{topic}/producers                     ids for producers that number what they send
    POST /api/topics/{topic}/records?partitions=0,3        two batches, one after the other

All batches of a request are judged before the first of them is written, so a request that is
refused for what it says has changed nothing. Sequences are judged as Kafka does, but for one
thing: a producer that is not known any more is refused, where Kafka takes whatever it sends.
Whoever retries a batch whose answer was lost says `repeat`.
"""

import struct
from typing import Annotated
from uuid import UUID

from msgspec import Meta, Struct

from penstock.api.rest.calling import Answer, Call
from penstock.api.rest.errors import Refused, bad_field, problem_of
from penstock.api.rest.formats import Decoder
from penstock.broker.access import Role
from penstock.broker.topics import Topics
from penstock.contract.limits import TOPIC_PARTITIONS_MAX
from penstock.log.interface import LogBusy
from penstock.log.record import HEADER_BYTES, LENGTH_FROM, Header
from penstock.streams.partition import Appended
from penstock.streams.topic import Topic
from penstock.wire import topics as wire

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


async def new_producers(call: Call) -> Answer:
    name = call.topic(Role.SEND)
    topic = call.streams.topics.find(name)
    asked: wire.NewProducers = await call.body(_read_producers, may_be_empty=True)
    first = await call.streams.topics.new_producers(asked.count)
    view = wire.ProducersView(
        producer_id=first,
        producer_epoch=0,
        count=asked.count,
        topic_id=str(UUID(bytes=topic.id)),
        partition_count=len(topic.partitions),
        max_message_bytes=topic.settings.message_bytes_max,
    )
    return Answer(view, status=201)


async def produce_batches(call: Call, topic: Topic) -> Answer:
    asked: ProduceQuery = call.query(ProduceQuery)
    partitions = _partitions(asked.partitions)
    batches = _split(memoryview(await call.bytes()))
    if len(batches) != len(partitions):
        raise bad_field(f"there are {len(batches)} batches for {len(partitions)} partitions", "partitions")
    topics = call.streams.topics
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
