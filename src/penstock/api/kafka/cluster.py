"""ApiVersions, Metadata, DescribeCluster, FindCoordinator and DescribeLogDirs: what there is, where, and how large.

There is one broker, so every question of where has one answer: where the client has
found it, or what the server was told to say.
"""

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

from kio.schema.errors import ErrorCode

from penstock.api.kafka.calling import CLUSTER_ID, NODE_ID, Call, Values, in_turns, on_cluster, on_topic
from penstock.api.kafka.errors import REFUSALS, code_of
from penstock.api.kafka.wire.versions import OFFERED
from penstock.broker.access import Role
from penstock.contract.limits import TOPICS_ASKED_FOR_MAX, TOPICS_AUTO_CREATED_MAX
from penstock.streams.topic import (
    PartitionNotFound,
    TooManyPartitions,
    Topic,
    TopicExists,
    TopicNotFound,
    check_topic_name,
)

_NO_ID = bytes(16)
_TRANSACTION = 1
# The one folder of partitions: where it is concerns nobody but its machine.
_FOLDER = "streams"


async def api_versions(call: Call) -> Values:  # noqa: ARG001 - everybody is told the same.
    return offered(error=0)


def offered(*, error: int) -> Values:
    keys = [{"api_key": key, "min_version": least, "max_version": most} for key, (least, most, _) in OFFERED.items()]
    return {"error_code": error, "api_keys": keys, "throttle_time": 0}


async def metadata(call: Call) -> Values:
    wanted = _wanted(call)
    if wanted is None:
        seen = (topic for topic in call.service.topics.list() if call.caller.has(Role.SEE, topic.name))
        found = await in_turns(seen, lambda topic: _topic(call, topic))
    else:
        found = await _find_all(call, wanted)
    return {"throttle_time": 0, "error_code": 0, **_brokers(call), "cluster_id": CLUSTER_ID, "topics": found}


async def describe_cluster(call: Call) -> Values:
    return {"throttle_time": 0, "error_code": 0, "cluster_id": CLUSTER_ID, **_brokers(call)}


def _brokers(call: Call) -> Values:
    host, port = call.address
    broker = {"node_id": NODE_ID, "broker_id": NODE_ID, "host": host, "port": port, "rack": None, "is_fenced": False}
    found = {"brokers": [broker], "controller_id": NODE_ID}
    if getattr(call.request, "include_cluster_authorized_operations", False):
        return {**found, "cluster_authorized_operations": on_cluster(call.caller)}
    return found


def _wanted(call: Call) -> list[SimpleNamespace] | None:
    """Return the topics that are asked for; None for all there are, which the oldest version says by naming none."""
    wanted: list[SimpleNamespace] | None = call.request.topics
    return None if call.version == 0 and not wanted else wanted


async def _find_all(call: Call, wanted: list[SimpleNamespace]) -> list[Values]:
    """Return what is known of topics; those that are not there are made, if they may be."""
    missing = [each.name for each in wanted if each.name is not None and _is_made(call, each.name)]
    refused = await _make(call, list(dict.fromkeys(missing)))
    return await in_turns(wanted, lambda each: _found(call, each, refused.get(each.name)))


def _is_made(call: Call, name: str) -> bool:
    """Whether a topic that is asked for is to be made now."""
    if not call.service.has_auto_create or not getattr(call.request, "allow_auto_topic_creation", True):
        return False
    return call.caller.has(Role.ADMIN, name) and not call.service.topics.has(name)


async def _make(call: Call, names: list[str]) -> dict[str, Exception]:
    """Make topics of these names, as many as one request may have made; return why some were not."""
    topics = call.service.topics
    room = TOPICS_AUTO_CREATED_MAX - len(topics.list()) if names else 0
    if names:
        room = min(room, topics.share_left(call.caller) // call.service.topic_defaults.partitions)
    first = names[: min(TOPICS_ASKED_FOR_MAX, max(0, room))]
    made = await call.create_topics([(name, call.service.topic_defaults) for name in first])
    refused = {name: each for name, each in zip(first, made, strict=True) if isinstance(each, Exception)}
    await call.did("topic.create", *(name for name in first if name not in refused), detail="by being asked for")
    if room <= len(first):
        full = f"there are TOPICS_AUTO_CREATED_MAX ({TOPICS_AUTO_CREATED_MAX}) topics, or all that the key may have"
        refused |= {name: TooManyPartitions(full) for name in names[len(first) :]}
    # Another request may have made it meanwhile. What was left for the next request is not there yet.
    return {name: error for name, error in refused.items() if not isinstance(error, TopicExists)}


def _found(call: Call, wanted: SimpleNamespace, refused: Exception | None) -> Values:
    topic_id = getattr(wanted, "topic_id", _NO_ID)
    name: str | None = wanted.name
    try:
        if name is None:
            return _by_id(call, topic_id)
        call.check_topic(Role.SEE, name)
        # Of a name that no topic can have, this is worth knowing more than that there is none of it.
        check_topic_name(name)
        if refused is not None:
            raise refused
        return _topic(call, call.service.topics.find(name))
    except REFUSALS as error:
        return _refused(name, topic_id, code_of(error))


def _by_id(call: Call, topic_id: bytes) -> Values:
    try:
        return _topic(call, call.find_by_id(Role.SEE, topic_id))
    except TopicNotFound:
        return _refused(None, topic_id, ErrorCode.unknown_topic_id)


def _topic(call: Call, topic: Topic) -> Values:
    found = {
        "error_code": 0,
        "name": topic.name,
        "topic_id": topic.id,
        "is_internal": False,
        "partitions": [partition_row(index) for index in range(len(topic.partitions))],
    }
    if getattr(call.request, "include_topic_authorized_operations", False):
        return {**found, "topic_authorized_operations": on_topic(call.caller, topic.name)}
    return found


def partition_row(index: int) -> Values:
    # No epoch is said: there is one leader, and nothing that a client could find out by asking for its epochs.
    here = [NODE_ID]
    return {
        "error_code": 0,
        "partition_index": index,
        "leader_id": NODE_ID,
        "replica_nodes": here,
        "isr_nodes": here,
        "offline_replicas": [],
    }


def _refused(name: str | None, topic_id: bytes, error: int) -> Values:
    return {"error_code": error, "name": name, "topic_id": topic_id, "is_internal": False, "partitions": []}


async def find_coordinator(call: Call) -> Values:
    request: Any = call.request
    kind: int = getattr(request, "key_type", 0)
    if hasattr(request, "coordinator_keys"):
        return {"throttle_time": 0, "coordinators": [_coordinator(call, key, kind) for key in request.coordinator_keys]}
    return {"throttle_time": 0, **_coordinator(call, request.key, kind)}


def _coordinator(call: Call, key: str, kind: int) -> Values:
    host, port = call.address
    try:
        # Of transactions too, which are refused by InitProducerId: only there do all clients take no for an answer.
        if kind != _TRANSACTION:
            call.check_group(Role.SEE, key)
    except REFUSALS as error:
        where = {"node_id": -1, "host": "", "port": -1}
        return {**where, "key": key, "error_code": code_of(error), "error_message": str(error)}
    return {"key": key, "node_id": NODE_ID, "host": host, "port": port, "error_code": 0, "error_message": None}


async def describe_log_dirs(call: Call) -> Values:
    asked: list[SimpleNamespace] | None = call.request.topics
    if asked is None:
        found = [(topic, range(len(topic.partitions))) for topic in call.service.topics.list()]
    else:
        found = [(topic, each.partitions) for each in asked if (topic := _topic_or_none(call, each.topic)) is not None]
    seen = ((topic, indexes) for topic, indexes in found if call.caller.has(Role.SEE, topic.name))
    topics = await in_turns(seen, lambda each: _size_rows(*each))
    folder = {"error_code": 0, "log_dir": _FOLDER, "topics": topics}
    return {"throttle_time": 0, "error_code": 0, "results": [folder]}


def _topic_or_none(call: Call, name: str) -> Topic | None:
    """Return a topic; what there is not is left out, as by Kafka."""
    try:
        return call.service.topics.find(name)
    except TopicNotFound:
        return None


def _size_rows(topic: Topic, indexes: Iterable[int]) -> Values:
    rows = (_size_row(topic, index) for index in indexes)
    return {"name": topic.name, "partitions": [row for row in rows if row is not None]}


def _size_row(topic: Topic, index: int) -> Values | None:
    try:
        log = topic.partition(index).log
    except PartitionNotFound:
        return None
    size_bytes = sum(segment.size_bytes for segment in log.segments)
    return {"partition_index": index, "partition_size": size_bytes, "offset_lag": 0, "is_future_key": False}
