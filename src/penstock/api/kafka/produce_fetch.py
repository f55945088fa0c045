"""Records in and out: Produce, InitProducerId, Fetch, ListOffsets and OffsetForLeaderEpoch.

Batches of one request are appended before anything is waited for, and requests of one
connection in their order: so a producer that numbers its batches finds no gap, and many
requests share an fsync.

``acks`` of 1 waits for the disk, too: here there is nothing in between. With 0 there is
no answer, so no client learns what was refused; Kafka would end the connection, which
tells a producer that something, somewhere, was wrong.

There are no fetch sessions (KIP-227): every answer says session 0, and clients go on
naming all their partitions. Where a fetch names many, rows without news are answered
all the same.
"""

import asyncio
from collections.abc import Generator, Sequence
from contextlib import nullcontext
from typing import Any

from kio.schema.errors import ErrorCode

from penstock.api.kafka.errors import REFUSALS, BadAcks, NoTransactions, code_of
from penstock.api.kafka.request import Request, Service, Values, check_topic, find_by_id, read_in_turns
from penstock.api.kafka.wire.produce_fetch import (
    FetchedPartition,
    FetchPartition,
    FetchRequest,
    ProducedPartition,
    ProducePartition,
    ProduceRequest,
)
from penstock.broker.access import Caller, Role
from penstock.broker.topics import Fetched, FetchOne, TooManyFetches, Topics
from penstock.log.interface import LogBusy
from penstock.streams.interface import Appended, PartitionNotFound, TopicNotFound
from penstock.streams.produce_checks import InvalidRecord

_ACKS = (-1, 0, 1)
# Of one batch.
_BAD_RECORDS_MAX = 1_000
# What one turn of the loop appends, and looks at: a few milliseconds.
_TURN_PARTS = 50
_TURN_ITEMS = 500
_LATEST, _EARLIEST, _NEWEST, _EARLIEST_HERE = -1, -2, -3, -4
_WAIT_MS_MAX = 5 * 60 * 1_000


async def produce(
    service: Service, caller: Caller, reading: Generator[None, None, ProduceRequest], turn: asyncio.Lock
) -> list[ProducedPartition] | None:
    """Return what became of each part; None if no answer is wanted.

    ``turn`` is held while parts are read and appended: requests of one connection take it in their order.
    """
    begun: list[ProducedPartition | tuple[ProducePartition, Appended]] = []
    async with turn:
        request = await read_in_turns(reading)
        await _refresh_for(service.topics, request.parts)
        for part in request.parts:
            begun.append(await _append(service, caller, request, part))
            if len(begun) % _TURN_PARTS == 0:
                await asyncio.sleep(0)
    if request.acks == 0:
        return None
    rows: list[ProducedPartition] = []
    for each in begun:
        rows.append(each if isinstance(each, ProducedPartition) else await _settle(service, *each))
        if len(rows) % _TURN_PARTS == 0:
            await asyncio.sleep(0)
    return rows


async def _append(
    service: Service, caller: Caller, request: ProduceRequest, part: ProducePartition
) -> ProducedPartition | tuple[ProducePartition, Appended]:
    try:
        if request.transactional_id is not None:
            raise NoTransactions("transactions are not offered by this server")
        if request.acks not in _ACKS:
            raise BadAcks(f"acks is {request.acks}; it must be -1, 0 or 1")
        check_topic(caller, Role.SEND, part.topic)
        if not part.batches:
            raise InvalidRecord("there is no record batch")
        while True:
            try:
                return part, service.topics.append(part.topic, part.partition, part.batches, acks=request.acks)
            except LogBusy:
                await service.topics.room(part.topic, part.partition)
    except REFUSALS as error:
        return _refused_batch(part, error)


async def _settle(service: Service, part: ProducePartition, appended: Appended) -> ProducedPartition:
    try:
        done = await service.topics.settled(part.topic, part.partition, appended)
    except REFUSALS as error:
        return _refused_batch(part, error)
    return ProducedPartition(part.topic, part.partition, 0, done.base_offset, done.appended_at_ms, done.start_offset)


def _refused_batch(part: ProducePartition, error: Exception) -> ProducedPartition:
    bad_records = error.indexes[:_BAD_RECORDS_MAX] if isinstance(error, InvalidRecord) else ()
    return ProducedPartition(part.topic, part.partition, code_of(error), message=str(error), bad_records=bad_records)


async def init_producer_id(request: Request) -> Values:
    try:
        if request.body.transactional_id is not None:
            raise NoTransactions("transactions are not offered by this server")
        producer_id, epoch = await request.service.topics.streams.new_producer(), 0
    except REFUSALS as error:
        return {"throttle_time": 0, "error_code": code_of(error), "producer_id": -1, "producer_epoch": -1}
    return {"throttle_time": 0, "error_code": 0, "producer_id": producer_id, "producer_epoch": epoch}


async def fetch(service: Service, caller: Caller, request: FetchRequest) -> list[FetchedPartition]:
    await _refresh_for(service.topics, request.wanted)
    refused: dict[int, FetchedPartition] = {}
    ones: list[FetchOne] = []
    for place, wanted in enumerate(request.wanted):
        try:
            ones.append(_one(service.topics, caller, wanted))
        except REFUSALS as error:
            refused[place] = FetchedPartition(wanted.topic, wanted.partition, _code(wanted, error), -1, -1, ())
        if place % _TURN_ITEMS == _TURN_ITEMS - 1:
            await asyncio.sleep(0)
    # A request for something that is not there is answered at once.
    wait_ms = 0 if refused else request.wait_ms
    fetched = iter(await _fetched(service.topics, caller, ones, request, wait_ms=wait_ms))
    return [
        refused[place] if place in refused else _found(wanted, next(fetched))
        for place, wanted in enumerate(request.wanted)
    ]


async def _fetched(
    topics: Topics, caller: Caller, ones: list[FetchOne], request: FetchRequest, *, wait_ms: int
) -> list[Fetched]:
    bounds = {"bytes_max": max(0, request.bytes_max), "bytes_min": max(0, request.bytes_min)}
    try:
        with topics.fetches.one(caller) if wait_ms > 0 else nullcontext():
            return await topics.fetch(ones, **bounds, wait_ms=min(max(0, wait_ms), _WAIT_MS_MAX))
    except TooManyFetches:
        return await topics.fetch(ones, **bounds, wait_ms=0)


async def _refresh_for(topics: Topics, named: Sequence[ProducePartition | FetchPartition]) -> None:
    """Another server may have made what is not known here."""
    try:
        for each in named:
            name = each.topic
            found = topics.streams.find(name) if isinstance(name, str) else topics.streams.find_by_id(name)
            found.partition(each.partition)
    except (TopicNotFound, PartitionNotFound):
        await topics.refresh()


def _one(topics: Topics, caller: Caller, wanted: FetchPartition) -> FetchOne:
    if isinstance(wanted.topic, str):
        topic = wanted.topic
        check_topic(caller, Role.FETCH, topic)
    else:
        topic = find_by_id(topics, caller, Role.FETCH, wanted.topic).name
    return FetchOne(topic, wanted.partition, wanted.offset, max(0, wanted.bytes_max))


def _found(wanted: FetchPartition, fetched: Fetched) -> FetchedPartition:
    error = 0 if fetched.error is None else _code(wanted, fetched.error)
    ends = fetched.high_watermark, fetched.start_offset
    return FetchedPartition(wanted.topic, wanted.partition, error, *ends, fetched.batches)


def _code(wanted: FetchPartition, error: Exception) -> int:
    if isinstance(error, TopicNotFound) and isinstance(wanted.topic, bytes):
        return ErrorCode.unknown_topic_id
    return code_of(error)


async def list_offsets(request: Request) -> Values:
    asked = request.body.topics
    places = ((topic.name, part.partition_index) for topic in asked for part in topic.partitions)
    await request.service.topics.look(places)
    topics: list[Values] = []
    seen = 0
    for topic in asked:
        rows = []
        for part in topic.partitions:
            rows.append(await _listed(request, topic.name, part))
            seen += 1
            if seen % _TURN_ITEMS == 0:
                await asyncio.sleep(0)
        topics.append({"name": topic.name, "partitions": rows})
    return {"throttle_time": 0, "topics": topics}


async def _listed(request: Request, topic: str, part: Any) -> Values:
    index: int = part.partition_index
    time_ms: int = part.timestamp
    error, found = 0, (-1, -1)
    try:
        request.check_topic(Role.FETCH, topic)
        found = await _offset_at(request.service.topics, topic, index, time_ms)
    except REFUSALS as problem:
        error = code_of(problem)
    return {"partition_index": index, "error_code": error, "timestamp": found[1], "offset": found[0]}


async def _offset_at(topics: Topics, topic: str, partition: int, time_ms: int) -> tuple[int, int]:
    """Return an offset and, if it was asked for by time, the time of its record; -1 for what there is not."""
    if time_ms == _LATEST:
        return topics.latest(topic, partition), -1
    if time_ms in (_EARLIEST, _EARLIEST_HERE):
        return topics.earliest(topic, partition), -1
    if time_ms == _NEWEST:
        found = await topics.max_timestamp(topic, partition)
    else:
        found = await topics.offset_at(topic, partition, max(0, time_ms))
    return found or (-1, -1)


async def offset_for_leader_epoch(request: Request) -> Values:
    topics = [
        {"topic": topic.topic, "partitions": [_epoch_end(request, topic.topic, part) for part in topic.partitions]}
        for topic in request.body.topics
    ]
    return {"throttle_time": 0, "topics": topics}


def _epoch_end(request: Request, topic: str, part: Any) -> Values:
    index: int = part.partition
    error, found = 0, (-1, -1)
    try:
        request.check_topic(Role.FETCH, topic)
        found = request.service.topics.epoch_end(topic, index, part.leader_epoch)
    except REFUSALS as problem:
        error = code_of(problem)
    return {"partition": index, "error_code": error, "leader_epoch": found[0], "end_offset": found[1]}
