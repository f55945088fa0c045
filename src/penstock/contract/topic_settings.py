"""How one topic behaves, in one table: names, bounds, defaults and meanings of what its owner may choose.

field of TopicSettings    in the streams and on disk
TopicSetting.said         in REST, where times are seconds
TopicSetting.kafka        in Kafka, which stops at the front end
"""

from dataclasses import dataclass, fields
from typing import Annotated, Any, get_args, get_type_hints

from penstock.contract.limits import (
    BATCH_BYTES_MAX,
    KIB,
    MIB,
    SEGMENT_BYTES_MAX,
    TOPIC_PARTITIONS_MAX,
    UNPACKED_BYTES_MAX,
)

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
_TIME_MS_MAX = 2**62


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
    most: int = _TIME_MS_MAX
    said: str = ""
    # Of a number that Kafka says as a number.
    kafka: str = ""


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
        TopicSetting(said="retention_s", kafka="retention.ms", help="How long a record is kept; null for ever."),
    ] = 7 * DAY_MS
    retention_bytes: Annotated[
        int | None,
        TopicSetting(
            said="retention_bytes", kafka="retention.bytes", help="What a partition may take; null is no bound."
        ),
    ] = None
    segment_bytes: Annotated[
        int,
        TopicSetting(
            said="segment_bytes",
            kafka="segment.bytes",
            least=KIB,
            most=SEGMENT_BYTES_MAX // 2,
            help="A partition is let go of in parts of this size.",
        ),
    ] = 256 * MIB
    segment_ms: Annotated[
        int, TopicSetting(kafka="segment.ms", least=1, help="After how long a segment is not written to any more.")
    ] = 7 * DAY_MS
    message_bytes_max: Annotated[
        int,
        TopicSetting(
            said="max_message_bytes",
            kafka="max.message.bytes",
            least=1,
            most=BATCH_BYTES_MAX,
            help="The largest batch of records that is taken.",
        ),
    ] = 1_048_588
    unpacked_bytes_max: Annotated[
        int,
        TopicSetting(least=1, most=UNPACKED_BYTES_MAX, help="What a compressed batch may become when it is unpacked."),
    ] = 16 * MIB
    is_compacted: Annotated[
        bool, TopicSetting(help="Whether only the last record of each key is kept, sooner or later.")
    ] = False
    is_deleted: Annotated[
        bool,
        TopicSetting(
            help="Whether what is older or more than is to be kept is dropped. A topic may be compacted, too; with "
            "neither, all is kept."
        ),
    ] = True
    codec: Annotated[
        int | None,
        TopicSetting(
            # From none to zstd, as `streams.compression` numbers them.
            most=4,
            help="How records are packed here, whatever their producer did; None as they came.",
        ),
    ] = None
    has_append_time: Annotated[
        bool, TopicSetting(help="Whether records have the time of their arrival, not the one their producer gave them.")
    ] = False
    ahead_ms_max: Annotated[
        int | None,
        TopicSetting(
            kafka="message.timestamp.after.max.ms",
            help="How far ahead of the clock a producer's time may be; None for any. A record of the far future would "
            "keep its segment from ever being old.",
        ),
    ] = HOUR_MS
    tombstone_ms: Annotated[
        int,
        TopicSetting(
            kafka="delete.retention.ms",
            help="How long a reader can still see that a key was deleted, in a compacted topic.",
        ),
    ] = DAY_MS
    dirty_percent_max: Annotated[
        int,
        TopicSetting(
            most=100, help="How much of a compacted partition may be of records since the last cleaning, in percent."
        ),
    ] = 50
    compaction_lag_ms_min: Annotated[
        int,
        TopicSetting(kafka="min.compaction.lag.ms", help="How long a record of a compacted topic stays as it is."),
    ] = 0
    compaction_lag_ms_max: Annotated[
        int | None,
        TopicSetting(
            least=1,
            help="After how long at the most a record has been looked at; None for whenever enough of them have come.",
        ),
    ] = None
    remarks: Annotated[
        tuple[tuple[str, str], ...],
        TopicSetting(
            help="What was said of the topic, in the words of its owner: they are said again, as they were, if they "
            "still hold."
        ),
    ] = ()

    def __post_init__(self) -> None:
        for name, setting in TOPIC_SETTINGS.items():
            value = getattr(self, name)
            if type(value) is int:
                _within(name, value, setting.least, setting.most)
        if self.compaction_lag_ms_max is not None:
            _within("compaction_lag_ms_max", self.compaction_lag_ms_max, self.compaction_lag_ms_min, _TIME_MS_MAX)

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
