"""The members of a consumer group: who is in it, who joins, who leads, and how they choose a protocol.

A `Member` is one client and what it subscribes to. The `Roster` has all of them.

Invariants of the roster: every instance id stands for one member; the leader is a member, if there
is one; the order of the members is the order in which they came, and in which they
may come to lead. What the members say and wait for changes through its methods
alone, which keep the sums: a request costs the same however many members there are.
"""

import struct
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush

from penstock.contract.limits import (
    CLIENT_NAME_CHARACTERS_MAX,
    GROUP_BYTES_MAX,
    GROUP_MEMBERS_MAX,
    GROUP_NAME_BYTES_MAX,
    MEMBER_BYTES_MAX,
    MEMBER_PROTOCOLS_MAX,
)
from penstock.core.consumer_group.requests import (
    BadSessionTimeout,
    FencedInstance,
    GroupFull,
    InconsistentProtocol,
    JoinedMember,
    JoinRequest,
    MemberDescription,
    MemberTooLarge,
    UnknownMember,
)

CONSUMER = "consumer"

Protocols = tuple[tuple[str, bytes], ...]

_VERSION_AND_COUNT = struct.Struct(">hi")
_LENGTH = struct.Struct(">h")
_NUMBER = struct.Struct(">i")
# No bytes of the consumer's own follow.
_NOTHING_MORE = _NUMBER.pack(-1)


@dataclass(slots=True, kw_only=True)
class Member:
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: Protocols
    assignment: bytes = b""
    # When it is given up, unless it is heard of before. A client that waits for our answer cannot speak, so
    # nothing is counted meanwhile.
    until_ms: int = 0
    # When the roster looks at ``until_ms`` next: never later than that, unless it waits.
    check_at_ms: int | None = None
    join_ticket: int | None = None
    sync_ticket: int | None = None
    # Whether it has been in no generation yet: nothing is assigned to it, so it can go without a trace.
    is_new: bool = True
    # Of its protocols: the names, and how much there is of names and metadata.
    names: frozenset[str] = frozenset()
    size_bytes: int = 0

    def __post_init__(self) -> None:
        self._measure()

    @property
    def is_waiting(self) -> bool:
        return self.join_ticket is not None or self.sync_ticket is not None

    @property
    def is_static(self) -> bool:
        return self.instance_id is not None

    def take(self, request: JoinRequest) -> None:
        """Become what a new join says."""
        self.client_id = request.client_id[:CLIENT_NAME_CHARACTERS_MAX]
        self.client_host = request.client_host[:CLIENT_NAME_CHARACTERS_MAX]
        self.session_timeout_ms = request.session_timeout_ms
        # Clients too old to say mean the same by both.
        self.rebalance_timeout_ms = max(request.rebalance_timeout_ms, 0) or request.session_timeout_ms
        self.protocols = request.protocols
        self._measure()

    def _measure(self) -> None:
        self.names = names_of(self.protocols)
        self.size_bytes = size_bytes(self.protocols)

    def metadata(self, protocol: str) -> bytes:
        return next((metadata for name, metadata in self.protocols if name == protocol), b"")

    def joined(self, protocol: str) -> JoinedMember:
        return JoinedMember(self.member_id, self.instance_id, self.metadata(protocol))

    def describe(self, protocol: str) -> MemberDescription:
        return MemberDescription(
            self.member_id,
            self.instance_id,
            self.client_id,
            self.client_host,
            self.metadata(protocol),
            self.assignment,
        )


def new_member(member_id: str, request: JoinRequest) -> Member:
    member = Member(
        member_id=member_id,
        instance_id=request.instance_id,
        client_id="",
        client_host="",
        session_timeout_ms=0,
        rebalance_timeout_ms=0,
        protocols=(),
    )
    member.take(request)
    return member


def size_bytes(protocols: Protocols) -> int:
    return sum(len(name.encode()) + len(metadata) for name, metadata in protocols)


def names_of(protocols: Protocols) -> frozenset[str]:
    return frozenset(name for name, _ in protocols)


def choose_protocol(votes: Collection[Protocols]) -> str:
    """Return the protocol most members like best of those that all know; of equals, the first by name.

    >>> choose_protocol([(("range", b""), ("sticky", b"")), (("sticky", b""), ("range", b"")), (("sticky", b""),)])
    'sticky'
    """
    known = frozenset.intersection(*map(names_of, votes))
    assert known, "no member was let in that knows none of them"
    count = dict.fromkeys(sorted(known), 0)
    for protocols in votes:
        count[next(name for name, _ in protocols if name in known)] += 1
    return max(count, key=count.__getitem__)


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """Return the topics in what a consumer says of itself, or None if it cannot be read.

    It begins with a version and the names, in all versions; what follows is no
    business of a broker.

    >>> sorted(subscribed_topics(bytes.fromhex("0000 00000002 0001 61 0001 62 ffffffff")))
    ['a', 'b']
    >>> subscribed_topics(b"junk") is None
    True
    """
    try:
        count, at = _begin(metadata)
        topics = set()
        # Each takes two bytes at least, so this ends with the bytes whatever the count says.
        for _ in range(count):
            topic, at = _name(metadata, at)
            topics.add(topic)
    except (struct.error, UnicodeDecodeError, ValueError):
        return None
    return frozenset(topics)


def assigned_partitions(assignment: bytes) -> list[tuple[str, int]] | None:
    """Return the topics and partitions in what a consumer was assigned, or None if it cannot be read.

    >>> assigned_partitions(bytes.fromhex("0000 00000001 0001 61 00000002 00000000 00000003 ffffffff"))
    [('a', 0), ('a', 3)]
    >>> assigned_partitions(b"")
    []
    >>> assigned_partitions(b"junk") is None
    True
    """
    if not assignment:
        return []
    found: list[tuple[str, int]] = []
    try:
        count, at = _begin(assignment)
        for _ in range(count):
            topic, at = _name(assignment, at)
            (many,) = _NUMBER.unpack_from(assignment, at)
            at += _NUMBER.size
            if not 0 <= many * _NUMBER.size <= len(assignment) - at:
                return None
            found += [(topic, partition) for (partition,) in _NUMBER.iter_unpack(assignment[at : at + many * 4])]
            at += many * _NUMBER.size
    except (struct.error, UnicodeDecodeError, ValueError):
        return None
    return found


def subscription_to(topics: Collection[str]) -> bytes:
    """Return what a consumer of these topics says of itself, in the first version.

    >>> sorted(subscribed_topics(subscription_to(["b", "a"])))
    ['a', 'b']
    """
    return _VERSION_AND_COUNT.pack(0, len(topics)) + b"".join(map(_packed_name, sorted(topics))) + _NOTHING_MORE


def assignment_of(places: Collection[tuple[str, int]]) -> bytes:
    """Return what a consumer of these partitions was assigned, in the first version.

    >>> assigned_partitions(assignment_of([("a", 3), ("b", 0), ("a", 0)]))
    [('a', 3), ('a', 0), ('b', 0)]
    """
    by_topic: dict[str, list[int]] = {}
    for topic, partition in places:
        by_topic.setdefault(topic, []).append(partition)
    rows = [
        _packed_name(topic) + struct.pack(f">i{len(partitions)}i", len(partitions), *partitions)
        for topic, partitions in by_topic.items()
    ]
    return _VERSION_AND_COUNT.pack(0, len(rows)) + b"".join(rows) + _NOTHING_MORE


def _packed_name(name: str) -> bytes:
    packed = name.encode()
    return _LENGTH.pack(len(packed)) + packed


def _begin(packed: bytes) -> tuple[int, int]:
    """Return how many rows follow the version, and where they begin."""
    _, count = _VERSION_AND_COUNT.unpack_from(packed)
    return count, _VERSION_AND_COUNT.size


def _name(packed: bytes, at: int) -> tuple[str, int]:
    (length,) = _LENGTH.unpack_from(packed, at)
    at += _LENGTH.size
    if not 0 <= length <= len(packed) - at:
        raise ValueError("a name runs past its end")
    return packed[at : at + length].decode(), at + length


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    # How long an empty group waits for more members once the first has come.
    initial_delay_ms: int = 200
    session_timeout_ms_min: int = 1_000
    session_timeout_ms_max: int = 30 * 60 * 1_000
    members_max: int = GROUP_MEMBERS_MAX
    # How long an id that was given out keeps its place at most: a client uses it at once, or has died.
    pending_ms_max: int = 10_000


# Deadlines that mean nothing any more are dropped once there are more of them than of the others, and than this.
OLD_DEADLINES = 64


@dataclass(slots=True)
class Roster:
    leader: str = ""
    members: dict[str, Member] = field(default_factory=dict)
    # Ids that were given out and not used yet, each with the time it is forgotten.
    pending: dict[str, int] = field(default_factory=dict)
    instances: dict[str, str] = field(default_factory=dict)
    # Members that wait for the next generation or for their assignment, by their tickets.
    joins: dict[int, Member] = field(default_factory=dict)
    syncs: dict[int, Member] = field(default_factory=dict)
    # Members that have not asked for their assignment in this generation.
    unsynced: set[str] = field(default_factory=set)
    # A heap of times with the ids to look at then. Some may mean nothing any more.
    deadlines: list[tuple[int, str]] = field(default_factory=list)
    # How many members know each protocol, how much all say of themselves, and how much is assigned to them.
    _known: Counter[str] = field(default_factory=Counter)
    _said_bytes: int = 0
    _assigned_bytes: int = 0

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

    def give_out(self, member_id: str, until_ms: int) -> None:
        """Remember an id that a client is to join by."""
        self.pending[member_id] = until_ms
        self._look_at(member_id, until_ms)

    def add(self, member: Member, now_ms: int) -> None:
        self.pending.pop(member.member_id, None)
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self.instances[member.instance_id] = member.member_id
        self.leader = self.leader or member.member_id
        self._count(member, 1)
        self.touch(member, now_ms)

    def remove(self, member: Member) -> None:
        assert not member.is_waiting
        del self.members[member.member_id]
        self.unsynced.discard(member.member_id)
        if member.instance_id is not None:
            del self.instances[member.instance_id]
        if self.leader == member.member_id:
            self.leader = next(iter(self.members), "")
        self._count(member, -1)

    def swap(self, old: Member, new: Member, now_ms: int) -> None:
        """Put a new process in the place of the one that had its instance id."""
        assert old.instance_id is not None
        assert not old.is_waiting
        ordered = [new if each is old else each for each in self.members.values()]
        self.members = {each.member_id: each for each in ordered}
        self.instances[old.instance_id] = new.member_id
        if self.leader == old.member_id:
            self.leader = new.member_id
        if old.member_id in self.unsynced:
            self.unsynced.remove(old.member_id)
            self.unsynced.add(new.member_id)
        self._count(old, -1)
        self._count(new, 1)
        self.touch(new, now_ms)

    def take(self, member: Member, request: JoinRequest) -> None:
        """Let a member become what a new join says."""
        self._count(member, -1)
        member.take(request)
        self._count(member, 1)

    def assign(self, assignments: Mapping[str, bytes]) -> None:
        """Give each member what is assigned to it: nothing, if it is not named."""
        for member in self.members.values():
            member.assignment = assignments.get(member.member_id, b"")
        self._assigned_bytes = sum(len(each.assignment) for each in self.members.values())

    def touch(self, member: Member, now_ms: int) -> None:
        """Note that a member was heard of, or waits no more."""
        member.until_ms = now_ms + member.session_timeout_ms
        # As long as it is looked at before, moving its time costs nothing.
        if member.check_at_ms is None or member.check_at_ms > member.until_ms:
            member.check_at_ms = member.until_ms
            self._look_at(member.member_id, member.until_ms)

    def lapse(self, now_ms: int) -> list[Member]:
        """Forget ids that were not used in time; return the members that have been silent for too long."""
        late = []
        while self.deadlines and self.deadlines[0][0] <= now_ms:
            at_ms, member_id = heappop(self.deadlines)
            if self.pending.get(member_id) == at_ms:
                del self.pending[member_id]
            member = self.members.get(member_id)
            if member is None or member.check_at_ms != at_ms:
                continue
            member.check_at_ms = None
            if member.is_waiting:
                continue
            if member.until_ms <= now_ms:
                late.append(member)
            else:
                member.check_at_ms = member.until_ms
                heappush(self.deadlines, (member.until_ms, member_id))
        return late

    def next_ms(self) -> int | None:
        """When `lapse` may have something to do; None if never. It may be early, never late."""
        return self.deadlines[0][0] if self.deadlines else None

    def size_bytes(self) -> int:
        """What the members say of themselves, and what is assigned to them."""
        return self._said_bytes + self._assigned_bytes

    def votes(self) -> list[Protocols]:
        return [each.protocols for each in self.members.values()]

    def joined(self) -> list[Member]:
        return [each for each in self.members.values() if each.join_ticket is not None]

    def has_all_joined(self) -> bool:
        return not self.pending and len(self.joins) == len(self.members)

    def patience_ms(self) -> int:
        """The longest that any member asked others to wait for it."""
        return max((each.rebalance_timeout_ms for each in self.members.values()), default=0)

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

    def check_fits(self, request: JoinRequest, protocol_type: str) -> None:
        """Refuse a member that shares no protocol with all others. A member that it replaces does not count."""
        own = self.members.get(request.member_id or self.instances.get(request.instance_id or "", ""))
        others = len(self.members) - (own is not None)
        if not others:
            return
        if request.protocol_type != protocol_type:
            raise InconsistentProtocol(f"the group is of type {protocol_type!r}, not {request.protocol_type!r}")
        own_names, own_bytes = (own.names, own.size_bytes) if own else (frozenset(), 0)
        if all(self._known[name] - (name in own_names) < others for name in names_of(request.protocols)):
            raise InconsistentProtocol("there is no protocol that all members know")
        if self._said_bytes - own_bytes + size_bytes(request.protocols) > GROUP_BYTES_MAX:
            raise GroupFull(f"the members say more of themselves than GROUP_BYTES_MAX ({GROUP_BYTES_MAX}) allows")

    def _count(self, member: Member, times: int) -> None:
        self._said_bytes += times * member.size_bytes
        self._assigned_bytes += times * len(member.assignment)
        for name in member.names:
            self._known[name] += times
            if not self._known[name]:
                del self._known[name]

    def _look_at(self, member_id: str, at_ms: int) -> None:
        heappush(self.deadlines, (at_ms, member_id))
        if len(self.deadlines) > 2 * (len(self.members) + len(self.pending)) + OLD_DEADLINES:
            checks = [(each.check_at_ms, each.member_id) for each in self.members.values()]
            self.deadlines = [(at_ms, name) for at_ms, name in checks if at_ms is not None]
            self.deadlines += [(at_ms, name) for name, at_ms in self.pending.items()]
            heapify(self.deadlines)


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
