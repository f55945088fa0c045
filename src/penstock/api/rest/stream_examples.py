"""The part of the examples that is about topics and consumer groups, and what an example is."""

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """One request and its answer."""

    # What stands in the path and in the query.
    parameters: dict[str, str] = field(default_factory=lambda: {"queue": "orders"})
    query: dict[str, Any] = field(default_factory=dict)
    body: Any = None
    status: int = 200
    answer: Any = None


_TOPIC = {
    "topic_name": "events",
    "topic_id": "b1d5c3a0-6e1f-4f0e-9a53-0c8f6d2b7e41",
    "partition_count": 2,
    "retention_s": 604_800,
    "retention_bytes": None,
    "segment_bytes": 268_435_456,
    "max_message_bytes": 1_048_588,
    "cleanup": "delete",
    "record_count": 0,
    "size_bytes": 0,
    "kafka": "127.0.0.1:9092",
    "partitions": [
        {"partition": 0, "start_offset": 0, "high_watermark": 0, "size_bytes": 0},
        {"partition": 1, "start_offset": 0, "high_watermark": 0, "size_bytes": 0},
    ],
}
_EVENTS = {"topic": "events"}
_READERS = {"group": "readers"}
_RECORD = {
    "partition": 1,
    "offset": 0,
    "timestamp": "2027-01-31T12:00:00.000Z",
    "value": "placed",
    "key": "order-17",
    "headers": {"source": "shop"},
}

STREAM_EXAMPLES: dict[str, Example] = {
    "create_topic": Example(parameters={}, body={"topic_name": "events", "partitions": 2}, status=201, answer=_TOPIC),
    "list_topics": Example(
        parameters={},
        query={"prefix": "ev", "limit": 10},
        answer={
            "topics": [{"topic_name": "events", "partition_count": 2, "record_count": 0, "size_bytes": 0}],
            "next": None,
        },
    ),
    "get_topic": Example(parameters=_EVENTS, answer=_TOPIC),
    "change_topic": Example(parameters=_EVENTS, body={"retention_s": 86_400}, answer={**_TOPIC, "retention_s": 86_400}),
    "create_producers": Example(
        parameters=_EVENTS,
        body={"count": 1},
        status=201,
        answer={
            "producer_id": 1,
            "producer_epoch": 0,
            "count": 1,
            "topic_id": "b1d5c3a0-6e1f-4f0e-9a53-0c8f6d2b7e41",
            "partition_count": 2,
            "max_message_bytes": 1_048_588,
        },
    ),
    "produce_records": Example(
        parameters=_EVENTS,
        body={
            "records": [
                {"key": "order-17", "value": "placed", "headers": {"source": "shop"}, "partition": 1},
                {"key": "order-17", "value": "paid", "partition": 1},
            ]
        },
        status=201,
        answer={"records": [{"partition": 1, "offset": 0}, {"partition": 1, "offset": 1}]},
    ),
    "browse_records": Example(
        parameters=_EVENTS,
        query={"partition": 1, "offset": 0, "limit": 1},
        answer={"records": [_RECORD], "next": 1, "start_offset": 0, "high_watermark": 2, "unreadable": []},
    ),
    "list_groups": Example(
        parameters={},
        query={"limit": 10},
        answer={"groups": [{"group_name": "readers", "state": "Empty", "member_count": 0, "lag": 1}], "next": None},
    ),
    "get_group": Example(
        parameters=_READERS,
        answer={
            "group_name": "readers",
            "state": "Empty",
            "protocol": "",
            "generation": 0,
            "lag": 1,
            "members": [],
            "partitions": [
                {
                    "topic_name": "events",
                    "partition": 0,
                    "committed": None,
                    "start_offset": 0,
                    "high_watermark": 0,
                    "lag": None,
                    "member_id": None,
                },
                {
                    "topic_name": "events",
                    "partition": 1,
                    "committed": 1,
                    "start_offset": 0,
                    "high_watermark": 2,
                    "lag": 1,
                    "member_id": None,
                },
            ],
        },
    ),
    "delete_group": Example(parameters=_READERS, answer={"group_name": "readers"}),
    "delete_topic": Example(parameters=_EVENTS, answer={"topic_name": "events"}),
}
