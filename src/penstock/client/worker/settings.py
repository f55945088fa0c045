"""How the messages of a queue are worked on, and the counts of what came of them."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from penstock.client.drafts import LEASE_S_MAX
from penstock.client.idempotency import IdempotencyStore
from penstock.client.message import Message
from penstock.client.worker.retry import Retry
from penstock.contract.limits import LONG_POLL_S_MAX

CONCURRENCY_MAX = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerSettings:
    """How the messages of one queue are worked on."""

    queue: str
    # With the message, and if it is transactional with a connection.
    function: Callable[..., Any]
    concurrency: int
    time_limit_s: float | None = None
    # None asks the queue.
    visibility_timeout: float | None = None
    retry: Retry = field(default_factory=Retry)
    idempotency: IdempotencyStore | None = None
    idempotency_key: Callable[[Message], str] | None = None
    # Whether the work is done, and the message acked, in one transaction of the database that the queues are in.
    is_transactional: bool = False
    # Whether work whose lease was lost is cancelled; threads cannot be.
    cancel_on_lost_lease: bool = True
    wait_s: float = LONG_POLL_S_MAX

    def __post_init__(self) -> None:
        if not 1 <= self.concurrency <= CONCURRENCY_MAX:
            raise ValueError(f"concurrency is {self.concurrency}; allowed are 1 to {CONCURRENCY_MAX:,}")
        if self.time_limit_s is not None and not self.time_limit_s > 0:
            raise ValueError(f"time_limit_s is {self.time_limit_s}; it must be more than 0, or None for no limit")
        if self.visibility_timeout is not None and not 0.1 <= self.visibility_timeout <= LEASE_S_MAX:
            raise ValueError(
                f"visibility_timeout is {self.visibility_timeout}; allowed are 0.1 to {LEASE_S_MAX:,} seconds"
            )

    @property
    def is_asynchronous(self) -> bool:
        call = getattr(self.function, "__call__", None)  # noqa: B004 - an object whose call is a coroutine counts.
        return inspect.iscoroutinefunction(self.function) or inspect.iscoroutinefunction(call)

    def key_of(self, message: Message) -> str:
        """What `idempotency` knows a message by."""
        return f"{self.queue}/{message.id}" if self.idempotency_key is None else self.idempotency_key(message)


@dataclass(slots=True)
class ConsumerStats:
    """What came of the messages of one queue in a run, as far as the server knows, and what is in hand now."""

    received: int = 0
    done: int = 0
    failed: int = 0
    rejected: int = 0
    timed_out: int = 0
    # Acked without work, because it was done before.
    duplicate: int = 0
    # Given back untouched: the worker stopped, or an earlier message of the group failed.
    returned: int = 0
    # Their lease ended before they were settled.
    lost: int = 0
    running: int = 0
    prefetched: int = 0
    settling: int = 0
    abandoned_threads: int = 0

    def count(self, outcome: str) -> None:
        """One more of these; the names are those of `Outcome`."""
        setattr(self, outcome, getattr(self, outcome) + 1)
