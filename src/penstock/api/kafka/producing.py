"""Produce and InitProducerId: records in.

Batches of one request are appended before anything is waited for, and requests of one
connection in their order: so a producer that numbers its batches finds no gap, and many
requests share an fsync.

``acks`` of 1 waits for the disk, too: here there is nothing in between. With 0 there is
no answer, and nobody learns what was refused; Kafka would end the connection, which
tells a producer that something, somewhere, was wrong.
"""

import asyncio
from collections.abc import Generator

from penstock.api.kafka.calling import Call, Service, Values, check_topic, read_in_turns
from penstock.api.kafka.errors import REFUSALS, BadAcks, NoTransactions, code_of
from penstock.api.kafka.wire.produce import Part, ProduceRequest, Row
from penstock.broker.access import Caller, Role
from penstock.log.interface import LogBusy
from penstock.streams.partition import Appended
from penstock.streams.produce_checks import InvalidRecord

_ACKS = (-1, 0, 1)
# Of one batch. Whoever sends a batch of nothing but bad records is told so by these.
_BAD_RECORDS_MAX = 1_000
# What one turn of the loop appends: a few milliseconds.
_TURN_PARTS = 50


async def produce(
    service: Service, caller: Caller, reading: Generator[None, None, ProduceRequest], turn: asyncio.Lock
) -> list[Row] | None:
    """Return what became of each part; None if no answer is wanted.

    ``turn`` is held while parts are read and appended: requests of one connection take it in their order.
    """
    begun: list[Row | tuple[Part, Appended]] = []
    async with turn:
        request = await read_in_turns(reading)
        for part in request.parts:
            begun.append(await _append(service, caller, request, part))
            if len(begun) % _TURN_PARTS == 0:
                await asyncio.sleep(0)
    if request.acks == 0:
        return None
    rows: list[Row] = []
    for each in begun:
        rows.append(each if isinstance(each, Row) else await _settle(service, *each))
        if len(rows) % _TURN_PARTS == 0:
            await asyncio.sleep(0)
    return rows


async def _append(service: Service, caller: Caller, request: ProduceRequest, part: Part) -> Row | tuple[Part, Appended]:
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
                return part, service.topics.append(part.topic, part.partition, part.batches)
            except LogBusy:
                await service.topics.room(part.topic, part.partition)
    except REFUSALS as error:
        return _refused_batch(part, error)


async def _settle(service: Service, part: Part, appended: Appended) -> Row:
    try:
        done = await service.topics.settled(part.topic, part.partition, appended)
    except REFUSALS as error:
        return _refused_batch(part, error)
    return Row(part.topic, part.partition, 0, done.base_offset, done.appended_at_ms, done.start_offset)


def _refused_batch(part: Part, error: Exception) -> Row:
    bad_records = error.indexes[:_BAD_RECORDS_MAX] if isinstance(error, InvalidRecord) else ()
    return Row(part.topic, part.partition, code_of(error), message=str(error), bad_records=bad_records)


async def init_producer_id(call: Call) -> Values:
    try:
        if call.request.transactional_id is not None:
            raise NoTransactions("transactions are not offered by this server")
        producer_id, epoch = await call.service.topics.new_producer()
    except REFUSALS as error:
        return {"throttle_time": 0, "error_code": code_of(error), "producer_id": -1, "producer_epoch": -1}
    return {"throttle_time": 0, "error_code": 0, "producer_id": producer_id, "producer_epoch": epoch}
