"""Where a consumer group goes on: set back or forth for all partitions of a topic, with a look before.

A group with members moves itself: its offsets are set while it has none, as Kafka's own tools do.
"""

from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from penstock.api.rest.errors import Refused, bad_field
from penstock.api.rest.request import Answer, Decoder, Request, read_instant
from penstock.broker.access import Role
from penstock.broker.consumer_groups import Commit, GroupNotEmpty, GroupNotFound
from penstock.contract.limits import OFFSET_MAX, TOPIC_PARTITIONS_MAX
from penstock.wire.names import TopicName


class ResetOffsets(Struct, forbid_unknown_fields=True, kw_only=True):
    group: Annotated[str, Meta(min_length=1, max_length=255)]
    topic: TopicName
    to: Literal["earliest", "latest", "time", "offset", "shift"]
    # An instant for `time`, an offset for `offset`, a number of records for `shift`.
    value: str | int | float | UnsetType = UNSET
    partitions: Annotated[list[Annotated[int, Meta(ge=0)]], Meta(max_length=TOPIC_PARTITIONS_MAX)] | UnsetType = UNSET
    dry_run: bool = True


_read = Decoder(ResetOffsets)


async def reset_offsets(request: Request) -> Answer:
    """Say where a group would go on, or let it."""
    asked: ResetOffsets = await request.body(_read)
    group = asked.group
    request.caller.check(Role.RECEIVE, group)
    request.caller.check(Role.FETCH, asked.topic)
    streams = request.streams
    # Other servers may have made the topic, or added to it.
    await streams.topics.refresh()
    topic = streams.topics.streams.find(asked.topic)
    await streams.topics.look_at([topic])
    try:
        described = await streams.groups.describe(group)
        has_members = bool(described.members)
    except GroupNotFound:
        has_members = False
    if has_members and not asked.dry_run:
        raise GroupNotEmpty(f"the group {group!r} has members; stop its consumers, and set its offsets then")
    chosen = range(len(topic.partitions)) if isinstance(asked.partitions, UnsetType) else asked.partitions
    await streams.groups.coordinator.hold(group, takes_over=not has_members)
    before = await streams.groups.committed(group, {asked.topic: list(chosen)})
    rows, commits = [], []
    for there in before:
        ends = streams.topics.ends(asked.topic, there.partition)
        if ends is None:
            raise Refused("partition_not_found", f"there is no partition {there.partition}", field="partitions")
        old = None if there.offset < 0 else there.offset
        new = await _wanted(request, asked, there.partition, old, ends)
        commits.append(Commit(asked.topic, there.partition, new))
        rows.append(
            {
                "partition": there.partition,
                "from": old,
                "to": new,
                "lag_before": None if old is None else max(0, ends[1] - max(old, ends[0])),
                "lag_after": ends[1] - new,
            }
        )
    if not asked.dry_run:
        for refusal in await streams.groups.commit(group, commits):
            if refusal is not None:
                raise refusal
        said = f"{asked.topic} to {asked.to}" + ("" if isinstance(asked.value, UnsetType) else f" {asked.value}")
        await request.did("group.reset_offsets", group, detail=said)
    return Answer(
        {"group": group, "topic": asked.topic, "dry_run": asked.dry_run, "partitions": rows, "has_members": has_members}
    )


async def _wanted(request: Request, asked: ResetOffsets, partition: int, old: int | None, ends: tuple[int, int]) -> int:
    """Return the offset for a partition, which is one that it has, or its end."""
    start, end = ends
    if asked.to == "earliest":
        return start
    if asked.to == "latest":
        return end
    if isinstance(asked.value, UnsetType):
        raise bad_field(f"to is {asked.to}; give `value`, too", "value")
    if asked.to == "time":
        at_ms = read_instant(asked.value, "value")
        found = await request.streams.topics.offset_at(asked.topic, partition, at_ms)
        return end if found is None else min(end, found[0])
    if not isinstance(asked.value, int) or abs(asked.value) > OFFSET_MAX:
        raise bad_field(f"value is a whole number of records, up to {OFFSET_MAX}", "value", OFFSET_MAX)
    wanted = asked.value if asked.to == "offset" else (start if old is None else old) + asked.value
    return max(start, min(end, wanted))
