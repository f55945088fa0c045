"""Where the bodies are: places of messages beside a dictionary that has one entry for each."""

from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from penstock.core.queue.events import Buried, Copied, Sent
from penstock.core.queue.message import Origin, Run
from penstock.frame import Blobs
from penstock.store.embedded.body_index import LANES, BodyCache, BodyIndex, Stored, move
from penstock.store.embedded.shard_state import tiers_of

Key = tuple[int, int]


class PlacesLife(RuleBasedStateMachine):
    """Two queues: messages are sent to the first, move to the second, are settled, copied and forgotten."""

    @initialize()
    def begin(self) -> None:
        self.places = [BodyIndex(), BodyIndex()]
        self.offset = 0
        # Of each record, the body of each row.
        self.records: dict[int, Stored] = {}
        # Of each queue, the body of each live message, by lane and number.
        self.live: list[dict[Key, bytes]] = [{}, {}]
        self.nexts = [[0] * LANES, [0] * LANES]
        self.bodies = 0

    @rule(tiers=st.binary(min_size=1, max_size=12).map(lambda drawn: bytes(byte % LANES for byte in drawn)))
    def send(self, tiers: bytes) -> None:
        bodies = [self.name() for _ in tiers]
        event = Sent(0, 0, tiers)
        self.places[0].sent(event, self.write(event, bodies), sum(map(len, bodies)))
        for tier, body in zip(tiers, bodies, strict=True):
            self.number(0, tier, body)

    @precondition(lambda self: self.live[0])
    @rule(data=st.data())
    def move(self, data: st.DataObject) -> None:
        keys = data.draw(st.lists(st.sampled_from(sorted(self.live[0])), min_size=1, max_size=4, unique=True))
        tiers = bytes(data.draw(st.integers(0, LANES - 1)) for _ in keys)
        runs = tuple(Run(lane, number, 1) for lane, number in keys)
        nobody = (Origin(0, 0, 0, 0, 0),) * len(keys)
        event = Buried(0, 0, 1, runs, tiers, nobody, (b"",) * len(keys), ("",) * len(keys))
        moved = [
            Run(lane, number, 1)
            for lane, first, length in move(event, self.places[0], self.places[1])
            for number in range(first, first + length)
        ]
        expected = [
            Run(tier, self.number(1, tier, self.live[0].pop(key)), 1) for key, tier in zip(keys, tiers, strict=True)
        ]
        assert moved == expected
        self.offset += 1

    @precondition(lambda self: any(self.nexts[0]))
    @rule(data=st.data(), queue=st.integers(0, 1))
    def copy(self, data: st.DataObject, queue: int) -> None:
        """Copy any runs, also of messages that are settled, or forgotten."""
        runs: list[Run] = []
        for lane in data.draw(st.lists(st.integers(0, LANES - 1), unique=True)):
            end = self.nexts[queue][lane]
            edges = sorted(data.draw(st.sets(st.integers(0, end), max_size=8)))
            pairs = zip(edges[::2], edges[1::2], strict=False)
            runs += [Run(lane, first, end - first) for first, end in pairs]
        if not runs:
            return
        event = Copied(queue, 0, tuple(runs))
        keys = [(lane, number) for lane, first, length in runs for number in range(first, first + length)]
        bodies = [self.live[queue].get(key, b"settled") for key in keys]
        self.places[queue].copied(event, self.write(event, bodies), sum(map(len, bodies)))

    @precondition(lambda self: self.live[0] or self.live[1])
    @rule(data=st.data(), queue=st.integers(0, 1))
    def settle(self, data: st.DataObject, queue: int) -> None:
        keys = sorted(self.live[queue])
        for key in data.draw(st.sets(st.sampled_from(keys))) if keys else ():
            del self.live[queue][key]

    @rule(queue=st.integers(0, 1))
    def prune(self, queue: int) -> None:
        for tier, lane in enumerate(self.places[queue].lanes):
            lowest = min((number for lane, number in self.live[queue] if lane == tier), default=lane.next)
            entries = len(lane.firsts)
            lane.prune(lowest)
            assert len(lane.firsts) <= entries
            # What is left begins with the entry that the lowest number is in.
            assert lane.next == lowest or len(lane.firsts) < 2 or lane.firsts[1] > lowest
            assert lane.next > lowest or not lane.firsts

    @invariant()
    def every_live_number_leads_to_its_body(self) -> None:
        for places, live in zip(self.places, self.live, strict=True):
            for (lane, number), body in live.items():
                assert places.lanes[lane].has(number)
                (span,) = places.spans([Run(lane, number, 1)])
                assert span == places.span(lane, number)
                assert span.length == 1
                assert self.read(*span) == [body]
                stored = self.records[span.record]
                assert places.lanes[lane].mean_bytes(number) == stored.size_bytes // len(stored.bodies)

    @invariant()
    def a_run_leads_to_its_bodies_in_order(self) -> None:
        for places, live in zip(self.places, self.live, strict=True):
            for lane in range(LANES):
                numbers = sorted(number for other, number in live if other == lane)
                if numbers:
                    run = Run(lane, numbers[0], numbers[-1] + 1 - numbers[0])
                    found = [body for span in places.spans([run]) for body in self.read(*span)]
                    assert len(found) == run.length
                    assert [found[number - run.first] for number in numbers] == [
                        live[lane, number] for number in numbers
                    ]

    @invariant()
    def entries_rise(self) -> None:
        for places, nexts in zip(self.places, self.nexts, strict=True):
            for lane, end in zip(places.lanes, nexts, strict=True):
                firsts = list(lane.firsts)
                assert firsts == sorted(set(firsts))
                assert lane.next == end
                assert len(lane.records) == len(lane.rows) == len(lane.sizes) == len(firsts)

    def read(self, record: int, tier: int, nth: int, length: int) -> list[bytes]:
        stored = self.records[record]
        return [bytes(stored.bodies[row]) for row in stored.rows(tier, nth, length)]

    def write(self, event: Sent | Copied, bodies: list[bytes]) -> int:
        self.offset += 1
        self.records[self.offset] = Stored(tiers_of(event), Blobs.of(bodies), None)
        return self.offset

    def number(self, queue: int, tier: int, body: bytes) -> int:
        number = self.nexts[queue][tier]
        self.nexts[queue][tier] += 1
        self.live[queue][tier, number] = body
        return number

    def name(self) -> bytes:
        self.bodies += 1
        return b"body %d" % self.bodies


TestPlaces = PlacesLife.TestCase
TestPlaces.settings = hypothesis_settings(
    stateful_step_count=30, max_examples=max(100, hypothesis_settings().max_examples)
)


def frame(size: int) -> Stored:
    return Stored(b"\2", Blobs.of([bytes(size)]), None)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 60)), max_size=40))
def test_hot_frames_are_the_last_ones_up_to_a_size(puts: list[tuple[int, int]]) -> None:
    hot = BodyCache(100)
    expected: dict[int, Stored] = {}
    for record, size in puts:
        stored = frame(size)
        hot.put(record, stored)
        expected.setdefault(record, stored)
        while sum(kept.size_bytes for kept in expected.values()) > 100 and len(expected) > 1:
            del expected[next(iter(expected))]
        assert {record: hot.get(record) for record in range(10)} == {
            record: expected.get(record) for record in range(10)
        }
