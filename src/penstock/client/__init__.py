"""The SDK: queues for programs, over HTTP or in the process itself.

It imports nothing of the server, only what both say to each other (`penstock.wire`). `penstock.connect` makes clients.

    queue ──► drafts ──► gathering ──► delivering ─┐
      │                                            ├──► calling ──► transport: http, or the application in process
      └─────► settling, leases, other calls ───────┘

Topics are in `streams/`, and speak Kafka's protocol.

The synchronous face is a thread that runs the asynchronous one.
"""

from penstock.client.clients import Client, SyncClient
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
from penstock.client.streams.record import Record
from penstock.client.streams.sync_topic import SyncTopic
from penstock.client.streams.topic import Topic
from penstock.client.sync_message import SyncBatch, SyncMessage
from penstock.client.sync_queue import SyncQueue
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
