"""Types of operators: escalate, requeue, redrive; and the history of settled messages."""

from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType

from penstock.contract.limits import REASON_CHARACTERS_MAX
from penstock.contract.messages import OUTCOMES_TEXT, WaitReason
from penstock.wire.messages import Group, MessageId, Priority, Seen, State, Text
from penstock.wire.names import NameOrId

IDS_MAX = 1_000


class Filter(Struct, omit_defaults=True, forbid_unknown_fields=True, kw_only=True):
    """Messages that match all fields of the filter."""

    state: State | UnsetType = UNSET
    priority: Priority | UnsetType = UNSET
    group: Group | UnsetType = UNSET
    text: Text | UnsetType = UNSET
    error: (
        Annotated[
            str, Meta(min_length=1, max_length=1_000, description="Messages whose last error contains this text.")
        ]
        | UnsetType
    ) = UNSET
    origin_queue: Annotated[NameOrId | UnsetType, Meta(description="Messages that were first sent to this queue.")] = (
        UNSET
    )


class Escalate(Struct, omit_defaults=True, forbid_unknown_fields=True, kw_only=True):
    """Messages to move to a more urgent priority: by id, or by filter."""

    priority: Priority
    actor: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=REASON_CHARACTERS_MAX,
            description="Who did it: a label beside the name of the key.",
        ),
    ]
    reason: Annotated[str, Meta(min_length=1, max_length=REASON_CHARACTERS_MAX, description="Why.")]
    message_ids: Annotated[list[MessageId], Meta(min_length=1, max_length=IDS_MAX)] | UnsetType = UNSET
    filter: Filter | UnsetType = UNSET
    limit: Annotated[int, Meta(ge=1, le=10_000)] = 1_000
    until: Annotated[
        str | float | UnsetType,
        Meta(description="When they return to their own priority: RFC 3339, or seconds since 1970."),
    ] = UNSET
    lower: Annotated[bool, Meta(description="Move messages to a less urgent priority instead.")] = False


class Escalated(Struct):
    """The ids of messages that moved, that did not wait any more, and that are unknown.

    With a filter, up to 1,000 messages move in one step, and each step is an entry of the audit trail.
    """

    moved: list[str]
    unchanged: Annotated[
        list[str],
        Meta(description="Given ids of messages that already have this priority, or a more urgent one."),
    ]
    not_pending: list[str]
    unknown: list[str]


class Escalation(Struct):
    at: str
    actor: str
    reason: str
    priority: str
    until: str | None
    message_ids: list[str]


class Escalations(Struct):
    escalations: list[Escalation]


class Story(Seen, omit_defaults=True, kw_only=True):
    """One message, what it waits for, and its escalations."""

    wait_reason: Annotated[WaitReason | UnsetType, Meta(description="What it waits for, as a word for programs.")] = (
        UNSET
    )
    reason: Annotated[str, Meta(description="The same reason as a sentence.")] = ""
    until: Annotated[str | UnsetType | None, Meta(description="When the clock alone changes this.")] = UNSET
    escalations: Annotated[
        list[Escalation] | UnsetType, Meta(description="Its moves to other priorities, newest first.")
    ] = UNSET


class Requeue(Struct, omit_defaults=True, forbid_unknown_fields=True):
    """The queue for one dead letter; by default the one it came from."""

    target_queue: NameOrId | UnsetType = UNSET


class Requeued(Struct):
    message_id: str
    requeued_to: Annotated[str, Meta(description="The id of the queue that now has the message.")]
    requeued_to_name: str


class Redrive(Struct, omit_defaults=True, forbid_unknown_fields=True, kw_only=True):
    """Dead letters to send back: all of them, or some."""

    target_queue: Annotated[
        NameOrId | UnsetType, Meta(description="The queue to move them to; by default the one that each came from.")
    ] = UNSET
    message_ids: Annotated[list[MessageId], Meta(min_length=1, max_length=IDS_MAX)] | UnsetType = UNSET
    filter: Filter | UnsetType = UNSET
    limit: Annotated[Annotated[int, Meta(ge=1)] | UnsetType, Meta(description="The most to move.")] = UNSET
    rate_per_s: Annotated[
        Annotated[float, Meta(gt=0, le=1_000_000)] | UnsetType, Meta(description="The most to move per second.")
    ] = UNSET
    dry_run: Annotated[bool, Meta(description="Return what would be moved, and move nothing.")] = False


class RedriveTask(Struct, kw_only=True):
    """A redrive: `running`, `done`, `stopped` or `failed`."""

    task_id: str
    state: str
    dead_letter_queue: str
    dry_run: bool
    moved: dict[str, int]
    moved_total: int
    without_origin: Annotated[
        int, Meta(description="Messages that stay because the queue they came from no longer exists.")
    ]
    not_allowed: Annotated[
        int, Meta(description="Messages that stay because the key may not send to the queue they came from.")
    ]
    remaining: int | None
    started_at: str
    ended_at: str | None
    error: str | None
    reason: Annotated[
        str | None,
        Meta(description="What it waits for, why it was stopped, or that it found no dead letter. Null otherwise."),
    ]
    sample_message_ids: Annotated[list[str], Meta(description="Some of the messages that were moved, or would be.")]


class RedriveTasks(Struct):
    tasks: list[RedriveTask]


class AuditEntry(Struct):
    """One action in the audit log, or several equal ones."""

    at: str
    actor: Annotated[str, Meta(description="The name of the key; `everybody` on a server without keys.")]
    action: Annotated[str, Meta(description="What was done to what, such as `queue.purge`.")]
    target: Annotated[
        str, Meta(description="The queue, topic, group or key; for a failed login, the id that it claimed.")
    ]
    label: Annotated[str, Meta(description="The label that the client gave itself. It is not verified.")]
    detail: str
    via: Annotated[str, Meta(description="rest, sqs, kafka, console or command")]
    source: Annotated[str, Meta(description="The address that a failed login came from.")]
    count: int


class AuditPage(Struct):
    """Entries, the newest first. A page may be short, even empty, and have a `next_cursor`."""

    entries: list[AuditEntry]
    next_cursor: str | None


class HistoryRow(Struct, omit_defaults=True, kw_only=True):
    """One settled message."""

    message_id: str
    priority: str
    sent_priority: str
    sent_at: str
    first_received_at: str | None
    last_received_at: str | None
    settled_at: str
    delivery_count: int
    outcome: Annotated[str, Meta(description=OUTCOMES_TEXT)]
    group: str | None = None
    last_error: str | None = None
    data: Any = UNSET
    data_base64: str | None = None
    attributes: Any = UNSET
    queue: Annotated[str | None, Meta(description="The queue that it left, in rows of all queues.")] = None
    queue_id: Annotated[str | None, Meta(description="The id of that queue, which may no longer exist.")] = None
    key: Annotated[int | None, Meta(description="Its position in that queue: number · 8 + tier.")] = None
    offset: Annotated[int | None, Meta(description="The offset of the row in the history.")] = None


class HistoryPage(Struct):
    rows: list[HistoryRow]
    next_offset: Annotated[int, Meta(description="Give it as `offset` to get the next page.")]
    first_kept_offset: Annotated[int, Meta(description="The first offset that is still kept.")]
    end_offset: Annotated[int, Meta(description="The current end. A page before it may be short, even empty.")]


class HistoryShard(Struct):
    """What is kept of one shard of the history. All queues of a shard share it."""

    shard: int
    first_kept_offset: int
    end_offset: int


class HistoryShards(Struct):
    shards: list[HistoryShard]


class HistoryOffset(Struct):
    offset: int


Shard = Annotated[int, Meta(ge=0, le=255, description="A shard of the history; `/api/history/shards` lists them.")]
Offset = Annotated[int, Meta(ge=0, le=2**63 - 1)]


class TrimHistory(Struct, forbid_unknown_fields=True):
    """History to delete, because it was read and is kept elsewhere."""

    shard: Shard
    before: Annotated[Offset, Meta(description="Only rows below this offset are deleted.")]


class Trimmed(Struct):
    shard: int
    first_kept_offset: Annotated[
        int, Meta(description="The first offset that is kept now; only whole segments are deleted.")
    ]
