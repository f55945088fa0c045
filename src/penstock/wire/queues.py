"""What is said about queues: how one is made, changed and described.

These types decode requests, encode answers and make the OpenAPI document; the SDK
uses the same. Words are those of REST (`visibility_timeout`, `max_deliveries`);
times are seconds, instants are RFC 3339 in UTC.
"""

from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

# The priorities by name, the most urgent first: a tier is the place in this list.
PRIORITIES = ("CRITICAL", "HIGH", "NORMAL", "LOW", "BACKGROUND")

Seconds = Annotated[float, Meta(ge=0, le=366 * 86_400)]
# As in contract/names.py: "q_" begins an id, and a last ".dead" is not counted.
NAME_PATTERN = r"^(?!q_)[A-Za-z0-9_-][A-Za-z0-9_.-]{0,79}(\.dead)?$"
Name = Annotated[str, Meta(min_length=1, max_length=85, pattern=NAME_PATTERN)]
# A queue that is there, by its name or its id.
NAME_OR_ID_PATTERN = r"^[A-Za-z0-9_-][A-Za-z0-9_.-]*$"
NameOrId = Annotated[str, Meta(min_length=1, max_length=85, pattern=NAME_OR_ID_PATTERN)]
Weight = Annotated[float, Meta(ge=0.001, le=1_000)]
Mode = Literal["weighted", "strict"]
Dedup = Literal["live", "window", "content"]
History = Literal["off", "facts", "full"]


class Tiers(Struct, omit_defaults=True, forbid_unknown_fields=True):
    """How the five priorities share a queue. A list has one number for each, CRITICAL first."""

    mode: Annotated[
        Mode | UnsetType,
        Meta(description="`weighted` shares by weights; `strict` serves a priority only when all above it are empty."),
    ] = UNSET
    weights: Annotated[
        Annotated[list[Weight], Meta(min_length=5, max_length=5)] | UnsetType,
        Meta(description="How they share while all have messages. Ratios count: 8:4:2:1:0.5 is 16:8:4:2:1."),
    ] = UNSET
    aging_s: Annotated[
        Annotated[list[Seconds], Meta(min_length=5, max_length=5)] | UnsetType,
        Meta(description="How long a message waits before it moves up by one priority; 0 never."),
    ] = UNSET
    reserve_percent: Annotated[
        Annotated[list[Annotated[int, Meta(ge=0, le=99)]], Meta(min_length=5, max_length=5)] | UnsetType,
        Meta(
            description="Of `queue_size`, in percent, what messages of a priority leave free for the others. "
            "0 for each by default: every priority may fill the queue."
        ),
    ] = UNSET


class Retry(Struct, omit_defaults=True, forbid_unknown_fields=True):
    """How long a released message rests: between 0 and base · 2^(deliveries − 1), at most cap."""

    base_s: Seconds | UnsetType = UNSET
    cap_s: Seconds | UnsetType = UNSET
    jitter: Annotated[
        bool | UnsetType, Meta(description="Without it a message rests for the whole of it, not for a random part.")
    ] = UNSET


class Tenants(Struct, omit_defaults=True, forbid_unknown_fields=True):
    """When a group of a queue that is not FIFO is noisy: then it is served only while no quiet group has messages."""

    noisy_percent: Annotated[
        Annotated[int, Meta(ge=1, le=100)] | UnsetType,
        Meta(description="Of all messages in flight, more than this share is noisy; 100 never is. Default 10."),
    ] = UNSET
    noisy_in_flight: Annotated[
        Annotated[int, Meta(ge=1, le=1_000_000)] | UnsetType,
        Meta(description="With fewer messages in flight a group is not noisy by its share of them. Default 30."),
    ] = UNSET
    noisy_time_percent: Annotated[
        Annotated[int, Meta(ge=1, le=100)] | UnsetType,
        Meta(
            description="Of the time for which consumers lately held messages of groups, more than this share is "
            "noisy, however few are in flight; 100 never is. Default 10."
        ),
    ] = UNSET


class Settings(Struct, omit_defaults=True, forbid_unknown_fields=True, kw_only=True):
    """What can be set for a queue. What is left out keeps its value, or has its default in a new queue."""

    queue_size: Annotated[
        Annotated[int, Meta(ge=0, le=2**40)] | UnsetType,
        Meta(description="How many messages the queue holds before it answers 429; 0 is without a bound."),
    ] = UNSET
    visibility_timeout: Annotated[
        Annotated[float, Meta(ge=0.001, le=43_200)] | UnsetType,
        Meta(description="Seconds for which a received message is hidden from others, more than 0. Default 30."),
    ] = UNSET
    max_deliveries: Annotated[
        Annotated[int, Meta(ge=0, le=10_000)] | UnsetType,
        Meta(description="Deliveries before a message goes to the dead letters; 0 never. Default 5."),
    ] = UNSET
    back_after_deliveries: Annotated[
        Annotated[int, Meta(ge=0, le=10_000)] | UnsetType,
        Meta(
            description="From which delivery on a message whose visibility timeout passes goes behind the others, "
            "not back to its place; 0 never, which is the default. Not for FIFO."
        ),
    ] = UNSET
    dead_letter_queue: Annotated[
        Name | UnsetType | None,
        Meta(description="The queue for dead letters. By default the name of this one with `.dead` after it."),
    ] = UNSET
    retention_s: Annotated[
        Seconds | UnsetType,
        Meta(description="How long a message that is not in flight is kept; with 0, the default, until it is settled."),
    ] = UNSET
    delay_s: Annotated[Seconds | UnsetType, Meta(description="Seconds before a new message can be received.")] = UNSET
    fifo: Annotated[
        bool | UnsetType,
        Meta(description="Whether groups are kept in order, one consumer at a time. It cannot be changed later."),
    ] = UNSET
    dedup: Annotated[
        Dedup | UnsetType,
        Meta(
            description="How long a `dedup_id` keeps a second message away: `live`, the default, until the first is "
            "settled; `window` for `dedup_window_s` from the first send; `content` as `window`, with an id made "
            "from the body where there is none."
        ),
    ] = UNSET
    dedup_window_s: Annotated[
        Annotated[float, Meta(gt=0, le=366 * 86_400)] | UnsetType,
        Meta(description="Default 300. Given without `dedup`, it chooses `window`."),
    ] = UNSET
    tiers: Tiers | UnsetType = UNSET
    retry: Retry | UnsetType = UNSET
    tenants: Tenants | UnsetType = UNSET
    message_bytes_max: Annotated[
        Annotated[int, Meta(ge=1, le=1_048_576)] | UnsetType,
        Meta(description="The largest body, in bytes. Default 1 MiB."),
    ] = UNSET
    history: Annotated[
        History | UnsetType,
        Meta(
            description="What is kept of a message when it is settled: nothing, its times and outcome, or its body too."
        ),
    ] = UNSET
    paused: Annotated[bool | UnsetType, Meta(description="Whether nothing is handed out. Sends go on.")] = UNSET


class CreateQueue(Settings, omit_defaults=True, forbid_unknown_fields=True, kw_only=True):
    """A queue to be made."""

    queue_name: Name


class TierView(Struct):
    """One priority of a queue, as it is now."""

    priority: str
    ready: int
    oldest_age_s: Annotated[float | None, Meta(description="Since the oldest that can be received was sent.")]
    worst_wait_messages: Annotated[int, Meta(description="A message sent now is received before so many others are.")]
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


class QueueView(Struct, kw_only=True):
    """A queue: its settings, all of them, and what is in it."""

    queue_id: str
    queue_name: str
    created_at: str | None
    queue_size: int
    visibility_timeout: float
    max_deliveries: int
    back_after_deliveries: int
    dead_letter_queue: Annotated[str | None, Meta(description="Null for dead letters, which are not buried again.")]
    retention_s: float
    delay_s: float
    fifo: bool
    dedup: str
    dedup_window_s: float
    tiers: Tiers
    retry: Retry
    tenants: Tenants
    message_bytes_max: int
    history: str
    paused: bool
    current_message_count: int
    ready: int
    in_flight: int
    delayed: int
    stuck: Annotated[int, Meta(description="To be buried, but the dead-letter queue is full. They count here.")]
    stuck_age_s: Annotated[float | None, Meta(description="For how long the first of them is stuck.")]
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
    next: Annotated[str | None, Meta(description="Give it as `cursor` to go on; null at the end.")]


class Deleted(Struct):
    """What became of a deleted queue's dead letters."""

    queue_id: str
    queue_name: str
    deleted: bool
    dead_letter_queue: str | None
    dead_letters: int
    dead_letters_deleted: bool


class Purged(Struct):
    purged: int
