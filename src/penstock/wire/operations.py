"""The operations of the REST API: where each request goes, what it carries, and the type of its answer.

The SDK builds its requests from this table, and the server binds each operation to its handler.
"""

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import msgspec

from penstock.wire import messages, operators, queue_settings, queues, topics

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Operation(Generic[T]):
    name: str
    method: str
    path: str
    answer: type[T]
    body: type[msgspec.Struct] | None = None
    # Whether doing it twice is doing it once.
    is_repeatable: bool = False


_QUEUES = "/api/queues"
_QUEUE = "/api/queues/{queue}"
_MESSAGE = _QUEUE + "/messages/{message_id}"
_REDRIVE = _QUEUE + "/redrive"
_TOPICS = "/api/topics"
_TOPIC = "/api/topics/{topic}"
_RECORDS = _TOPIC + "/records"
_GROUP = "/api/groups/{group}"

# Messages; these travel as frames (`frames.py`), which their answer types do not describe.
SEND_MESSAGES = Operation("send_messages", "POST", _QUEUE + "/messages", bytes, is_repeatable=True)
# A lease that is not answered may have taken messages; they come back when it ends. What it was to ack is acked once: a
# repeat is answered "stale".
LEASE_MESSAGES = Operation("lease_messages", "POST", _QUEUE + "/lease", bytes, is_repeatable=True)
RECEIVE_MESSAGES = Operation("receive_messages", "GET", _QUEUE + "/messages", bytes)
# A repeat of these is answered "stale": the client has to know that it is one.
ACK_MESSAGES = Operation("ack_messages", "POST", _QUEUE + "/ack", bytes)
RELEASE_MESSAGES = Operation("release_messages", "POST", _QUEUE + "/release", bytes)
EXTEND_MESSAGES = Operation("extend_messages", "POST", _QUEUE + "/extend", bytes)

# Queues.
CREATE_QUEUE = Operation("create_queue", "POST", _QUEUES, queues.QueueView, queues.CreateQueue, is_repeatable=True)
LIST_QUEUES = Operation("list_queues", "GET", _QUEUES, queues.QueueList, is_repeatable=True)
GET_QUEUE = Operation("get_queue", "GET", _QUEUE, queues.QueueView, is_repeatable=True)
CHANGE_QUEUE = Operation("change_queue", "PATCH", _QUEUE, queues.QueueView, queue_settings.Settings, is_repeatable=True)
DELETE_QUEUE = Operation("delete_queue", "DELETE", _QUEUE, queues.Deleted)
PURGE_QUEUE = Operation("purge_queue", "POST", _QUEUE + "/purge", queues.Purged)

# What operators do.
PEEK_MESSAGES = Operation("peek_messages", "GET", _QUEUE + "/peek", messages.SeenPage, is_repeatable=True)
GET_MESSAGE = Operation("get_message", "GET", _MESSAGE, operators.Story, is_repeatable=True)
EXPLAIN_MESSAGE = Operation("explain_message", "GET", _MESSAGE + "/explain", messages.Explained, is_repeatable=True)
ACK_MESSAGE = Operation("ack_message", "DELETE", _MESSAGE, messages.Acked)
CANCEL_MESSAGE = Operation("cancel_message", "POST", _MESSAGE + "/cancel", messages.Cancelled)
ESCALATE_MESSAGES = Operation(
    "escalate_messages", "POST", _QUEUE + "/escalate", operators.Escalated, operators.Escalate
)
LIST_ESCALATIONS = Operation(
    "list_escalations", "GET", _QUEUE + "/escalations", operators.Escalations, is_repeatable=True
)
REQUEUE_MESSAGE = Operation("requeue_message", "POST", _MESSAGE + "/requeue", operators.Requeued, operators.Requeue)
BEGIN_REDRIVE = Operation("begin_redrive", "POST", _REDRIVE, operators.RedriveTask, operators.Redrive)
LIST_REDRIVES = Operation("list_redrives", "GET", _REDRIVE, operators.RedriveTasks, is_repeatable=True)
GET_REDRIVE = Operation("get_redrive", "GET", _REDRIVE + "/{task_id}", operators.RedriveTask, is_repeatable=True)
END_REDRIVE = Operation("end_redrive", "DELETE", _REDRIVE + "/{task_id}", operators.RedriveTask, is_repeatable=True)
LIST_LIVE_MESSAGES = Operation("list_live_messages", "GET", _QUEUE + "/live", messages.LivePage, is_repeatable=True)
READ_HISTORY = Operation("read_history", "GET", _QUEUE + "/history", operators.HistoryPage, is_repeatable=True)
READ_SHARD_HISTORY = Operation("read_shard_history", "GET", "/api/history", operators.HistoryPage, is_repeatable=True)
FIND_HISTORY_OFFSET = Operation(
    "find_history_offset", "GET", "/api/history/offset", operators.HistoryOffset, is_repeatable=True
)
LIST_HISTORY_SHARDS = Operation(
    "list_history_shards", "GET", "/api/history/shards", operators.HistoryShards, is_repeatable=True
)
TRIM_HISTORY = Operation(
    "trim_history", "POST", "/api/history/trim", operators.Trimmed, operators.TrimHistory, is_repeatable=True
)
READ_AUDIT_LOG = Operation("read_audit_log", "GET", "/api/audit-log", operators.AuditPage, is_repeatable=True)

# Topics and consumer groups.
CREATE_TOPIC = Operation("create_topic", "POST", _TOPICS, topics.TopicView, topics.CreateTopic, is_repeatable=True)
LIST_TOPICS = Operation("list_topics", "GET", _TOPICS, topics.TopicList, is_repeatable=True)
GET_TOPIC = Operation("get_topic", "GET", _TOPIC, topics.TopicView, is_repeatable=True)
CHANGE_TOPIC = Operation("change_topic", "PATCH", _TOPIC, topics.TopicView, topics.TopicSettings, is_repeatable=True)
DELETE_TOPIC = Operation("delete_topic", "DELETE", _TOPIC, topics.TopicDeleted)
CREATE_PRODUCERS = Operation(
    "create_producers", "POST", _TOPIC + "/producers", topics.ProducersView, topics.NewProducers
)
PRODUCE_RECORDS = Operation("produce_records", "POST", _RECORDS, topics.Produced, topics.NewRecords)
BROWSE_RECORDS = Operation("browse_records", "GET", _RECORDS, topics.RecordPage, is_repeatable=True)
LIST_GROUPS = Operation("list_groups", "GET", "/api/groups", topics.GroupList, is_repeatable=True)
GET_GROUP = Operation("get_group", "GET", _GROUP, topics.GroupView, is_repeatable=True)
DELETE_GROUP = Operation("delete_group", "DELETE", _GROUP, topics.GroupDeleted)

# Outside the REST API: a probe that needs no key.
HEALTH: Operation[dict[str, Any]] = Operation("health", "GET", "/health/ready", dict[str, Any], is_repeatable=True)
