"""Settings and filters as keywords, so that editors and type checkers know their names and values.

Made from the types of the REST API by `python -m tests.docs.reference`: edit those instead.
"""

from typing import Literal, TypedDict

# The most urgent first; a number from 0 to 4 says the same.
Priority = Literal["CRITICAL", "HIGH", "NORMAL", "LOW", "BACKGROUND", 0, 1, 2, 3, 4]
# Where a message is.
State = Literal["ready", "delayed", "in_flight", "stuck", "moving"]


class TierSettings(TypedDict, total=False):
    """How the five priorities share a queue. A list has one number for each, CRITICAL first."""

    # `weighted` shares by weights; `strict` serves a priority only when all above it are empty. Default `weighted`.
    mode: Literal["strict", "weighted"]
    # How priorities share while all have messages. Only ratios matter: 8:4:2:1:0.5 equals 16:8:4:2:1. Default 16,
    # 8, 4, 2, 1.
    weights: list[float]
    # How long a message waits before it moves up by one priority; 0 is never. The first number has no effect.
    # Default 0, 0, 0, 1800, 3600.
    aging_s: list[float]
    # The part of `queue_size` that messages of a priority leave free for the others. With 0 for all, every priority
    # may fill the queue. Default 0, 0, 0, 0, 0.
    reserve_percent: list[int]


class RetrySettings(TypedDict, total=False):
    """The delay of a released message: up to min_backoff_s · 2^(deliveries − 1), at most max_backoff_s."""

    # The longest delay after the first delivery of a message that is released without a delay. Each further
    # delivery doubles it. Default 1.
    min_backoff_s: float
    # The upper limit of the doubled delay. Default 900.
    max_backoff_s: float
    # Choose the delay at random between 0 and the computed one, so that the messages of one outage do not all
    # return at once. Otherwise use the computed delay. Default true.
    jitter: bool


class TenantSettings(TypedDict, total=False):
    """When a group of a standard queue is noisy: it is then served only while no quiet group has messages."""

    # A group with more than this share of all messages in flight is noisy; 100 turns this off. Default 10.
    noisy_percent: int
    # A group with fewer messages in flight is never noisy by its share of them. Default 30.
    noisy_in_flight: int
    # A group that used more than this share of the recent time of consumers is noisy, however few of its messages
    # are in flight; 100 turns this off. Default 10.
    noisy_time_percent: int


class QueueSettings(TypedDict, total=False):
    """What can be set for a queue. What is left out keeps its value, or has its default in a new queue."""

    # The most messages in the queue, in flight and delayed ones included. Beyond it sends are refused; 0 is no
    # limit. Default 0.
    queue_size: int
    # How long a received message is hidden from other consumers, unless the request says otherwise. In seconds.
    # Default 30.
    visibility_timeout: float
    # Deliveries before a message moves to the dead-letter queue, unless the message has a limit of its own; 0 is
    # never, even for messages with a limit. Default 5.
    max_deliveries: int
    # After this many deliveries, a message whose lease expires returns behind the others of its priority instead of
    # to its place; 0 is never. Not for FIFO queues. Default 0.
    demote_after_deliveries: int
    # The name of its dead-letter queue; by default its own name with `.dead`.
    dead_letter_queue: str | None
    # How long the queue keeps a message that is not in flight, from its arrival; 0 keeps it until it is settled.
    # Default 0.
    retention_s: float
    # How long a new message is delayed, unless it has a time of its own. Default 0.
    delay_s: float
    # Deliver each group in order, to one consumer at a time; otherwise groups only share fairly. It cannot be
    # changed later. Default false.
    fifo: bool
    # How long a `dedup_id` suppresses a second message: `live` until the first is settled; `window` for a time
    # after the first send; `content` as `window`, with an id from the body if there is none. Default `live`.
    dedup: Literal["content", "live", "window"]
    # The length of the window. Without `dedup` it selects `window`. Default 300.
    dedup_window_s: float
    tiers: TierSettings
    retry: RetrySettings
    tenants: TenantSettings
    # The largest body. A send that has a larger one is refused as a whole. Default 1048576.
    max_message_bytes: int
    # How many dead letters of this queue raise an alert; 0 is never. The alert rules for Prometheus compare it with
    # their count. Default 1.
    alert_dead_letters: int
    # What the history keeps of a settled message: nothing, its times and outcome, or its body as well. Default
    # `facts`.
    history: Literal["facts", "full", "off"]
    # Stop deliveries. Sends continue, and messages in flight can still be acked, released and extended. Default
    # false.
    paused: bool


class TopicSettings(TypedDict, total=False):
    """Settings of a topic. Fields that are left out keep their value, or have their default in a new topic."""

    # How many parts it has; there can be more later, never fewer. Default 1.
    partitions: int
    # How long a record is kept; null keeps it for ever. Default 7 days.
    retention_s: float | None
    # How large a partition may be before its oldest records go; null is no bound.
    retention_bytes: int | None
    # The size of a segment. Old records are dropped by whole segments.
    segment_bytes: int
    # The largest batch of records that is taken.
    max_message_bytes: int
    # Whether old records go, or of each key all but the last, or both.
    cleanup: Literal["compact", "compact,delete", "delete"]


class MessageFilter(TypedDict, total=False):
    """Messages that match all fields of the filter."""

    # `ready` can be received; `delayed` waits until its time; `in_flight` is held by a consumer; `stuck` has no
    # deliveries left and waits for room in the dead-letter queue; `moving` moves to another queue.
    state: State
    # CRITICAL, HIGH, NORMAL (the default), LOW or BACKGROUND, or a number from 0 to 4.
    priority: Priority
    group: str
    # Messages whose body contains this text.
    text: str
    # Messages whose last error contains this text.
    error: str
    # Messages that were first sent to this queue.
    origin_queue: str
