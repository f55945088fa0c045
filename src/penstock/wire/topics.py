"""Types of topics and consumer groups over REST, for people, the console and the command line.

    POST   /api/topics                       CreateTopic     → TopicView
    GET    /api/topics                       ?prefix cursor limit → TopicList
    GET    /api/topics/{topic}                               → TopicView
    PATCH  /api/topics/{topic}               TopicSettings   → TopicView
    DELETE /api/topics/{topic}                               → TopicDeleted
    POST   /api/topics/{topic}/producers     NewProducers    → ProducersView
    POST   /api/topics/{topic}/records       NewRecords      → Produced
    POST   /api/topics/{topic}/records       ?partitions repeat, record batches → ProducedBatches
    GET    /api/topics/{topic}/records       ?partition offset since limit → RecordPage
    GET    /api/groups                       ?prefix cursor limit → GroupList
    GET    /api/groups/{group}                               → GroupView
    DELETE /api/groups/{group}                               → GroupDeleted

Programs that produce and consume speak Kafka; `TopicView.kafka` says where. A key or a
value is text; bytes that are not UTF-8 are `…_base64`, as in `messages.py`. A program
that has only HTTP sends record batches as Kafka's producers make them.
"""

from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from penstock.contract.limits import TOPIC_PARTITIONS_MAX
from penstock.contract.topic_settings import TOPIC_SETTINGS
from penstock.wire.messages import Base64
from penstock.wire.names import Seconds, TopicName

RECORDS_MAX = 1_000
# An unused id takes no memory, so a job takes as many as it may ever have tasks and batches.
PRODUCER_IDS_MAX = 2**32

Partition = Annotated[int, Meta(ge=0, lt=TOPIC_PARTITIONS_MAX)]
Cleanup = Literal["delete", "compact", "compact,delete"]


def _bounds(name: str) -> Meta:
    return Meta(ge=TOPIC_SETTINGS[name].least, le=TOPIC_SETTINGS[name].most)


def _about(name: str, default: str = "") -> Meta:
    return Meta(description=f"{TOPIC_SETTINGS[name].help} {default}".rstrip())


class TopicSettings(Struct, omit_defaults=True, forbid_unknown_fields=True, kw_only=True):
    """Settings of a topic. Fields that are left out keep their value, or have their default in a new topic."""

    partitions: Annotated[
        Annotated[int, _bounds("partitions")] | UnsetType,
        _about("partitions", "Default 1."),
    ] = UNSET
    retention_s: Annotated[Seconds | UnsetType | None, _about("retention_ms", "Default 7 days.")] = UNSET
    retention_bytes: Annotated[
        Annotated[int, Meta(ge=1, le=2**62)] | UnsetType | None,
        _about("retention_bytes"),
    ] = UNSET
    segment_bytes: Annotated[
        Annotated[int, _bounds("segment_bytes")] | UnsetType,
        _about("segment_bytes"),
    ] = UNSET
    max_message_bytes: Annotated[
        Annotated[int, _bounds("message_bytes_max")] | UnsetType,
        _about("message_bytes_max"),
    ] = UNSET
    cleanup: Annotated[
        Cleanup | UnsetType,
        Meta(description="Whether old records go, or of each key all but the last, or both."),
    ] = UNSET


class CreateTopic(TopicSettings, omit_defaults=True, forbid_unknown_fields=True, kw_only=True):
    """A topic to create."""

    topic_name: TopicName


class PartitionView(Struct):
    partition: int
    start_offset: int
    high_watermark: Annotated[int, Meta(description="The offset that the next record to be read will have.")]
    size_bytes: int


class TopicView(Struct, kw_only=True):
    """A topic as it is now."""

    topic_name: str
    topic_id: str
    partition_count: int
    retention_s: float | None
    retention_bytes: int | None
    segment_bytes: int
    max_message_bytes: int
    cleanup: str
    record_count: Annotated[
        int, Meta(description="From the first offset to the last. A compacted topic has fewer records.")
    ]
    size_bytes: int
    kafka: Annotated[
        str | None, Meta(description="The address for Kafka clients, as host:port; null if they are not served.")
    ]
    partitions: list[PartitionView]


class TopicRow(Struct):
    topic_name: str
    partition_count: int
    record_count: int
    size_bytes: int


class TopicList(Struct):
    topics: list[TopicRow]
    next_cursor: str | None = None


class TopicDeleted(Struct):
    topic_name: str


class NewRecord(Struct, omit_defaults=True, forbid_unknown_fields=True, kw_only=True):
    """A record to produce. Without a partition, its key selects one as Kafka clients do, or one is chosen at random."""

    value: str | UnsetType | None = UNSET
    value_base64: Base64 | UnsetType = UNSET
    key: str | UnsetType | None = UNSET
    key_base64: Base64 | UnsetType = UNSET
    headers: dict[str, str] | UnsetType = UNSET
    partition: Partition | UnsetType = UNSET


class NewRecords(Struct, forbid_unknown_fields=True):
    records: Annotated[list[NewRecord], Meta(min_length=1, max_length=RECORDS_MAX)]


class ProducedRecord(Struct):
    partition: int
    offset: int


class Produced(Struct):
    """The position of each record, in the order of the request."""

    records: list[ProducedRecord]


class NewProducers(Struct, forbid_unknown_fields=True):
    """Ids for producers that number their batches, so that a batch that is sent twice is stored once."""

    count: Annotated[int, Meta(ge=1, le=PRODUCER_IDS_MAX, description="The number of consecutive ids.")] = 1


class ProducersView(Struct):
    """Unique producer ids, and what a producer must know of the topic."""

    producer_id: Annotated[int, Meta(description="The first of the ids.")]
    producer_epoch: int
    count: int
    topic_id: str
    partition_count: int
    max_message_bytes: int


class ProducedBatch(Struct):
    partition: int
    offset: Annotated[int, Meta(description="Of the first record of the batch.")]
    duplicate: Annotated[bool, Meta(description="Whether the batch was stored before.")]


class ProducedBatches(Struct):
    """The position of each batch, in the order of the request."""

    batches: list[ProducedBatch]


class RecordView(Struct, omit_defaults=True, kw_only=True):
    partition: int
    offset: int
    timestamp: str
    value: str | None = None
    value_base64: str | None = None
    key: str | None = None
    key_base64: str | None = None
    headers: dict[str, str] = {}


class Unreadable(Struct):
    """Records that could not be read, from `offset` to before `next_offset`, and why."""

    offset: int
    next_offset: int
    reason: str


class RecordPage(Struct):
    """Records of one partition; `next_offset` is the offset of the next page."""

    records: list[RecordView]
    next_offset: int
    start_offset: int
    high_watermark: int
    unreadable: Annotated[
        list[Unreadable], Meta(description="Batches that could not be read and were skipped; nearly always none.")
    ] = []


class Assigned(Struct):
    topic_name: str
    partition: int


class MemberView(Struct):
    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    assigned: list[Assigned]


class LagRow(Struct):
    """The progress of a group in one partition; null where it has committed nothing."""

    topic_name: str
    partition: int
    committed: int | None
    start_offset: int
    high_watermark: int
    lag: int | None
    member_id: str | None = None


class GroupView(Struct, kw_only=True):
    group_name: str
    state: str
    protocol: str
    generation: int
    lag: Annotated[int, Meta(description="Records that the group has not read yet, in all partitions.")]
    members: list[MemberView]
    partitions: list[LagRow]


class GroupRow(Struct):
    group_name: str
    state: str
    member_count: int
    lag: int


class GroupList(Struct):
    groups: list[GroupRow]
    next_cursor: str | None = None


class GroupDeleted(Struct):
    group_name: str
