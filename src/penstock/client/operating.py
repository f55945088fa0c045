"""What operators ask, as calls: looking at messages, escalating, requeueing, redriving, reading the history."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from penstock.client.drafts import instant_ms
from penstock.client.requests import Call, convert, get, given, post, query_of, read_as
from penstock.wire.messages import Acked, Explained, SeenPage
from penstock.wire.operating import (
    AuditPage,
    Escalate,
    Escalated,
    Escalations,
    Filter,
    HistoryPage,
    HistoryShards,
    Redrive,
    RedriveTask,
    RedriveTasks,
    Requeue,
    Requeued,
    Story,
    TrimHistory,
    Trimmed,
)

Instant = str | float | datetime


def peek(path: str, *, limit: int, cursor: str | None, **which: str | int | None) -> Call[SeenPage]:
    return get(f"{path}/peek" + query_of(limit=limit, cursor=cursor, **which), SeenPage)


def look(path: str, message_id: str) -> Call[Story]:
    return get(_message(path, message_id), Story)


def explain(path: str, message_id: str) -> Call[Explained]:
    return get(_message(path, message_id) + "/explain", Explained)


def delete_message(path: str, message_id: str, receipt: str | None) -> Call[Acked]:
    return Call("DELETE", _message(path, message_id) + query_of(receipt=receipt), read_as(Acked), False)


def escalate(  # noqa: PLR0913 - what, whereto, and who says so.
    path: str,
    which: Sequence[str] | Filter | dict[str, Any],
    *,
    priority: str | int,
    actor: str,
    reason: str,
    until: Instant | None,
    lower: bool,
) -> Call[Escalated]:
    """Escalating twice is escalating once."""
    said = given(priority=priority, actor=actor, reason=reason, until=None if until is None else _text(until))
    said["lower"] = lower
    said["filter" if isinstance(which, Filter | dict) else "message_ids"] = _which(which)
    return post(f"{path}/escalate", convert(said, Escalate), Escalated)


def escalations(path: str, limit: int) -> Call[Escalations]:
    return get(f"{path}/escalations" + query_of(limit=limit), Escalations)


def audit_log(cursor: str, **which: str | None) -> Call[AuditPage]:
    return get("/api/audit-log" + query_of(limit=1_000, cursor=cursor or None, **which), AuditPage)


def requeue(path: str, message_id: str, into: str | None) -> Call[Requeued]:
    return post(_message(path, message_id) + "/requeue", convert(given(into=into), Requeue), Requeued)


def redrive(path: str, **said: Any) -> Call[RedriveTask]:
    return post(f"{path}/redrive", convert(given(**said), Redrive), RedriveTask)


def redrive_tasks(path: str) -> Call[RedriveTasks]:
    return get(f"{path}/redrive", RedriveTasks)


def redrive_task(path: str, task_id: str) -> Call[RedriveTask]:
    return get(_task(path, task_id), RedriveTask)


def stop_redrive(path: str, task_id: str) -> Call[RedriveTask]:
    return Call("DELETE", _task(path, task_id), read_as(RedriveTask), True)


def history(path: str, *, offset: int | None, since: Instant | None, limit: int) -> Call[HistoryPage]:
    said = None if since is None else _text(since)
    return get(f"{path}/history" + query_of(offset=offset, since=said, limit=limit), HistoryPage)


def history_shards() -> Call[HistoryShards]:
    return get("/api/history/shards", HistoryShards)


def trim_history(shard: int, before: int) -> Call[Trimmed]:
    """Trimming twice is trimming once."""
    asked = convert({"shard": shard, "before": before}, TrimHistory)
    return post("/api/history/trim", asked, Trimmed, is_repeatable=True)


def health() -> Call[dict[str, Any]]:
    """A server that is not ready says so with 503, and why: here that is an answer."""
    return Call("GET", "/health/ready", read_as(dict[str, Any]), True, also_read=503)


def _message(path: str, message_id: str) -> str:
    return f"{path}/messages/{quote(message_id, safe='')}"


def _task(path: str, task_id: str) -> str:
    return f"{path}/redrive/{quote(task_id, safe='')}"


def _which(which: Sequence[str] | Filter | dict[str, Any]) -> object:
    return which if isinstance(which, Filter | dict) else list(which)


def _text(instant: Instant) -> str:
    at_ms = instant_ms(instant, field="until")
    return datetime.fromtimestamp(at_ms / 1_000, UTC).isoformat(timespec="milliseconds")
