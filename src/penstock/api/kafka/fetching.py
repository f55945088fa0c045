"""Fetch, ListOffsets and OffsetForLeaderEpoch: records out, and where they are.

There are no fetch sessions (KIP-227): every answer says session 0, and clients go on
naming all their partitions. Where a fetch names many, rows without news are answered
all the same.
"""

import asyncio
from contextlib import nullcontext
from typing import Any

from kio.schema.errors import ErrorCode

from penstock.api.kafka.calling import Call, Service, Values, check_topic, find_by_id
from penstock.api.kafka.errors import REFUSALS, code_of
from penstock.api.kafka.wire.fetch import FetchRequest, Found, Wanted
from penstock.broker.access import Caller, Role
from penstock.broker.topics import Fetched, FetchOne, TooManyFetches, Topics
from penstock.streams.topic import TopicNotFound

_LATEST, _EARLIEST, _NEWEST, _EARLIEST_HERE = -1, -2, -3, -4
# What one turn of the loop looks at: a few milliseconds.
_TURN_ITEMS = 500
_WAIT_MS_MAX = 5 * 60 * 1_000


async def fetch(service: Service, caller: Caller, request: FetchRequest) -> list[Found]:
    refused: dict[int, Found] = {}
    ones: list[FetchOne] = []
    for place, wanted in enumerate(request.wanted):
        try:
            ones.append(_one(service.topics, caller, wanted))
        except REFUSALS as error:
            refused[place] = Found(wanted.topic, wanted.partition, _code(wanted, error), -1, -1, ())
        if place % _TURN_ITEMS == _TURN_ITEMS - 1:
            await asyncio.sleep(0)
    # A client that asked for something that is not there is told at once.
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


def _one(topics: Topics, caller: Caller, wanted: Wanted) -> FetchOne:
    if isinstance(wanted.topic, str):
        topic = wanted.topic
        check_topic(caller, Role.FETCH, topic)
    else:
        topic = find_by_id(topics, caller, Role.FETCH, wanted.topic).name
    return FetchOne(topic, wanted.partition, wanted.offset, max(0, wanted.bytes_max))


def _found(wanted: Wanted, fetched: Fetched) -> Found:
    error = 0 if fetched.error is None else _code(wanted, fetched.error)
    return Found(wanted.topic, wanted.partition, error, fetched.high_watermark, fetched.start_offset, fetched.batches)


def _code(wanted: Wanted, error: Exception) -> int:
    if isinstance(error, TopicNotFound) and isinstance(wanted.topic, bytes):
        return ErrorCode.unknown_topic_id
    return code_of(error)


async def list_offsets(call: Call) -> Values:
    topics: list[Values] = []
    seen = 0
    for topic in call.request.topics:
        rows = []
        for part in topic.partitions:
            rows.append(await _listed(call, topic.name, part))
            seen += 1
            if seen % _TURN_ITEMS == 0:
                await asyncio.sleep(0)
        topics.append({"name": topic.name, "partitions": rows})
    return {"throttle_time": 0, "topics": topics}


async def _listed(call: Call, topic: str, part: Any) -> Values:
    index: int = part.partition_index
    time_ms: int = part.timestamp
    error, found = 0, (-1, -1)
    try:
        call.check_topic(Role.FETCH, topic)
        found = await _offset_at(call.service.topics, topic, index, time_ms)
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


async def offset_for_leader_epoch(call: Call) -> Values:
    topics = [
        {"topic": topic.topic, "partitions": [_epoch_end(call, topic.topic, part) for part in topic.partitions]}
        for topic in call.request.topics
    ]
    return {"throttle_time": 0, "topics": topics}


def _epoch_end(call: Call, topic: str, part: Any) -> Values:
    index: int = part.partition
    error, found = 0, (-1, -1)
    try:
        call.check_topic(Role.FETCH, topic)
        found = call.service.topics.epoch_end(topic, index, part.leader_epoch)
    except REFUSALS as problem:
        error = code_of(problem)
    return {"partition": index, "error_code": error, "leader_epoch": found[0], "end_offset": found[1]}
