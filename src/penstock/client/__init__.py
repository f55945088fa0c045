"""The SDK: queues for programs, over HTTP or in the process itself.

It imports nothing of the server, only what both say to each other (`penstock.wire`). `penstock.connect` makes clients.

    queue ──► drafts ──► batching  ──► delivery ───┐
      │                                            ├──► caller ──► transport: http, or the application in process
      └─────► settling, leases, other calls ───────┘

Topics are in `topics/`, and speak Kafka's protocol.

The synchronous face is a thread that runs the asynchronous one.
"""

from penstock.client.client import Client
from penstock.client.errors import (
    BadRequest,
    ClientClosed,
    ConnectionFailed,
    Forbidden,
    GroupNotEmpty,
    GroupNotFound,
    MessageNotFound,
    NotFound,
    NotOpened,
    NotTransactional,
    PenstockError,
    QueueElsewhere,
    QueueExists,
    QueueFull,
    QueueNotFound,
    ServerBusy,
    ServerFailed,
    StaleReceipt,
    TaskNotFound,
    TooLarge,
    TopicExists,
    TopicNotFound,
    Unauthorized,
)
from penstock.client.message import Batch, Message
from penstock.client.queue import Queue
from penstock.client.sync import SyncBatch, SyncClient, SyncMessage, SyncQueue, SyncTopic
from penstock.client.topics.record import Record
from penstock.client.topics.topic import Topic
from penstock.wire.messages import Draft

__all__ = [
    "BadRequest",
    "Batch",
    "Client",
    "ClientClosed",
    "ConnectionFailed",
    "NotOpened",
    "Draft",
    "Forbidden",
    "GroupNotEmpty",
    "GroupNotFound",
    "Message",
    "MessageNotFound",
    "NotFound",
    "NotTransactional",
    "PenstockError",
    "Queue",
    "QueueElsewhere",
    "QueueExists",
    "QueueFull",
    "QueueNotFound",
    "Record",
    "ServerBusy",
    "ServerFailed",
    "StaleReceipt",
    "SyncBatch",
    "SyncClient",
    "SyncMessage",
    "SyncQueue",
    "SyncTopic",
    "TaskNotFound",
    "TooLarge",
    "Topic",
    "TopicExists",
    "TopicNotFound",
    "Unauthorized",
]
