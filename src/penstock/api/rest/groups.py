"""Consumer groups as a resource: who is in them, and how far behind they are."""

from typing import Annotated

from msgspec import Meta, Struct

from penstock.api.rest.calling import Answer, Call
from penstock.api.rest.cursors import CURSOR_CHARACTERS_MAX, cursor_after, read_cursor
from penstock.broker.access import Role
from penstock.broker.groups import GroupNotFound, Lag, assigned_partitions
from penstock.contract.limits import PAGE_MAX
from penstock.wire import topics as wire


class GroupsQuery(Struct, forbid_unknown_fields=True):
    prefix: Annotated[str, Meta(max_length=255)] = ""
    cursor: Annotated[str, Meta(max_length=CURSOR_CHARACTERS_MAX)] = ""
    limit: Annotated[int, Meta(ge=1, le=PAGE_MAX)] = 100


async def list_groups(call: Call) -> Answer:
    asked: GroupsQuery = call.query(GroupsQuery)
    after = read_cursor(asked.cursor)
    names = [
        each.group
        for each in await call.streams.groups.listed()
        if each.group.startswith(asked.prefix) and each.group > after and call.caller.has(Role.READ, each.group)
    ]
    page = names[: asked.limit]
    rows = [row for name in page if (row := await _row(call, name)) is not None]
    return Answer(wire.GroupList(rows, cursor_after(page[-1]) if len(names) > len(page) else None))


async def describe(call: Call) -> Answer:
    name = call.group(Role.READ)
    group = await call.streams.groups.describe(name)
    lags = await _lags(call, name)
    members = [
        wire.MemberView(
            each.member_id,
            each.instance_id,
            each.client_id,
            each.client_host,
            # What is no consumer's is understood only by those who made it.
            [
                wire.Assigned(topic, partition)
                for topic, partition in assigned_partitions(each.assignment) or ()
                if call.caller.may_list(topic)
            ],
        )
        for each in group.members
    ]
    holders = {(place.topic_name, place.partition): member.member_id for member in members for place in member.assigned}
    return Answer(
        wire.GroupView(
            group_name=name,
            state=group.state.value,
            protocol=group.protocol,
            generation=group.generation,
            lag=sum(each.lag or 0 for each in lags),
            members=members,
            partitions=[_lag(each, holders.get((each.topic, each.partition))) for each in lags],
        )
    )


async def delete(call: Call) -> Answer:
    name = call.group(Role.ADMIN)
    await call.streams.groups.delete(name)
    await call.did("group.delete", name)
    return Answer(wire.GroupDeleted(name))


async def _lags(call: Call, name: str) -> list[Lag]:
    """Return how far behind a group is in the topics that the caller may see."""
    return [each for each in await call.streams.groups.lag(name) if call.caller.may_list(each.topic)]


async def _row(call: Call, name: str) -> wire.GroupRow | None:
    try:
        group = await call.streams.groups.describe(name)
        lags = await _lags(call, name)
    except GroupNotFound:
        # It went between two looks.
        return None
    return wire.GroupRow(name, group.state.value, len(group.members), sum(each.lag or 0 for each in lags))


def _lag(each: Lag, member_id: str | None) -> wire.LagRow:
    return wire.LagRow(
        each.topic, each.partition, each.committed, each.start_offset, each.high_watermark, each.lag, member_id
    )
