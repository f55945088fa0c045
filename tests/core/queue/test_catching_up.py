"""Too much is due at once: it is done in parts, and the state stays a function of the events."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.contract.messages import Tier
from penstock.contract.queue_settings import QueueSettings
from penstock.core.queue.events import Event
from penstock.core.queue.message import Drafts
from penstock.core.queue.queries import counts, wakes_at_ms
from penstock.core.queue.queue import Queue
from penstock.core.queue.snapshot import freeze, thaw
from tests.core.queue.life import Life

LAST_DELIVERY = QueueSettings(deliveries_max=1)


def catch_up(life: Life, most: int) -> None:
    life.happen(life.queue.catch_up(now_ms=life.now_ms, most=most))


def test_a_lease_of_many_last_deliveries_lapses_in_parts() -> None:
    life = Life(LAST_DELIVERY)
    life.send(25)
    lease = life.leased(25, lease_ms=1_000)
    life.now_ms += 1_000
    assert life.queue.is_overdue(life.now_ms, 10)
    catch_up(life, 0)
    for spent in (10, 20):
        catch_up(life, 10)
        assert (counts(life.state).spent, counts(life.state).leased) == (spent, 25 - spent)
    # What has not lapsed yet can still be acked: no other consumer has had it.
    assert life.ack(lease, 1 << 24)
    catch_up(life, 10)
    assert (counts(life.state).spent, counts(life.state).leased) == (24, 0)
    assert not life.state.is_behind


def test_delays_that_end_together_end_in_parts_and_in_order() -> None:
    life = Life()
    messages = life.send(25, delay_ms=500)
    life.now_ms += 500
    catch_up(life, 10)
    assert sum(counts(life.state).ready) == 10
    assert life.state.is_behind
    assert wakes_at_ms(life.state) is None, "each part wakes those who wait"
    catch_up(life, 10)
    catch_up(life, 10)
    assert life.leased(25).messages == messages


def test_leases_of_runs_that_go_back_to_their_place_are_no_reason_to_catch_up_in_parts() -> None:
    life = Life()
    life.send(1_000)
    for _ in range(5):
        life.leased(200, lease_ms=1_000)
    life.now_ms += 1_000
    assert not life.queue.is_overdue(life.now_ms, 10)


def test_timers_of_settled_messages_do_not_count() -> None:
    life = Life(LAST_DELIVERY)
    life.send(40)
    leases = [life.leased(2, lease_ms=1_000) for _ in range(20)]
    for lease in leases[:-1]:
        assert life.ack(lease)
    life.now_ms += 1_000
    assert not life.queue.is_overdue(life.now_ms, 10)


STEPS = st.one_of(
    st.tuples(st.just("send"), st.integers(1, 8), st.sampled_from([0, 20, 40]), st.sampled_from([b"", b"a", b"b"])),
    st.tuples(st.just("lease"), st.integers(1, 12), st.sampled_from([10, 20, 60])),
    st.tuples(st.just("ack"), st.integers(0, 20), st.integers(1, 2**12)),
    st.tuples(st.just("wait"), st.integers(1, 60)),
    st.tuples(st.just("part"), st.integers(0, 5)),
    st.tuples(st.just("look")),
)


@given(steps=st.lists(STEPS, max_size=40), is_fifo=st.booleans(), deliveries_max=st.sampled_from([0, 1, 2]))
def test_a_queue_that_catches_up_in_parts_is_a_function_of_its_events(  # noqa: C901 - a case for each verb.
    steps: list[tuple[object, ...]], is_fifo: bool, deliveries_max: int
) -> None:
    settings = QueueSettings(is_fifo=is_fifo, deliveries_max=deliveries_max, aging_ms=(0, 0, 30, 50, 0))
    life = Life(settings)
    queue, now_ms = life.queue, life.now_ms
    leases: list[tuple[int, int]] = []
    beginning = freeze(queue.state)
    history: list[Event] = []
    for step in steps:
        event: Event | None = None
        match step:
            case ("send", int(count), int(delay_ms), bytes(group)):
                tiers = bytes([Tier.NORMAL, Tier.LOW] * count)[:count]
                visible = [now_ms + delay_ms if delay_ms else 0] * count
                drafts = Drafts(bodies=[b""] * count, tiers=tiers, groups=[group] * count, visible_at_ms=visible)
                event = queue.send(drafts, now_ms=now_ms).event
            case ("lease", int(want), int(lease_ms)):
                event = queue.lease(want, now_ms=now_ms, token=len(leases) + 1, lease_ms=lease_ms)
                if event is not None:
                    leases.append((event.lease, event.token))
            case ("ack", int(nth), int(mask)) if leases:
                event = queue.ack(*leases[nth % len(leases)], mask, now_ms=now_ms)
            case ("wait", int(ms)):
                now_ms += ms
            case ("part", int(most)):
                event = queue.catch_up(now_ms=now_ms, most=most)
            case ("look",):
                queue.advance(now_ms)
        if event is not None:
            history.append(event)
            queue.apply(event)
    thawed = Queue(1)
    thawed.state = thaw(beginning)
    for nth, event in enumerate(history):
        thawed.apply(event)
        if nth % 5 == 0:
            thawed.state = thaw(freeze(thawed.state))
    thawed.advance(now_ms)
    queue.advance(now_ms)
    assert freeze(thawed.state) == freeze(queue.state)
    while queue.state.is_behind:
        queue.apply(queue.catch_up(now_ms=now_ms, most=3))
    found = counts(queue.state)
    assert found.live == sum(lane.live for lane in queue.state.lanes)
    held = zip(queue.state.leases.held, queue.state.leases.until_ms, strict=True)
    assert all(until_ms > now_ms for mask, until_ms in held if mask)
    assert all(at_ms > now_ms for at_ms, slot in queue.state.held_delays(queue.state.delays))
