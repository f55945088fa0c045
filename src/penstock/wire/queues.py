"""Types of queues: create, change, describe.

These types decode requests, encode answers and make the OpenAPI document; the SDK
uses the same. Words are those of REST (`visibility_timeout`, `max_deliveries`);
times are seconds, instants are RFC 3339 in UTC.
"""

from typing import Annotated

from msgspec import Meta, Struct

from penstock.wire.names import Name
from penstock.wire.queue_settings import Settings, SettingsView


class CreateQueue(Settings, omit_defaults=True, forbid_unknown_fields=True, kw_only=True):
    """A queue to create."""

    queue_name: Name


class TierView(Struct):
    """One priority of a queue, as it is now."""

    priority: str
    ready: int
    oldest_age_s: Annotated[float | None, Meta(description="Since the oldest that can be received was sent.")]
    worst_wait_messages: Annotated[
        int, Meta(description="Upper bound: how many other messages are received before one that is sent now.")
    ]
    worst_wait_s: Annotated[
        float | None,
        Meta(description="The same in seconds, at the rate of the last seconds; null if nothing is received."),
    ]


class Totals(Struct):
    """Messages since the server started."""

    sent: int = 0
    received: int = 0
    acked: int = 0
    released: int = 0


class QueueView(SettingsView, kw_only=True):
    """A queue: its settings, all of them, and what is in it."""

    current_message_count: int
    ready: int
    in_flight: int
    delayed: int
    stuck: Annotated[
        int, Meta(description="Messages to be buried while the dead-letter queue is full. They count in this queue.")
    ]
    stuck_age_s: Annotated[float | None, Meta(description="How long the first of them has been stuck.")]
    by_tier: list[TierView]
    totals: Totals
    dlq_id: Annotated[str | None, Meta(description="Null until the first message is buried.")]


class QueueName(Struct):
    """A queue in a list."""

    queue_id: str
    queue_name: str
    current_message_count: int
    ready: int
    in_flight: int
    delayed: int
    stuck: int
    paused: bool
    oldest_age_s: Annotated[float | None, Meta(description="Since the oldest that can be received was sent.")]
    totals: Totals
    dlq_id: str | None


class QueueList(Struct):
    queues: list[QueueName]
    next_cursor: Annotated[str | None, Meta(description="Give it as `cursor` to get the next page; null at the end.")]


class Deleted(Struct):
    """The deleted queue, and what happened to its dead-letter queue."""

    queue_id: str
    queue_name: str
    deleted: bool
    dead_letter_queue: str | None
    dead_letters: int
    dead_letters_deleted: bool


class Purged(Struct):
    purged: int
