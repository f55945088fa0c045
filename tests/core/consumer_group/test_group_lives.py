"""Random lives of a consumer group: whatever its members do, no member is lost, stuck or told two things."""

import doctest
from copy import deepcopy
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from penstock.core.consumer_group import members
from penstock.core.consumer_group.group import DELAYS_MAX, Answer, Group
from penstock.core.consumer_group.members import OLD_DEADLINES, GroupSettings, assigned_partitions, subscribed_topics
from penstock.core.consumer_group.requests import (
    GroupRefusal,
    GroupState,
    Joined,
    JoinRequest,
    Leaver,
    MemberIdNeeded,
    Synced,
    SyncRequest,
)

DELAY_MS = 20
SESSION_MS = 1_000
REBALANCE_MS = 600
SETTINGS = GroupSettings(initial_delay_ms=DELAY_MS, members_max=4)
# A join waits for a generation to begin, which has its delays and then its patience.
JOIN_MS_MAX = DELAY_MS * DELAYS_MAX + REBALANCE_MS

PROTOCOLS = ((("range", b"r"),), (("range", b"r"), ("sticky", b"s")), (("sticky", b"s"), ("range", b"r")))

verbs = st.sampled_from(["join", "join", "join", "sync", "sync", "beat", "leave", "vanish", "forget"])
Step = tuple[str, int, int, tuple[tuple[str, bytes], ...]]

steps = st.tuples(
    verbs,
    st.integers(0, 4),  # Who.
    st.sampled_from([0, 0, 0, 1, 15, 100, 700, 1_000]),  # How much later.
    st.sampled_from(PROTOCOLS),
)


@dataclass
class Consumer:
    name: str
    instance_id: str | None
    is_old: bool = False
    member_id: str = ""
    generation: int = -1
    ticket: int | None = None


class Life:
    def __init__(self) -> None:
        self.group = Group("readers", SETTINGS)
        self.now_ms = 0
        self.tickets = 0
        # Two of five are static, and two of them are started under one instance id.
        self.consumers = [
            Consumer("a", None),
            Consumer("b", None),
            Consumer("c", None, is_old=True),
            Consumer("d", "i1"),
            Consumer("e", "i1"),
        ]
        self.waiting: dict[int, tuple[Consumer, int, int]] = {}
        self.assigned: dict[tuple[int, str], bytes] = {}
        self.generation = 0

    def wait(self, consumer: Consumer, most_ms: int) -> int:
        self.tickets += 1
        self.waiting[self.tickets] = (consumer, self.now_ms + most_ms, self.tickets)
        consumer.ticket = self.tickets
        return self.tickets

    def hear(self, answers: list[Answer]) -> None:
        for ticket, said in answers:
            consumer, _, _ = self.waiting.pop(ticket)
            if isinstance(said, Joined):
                consumer.member_id, consumer.generation = said.member_id, said.generation
            elif isinstance(said, Synced):
                key = (self.group.generation, consumer.member_id)
                assert self.assigned.setdefault(key, said.assignment) == said.assignment
            if consumer.ticket == ticket:
                consumer.ticket = None

    def pass_time(self, until_ms: int) -> None:
        while (next_ms := self.group.next_ms()) is not None and next_ms <= until_ms:
            self.now_ms = max(self.now_ms, next_ms)
            self.hear(self.group.tick(self.now_ms))
            after = self.group.next_ms()
            assert after is None or after > self.now_ms, (
                "a tick that changes nothing would be asked for again and again"
            )
            self.check()
        self.now_ms = until_ms

    def join(self, consumer: Consumer, protocols: tuple[tuple[str, bytes], ...]) -> None:
        request = JoinRequest(
            member_id=consumer.member_id,
            instance_id=consumer.instance_id,
            client_id=consumer.name,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            protocol_type="consumer",
            protocols=protocols,
            needs_member_id=not consumer.is_old,
        )
        ticket = self.wait(consumer, JOIN_MS_MAX)
        try:
            self.hear(self.group.join(request, ticket=ticket, now_ms=self.now_ms, token=ticket))
        except MemberIdNeeded as needed:
            del self.waiting[ticket]
            consumer.member_id = needed.member_id
        except GroupRefusal:
            del self.waiting[ticket]
            consumer.member_id, consumer.generation = "", -1

    def sync(self, consumer: Consumer) -> None:
        members = self.group.roster.members
        request = SyncRequest(
            member_id=consumer.member_id,
            generation=consumer.generation,
            instance_id=consumer.instance_id,
            assignments={each: f"{self.now_ms} {each}".encode() for each in members},
        )
        ticket = self.wait(consumer, REBALANCE_MS)
        try:
            self.hear(self.group.sync(request, ticket=ticket, now_ms=self.now_ms))
        except GroupRefusal:
            del self.waiting[ticket]

    def beat(self, consumer: Consumer) -> None:
        try:
            self.group.heartbeat(consumer.member_id, consumer.instance_id, consumer.generation, now_ms=self.now_ms)
        except GroupRefusal:
            pass

    def leave(self, consumer: Consumer) -> None:
        _, answers = self.group.leave([Leaver(consumer.member_id, consumer.instance_id)], now_ms=self.now_ms)
        self.hear(answers)

    def vanish(self, consumer: Consumer) -> None:
        if consumer.ticket in self.waiting:
            del self.waiting[consumer.ticket]
            self.hear(self.group.abandon(consumer.ticket, now_ms=self.now_ms))

    def check(self) -> None:
        group, roster = self.group, self.group.roster
        members = roster.members.values()
        held = [each.join_ticket for each in members] + [each.sync_ticket for each in members]
        assert sorted(each for each in held if each is not None) == sorted(self.waiting)
        assert all(ends_at_ms >= self.now_ms for _, ends_at_ms, _ in self.waiting.values())
        assert (roster.leader in roster.members) == bool(roster.members)
        assert roster.instances == {each.instance_id: each.member_id for each in members if each.is_static}
        assert len(roster.members) + len(roster.pending) <= SETTINGS.members_max
        assert not (group.state is GroupState.EMPTY and roster.members)
        assert group.state is GroupState.PREPARING or not any(each.join_ticket for each in members)
        assert group.state is GroupState.COMPLETING or not any(each.sync_ticket for each in members)
        assert roster.joins == {each.join_ticket: each for each in members if each.join_ticket is not None}
        assert roster.syncs == {each.sync_ticket: each for each in members if each.sync_ticket is not None}
        assert roster.size_bytes() == sum(each.size_bytes + len(each.assignment) for each in members)
        ends_ms = [*roster.pending.values(), *(each.until_ms for each in members if not each.is_waiting)]
        assert not ends_ms or roster.deadlines[0][0] <= min(ends_ms), "a deadline would be missed"
        assert len(roster.deadlines) <= 2 * (len(members) + len(roster.pending) + 1) + OLD_DEADLINES
        assert group.generation >= self.generation
        self.generation = group.generation


def live(life: Life, steps: list[Step]) -> None:
    for verb, who, later_ms, protocols in steps:
        life.pass_time(life.now_ms + later_ms)
        consumer = life.consumers[who]
        if verb == "join":
            life.join(consumer, protocols)
        elif verb == "forget":
            consumer.member_id, consumer.generation = "", -1
        else:
            getattr(life, verb)(consumer)
        life.check()


@given(st.binary(max_size=60))
def test_what_a_hostile_member_says_of_itself_is_read_or_refused(said: bytes) -> None:
    topics, partitions = subscribed_topics(said), assigned_partitions(said)
    assert topics is None or sum(len(topic) for topic in topics) <= len(said)
    assert partitions is None or len(partitions) <= len(said)


@given(st.lists(steps, max_size=60))
def test_whatever_members_do_the_group_keeps_its_laws(
    steps: list[Step],
) -> None:
    life = Life()
    live(life, steps)
    # When all fall silent, all are given up, and no request is left waiting.
    life.pass_time(life.now_ms + 10 * (SESSION_MS + JOIN_MS_MAX))
    assert life.group.state is GroupState.EMPTY
    assert not life.waiting


@given(st.lists(steps, max_size=40))
def test_members_that_go_on_joining_come_to_share_a_generation(
    steps: list[Step],
) -> None:
    life = Life()
    live(life, steps)
    life.pass_time(life.now_ms + 10 * (SESSION_MS + JOIN_MS_MAX))
    active = life.consumers[:4]
    for _ in range(4):
        for consumer in active:
            # A client that waits for an answer does not ask again; the server could not tell it from another one.
            if consumer.ticket not in life.waiting:
                life.join(consumer, PROTOCOLS[0])
        life.pass_time(life.now_ms + DELAY_MS)
    for consumer in active:
        life.sync(consumer)
    assert life.group.state is GroupState.STABLE
    assert {each.generation for each in active} == {life.group.generation}
    assert not life.waiting


@given(st.lists(steps, max_size=40))
def test_a_group_goes_on_from_its_record(steps: list[Step]) -> None:
    life = Life()
    live(life, steps)
    group = life.group
    if group.state in {GroupState.STABLE, GroupState.EMPTY}:
        again = Group.restore("readers", SETTINGS, deepcopy(group.record(life.now_ms)), now_ms=life.now_ms)
        assert again.describe() == group.describe()
        assert again.roster.instances == group.roster.instances


def test_the_examples_beside_the_code_of_members_are_true() -> None:
    assert doctest.testmod(members).failed == 0
