"""A queue as a plain list of messages: slow, and written to be obviously right.

It shares no code with the queue. Every rule is stated for one message at a time,
time moves from one instant to the next at which anything happens, and tiers are
served one message after the other.

It does not predict which of several messages a lease takes where the rules leave
that open (turns between groups); it judges whether what was taken was allowed.
"""

from dataclasses import dataclass
from fractions import Fraction

WAITING, RESTING, LEASED, SPENT, MOVING = "waiting", "resting", "leased", "spent", "moving"
LIVE = {WAITING, RESTING, LEASED, SPENT, MOVING}


@dataclass
class Message:
    lane: int
    number: int
    # Its place in the order of sending, across lanes.
    order: int
    tier: int
    sent_at: int
    since: int
    # One of LIVE, or the fact that settled it.
    place: str = WAITING
    visible_at: int = 0
    group: bytes = b""
    dedup_id: bytes = b""
    deliveries_max: int = 0
    deliveries: int = 0
    # The last consumer rejected it: it is not tried again.
    is_rejected: bool = False
    first_leased: int = 0
    last_leased: int = 0
    served_tier: int | None = None
    error: str = ""
    lease: int = 0
    until: int = 0
    lease_ms: int = 0
    # The lease that lapsed, while the message has not been leased since.
    late: int = 0
    own_tier: int | None = None
    escalated_until: int = 0
    # Of a message that was sent back from the dead letters: lane, number and time of its first life.
    first_life: tuple[int, int, int] | None = None
    past_deliveries: int = 0

    @property
    def key(self) -> int:
        return self.number << 3 | self.lane

    def fact(self, *, at: int, ending: str) -> tuple[object, ...]:
        """What is told of it when it is settled."""
        lane, number, sent_at = self.first_life or (self.lane, self.number, self.sent_at)
        tier = self.tier if self.served_tier is None else self.served_tier
        deliveries = self.past_deliveries + self.deliveries
        life = sent_at, self.first_leased, self.last_leased, at, deliveries, ending, self.error
        return self.key, lane, number, tier, self.group, *life


class Naive:
    def __init__(self, *, is_fifo: bool, aging: tuple[int, ...], weights: tuple[int, ...], deliveries_max: int) -> None:
        self.is_fifo = is_fifo
        self.aging = aging
        self.weights = weights
        self.deliveries_max = deliveries_max
        self.now = 0
        self.messages: list[Message] = []
        self.clock = Fraction(0)
        self.finish = [Fraction(0)] * 5
        self.ids: dict[bytes, tuple[int, int]] = {}
        # Who is noisy: more than so many percent of what is leased, at least so many, or so many percent of the time.
        self.noisy_percent, self.noisy_min, self.noisy_time_percent = 10, 30, 10
        self.back_after = 0
        self.opens_early = False
        self.times: dict[bytes, int] = {}
        self.all_times = 0

    # Time.

    def advance(self, now: int) -> None:
        while (at := min((at for message in self.messages for at in self.instants(message)), default=now + 1)) <= now:
            self.halve_times(at)
            self.now = at
            for step in (self.end_escalation, self.lapse, self.wake, self.age):
                for message in self.messages:
                    if message.place in LIVE:
                        step(message)
        self.halve_times(now)
        self.now = now

    def halve_times(self, now: int) -> None:
        for _ in range(now // 60_000 - self.now // 60_000):
            self.times = {name: time // 2 for name, time in self.times.items()}
            self.all_times //= 2

    def let_go(self, message: Message) -> None:
        """A message leaves the lease it was in."""
        if message.place == LEASED and message.group and not self.is_fifo:
            time = self.now - message.last_leased
            self.times[message.group] = self.times.get(message.group, 0) + time
            self.all_times += time

    def end_escalation(self, message: Message) -> None:
        if message.escalated_until == self.now:
            assert message.own_tier is not None
            message.tier, message.since = message.own_tier, self.now
            message.own_tier, message.escalated_until = None, 0

    def lapse(self, message: Message) -> None:
        if message.place == LEASED and message.until == self.now:
            self.let_go(message)
            message.late, message.lease = message.lease, 0
            message.place = SPENT if self.is_spent(message) else WAITING
            if (
                self.back_after
                and message.deliveries >= self.back_after
                and not self.is_fifo
                and message.place == WAITING
            ):
                message.since = self.now

    def wake(self, message: Message) -> None:
        if message.place == RESTING and message.visible_at == self.now:
            message.place, message.since = WAITING, self.now

    def age(self, message: Message) -> None:
        if self.ages_at(message) == self.now:
            message.tier, message.since = message.tier - 1, self.now

    def instants(self, message: Message) -> list[int]:
        """When something happens to a message by itself."""
        found = []
        if message.place == LEASED:
            found.append(message.until)
        if message.place == RESTING:
            found.append(message.visible_at)
        if message.place in LIVE and message.escalated_until:
            found.append(message.escalated_until)
        if (ages_at := self.ages_at(message)) is not None:
            found.append(ages_at)
        return found

    def ages_at(self, message: Message) -> int | None:
        if message.place in {WAITING, LEASED} and message.tier > 0 and self.aging[message.tier]:
            return message.since + self.aging[message.tier]
        return None

    def is_spent(self, message: Message) -> bool:
        if not self.deliveries_max:
            return False
        most = message.deliveries_max or self.deliveries_max
        return message.is_rejected or (most > 0 and message.deliveries >= most)

    # What there is.

    def live(self) -> list[Message]:
        return [message for message in self.messages if message.place in LIVE]

    def find(self, key: int) -> Message:
        (found,) = [message for message in self.messages if message.key == key]
        return found

    def held(self, lease: int) -> list[Message]:
        return [message for message in self.messages if message.place == LEASED and message.lease == lease]

    def group(self, name: bytes) -> list[Message]:
        """The messages of a group that are not settled, in the order of sending."""
        found = [message for message in self.live() if message.group == name]
        return sorted(found, key=lambda message: message.order)

    def leasable(self) -> dict[int, list[Message]]:
        """What each tier could give now."""
        found: dict[int, list[Message]] = {tier: [] for tier in range(5)}
        for message in self.messages:
            if message.place == WAITING and not (self.is_fifo and message.group):
                found[message.tier].append(message)
        if self.is_fifo:
            for name in {message.group for message in self.live() if message.group}:
                front = self.front(name)
                if front:
                    waiting = [message for message in self.group(name) if message.place == WAITING]
                    found[min(message.tier for message in waiting)] += front
        return found

    def front(self, name: bytes) -> list[Message]:
        """The messages of a FIFO group that may be leased together: none behind one that is leased, or at all then."""
        members = self.group(name)
        if any(message.place == LEASED for message in members) and not self.opens_early:
            return []
        front = []
        for message in members:
            if message.place != WAITING:
                break
            front.append(message)
        return front

    def shares(self, want: int, leasable: dict[int, list[Message]]) -> list[int]:
        """How many of each tier a lease takes, one after the other by the least start tag."""
        left = [len(leasable[tier]) for tier in range(5)]
        taken = [0] * 5
        for _ in range(min(want, sum(left))):
            ready = [tier for tier in range(5) if left[tier]]
            tier = min(ready, key=lambda tier: (max(self.finish[tier], self.clock), tier))
            self.clock = max(self.finish[tier], self.clock)
            self.finish[tier] = self.clock + Fraction(1, self.weights[tier])
            left[tier] -= 1
            taken[tier] += 1
        return taken

    # What happens.

    def lease(self, taken: list[tuple[int, list[int]]], want: int, lease: int, until: int) -> None:
        """Judge a lease, given the keys each tier gave in order, and then believe it."""
        leasable = self.leasable()
        shares = self.shares(want, leasable)
        chosen: dict[int, list[Message]] = {tier: [] for tier in range(5)}
        for tier, keys in taken:
            chosen[tier] += [self.find(key) for key in keys]
        assert [len(chosen[tier]) for tier in range(5)] == shares, "each tier gives its share"
        everything = [message for tier in range(5) for message in chosen[tier]]
        assert len({message.key for message in everything}) == len(everything), "nothing is leased twice"
        for tier in range(5):
            assert all(message in leasable[tier] for message in chosen[tier]), "only what may be leased is leased"
            self.judge_order(leasable[tier], chosen[tier])
        for tier in range(5):
            for message in chosen[tier]:
                message.place, message.lease, message.until, message.late = LEASED, lease, until, 0
                message.deliveries += 1
                message.first_leased = message.first_leased or self.now
                message.last_leased, message.served_tier = self.now, tier

    def judge_order(self, leasable: list[Message], chosen: list[Message]) -> None:
        names = {message.group for message in leasable}
        for name in names:
            ours = [message for message in chosen if message.group == name]
            left = [message for message in leasable if message.group == name and message not in ours]
            if self.is_fifo and name:
                assert ours == self.front(name)[: len(ours)], "nothing reorders inside a group"
                continue
            times = [message.since for message in ours]
            assert times == sorted(times), "first come, first served"
            assert all(message.since >= times[-1] for message in left if times), "no group is passed over"
            if left and not self.is_fifo:
                self.judge_turns(name, names, chosen)

    def judge_turns(self, name: bytes, names: set[bytes], chosen: list[Message]) -> None:
        """A group had to leave something: no other was served beyond its share."""
        taken = {other: sum(message.group == other for message in chosen) for other in names}
        noisy = {other for other in names if self.is_noisy(other)}
        if name not in noisy:
            assert taken[name] >= max(taken[other] for other in names - noisy) - 1, "groups take turns"
            assert not any(taken[other] for other in noisy), "quiet groups go first"
            return
        held = {other: len(self.held_of(other)) + taken[other] for other in noisy if taken[other]}
        mine = len(self.held_of(name)) + taken[name]
        assert all(mine >= other - 1 for other in held.values()), "of noisy groups, the one that holds least goes first"

    def held_of(self, name: bytes) -> list[Message]:
        return [message for message in self.messages if message.place == LEASED and message.group == name]

    def is_noisy(self, name: bytes) -> bool:
        if not name:
            return False
        held, leased = len(self.held_of(name)), sum(message.place == LEASED for message in self.messages)
        holds_much = held >= self.noisy_min and Fraction(held) > Fraction(self.noisy_percent, 100) * leased
        most = Fraction(self.noisy_time_percent, 100) * self.all_times
        return holds_much or self.times.get(name, 0) > most

    def depart(self, messages: list[Message]) -> None:
        """Messages are on their way to another queue."""
        for message in messages:
            if message.place != RESTING:
                message.visible_at = 0
            message.place, message.late = MOVING, 0

    def come_back(self, messages: list[Message], *, is_redrive: bool) -> None:
        for message in messages:
            if is_redrive and message.visible_at > self.now:
                message.place = RESTING
            elif not is_redrive and self.is_spent(message):
                message.place = SPENT
            else:
                message.place, message.since = WAITING, self.now

    def release(self, messages: list[Message], times: tuple[int, ...], *, is_rejected: bool) -> None:
        for message, visible_at in zip(messages, times, strict=True):
            self.let_go(message)
            message.lease, message.error, message.is_rejected = 0, "boom", message.is_rejected or is_rejected
            if self.is_spent(message):
                message.place = SPENT
            elif visible_at > self.now:
                message.place, message.visible_at = RESTING, visible_at
            else:
                message.place, message.since = WAITING, self.now

    def give_back(self, messages: list[Message]) -> None:
        """They were not worked on: as if they had not been delivered."""
        for message in messages:
            self.let_go(message)
            message.deliveries -= 1
            message.lease = 0
            if not message.deliveries:
                message.first_leased = message.last_leased = 0
                message.served_tier = None
            message.place, message.since = SPENT if self.is_spent(message) else WAITING, self.now

    def settle(self, messages: list[Message], fact: str) -> None:
        for message in messages:
            assert message.place in LIVE, "a message is settled once"
            self.let_go(message)
            message.place = fact
            if message.group in self.times and not any(other.group == message.group for other in self.live()):
                del self.times[message.group]
            message.lease = message.late = 0
