"""ElectLeaders, ListPartitionReassignments, DescribeQuorum and DescribeTopicPartitions: what tools ask of a cluster.

There is one broker, which leads every partition and always will. So every answer is
that of a healthy cluster of one: no election is needed, nothing is on its way to another
broker, and the quorum has one voter.
"""

from types import SimpleNamespace

from kio.schema.errors import ErrorCode

from penstock.api.kafka.calling import NODE_ID, Call, Values, on_topic
from penstock.api.kafka.cluster import partition_row
from penstock.api.kafka.errors import REFUSALS, code_of
from penstock.broker.access import Role
from penstock.streams.topic import Topic

# What brokers of Kafka agree on among themselves; here there is nothing in it.
_METADATA_TOPIC = "__cluster_metadata"
_PARTITIONS_MAX = 2_000
_NO_ID = bytes(16)


async def elect_leaders(call: Call) -> Values:
    """Say of each partition that its leader is the right one; of all partitions, by silence, as Kafka."""
    wanted: list[SimpleNamespace] | None = call.request.topic_partitions
    rows = [
        {"topic": each.topic, "partition_result": [_elected(call, each.topic, index) for index in each.partitions]}
        for each in wanted or ()
    ]
    return {"throttle_time": 0, "error_code": 0, "replica_election_results": rows}


def _elected(call: Call, topic: str, partition: int) -> Values:
    try:
        call.check_topic(Role.ADMIN, topic)
        call.service.topics.find(topic).partition(partition)
    except REFUSALS as error:
        return {"partition_id": partition, "error_code": code_of(error), "error_message": str(error)}
    message = "the leader is the only replica, and is there"
    return {"partition_id": partition, "error_code": ErrorCode.election_not_needed, "error_message": message}


async def list_partition_reassignments(call: Call) -> Values:  # noqa: ARG001 - there are none, whoever asks.
    return {"throttle_time": 0, "error_code": 0, "error_message": None, "topics": []}


async def describe_quorum(call: Call) -> Values:
    topics = [
        {
            "topic_name": topic.topic_name,
            "partitions": [_quorum(topic.topic_name, each.partition_index) for each in topic.partitions],
        }
        for topic in call.request.topics
    ]
    host, port = call.address
    node = {"node_id": NODE_ID, "listeners": [{"name": "PLAINTEXT", "host": host, "port": port}]}
    return {"error_code": 0, "error_message": None, "topics": topics, "nodes": [node]}


def _quorum(topic: str, partition: int) -> Values:
    is_known = (topic, partition) == (_METADATA_TOPIC, 0)
    voter = {
        "replica_id": NODE_ID,
        "replica_directory_id": _NO_ID,
        "log_end_offset": 0,
        "last_fetch_timestamp": -1,
        "last_caught_up_timestamp": -1,
    }
    return {
        "partition_index": partition,
        "error_code": 0 if is_known else ErrorCode.unknown_topic_or_partition,
        "error_message": None,
        "leader_id": NODE_ID if is_known else -1,
        "leader_epoch": 0 if is_known else -1,
        "high_watermark": 0 if is_known else -1,
        "current_voters": [voter] if is_known else [],
        "observers": [],
    }


async def describe_topic_partitions(call: Call) -> Values:
    """Describe topics by name, a bounded number of partitions at a time; the cursor says where to go on."""
    cursor = call.request.cursor
    first = ("", 0) if cursor is None else (cursor.topic_name, max(0, cursor.partition_index))
    names = sorted({each.name for each in call.request.topics} or _visible(call))
    left = min(max(1, call.request.response_partition_limit), _PARTITIONS_MAX)
    rows: list[Values] = []
    for name in names:
        if name < first[0]:
            continue
        if left == 0:
            return _page(rows, name, 0)
        start = first[1] if name == first[0] else 0
        row, count = _described(call, name, start, left)
        rows.append(row)
        left -= len(row["partitions"])
        if start + len(row["partitions"]) < count:
            return _page(rows, name, start + len(row["partitions"]))
    return _page(rows, None, 0)


def _page(rows: list[Values], next_topic: str | None, next_partition: int) -> Values:
    cursor = None if next_topic is None else {"topic_name": next_topic, "partition_index": next_partition}
    return {"throttle_time": 0, "topics": rows, "next_cursor": cursor}


def _visible(call: Call) -> set[str]:
    return {topic.name for topic in call.service.topics.list() if call.caller.has(Role.SEE, topic.name)}


def _described(call: Call, name: str, start: int, most: int) -> tuple[Values, int]:
    """Return a topic with some of its partitions, and how many it has."""
    try:
        call.check_topic(Role.SEE, name)
        topic: Topic = call.service.topics.find(name)
    except REFUSALS as error:
        return {"error_code": code_of(error), "name": name, "topic_id": _NO_ID, **_NOTHING}, 0
    count = len(topic.partitions)
    partitions = [
        {**partition_row(index), "eligible_leader_replicas": None, "last_known_elr": None}
        for index in range(start, min(count, start + most))
    ]
    return {
        "error_code": 0,
        "name": name,
        "topic_id": topic.id,
        "is_internal": False,
        "partitions": partitions,
        "topic_authorized_operations": on_topic(call.caller, name),
    }, count


_NOTHING: Values = {"is_internal": False, "partitions": [], "topic_authorized_operations": -(2**31)}
