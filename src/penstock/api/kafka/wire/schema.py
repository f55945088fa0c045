"""Which requests are taken, in which versions, and which fields each version has.

`OFFERED` is what ApiVersions answers, and the tests go through it one by one. The lowest versions are the oldest that
Kafka 4 itself still takes (KIP-896), and a few older ones that clients of today still send, some without asking. The
highest are the newest that are tested. What is not here is not offered: transactions, ACLs, quotas, and requests
between brokers. Of the newer groups (KIP-848, KIP-932) the heartbeats are offered, only so that they can be refused in
words.

The fields come from kio's tables.

A message is read into an object with an attribute for each field that its version has,
and written from a dictionary, of which fields are taken that the version has: one
answer fits every version. Times and durations are milliseconds, errors numbers, ids of
topics sixteen bytes.

A table is made when a version is first asked for: most versions never are. A few that
kio does not have any more, and clients still begin with, are its oldest without the
fields that came with it.
"""

import dataclasses
from collections.abc import Callable, Generator, Iterator, Mapping
from datetime import datetime, timedelta
from enum import IntEnum
from functools import cache
from types import NoneType, SimpleNamespace, UnionType
from typing import Any, NamedTuple, TypeAlias, get_args, get_origin
from uuid import UUID

from kio.index import load_request_schema, load_response_schema

from penstock.api.kafka.wire.fields import Malformed, Reader, array_size, at_once, binary, pack_fields, string, varint

Values = Mapping[str, Any]
# Yields when others should have their turn, and returns what was read.
Reading: TypeAlias = Generator[None, None, Any]
NO_ID = bytes(16)


class Api(IntEnum):
    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_QUORUM = 55
    DESCRIBE_CLUSTER = 60
    CONSUMER_GROUP_HEARTBEAT = 68
    DESCRIBE_TOPIC_PARTITIONS = 75
    SHARE_GROUP_HEARTBEAT = 76


class Offer(NamedTuple):
    """The versions of one request that are taken, and from which on it is flexible."""

    least: int
    most: int
    flexible_from: int


_NEVER = 1_000

OFFERED: dict[int, Offer] = {
    Api.PRODUCE: Offer(3, 12, 9),
    Api.FETCH: Offer(4, 17, 12),
    Api.LIST_OFFSETS: Offer(1, 8, 6),
    Api.METADATA: Offer(0, 13, 9),
    Api.OFFSET_COMMIT: Offer(0, 9, 8),
    Api.OFFSET_FETCH: Offer(1, 9, 6),
    Api.FIND_COORDINATOR: Offer(0, 5, 3),
    Api.JOIN_GROUP: Offer(0, 9, 6),
    Api.HEARTBEAT: Offer(0, 4, 4),
    Api.LEAVE_GROUP: Offer(0, 5, 4),
    Api.SYNC_GROUP: Offer(0, 5, 4),
    Api.DESCRIBE_GROUPS: Offer(0, 6, 5),
    Api.LIST_GROUPS: Offer(0, 5, 3),
    Api.SASL_HANDSHAKE: Offer(1, 1, _NEVER),
    Api.API_VERSIONS: Offer(0, 4, 3),
    Api.CREATE_TOPICS: Offer(0, 7, 5),
    Api.DELETE_TOPICS: Offer(0, 6, 4),
    Api.DELETE_RECORDS: Offer(0, 2, 2),
    Api.INIT_PRODUCER_ID: Offer(0, 5, 2),
    Api.OFFSET_FOR_LEADER_EPOCH: Offer(2, 4, 4),
    Api.DESCRIBE_CONFIGS: Offer(1, 4, 4),
    Api.ALTER_CONFIGS: Offer(0, 2, 2),
    Api.DESCRIBE_LOG_DIRS: Offer(1, 4, 2),
    Api.SASL_AUTHENTICATE: Offer(0, 2, 2),
    Api.CREATE_PARTITIONS: Offer(0, 3, 2),
    Api.DELETE_GROUPS: Offer(0, 2, 2),
    Api.ELECT_LEADERS: Offer(0, 2, 2),
    Api.INCREMENTAL_ALTER_CONFIGS: Offer(0, 1, 1),
    Api.LIST_PARTITION_REASSIGNMENTS: Offer(0, 0, 0),
    Api.OFFSET_DELETE: Offer(0, 0, _NEVER),
    Api.DESCRIBE_QUORUM: Offer(0, 2, 0),
    Api.DESCRIBE_CLUSTER: Offer(0, 2, 0),
    Api.CONSUMER_GROUP_HEARTBEAT: Offer(0, 1, 0),
    Api.DESCRIBE_TOPIC_PARTITIONS: Offer(0, 0, 0),
    Api.SHARE_GROUP_HEARTBEAT: Offer(1, 1, 0),
}


def is_offered(key: int, version: int) -> bool:
    offer = OFFERED.get(key)
    return offer is not None and offer.least <= version <= offer.most


def is_flexible(key: int, version: int) -> bool:
    return version >= OFFERED[key].flexible_from


class Field(NamedTuple):
    name: str
    read: Callable[[Reader], Any]
    write: Callable[[Any], bytes]
    tag: int | None
    default: Any
    # Of an array of structures: how one of them is read and written.
    rows: "Plan | None" = None
    # Of any array: how it is read in turns.
    elements: Callable[[Reader], Reading] | None = None


class Older(NamedTuple):
    """A version from before the oldest that kio has: that one, without some fields, and with one it has no more."""

    oldest: int
    without: frozenset[str] = frozenset()
    # A field, and the one that it comes after.
    added: tuple[str, Field] | None = None


class Plan(NamedTuple):
    """How one structure of one version is read and written."""

    fields: tuple[Field, ...]
    tagged: Mapping[int, Field]
    is_flexible: bool

    def read(self, reader: Reader) -> SimpleNamespace:
        found: SimpleNamespace = at_once(self.reading(reader))
        return found

    def reading(self, reader: Reader) -> Reading:
        found = {}
        for field in self.fields:
            found[field.name] = field.read(reader) if field.elements is None else (yield from field.elements(reader))
        if self.is_flexible:
            for tag, field in self.tagged.items():
                found[field.name] = field.default
                assert tag >= 0
            for tag, inner in reader.tags():
                if tag in self.tagged:
                    found[self.tagged[tag].name] = self.tagged[tag].read(inner)
        return SimpleNamespace(**found)

    def write(self, values: Values) -> bytes:
        return b"".join(self.pieces(values))

    def pieces(self, values: Values) -> Iterator[bytes]:
        """Yield what is written a little at a time, however many rows there are."""
        for field in self.fields:
            value = _value(values, field)
            if field.rows is None or value is None:
                yield field.write(value)
                continue
            yield array_size(len(value), is_flexible=self.is_flexible)
            for row in value:
                yield from field.rows.pieces(row)
        if self.is_flexible:
            yield self._tags(values)

    def _tags(self, values: Values) -> bytes:
        said = [
            (tag, field)
            for tag, field in sorted(self.tagged.items())
            if values.get(field.name, field.default) != field.default
        ]
        parts = [varint(len(said))]
        for tag, field in said:
            data = field.write(values[field.name])
            parts += [varint(tag), varint(len(data)), data]
        return b"".join(parts)


def request_plan(key: int, version: int) -> Plan:
    older = OLDER.get((key, version), Older(version))
    return _plan_of(_request(key, older.oldest), older)


def response_plan(key: int, version: int) -> Plan:
    older = OLDER.get((key, version), Older(version))
    return _plan_of(_response(key, older.oldest), older)


@cache
def _request(key: int, version: int) -> Any:
    return load_request_schema(key, version)


@cache
def _response(key: int, version: int) -> Any:
    return load_response_schema(key, version)


def reading_request(key: int, version: int, view: memoryview, place: int) -> Reading:
    """Read the body of a request; raises `Malformed`."""
    plan = request_plan(key, version)
    return plan.reading(Reader(view, place, is_flexible=plan.is_flexible))


def write_response(key: int, version: int, values: Values) -> bytes:
    return response_plan(key, version).write(values)


def _value(values: Values, field: Field) -> Any:
    if field.name in values:
        return values[field.name]
    if field.default is dataclasses.MISSING:
        raise KeyError(field.name)
    return field.default


@cache
def _plan_of(entity: Any, older: Older) -> Plan:
    is_flexible: bool = entity.__flexible__
    found = [each for each in dataclasses.fields(entity) if each.name not in older.without]
    fields = [_field(each, older, is_flexible=is_flexible) for each in found]
    if older.added is not None:
        after, added = older.added
        fields = [each for field in fields for each in ([field, added] if field.name == after else [field])]
    tagged = {field.tag: field for field in fields if field.tag is not None}
    return Plan(tuple(field for field in fields if field.tag is None), tagged, is_flexible)


def _field(field: "dataclasses.Field[Any]", older: Older, *, is_flexible: bool) -> Field:
    kind, is_nullable = _stripped(field.type)
    tag = field.metadata.get("tag")
    # A tagged field that is null is left out, so where it stands it is none.
    is_nullable = is_nullable and tag is None
    rows: Plan | None = None
    elements = None
    if get_origin(kind) is tuple:
        inner, _ = _stripped(get_args(kind)[0])
        rows = _plan_of(inner, older) if dataclasses.is_dataclass(inner) and tag is None else None  # type: ignore[arg-type]
        one, write_one = _single(inner, field, older, is_flexible=is_flexible)
        elements = _elements(one if rows is None else rows, is_nullable=is_nullable)
        read, write = _array(elements, write_one, is_flexible=is_flexible)
    else:
        read, write = _single(kind, field, older, is_flexible=is_flexible, is_nullable=is_nullable)
    return Field(field.name, read, write, tag, _plain(field.default), rows, elements)


def _stripped(kind: Any) -> tuple[Any, bool]:
    """Return a type without its `| None`, and whether it had one."""
    if get_origin(kind) is not UnionType:
        return kind, False
    return next(each for each in get_args(kind) if each is not NoneType), True


def _single(
    kind: Any,
    field: "dataclasses.Field[Any]",
    older: Older,
    *,
    is_flexible: bool,
    is_nullable: bool = False,
) -> tuple[Callable[[Reader], Any], Callable[[Any], bytes]]:
    if dataclasses.is_dataclass(kind):
        plan: Plan = _plan_of(kind, older)  # type: ignore[arg-type]
        return _nullable_structure(plan) if is_nullable else (plan.read, plan.write)
    name: str = field.metadata["kafka_type"]
    if name == "string":
        read: Callable[[Reader], Any] = Reader.nullable_string if is_nullable else Reader.string
        return read, lambda value: string(value, is_flexible=is_flexible)
    if name in {"bytes", "records"}:
        read = Reader.nullable_bytes if is_nullable else _some_bytes
        return read, lambda value: binary(value, is_flexible=is_flexible)
    return _NUMBERS[name]


def _elements(one: Plan | Callable[[Reader], Any], *, is_nullable: bool) -> Callable[[Reader], Reading]:
    def reading(reader: Reader) -> Reading:
        count = reader.nullable_array() if is_nullable else reader.array()
        if count is None:
            return None
        found = []
        for _ in range(count):
            found.append((yield from one.reading(reader)) if isinstance(one, Plan) else one(reader))
            if reader.is_turn_over():
                yield
        return found

    return reading


def _array(
    elements: Callable[[Reader], Reading], write: Callable[[Any], bytes], *, is_flexible: bool
) -> tuple[Callable[[Reader], Any], Callable[[Any], bytes]]:
    def write_all(values: Any) -> bytes:
        if values is None:
            return array_size(None, is_flexible=is_flexible)
        return array_size(len(values), is_flexible=is_flexible) + b"".join(map(write, values))

    return lambda reader: at_once(elements(reader)), write_all


def _nullable_structure(plan: Plan) -> tuple[Callable[[Reader], Any], Callable[[Any], bytes]]:
    """A structure that may be null has a byte before it (KIP-893)."""
    return (
        lambda reader: plan.read(reader) if reader.int8() >= 0 else None,
        lambda values: b"\xff" if values is None else b"\x01" + plan.write(values),
    )


def _some_bytes(reader: Reader) -> memoryview:
    found = reader.nullable_bytes()
    if found is None:
        raise Malformed("bytes are null that may not be")
    return found


def _number(form: str, read: Callable[[Reader], Any]) -> tuple[Callable[[Reader], Any], Callable[[Any], bytes]]:
    return read, lambda value: pack_fields(form, value)


_NUMBERS = {
    "int8": _number(">b", Reader.int8),
    "int16": _number(">h", Reader.int16),
    "int32": _number(">i", Reader.int32),
    "int64": _number(">q", Reader.int64),
    "uint16": _number(">H", Reader.uint16),
    "uint32": _number(">I", Reader.uint32),
    "float64": _number(">d", Reader.float64),
    "bool": _number(">?", Reader.boolean),
    "error_code": _number(">h", Reader.int16),
    "timedelta_i32": _number(">i", Reader.int32),
    "timedelta_i64": _number(">q", Reader.int64),
    "datetime_i64": _number(">q", Reader.int64),
    "uuid": (Reader.uuid, bytes),
}

OLDER: dict[tuple[int, int], Older] = {
    # Sarama has long committed with version 1, which has a time for each partition.
    (Api.OFFSET_COMMIT, 0): Older(2, frozenset({"generation_id_or_member_epoch", "member_id", "retention_time"})),
    (Api.OFFSET_COMMIT, 1): Older(
        2, frozenset({"retention_time"}), ("committed_offset", Field("committed_at", *_NUMBERS["int64"], None, -1))
    ),
    # Faust makes its topics with version 1, and kafka-go with 0.
    (Api.CREATE_TOPICS, 0): Older(2, frozenset({"throttle_time", "error_message", "validate_only"})),
    (Api.CREATE_TOPICS, 1): Older(2, frozenset({"throttle_time"})),
    (Api.DELETE_TOPICS, 0): Older(1, frozenset({"throttle_time"})),
}


def _plain(default: Any) -> Any:
    """Return a default of kio's in our words."""
    if default is dataclasses.MISSING or default is None or isinstance(default, str | bytes | bool):
        return default
    if isinstance(default, timedelta):
        return round(default.total_seconds() * 1_000)
    if isinstance(default, datetime):
        return round(default.timestamp() * 1_000)
    if isinstance(default, UUID):
        return default.bytes
    if isinstance(default, int):
        return int(default)
    return default
