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

No code changes an event. It is not frozen all the same: a frozen dataclass takes
five times as long to make, and every batch of every verb makes one.
"""

from dataclasses import dataclass
from typing import TypeAlias

from penstock.core.queue.message import Origin, Run, Sender


@dataclass(slots=True)
class Opened:
    """A process took over the shard. Leases start again at full length: how long it was away is unknown."""

    at_ms: int


@dataclass(slots=True)
class QueueCreated:
    queue: int
    at_ms: int
    name: str
    # As JSON: settings are changed by hand and read by people, so their shape may grow.
    settings: str


@dataclass(slots=True)
class QueueChanged:
    queue: int
    at_ms: int
    settings: str


@dataclass(slots=True)
class QueueDeleted:
    queue: int
    at_ms: int


@dataclass(slots=True)
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
    # Drafts of the same send that got no number, because their ids were taken: which draft, and the key of
    # the message it repeats. Only a sender that may ask again has them remembered.
    repeats: tuple[tuple[int, int], ...] = ()


@dataclass(slots=True)
class Leased:
    queue: int
    at_ms: int
    lease: int
    token: int
    # A duration, not an instant: after a restart it begins again.
    lease_ms: int
    # Each run is either rows of the core throughout or none at all.
    runs: tuple[Run, ...]
    # The tier that each run was served at, and is charged to.
    tiers: bytes


@dataclass(slots=True)
class Acked:
    """Messages are done. Some may have lapsed before, where the receipt outlives the lease."""

    queue: int
    at_ms: int
    lease: int
    # Bit i stands for the i-th message of the lease.
    mask: int


@dataclass(slots=True)
class Released:
    """Messages of a lease go back, each to rest until its time; or, rejected, never to be leased again."""

    queue: int
    at_ms: int
    lease: int
    mask: int
    # None at all if they were rejected: this was the last delivery of each.
    visible_at_ms: tuple[int, ...]
    error: str


@dataclass(slots=True)
class Returned:
    """Messages of a lease go back at once, and this delivery does not count: no worker has begun them."""

    queue: int
    at_ms: int
    lease: int
    mask: int


@dataclass(slots=True)
class Extended:
    queue: int
    at_ms: int
    lease: int
    mask: int
    lease_ms: int


@dataclass(slots=True)
class Buried:
    """Messages whose deliveries are spent moved to another queue of the shard, in one step.

    Both queues apply it: one settles the messages, the other numbers them, in this order.
    """

    queue: int
    at_ms: int
    into: int
    # One run of length 1 for each message, and as many rows in each column.
    runs: tuple[Run, ...]
    tiers: bytes
    origins: tuple[Origin, ...]
    groups: tuple[bytes, ...]
    errors: tuple[str, ...]


@dataclass(slots=True)
class Redriven:
    """Messages went back from the dead letters, to be delivered as if for the first time. As `Buried`."""

    queue: int
    at_ms: int
    into: int
    runs: tuple[Run, ...]
    tiers: bytes
    origins: tuple[Origin, ...]
    groups: tuple[bytes, ...]
    errors: tuple[str, ...]


@dataclass(slots=True)
class Moving:
    """Messages are on their way to a queue of another shard: spent ones, or dead letters that go back.

    Until `Moved` they are held here, and cannot be leased.
    """

    queue: int
    at_ms: int
    into: int
    # Counts the moves of this queue, from 1.
    sequence: int
    is_redrive: bool
    # One run of length 1 for each message.
    runs: tuple[Run, ...]


@dataclass(slots=True)
class Arrived:
    """Messages came from a queue of another shard and got numbers here, in this order. Once for each sequence."""

    queue: int
    at_ms: int
    source: int
    sequence: int
    tiers: bytes
    origins: tuple[Origin, ...]
    groups: tuple[bytes, ...]
    errors: tuple[str, ...]


@dataclass(slots=True)
class Moved:
    """A move has ended: its messages are settled here, or back if there is no queue to take them."""

    queue: int
    at_ms: int
    sequence: int
    is_done: bool


@dataclass(slots=True)
class Expired:
    """Messages older than the queue keeps them are gone."""

    queue: int
    at_ms: int
    runs: tuple[Run, ...]


@dataclass(slots=True)
class Cancelled:
    """Messages that rested were taken back before they were due."""

    queue: int
    at_ms: int
    runs: tuple[Run, ...]


@dataclass(slots=True)
class Purged:
    """Everything that was in the queue is gone, leased or not, except what is on its way to another."""

    queue: int
    at_ms: int


@dataclass(slots=True)
class Escalated:
    """An operator moved pending messages to another tier, and said why."""

    queue: int
    at_ms: int
    runs: tuple[Run, ...]
    tier: int
    # When the messages fall back to their own tier; 0 for never.
    until_ms: int
    actor: str
    reason: str


@dataclass(slots=True)
class CaughtUp:
    """Of what was due by the time alone, so much was done in this step.

    Only where more is due at once than a step of the event loop may take: what is due
    after this one waits for the next, however much time passes. The first one finds the
    queue as it was at ``from_ms``, when all that was due had been done.
    """

    queue: int
    at_ms: int
    from_ms: int
    # In messages.
    most: int


@dataclass(slots=True)
class Copied:
    """Bodies were written again, so that the segments they were in can go. Nothing happened to the messages."""

    queue: int
    at_ms: int
    # Rising in each lane. The bodies follow in this order.
    runs: tuple[Run, ...]


Event: TypeAlias = (
    Opened
    | QueueCreated
    | QueueChanged
    | QueueDeleted
    | Sent
    | Leased
    | Acked
    | Released
    | Returned
    | Extended
    | Buried
    | Expired
    | Cancelled
    | Purged
    | Escalated
    | Redriven
    | CaughtUp
    | Copied
    | Moving
    | Arrived
    | Moved
)


@dataclass(slots=True)
class Tally:
    """What happened in a queue since a server opened it, in messages: for metrics, and for no decision.

    Verbs are counted where they are called. Counted here is what happens without a call, and what changes messages
    that no verb names. It is no part of the state: a snapshot leaves it out, and an opening begins it at 0.
    """

    # Leases that ended without an answer.
    lapsed: int = 0
    # Moved to a more urgent tier, because they had waited for long.
    promoted: int = 0
    # Moved to the dead letters.
    buried: int = 0
    # Moved out of this queue by a redrive or a requeue.
    redriven: int = 0
    expired: int = 0
    purged: int = 0
    # Moved to another tier by an operator.
    escalated: int = 0
