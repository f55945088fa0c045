"""Random lives of a queue that also sends messages to another shard, and gets them back.

The other queue sees no event of this one. All that holds in `test_random_lives.py` holds here too, at every
step of a move.
"""

from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule

from penstock.contract.queue_settings import QueueSettings
from penstock.core.queue.message import Origin
from penstock.core.queue.queries import moving
from penstock.core.queue.queue import Queue
from penstock.core.queue.settlements import settlements
from tests.core.queue.naive import MOVING, RESTING, SPENT, WAITING, Message
from tests.core.queue.test_random_lives import QUEUE, RandomLife

FAR = 3


class RandomMoves(RandomLife):
    @initialize(is_fifo=st.booleans())
    def create_far(self, is_fifo: bool) -> None:
        self.far = Queue(FAR, QueueSettings(deliveries_max=0, is_fifo=is_fifo))
        self.has_arrived = False

    @rule(want=st.integers(1, 6))
    def fail(self, want: int) -> None:
        """Messages fail for the last time: otherwise there is seldom anything to move."""
        self.change(1)
        before = len(self.leases)
        self.lease(want, 100)
        for lease in self.leases[before:]:
            self.give_back(lease, 2**12 - 1, 0, 0.5)

    @rule(most=st.integers(1, 5), is_redrive=st.booleans())
    def move(self, most: int, *, is_redrive: bool) -> None:
        """The next step of a move to another shard, whichever that is."""
        if self.queue.state.moves.pending is None:
            self.start_move(most, is_redrive=is_redrive)
            return
        assert self.queue.start_move(into=FAR, most=most, now_ms=self.now, is_redrive=is_redrive) is None
        if is_redrive and not self.has_arrived:
            self.end_move(is_done=False)
        elif not self.has_arrived:
            self.arrive_far()
        else:
            self.end_move(is_done=True)

    def start_move(self, most: int, *, is_redrive: bool) -> None:
        event = self.queue.start_move(into=FAR, most=most, now_ms=self.now, is_redrive=is_redrive)
        places = {WAITING, RESTING} if is_redrive else {SPENT}
        able = [m for m in self.naive.messages if m.place in places and (m.first_life or not is_redrive)]
        assert (len(event.runs) if event else 0) == min(most, len(able))
        if event is not None:
            gone = [self.naive.find(run.first << 3 | run.lane) for run in event.runs]
            assert all(message in able for message in gone)
            self.naive.depart(gone)
            self.has_arrived = False
            self.happen(event)

    def arrive_far(self) -> None:
        found = moving(self.queue.state)
        assert found is not None
        for is_first in (True, False):
            event = self.far.arrive(QUEUE, found.sequence, *found[4:], self.now)
            assert (event is not None) == is_first, "what arrives twice arrives once"
            if event is not None:
                self.far.apply(event)
        self.has_arrived = True

    def end_move(self, *, is_done: bool) -> None:
        pending = self.queue.state.moves.pending
        assert pending is not None
        gone = [message for message in self.naive.messages if message.place == MOVING]
        event = self.queue.end_move(is_done=is_done, now_ms=self.now)
        assert event is not None
        if is_done:
            self.settle(gone, "redriven" if pending.is_redrive else "buried")
        else:
            self.naive.come_back(gone, is_redrive=pending.is_redrive)
        self.happen(event)
        assert self.queue.end_move(is_done=is_done, now_ms=self.now) is None

    @rule(most=st.integers(1, 4))
    def fetch(self, most: int) -> None:
        """Messages come back from the other shard."""
        event = self.far.start_move(into=QUEUE, most=most, now_ms=self.now, is_redrive=True, origin=QUEUE)
        if event is None:
            assert not self.far.state.rows.origins
            return
        self.far.apply(event)
        found = moving(self.far.state)
        assert found is not None
        arrived = self.queue.arrive(FAR, found.sequence, *found[4:], self.now)
        assert arrived is not None
        self.come(arrived)
        assert self.queue.arrive(FAR, found.sequence, *found[4:], self.now) is None
        ended = self.far.end_move(is_done=True, now_ms=self.now)
        assert ended is not None
        assert [one[3:6] for one in settlements(self.far.state, ended)] == [origin[:3] for origin in found.origins]
        self.far.apply(ended)

    @invariant()
    def what_is_on_its_way_can_be_told_to_the_other_queue(self) -> None:
        found = moving(self.queue.state)
        gone = [message for message in self.naive.messages if message.place == MOVING]
        assert (found is not None) == bool(gone)
        if found is not None:
            rows = zip(found.messages, found.tiers, found.origins, found.groups, found.errors, strict=True)
            assert sorted(rows) == sorted(told_on_its_way(message) for message in gone)


def told_on_its_way(message: Message) -> tuple[object, ...]:
    first_life = message.first_life or (message.lane, message.number, message.sent_at)
    origin = Origin(QUEUE, *first_life, message.past_deliveries + message.deliveries)
    return message.key, message.lane, origin, message.group, message.error


TestRandomMoves = RandomMoves.TestCase
TestRandomMoves.settings = hypothesis_settings(
    stateful_step_count=50, max_examples=max(50, hypothesis_settings().max_examples)
)
