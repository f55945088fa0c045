"""How the messages of a queue are worked on, what becomes of one whose work has failed, and the counts of both.

By default the queue decides when a message is tried again, and whether at all, as its `retry` says. A `Retry` says
otherwise, for all errors or by the type of the error; of several types that fit, the most special one counts. A work
function that knows more than its type of error raises `Reject` or `RetryIn`.

    error ──► Reject? ──► dead letters
          ──► by type: seconds, a function of the attempt, or `Reject`
          ──► min_backoff_s · 2^(attempt-1), up to max_backoff_s, drawn if `jitter`
          ──► the queue's own backoff
"""

import inspect
import os
import random
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from penstock.client.drafts import DELAY_S_MAX, LEASE_S_MAX
from penstock.client.idempotency import IdempotencyStore
from penstock.client.message import Message
from penstock.contract.limits import ERROR_CHARACTERS_MAX, LONG_POLL_S_MAX

CONCURRENCY_MAX = 1_000
_WORDS_MAX = 500
_FRAMES = 4
# Where this package is.
_OURS = str(Path(__file__).parents[2]) + os.sep
_DOUBLINGS_MAX = 40


class Reject(Exception):
    """Raised by work: this message can never succeed. It goes to the dead letters at once, with these words."""


class RetryIn(Exception):
    """Raised by work: try this message again after so many seconds."""

    def __init__(self, delay_s: float, why: str = "") -> None:
        super().__init__(why)
        self.delay_s = delay_s


class TimeLimitExceeded(Exception):
    """Work took longer than its `time_limit_s`."""


Rule: TypeAlias = "float | Callable[[int], float] | type[Reject]"


@dataclass(frozen=True, slots=True)
class Retry:
    """When to try again. Without ``min_backoff_s``, errors that ``by`` does not name rest as the queue says."""

    min_backoff_s: float | None = None
    max_backoff_s: float = 3_600.0
    jitter: bool = True
    # Seconds, a function from the attempt (1 is the first) to seconds, or `Reject`.
    by: Mapping[type[BaseException], Rule] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What to do with a failed message; a ``delay_s`` of None leaves it to the queue."""

    is_rejected: bool = False
    delay_s: float | None = None


def judge(retry: Retry, error: BaseException, attempt: int, roll: float | None = None) -> Verdict:
    """Decide about an error at the ``attempt``-th delivery; ``roll`` in [0, 1) is drawn here if it is not given.

    >>> judge(Retry(by={OSError: 5, ConnectionError: Reject}), ConnectionResetError(), 1)
    Verdict(is_rejected=True, delay_s=None)
    >>> judge(Retry(min_backoff_s=2, jitter=False), ValueError(), 3)
    Verdict(is_rejected=False, delay_s=8.0)
    """
    if isinstance(error, Reject):
        return Verdict(is_rejected=True)
    if isinstance(error, RetryIn):
        return Verdict(delay_s=_bounded(error.delay_s))
    for kind in type(error).__mro__:
        if kind in retry.by:
            rule = retry.by[kind]
            if isinstance(rule, type):
                return Verdict(is_rejected=True)
            return Verdict(delay_s=_bounded(rule(attempt) if callable(rule) else rule))
    if retry.min_backoff_s is None:
        return Verdict()
    delay_s = min(retry.max_backoff_s, retry.min_backoff_s * 2.0 ** min(attempt - 1, _DOUBLINGS_MAX))
    if retry.jitter:
        delay_s *= random.random() if roll is None else roll
    return Verdict(delay_s=_bounded(delay_s))


def as_retry(said: "Retry | Mapping[type[BaseException], Rule] | None") -> Retry:
    """What was given to `handler`, which may be only the rules by type."""
    if said is None:
        return Retry()
    return said if isinstance(said, Retry) else Retry(by=said)


def _bounded(delay_s: float) -> float:
    return min(max(0.0, float(delay_s)), float(DELAY_S_MAX))


def describe(error: BaseException) -> str:
    """What is kept of an error with the message: its type, its words, and where it was raised, in 1,024 characters."""
    words = str(error)
    head = f"{type(error).__name__}: {words}" if words else type(error).__name__
    if isinstance(error, Reject | RetryIn):
        return (words or head)[:ERROR_CHARACTERS_MAX]
    head = head[:_WORDS_MAX]
    # The innermost frames say most. Ours are left out: they are the same for every error.
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith(_OURS)]
    places = "".join(
        f"\n  {_relative(frame.filename)}:{frame.lineno} in {frame.name}: {frame.line or ''}"
        for frame in frames[-_FRAMES:]
    )
    room = ERROR_CHARACTERS_MAX - len(head)
    return head + (places if len(places) <= room else "\n…" + places[len(places) - room + 2 :])


def _relative(filename: str) -> str:
    """Return a path as seen from the working directory, or from where Python found it: messages travel."""
    for folder in (Path.cwd(), *sorted(map(Path, filter(None, sys.path)), key=lambda each: -len(each.parts))):
        if Path(filename).is_relative_to(folder):
            return str(Path(filename).relative_to(folder))
    return "/".join(Path(filename).parts[-2:])


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
