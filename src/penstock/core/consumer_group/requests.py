"""The requests of the members of a consumer group, the answers, and the refusals.

The words of Kafka's classic group protocol, as values. The rules are in `group.py`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from penstock.contract.limits import GROUP_NAME_BYTES_MAX

# What a caller who is no member says its generation is.
NO_GENERATION = -1

# The control characters of ASCII and Latin-1, and those that part lines or turn the direction of a text.
_CONTROL = re.compile("[\0-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


class GroupState(Enum):
    """Where a group stands; the values are what Kafka's clients read."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class GroupRefusal(Exception):
    """A member was told no; each kind of it says why."""


class BadGroupName(GroupRefusal):
    """A group cannot have this name; the message says why."""


class GroupsStopping(GroupRefusal):
    """The server is stopping: it lets no member in and sends waiting ones away. They find the next server."""


class NotCoordinator(GroupRefusal):
    """Another server coordinates the group; ``node`` is its name, where it is known."""

    def __init__(self, message: str, node: str = "") -> None:
        super().__init__(message)
        self.node = node


class MemberIdNeeded(GroupRefusal):
    """A new member is to join once more, by the id it is given here: so a join that is repeated makes no ghosts."""

    def __init__(self, member_id: str) -> None:
        super().__init__(f"join again as {member_id!r}")
        self.member_id = member_id


class UnknownMember(GroupRefusal):
    """The group has no such member: it was never in it, left, or was silent for too long."""


class IllegalGeneration(GroupRefusal):
    """The group has gone on: this is not its generation any more, or never was."""


class RebalanceInProgress(GroupRefusal):
    """The members must join again: the group assigns its partitions again."""


class FencedInstance(GroupRefusal):
    """Another process has taken over this instance id. This one is to stop."""


class InconsistentProtocol(GroupRefusal):
    """There is no way of assigning partitions that this member and all others know."""


class BadSessionTimeout(GroupRefusal):
    """A session timeout outside the bounds of the broker."""


class GroupFull(GroupRefusal):
    """The group has as many members, or as many bytes of what they say, as it may have."""


class TooManyGroups(GroupRefusal):
    """There are as many groups as there may be."""


class MemberTooLarge(GroupRefusal):
    """A member says more of itself, or is assigned more, than may be kept."""


class GroupNotFound(GroupRefusal):
    """There is no group of this name."""


class GroupNotEmpty(GroupRefusal):
    """The group has members, so it cannot go."""


class TopicSubscribed(GroupRefusal):
    """Members of the group read this topic, so its offsets cannot go."""


class BadOffset(GroupRefusal):
    """An offset that no partition can have."""


class MetadataTooLarge(GroupRefusal):
    """The words a consumer adds to an offset are longer than OFFSET_METADATA_BYTES_MAX."""


class TooManyOffsets(GroupRefusal):
    """As many offsets are kept as may be."""


class PartitionUnknown(GroupRefusal):
    """There is no such topic, or it has no such partition, so no offset of it is kept."""


def check_group_name(name: str) -> None:
    """Raise `BadGroupName` unless a group may have this name: as in Kafka any text, but without control characters.

    Those would reach logs, terminals and tables of people who only look at groups.
    """
    if not 1 <= len(name.encode()) <= GROUP_NAME_BYTES_MAX:
        raise BadGroupName(f"a group has a name of 1 to GROUP_NAME_BYTES_MAX ({GROUP_NAME_BYTES_MAX}) bytes")
    if _CONTROL.search(name):
        raise BadGroupName("a group has a name without control characters")


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinRequest:
    """A consumer asks to be a member, or to stay one in the next generation."""

    member_id: str = ""  # Empty: it has none yet.
    instance_id: str | None = None  # A name that outlives its process: a static member.
    client_id: str = ""
    client_host: str = ""
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]  # Name and metadata, the one it likes best first.
    # A client that can be told its id and then joins by it (JoinGroup 4 and later).
    needs_member_id: bool = True
    # A leader that can be told to assign nothing (JoinGroup 9 and later).
    can_skip_assignment: bool = False


@dataclass(frozen=True, slots=True)
class JoinedMember:
    """What the leader learns of a member, itself included."""

    member_id: str
    instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True)
class Joined:
    """A member is in this generation. Only its leader learns of the others."""

    generation: int
    protocol_type: str
    protocol: str
    leader: str
    member_id: str
    members: tuple[JoinedMember, ...] = ()
    skip_assignment: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncRequest:
    """A member asks for its assignment; the leader brings all of them."""

    member_id: str
    generation: int
    instance_id: str | None = None
    protocol_type: str | None = None  # None: a client too old to say.
    protocol: str | None = None
    assignments: Mapping[str, bytes] = field(default_factory=dict)  # By member id.


@dataclass(frozen=True, slots=True)
class Synced:
    protocol_type: str
    protocol: str
    assignment: bytes


@dataclass(frozen=True, slots=True)
class Leaver:
    """Who is to leave: by its member id, or a static member by its instance id alone."""

    member_id: str = ""
    instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class MemberDescription:
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes  # Of the protocol that was chosen; empty while there is none.
    assignment: bytes


@dataclass(frozen=True, slots=True)
class GroupDescription:
    group: str
    state: GroupState
    protocol_type: str  # Empty for a group that only keeps offsets.
    protocol: str
    generation: int
    leader: str
    members: tuple[MemberDescription, ...]
