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
    # How priorities share while all have messages. Ratios count: 8:4:2:1:0.5 is 16:8:4:2:1. Default 16, 8, 4, 2, 1.
    weights: list[float]
    # How long a message waits before it moves up by one priority; 0 never. The first has no effect. Default 0, 0,
    # 0, 1800, 3600.
    aging_s: list[float]
    # Of `queue_size`, what messages of a priority leave free for the others. With 0 for all, every priority may
    # fill the queue. Default 0, 0, 0, 0, 0.
    reserve_percent: list[int]


class RetrySettings(TypedDict, total=False):
    """How long a released message rests: between 0 and base · 2^(deliveries − 1), at most cap."""

    # How long a message rests at most if it is released without a delay after its first delivery; each further
    # delivery doubles it. Default 1.
    min_backoff_s: float
    # What that doubling never exceeds. Default 900.
    max_backoff_s: float
    # Whether the rest is drawn between 0 and that, so that messages of one outage do not come back as a herd.
    # Without it a message rests for the whole of it. Default true.
    jitter: bool


class TenantSettings(TypedDict, total=False):
    """When a group of a queue that is not FIFO is noisy: then it is served only while no quiet group has messages."""

    # Of all messages in flight, more than this share is noisy; 100 never is. Default 10.
    noisy_percent: int
    # With fewer messages in flight a group is not noisy by its share of them. Default 30.
    noisy_in_flight: int
    # Of the time for which consumers lately held messages of groups, more than this share is noisy, however few are
    # in flight; 100 never is. Default 10.
    noisy_time_percent: int


class QueueSettings(TypedDict, total=False):
    """What can be set for a queue. What is left out keeps its value, or has its default in a new queue."""

    # How many messages it holds, in flight and delayed too, until sends are refused; 0 is no bound. Default 0.
    queue_size: int
    # How long a received message is hidden from others, if the request does not say. In seconds. Default 30.
    visibility_timeout: float
    # Deliveries before a message goes to the dead letters, if it has no limit of its own; 0 never, whatever limits
    # the messages have. Default 5.
    max_deliveries: int
    # From which delivery on a message whose lease ends goes behind the others of its priority, not back to its
    # place; 0 never. Not for FIFO. Default 0.
    demote_after_deliveries: int
    # The queue for dead letters. By default the name of this one with `.dead` after it.
    dead_letter_queue: str | None
    # How long a message that is not in flight is kept, from when it came to this queue; 0 keeps it until it is
    # settled. Default 0.
    retention_s: float
    # How long before a new message can be received, if it has no time of its own. Default 0.
    delay_s: float
    # Whether groups are kept in order, one consumer at a time; otherwise groups only share fairly. It cannot be
    # changed later. Default false.
    fifo: bool
    # How long a `dedup_id` keeps a second message away: `live` until the first is settled; `window` for a time from
    # the first send; `content` as `window`, with an id made from the body where there is none. Default `live`.
    dedup: Literal["content", "live", "window"]
    # How long the window is. Given without `dedup`, it chooses `window`. Default 300.
    dedup_window_s: float
    tiers: TierSettings
    retry: RetrySettings
    tenants: TenantSettings
    # The largest body. A send with a larger one is refused as a whole. Default 1048576.
    max_message_bytes: int
    # How many dead letters of this queue call an operator; 0 for never. The alert rules for Prometheus compare it
    # with how many there are. Default 1.
    alert_dead_letters: int
    # What is kept of a message when it is settled: nothing, its times and outcome, or its body too. Default
    # `facts`.
    history: Literal["facts", "full", "off"]
    # Whether deliveries stop. Sends go on, and what is in flight may be acked, released and extended. Default
    # false.
    paused: bool


class TopicSettings(TypedDict, total=False):
    """What can be set for a topic. What is left out keeps its value, or has its default in a new topic."""

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
    """Which messages are meant: those that fit all that is said."""

    # Where a message is: can be received, rests until its time, is received, has had all its deliveries and is
    # stuck until the dead-letter queue has room, or is on its way to another queue.
    state: State
    # CRITICAL, HIGH, NORMAL (the default), LOW or BACKGROUND, or a number from 0 to 4.
    priority: Priority
    group: str
    # Is in the body.
    text: str
    # Is in the last error.
    error: str
    # Was first sent to this queue.
    origin_queue: str
