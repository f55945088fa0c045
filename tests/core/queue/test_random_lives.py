"""Random lives of a queue, beside a plain list of messages that shares no code with it.

At each step: nothing is lost, nothing is made up, no message is under two leases,
none is delivered after its ack, groups keep their order, the books balance in
every lane, and the state is what a replay of the events gives.
"""

from collections import Counter
from dataclasses import replace

from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from penstock.contract.messages import MessageOutcome
from penstock.contract.queue_settings import DedupScope, QueueSettings
from penstock.core.queue.events import Arrived, Event, Leased, Opened, QueueCreated, QueueDeleted, Redriven, Released
from penstock.core.queue.message import Drafts, Sender
from penstock.core.queue.queries import contents, counts, look
from penstock.core.queue.queue import Queue
from penstock.core.queue.retry import backoff_ms
from penstock.core.queue.settlements import settlements
from penstock.core.queue.snapshot import freeze, thaw
from tests.core.queue.naive import LEASED, LIVE, MOVING, RESTING, SPENT, WAITING, Message, Naive
from tests.core.queue.told import rows_of

GROUPS = [b"", b"red", b"red", b"blue", b"green"]
IDS = [b"", b"", b"", b"one", b"two", b"three"]
JUMPS = [1, 4, 5, 15, 20, 50, 100, 1_000]
QUEUE, DEAD = 1, 2
WINDOW_MS = 300
RETENTION_MS = 2_000

drafts = st.lists(
    st.tuples(
        st.integers(0, 4),
        st.sampled_from(GROUPS),
        st.sampled_from(IDS),
        st.sampled_from([0, 0, 0, 3, 40]),
        st.sampled_from([0, 0, 0, 1, 2]),
    ),
    min_size=1,
    max_size=6,
)
plain_drafts = st.lists(st.integers(0, 4), min_size=1, max_size=12)


class RandomLife(RuleBasedStateMachine):
    @initialize(
        is_fifo=st.booleans(),
        scope=st.sampled_from(DedupScope),
        aging=st.sampled_from([(0, 0, 0, 0, 0), (0, 0, 0, 30, 60), (0, 20, 10, 15, 5)]),
        weights=st.sampled_from([(16, 8, 4, 2, 1), (1, 1, 1, 1, 1), (3, 2, 7, 5, 1)]),
        deliveries_max=st.sampled_from([0, 1, 2, 3]),
        noisy=st.sampled_from([(10, 30, 10), (20, 1, 100), (50, 2, 60), (100, 1, 30)]),
        back_after=st.sampled_from([0, 0, 1, 2]),
        opens_early=st.booleans(),
    )
    def create(
        self,
        is_fifo: bool,
        scope: DedupScope,
        aging: tuple[int, ...],
        weights: tuple[int, ...],
        deliveries_max: int,
        noisy: tuple[int, int, int],
        back_after: int,
        opens_early: bool,
    ) -> None:
        settings = QueueSettings(
            is_fifo=is_fifo,
            opens_early=opens_early,
            dedup_scope=scope,
            dedup_window_ms=WINDOW_MS,
            aging_ms=aging,
            weights=weights,
            deliveries_max=deliveries_max,
            retention_ms=RETENTION_MS,
            backoff_ms_base=8,
            backoff_ms_max=50,
            back_after_deliveries=back_after,
            noisy_percent=noisy[0],
            noisy_leased_min=noisy[1],
            noisy_time_percent=noisy[2],
        )
        self.now = 1_000
        self.history: list[Event] = [QueueCreated(QUEUE, self.now, "orders", settings.to_json())]
        self.queue = Queue.replay(self.history)
        self.dead = Queue(DEAD, QueueSettings(deliveries_max=0, is_fifo=is_fifo))
        self.naive = Naive(is_fifo=is_fifo, aging=aging, weights=weights, deliveries_max=deliveries_max)
        self.naive.back_after, self.naive.opens_early = back_after, opens_early
        self.naive.noisy_percent, self.naive.noisy_min, self.naive.noisy_time_percent = noisy
        self.naive.advance(self.now)
        # Each lease ever made, with the keys of its messages.
        self.leases: list[tuple[int, int, list[int]]] = []
        self.sends: list[tuple[Sender, Drafts, list[int]]] = []
        self.facts: Counter[int] = Counter()
        # What is to be told of the next event.
        self.told: list[tuple[object, ...]] = []
        self.buried: dict[tuple[int, int, int], tuple[int, str]] = {}
        self.snapshot = freeze(self.queue.state), len(self.history)

    # The verbs.

    @rule(rows=drafts, has_sender=st.booleans())
    def send(self, rows: list[tuple[int, bytes, bytes, int, int]], has_sender: bool) -> None:
        batch = Drafts(
            bodies=[b"x"] * len(rows),
            tiers=bytes([row[0] for row in rows]),
            groups=[row[1] for row in rows],
            dedup_ids=[row[2] for row in rows],
            visible_at_ms=[self.now + row[3] if row[3] else 0 for row in rows],
            deliveries_max=[row[4] for row in rows],
        )
        sender = Sender(7, 0, len(self.sends)) if has_sender else None
        accepted = self.queue.send(batch, now_ms=self.now, sender=sender)
        answers = [self.send_one(*row) for row in rows]
        assert list(accepted.messages) == answers
        if sender is not None:
            self.sends.append((sender, batch, answers))
        if accepted.event is not None:
            self.happen(accepted.event)

    @rule(tiers=plain_drafts)
    def send_plain(self, tiers: list[int]) -> None:
        accepted = self.queue.send(Drafts(bodies=[b"x"] * len(tiers), tiers=bytes(tiers)), now_ms=self.now)
        assert list(accepted.messages) == [self.send_one(tier, b"", b"", 0, 0) for tier in tiers]
        assert accepted.event is not None
        self.happen(accepted.event)

    def send_one(self, tier: int, group: bytes, dedup_id: bytes, delay: int, deliveries_max: int) -> int:
        naive = self.naive
        if dedup_id and (first := self.first_of(dedup_id)) is not None:
            return first
        number = sum(message.lane == tier for message in naive.messages)
        message = Message(tier, number, len(naive.messages), tier, self.now, self.now)
        message.group, message.dedup_id, message.deliveries_max = group, dedup_id, deliveries_max
        if delay:
            message.place, message.visible_at = RESTING, self.now + delay
        naive.messages.append(message)
        if dedup_id:
            naive.ids[dedup_id] = message.key, self.now + WINDOW_MS
        return message.key

    def first_of(self, dedup_id: bytes) -> int | None:
        if self.queue.state.settings.dedup_scope is DedupScope.LIVE:
            return next((message.key for message in self.naive.live() if message.dedup_id == dedup_id), None)
        key, until = self.naive.ids.get(dedup_id, (0, 0))
        return key if until > self.now else None

    @precondition(lambda self: self.sends)
    @rule(data=st.data())
    def send_again(self, data: st.DataObject) -> None:
        sender, batch, answers = data.draw(st.sampled_from(self.sends[-20:]))
        accepted = self.queue.send(batch, now_ms=self.now, sender=sender)
        assert accepted.event is None
        assert list(accepted.messages) == answers

    @rule(want=st.integers(1, 12), lease_ms=st.sampled_from([5, 20, 100]))
    def lease(self, want: int, lease_ms: int) -> None:
        token = len(self.leases)
        event = self.queue.lease(want, now_ms=self.now, token=token, lease_ms=lease_ms)
        if event is None:
            leasable = self.naive.leasable()
            assert self.queue.state.settings.is_paused or not any(leasable.values())
            return
        taken = [(tier, keys_of(run)) for tier, run in zip(event.tiers, event.runs, strict=True)]
        self.naive.lease(taken, want, event.lease, self.now + lease_ms)
        keys = [key for _, keys in taken for key in keys]
        for key in keys:
            self.naive.find(key).lease_ms = lease_ms
        self.leases.append((event.lease, token, keys))
        self.happen(event)
        self.check_contents(event, keys)

    @rule(want=st.sampled_from([1, 2, 3, 50]))
    def lease_few_or_all(self, want: int) -> None:
        self.lease(want, 20)

    @rule(want=st.integers(1, 12), by=st.sampled_from([5, 20]))
    def lease_and_let_lapse(self, want: int, by: int) -> None:
        self.lease(want, 5)
        self.time_passes(by)

    def check_contents(self, event: Leased, keys: list[int]) -> None:
        held = contents(self.queue.state, event)
        expected = [self.naive.find(key) for key in keys]
        assert list(held.messages) == keys
        assert list(held.deliveries) == [message.deliveries for message in expected]
        assert list(held.sent_at_ms) == [message.sent_at for message in expected]
        groups = [message.group for message in expected]
        assert held.groups == (groups if any(groups) else None)

    @precondition(lambda self: self.leases)
    @rule(data=st.data(), bits=st.integers(0, 2**12 - 1), outlives=st.booleans())
    def ack(self, data: st.DataObject, bits: int, outlives: bool) -> None:
        lease, token, keys = data.draw(st.sampled_from(self.leases[-4:]))
        good = self.held(lease, keys, bits)
        if outlives and not self.naive.is_fifo:
            good += [message for message in self.pick(keys, bits) if message.late == lease]
        event = self.queue.ack(lease, token, bits, now_ms=self.now, outlives=outlives)
        assert (event.mask.bit_count() if event else 0) == len(good)
        if event is not None:
            self.settle(good, "acked")
            self.happen(event)
        assert self.queue.ack(lease, token + 1, bits, now_ms=self.now) is None, "a receipt cannot be guessed"

    @precondition(lambda self: self.leases)
    @rule(
        data=st.data(),
        bits=st.integers(0, 2**12 - 1),
        delay=st.sampled_from([None, 0, 4, 60]),
        roll=st.sampled_from([0.0, 0.5, 0.99]),
        is_rejected=st.sampled_from([False, False, False, True]),
    )
    def release(self, data: st.DataObject, bits: int, delay: int | None, roll: float, is_rejected: bool) -> None:
        self.give_back(data.draw(st.sampled_from(self.leases[-4:])), bits, delay, roll, is_rejected)

    def give_back(
        self, held: tuple[int, int, list[int]], bits: int, delay: int | None, roll: float, is_rejected: bool = False
    ) -> None:
        lease, token, keys = held
        good = self.held(lease, keys, bits)
        event = self.queue.release(
            lease, token, bits, now_ms=self.now, roll=roll, delay_ms=delay, error="boom", is_rejected=is_rejected
        )
        assert (event.mask.bit_count() if event else 0) == len(good)
        if event is None:
            return
        # Where nothing is buried a rejection is a release.
        is_last = is_rejected and self.naive.deliveries_max > 0
        times = (0,) * len(good) if is_last else event.visible_at_ms
        if not is_last:
            self.check_backoffs(event, good, delay)
        self.naive.release(good, times, is_rejected=is_last)
        self.happen(event)

    @precondition(lambda self: self.leases)
    @rule(data=st.data(), bits=st.integers(0, 2**12 - 1))
    def return_untouched(self, data: st.DataObject, bits: int) -> None:
        lease, token, keys = data.draw(st.sampled_from(self.leases[-4:]))
        good = self.held(lease, keys, bits)
        event = self.queue.give_back(lease, token, bits, now_ms=self.now)
        assert (event.mask.bit_count() if event else 0) == len(good)
        self.naive.give_back(good)
        if event is not None:
            self.happen(event)

    def check_backoffs(self, event: Released, good: list[Message], delay: int | None) -> None:
        for message, visible_at in zip(good, event.visible_at_ms, strict=True):
            rest = visible_at - self.now
            if delay is None:
                most = backoff_ms(self.queue.state.settings, message.deliveries, 0.999_999)
                assert 0 <= rest <= most
            else:
                assert rest == delay

    @precondition(lambda self: self.leases)
    @rule(data=st.data(), bits=st.integers(0, 2**12 - 1), lease_ms=st.sampled_from([1, 20, 200]))
    def extend(self, data: st.DataObject, bits: int, lease_ms: int) -> None:
        lease, token, keys = data.draw(st.sampled_from(self.leases[-4:]))
        good, outlives = self.held(lease, keys, bits), data.draw(st.booleans())
        if outlives:
            good += [each for each in self.pick(keys, bits) if (each.late, each.place) == (lease, WAITING)]
        event = self.queue.extend(lease, token, bits, now_ms=self.now, lease_ms=lease_ms, outlives=outlives)
        assert (event.mask.bit_count() if event else 0) == len(good)
        if event is not None:
            for message in good:
                message.place, message.lease, message.late = LEASED, lease, 0
                message.until, message.lease_ms = self.now + lease_ms, lease_ms
            self.happen(event)

    @rule(
        act=st.sampled_from(["bury", "bury", "redrive", "expire", "cancel", "purge", "pause", "change", "restart"]),
        data=st.data(),
    )
    def operate(self, act: str, data: st.DataObject) -> None:
        """What happens seldom: one rule, so that it does not crowd out the others."""
        if act == "bury":
            self.bury(data.draw(st.integers(0, 5)))
        elif act == "redrive":
            self.redrive(data.draw(st.integers(1, 4)))
        elif act == "expire":
            self.expire()
        elif act == "cancel" and self.naive.messages:
            self.cancel(data.draw(st.sampled_from(self.naive.messages)))
        elif act == "purge":
            self.purge(data.draw(st.integers(0, 4)))
        elif act == "pause":
            self.pause_or_resume(data.draw(st.integers(0, 3)) == 0)
        elif act == "change":
            self.change(data.draw(st.sampled_from([0, 1, 3])))
        else:
            self.restart(data.draw(st.sampled_from(JUMPS)))

    def bury(self, room: int) -> None:
        event = self.queue.bury(into=DEAD, room=room, now_ms=self.now)
        spent = [message for message in self.naive.messages if message.place == SPENT]
        assert (len(event.runs) if event else 0) == min(room, len(spent))
        if event is None:
            return
        gone = [self.naive.find(run.first << 3 | run.lane) for run in event.runs]
        assert all(message in spent for message in gone)
        for message, origin, group, error in zip(gone, event.origins, event.groups, event.errors, strict=True):
            first_life = message.first_life or (message.lane, message.number, message.sent_at)
            assert origin[1:4] == first_life
            assert origin.deliveries == message.past_deliveries + message.deliveries
            assert (group, error) == (message.group, message.error)
        self.settle(gone, "buried")
        self.happen(event)
        self.dead.apply(event)

    def redrive(self, most: int) -> None:
        event = self.dead.redrive(into=QUEUE, now_ms=self.now, most=most, origin=QUEUE)
        if event is None:
            assert not self.dead.state.rows.origins
            return
        told = settlements(self.dead.state, event)
        assert [one[3:6] for one in told] == [origin[:3] for origin in event.origins]
        assert all(one.ending is MessageOutcome.REDRIVEN for one in told)
        self.dead.apply(event)
        self.come(event)

    def come(self, event: Redriven | Arrived) -> None:
        for tier, origin, group, error in zip(event.tiers, event.origins, event.groups, event.errors, strict=True):
            key = self.send_one(tier, group, b"", 0, 0)
            message = self.naive.find(key)
            message.error, message.first_life, message.past_deliveries = error, origin[1:4], origin.deliveries
            assert origin.queue == QUEUE
        self.happen(event)

    def expire(self) -> None:
        event, cursor, _ = self.queue.expire(now_ms=self.now)
        assert cursor == 0
        idle = [message for message in self.naive.live() if message.place not in {LEASED, MOVING}]
        old = [message for message in idle if message.sent_at <= self.now - RETENTION_MS]
        found = [key for run in event.runs for key in keys_of(run)] if event is not None else []
        assert sorted(found) == sorted(message.key for message in old)
        if event is not None:
            self.settle(old, "expired")
            self.happen(event)

    def cancel(self, message: Message) -> None:
        event = self.queue.cancel(message.key, now_ms=self.now)
        assert (event is not None) == (message.place == RESTING)
        if event is not None:
            self.settle([message], "cancelled")
            self.happen(event)

    def purge(self, is_meant: int) -> None:
        event = self.queue.purge(now_ms=self.now) if is_meant == 0 else None
        rest = [message for message in self.naive.live() if message.place != MOVING]
        assert (event is not None) == (is_meant == 0 and bool(rest))
        if event is not None:
            self.settle(rest, "purged")
            self.happen(event)
            if not self.naive.live():
                # Nothing is left to compare a time with.
                self.naive.all_times = 0

    @rule(data=st.data(), tier=st.integers(0, 4), for_ms=st.sampled_from([0, 15, 100]), lowers=st.booleans())
    def escalate(self, data: st.DataObject, tier: int, for_ms: int, lowers: bool) -> None:
        if not self.naive.messages:
            return
        chosen = data.draw(st.lists(st.sampled_from(self.naive.messages[-30:]), max_size=4, unique_by=id))
        until = self.now + for_ms if for_ms else 0
        pending = [
            message
            for message in chosen
            if message.place in {WAITING, RESTING}
            and (
                (message.tier < tier if lowers else message.tier > tier)
                or (message.tier == tier and message.own_tier is not None and message.escalated_until != until)
            )
        ]
        keys, said = [message.key for message in chosen], {"actor": "ada", "reason": "late"}
        event = self.queue.escalate(keys, tier, now_ms=self.now, until_ms=until, lowers=lowers, **said)
        assert (sum(run.length for run in event.runs) if event else 0) == len(pending)
        for message in pending:
            if message.own_tier is None:
                message.own_tier = message.tier
            message.tier, message.since, message.escalated_until = tier, self.now, until
        if event is not None:
            self.happen(event)
            assert self.queue.state.audit[-1][:5] == (self.now, "ada", "late", tier, until)

    def pause_or_resume(self, is_paused: bool) -> None:
        event = (self.queue.pause if is_paused else self.queue.resume)(now_ms=self.now)
        if event is not None:
            self.happen(event)

    def change(self, deliveries_max: int) -> None:
        event = self.queue.change(replace(self.queue.state.settings, deliveries_max=deliveries_max), now_ms=self.now)
        if event is None:
            return
        self.naive.deliveries_max = deliveries_max
        for message in self.naive.messages:
            if message.place == SPENT and not self.naive.is_spent(message):
                message.place, message.since = WAITING, self.now
        self.happen(event)

    @rule(by=st.sampled_from(JUMPS))
    def time_passes(self, by: int) -> None:
        self.now += by
        self.queue.advance(self.now)
        self.naive.advance(self.now)

    def restart(self, away: int) -> None:
        """Another process takes over after a while; leases begin again at their full length.

        Only what was written survives, so the last event is of the moment of the crash.
        """
        self.send_plain([2])
        self.now += away
        for message in self.naive.messages:
            if message.place == LEASED:
                message.until = self.now + message.lease_ms
        self.history.append(Opened(self.now))
        self.queue = Queue.replay(self.history)
        self.naive.advance(self.now)

    # What holds.

    @invariant()
    def every_message_is_where_it_should_be(self) -> None:
        state = self.queue.state
        state.advance(self.now)
        for message in self.naive.messages:
            seen = look(state, message.key)
            if message.place not in LIVE:
                assert seen is None, message
                continue
            assert seen is not None, message
            assert (seen.place, seen.tier, seen.deliveries) == (message.place, message.tier, message.deliveries), (
                seen,
                message,
            )
            assert (seen.sent_at_ms, seen.group, seen.error) == (message.sent_at, message.group, message.error)
            assert seen.lease == message.lease
            if message.place in {WAITING, LEASED}:
                assert seen.since_ms == message.since, message
            if message.place == RESTING:
                assert seen.visible_at_ms == message.visible_at

    @invariant()
    def the_counts_are_true(self) -> None:
        found = counts(self.queue.state)
        live = self.naive.live()
        for tier in range(5):
            assert found.ready[tier] == sum(m.place == WAITING and m.tier == tier for m in live)
        assert found.leased == sum(message.place == LEASED for message in live)
        assert found.resting == sum(message.place == RESTING for message in live)
        assert found.spent == sum(message.place == SPENT for message in live)
        assert found.moving == sum(message.place == MOVING for message in live)
        assert found.live == self.queue.state.live == len(live)

    @invariant()
    def the_books_balance(self) -> None:
        assert all(count == 1 for count in self.facts.values())
        for lane in self.queue.state.lanes:
            settled = {key >> 3 for key in self.facts if key & 7 == lane.tier}
            live = {message.number for message in self.naive.live() if message.lane == lane.tier}
            assert settled | live == set(range(lane.next))
            assert not settled & live
            assert lane.live == len(live)

    @invariant()
    def everything_that_lives_would_be_told_of(self) -> None:
        found = rows_of(QUEUE, settlements(self.queue.state, QueueDeleted(QUEUE, self.now)))
        assert found == sorted(message.fact(at=self.now, ending="deleted") for message in self.naive.live())

    @invariant()
    def the_state_is_a_function_of_the_events(self) -> None:
        replayed = Queue.replay(self.history)
        replayed.advance(self.now)
        state = freeze(self.queue.state)
        assert freeze(replayed.state) == state
        frozen, applied = self.snapshot
        continued = Queue(QUEUE)
        continued.state = thaw(frozen)
        for event in self.history[applied:]:
            continued.apply(event)
        continued.advance(self.now)
        assert freeze(continued.state) == state
        if len(self.history) % 7 == 0:
            self.snapshot = state, len(self.history)

    # Words used above.

    def happen(self, event: Event) -> None:
        assert rows_of(QUEUE, settlements(self.queue.state, event)) == sorted(self.told), "each message is told of once"
        self.told = []
        self.history.append(event)
        self.queue.apply(event)

    def settle(self, messages: list[Message], fact: str) -> None:
        self.told = [message.fact(at=self.now, ending=fact) for message in messages]
        self.naive.settle(messages, fact)
        self.facts.update(message.key for message in messages)

    def held(self, lease: int, keys: list[int], bits: int) -> list[Message]:
        return [message for message in self.pick(keys, bits) if message.place == LEASED and message.lease == lease]

    def pick(self, keys: list[int], bits: int) -> list[Message]:
        return [self.naive.find(key) for bit, key in enumerate(keys) if bits >> bit & 1]


def keys_of(run: tuple[int, int, int]) -> list[int]:
    lane, first, length = run
    return [number << 3 | lane for number in range(first, first + length)]


TestRandomLife = RandomLife.TestCase
TestRandomLife.settings = hypothesis_settings(
    stateful_step_count=50, max_examples=max(80, hypothesis_settings().max_examples)
)
