"""CreateTopics, DeleteTopics, CreatePartitions and DeleteRecords: topics come and go, and so do their beginnings."""

from dataclasses import replace
from types import SimpleNamespace

from kio.schema.errors import ErrorCode

from penstock.api.kafka.calling import NODE_ID, Call, Values
from penstock.api.kafka.configs import described, settings_of
from penstock.api.kafka.errors import REFUSALS, BadAssignment, BadReplication, BadRequest, code_of
from penstock.broker.access import Role
from penstock.core.limits import TOPIC_PARTITIONS_MAX
from penstock.streams.topic import PartitionsCannotShrink, TooManyPartitions, TopicNotFound

_BY_DEFAULT = -1
_NO_ID = bytes(16)


async def create_topics(call: Call) -> Values:
    names = [topic.name for topic in call.request.topics]
    return {
        "throttle_time": 0,
        "topics": [
            await _create(call, topic, is_repeated=names.count(topic.name) > 1) for topic in call.request.topics
        ],
    }


async def _create(call: Call, wanted: SimpleNamespace, *, is_repeated: bool) -> Values:
    topics = call.service.topics
    try:
        if is_repeated:
            raise BadRequest(f"the topic {wanted.name} is there twice")
        call.check_topic(Role.ADMIN, wanted.name)
        said = {config.name: config.value for config in wanted.configs}
        settings = settings_of(said, replace(call.service.topic_defaults, partitions=_partitions(call, wanted)))
        if getattr(call.request, "validate_only", False):
            topics.check_create(wanted.name, settings)
            topic_id = _NO_ID
        else:
            topic_id = (await topics.create(wanted.name, settings)).id
    except REFUSALS as error:
        return _refused(wanted.name, error)
    return {
        "name": wanted.name,
        "topic_id": topic_id,
        "error_code": 0,
        "error_message": None,
        "num_partitions": settings.partitions,
        "replication_factor": 1,
        "configs": described(settings, call.service.topic_defaults),
    }


def _refused(name: str, error: Exception) -> Values:
    return {
        "name": name,
        "topic_id": _NO_ID,
        "error_code": code_of(error),
        "error_message": str(error),
        "num_partitions": -1,
        "replication_factor": -1,
        "configs": [],
    }


def _partitions(call: Call, wanted: SimpleNamespace) -> int:
    """Return how many partitions a new topic is to have."""
    if wanted.assignments:
        _check_assignments([each.broker_ids for each in wanted.assignments])
        if sorted(each.partition_index for each in wanted.assignments) != [*range(len(wanted.assignments))]:
            raise BadAssignment("partitions are numbered from 0 on, without gaps")
        return len(wanted.assignments)
    if wanted.replication_factor not in (_BY_DEFAULT, 1):
        raise BadReplication(f"a replication factor of {wanted.replication_factor}; there is one broker")
    if wanted.num_partitions == _BY_DEFAULT:
        return call.service.topic_defaults.partitions
    return _checked_count(wanted.num_partitions)


def _checked_count(count: int) -> int:
    if count < 1:
        raise PartitionsCannotShrink(f"{count} partitions; a topic has one at the least")
    if count > TOPIC_PARTITIONS_MAX:
        raise TooManyPartitions(f"{count} partitions; a topic has {TOPIC_PARTITIONS_MAX} at the most")
    return count


def _check_assignments(assignments: list[list[int]]) -> None:
    if any(brokers != [NODE_ID] for brokers in assignments):
        raise BadAssignment(f"every partition has one replica, on the broker {NODE_ID}")


async def delete_topics(call: Call) -> Values:
    wanted = getattr(call.request, "topics", None)
    if wanted is None:
        wanted = [SimpleNamespace(name=name, topic_id=_NO_ID) for name in call.request.topic_names]
    return {"throttle_time": 0, "responses": [await _delete(call, each) for each in wanted]}


async def _delete(call: Call, wanted: SimpleNamespace) -> Values:
    name: str | None = wanted.name
    error, message = 0, None
    try:
        if name is None:
            name = call.find_by_id(Role.ADMIN, wanted.topic_id).name
        call.check_topic(Role.ADMIN, name)
        await call.service.topics.delete(name)
        await call.service.groups.forget_topic(name)
    except REFUSALS as problem:
        is_by_id = name is None and isinstance(problem, TopicNotFound)
        error, message = ErrorCode.unknown_topic_id if is_by_id else code_of(problem), str(problem)
    return {"name": name, "topic_id": wanted.topic_id, "error_code": error, "error_message": message}


async def create_partitions(call: Call) -> Values:
    return {"throttle_time": 0, "results": [await _grow(call, topic) for topic in call.request.topics]}


async def _grow(call: Call, wanted: SimpleNamespace) -> Values:
    error, message = 0, None
    try:
        call.check_topic(Role.ADMIN, wanted.name)
        now = len(call.service.topics.find(wanted.name).partitions)
        if _checked_count(wanted.count) <= now:
            raise PartitionsCannotShrink(f"the topic {wanted.name} has {now} partitions already")
        if wanted.assignments is not None:
            _check_assignments([each.broker_ids for each in wanted.assignments])
            if len(wanted.assignments) != wanted.count - now:
                raise BadAssignment(f"{len(wanted.assignments)} assignments for {wanted.count - now} new partitions")
        if not call.request.validate_only:
            await call.service.topics.grow(wanted.name, wanted.count)
    except REFUSALS as problem:
        error, message = code_of(problem), str(problem)
    return {"name": wanted.name, "error_code": error, "error_message": message}


async def delete_records(call: Call) -> Values:
    topics = [
        {"name": topic.name, "partitions": [await _trim(call, topic.name, part) for part in topic.partitions]}
        for topic in call.request.topics
    ]
    return {"throttle_time": 0, "topics": topics}


async def _trim(call: Call, topic: str, part: SimpleNamespace) -> Values:
    error, start_offset = 0, -1
    try:
        call.check_topic(Role.ADMIN, topic)
        start_offset = await call.service.topics.trim(topic, part.partition_index, part.offset)
    except REFUSALS as problem:
        error = code_of(problem)
    return {"partition_index": part.partition_index, "low_watermark": start_offset, "error_code": error}
