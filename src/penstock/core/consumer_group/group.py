"""A consumer group of Kafka's classic protocol: generations, and what is assigned in each.

              join                all have joined, or had their time
    EMPTY ──────────▶ PREPARING ───────────────────────────────────▶ COMPLETING
      ▲                │  ▲  ▲                                        │     │
      └── none is left ┘  │  └── a member comes, goes or changes ─────┘     │
                          │                                                 │ the leader
                          └── a member comes, goes or changes ── STABLE ◀───┘ brings the
                                                                              assignment
Rules of this file
------------------
1. Nothing here reads a clock, rolls a die or does I/O: time and chance are arguments.
2. A waiting call is a *ticket*, a number the caller chose. Every call returns the
   answers that are due now, each with its ticket; a ticket is answered once.
3. A call that refuses raises, and has then answered no other call. Only `MemberIdNeeded`
   leaves a trace: the id that was given out.
4. What comes and goes between generations is no fact worth keeping: members that lose
   it say it again. Only a whole generation is (`record`, when `has_news`), so this
   machine has no events, unlike a queue.

Invariants: joins wait only in PREPARING, syncs only in COMPLETING, and no call waits
longer than the longest rebalance timeout of the group and its first delay.

Where we are kinder than Kafka: a new member whose client has gone is forgotten at once
(`abandon`), an id that was given out and is not used is forgotten sooner, a lone member
may change its protocols, and a static member that is away is given up by its session alone.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from penstock.contract.limits import GROUP_BYTES_MAX
from penstock.core.consumer_group.members import (
    GroupSettings,
    Member,
    Roster,
    check_request,
    choose_protocol,
    new_member,
    subscribed_topics,
)
from penstock.core.consumer_group.requests import (
    NO_GENERATION,
    FencedInstance,
    GroupDescription,
    GroupFull,
    GroupRefusal,
    GroupState,
    IllegalGeneration,
    InconsistentProtocol,
    Joined,
    JoinRequest,
    Leaver,
    MemberIdNeeded,
    MemberTooLarge,
    RebalanceInProgress,
    Synced,
    SyncRequest,
    UnknownMember,
)

GENERATION_MAX = 2**31 - 1
# A group that keeps growing while it waits to begin waits no longer than so many delays.
DELAYS_MAX = 10
# Of the client's name, in the id of a member.
_NAME_CHARACTERS = 100


class Answer(NamedTuple):
    ticket: int
    said: Joined | Synced | GroupRefusal


@dataclass(frozen=True, slots=True)
class GroupRecord:
    """A whole generation: what is kept of a group. One without members is empty since ``at_ms``."""

    at_ms: int
    generation: int
    protocol_type: str
    protocol: str
    leader: str
    members: tuple[Member, ...] = ()


@dataclass(slots=True)
class Group:
    name: str
    settings: GroupSettings
    state: GroupState = GroupState.EMPTY
    generation: int = 0
    protocol_type: str = ""
    protocol: str = ""
    roster: Roster = field(default_factory=Roster)
    empty_since_ms: int = 0
    # Set when there is a new generation to keep; cleared once it is kept.
    has_news: bool = False
    # While PREPARING, when it goes on without those who have not come. After that, when those who have not
    # asked for their assignment are given up; None when all have.
    _ends_at_ms: int | None = None
    # While PREPARING, it does not go on before this, nor is this put off beyond the other.
    _begins_at_ms: int = 0
    _begins_at_ms_max: int = 0
    _answers: list[Answer] = field(default_factory=list)

    def join(self, request: JoinRequest, *, ticket: int, now_ms: int, token: int) -> list[Answer]:
        """Let a consumer in, or a member go on; ``token`` makes the id of a new one."""
        check_request(request, self.settings)
        self.roster.check_fits(request, self.protocol_type)
        if not request.member_id:
            self._join_unnamed(request, ticket, now_ms, token)
        elif request.member_id in self.roster.pending and request.instance_id is None:
            self._add(request.member_id, request, ticket, now_ms)
        else:
            self._join_again(self.roster.find(request.member_id, request.instance_id), request, ticket, now_ms)
        return self._due()

    def sync(self, request: SyncRequest, *, ticket: int, now_ms: int) -> list[Answer]:
        """Ask for an assignment; the leader's call brings all of them, and answers everybody."""
        member = self.roster.find(request.member_id, request.instance_id)
        self._check_generation(request.generation)
        if request.protocol_type not in {None, self.protocol_type} or request.protocol not in {None, self.protocol}:
            raise InconsistentProtocol(f"the group has {self.protocol_type!r} and {self.protocol!r}")
        if self.state is GroupState.PREPARING:
            raise RebalanceInProgress("the group is preparing its next generation")
        # All who wait are answered when the generation becomes whole, and after that only the one who asks.
        to_tell: Iterable[Member] = (member,)
        if self.state is GroupState.COMPLETING and member.member_id == self.roster.leader:
            self._settle(request)
            to_tell = self.roster.members.values()
        self._tell_sync(member, RebalanceInProgress("it has asked again"), now_ms)
        self.roster.unsynced.discard(member.member_id)
        self.roster.syncs[ticket] = member
        member.sync_ticket = ticket
        if self.state is GroupState.STABLE:
            for each in to_tell:
                self._tell_sync(each, Synced(self.protocol_type, self.protocol, each.assignment), now_ms)
            if not self.roster.unsynced:
                self._ends_at_ms = None
        return self._due()

    def heartbeat(self, member_id: str, instance_id: str | None, generation: int, *, now_ms: int) -> None:
        """Say that a member is alive. `RebalanceInProgress` is how it learns that it is to join again."""
        member = self.roster.find(member_id, instance_id)
        self._check_generation(generation)
        self.roster.touch(member, now_ms)
        if self.state is GroupState.PREPARING:
            raise RebalanceInProgress("join again")

    def check_commit(self, member_id: str, instance_id: str | None, generation: int, *, now_ms: int) -> None:
        """Refuse offsets of a client that is no member of this generation; an empty group takes all."""
        if self.state is GroupState.EMPTY and generation <= NO_GENERATION:
            return
        member = self.roster.find(member_id, instance_id)
        self._check_generation(generation)
        if self.state is GroupState.COMPLETING:
            raise RebalanceInProgress("the assignment is not known yet")
        self.roster.touch(member, now_ms)

    def leave(self, leavers: Sequence[Leaver], *, now_ms: int) -> tuple[list[GroupRefusal | None], list[Answer]]:
        """Let members go; returns an answer for each of them, and those for others who waited."""
        refusals: list[GroupRefusal | None] = []
        has_changed = False
        for leaver in leavers:
            member_id = leaver.member_id or self.roster.instances.get(leaver.instance_id or "", "")
            try:
                if self.roster.pending.pop(member_id, None) is None:
                    self._remove(self.roster.find(member_id, leaver.instance_id), now_ms)
                    has_changed = True
                refusals.append(None)
            except GroupRefusal as refusal:
                refusals.append(refusal)
        self._go_on(now_ms, must_rebalance=has_changed)
        return refusals, self._due()

    def abandon(self, ticket: int, *, now_ms: int) -> list[Answer]:
        """Take a wait back: its client has gone. It may come again, within its session, by its member id."""
        roster = self.roster
        if (member := roster.joins.pop(ticket, None)) is not None:
            member.join_ticket = None
            roster.touch(member, now_ms)
            if member.is_new:
                self._remove(member, now_ms)
                self._go_on(now_ms, must_rebalance=False)
        elif (member := roster.syncs.pop(ticket, None)) is not None:
            member.sync_ticket = None
            roster.unsynced.add(member.member_id)
            roster.touch(member, now_ms)
        return self._due()

    def tick(self, now_ms: int) -> list[Answer]:
        """Do what the time says: give up the silent, and end waits."""
        is_sync_over = self.state is not GroupState.PREPARING and self._is_over(now_ms)
        late = {each.member_id: each for each in self.roster.lapse(now_ms)}
        if is_sync_over:
            late |= {each: self.roster.members[each] for each in self.roster.unsynced}
            self._ends_at_ms = None
        for member in late.values():
            self._remove(member, now_ms)
        self._go_on(now_ms, must_rebalance=bool(late) or (is_sync_over and self.state is GroupState.COMPLETING))
        return self._due()

    def next_ms(self) -> int | None:
        """When `tick` may have something to do; None if never. It may be early, never late."""
        times = [self.roster.next_ms(), self._ends_at_ms]
        if self.state is GroupState.PREPARING and self.roster.has_all_joined():
            times.append(self._begins_at_ms)
        return min((each for each in times if each is not None), default=None)

    def record(self, now_ms: int) -> GroupRecord:
        """What is to be kept of this generation."""
        members = tuple(self.roster.members.values())
        at_ms = now_ms if members else self.empty_since_ms
        return GroupRecord(at_ms, self.generation, self.protocol_type, self.protocol, self.roster.leader, members)

    @classmethod
    def restore(cls, name: str, settings: GroupSettings, record: GroupRecord, *, now_ms: int) -> "Group":
        """Go on after a restart: members have their whole session to be heard of again."""
        group = cls(name, settings, generation=record.generation, protocol_type=record.protocol_type)
        group.empty_since_ms = record.at_ms
        if record.members:
            group.state, group.protocol, group.roster.leader = GroupState.STABLE, record.protocol, record.leader
        for member in record.members:
            member.is_new = False
            group.roster.add(member, now_ms)
        return group

    def describe(self) -> GroupDescription:
        has_protocol = self.state in {GroupState.STABLE, GroupState.COMPLETING}
        protocol = self.protocol if has_protocol else ""
        members = tuple(each.describe(protocol) for each in self.roster.members.values())
        return GroupDescription(
            self.name, self.state, self.protocol_type, protocol, self.generation, self.roster.leader, members
        )

    def size_bytes(self) -> int:
        """What its members say of themselves, and what is assigned to them."""
        return self.roster.size_bytes()

    def reads(self, topic: str) -> bool:
        return self.roster.reads(topic, protocol_type=self.protocol_type, protocol=self.protocol)

    def topics(self) -> frozenset[str]:
        """What the members say they read."""
        return self.roster.topics(protocol_type=self.protocol_type, protocol=self.protocol)

    def _join_unnamed(self, request: JoinRequest, ticket: int, now_ms: int, token: int) -> None:
        roster = self.roster
        name = (request.instance_id or request.client_id or "member")[:_NAME_CHARACTERS]
        member_id = f"{name}-{token:016x}"
        old = roster.instance(request.instance_id)
        if old is not None:
            self._replace(old, member_id, request, ticket, now_ms)
            return
        if len(roster.members) + len(roster.pending) >= self.settings.members_max:
            raise GroupFull(f"the group has {self.settings.members_max} members, and may not have more")
        if request.instance_id is None and request.needs_member_id:
            roster.give_out(member_id, now_ms + min(request.session_timeout_ms, self.settings.pending_ms_max))
            raise MemberIdNeeded(member_id)
        self._add(member_id, request, ticket, now_ms)

    def _add(self, member_id: str, request: JoinRequest, ticket: int, now_ms: int) -> None:
        member = new_member(member_id, request)
        self.roster.add(member, now_ms)
        self.protocol_type = request.protocol_type
        if self.state is GroupState.PREPARING and now_ms < self._begins_at_ms:
            # Those who come together are to begin together.
            self._begins_at_ms = min(now_ms + self.settings.initial_delay_ms, self._begins_at_ms_max)
        self._wait_for_next(member, ticket, now_ms)

    def _join_again(self, member: Member, request: JoinRequest, ticket: int, now_ms: int) -> None:
        """A member that joins once more wants the next generation, or has lost the answer about this one."""
        is_same = member.protocols == request.protocols
        self.roster.take(member, request)
        self.roster.touch(member, now_ms)
        self.protocol_type = request.protocol_type
        self._tell_join(member, RebalanceInProgress("it has asked again"), now_ms)
        # A leader that asks while all is settled wants a rebalance: what it reads has more partitions now.
        is_leader = member.member_id == self.roster.leader
        has_answer = self.state is GroupState.COMPLETING or (self.state is GroupState.STABLE and not is_leader)
        if is_same and has_answer:
            self._answers.append(Answer(ticket, self._joined(member)))
        else:
            self._wait_for_next(member, ticket, now_ms)

    def _replace(self, old: Member, member_id: str, request: JoinRequest, ticket: int, now_ms: int) -> None:
        """A static member is back, as a new process: it goes on with what it had, and the old one is fenced."""
        was_leader, had_topics = self.roster.leader, subscribed_topics(old.metadata(self.protocol))
        for tell in (self._tell_join, self._tell_sync):
            tell(old, FencedInstance("another process has its instance id"), now_ms)
        member = new_member(member_id, request)
        member.assignment, member.is_new = old.assignment, old.is_new
        self.roster.swap(old, member, now_ms)
        self.protocol_type = request.protocol_type
        if self._still_fits(member, had_topics):
            self.has_news = True
            self._answers.append(Answer(ticket, self._joined_in_place(member, was_leader, request)))
        else:
            self._wait_for_next(member, ticket, now_ms)

    def _still_fits(self, member: Member, had_topics: "frozenset[str] | None") -> bool:
        """Whether the assignment is good for a new process. What else it says of itself changes at every start."""
        if self.state is not GroupState.STABLE or choose_protocol(self.roster.votes()) != self.protocol:
            return False
        return subscribed_topics(member.metadata(self.protocol)) == had_topics

    def _joined_in_place(self, member: Member, was_leader: str, request: JoinRequest) -> Joined:
        if request.can_skip_assignment:
            return self._joined(member, skip_assignment=member.member_id == self.roster.leader)
        # KIP-814: a leader that cannot be told to assign nothing is not told that it leads.
        return Joined(self.generation, self.protocol_type, self.protocol, was_leader, member.member_id)

    def _wait_for_next(self, member: Member, ticket: int, now_ms: int) -> None:
        self._rebalance(now_ms)
        member.join_ticket = ticket
        self.roster.joins[ticket] = member
        self._complete_if_ready(now_ms)

    def _go_on(self, now_ms: int, *, must_rebalance: bool) -> None:
        if must_rebalance:
            self._rebalance(now_ms)
        self._complete_if_ready(now_ms)

    def _rebalance(self, now_ms: int) -> None:
        """Call all members to join again."""
        if self.state is GroupState.PREPARING:
            return
        for member in self.roster.members.values():
            self._tell_sync(member, RebalanceInProgress("join again"), now_ms)
        delay_ms = self.settings.initial_delay_ms if self.state is GroupState.EMPTY else 0
        self._begins_at_ms = now_ms + delay_ms
        self._begins_at_ms_max = now_ms + delay_ms * DELAYS_MAX
        self._ends_at_ms = self._begins_at_ms + self.roster.patience_ms()
        self.state = GroupState.PREPARING
        # What was not kept by now is over; what is in between is not to be kept.
        self.has_news = False

    def _complete_if_ready(self, now_ms: int) -> None:
        if self.state is not GroupState.PREPARING or now_ms < self._begins_at_ms:
            return
        if self.roster.has_all_joined() or self._is_over(now_ms):
            self._complete(now_ms)

    def _complete(self, now_ms: int) -> None:
        """Begin the next generation with those who have come; a static member that has not keeps its place."""
        roster = self.roster
        for member in [each for each in roster.members.values() if each.join_ticket is None and not each.is_static]:
            self._remove(member, now_ms)
        joined = roster.joined()
        if roster.members and not joined:
            self._ends_at_ms = now_ms + roster.patience_ms()
            return
        self.generation = 1 if self.generation == GENERATION_MAX else self.generation + 1
        if not roster.members:
            self.state, self.protocol, self._ends_at_ms = GroupState.EMPTY, "", None
            self.empty_since_ms = now_ms
            self.has_news = True
            return
        self.protocol = choose_protocol(roster.votes())
        if roster.members[roster.leader].join_ticket is None:
            roster.leader = joined[0].member_id
        self.state = GroupState.COMPLETING
        self._ends_at_ms = now_ms + roster.patience_ms()
        roster.assign({})
        # A static member that is away cannot ask; its session says how long it may be.
        roster.unsynced = {each.member_id for each in joined}
        for member in roster.members.values():
            member.is_new = False
        for member in joined:
            self._tell_join(member, self._joined(member), now_ms)

    def _settle(self, request: SyncRequest) -> None:
        """Take the leader's assignment: the generation is whole."""
        roster = self.roster
        if sum(len(request.assignments.get(each, b"")) for each in roster.members) > GROUP_BYTES_MAX:
            raise MemberTooLarge(f"an assignment larger than GROUP_BYTES_MAX ({GROUP_BYTES_MAX}) allows")
        roster.assign(request.assignments)
        self.state = GroupState.STABLE
        self.has_news = True

    def _remove(self, member: Member, now_ms: int) -> None:
        for tell in (self._tell_join, self._tell_sync):
            tell(member, UnknownMember("it is no member any more"), now_ms)
        self.roster.remove(member)

    def _joined(self, member: Member, *, skip_assignment: bool = False) -> Joined:
        """Only the leader learns of the others: it is the one to assign."""
        leader = self.roster.leader
        all_members = self.roster.members.values()
        members = tuple(each.joined(self.protocol) for each in all_members) if member.member_id == leader else ()
        return Joined(
            self.generation, self.protocol_type, self.protocol, leader, member.member_id, members, skip_assignment
        )

    def _tell_join(self, member: Member, said: Joined | GroupRefusal, now_ms: int) -> None:
        if member.join_ticket is not None:
            self._answers.append(Answer(member.join_ticket, said))
            del self.roster.joins[member.join_ticket]
            member.join_ticket = None
            self.roster.touch(member, now_ms)

    def _tell_sync(self, member: Member, said: Synced | GroupRefusal, now_ms: int) -> None:
        if member.sync_ticket is not None:
            self._answers.append(Answer(member.sync_ticket, said))
            del self.roster.syncs[member.sync_ticket]
            member.sync_ticket = None
            self.roster.touch(member, now_ms)

    def _check_generation(self, generation: int) -> None:
        if generation != self.generation:
            raise IllegalGeneration(f"generation {generation}; the group is in {self.generation}")

    def _is_over(self, now_ms: int) -> bool:
        return self._ends_at_ms is not None and self._ends_at_ms <= now_ms

    def _due(self) -> list[Answer]:
        answers, self._answers = self._answers, []
        return answers
