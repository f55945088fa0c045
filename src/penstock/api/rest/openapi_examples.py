"""Examples of requests and answers, for the OpenAPI document and for `/docs`.

They tell one story, in the order of this file: a queue is created, messages are sent, received and
settled. A test plays the story on a fresh server and compares every answer, so the examples stay
true. Times and receipts differ from run to run.
"""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from penstock.contract.queue_settings import QueueSettings, as_said
from penstock.wire.problems import CODES


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """One request and its answer."""

    # What stands in the path and in the query.
    parameters: dict[str, str] = field(default_factory=lambda: {"queue": "orders"})
    query: dict[str, Any] = field(default_factory=dict)
    body: Any = None
    status: int = 200
    answer: Any = None


class Link(NamedTuple):
    """What can be asked next, and where in this answer its parameters are."""

    target: str
    parameters: dict[str, str]


_RECEIPT = "100000000-7faecdafdc0416b-0"
_TIERS = ("CRITICAL", 7), ("HIGH", 9), ("NORMAL", 13), ("LOW", 21), ("BACKGROUND", 36)
_QUEUE = {
    "queue_id": "q_1",
    "queue_name": "orders",
    "created_at": "2027-01-31T12:00:00.000Z",
    **as_said(QueueSettings(size_max=100_000, lease_ms=60_000, dead_letters="orders.dead")),
    "current_message_count": 0,
    "ready": 0,
    "in_flight": 0,
    "delayed": 0,
    "stuck": 0,
    "stuck_age_s": None,
    "by_tier": [
        {
            "priority": priority,
            "ready": 0,
            "oldest_age_s": None,
            "worst_wait_messages": messages,
            "worst_wait_s": None,
        }
        for priority, messages in _TIERS
    ],
    "totals": {"sent": 0, "received": 0, "acked": 0, "released": 0},
    "dlq_id": None,
}
_DATA = {"order": 7, "total": 19.9}
_ATTRIBUTES = {"content_type": "application/json", "source": "shop"}
_SEEN = {
    "message_id": "1-1",
    "data": _DATA,
    "state": "ready",
    "priority": "HIGH",
    "tier": 1,
    "sent_priority": "HIGH",
    "attributes": _ATTRIBUTES,
    "delivery_count": 0,
    "sent_at": "2027-01-31T12:00:01.000Z",
    "escalated": False,
}
_WAITS = {
    "wait_reason": "none",
    "reason": "It is next: the next lease that reaches its tier takes it.",
    "until": None,
}
_RECEIVED = {
    "message_id": "1-1",
    "receipt": _RECEIPT,
    "data": _DATA,
    "priority": "CRITICAL",
    "tier": 0,
    "attributes": _ATTRIBUTES,
    "delivery_count": 1,
    "sent_at": "2027-01-31T12:00:01.000Z",
    "invisible_until": "2027-01-31T12:01:02.000Z",
}
_SETTLED = {
    "message_id": "1-1",
    "priority": "CRITICAL",
    "sent_priority": "HIGH",
    "sent_at": "2027-01-31T12:00:01.000Z",
    "first_received_at": "2027-01-31T12:00:02.000Z",
    "last_received_at": "2027-01-31T12:00:03.000Z",
    "settled_at": "2027-01-31T12:00:04.000Z",
    "delivery_count": 2,
    "outcome": "acked",
    "last_error": "the payment service is down",
}
_OFFSETS = {"next_offset": 1, "first_kept_offset": 0, "end_offset": 131_072}
_ONE = {"queue": "orders", "message_id": "1-1"}
_DEAD = {"queue": "orders.dead"}
_TASK = {"queue": "orders.dead", "task_id": "r_710b75e24fadc271"}
_BEGUN = {
    "task_id": "r_710b75e24fadc271",
    "state": "running",
    "dead_letter_queue": "orders.dead",
    "dry_run": False,
    "moved": {},
    "moved_total": 0,
    "without_origin": 0,
    "not_allowed": 0,
    "remaining": None,
    "started_at": "2027-01-31T12:05:00.000Z",
    "ended_at": None,
    "error": None,
    "reason": None,
    "sample_message_ids": [],
}
_DONE = {
    **_BEGUN,
    "state": "done",
    "moved": {"orders": 1},
    "moved_total": 1,
    "remaining": 0,
    "ended_at": "2027-01-31T12:05:00.020Z",
    "sample_message_ids": ["1-1"],
}

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

EXAMPLES: dict[str, Example] = {
    "create_queue": Example(
        parameters={},
        body={"queue_name": "orders", "visibility_timeout": 60, "queue_size": 100_000},
        status=201,
        answer=_QUEUE,
    ),
    "list_queues": Example(
        parameters={},
        query={"prefix": "ord", "limit": 10},
        answer={
            "queues": [
                {
                    "queue_id": "q_1",
                    "queue_name": "orders",
                    "current_message_count": 0,
                    "ready": 0,
                    "in_flight": 0,
                    "delayed": 0,
                    "stuck": 0,
                    "paused": False,
                    "oldest_age_s": None,
                    "totals": {"sent": 0, "received": 0, "acked": 0, "released": 0},
                    "dlq_id": None,
                }
            ],
            "next_cursor": None,
        },
    ),
    "get_queue": Example(answer=_QUEUE),
    "change_queue": Example(
        body={"max_deliveries": 8, "retry": {"min_backoff_s": 2}},
        answer={**_QUEUE, "max_deliveries": 8, "retry": {"min_backoff_s": 2, "max_backoff_s": 900, "jitter": True}},
    ),
    "send_messages": Example(
        body={"data": _DATA, "priority": "HIGH", "attributes": {"source": "shop"}},
        status=201,
        answer={"message_id": "1-1"},
    ),
    "peek_messages": Example(
        query={"state": "ready", "priority": "HIGH", "limit": 10}, answer={"messages": [_SEEN], "next_cursor": None}
    ),
    "get_message": Example(parameters=_ONE, answer={**_SEEN, **_WAITS, "escalations": []}),
    "explain_message": Example(
        parameters=_ONE,
        answer={
            "message_id": "1-1",
            "state": "ready",
            **_WAITS,
            "priority": "HIGH",
            "sent_priority": "HIGH",
            "promotions": 0,
            "delivery_count": 0,
            "messages_ahead": 0,
            "worst_wait_messages": 9,
            "worst_wait_s": None,
            "estimated_start": None,
        },
    ),
    "escalate_messages": Example(
        body={"message_ids": ["1-1"], "priority": "CRITICAL", "actor": "ada", "reason": "a customer waits"},
        answer={"moved": ["1-1"], "unchanged": [], "not_pending": [], "unknown": []},
    ),
    "list_escalations": Example(
        query={"limit": 10},
        answer={
            "escalations": [
                {
                    "at": "2027-01-31T12:00:01.500Z",
                    "actor": "everybody (ada)",
                    "reason": "a customer waits",
                    "priority": "CRITICAL",
                    "until": None,
                    "message_ids": ["1-1"],
                }
            ]
        },
    ),
    "receive_messages": Example(query={"wait_s": 20, "visibility_timeout": 60}, answer=_RECEIVED),
    "extend_messages": Example(
        body={"receipts": [_RECEIPT], "visibility_timeout": 120},
        answer={"done": 1, "results": [{"receipt": _RECEIPT, "status": "extended"}]},
    ),
    "release_messages": Example(
        body={"receipts": [_RECEIPT], "error": "the payment service is down", "delay_s": 0},
        answer={"done": 1, "results": [{"receipt": _RECEIPT, "status": "released"}]},
    ),
    "lease_messages": Example(
        body={"limit": 10, "wait_s": 20},
        answer={"messages": [{**_RECEIVED, "delivery_count": 2, "last_error": "the payment service is down"}]},
    ),
    "ack_messages": Example(
        body={"receipts": [_RECEIPT]},
        answer={"done": 1, "results": [{"receipt": _RECEIPT, "status": "acked"}]},
    ),
    "ack_message": Example(
        parameters=_ONE,
        query={"receipt": _RECEIPT},
        answer={"message_id": "1-1", "deleted": True},
    ),
    "begin_redrive": Example(parameters=_DEAD, body={"rate_per_s": 50}, status=202, answer=_BEGUN),
    "get_redrive": Example(parameters=_TASK, answer=_DONE),
    "list_redrives": Example(parameters=_DEAD, answer={"tasks": [_DONE]}),
    "end_redrive": Example(parameters=_TASK, answer=_DONE),
    "requeue_message": Example(
        parameters={**_DEAD, "message_id": "1-1"},
        body={"target_queue": "orders"},
        answer={"message_id": "1-1", "requeued_to": "q_1", "requeued_to_name": "orders"},
    ),
    "read_history": Example(query={"limit": 1}, answer={"rows": [_SETTLED], **_OFFSETS}),
    "list_history_shards": Example(
        parameters={}, answer={"shards": [{"shard": 0, "first_kept_offset": 0, "end_offset": 131_072}]}
    ),
    "read_shard_history": Example(
        parameters={},
        query={"shard": 0, "limit": 1},
        answer={"rows": [{**_SETTLED, "queue": "orders", "queue_id": "q_1", "key": 1, "offset": 0}], **_OFFSETS},
    ),
    "find_history_offset": Example(
        parameters={}, query={"shard": 0, "since": "2020-01-01T00:00:00Z"}, answer={"offset": 0}
    ),
    "trim_history": Example(parameters={}, body={"shard": 0, "before": 0}, answer={"shard": 0, "first_kept_offset": 0}),
    "read_audit_log": Example(
        parameters={},
        query={"action": "history"},
        answer={
            "entries": [
                {
                    "at": "2027-01-31T12:06:00.000Z",
                    "actor": "everybody",
                    "action": "history.trim",
                    "target": "shard 0",
                    "label": "",
                    "detail": "kept from 0",
                    "via": "rest",
                    "source": "",
                    "count": 1,
                }
            ],
            "next_cursor": None,
        },
    ),
    "list_live_messages": Example(
        query={"limit": 1, "told": True},
        answer={
            "queue": "orders",
            "queue_id": "q_1",
            "messages": [
                {
                    "message_id": "1-9",
                    "key": 17,
                    "state": "in_flight",
                    "priority": "HIGH",
                    "sent_priority": "HIGH",
                    "sent_at": "2027-01-31T12:00:05.000Z",
                    "delivery_count": 2,
                    "data": _DATA,
                    "attributes": _ATTRIBUTES,
                }
            ],
            "next_cursor": "25",
            "seen_at": "2027-01-31T12:06:00.000Z",
            "ranges": [{"tier": 0, "first": 0, "end": 0}, {"tier": 1, "first": 0, "end": 3}],
            "next_numbers": [0, 5, 1, 0, 0],
            "shard": 0,
            "history_offset": 131_072,
            "may_skip_numbers": False,
        },
    ),
    "purge_queue": Example(answer={"purged": 2}),
    "delete_queue": Example(
        query={"with_dead_letters": True},
        answer={
            "queue_id": "q_1",
            "queue_name": "orders",
            "deleted": True,
            "dead_letter_queue": "orders.dead",
            "dead_letters": 0,
            "dead_letters_deleted": True,
        },
    ),
    "create_topic": Example(parameters={}, body={"topic_name": "events", "partitions": 2}, status=201, answer=_TOPIC),
    "list_topics": Example(
        parameters={},
        query={"prefix": "ev", "limit": 10},
        answer={
            "topics": [{"topic_name": "events", "partition_count": 2, "record_count": 0, "size_bytes": 0}],
            "next_cursor": None,
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
        answer={"records": [_RECORD], "next_offset": 1, "start_offset": 0, "high_watermark": 2, "unreadable": []},
    ),
    "list_groups": Example(
        parameters={},
        query={"limit": 10},
        answer={
            "groups": [{"group_name": "readers", "state": "Empty", "member_count": 0, "lag": 1}],
            "next_cursor": None,
        },
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

_MADE = {"queue": "$response.body#/queue_name"}
_SAME = {"queue": "$request.path.queue"}
_MESSAGE = {**_SAME, "message_id": "$response.body#/message_id"}
_CREATED = tuple(Link(name, _MADE) for name in ("get_queue", "send_messages", "receive_messages", "delete_queue"))

_TASK_OF = {**_SAME, "task_id": "$response.body#/task_id"}

# By operation and status.
LINKS: dict[tuple[str, int], tuple[Link, ...]] = {
    ("create_queue", 201): _CREATED,
    ("create_queue", 200): _CREATED,
    ("send_messages", 201): (
        Link("receive_messages", _SAME),
        *(Link(name, _MESSAGE) for name in ("ack_message", "get_message", "explain_message")),
    ),
    ("begin_redrive", 202): (Link("get_redrive", _TASK_OF), Link("end_redrive", _TASK_OF)),
    ("begin_redrive", 200): (Link("get_redrive", _TASK_OF),),
    ("receive_messages", 200): (Link("ack_message", {**_MESSAGE, "receipt": "$response.body#/receipt"}),),
}

_DETAILS = {
    "bad_field": "limit: it has to be at most 1000",
    "queue_not_found": "there is no queue 'orders'",
    "queue_full": "queue 'orders' is full",
}
_MORE: dict[str, dict[str, Any]] = {
    "bad_field": {"field": "limit", "limit": 1_000},
    "queue_full": {"field": "queue_size", "retry_after_s": 1.5},
    "body_too_large": {"limit": 16_777_216},
}


def problem_example(code: str) -> dict[str, Any]:
    known = CODES[code]
    return {
        "type": "about:blank",
        "title": known.title,
        "status": known.status,
        "code": code,
        "detail": _DETAILS.get(code, known.title[0].lower() + known.title[1:]),
        **_MORE.get(code, {}),
    }
