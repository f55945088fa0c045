"""What is asked about topics and groups over REST, as calls."""

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from penstock.client.requests import Call, convert, encode_json, get, post, query_of, read_as
from penstock.wire.topics import (
    CreateTopic,
    GroupDeleted,
    GroupList,
    GroupView,
    NewRecords,
    Produced,
    RecordPage,
    TopicDeleted,
    TopicList,
    TopicSettings,
    TopicView,
)

PAGE_MAX = 1_000
_JSON = (("content-type", "application/json"),)


def create_topic(name: str, settings: dict[str, Any]) -> Call[TopicView]:
    """Making a topic twice is making it once, if the settings are equal."""
    return post("/api/topics", convert({"topic_name": name, **settings}, CreateTopic), TopicView, is_repeatable=True)


def list_topics(prefix: str, cursor: str) -> Call[TopicList]:
    return get("/api/topics" + query_of(prefix=prefix or None, cursor=cursor or None, limit=PAGE_MAX), TopicList)


def describe_topic(name: str) -> Call[TopicView]:
    return get(_topic(name), TopicView)


def change_topic(name: str, settings: dict[str, Any]) -> Call[TopicView]:
    body = encode_json(convert(settings, TopicSettings))
    return Call("PATCH", _topic(name), read_as(TopicView), True, _JSON, body)


def delete_topic(name: str) -> Call[TopicDeleted]:
    return Call("DELETE", _topic(name), read_as(TopicDeleted), False)


def produce(name: str, records: Sequence[dict[str, Any]]) -> Call[Produced]:
    """A few records, by hand. It is not repeated: they would be there twice."""
    return post(_topic(name) + "/records", convert({"records": list(records)}, NewRecords), Produced)


def browse(name: str, *, partition: int, offset: int | None, since: str | None, limit: int) -> Call[RecordPage]:
    query = query_of(partition=partition, offset=offset, since=since, limit=limit)
    return get(_topic(name) + "/records" + query, RecordPage)


def list_groups(prefix: str, cursor: str) -> Call[GroupList]:
    return get("/api/groups" + query_of(prefix=prefix or None, cursor=cursor or None, limit=PAGE_MAX), GroupList)


def describe_group(name: str) -> Call[GroupView]:
    return get(_group(name), GroupView)


def delete_group(name: str) -> Call[GroupDeleted]:
    return Call("DELETE", _group(name), read_as(GroupDeleted), False)


def _topic(name: str) -> str:
    return "/api/topics/" + quote(name, safe="")


def _group(name: str) -> str:
    return "/api/groups/" + quote(name, safe="")
