"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup: being a member of a consumer group.

A member changes what others get to read, so it needs the role that leasing needs, on
the name of the group. What it then reads is checked when it fetches.
"""

from kio.schema.errors import ErrorCode

from penstock.api.kafka.calling import Call, Values
from penstock.api.kafka.errors import REFUSALS, code_of_row, group_code_of
from penstock.broker.access import Role
from penstock.broker.consumer_groups import Joined, JoinRequest, Leaver, MemberIdNeeded, SyncRequest

# Since then a client is told its id before it is a member (KIP-394), and what it need not assign (KIP-814).
_ID_FIRST_FROM = 4
_SKIPS_FROM = 9


async def join_group(call: Call) -> Values:
    request = call.request
    try:
        call.check_group(Role.RECEIVE, request.group_id)
        call.service.groups.check_share(call.caller, request.group_id)
        joined = await call.service.groups.join(request.group_id, _join_request(call))
    except REFUSALS as error:
        member_id = error.member_id if isinstance(error, MemberIdNeeded) else request.member_id
        return _not_joined(call, group_code_of(error), member_id)
    return _joined(joined)


def _join_request(call: Call) -> JoinRequest:
    request = call.request
    session_ms: int = request.session_timeout
    return JoinRequest(
        member_id=request.member_id,
        instance_id=getattr(request, "group_instance_id", None),
        client_id=call.client_id,
        client_host=call.client_host,
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=getattr(request, "rebalance_timeout", session_ms),
        protocol_type=request.protocol_type,
        protocols=tuple((each.name, bytes(each.metadata)) for each in request.protocols),
        needs_member_id=call.version >= _ID_FIRST_FROM,
        can_skip_assignment=call.version >= _SKIPS_FROM,
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


def _not_joined(call: Call, error: int, member_id: str) -> Values:
    return {
        "throttle_time": 0,
        "error_code": error,
        "generation_id": -1,
        "protocol_type": None,
        # Null only since version 7.
        "protocol_name": None if call.version >= 7 else "",
        "leader": "",
        "skip_assignment": False,
        "member_id": member_id,
        "members": [],
    }


async def sync_group(call: Call) -> Values:
    request = call.request
    try:
        call.check_group(Role.RECEIVE, request.group_id)
        synced = await call.service.groups.sync(
            request.group_id,
            SyncRequest(
                member_id=request.member_id,
                generation=request.generation_id,
                instance_id=getattr(request, "group_instance_id", None),
                protocol_type=getattr(request, "protocol_type", None),
                protocol=getattr(request, "protocol_name", None),
                assignments={each.member_id: bytes(each.assignment) for each in request.assignments},
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


async def heartbeat(call: Call) -> Values:
    request = call.request
    instance_id = getattr(request, "group_instance_id", None)
    error = 0
    try:
        call.check_group(Role.RECEIVE, request.group_id)
        await call.service.groups.heartbeat(request.group_id, request.member_id, instance_id, request.generation_id)
    except REFUSALS as problem:
        error = group_code_of(problem)
    return {"throttle_time": 0, "error_code": error}


async def newer_heartbeat(call: Call) -> Values:
    """Refuse the newer groups (KIP-848, KIP-932), in words: a client that is not even told so waits for ever."""
    return {
        "throttle_time": 0,
        "error_code": ErrorCode.unsupported_version,
        "error_message": "there are only groups of the classic protocol here: group.protocol=classic",
        "member_id": call.request.member_id,
        "member_epoch": -1,
        "heartbeat_interval": 0,
    }


async def leave_group(call: Call) -> Values:
    request = call.request
    # Since version 3 many may be sent away at once (KIP-345).
    is_alone = not hasattr(request, "members")
    leavers = [
        Leaver(each.member_id, getattr(each, "group_instance_id", None))
        for each in ([request] if is_alone else request.members)
    ]
    try:
        call.check_group(Role.RECEIVE, request.group_id)
        errors = [code_of_row(each) for each in await call.service.groups.leave(request.group_id, leavers)]
    except REFUSALS as problem:
        return {"throttle_time": 0, "error_code": group_code_of(problem), "members": []}
    members = [
        {"member_id": leaver.member_id, "group_instance_id": leaver.instance_id, "error_code": error}
        for leaver, error in zip(leavers, errors, strict=True)
    ]
    return {"throttle_time": 0, "error_code": errors[0] if is_alone else 0, "members": members}
