"""Who is in a consumer group, who is about to be, who leads; and who is let in at all.

Invariants: every instance id stands for one member; the leader is a member, if there
is one; the order of the members is the order in which they came, and in which they
may come to lead.
"""

from dataclasses import dataclass, field

from penstock.contract.limits import (
    GROUP_BYTES_MAX,
    GROUP_MEMBERS_MAX,
    GROUP_NAME_BYTES_MAX,
    MEMBER_BYTES_MAX,
    MEMBER_PROTOCOLS_MAX,
)
from penstock.core.group_calls import (
    BadSessionTimeout,
    FencedInstance,
    GroupFull,
    InconsistentProtocol,
    JoinRequest,
    MemberTooLarge,
    UnknownMember,
)
from penstock.core.group_members import (
    CONSUMER,
    Member,
    Protocols,
    names_of,
    size_bytes,
    subscribed_topics,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    # How long an empty group waits for more members once the first has come.
    initial_delay_ms: int = 200
    session_timeout_ms_min: int = 1_000
    session_timeout_ms_max: int = 30 * 60 * 1_000
    members_max: int = GROUP_MEMBERS_MAX
    # How long an id that was given out keeps its place at most: a client uses it at once, or has died.
    pending_ms_max: int = 10_000


@dataclass(slots=True)
class Roster:
    leader: str = ""
    members: dict[str, Member] = field(default_factory=dict)
    # Ids that were given out and not used yet, each with the time it is forgotten.
    pending: dict[str, int] = field(default_factory=dict)
    instances: dict[str, str] = field(default_factory=dict)

    def find(self, member_id: str, instance_id: str | None) -> Member:
        if instance_id is not None:
            known = self.instances.get(instance_id)
            if known is not None and known != member_id:
                raise FencedInstance(f"instance {instance_id!r} is another process now")
        member = self.members.get(member_id)
        if member is None or (instance_id is not None and member.instance_id != instance_id):
            raise UnknownMember(f"the group has no member {member_id!r}")
        return member

    def instance(self, instance_id: str | None) -> Member | None:
        return None if instance_id is None else self.members.get(self.instances.get(instance_id, ""))

    def add(self, member: Member) -> None:
        self.pending.pop(member.member_id, None)
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self.instances[member.instance_id] = member.member_id
        self.leader = self.leader or member.member_id

    def remove(self, member: Member) -> None:
        del self.members[member.member_id]
        if member.instance_id is not None:
            del self.instances[member.instance_id]
        if self.leader == member.member_id:
            self.leader = next(iter(self.members), "")

    def swap(self, old: Member, new: Member) -> None:
        """Put a new process in the place of the one that had its instance id."""
        assert old.instance_id is not None
        ordered = [new if each is old else each for each in self.members.values()]
        self.members = {each.member_id: each for each in ordered}
        self.instances[old.instance_id] = new.member_id
        if self.leader == old.member_id:
            self.leader = new.member_id

    def votes(self) -> list[Protocols]:
        return [each.protocols for each in self.members.values()]

    def joined(self) -> list[Member]:
        return [each for each in self.members.values() if each.join_ticket is not None]

    def has_all_joined(self) -> bool:
        return not self.pending and all(each.join_ticket is not None for each in self.members.values())

    def patience_ms(self) -> int:
        """The longest that any member asked others to wait for it."""
        return max((each.rebalance_timeout_ms for each in self.members.values()), default=0)

    def next_ms(self) -> int | None:
        """When the first may have been silent for too long; None if nobody can."""
        sessions = (each.until_ms for each in self.members.values() if not each.is_waiting)
        return min((*self.pending.values(), *sessions), default=None)

    def reads(self, topic: str, *, protocol_type: str, protocol: str) -> bool:
        """Whether a member may be reading a topic. Of one that does not say what it reads, it is all."""
        if self.members and protocol_type != CONSUMER:
            return True
        return any(topics is None or topic in topics for topics in self._subscriptions(protocol))

    def topics(self, *, protocol_type: str, protocol: str) -> frozenset[str]:
        if protocol_type != CONSUMER:
            return frozenset()
        return frozenset().union(*(topics or () for topics in self._subscriptions(protocol)))

    def _subscriptions(self, protocol: str) -> "list[frozenset[str] | None]":
        return [subscribed_topics(each.metadata(protocol) or each.protocols[0][1]) for each in self.members.values()]


def check_request(request: JoinRequest, settings: GroupSettings) -> None:
    """Refuse what no group would take."""
    if not settings.session_timeout_ms_min <= request.session_timeout_ms <= settings.session_timeout_ms_max:
        bounds = f"from {settings.session_timeout_ms_min} to {settings.session_timeout_ms_max} ms"
        raise BadSessionTimeout(f"a session timeout of {request.session_timeout_ms} ms; it may be {bounds}")
    if not request.protocol_type or not request.protocols:
        raise InconsistentProtocol("a member says what it is and offers at least one protocol")
    if len(request.protocols) > MEMBER_PROTOCOLS_MAX or size_bytes(request.protocols) > MEMBER_BYTES_MAX:
        bounds = f"MEMBER_PROTOCOLS_MAX ({MEMBER_PROTOCOLS_MAX}) and MEMBER_BYTES_MAX ({MEMBER_BYTES_MAX})"
        raise MemberTooLarge(f"it says more of itself than {bounds} allow")
    for name in (request.instance_id, request.protocol_type):
        if name is not None and len(name.encode()) > GROUP_NAME_BYTES_MAX:
            raise MemberTooLarge(f"a name of more than GROUP_NAME_BYTES_MAX ({GROUP_NAME_BYTES_MAX}) bytes")


def check_fits(request: JoinRequest, roster: Roster, protocol_type: str) -> None:
    """Refuse whoever shares no protocol with all others: none could be chosen. What it replaces does not count."""
    own_id = request.member_id or roster.instances.get(request.instance_id or "", "")
    others = [each for each in roster.members.values() if each.member_id != own_id]
    if not others:
        return
    if request.protocol_type != protocol_type:
        raise InconsistentProtocol(f"the group is of type {protocol_type!r}, not {request.protocol_type!r}")
    if not names_of(request.protocols).intersection(*(each.names for each in others)):
        raise InconsistentProtocol("there is no protocol that all members know")
    if sum(each.size_bytes for each in others) + size_bytes(request.protocols) > GROUP_BYTES_MAX:
        raise GroupFull(f"the members say more of themselves than GROUP_BYTES_MAX ({GROUP_BYTES_MAX}) allows")
