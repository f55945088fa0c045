"""Consumer groups: members, their offsets, and groups as seen from outside.

    DescribeGroups, ListGroups, DeleteGroups          from outside
    JoinGroup, SyncGroup, Heartbeat, LeaveGroup       being a member
    OffsetCommit, OffsetFetch, OffsetDelete           how far groups have come

A member changes what others get to read, so it needs the role that leasing needs, on
the name of the group. What it then reads is checked when it fetches.

What a client adds to an offset comes back as it was. A group that is not known has
committed nothing, which is no error: clients begin with this question.
"""

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from kio.schema.errors import ErrorCode

from penstock.api.kafka.errors import REFUSALS, TopicNotAllowed, code_of_row, group_code_of
from penstock.api.kafka.request import Request, Values, on_group
from penstock.broker.access import Role
from penstock.broker.consumer_groups import (
    Commit,
    Committed,
    GroupDescription,
    GroupNotFound,
    GroupState,
    Joined,
    JoinRequest,
    Leaver,
    MemberIdNeeded,
    SyncRequest,
    shown_to,
)

# Since then a group that is not there is an error, and no longer a dead group (KIP-1043).
_NOT_FOUND_FROM = 6
_FOR_EVER = -1
# From these versions on a client gets its id before it is a member (KIP-394), and may skip the assignment (KIP-814).
_ID_FIRST_FROM = 4
_SKIPS_FROM = 9


async def describe_groups(request: Request) -> Values:
    return {"throttle_time": 0, "groups": [await _describe(request, group) for group in request.body.groups]}


async def _describe(request: Request, group: str) -> Values:
    try:
        request.check_group(Role.READ, group)
        found = _described(shown_to(request.caller, await request.service.groups.describe(group)))
    except REFUSALS as error:
        is_dead = isinstance(error, GroupNotFound) and request.version < _NOT_FOUND_FROM
        return {
            "error_code": 0 if is_dead else group_code_of(error),
            "error_message": str(error),
            "group_id": group,
            "group_state": GroupState.DEAD.value,
            "protocol_type": "",
            "protocol_data": "",
            "members": [],
        }
    if getattr(request.body, "include_authorized_operations", False):
        return {**found, "authorized_operations": on_group(request.caller, group)}
    return found


def _described(group: GroupDescription) -> Values:
    members = [
        {
            "member_id": member.member_id,
            "group_instance_id": member.instance_id,
            "client_id": member.client_id,
            "client_host": member.client_host,
            "member_metadata": member.metadata,
            "member_assignment": member.assignment,
        }
        for member in group.members
    ]
    return {
        "error_code": 0,
        "error_message": None,
        "group_id": group.group,
        "group_state": group.state.value,
        "protocol_type": group.protocol_type,
        "protocol_data": group.protocol,
        "members": members,
    }


async def list_groups(request: Request) -> Values:
    wanted = {state.lower() for state in getattr(request.body, "states_filter", ())}
    kinds = {kind.lower() for kind in getattr(request.body, "types_filter", ())}
    states = [state for state in GroupState if state.value.lower() in wanted]
    is_none = (wanted and not states) or (kinds and "classic" not in kinds)
    found = [] if is_none else await request.service.groups.listed(states, is_own=True)
    groups = [
        {
            "group_id": each.group,
            "protocol_type": each.protocol_type,
            "group_state": each.state.value,
            "group_type": each.kind,
        }
        for each in found
        if request.caller.has(Role.READ, each.group)
    ]
    return {"throttle_time": 0, "error_code": 0, "groups": groups}


async def delete_groups(request: Request) -> Values:
    return {"throttle_time": 0, "results": [await _delete(request, group) for group in request.body.groups_names]}


async def _delete(request: Request, group: str) -> Values:
    error = 0
    try:
        request.check_group(Role.ADMIN, group)
        await request.service.groups.coordinator.delete(group)
        await request.did("group.delete", group)
    except REFUSALS as problem:
        error = group_code_of(problem)
    return {"group_id": group, "error_code": error}


async def join_group(request: Request) -> Values:
    body = request.body
    try:
        request.check_group(Role.RECEIVE, body.group_id)
        request.service.groups.check_share(request.caller, body.group_id)
        joined = await request.service.groups.coordinator.join(body.group_id, _join_request(request))
    except REFUSALS as error:
        member_id = error.member_id if isinstance(error, MemberIdNeeded) else body.member_id
        return _not_joined(request, group_code_of(error), member_id)
    return _joined(joined)


def _join_request(request: Request) -> JoinRequest:
    body = request.body
    session_ms: int = body.session_timeout
    return JoinRequest(
        member_id=body.member_id,
        instance_id=getattr(body, "group_instance_id", None),
        client_id=request.client_id,
        client_host=request.client_host,
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=getattr(body, "rebalance_timeout", session_ms),
        protocol_type=body.protocol_type,
        protocols=tuple((each.name, bytes(each.metadata)) for each in body.protocols),
        needs_member_id=request.version >= _ID_FIRST_FROM,
        can_skip_assignment=request.version >= _SKIPS_FROM,
    )


def _joined(joined: Joined) -> Values:
    members = [
        {"member_id": each.member_id, "group_instance_id": each.instance_id, "metadata": each.metadata}
        for each in joined.members
    ]
    return {
        "throttle_time": 0,
        "error_code": 0,
        "generation_id": joined.generation,
        "protocol_type": joined.protocol_type,
        "protocol_name": joined.protocol,
        "leader": joined.leader,
        "skip_assignment": joined.skip_assignment,
        "member_id": joined.member_id,
        "members": members,
    }


def _not_joined(request: Request, error: int, member_id: str) -> Values:
    return {
        "throttle_time": 0,
        "error_code": error,
        "generation_id": -1,
        "protocol_type": None,
        # Null only since version 7.
        "protocol_name": None if request.version >= 7 else "",
        "leader": "",
        "skip_assignment": False,
        "member_id": member_id,
        "members": [],
    }


async def sync_group(request: Request) -> Values:
    body = request.body
    try:
        request.check_group(Role.RECEIVE, body.group_id)
        synced = await request.service.groups.coordinator.sync(
            body.group_id,
            SyncRequest(
                member_id=body.member_id,
                generation=body.generation_id,
                instance_id=getattr(body, "group_instance_id", None),
                protocol_type=getattr(body, "protocol_type", None),
                protocol=getattr(body, "protocol_name", None),
                assignments={each.member_id: bytes(each.assignment) for each in body.assignments},
            ),
        )
    except REFUSALS as error:
        nothing = {"protocol_type": None, "protocol_name": None, "assignment": b""}
        return {"throttle_time": 0, "error_code": group_code_of(error), **nothing}
    return {
        "throttle_time": 0,
        "error_code": 0,
        "protocol_type": synced.protocol_type,
        "protocol_name": synced.protocol,
        "assignment": synced.assignment,
    }


async def heartbeat(request: Request) -> Values:
    body = request.body
    instance_id = getattr(body, "group_instance_id", None)
    error = 0
    try:
        request.check_group(Role.RECEIVE, body.group_id)
        coordinator = request.service.groups.coordinator
        await coordinator.heartbeat(body.group_id, body.member_id, instance_id, body.generation_id)
    except REFUSALS as problem:
        error = group_code_of(problem)
    return {"throttle_time": 0, "error_code": error}


async def newer_heartbeat(request: Request) -> Values:
    """Refuse the newer groups (KIP-848, KIP-932), in words: a client that is not even told so waits for ever."""
    return {
        "throttle_time": 0,
        "error_code": ErrorCode.unsupported_version,
        "error_message": "there are only groups of the classic protocol here: group.protocol=classic",
        "member_id": request.body.member_id,
        "member_epoch": -1,
        "heartbeat_interval": 0,
    }


async def leave_group(request: Request) -> Values:
    body = request.body
    # Since version 3 many may be sent away at once (KIP-345).
    is_alone = not hasattr(body, "members")
    leavers = [
        Leaver(each.member_id, getattr(each, "group_instance_id", None))
        for each in ([body] if is_alone else body.members)
    ]
    try:
        request.check_group(Role.RECEIVE, body.group_id)
        errors = [code_of_row(each) for each in await request.service.groups.coordinator.leave(body.group_id, leavers)]
    except REFUSALS as problem:
        return {"throttle_time": 0, "error_code": group_code_of(problem), "members": []}
    members = [
        {"member_id": leaver.member_id, "group_instance_id": leaver.instance_id, "error_code": error}
        for leaver, error in zip(leavers, errors, strict=True)
    ]
    return {"throttle_time": 0, "error_code": errors[0] if is_alone else 0, "members": members}


async def offset_commit(request: Request) -> Values:
    body = request.body
    rows = [
        Commit(
            topic.name,
            part.partition_index,
            part.committed_offset,
            getattr(part, "committed_leader_epoch", -1),
            part.committed_metadata or "",
        )
        for topic in body.topics
        for part in topic.partitions
    ]
    errors = await _commit(request, rows)
    answered = zip(rows, errors, strict=True)
    topics = _by_topic(({"partition_index": row.partition, "error_code": error}, row.topic) for row, error in answered)
    return {"throttle_time": 0, "topics": topics}


async def _commit(request: Request, rows: Sequence[Commit]) -> list[int]:
    """Commit what may be, and return a number for each row."""
    body = request.body
    generation = getattr(body, "generation_id_or_member_epoch", None)
    retention_ms = getattr(body, "retention_time", _FOR_EVER)
    allowed = [row for row in rows if request.caller.has(Role.FETCH, row.topic)]
    try:
        request.check_group(Role.RECEIVE, body.group_id)
        request.service.groups.check_share(request.caller, body.group_id)
        done = await request.service.groups.commit(
            body.group_id,
            allowed,
            member_id=getattr(body, "member_id", ""),
            instance_id=getattr(body, "group_instance_id", None),
            generation=-1 if generation is None else generation,
            retention_ms=None if retention_ms == _FOR_EVER else retention_ms,
        )
    except REFUSALS as error:
        return [group_code_of(error)] * len(rows)
    errors = iter(done)
    refused = TopicNotAllowed()
    return [code_of_row(next(errors) if request.caller.has(Role.FETCH, row.topic) else refused) for row in rows]


async def offset_fetch(request: Request) -> Values:
    body = request.body
    if hasattr(body, "groups"):
        return {
            "throttle_time": 0,
            "groups": [await _fetch(request, each.group_id, each.topics) for each in body.groups],
        }
    return {"throttle_time": 0, **await _fetch(request, body.group_id, body.topics)}


async def _fetch(request: Request, group: str, topics: list[SimpleNamespace] | None) -> Values:
    wanted: Mapping[str, Sequence[int]] | None = None
    if topics is not None:
        wanted = {topic.name: topic.partition_indexes for topic in topics}
    try:
        request.check_group(Role.FETCH, group)
        rows = await request.service.groups.committed(group, wanted)
    except REFUSALS as error:
        return {"group_id": group, "error_code": group_code_of(error), "topics": []}
    if wanted is None:
        rows = [row for row in rows if request.caller.has(Role.FETCH, row.topic)]
    return {"group_id": group, "error_code": 0, "topics": _by_topic((_row(request, row), row.topic) for row in rows)}


def _row(request: Request, row: Committed) -> Values:
    error = 0
    if not request.caller.has(Role.FETCH, row.topic):
        row, error = Committed(row.topic, row.partition), code_of_row(TopicNotAllowed())
    return {
        "partition_index": row.partition,
        "committed_offset": row.offset,
        "committed_leader_epoch": row.leader_epoch,
        "metadata": row.metadata,
        "error_code": error,
    }


async def offset_delete(request: Request) -> Values:
    body = request.body
    rows = [(topic.name, part.partition_index) for topic in body.topics for part in topic.partitions]
    try:
        request.check_group(Role.ADMIN, body.group_id)
        allowed = [row for row in rows if request.caller.has(Role.FETCH, row[0])]
        done = iter(await request.service.groups.forget_offsets(body.group_id, allowed))
    except REFUSALS as problem:
        return {"throttle_time": 0, "error_code": group_code_of(problem), "topics": []}
    if allowed:
        await request.did("group.forget", body.group_id, detail=", ".join(sorted({topic for topic, _ in allowed})))
    refused = TopicNotAllowed()
    answered = ((row, code_of_row(next(done) if request.caller.has(Role.FETCH, row[0]) else refused)) for row in rows)
    topics = _by_topic(({"partition_index": index, "error_code": error}, topic) for (topic, index), error in answered)
    return {"throttle_time": 0, "error_code": 0, "topics": topics}


def _by_topic(rows: Any) -> list[Values]:
    """Return rows as Kafka has them: one entry for each topic, in the order they came."""
    topics: dict[str, list[Values]] = {}
    for row, topic in rows:
        topics.setdefault(topic, []).append(row)
    return [{"name": topic, "partitions": of_topic} for topic, of_topic in topics.items()]
