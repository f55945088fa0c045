"""OffsetCommit, OffsetFetch and OffsetDelete: how far groups have come.

What a client adds to an offset comes back as it was. A group that nobody has heard of
has committed nothing, which is no error: clients begin with this question.
"""

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from penstock.api.kafka.calling import Call, Values
from penstock.api.kafka.errors import REFUSALS, TopicNotAllowed, code_of_row, group_code_of
from penstock.broker.access import Role
from penstock.broker.consumer_groups import Commit, Committed

_FOR_EVER = -1


async def offset_commit(call: Call) -> Values:
    request = call.request
    rows = [
        Commit(
            topic.name,
            part.partition_index,
            part.committed_offset,
            getattr(part, "committed_leader_epoch", -1),
            part.committed_metadata or "",
        )
        for topic in request.topics
        for part in topic.partitions
    ]
    errors = await _commit(call, rows)
    answered = zip(rows, errors, strict=True)
    topics = _by_topic(({"partition_index": row.partition, "error_code": error}, row.topic) for row, error in answered)
    return {"throttle_time": 0, "topics": topics}


async def _commit(call: Call, rows: Sequence[Commit]) -> list[int]:
    """Commit what may be, and return a number for each row."""
    request = call.request
    generation = getattr(request, "generation_id_or_member_epoch", None)
    retention_ms = getattr(request, "retention_time", _FOR_EVER)
    allowed = [row for row in rows if call.caller.has(Role.FETCH, row.topic)]
    try:
        call.check_group(Role.RECEIVE, request.group_id)
        call.service.groups.check_share(call.caller, request.group_id)
        done = await call.service.groups.commit(
            request.group_id,
            allowed,
            member_id=getattr(request, "member_id", ""),
            instance_id=getattr(request, "group_instance_id", None),
            generation=-1 if generation is None else generation,
            retention_ms=None if retention_ms == _FOR_EVER else retention_ms,
        )
    except REFUSALS as error:
        return [group_code_of(error)] * len(rows)
    errors = iter(done)
    refused = TopicNotAllowed()
    return [code_of_row(next(errors) if call.caller.has(Role.FETCH, row.topic) else refused) for row in rows]


async def offset_fetch(call: Call) -> Values:
    request = call.request
    if hasattr(request, "groups"):
        return {
            "throttle_time": 0,
            "groups": [await _fetch(call, each.group_id, each.topics) for each in request.groups],
        }
    return {"throttle_time": 0, **await _fetch(call, request.group_id, request.topics)}


async def _fetch(call: Call, group: str, topics: list[SimpleNamespace] | None) -> Values:
    wanted: Mapping[str, Sequence[int]] | None = None
    if topics is not None:
        wanted = {topic.name: topic.partition_indexes for topic in topics}
    try:
        call.check_group(Role.FETCH, group)
        rows = await call.service.groups.committed(group, wanted)
    except REFUSALS as error:
        return {"group_id": group, "error_code": group_code_of(error), "topics": []}
    if wanted is None:
        rows = [row for row in rows if call.caller.has(Role.FETCH, row.topic)]
    return {"group_id": group, "error_code": 0, "topics": _by_topic((_row(call, row), row.topic) for row in rows)}


def _row(call: Call, row: Committed) -> Values:
    error = 0
    if not call.caller.has(Role.FETCH, row.topic):
        row, error = Committed(row.topic, row.partition), code_of_row(TopicNotAllowed())
    return {
        "partition_index": row.partition,
        "committed_offset": row.offset,
        "committed_leader_epoch": row.leader_epoch,
        "metadata": row.metadata,
        "error_code": error,
    }


async def offset_delete(call: Call) -> Values:
    request = call.request
    rows = [(topic.name, part.partition_index) for topic in request.topics for part in topic.partitions]
    try:
        call.check_group(Role.ADMIN, request.group_id)
        allowed = [row for row in rows if call.caller.has(Role.FETCH, row[0])]
        done = iter(await call.service.groups.forget_offsets(request.group_id, allowed))
    except REFUSALS as problem:
        return {"throttle_time": 0, "error_code": group_code_of(problem), "topics": []}
    if allowed:
        await call.did("group.forget", request.group_id, detail=", ".join(sorted({topic for topic, _ in allowed})))
    refused = TopicNotAllowed()
    answered = ((row, code_of_row(next(done) if call.caller.has(Role.FETCH, row[0]) else refused)) for row in rows)
    topics = _by_topic(({"partition_index": index, "error_code": error}, topic) for (topic, index), error in answered)
    return {"throttle_time": 0, "error_code": 0, "topics": topics}


def _by_topic(rows: Any) -> list[Values]:
    """Return rows as Kafka has them: one entry for each topic, in the order they came."""
    topics: dict[str, list[Values]] = {}
    for row, topic in rows:
        topics.setdefault(topic, []).append(row)
    return [{"name": topic, "partitions": of_topic} for topic, of_topic in topics.items()]
