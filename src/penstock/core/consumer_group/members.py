"""One member of a consumer group, what it reads, and how all of them choose a protocol."""

import struct
from collections.abc import Collection
from dataclasses import dataclass

from penstock.contract.limits import CLIENT_NAME_CHARACTERS_MAX
from penstock.core.consumer_group.requests import JoinedMember, JoinRequest, MemberDescription

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
    # When it is given up, unless it is heard of before. Whoever waits for an answer of ours cannot speak, so
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
    assert known, "nobody was let in who knows none of them"
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
