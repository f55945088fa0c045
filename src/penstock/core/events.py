"""Every fact a queue is made of.

    state = replay(events): a decision is remembered by what it decided, dice
    included, never by the command that led to it. A new policy therefore never
    rewrites the past.

Events are batch-shaped: a lease of a thousand messages is one `Leased` with
runs, an ack of them one `Acked` with a mask. Bodies are not in them: the core
knows numbers, the store knows where the bytes are.

Some changes need no event, because they follow from the time alone: a delay
that ripens, a lease that lapses, a message that ages into a more urgent tier.
Applying an event first moves the queue to the event's time.

`queue` is the queue's number within its shard. Times are milliseconds.
"""

from dataclasses import dataclass
from typing import TypeAlias

from penstock.core.message import Run, Sender


@dataclass(frozen=True, slots=True)
class Opened:
    """A process took over the shard. Leases start anew at full length: nobody knows how long it was away."""

    at_ms: int


@dataclass(frozen=True, slots=True)
class QueueCreated:
    queue: int
    at_ms: int
    name: str
    # As JSON: settings are changed by hand and read by people, so their shape may grow.
    settings: str


@dataclass(frozen=True, slots=True)
class QueueChanged:
    queue: int
    at_ms: int
    settings: str


@dataclass(frozen=True, slots=True)
class QueueDeleted:
    queue: int
    at_ms: int


@dataclass(frozen=True, slots=True)
class Sent:
    """Messages got their numbers: the next of their lane, in this order.

    A column that is None is the default for all rows.
    """

    queue: int
    at_ms: int
    tiers: bytes
    sender: Sender | None = None
    visible_at_ms: tuple[int, ...] | None = None
    groups: tuple[bytes, ...] | None = None
    dedup_ids: tuple[bytes, ...] | None = None
    deliveries_max: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Leased:
    queue: int
    at_ms: int
    lease: int
    token: int
    # A duration, not an instant: after a restart it begins again.
    lease_ms: int
    runs: tuple[Run, ...]


@dataclass(frozen=True, slots=True)
class Acked:
    queue: int
    at_ms: int
    lease: int
    # Bit i stands for the i-th message of the lease.
    mask: int


@dataclass(frozen=True, slots=True)
class Released:
    """Messages of a lease go back, each to rest until its time."""

    queue: int
    at_ms: int
    lease: int
    mask: int
    visible_at_ms: tuple[int, ...]
    error: str


@dataclass(frozen=True, slots=True)
class Extended:
    queue: int
    at_ms: int
    lease: int
    mask: int
    lease_ms: int


@dataclass(frozen=True, slots=True)
class Buried:
    """Messages whose deliveries are spent moved to another queue of the shard, in one step."""

    queue: int
    at_ms: int
    runs: tuple[Run, ...]
    into: int
    error: str


@dataclass(frozen=True, slots=True)
class Expired:
    """Messages older than the queue keeps them are gone."""

    queue: int
    at_ms: int
    runs: tuple[Run, ...]


@dataclass(frozen=True, slots=True)
class Purged:
    """Everything that was in the queue is gone, leased or not."""

    queue: int
    at_ms: int


@dataclass(frozen=True, slots=True)
class Escalated:
    """Somebody moved pending messages to another tier, and said why."""

    queue: int
    at_ms: int
    runs: tuple[Run, ...]
    tier: int
    # When the messages fall back to their own tier; 0 for never.
    until_ms: int
    actor: str
    reason: str


Event: TypeAlias = (
    Opened
    | QueueCreated
    | QueueChanged
    | QueueDeleted
    | Sent
    | Leased
    | Acked
    | Released
    | Extended
    | Buried
    | Expired
    | Purged
    | Escalated
)
