"""Penstock: a durable message queue for Python teams.

Importing this package imports nothing else: what it offers is fetched when it is first asked for.
"""

from importlib import import_module

from penstock.version import __version__ as __version__

# As `typing` has it, which would be most of the price of this import.
TYPE_CHECKING = False

if TYPE_CHECKING:
    from penstock.client import (
        BadRequest,
        Batch,
        Client,
        ClientClosed,
        ConnectionFailed,
        Consumption,
        DatabaseUnusable,
        Draft,
        Forbidden,
        GroupNotEmpty,
        GroupNotFound,
        KafkaMissing,
        Message,
        MessageFilter,
        MessageNotFound,
        NotFound,
        NotScheduled,
        PenstockError,
        Priority,
        Queue,
        QueueExists,
        QueueFull,
        QueueNotFound,
        QueueSettings,
        Record,
        RedriveNotFound,
        RetrySettings,
        ServerBusy,
        ServerError,
        StaleReceipt,
        State,
        SyncBatch,
        SyncClient,
        SyncMessage,
        SyncQueue,
        SyncTopic,
        TenantSettings,
        TierSettings,
        TooLarge,
        Topic,
        TopicExists,
        TopicNotFound,
        TopicSettings,
        TransactionRequired,
        Unauthorized,
        WrongDatabase,
    )
    from penstock.client.worker import (
        CallNext,
        ConsumerStats,
        IdempotencyStore,
        LoggingMiddleware,
        MemoryIdempotencyStore,
        Middleware,
        Reject,
        Retry,
        RetryIn,
        SqliteIdempotencyStore,
        TimeLimitExceeded,
        Worker,
    )
    from penstock.connect import connect

__all__ = [
    "BadRequest",
    "Batch",
    "CallNext",
    "Client",
    "ClientClosed",
    "ConnectionFailed",
    "ConsumerStats",
    "Consumption",
    "Draft",
    "Forbidden",
    "GroupNotEmpty",
    "GroupNotFound",
    "KafkaMissing",
    "LoggingMiddleware",
    "MemoryIdempotencyStore",
    "Message",
    "MessageFilter",
    "MessageNotFound",
    "Middleware",
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
    "Reject",
    "Retry",
    "RetryIn",
    "RetrySettings",
    "IdempotencyStore",
    "ServerBusy",
    "ServerError",
    "SqliteIdempotencyStore",
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
    "TimeLimitExceeded",
    "TooLarge",
    "Topic",
    "TopicExists",
    "TopicNotFound",
    "TopicSettings",
    "Unauthorized",
    "Worker",
    "connect",
]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    homes = ("penstock.connect",) if name == "connect" else ("penstock.client", "penstock.client.worker")
    home = next(module for module in map(import_module, homes) if hasattr(module, name))
    globals()[name] = found = getattr(home, name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
