"""Types of messages: sent, received, settled, inspected.

In JSON `data` is what was sent: text, or any other JSON value, which is kept as its
JSON text and marked by the attribute `content_type`. A body that is not UTF-8 is
`data_base64`. In MessagePack `data` is always bytes on the way out.
"""

from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType

from penstock.contract.limits import (
    ATTRIBUTES_MAX,
    DELIVERIES_MAX,
    LEASE_MS_MAX,
    LONG_POLL_S_MAX,
    NAME_BYTES_MAX,
    PAGE_MAX,
    REQUEST_MESSAGES_MAX,
)
from penstock.contract.messages import MessageState, WaitReason
from penstock.wire.names import Seconds

# In one page of a list.
LIST_MAX = PAGE_MAX
JSON_CONTENT = "application/json"

Attributes = dict[str, str | int | float | bool]
Group = Annotated[str, Meta(min_length=1, max_length=NAME_BYTES_MAX)]
Priority = Annotated[
    str | int, Meta(description="CRITICAL, HIGH, NORMAL (the default), LOW or BACKGROUND, or a number from 0 to 4.")
]
Base64 = Annotated[
    str,
    Meta(
        extra_json_schema={
            "contentEncoding": "base64",
            "pattern": "^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$",
        }
    ),
]
Limit = Annotated[int, Meta(ge=1, le=REQUEST_MESSAGES_MAX)]
Timeout = Annotated[float, Meta(ge=0, le=LEASE_MS_MAX // 1_000)]
Receipt = Annotated[
    str,
    Meta(
        max_length=64,
        description="As received with the message. Its format may change.",
        extra_json_schema={"pattern": "^[0-9a-f]{1,16}-[0-9a-f]{1,16}-[0-9a-f]{1,4}$"},
    ),
]
MessageId = Annotated[str, Meta(max_length=64)]
State = Annotated[
    MessageState,
    Meta(
        description="`ready` can be received; `delayed` waits until its time; `in_flight` is held by a consumer; "
        "`stuck` has no deliveries left and waits for room in the dead-letter queue; `moving` moves to another queue."
    ),
]
Text = Annotated[str, Meta(min_length=1, max_length=1_000, description="Messages whose body contains this text.")]


class Draft(Struct, omit_defaults=True, forbid_unknown_fields=True, kw_only=True):
    """A message to send: `data`, or `data_base64` for bytes that are not UTF-8."""

    data: Annotated[
        Any, Meta(description="Text, or any JSON value but null.", extra_json_schema={"not": {"type": "null"}})
    ] = UNSET
    data_base64: Base64 | UnsetType = UNSET
    priority: Priority | UnsetType = UNSET
    delay_s: Seconds | UnsetType = UNSET
    scheduled_at: Annotated[
        str | float | UnsetType, Meta(description="An instant: RFC 3339, or seconds since 1970. Instead of `delay_s`.")
    ] = UNSET
    dedup_id: Annotated[str, Meta(min_length=1, max_length=NAME_BYTES_MAX)] | UnsetType = UNSET
    group: Group | UnsetType = UNSET
    attributes: Annotated[Attributes, Meta(max_length=ATTRIBUTES_MAX)] | UnsetType = UNSET
    max_deliveries: Annotated[int, Meta(ge=1, le=DELIVERIES_MAX)] | UnsetType = UNSET


class Drafts(Struct, forbid_unknown_fields=True):
    """Messages to send together: all of them, or none."""

    messages: Annotated[list[Draft], Meta(min_length=1, max_length=REQUEST_MESSAGES_MAX)]


class Sent(Struct):
    message_id: str


class SentMany(Struct):
    messages: list[Sent]


class Lease(Struct, omit_defaults=True, forbid_unknown_fields=True, kw_only=True):
    """What to receive. Without `limit`, one message, not in a list."""

    limit: Limit | UnsetType = UNSET
    wait_s: Annotated[float, Meta(ge=0, le=LONG_POLL_S_MAX)] | UnsetType = UNSET
    visibility_timeout: Timeout | UnsetType = UNSET


class AckAndLease(Lease, omit_defaults=True, forbid_unknown_fields=True, kw_only=True):
    """What to receive, and first what to ack of the messages that were received before."""

    ack: Annotated[list[Receipt], Meta(min_length=1, max_length=REQUEST_MESSAGES_MAX)] | UnsetType = UNSET


class Settled(Struct):
    """The result for one receipt: `acked`, `released` or `extended`; or `stale`, because the lease has ended."""

    receipt: str
    status: str


class SettledMany(Struct):
    done: int
    results: list[Settled]


AckResults = Annotated[SettledMany | UnsetType, Meta(description="The results of `ack`, if the request had it.")]


class Received(Struct, omit_defaults=True, kw_only=True):
    """A received message, hidden from other consumers until `invisible_until`."""

    message_id: str
    receipt: str
    data: Any = UNSET
    data_base64: str | None = None
    priority: str
    tier: int
    attributes: Any
    delivery_count: int
    sent_at: str
    invisible_until: str
    group: str | None = None
    last_error: str | None = None
    # Of a dead letter, and of one that came back: where it was first sent, and when.
    origin_queue: str | None = None
    first_sent_at: str | None = None
    earlier_deliveries: int | None = None
    acked: AckResults = UNSET


class ReceivedMany(Struct):
    messages: list[Received]
    acked: AckResults = UNSET


class Nothing(Struct):
    """No message arrived in time."""

    message: None = None
    acked: AckResults = UNSET


class Acks(Struct, forbid_unknown_fields=True):
    receipts: Annotated[list[Receipt], Meta(min_length=1, max_length=REQUEST_MESSAGES_MAX)]


class Releases(Struct, omit_defaults=True, forbid_unknown_fields=True):
    """Messages to give back. Without `delay_s` the queue's `retry` sets their delay.

    With `reject` they go to the dead-letter queue, however many deliveries they have left. A queue
    whose `max_deliveries` is 0 has no dead-letter queue, and they return. Without `count_delivery`
    they return at once, and keep this delivery.
    """

    receipts: Annotated[list[Receipt], Meta(min_length=1, max_length=REQUEST_MESSAGES_MAX)]
    error: Annotated[str, Meta(description="Why. The first 1,024 characters are kept.")] = ""
    delay_s: Seconds | UnsetType = UNSET
    reject: Annotated[
        bool, Meta(description="Move them to the dead-letter queue now: another delivery would not help.")
    ] = False
    count_delivery: Annotated[
        bool, Meta(description="False for messages that were not worked on: this delivery does not count.")
    ] = True


class Extensions(Struct, forbid_unknown_fields=True):
    """Leases to extend, to `visibility_timeout` seconds from now."""

    receipts: Annotated[list[Receipt], Meta(min_length=1, max_length=REQUEST_MESSAGES_MAX)]
    visibility_timeout: Timeout


class Acked(Struct):
    message_id: str
    deleted: bool


class Cancelled(Struct):
    message_id: str
    cancelled: bool


class Seen(Struct, omit_defaults=True, kw_only=True):
    """A message, shown without being received."""

    message_id: str
    data: Any = UNSET
    data_base64: str | None = None
    state: State
    priority: str
    tier: int
    sent_priority: str
    attributes: Any
    delivery_count: int
    sent_at: str
    visible_at: str | None = None
    group: str | None = None
    last_error: str | None = None
    escalated: bool
    origin_queue: str | None = None
    first_sent_at: str | None = None
    earlier_deliveries: int | None = None


class SeenPage(Struct):
    messages: list[Seen]
    next_cursor: Annotated[str | None, Meta(description="Give it as `cursor` to get the next page; null at the end.")]


class Explained(Struct, omit_defaults=True, kw_only=True):
    """Why a message was delivered, or what it waits for."""

    message_id: str
    state: State
    wait_reason: Annotated[WaitReason, Meta(description="The reason as a word for programs.")]
    reason: Annotated[str, Meta(description="The same reason as a sentence.")]
    priority: str
    sent_priority: str
    promotions: Annotated[int, Meta(description="How many tiers it moved up since it was sent; down if negative.")]
    delivery_count: int
    messages_ahead: Annotated[int, Meta(description="Of its tier, or of its ordered group.")]
    until: str | None
    worst_wait_messages: int | None
    worst_wait_s: float | None
    estimated_start: str | None
    group: str | None = None
    last_error: str | None = None


class LiveRow(Struct, omit_defaults=True, kw_only=True):
    """One message that is in a queue."""

    message_id: str
    key: Annotated[int, Meta(description="Its position in this queue: number · 8 + tier.")]
    state: State
    priority: str
    sent_priority: str
    sent_at: Annotated[str, Meta(description="When the message was first sent.")]
    delivery_count: Annotated[int, Meta(description="Deliveries in earlier queues included.")]
    group: str | None = None
    last_error: str | None = None
    data: Any = UNSET
    data_base64: str | None = None
    attributes: Any = UNSET


class LiveRange(Struct):
    """Numbers of messages that were sent at one tier: from `first` to before `end`."""

    tier: int
    first: int
    end: int


class LivePage(Struct, kw_only=True):
    """Messages by tier and number, as they were at one moment.

    A number in one of the ranges is in the page, or its message was settled before `seen_at`.
    """

    queue: str
    queue_id: str
    messages: list[LiveRow]
    next_cursor: Annotated[str | None, Meta(description="Give it as `cursor` to get the next page; null at the end.")]
    seen_at: str
    ranges: list[LiveRange]
    next_numbers: Annotated[list[int], Meta(description="By tier, the number of the next message.")]
    shard: Annotated[int, Meta(description="The shard of the history that has this queue.")]
    history_offset: Annotated[
        int | None, Meta(description="Messages settled before `seen_at` are below it; null without `told`.")
    ]
    may_skip_numbers: Annotated[
        bool, Meta(description="Whether a send that was rolled back may leave a gap in the numbers, as in PostgreSQL.")
    ]
