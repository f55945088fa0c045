"""What there is, where, how large, and who leads it.

    ApiVersions, Metadata, DescribeCluster, FindCoordinator, DescribeLogDirs        asked by clients
    ElectLeaders, ListPartitionReassignments, DescribeQuorum, DescribeTopicPartitions  asked by tools

One server alone answers every question of where with the address that the client used, or the advertised one: it leads
every partition and always will. Of several servers over a database any serves every partition. The leader that is named
is only to spread the work, so nothing goes wrong when clients know an old one.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from crc32c import crc32c
from kio.schema.errors import ErrorCode

from penstock.api.kafka.errors import REFUSALS, code_of, group_code_of
from penstock.api.kafka.request import CLUSTER_ID, Request, Values, in_turns, on_cluster, on_topic
from penstock.api.kafka.wire.schema import OFFERED
from penstock.broker.access import Role
from penstock.broker.consumer_groups import GroupsStopping, NotCoordinator
from penstock.contract.limits import TOPICS_ASKED_FOR_MAX, TOPICS_AUTO_CREATED_MAX
from penstock.streams.interface import (
    Broker,
    PartitionNotFound,
    TooManyPartitions,
    Topic,
    TopicExists,
    TopicNotFound,
    check_topic_name,
)

_NO_ID = bytes(16)
_TRANSACTION = 1
# What brokers of Kafka agree on among themselves; here there is nothing in it.
_METADATA_TOPIC = "__cluster_metadata"
_PARTITIONS_MAX = 2_000
_NOTHING: Mapping[str, Any] = {"is_internal": False, "partitions": [], "topic_authorized_operations": -(2**31)}
# The one folder of partitions; its path on the machine is not shown.
_FOLDER = "streams"


async def api_versions(request: Request) -> Values:  # noqa: ARG001 - the answer is the same for all.
    return offered(error=0)


def offered(*, error: int) -> Values:
    keys = [{"api_key": key, "min_version": least, "max_version": most} for key, (least, most, _) in OFFERED.items()]
    return {"error_code": error, "api_keys": keys, "throttle_time": 0}


async def metadata(request: Request) -> Values:
    wanted: list[SimpleNamespace] | None = request.body.topics
    brokers = await request.brokers()
    # All topics; the oldest version says so by naming none.
    if wanted is None or (request.version == 0 and not wanted):
        found = await in_turns(_visible(request), lambda topic: _topic(request, topic, brokers))
    else:
        missing = [each.name for each in wanted if each.name is not None and _is_made(request, each.name)]
        refused = await _make(request, list(dict.fromkeys(missing)))
        found = await in_turns(wanted, lambda each: _found(request, each, refused.get(each.name), brokers))
    there = {**_brokers(request, brokers), "cluster_id": CLUSTER_ID}
    return {"throttle_time": 0, "error_code": 0, **there, "topics": found}


async def describe_cluster(request: Request) -> Values:
    return {"throttle_time": 0, "error_code": 0, "cluster_id": CLUSTER_ID, **_brokers(request, await request.brokers())}


def _brokers(request: Request, brokers: Sequence[Broker]) -> Values:
    rows = [
        {"node_id": number, "broker_id": number, "host": host, "port": port, "rack": None, "is_fenced": False}
        for number, host, port in brokers
    ]
    found = {"brokers": rows, "controller_id": min(each.number for each in brokers)}
    if getattr(request.body, "include_cluster_authorized_operations", False):
        return {**found, "cluster_authorized_operations": on_cluster(request.caller)}
    return found


def _visible(request: Request) -> Iterator[Topic]:
    return (topic for topic in request.service.topics.list() if request.caller.has(Role.SEE, topic.name))


def _is_made(request: Request, name: str) -> bool:
    """Whether a requested topic is to be made now."""
    if not request.service.has_auto_create or not getattr(request.body, "allow_auto_topic_creation", True):
        return False
    return request.caller.has(Role.ADMIN, name) and not request.service.topics.has(name)


async def _make(request: Request, names: list[str]) -> dict[str, Exception]:
    """Make topics of these names, as many as one request may have made; return why some were not."""
    topics = request.service.topics
    room = TOPICS_AUTO_CREATED_MAX - len(topics.list()) if names else 0
    if names:
        room = min(room, topics.share_left(request.caller) // request.service.topic_defaults.partitions)
    first = names[: min(TOPICS_ASKED_FOR_MAX, max(0, room))]
    made = await request.create_topics([(name, request.service.topic_defaults) for name in first])
    refused = {name: each for name, each in zip(first, made, strict=True) if isinstance(each, Exception)}
    await request.did("topic.create", *(name for name in first if name not in refused), detail="by being asked for")
    if room <= len(first):
        full = f"there are TOPICS_AUTO_CREATED_MAX ({TOPICS_AUTO_CREATED_MAX}) topics, or all that the key may have"
        refused |= {name: TooManyPartitions(full) for name in names[len(first) :]}
    # Another request may have made it meanwhile. What was left for the next request is not there yet.
    return {name: error for name, error in refused.items() if not isinstance(error, TopicExists)}


def _found(request: Request, wanted: SimpleNamespace, refused: Exception | None, brokers: Sequence[Broker]) -> Values:
    topic_id = getattr(wanted, "topic_id", _NO_ID)
    name: str | None = wanted.name
    try:
        if name is None:
            return _by_id(request, topic_id, brokers)
        request.check_topic(Role.SEE, name)
        # Of a name that no topic can have, this is worth knowing more than that there is none of it.
        check_topic_name(name)
        if refused is not None:
            raise refused
        return _topic(request, request.service.topics.streams.find(name), brokers)
    except REFUSALS as error:
        return _refused(name, topic_id, code_of(error))


def _by_id(request: Request, topic_id: bytes, brokers: Sequence[Broker]) -> Values:
    try:
        return _topic(request, request.find_by_id(Role.SEE, topic_id), brokers)
    except TopicNotFound:
        return _refused(None, topic_id, ErrorCode.unknown_topic_id)


def _topic(request: Request, topic: Topic, brokers: Sequence[Broker]) -> Values:
    found = {
        "error_code": 0,
        "name": topic.name,
        "topic_id": topic.id,
        "is_internal": False,
        "partitions": [partition_row(topic, index, brokers) for index in range(len(topic.partitions))],
    }
    if getattr(request.body, "include_topic_authorized_operations", False):
        return {**found, "topic_authorized_operations": on_topic(request.caller, topic.name)}
    return found


def partition_row(topic: Topic, index: int, brokers: Sequence[Broker]) -> Values:
    # No epoch is said: nothing goes wrong with an old leader, so there is nothing that a client need find out by it.
    leader = leader_of(topic, index, [each.number for each in brokers])
    return {
        "error_code": 0,
        "partition_index": index,
        "leader_id": leader,
        "replica_nodes": [leader],
        "isr_nodes": [leader],
        "offline_replicas": [],
    }


def leader_of(topic: Topic, index: int, numbers: Sequence[int]) -> int:
    """Return the server that is named for a partition: a server that comes or goes moves only its own."""
    if len(numbers) == 1:
        return numbers[0]
    return max(numbers, key=lambda number: (crc32c(b"%d/%d/%d" % (number, topic.number, index)), number))


def _refused(name: str | None, topic_id: bytes, error: int) -> Values:
    return {"error_code": error, "name": name, "topic_id": topic_id, "is_internal": False, "partitions": []}


async def find_coordinator(request: Request) -> Values:
    body: Any = request.body
    kind: int = getattr(body, "key_type", 0)
    if hasattr(body, "coordinator_keys"):
        rows = [await _coordinator(request, key, kind) for key in body.coordinator_keys]
        return {"throttle_time": 0, "coordinators": rows}
    return {"throttle_time": 0, **await _coordinator(request, body.key, kind)}


async def _coordinator(request: Request, key: str, kind: int) -> Values:
    found = Broker(request.node_id, *request.address)
    try:
        # Of transactions too, which are refused by InitProducerId: only there do all clients take no for an answer.
        if kind != _TRANSACTION:
            request.check_group(Role.SEE, key)
            found = await _coordinating(request, key)
    except REFUSALS as error:
        where = {"node_id": -1, "host": "", "port": -1}
        return {**where, "key": key, "error_code": group_code_of(error), "error_message": str(error)}
    where = {"node_id": found.number, "host": found.host, "port": found.port}
    return {**where, "key": key, "error_code": 0, "error_message": None}


async def _coordinating(request: Request, group: str) -> Broker:
    """Return the server that coordinates a group: this one from now on, if none does."""
    here = Broker(request.node_id, *request.address)
    brokers = request.service.brokers
    if brokers is None:
        return here
    try:
        await request.service.groups.coordinator.hold(group)
    except NotCoordinator as error:
        number = brokers.number_of(error.node)
        for each in await brokers.others():
            if each.number == number:
                return each
        raise GroupsStopping(f"the server {error.node} that coordinates the group serves no Kafka clients") from None
    return here


async def describe_log_dirs(request: Request) -> Values:
    asked: list[SimpleNamespace] | None = request.body.topics
    if asked is None:
        found = [(topic, range(len(topic.partitions))) for topic in request.service.topics.list()]
    else:
        found = [
            (topic, each.partitions) for each in asked if (topic := _topic_or_none(request, each.topic)) is not None
        ]
    seen = ((topic, indexes) for topic, indexes in found if request.caller.has(Role.SEE, topic.name))
    counted = list(seen)
    await request.service.topics.look_at(topic for topic, _ in counted)
    topics = await in_turns(counted, lambda each: _size_rows(*each))
    folder = {"error_code": 0, "log_dir": _FOLDER, "topics": topics}
    return {"throttle_time": 0, "error_code": 0, "results": [folder]}


def _topic_or_none(request: Request, name: str) -> Topic | None:
    """Return a topic; what there is not is left out, as by Kafka."""
    try:
        return request.service.topics.streams.find(name)
    except TopicNotFound:
        return None


def _size_rows(topic: Topic, indexes: Iterable[int]) -> Values:
    rows = (_size_row(topic, index) for index in indexes)
    return {"name": topic.name, "partitions": [row for row in rows if row is not None]}


def _size_row(topic: Topic, index: int) -> Values | None:
    try:
        size_bytes = topic.partition(index).size_bytes
    except PartitionNotFound:
        return None
    return {"partition_index": index, "partition_size": size_bytes, "offset_lag": 0, "is_future_key": False}


async def elect_leaders(request: Request) -> Values:
    """Say of each partition that its leader is the right one; of all partitions, by silence, as Kafka."""
    wanted: list[SimpleNamespace] | None = request.body.topic_partitions
    rows = [
        {"topic": each.topic, "partition_result": [_elected(request, each.topic, index) for index in each.partitions]}
        for each in wanted or ()
    ]
    return {"throttle_time": 0, "error_code": 0, "replica_election_results": rows}


def _elected(request: Request, topic: str, partition: int) -> Values:
    try:
        request.check_topic(Role.ADMIN, topic)
        request.service.topics.streams.find(topic).partition(partition)
    except REFUSALS as error:
        return {"partition_id": partition, "error_code": code_of(error), "error_message": str(error)}
    message = "the leader is the only replica, and is there"
    return {"partition_id": partition, "error_code": ErrorCode.election_not_needed, "error_message": message}


async def list_partition_reassignments(request: Request) -> Values:  # noqa: ARG001 - there are none.
    return {"throttle_time": 0, "error_code": 0, "error_message": None, "topics": []}


async def describe_quorum(request: Request) -> Values:
    here = request.node_id
    topics = [
        {
            "topic_name": topic.topic_name,
            "partitions": [_quorum(here, topic.topic_name, each.partition_index) for each in topic.partitions],
        }
        for topic in request.body.topics
    ]
    host, port = request.address
    node = {"node_id": here, "listeners": [{"name": "PLAINTEXT", "host": host, "port": port}]}
    return {"error_code": 0, "error_message": None, "topics": topics, "nodes": [node]}


def _quorum(node_id: int, topic: str, partition: int) -> Values:
    is_known = (topic, partition) == (_METADATA_TOPIC, 0)
    voter = {
        "replica_id": node_id,
        "replica_directory_id": _NO_ID,
        "log_end_offset": 0,
        "last_fetch_timestamp": -1,
        "last_caught_up_timestamp": -1,
    }
    return {
        "partition_index": partition,
        "error_code": 0 if is_known else ErrorCode.unknown_topic_or_partition,
        "error_message": None,
        "leader_id": node_id if is_known else -1,
        "leader_epoch": 0 if is_known else -1,
        "high_watermark": 0 if is_known else -1,
        "current_voters": [voter] if is_known else [],
        "observers": [],
    }


async def describe_topic_partitions(request: Request) -> Values:
    """Describe topics by name, a bounded number of partitions at a time; the cursor says where to go on."""
    cursor = request.body.cursor
    first = ("", 0) if cursor is None else (cursor.topic_name, max(0, cursor.partition_index))
    names = sorted({each.name for each in request.body.topics or _visible(request)})
    left = min(max(1, request.body.response_partition_limit), _PARTITIONS_MAX)
    rows: list[Values] = []
    brokers = await request.brokers()
    for name in names:
        if name < first[0]:
            continue
        if left == 0:
            return _page(rows, name, 0)
        start = first[1] if name == first[0] else 0
        row, count = _described(request, name, range(start, start + left), brokers)
        rows.append(row)
        left -= len(row["partitions"])
        if start + len(row["partitions"]) < count:
            return _page(rows, name, start + len(row["partitions"]))
    return _page(rows, None, 0)


def _page(rows: list[Values], next_topic: str | None, next_partition: int) -> Values:
    cursor = None if next_topic is None else {"topic_name": next_topic, "partition_index": next_partition}
    return {"throttle_time": 0, "topics": rows, "next_cursor": cursor}


def _described(request: Request, name: str, indexes: range, brokers: Sequence[Broker]) -> tuple[Values, int]:
    """Return a topic with some of its partitions, and how many it has."""
    try:
        request.check_topic(Role.SEE, name)
        topic: Topic = request.service.topics.streams.find(name)
    except REFUSALS as error:
        return {"error_code": code_of(error), "name": name, "topic_id": _NO_ID, **_NOTHING}, 0
    count = len(topic.partitions)
    partitions = [
        {**partition_row(topic, index, brokers), "eligible_leader_replicas": None, "last_known_elr": None}
        for index in indexes[: max(0, count - indexes.start)]
    ]
    return {
        "error_code": 0,
        "name": name,
        "topic_id": topic.id,
        "is_internal": False,
        "partitions": partitions,
        "topic_authorized_operations": on_topic(request.caller, name),
    }, count
