"""One client: who it is, and each of its requests to the function that answers it.

    open server     every request is from everybody
    server with keys  ApiVersions, SaslHandshake, SaslAuthenticate ──▶ known ──▶ all others

A key may be revoked or expire, and a server may get its first key, while clients are
connected: a client that is not known any more is cut off at once, even while it waits.
"""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from kio.schema.errors import ErrorCode

from penstock.api.kafka.configs import alter_configs, describe_configs, incremental_alter_configs
from penstock.api.kafka.connection import Connection, ConnectionClosed, Limits, Parts, Shared
from penstock.api.kafka.groups import (
    delete_groups,
    describe_groups,
    heartbeat,
    join_group,
    leave_group,
    list_groups,
    newer_heartbeat,
    offset_commit,
    offset_delete,
    offset_fetch,
    sync_group,
)
from penstock.api.kafka.metadata import (
    api_versions,
    describe_cluster,
    describe_log_dirs,
    describe_quorum,
    describe_topic_partitions,
    elect_leaders,
    find_coordinator,
    list_partition_reassignments,
    metadata,
    offered,
)
from penstock.api.kafka.produce_fetch import fetch, init_producer_id, list_offsets, offset_for_leader_epoch, produce
from penstock.api.kafka.request import Answer, Request, Service, Values, read_in_turns
from penstock.api.kafka.sasl import Login
from penstock.api.kafka.topics import create_partitions, create_topics, delete_records, delete_topics
from penstock.api.kafka.wire.fields import at_once
from penstock.api.kafka.wire.frames import Header
from penstock.api.kafka.wire.produce_fetch import (
    ProducedPartition,
    read_front,
    reading_fetch,
    reading_produce,
    write_fetched,
    write_produced,
)
from penstock.api.kafka.wire.schema import OFFERED, Api, reading_request, response_plan, write_response
from penstock.broker.access import Caller
from penstock.listening.listener import BufferBudget, Listener, listening
from penstock.runtime.interface import LogEventWriter

# Fields, or rows without rows of their own, that are written at once: a millisecond or two.
_TURN_PARTS = 1_000

ANSWERS: dict[int, Answer] = {
    Api.LIST_OFFSETS: list_offsets,
    Api.METADATA: metadata,
    Api.OFFSET_COMMIT: offset_commit,
    Api.OFFSET_FETCH: offset_fetch,
    Api.FIND_COORDINATOR: find_coordinator,
    Api.JOIN_GROUP: join_group,
    Api.HEARTBEAT: heartbeat,
    Api.LEAVE_GROUP: leave_group,
    Api.SYNC_GROUP: sync_group,
    Api.DESCRIBE_GROUPS: describe_groups,
    Api.LIST_GROUPS: list_groups,
    Api.API_VERSIONS: api_versions,
    Api.CREATE_TOPICS: create_topics,
    Api.DELETE_TOPICS: delete_topics,
    Api.DELETE_RECORDS: delete_records,
    Api.INIT_PRODUCER_ID: init_producer_id,
    Api.OFFSET_FOR_LEADER_EPOCH: offset_for_leader_epoch,
    Api.DESCRIBE_CONFIGS: describe_configs,
    Api.ALTER_CONFIGS: alter_configs,
    Api.DESCRIBE_LOG_DIRS: describe_log_dirs,
    Api.CREATE_PARTITIONS: create_partitions,
    Api.DELETE_GROUPS: delete_groups,
    Api.ELECT_LEADERS: elect_leaders,
    Api.INCREMENTAL_ALTER_CONFIGS: incremental_alter_configs,
    Api.LIST_PARTITION_REASSIGNMENTS: list_partition_reassignments,
    Api.OFFSET_DELETE: offset_delete,
    Api.DESCRIBE_QUORUM: describe_quorum,
    Api.DESCRIBE_CLUSTER: describe_cluster,
    Api.CONSUMER_GROUP_HEARTBEAT: newer_heartbeat,
    Api.DESCRIBE_TOPIC_PARTITIONS: describe_topic_partitions,
    Api.SHARE_GROUP_HEARTBEAT: newer_heartbeat,
}

# What is asked often, or by strangers, and names no topic.
_WITHOUT_TOPICS = {Api.API_VERSIONS, Api.HEARTBEAT, Api.JOIN_GROUP, Api.SYNC_GROUP, Api.LEAVE_GROUP}


class Session:
    def __init__(self, service: Service, connection: Connection) -> None:
        self._service = service
        self._connection = connection
        self._here, self._client_host = connection.addresses
        self._login = Login(service.access, is_private=connection.is_private)
        # Held while batches are appended: see `producing`.
        self._turn = asyncio.Lock()
        # Who asked last, and how to stop watching whether they are still let in.
        self._watched: Caller | None = None
        self._stop_watching: Callable[[], None] | None = None

    @property
    def is_stranger(self) -> bool:
        return self._login.caller is None

    async def answer(self, header: Header, frame: memoryview) -> Parts | None:
        if header.key == Api.API_VERSIONS and header.version > OFFERED[Api.API_VERSIONS].most:
            return [write_response(header.key, 0, offered(error=ErrorCode.unsupported_version))]
        if header.key in (Api.SASL_HANDSHAKE, Api.SASL_AUTHENTICATE):
            return self._log_in(header, frame)
        caller = await self._unhurried(len(frame))
        if caller is None and header.key != Api.API_VERSIONS:
            raise ConnectionClosed
        if caller is not self._watched:
            self._watch(caller)
        if header.key == Api.PRODUCE and caller is not None:
            return await self._produce(caller, header, frame)
        if header.key == Api.FETCH and caller is not None:
            return await self._fetch(caller, header, frame)
        return await self._others(caller, header, frame)

    def end(self) -> None:
        self._watch(None)

    def _watch(self, caller: Caller | None) -> None:
        if self._stop_watching is not None:
            self._stop_watching()
        self._watched = caller
        watch = self._service.access.watch
        self._stop_watching = None if caller is None else watch(caller, self._connection.abort)

    def refuse(self, header: Header, front: memoryview) -> Parts | None:
        """Say that a batch is too large, if it is clear which one."""
        if self.is_stranger:
            raise ConnectionClosed
        acks, topic, partition = read_front(header.version, front, header.body)
        message = "the request is larger than request_bytes_max"
        row = ProducedPartition(topic, partition, ErrorCode.message_too_large, message=message)
        return None if acks == 0 else [write_produced(header.version, [row])]

    async def _unhurried(self, size_bytes: int) -> Caller | None:
        """Return the caller once its rate allows the request (KIP-219)."""
        caller = self._login.caller
        if caller is None or caller.rate is None:
            return caller
        access = self._service.access
        while caller is not None and (wait_ms := access.wait_ms(caller)):
            await asyncio.sleep(wait_ms / 1_000)
            # Its key may have ended meanwhile.
            caller = self._login.caller
        if caller is not None:
            access.admit(caller)
            access.charge(caller, size_bytes)
        return caller

    async def _produce(self, caller: Caller, header: Header, frame: memoryview) -> Parts | None:
        reading = reading_produce(header.version, frame, header.body)
        rows = await produce(self._service, caller, reading, self._turn)
        if rows is None:
            return None
        return [write_produced(header.version, rows, throttle_ms=self._service.access.wait_ms(caller))]

    async def _fetch(self, caller: Caller, header: Header, frame: memoryview) -> Parts:
        request = await read_in_turns(reading_fetch(header.version, frame, header.body))
        if request.session_id:
            return write_fetched(header.version, [], error=ErrorCode.fetch_session_id_not_found)
        request = request._replace(bytes_max=min(request.bytes_max, self._connection.fetched_bytes_max))
        found = await fetch(self._service, caller, request)
        access = self._service.access
        access.charge(caller, sum(len(batch) for one in found for batch in one.batches))
        return write_fetched(header.version, found, throttle_ms=access.wait_ms(caller))

    async def _others(self, caller: Caller | None, header: Header, frame: memoryview) -> Parts:
        request = Request(
            self._service,
            caller or NOBODY,
            header.version,
            header.client_id or "",
            self._client_host,
            self._here,
            await read_in_turns(reading_request(header.key, header.version, frame, header.body)),
        )
        if header.key not in _WITHOUT_TOPICS:
            await self._service.topics.refresh()
        values = await ANSWERS[header.key](request)
        if caller is not None and caller.rate is not None and "throttle_time" in values:
            values = {**values, "throttle_time": self._service.access.wait_ms(caller)}
        return [await _written_in_turns(header, values)]

    def _log_in(self, header: Header, frame: memoryview) -> Parts:
        request = at_once(reading_request(header.key, header.version, frame, header.body))
        if header.key == Api.SASL_HANDSHAKE:
            return [write_response(header.key, header.version, self._login.begin(request.mechanism))]
        values = self._login.go_on(bytes(request.auth_bytes))
        parts: Parts = [write_response(header.key, header.version, values)]
        if self._login.has_failed:
            said, source = self._login.user, self._client_host
            self._service.activity.failed_login(via="kafka", said=said, source=source)
            raise ConnectionClosed(parts)
        return parts


async def _written_in_turns(header: Header, values: Values) -> bytes:
    """Write an answer that may have thousands of rows; others have their turn between."""
    parts: list[bytes] = []
    for part in response_plan(header.key, header.version).pieces(values):
        parts.append(part)
        if len(parts) % _TURN_PARTS == 0:
            await asyncio.sleep(0)
    return b"".join(parts)


# A client that only asks what is offered.
NOBODY = Caller("nobody", ())


@asynccontextmanager
async def serving(
    service: Service,
    sockets: Sequence[socket.socket],
    tls: ssl.SSLContext | None,
    limits: Limits,
    log_event: LogEventWriter,
    budget: BufferBudget,
) -> AsyncIterator[Listener[Shared]]:
    """Serve Kafka clients at these sockets until this ends."""
    shared = Shared(lambda connection: Session(service, connection), limits, log_event, budget)
    async with listening(sockets, shared, tls) as listener:
        yield listener
