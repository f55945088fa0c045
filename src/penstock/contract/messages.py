"""The words of a message: how urgent it is, where it is, and how its life in a queue ends.

Numbers are written to disk; words are those of REST, which metrics, Spark and the command line say too.
"""

from enum import IntEnum, StrEnum
from typing import Literal, get_args


class Tier(IntEnum):
    """How urgent a message is: five classes, 0 first."""

    CRITICAL = 0
    HIGH = 1
    NORMAL = 2
    LOW = 3
    BACKGROUND = 4


# Tiers by name: a tier is the place in this list.
PRIORITIES = tuple(tier.name for tier in Tier)
TIERS = len(PRIORITIES)

MessageState = Literal["ready", "delayed", "in_flight", "stuck", "moving"]
STATES: tuple[MessageState, ...] = get_args(MessageState)


class WaitReason(StrEnum):
    """What has to happen before a message is leased."""

    NONE = "none"
    BEHIND_OTHERS = "behind_others"
    DELAYED = "delayed"
    GROUP_BUSY = "group_busy"
    GROUP_BLOCKED = "group_blocked"
    IN_FLIGHT = "in_flight"
    AWAITING_BURIAL = "awaiting_burial"
    MOVING = "moving"
    PAUSED = "paused"


class MessageOutcome(IntEnum):
    """How a message's life in a queue ended."""

    ACKED = 1
    BURIED = 2
    EXPIRED = 3
    PURGED = 4
    REDRIVEN = 5
    DELETED = 6
    CANCELLED = 7


OUTCOMES = tuple(outcome.name.lower() for outcome in MessageOutcome)
# As a sentence says them.
OUTCOMES_TEXT = f"{', '.join(OUTCOMES[:-1])} or {OUTCOMES[-1]}"
# The same by their numbers; there is none for 0.
NUMBERED_OUTCOMES = ("", *OUTCOMES)
