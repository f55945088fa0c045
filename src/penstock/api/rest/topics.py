"""Topics and consumer groups as resources, for people, the console and the command line.

Programs that produce and consume speak Kafka. Both protocols show the same topics and groups.
"""

from dataclasses import replace
from typing import Annotated
from uuid import UUID

from msgspec import Meta, Struct, json, to_builtins

from penstock.api.rest.errors import Refused
from penstock.api.rest.request import (
    CURSOR_CHARACTERS_MAX,
    Answer,
    Decoder,
    Request,
    cursor_after,
    read_cursor,
)
from penstock.broker.access import Role
from penstock.broker.consumer_groups import GroupNotFound, Lag, assigned_partitions
from penstock.contract.limits import PAGE_MAX
from penstock.contract.topic_settings import TopicSettings, as_said, from_said
from penstock.streams.interface import Partition, Topic, TopicExists
from penstock.wire import topics as wire

_read_create = Decoder(wire.CreateTopic)
_read_change = Decoder(wire.TopicSettings)


class TopicsQuery(Struct, forbid_unknown_fields=True):
    prefix: Annotated[str, Meta(max_length=249)] = ""
    cursor: Annotated[str, Meta(max_length=CURSOR_CHARACTERS_MAX)] = ""
    limit: Annotated[int, Meta(ge=1, le=PAGE_MAX)] = 100


async def create(request: Request) -> Answer:
    asked: wire.CreateTopic = await request.body(_read_create)
    request.caller.check(Role.ADMIN, asked.topic_name)
    settings = _settings_of(asked, TopicSettings())
    if not request.streams.topics.has(asked.topic_name):
        request.streams.topics.check_share(request.caller, settings.partitions)
    try:
        async with request.queues.making_topics(request.caller, [asked.topic_name]) as refused:
            for error in refused.values():
                raise error
            topic = await request.streams.topics.streams.create(asked.topic_name, settings)
    except TopicExists:
        topic = request.streams.topics.streams.find(asked.topic_name)
        if topic.settings != settings:
            raise Refused("topic_exists", f"there is a topic {asked.topic_name} with other settings") from None
        return Answer(_topic_view(request, topic))
    await request.did("topic.create", topic.name, detail=_text(asked))
    return Answer(_topic_view(request, topic), status=201)


async def list_topics(request: Request) -> Answer:
    asked: TopicsQuery = request.query(TopicsQuery)
    after = read_cursor(asked.cursor)
    found = [
        topic
        for topic in request.streams.topics.list()
        if topic.name.startswith(asked.prefix) and topic.name > after and request.caller.may_list(topic.name)
    ]
    page = found[: asked.limit]
    await request.streams.topics.look_at(page)
    more = cursor_after(page[-1].name) if len(found) > len(page) else None
    return Answer(wire.TopicList([_topic_row(topic) for topic in page], more))


async def describe(request: Request) -> Answer:
    name = request.topic(Role.SEE)
    topic = request.streams.topics.streams.find(name)
    await request.streams.topics.look_at([topic])
    return Answer(_topic_view(request, topic))


async def change(request: Request) -> Answer:
    name = request.topic(Role.ADMIN)
    asked: wire.TopicSettings = await request.body(_read_change)
    topics = request.streams.topics
    there = topics.streams.find(name).settings
    settings = _settings_of(asked, there)
    if settings.partitions != there.partitions:
        topics.check_share(request.caller, settings.partitions - there.partitions)
        await topics.streams.grow(name, settings.partitions)
    if settings != topics.streams.find(name).settings:
        await topics.streams.change(name, settings)
    await request.did("topic.change", name, detail=_text(asked))
    return Answer(_topic_view(request, topics.streams.find(name)))


async def delete(request: Request) -> Answer:
    name = request.topic(Role.ADMIN)
    await request.streams.topics.streams.delete(name)
    await request.did("topic.delete", name)
    await request.streams.groups.forget_topic(name)
    return Answer(wire.TopicDeleted(name))


def _text(asked: wire.TopicSettings) -> str:
    return json.encode(asked).decode()


def _settings_of(asked: wire.TopicSettings, start: TopicSettings) -> TopicSettings:
    return replace(start, **from_said(to_builtins(asked)))


def _topic_view(request: Request, topic: Topic) -> wire.TopicView:
    rows = [_partition(index, each) for index, each in enumerate(topic.partitions)]
    return wire.TopicView(
        topic_name=topic.name,
        topic_id=str(UUID(bytes=topic.id)),
        partition_count=len(rows),
        record_count=sum(row.high_watermark - row.start_offset for row in rows),
        size_bytes=sum(row.size_bytes for row in rows),
        kafka=request.streams.kafka,
        **as_said(topic.settings) | {"partitions": rows},
    )


def _topic_row(topic: Topic) -> wire.TopicRow:
    rows = [_partition(index, each) for index, each in enumerate(topic.partitions)]
    count = sum(row.high_watermark - row.start_offset for row in rows)
    return wire.TopicRow(topic.name, len(rows), count, sum(row.size_bytes for row in rows))


def _partition(index: int, found: Partition) -> wire.PartitionView:
    return wire.PartitionView(index, found.start_offset, found.high_watermark, found.size_bytes)


class GroupsQuery(Struct, forbid_unknown_fields=True):
    prefix: Annotated[str, Meta(max_length=255)] = ""
    cursor: Annotated[str, Meta(max_length=CURSOR_CHARACTERS_MAX)] = ""
    limit: Annotated[int, Meta(ge=1, le=PAGE_MAX)] = 100


async def list_groups(request: Request) -> Answer:
    asked: GroupsQuery = request.query(GroupsQuery)
    after = read_cursor(asked.cursor)
    names = [
        each.group
        for each in await request.streams.groups.listed()
        if each.group.startswith(asked.prefix) and each.group > after and request.caller.has(Role.READ, each.group)
    ]
    page = names[: asked.limit]
    rows = [row for name in page if (row := await _group_row(request, name)) is not None]
    return Answer(wire.GroupList(rows, cursor_after(page[-1]) if len(names) > len(page) else None))


async def describe_group(request: Request) -> Answer:
    name = request.group(Role.READ)
    group = await request.streams.groups.describe(name)
    lags = await _lags(request, name)
    members = [
        wire.MemberView(
            each.member_id,
            each.instance_id,
            each.client_id,
            each.client_host,
            # Only the protocol of consumers has an assignment that can be read here.
            [
                wire.Assigned(topic, partition)
                for topic, partition in assigned_partitions(each.assignment) or ()
                if request.caller.may_list(topic)
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
            partitions=[
                wire.LagRow(
                    each.topic,
                    each.partition,
                    each.committed,
                    each.start_offset,
                    each.high_watermark,
                    each.lag,
                    holders.get((each.topic, each.partition)),
                )
                for each in lags
            ],
        )
    )


async def delete_group(request: Request) -> Answer:
    name = request.group(Role.ADMIN)
    await request.streams.groups.coordinator.delete(name)
    await request.did("group.delete", name)
    return Answer(wire.GroupDeleted(name))


async def _lags(request: Request, name: str) -> list[Lag]:
    """Return how far behind a group is in the topics that the caller may see."""
    return [each for each in await request.streams.groups.lag(name) if request.caller.may_list(each.topic)]


async def _group_row(request: Request, name: str) -> wire.GroupRow | None:
    try:
        group = await request.streams.groups.describe(name)
        lags = await _lags(request, name)
    except GroupNotFound:
        # It was deleted after it was listed.
        return None
    return wire.GroupRow(name, group.state.value, len(group.members), sum(each.lag or 0 for each in lags))
