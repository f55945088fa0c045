"""The SDK: queues for programs, over HTTP or in the process itself.

It imports nothing of the server, only what both sides share (`penstock.wire`, `penstock.contract`). `penstock.connect`
makes clients.

    queue ──► drafts ──► batching ──► delivery ───┐
      │                                           ├──► caller ──► http, or the application in this process
      └─────► settlements, leases, other requests ┘

Topics are in `topics/`, and speak Kafka's protocol. `sync.py` makes the synchronous API from the asynchronous one.
"""

from penstock.client.client import Client
from penstock.client.errors import (
    BadRequest,
    ClientClosed,
    ConnectionFailed,
    DatabaseUnusable,
    Forbidden,
    GroupNotEmpty,
    GroupNotFound,
    MessageNotFound,
    NotFound,
    NotScheduled,
    PenstockError,
    QueueExists,
    QueueFull,
    QueueNotFound,
    RedriveNotFound,
    ServerBusy,
    ServerError,
    StaleReceipt,
    TooLarge,
    TopicExists,
    TopicNotFound,
    TransactionRequired,
    Unauthorized,
    WrongDatabase,
)
from penstock.client.message import Batch, Message
from penstock.client.queue import Queue
from penstock.client.settings import (
    MessageFilter,
    Priority,
    QueueSettings,
    RetrySettings,
    State,
    TenantSettings,
    TierSettings,
    TopicSettings,
)
from penstock.client.sync import SyncBatch, SyncClient, SyncMessage, SyncQueue, SyncTopic
from penstock.client.topics.consumer import Record
from penstock.client.topics.kafka import KafkaMissing
from penstock.client.topics.topic import Consumption, Topic
from penstock.wire.messages import Draft

__all__ = [
    "BadRequest",
    "Batch",
    "Client",
    "ClientClosed",
    "ConnectionFailed",
    "Consumption",
    "Draft",
    "Forbidden",
    "GroupNotEmpty",
    "GroupNotFound",
    "KafkaMissing",
    "Message",
    "MessageFilter",
    "MessageNotFound",
    "NotFound",
    "NotScheduled",
    "DatabaseUnusable",
    "TransactionRequired",
    "PenstockError",
    "Priority",
    "Queue",
    "WrongDatabase",
    "QueueExists",
    "QueueFull",
    "QueueNotFound",
    "QueueSettings",
    "Record",
    "RetrySettings",
    "ServerBusy",
    "ServerError",
    "StaleReceipt",
    "State",
    "SyncBatch",
    "SyncClient",
    "SyncMessage",
    "SyncQueue",
    "SyncTopic",
    "RedriveNotFound",
    "TenantSettings",
    "TierSettings",
    "TooLarge",
    "Topic",
    "TopicExists",
    "TopicNotFound",
    "TopicSettings",
    "Unauthorized",
]
