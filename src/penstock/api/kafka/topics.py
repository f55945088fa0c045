"""CreateTopics, DeleteTopics, CreatePartitions and DeleteRecords: topics come and go, and so do their beginnings."""

from dataclasses import replace
from types import SimpleNamespace

from kio.schema.errors import ErrorCode

from penstock.api.kafka.configs import described, settings_of
from penstock.api.kafka.errors import REFUSALS, BadAssignment, BadReplication, BadRequest, code_of
from penstock.api.kafka.request import Request, Values, once_each
from penstock.broker.access import Role
from penstock.contract.limits import TOPIC_PARTITIONS_MAX
from penstock.contract.topic_settings import TopicSettings
from penstock.streams.interface import PartitionsCannotShrink, TooManyPartitions, Topic, TopicNotFound, TopicOf

_BY_DEFAULT = -1
_NO_ID = bytes(16)


async def create_topics(request: Request) -> Values:
    """Make topics, all that may be made with one write. A name that is there twice is one row, and not made."""
    asked = once_each(request.body.topics, lambda topic: topic.name)
    settled = {name: _settings(request, name, wanted) for name, wanted in asked.items()}
    # Those beyond the share of the key are refused, after those before them.
    sizes = {name: settings.partitions for name, settings in settled.items() if isinstance(settings, TopicSettings)}
    refusals = request.service.topics.beyond_share(request.caller, list(sizes.values()))
    settled.update({name: refusal for name, refusal in zip(sizes, refusals, strict=True) if refusal is not None})
    good = [(name, settings) for name, settings in settled.items() if isinstance(settings, TopicSettings)]
    made: dict[str, Topic | Exception] = {}
    if not getattr(request.body, "validate_only", False):
        made = dict(zip((name for name, _ in good), await request.create_topics(good), strict=True))
        await request.did("topic.create", *(name for name, topic in made.items() if isinstance(topic, TopicOf)))
    rows = []
    for name, settings in settled.items():
        topic = made.get(name)
        error = topic if isinstance(topic, Exception) else settings
        rows.append(_refused(name, error) if isinstance(error, Exception) else _created(request, name, error, topic))
    return {"throttle_time": 0, "topics": rows}


def _settings(request: Request, name: str, wanted: SimpleNamespace | None) -> TopicSettings | Exception:
    try:
        if wanted is None:
            raise BadRequest(f"the topic {name} is there twice")
        request.check_topic(Role.ADMIN, name)
        said = {config.name: config.value for config in wanted.configs}
        settings = settings_of(said, replace(request.service.topic_defaults, partitions=_partitions(request, wanted)))
        request.service.topics.streams.check_create(name, settings)
    except REFUSALS as error:
        return error
    return settings


def _created(request: Request, name: str, settings: TopicSettings, topic: Topic | Exception | None) -> Values:
    return {
        "name": name,
        "topic_id": topic.id if isinstance(topic, TopicOf) else _NO_ID,
        "error_code": 0,
        "error_message": None,
        "num_partitions": settings.partitions,
        "replication_factor": 1,
        "configs": described(settings, request.service.topic_defaults),
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


def _partitions(request: Request, wanted: SimpleNamespace) -> int:
    """Return how many partitions a new topic is to have."""
    if wanted.assignments:
        _check_assignments(request.node_id, [each.broker_ids for each in wanted.assignments])
        if sorted(each.partition_index for each in wanted.assignments) != [*range(len(wanted.assignments))]:
            raise BadAssignment("partitions are numbered from 0 on, without gaps")
        return len(wanted.assignments)
    if wanted.replication_factor not in (_BY_DEFAULT, 1):
        raise BadReplication(f"a replication factor of {wanted.replication_factor}; there is one broker")
    if wanted.num_partitions == _BY_DEFAULT:
        return request.service.topic_defaults.partitions
    return _checked_count(wanted.num_partitions)


def _checked_count(count: int) -> int:
    if count < 1:
        raise PartitionsCannotShrink(f"{count} partitions; a topic has one at the least")
    if count > TOPIC_PARTITIONS_MAX:
        raise TooManyPartitions(f"{count} partitions; a topic has {TOPIC_PARTITIONS_MAX} at the most")
    return count


def _check_assignments(node_id: int, assignments: list[list[int]]) -> None:
    if any(brokers != [node_id] for brokers in assignments):
        raise BadAssignment(f"every partition has one replica, on the broker {node_id}")


async def delete_topics(request: Request) -> Values:
    """Delete topics. One that is named twice, also if once by its name and once by its id, stays."""
    wanted = getattr(request.body, "topics", None)
    if wanted is None:
        wanted = [SimpleNamespace(name=name, topic_id=_NO_ID) for name in request.body.topic_names]
    asked = once_each(wanted, lambda each: _name_or_id(request, each))
    return {"throttle_time": 0, "responses": [await _delete(request, key, each) for key, each in asked.items()]}


def _name_or_id(request: Request, wanted: SimpleNamespace) -> str | bytes:
    if wanted.name is not None:
        return str(wanted.name)
    try:
        return request.find_by_id(Role.ADMIN, wanted.topic_id).name
    except REFUSALS:
        return bytes(wanted.topic_id)


async def _delete(request: Request, key: str | bytes, wanted: SimpleNamespace | None) -> Values:
    name = key if isinstance(key, str) else None
    topic_id = wanted.topic_id if wanted is not None else key if isinstance(key, bytes) else _NO_ID
    error, message = 0, None
    try:
        if wanted is None:
            raise BadRequest("the topic is there twice")
        if name is None:
            name = request.find_by_id(Role.ADMIN, topic_id).name
        request.check_topic(Role.ADMIN, name)
        await request.service.topics.streams.delete(name)
        await request.did("topic.delete", name)
        await request.service.groups.forget_topic(name)
    except REFUSALS as problem:
        is_by_id = name is None and isinstance(problem, TopicNotFound)
        error, message = ErrorCode.unknown_topic_id if is_by_id else code_of(problem), str(problem)
    return {"name": name, "topic_id": topic_id, "error_code": error, "error_message": message}


async def create_partitions(request: Request) -> Values:
    asked = once_each(request.body.topics, lambda topic: topic.name)
    return {"throttle_time": 0, "results": [await _grow(request, name, topic) for name, topic in asked.items()]}


async def _grow(request: Request, name: str, wanted: SimpleNamespace | None) -> Values:
    error, message = 0, None
    try:
        if wanted is None:
            raise BadRequest(f"the topic {name} is there twice")
        _check_growth(request, wanted)
        if not request.body.validate_only:
            await request.service.topics.streams.grow(name, wanted.count)
            await request.did("topic.change", name, detail=f"{wanted.count} partitions")
    except REFUSALS as problem:
        error, message = code_of(problem), str(problem)
    return {"name": name, "error_code": error, "error_message": message}


def _check_growth(request: Request, wanted: SimpleNamespace) -> None:
    request.check_topic(Role.ADMIN, wanted.name)
    now = len(request.service.topics.streams.find(wanted.name).partitions)
    if _checked_count(wanted.count) <= now:
        raise PartitionsCannotShrink(f"the topic {wanted.name} has {now} partitions already")
    request.service.topics.check_share(request.caller, wanted.count - now)
    if wanted.assignments is not None:
        _check_assignments(request.node_id, [each.broker_ids for each in wanted.assignments])
        if len(wanted.assignments) != wanted.count - now:
            raise BadAssignment(f"{len(wanted.assignments)} assignments for {wanted.count - now} new partitions")


async def delete_records(request: Request) -> Values:
    topics = [
        {"name": topic.name, "partitions": [await _trim(request, topic.name, part) for part in topic.partitions]}
        for topic in request.body.topics
    ]
    return {"throttle_time": 0, "topics": topics}


async def _trim(request: Request, topic: str, part: SimpleNamespace) -> Values:
    error, start_offset = 0, -1
    try:
        request.check_topic(Role.ADMIN, topic)
        start_offset = await request.service.topics.streams.trim(topic, part.partition_index, part.offset)
        await request.did("topic.trim", topic, detail=f"partition {part.partition_index} from {start_offset}")
    except REFUSALS as problem:
        error = code_of(problem)
    return {"partition_index": part.partition_index, "low_watermark": start_offset, "error_code": error}
