"""Types of operators: escalate, requeue, redrive; and the history of settled messages."""

from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType

from penstock.contract.limits import REASON_CHARACTERS_MAX
from penstock.contract.messages import OUTCOMES_TEXT, WaitReason
from penstock.wire.messages import Group, MessageId, Priority, Seen, State, Text
from penstock.wire.names import NameOrId

IDS_MAX = 1_000


class Filter(Struct, omit_defaults=True, forbid_unknown_fields=True, kw_only=True):
    """Which messages are meant: those that fit all that is said."""

    state: State | UnsetType = UNSET
    priority: Priority | UnsetType = UNSET
    group: Group | UnsetType = UNSET
    text: Text | UnsetType = UNSET
    error: Annotated[str, Meta(min_length=1, max_length=1_000, description="Is in the last error.")] | UnsetType = UNSET
    origin_queue: Annotated[NameOrId | UnsetType, Meta(description="Was first sent to this queue.")] = UNSET


class Escalate(Struct, omit_defaults=True, forbid_unknown_fields=True, kw_only=True):
    """Messages to be moved to a more urgent priority: some by id, or those that fit a filter."""

    priority: Priority
    actor: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=REASON_CHARACTERS_MAX,
            description="Who asks for it: a label beside the name of the key.",
        ),
    ]
    reason: Annotated[str, Meta(min_length=1, max_length=REASON_CHARACTERS_MAX, description="Why.")]
    message_ids: Annotated[list[MessageId], Meta(min_length=1, max_length=IDS_MAX)] | UnsetType = UNSET
    filter: Filter | UnsetType = UNSET
    limit: Annotated[int, Meta(ge=1, le=10_000)] = 1_000
    until: Annotated[
        str | float | UnsetType, Meta(description="When they fall back: RFC 3339, or seconds since 1970.")
    ] = UNSET
    lower: Annotated[bool, Meta(description="Move them to a less urgent priority instead.")] = False


class Escalated(Struct):
    """What moved, what was not waiting any more, and what is unknown.

    Of a filter up to 1,000 are moved in one decision; each is an entry of the audit trail.
    """

    moved: list[str]
    unchanged: Annotated[
        list[str],
        Meta(description="Ids that were given of messages at this priority already, or at a more urgent one."),
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
    """One message and its whole story, as far as it has come."""

    wait_reason: Annotated[WaitReason | UnsetType, Meta(description="What it waits for, as a word for programs.")] = (
        UNSET
    )
    reason: Annotated[str, Meta(description="The same reason as a sentence.")] = ""
    until: Annotated[str | UnsetType | None, Meta(description="When this changes without any other event.")] = UNSET
    escalations: Annotated[
        list[Escalation] | UnsetType, Meta(description="Who moved it to another priority; newest first.")
    ] = UNSET


class Requeue(Struct, omit_defaults=True, forbid_unknown_fields=True):
    """Where one dead letter goes; by default to the queue it came from."""

    target_queue: NameOrId | UnsetType = UNSET


class Requeued(Struct):
    message_id: str
    requeued_to: Annotated[str, Meta(description="The id of the queue that it is in now.")]
    requeued_to_name: str


class Redrive(Struct, omit_defaults=True, forbid_unknown_fields=True, kw_only=True):
    """Dead letters to send back: all of them, or some."""

    target_queue: Annotated[
        NameOrId | UnsetType, Meta(description="By default each goes to the queue it came from.")
    ] = UNSET
    message_ids: Annotated[list[MessageId], Meta(min_length=1, max_length=IDS_MAX)] | UnsetType = UNSET
    filter: Filter | UnsetType = UNSET
    limit: Annotated[Annotated[int, Meta(ge=1)] | UnsetType, Meta(description="How many at most.")] = UNSET
    rate_per_s: Annotated[
        Annotated[float, Meta(gt=0, le=1_000_000)] | UnsetType, Meta(description="How many in a second at most.")
    ] = UNSET
    dry_run: Annotated[bool, Meta(description="Return what would go, and move nothing.")] = False


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
        Meta(
            description="What it waits for, why it was stopped (a queue that has no room), or that it found no dead "
            "letter. Null otherwise."
        ),
    ]
    sample_message_ids: Annotated[list[str], Meta(description="Some of the messages that were moved, or would be.")]


class RedriveTasks(Struct):
    tasks: list[RedriveTask]


class AuditEntry(Struct):
    """One action in the audit log, or several equal ones."""

    at: str
    actor: Annotated[str, Meta(description="The name of the key; `everybody` on a server without keys.")]
    action: Annotated[str, Meta(description="What it is about and what was done, such as `queue.purge`.")]
    target: Annotated[str, Meta(description="The queue, topic, group or key; of a failed login, who it said it was.")]
    label: Annotated[str, Meta(description="What the client said of itself, which proves nothing.")]
    detail: str
    via: Annotated[str, Meta(description="rest, sqs, kafka or command")]
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
    queue: Annotated[str | None, Meta(description="The queue it left, where rows of all are shown.")] = None
    queue_id: Annotated[str | None, Meta(description="The id of that queue, which may be deleted.")] = None
    key: Annotated[int | None, Meta(description="Its place in that queue: number · 8 + tier there.")] = None
    offset: Annotated[int | None, Meta(description="Where in the history the row is.")] = None


class HistoryPage(Struct):
    rows: list[HistoryRow]
    next_offset: Annotated[int, Meta(description="Give it as `offset` to go on.")]
    first_kept_offset: Annotated[int, Meta(description="The first offset that is still kept.")]
    end_offset: Annotated[int, Meta(description="The end so far. A page before it may be short, even empty.")]


class HistoryShard(Struct):
    """What is kept of one part of the history: queues that share a shard share it."""

    shard: int
    first_kept_offset: int
    end_offset: int


class HistoryShards(Struct):
    shards: list[HistoryShard]


class HistoryOffset(Struct):
    offset: int


Shard = Annotated[int, Meta(ge=0, le=255, description="Which part of the history; `/api/history/shards` lists them.")]
Offset = Annotated[int, Meta(ge=0, le=2**63 - 1)]


class TrimHistory(Struct, forbid_unknown_fields=True):
    """What may go: it was read, and is kept elsewhere."""

    shard: Shard
    before: Annotated[Offset, Meta(description="Every row that goes is below this offset.")]


class Trimmed(Struct):
    shard: int
    first_kept_offset: Annotated[
        int, Meta(description="The first offset that is kept now; only whole segments are deleted.")
    ]
