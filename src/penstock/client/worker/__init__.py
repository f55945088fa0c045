"""Workers: functions that are called with the messages of queues.

    worker ──► consumer, one for each queue ──► attempt: middleware, time limit, thread, `idempotency`
                  │
                  └──► leases: those in hand, extended by themselves, and how many to have

Start reading at `worker.py`, then `consumer.py`.
"""

from penstock.client.idempotency import IdempotencyStore, MemoryIdempotencyStore, SqliteIdempotencyStore
from penstock.client.worker.attempt import CallNext, LoggingMiddleware, Middleware
from penstock.client.worker.settings import ConsumerStats, Reject, Retry, RetryIn, TimeLimitExceeded
from penstock.client.worker.worker import Worker

__all__ = [
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
]
