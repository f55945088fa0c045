"""The operations that the SDK calls: where each request goes, what it carries, and the type of its answer.

The SDK builds its requests from this table; a test compares it with the routes of the REST API.
"""

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import msgspec

from penstock.wire import messages, operators, queue_settings, queues, topics

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Operation(Generic[T]):
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
SEND_MESSAGES = Operation("POST", _QUEUE + "/messages", bytes, is_repeatable=True)
# A lease that is not answered may have taken messages; they come back when it ends.
LEASE_MESSAGES = Operation("POST", _QUEUE + "/lease", bytes, is_repeatable=True)
# A repeat of these is answered "stale": the client has to know that it is one.
ACK_MESSAGES = Operation("POST", _QUEUE + "/ack", bytes)
RELEASE_MESSAGES = Operation("POST", _QUEUE + "/release", bytes)
EXTEND_MESSAGES = Operation("POST", _QUEUE + "/extend", bytes)

# Queues.
CREATE_QUEUE = Operation("POST", _QUEUES, queues.QueueView, queues.CreateQueue, is_repeatable=True)
LIST_QUEUES = Operation("GET", _QUEUES, queues.QueueList, is_repeatable=True)
GET_QUEUE = Operation("GET", _QUEUE, queues.QueueView, is_repeatable=True)
CHANGE_QUEUE = Operation("PATCH", _QUEUE, queues.QueueView, queue_settings.Settings, is_repeatable=True)
DELETE_QUEUE = Operation("DELETE", _QUEUE, queues.Deleted)
PURGE_QUEUE = Operation("POST", _QUEUE + "/purge", queues.Purged)

# What operators do.
PEEK_MESSAGES = Operation("GET", _QUEUE + "/peek", messages.SeenPage, is_repeatable=True)
GET_MESSAGE = Operation("GET", _MESSAGE, operators.Story, is_repeatable=True)
EXPLAIN_MESSAGE = Operation("GET", _MESSAGE + "/explain", messages.Explained, is_repeatable=True)
ACK_MESSAGE = Operation("DELETE", _MESSAGE, messages.Acked)
ESCALATE_MESSAGES = Operation("POST", _QUEUE + "/escalate", operators.Escalated, operators.Escalate)
LIST_ESCALATIONS = Operation("GET", _QUEUE + "/escalations", operators.Escalations, is_repeatable=True)
REQUEUE_MESSAGE = Operation("POST", _MESSAGE + "/requeue", operators.Requeued, operators.Requeue)
BEGIN_REDRIVE = Operation("POST", _REDRIVE, operators.RedriveTask, operators.Redrive)
LIST_REDRIVES = Operation("GET", _REDRIVE, operators.RedriveTasks, is_repeatable=True)
GET_REDRIVE = Operation("GET", _REDRIVE + "/{task_id}", operators.RedriveTask, is_repeatable=True)
END_REDRIVE = Operation("DELETE", _REDRIVE + "/{task_id}", operators.RedriveTask, is_repeatable=True)
READ_HISTORY = Operation("GET", _QUEUE + "/history", operators.HistoryPage, is_repeatable=True)
LIST_HISTORY_SHARDS = Operation("GET", "/api/history/shards", operators.HistoryShards, is_repeatable=True)
TRIM_HISTORY = Operation("POST", "/api/history/trim", operators.Trimmed, operators.TrimHistory, is_repeatable=True)
READ_AUDIT_LOG = Operation("GET", "/api/audit-log", operators.AuditPage, is_repeatable=True)

# Topics and consumer groups.
CREATE_TOPIC = Operation("POST", _TOPICS, topics.TopicView, topics.CreateTopic, is_repeatable=True)
LIST_TOPICS = Operation("GET", _TOPICS, topics.TopicList, is_repeatable=True)
GET_TOPIC = Operation("GET", _TOPIC, topics.TopicView, is_repeatable=True)
CHANGE_TOPIC = Operation("PATCH", _TOPIC, topics.TopicView, topics.TopicSettings, is_repeatable=True)
DELETE_TOPIC = Operation("DELETE", _TOPIC, topics.TopicDeleted)
PRODUCE_RECORDS = Operation("POST", _RECORDS, topics.Produced, topics.NewRecords)
BROWSE_RECORDS = Operation("GET", _RECORDS, topics.RecordPage, is_repeatable=True)
LIST_GROUPS = Operation("GET", "/api/groups", topics.GroupList, is_repeatable=True)
GET_GROUP = Operation("GET", _GROUP, topics.GroupView, is_repeatable=True)
DELETE_GROUP = Operation("DELETE", _GROUP, topics.GroupDeleted)

# Outside the REST API: a probe that needs no key.
HEALTH: Operation[dict[str, Any]] = Operation("GET", "/health/ready", dict[str, Any], is_repeatable=True)
