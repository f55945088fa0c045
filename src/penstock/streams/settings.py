"""How one topic behaves: the choices its owner makes when creating it, and may change later.

Kafka's names for them (`cleanup.policy`, `max.message.bytes`) stop at the front end.
"""

from dataclasses import dataclass, fields
from typing import Any

from penstock.contract.limits import (
    BATCH_BYTES_MAX,
    KIB,
    MIB,
    SEGMENT_BYTES_MAX,
    TOPIC_PARTITIONS_MAX,
    UNPACKED_BYTES_MAX,
)
from penstock.streams.packing import NONE, ZSTD

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
_TIME_MS_MAX = 2**62


class BadTopicSettings(ValueError):
    """A topic cannot be like this; ``field`` says what is wrong."""

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(f"{field} {reason}")
        self.field = field


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSettings:
    partitions: int = 1
    # How long a record is kept at least; None for ever.
    retention_ms: int | None = 7 * DAY_MS
    # How much of each partition is kept; None for all of it.
    retention_bytes: int | None = None
    segment_bytes: int = 256 * MIB
    segment_ms: int = 7 * DAY_MS
    # One record batch, as it comes.
    message_bytes_max: int = 1_048_588
    # What a compressed batch may become when it is unpacked.
    unpacked_bytes_max: int = 16 * MIB
    # Only the last record of each key is kept, sooner or later.
    is_compacted: bool = False
    # What is older or more than is to be kept is dropped. A topic may be compacted, too; with neither, all is kept.
    is_deleted: bool = True
    # How records are packed here, a number of `packing`, whatever their producer did; None as they came.
    codec: int | None = None
    # Records have the time of their arrival, not the one their producer gave them.
    has_append_time: bool = False
    # How far ahead of the clock a producer's time may be; None for any. A record of the far future would keep its
    # segment from ever being old.
    ahead_ms_max: int | None = HOUR_MS
    # How long a reader can still see that a key was deleted, in a compacted topic.
    tombstone_ms: int = DAY_MS
    # How much of a compacted partition may be of records since the last cleaning, in percent.
    dirty_percent_max: int = 50
    # How long a record of a compacted topic stays as it is, and after how long at the most it has been looked at; None
    # for whenever enough of them have come.
    compaction_lag_ms_min: int = 0
    compaction_lag_ms_max: int | None = None
    # What was said of the topic, in the words of its owner: they are said again, as they were, if they still hold.
    remarks: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        _within("partitions", self.partitions, 1, TOPIC_PARTITIONS_MAX)
        _within("segment_bytes", self.segment_bytes, 1 * KIB, SEGMENT_BYTES_MAX // 2)
        _within("segment_ms", self.segment_ms, 1, _TIME_MS_MAX)
        _within("message_bytes_max", self.message_bytes_max, 1, BATCH_BYTES_MAX)
        _within("unpacked_bytes_max", self.unpacked_bytes_max, 1, UNPACKED_BYTES_MAX)
        _within("tombstone_ms", self.tombstone_ms, 0, _TIME_MS_MAX)
        _within("dirty_percent_max", self.dirty_percent_max, 0, 100)
        _within("compaction_lag_ms_min", self.compaction_lag_ms_min, 0, _TIME_MS_MAX)
        if self.compaction_lag_ms_max is not None:
            _within(
                "compaction_lag_ms_max", self.compaction_lag_ms_max, max(1, self.compaction_lag_ms_min), _TIME_MS_MAX
            )
        for name in ("retention_ms", "retention_bytes", "ahead_ms_max"):
            if (value := getattr(self, name)) is not None:
                _within(name, value, 0, _TIME_MS_MAX)
        if self.codec is not None:
            _within("codec", self.codec, NONE, ZSTD)

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
