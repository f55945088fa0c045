"""DescribeGroups, ListGroups and DeleteGroups: looking at groups from outside."""

from penstock.api.kafka.calling import Call, Values
from penstock.api.kafka.errors import REFUSALS, group_code_of
from penstock.api.kafka.rights import on_group
from penstock.broker.access import Role
from penstock.broker.consumer_groups import GroupDescription, GroupNotFound, GroupState, shown_to

# Since then a group that is not there is an error, and no longer a dead group (KIP-1043).
_NOT_FOUND_FROM = 6


async def describe_groups(call: Call) -> Values:
    return {"throttle_time": 0, "groups": [await _describe(call, group) for group in call.request.groups]}


async def _describe(call: Call, group: str) -> Values:
    try:
        call.check_group(Role.READ, group)
        found = _described(shown_to(call.caller, await call.service.groups.describe(group)))
    except REFUSALS as error:
        is_dead = isinstance(error, GroupNotFound) and call.version < _NOT_FOUND_FROM
        return {
            "error_code": 0 if is_dead else group_code_of(error),
            "error_message": str(error),
            "group_id": group,
            "group_state": GroupState.DEAD.value,
            "protocol_type": "",
            "protocol_data": "",
            "members": [],
        }
    if getattr(call.request, "include_authorized_operations", False):
        return {**found, "authorized_operations": on_group(call.caller, group)}
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


async def list_groups(call: Call) -> Values:
    wanted = {state.lower() for state in getattr(call.request, "states_filter", ())}
    kinds = {kind.lower() for kind in getattr(call.request, "types_filter", ())}
    states = [state for state in GroupState if state.value.lower() in wanted]
    is_none = (wanted and not states) or (kinds and "classic" not in kinds)
    found = [] if is_none else await call.service.groups.listed(states)
    groups = [
        {
            "group_id": each.group,
            "protocol_type": each.protocol_type,
            "group_state": each.state.value,
            "group_type": each.kind,
        }
        for each in found
        if call.caller.has(Role.READ, each.group)
    ]
    return {"throttle_time": 0, "error_code": 0, "groups": groups}


async def delete_groups(call: Call) -> Values:
    return {"throttle_time": 0, "results": [await _delete(call, group) for group in call.request.groups_names]}


async def _delete(call: Call, group: str) -> Values:
    error = 0
    try:
        call.check_group(Role.ADMIN, group)
        await call.service.groups.delete(group)
        await call.did("group.delete", group)
    except REFUSALS as problem:
        error = group_code_of(problem)
    return {"group_id": group, "error_code": error}
