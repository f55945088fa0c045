"""A topic: a name, an id that is never used again, its settings and its partitions."""

import re
from dataclasses import dataclass, field

from penstock.contract.limits import TOPIC_NAME_CHARACTERS_MAX
from penstock.contract.topic_settings import TopicSettings
from penstock.streams.partition import Partition

_NAME = re.compile(r"[A-Za-z0-9._-]+")


class TopicExists(Exception):
    """There is a topic of this name, or one that differs only in dots and underscores."""


class TopicNotFound(Exception):
    """There is no topic of this name or id."""


class PartitionNotFound(Exception):
    """The topic has no partition of this number."""


class BadTopicName(ValueError):
    """No topic may be called so; the message says why."""


class TooManyPartitions(Exception):
    """There are as many topics or partitions as there may be."""


class PartitionsCannotShrink(ValueError):
    """A topic may get more partitions, never fewer: where would the records go?"""


@dataclass(slots=True)
class Topic:
    name: str
    # Sixteen random bytes, as Kafka's topic ids.
    id: bytes
    # Counts topics in the order of their making. Names their folders; never used again.
    number: int
    settings: TopicSettings
    partitions: list[Partition] = field(default_factory=list)

    def partition(self, index: int) -> Partition:
        if not 0 <= index < len(self.partitions):
            raise PartitionNotFound(f"topic {self.name!r} has no partition {index}")
        return self.partitions[index]


def check_topic_name(name: str) -> None:
    """Raise `BadTopicName` if no topic may be called so: Kafka's rule."""
    if not 1 <= len(name) <= TOPIC_NAME_CHARACTERS_MAX:
        limit = f"it has 1 to TOPIC_NAME_CHARACTERS_MAX ({TOPIC_NAME_CHARACTERS_MAX})"
        raise BadTopicName(f"a topic name of {len(name)} characters; {limit}")
    if not _NAME.fullmatch(name) or name in {".", ".."}:
        raise BadTopicName(f"{name!r} is no topic name; it has A-Z a-z 0-9 . _ - and is neither '.' nor '..'")
