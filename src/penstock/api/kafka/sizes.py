"""DescribeLogDirs: how much of the disk each partition takes, for those who watch it.

There is one folder, and where it is is nobody's business but its machine's.
"""

from collections.abc import Iterable
from types import SimpleNamespace

from penstock.api.kafka.calling import Call, Values, in_turns
from penstock.broker.access import Role
from penstock.streams.topic import PartitionNotFound, Topic, TopicNotFound

_FOLDER = "streams"


async def describe_log_dirs(call: Call) -> Values:
    asked: list[SimpleNamespace] | None = call.request.topics
    if asked is None:
        found = [(topic, range(len(topic.partitions))) for topic in call.service.topics.list()]
    else:
        found = [(topic, each.partitions) for each in asked if (topic := _found(call, each.topic)) is not None]
    seen = ((topic, indexes) for topic, indexes in found if call.caller.has(Role.SEE, topic.name))
    topics = await in_turns(seen, lambda each: _rows(*each))
    folder = {"error_code": 0, "log_dir": _FOLDER, "topics": topics}
    return {"throttle_time": 0, "error_code": 0, "results": [folder]}


def _found(call: Call, name: str) -> Topic | None:
    """Return a topic; what there is not is left out, as by Kafka."""
    try:
        return call.service.topics.find(name)
    except TopicNotFound:
        return None


def _rows(topic: Topic, indexes: Iterable[int]) -> Values:
    return {"name": topic.name, "partitions": [row for index in indexes if (row := _row(topic, index)) is not None]}


def _row(topic: Topic, index: int) -> Values | None:
    try:
        log = topic.partition(index).log
    except PartitionNotFound:
        return None
    size_bytes = sum(segment.size_bytes for segment in log.segments)
    return {"partition_index": index, "partition_size": size_bytes, "offset_lag": 0, "is_future_key": False}
