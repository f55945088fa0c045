"""Penstock: a durable message queue for Python teams.

Importing this package imports nothing else: what it offers is fetched when it is first asked for.
"""

from importlib import import_module

from penstock.version import __version__ as __version__

# As `typing` has it, which would be most of the price of this import.
TYPE_CHECKING = False

if TYPE_CHECKING:
    from penstock.client import (
        BadRequest as BadRequest,
    )
    from penstock.client import (
        Batch as Batch,
    )
    from penstock.client import (
        Client as Client,
    )
    from penstock.client import (
        ClientClosed as ClientClosed,
    )
    from penstock.client import (
        ConnectionFailed as ConnectionFailed,
    )
    from penstock.client import (
        Consumption as Consumption,
    )
    from penstock.client import (
        DatabaseUnusable as DatabaseUnusable,
    )
    from penstock.client import (
        Draft as Draft,
    )
    from penstock.client import (
        Forbidden as Forbidden,
    )
    from penstock.client import (
        GroupNotEmpty as GroupNotEmpty,
    )
    from penstock.client import (
        GroupNotFound as GroupNotFound,
    )
    from penstock.client import (
        KafkaMissing as KafkaMissing,
    )
    from penstock.client import (
        Message as Message,
    )
    from penstock.client import (
        MessageFilter as MessageFilter,
    )
    from penstock.client import (
        MessageNotFound as MessageNotFound,
    )
    from penstock.client import (
        NotFound as NotFound,
    )
    from penstock.client import (
        PenstockError as PenstockError,
    )
    from penstock.client import (
        Priority as Priority,
    )
    from penstock.client import (
        Queue as Queue,
    )
    from penstock.client import (
        QueueExists as QueueExists,
    )
    from penstock.client import (
        QueueFull as QueueFull,
    )
    from penstock.client import (
        QueueNotFound as QueueNotFound,
    )
    from penstock.client import (
        QueueSettings as QueueSettings,
    )
    from penstock.client import (
        Record as Record,
    )
    from penstock.client import (
        RedriveNotFound as RedriveNotFound,
    )
    from penstock.client import (
        RetrySettings as RetrySettings,
    )
    from penstock.client import (
        ServerBusy as ServerBusy,
    )
    from penstock.client import (
        ServerError as ServerError,
    )
    from penstock.client import (
        StaleReceipt as StaleReceipt,
    )
    from penstock.client import (
        State as State,
    )
    from penstock.client import (
        SyncBatch as SyncBatch,
    )
    from penstock.client import (
        SyncClient as SyncClient,
    )
    from penstock.client import (
        SyncMessage as SyncMessage,
    )
    from penstock.client import (
        SyncQueue as SyncQueue,
    )
    from penstock.client import (
        SyncTopic as SyncTopic,
    )
    from penstock.client import (
        TenantSettings as TenantSettings,
    )
    from penstock.client import (
        TierSettings as TierSettings,
    )
    from penstock.client import (
        TooLarge as TooLarge,
    )
    from penstock.client import (
        Topic as Topic,
    )
    from penstock.client import (
        TopicExists as TopicExists,
    )
    from penstock.client import (
        TopicNotFound as TopicNotFound,
    )
    from penstock.client import (
        TopicSettings as TopicSettings,
    )
    from penstock.client import (
        TransactionRequired as TransactionRequired,
    )
    from penstock.client import (
        Unauthorized as Unauthorized,
    )
    from penstock.client import (
        WrongDatabase as WrongDatabase,
    )
    from penstock.client.worker import (
        CallNext as CallNext,
    )
    from penstock.client.worker import (
        ConsumerStats as ConsumerStats,
    )
    from penstock.client.worker import (
        IdempotencyStore as IdempotencyStore,
    )
    from penstock.client.worker import (
        LoggingMiddleware as LoggingMiddleware,
    )
    from penstock.client.worker import (
        MemoryIdempotencyStore as MemoryIdempotencyStore,
    )
    from penstock.client.worker import (
        Middleware as Middleware,
    )
    from penstock.client.worker import (
        Reject as Reject,
    )
    from penstock.client.worker import (
        Retry as Retry,
    )
    from penstock.client.worker import (
        RetryIn as RetryIn,
    )
    from penstock.client.worker import (
        SqliteIdempotencyStore as SqliteIdempotencyStore,
    )
    from penstock.client.worker import (
        TimeLimitExceeded as TimeLimitExceeded,
    )
    from penstock.client.worker import (
        Worker as Worker,
    )
    from penstock.connect import connect as connect

_WORKER = {
    "CallNext",
    "ConsumerStats",
    "LoggingMiddleware",
    "MemoryIdempotencyStore",
    "Middleware",
    "Reject",
    "Retry",
    "RetryIn",
    "IdempotencyStore",
    "SqliteIdempotencyStore",
    "TimeLimitExceeded",
    "Worker",
}

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
    home = "penstock.connect" if name == "connect" else "penstock.client"
    found: object = getattr(import_module("penstock.client.worker" if name in _WORKER else home), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
