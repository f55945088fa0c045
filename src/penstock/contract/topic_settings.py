"""What can be set for one topic, in one table: names, units, bounds, defaults and meanings.

    field of TopicSettings    in the streams and on disk
    TopicSetting.said         in REST, the SDK and the command line, where times are seconds
    TopicSetting.kafka        in Kafka, which stops at the front end

Two fields have one name outside: `cleanup` in REST and `cleanup.policy` in Kafka list the `POLICIES` of a topic.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Annotated, Any, Literal, get_args, get_type_hints

from penstock.contract.limits import (
    BATCH_BYTES_MAX,
    KIB,
    MIB,
    SEGMENT_BYTES_MAX,
    TOPIC_PARTITIONS_MAX,
    UNPACKED_BYTES_MAX,
)
from penstock.contract.queue_settings import milliseconds, seconds

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
_NUMBER_MAX = 2**62
# What Kafka says where there is no bound, beside -1.
KAFKA_NO_BOUND = str(2**63 - 1)
# What happens to old records: a topic has one of these, both or none.
POLICIES = {"compact": "is_compacted", "delete": "is_deleted"}


class BadTopicSettings(ValueError):
    """A topic cannot be like this; ``field`` says what is wrong."""

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(f"{field} {reason}")
        self.field = field
        self.reason = reason


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSetting:
    """What the type and the default of a field of `TopicSettings` do not say."""

    help: str
    # Of a number; one that is None has no bound.
    least: int = 0
    most: int = _NUMBER_MAX
    unit: Literal["", "ms", "bytes", "percent"] = ""
    # Its name in REST, and in Kafka; "" if it cannot be set there.
    said: str = ""
    kafka: str = ""
    # Kafka's word for None; "" if it is never None.
    none: str = ""
    # Kafka's words for the numbers from 0 on, or for False and True.
    words: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSettings:
    partitions: Annotated[
        int,
        TopicSetting(
            said="partitions",
            least=1,
            most=TOPIC_PARTITIONS_MAX,
            help="How many parts it has; there can be more later, never fewer.",
        ),
    ] = 1
    retention_ms: Annotated[
        int | None,
        TopicSetting(
            said="retention_s",
            kafka="retention.ms",
            unit="ms",
            none="-1",
            help="How long a record is kept; null keeps it for ever.",
        ),
    ] = 7 * DAY_MS
    retention_bytes: Annotated[
        int | None,
        TopicSetting(
            said="retention_bytes",
            kafka="retention.bytes",
            unit="bytes",
            none="-1",
            help="How large a partition may be before its oldest records go; null is no bound.",
        ),
    ] = None
    segment_bytes: Annotated[
        int,
        TopicSetting(
            said="segment_bytes",
            kafka="segment.bytes",
            least=KIB,
            most=SEGMENT_BYTES_MAX // 2,
            unit="bytes",
            help="The size of a segment. Old records are dropped by whole segments.",
        ),
    ] = 256 * MIB
    segment_ms: Annotated[
        int,
        TopicSetting(
            kafka="segment.ms", least=1, unit="ms", help="The age at which a segment is closed and the next begun."
        ),
    ] = 7 * DAY_MS
    message_bytes_max: Annotated[
        int,
        TopicSetting(
            said="max_message_bytes",
            kafka="max.message.bytes",
            least=1,
            most=BATCH_BYTES_MAX,
            unit="bytes",
            help="The largest batch of records that is taken.",
        ),
    ] = 1_048_588
    unpacked_bytes_max: Annotated[
        int,
        TopicSetting(
            least=1, most=UNPACKED_BYTES_MAX, unit="bytes", help="What a compressed batch may become when unpacked."
        ),
    ] = 16 * MIB
    is_compacted: Annotated[bool, TopicSetting(help="Whether compaction leaves only the last record of each key.")] = (
        False
    )
    is_deleted: Annotated[
        bool,
        TopicSetting(
            help="Whether records beyond the retention are dropped. A topic may be compacted, too; with neither, all "
            "records are kept."
        ),
    ] = True
    codec: Annotated[
        int | None,
        TopicSetting(
            # Numbered as in `streams.compression`.
            kafka="compression.type",
            most=4,
            none="producer",
            words=("uncompressed", "gzip", "snappy", "lz4", "zstd"),
            help="How records are compressed here; None keeps what their producer did.",
        ),
    ] = None
    has_append_time: Annotated[
        bool,
        TopicSetting(
            kafka="message.timestamp.type",
            words=("CreateTime", "LogAppendTime"),
            help="Whether records have the time of their arrival, not the one their producer gave them.",
        ),
    ] = False
    ahead_ms_max: Annotated[
        int | None,
        TopicSetting(
            kafka="message.timestamp.after.max.ms",
            unit="ms",
            none="-1",
            help="How far ahead of the clock a producer's time may be; None for any. A record of the far future would "
            "keep its segment from ever being old.",
        ),
    ] = HOUR_MS
    tombstone_ms: Annotated[
        int,
        TopicSetting(
            kafka="delete.retention.ms",
            unit="ms",
            help="How long a reader can still see that a key was deleted, in a compacted topic.",
        ),
    ] = DAY_MS
    dirty_percent_max: Annotated[
        int,
        TopicSetting(
            kafka="min.cleanable.dirty.ratio",
            most=100,
            unit="percent",
            help="The share of a compacted partition that was written since it was compacted and starts a compaction.",
        ),
    ] = 50
    compaction_lag_ms_min: Annotated[
        int,
        TopicSetting(
            kafka="min.compaction.lag.ms", unit="ms", help="How long a record of a compacted topic is not compacted."
        ),
    ] = 0
    compaction_lag_ms_max: Annotated[
        int | None,
        TopicSetting(
            kafka="max.compaction.lag.ms",
            least=1,
            unit="ms",
            none=KAFKA_NO_BOUND,
            help="The age at which a record starts a compaction; None waits until enough records have come.",
        ),
    ] = None
    remarks: Annotated[
        tuple[tuple[str, str], ...],
        TopicSetting(
            help="Kafka's settings as the owner wrote them, to show them to the letter while they still hold."
        ),
    ] = ()

    def __post_init__(self) -> None:
        for name, setting in TOPIC_SETTINGS.items():
            value = getattr(self, name)
            if type(value) is int:
                _within(name, value, setting.least, setting.most)
        if self.compaction_lag_ms_max is not None:
            _within("compaction_lag_ms_max", self.compaction_lag_ms_max, self.compaction_lag_ms_min, _NUMBER_MAX)

    @classmethod
    def read(cls, found: dict[str, Any]) -> "TopicSettings":
        """Take settings as an earlier version wrote them, which knew fewer, or this one."""
        unknown = set(found) - {field.name for field in fields(cls)}
        if unknown:
            raise BadTopicSettings(min(unknown), "is not known: it was written by a later version")
        # JSON has no tuples.
        remarks = tuple((name, value) for name, value in found.get("remarks", ()))
        return cls(**{**found, "remarks": remarks})


def _within(name: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise BadTopicSettings(name, f"is {value}; it must be from {least} to {most}")


def _settings() -> dict[str, TopicSetting]:
    hints = get_type_hints(TopicSettings, include_extras=True)
    return {name: get_args(hint)[1] for name, hint in hints.items()}


TOPIC_SETTINGS: dict[str, TopicSetting] = _settings()


def from_said(words: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings that are said as REST says them by their names in the streams; what is not said is left out.

    >>> from_said({"retention_s": 1.5, "cleanup": "compact"})
    {'retention_ms': 1500, 'is_compacted': True, 'is_deleted': False}
    """
    found: dict[str, Any] = {}
    for name, setting in TOPIC_SETTINGS.items():
        if setting.said and setting.said in words:
            value = words[setting.said]
            found[name] = milliseconds(value) if setting.unit == "ms" and value is not None else value
    return found | (read_policies(words["cleanup"]) if "cleanup" in words else {})


def as_said(settings: TopicSettings) -> dict[str, Any]:
    """Return all settings that REST has, as it says them.

    >>> as_said(TopicSettings(retention_ms=1_500, is_compacted=True))["cleanup"]
    'compact,delete'
    """
    found: dict[str, Any] = {}
    for name, setting in TOPIC_SETTINGS.items():
        if setting.said:
            value = getattr(settings, name)
            found[setting.said] = seconds(value) if setting.unit == "ms" and value is not None else value
    return found | {"cleanup": policies_of(settings)}


def policies_of(settings: TopicSettings) -> str:
    return ",".join(name for name, field in POLICIES.items() if getattr(settings, field))


def read_policies(text: str) -> dict[str, bool]:
    """Return what a list of policies sets; raises `ValueError` if one is not known."""
    named = {each.strip() for each in text.split(",")} - {""}
    if not named <= POLICIES.keys():
        raise ValueError("it must be delete, compact, or both")
    return {field: name in named for name, field in POLICIES.items()}
