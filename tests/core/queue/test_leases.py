"""A lease holds messages for a while: what a worker can do with them, and what happens when it does not."""

from penstock.contract.messages import Tier
from penstock.contract.queue_settings import QueueSettings
from penstock.core.queue.events import Opened
from penstock.core.queue.leases import bit_runs
from penstock.core.queue.queries import counts, look
from penstock.core.queue.queue import Queue
from penstock.core.queue.snapshot import freeze
from tests.core.queue.life import Life


def test_a_leased_message_is_hidden_from_others() -> None:
    life = Life()
    life.send(1)
    life.leased()
    assert life.lease() is None


def test_acking_twice_is_acking_once() -> None:
    life = Life()
    life.send(3)
    lease = life.leased(3)
    assert life.ack(lease, 0b001)
    assert not life.ack(lease, 0b001)
    assert life.ack(lease, 0b111)
    assert life.state.live == 0


def test_a_receipt_with_another_token_is_worth_nothing() -> None:
    life = Life()
    life.send(1)
    lease = life.leased()
    assert not life.ack(lease._replace(token=lease.token + 1))


def test_a_lapsed_lease_returns_at_once_with_its_delivery_counted() -> None:
    life = Life()
    sent = life.send(10)
    life.leased(10, lease_ms=1_000)
    life.wait(999)
    assert life.lease(10) is None
    life.wait(1)
    again = life.leased(10)
    assert again.messages == sent
    assert again.deliveries == [2] * 10
    assert len(life.state.rows) == 0, "its run is intact"


def test_a_worker_that_lost_its_lease_cannot_ack() -> None:
    life = Life()
    life.send(1)
    slow = life.leased(lease_ms=1_000)
    life.wait(1_000)
    other = life.leased()
    assert not life.ack(slow)
    assert life.ack(other)


def test_at_the_instant_a_lease_ends_it_can_be_neither_acked_nor_extended() -> None:
    life = Life()
    life.send(1)
    lease = life.leased(lease_ms=1_000)
    life.wait(1_000)
    assert not life.extend(lease, 5_000)
    assert not life.ack(lease)


def test_an_extended_lease_ends_later() -> None:
    life = Life()
    life.send(1)
    lease = life.leased(lease_ms=1_000)
    life.wait(500)
    assert life.extend(lease, 2_000)
    life.wait(1_999)
    assert life.lease() is None
    life.wait(1)
    assert life.leased().deliveries == [2]


def test_some_messages_of_a_lease_can_be_extended_alone() -> None:
    life = Life()
    first, second, third = life.send(3)
    lease = life.leased(3, lease_ms=1_000)
    assert life.extend(lease, 5_000, mask=0b010)
    life.wait(1_000)
    assert life.leased(3).messages == [first, third]
    assert life.place(second) == "leased"
    assert life.ack(lease, 0b010)


def test_a_receipt_may_outlive_its_lease_until_the_message_is_leased_again() -> None:
    life = Life()
    first, second = life.send(2)
    slow = life.leased(2, lease_ms=1_000)
    life.wait(1_000)
    assert life.leased(1).messages == [first]
    assert not life.ack(slow, 0b01, outlives=True), "another consumer has it"
    assert life.ack(slow, 0b10, outlives=True)
    assert life.place(second) is None


def test_on_a_fifo_queue_no_receipt_outlives_its_lease() -> None:
    life = Life(QueueSettings(is_fifo=True))
    life.send(1, group=b"a")
    slow = life.leased(1, lease_ms=1_000)
    life.wait(1_000)
    assert not life.ack(slow, outlives=True)


def test_the_id_of_a_lease_that_has_ended_is_not_given_out_again() -> None:
    life = Life()
    life.send(2)
    first = life.leased()
    life.ack(first)
    second = life.leased()
    assert first.id != second.id
    assert not life.ack(first)


def test_a_restart_begins_every_lease_again_and_keeps_the_deliveries() -> None:
    life = Life()
    life.send(1)
    lease = life.leased(lease_ms=1_000)
    life.now_ms += 3_600_000
    life.history.append(Opened(life.now_ms))
    life.queue = Queue.replay(life.history)
    life.state = life.queue.state
    assert life.lease() is None
    life.wait(999)
    assert life.extend(lease, 1_000)
    life.wait(1_000)
    assert life.leased().deliveries == [2]


def test_a_large_lease_is_acked_by_one_mask() -> None:
    life = Life()
    life.send(5_000)
    lease = life.leased(5_000)
    assert life.ack(lease, (1 << 5_000) - 2)
    assert counts(life.state).leased == 1


def test_purging_ends_leases_too() -> None:
    life = Life()
    life.send(5)
    life.send(5, group=b"a")
    lease = life.leased(4)
    assert life.happen(life.queue.purge(now_ms=life.now_ms))
    assert not life.ack(lease)
    assert life.state.live == 0
    assert life.lease() is None
    (after,) = life.send(1)
    assert life.leased().messages == [after]


def test_purging_an_empty_queue_changes_nothing() -> None:
    life = Life()
    assert life.queue.purge(now_ms=life.now_ms) is None


def test_old_timers_do_not_pile_up() -> None:
    life = Life()
    for _ in range(20_000):
        life.send(1)
        life.ack(life.leased(1, lease_ms=43_200_000))
    assert len(life.state.leases.wheel) < 10_000


def test_one_message_held_for_long_does_not_keep_the_times_of_all_sent_since() -> None:
    life = Life()
    (old,) = life.send(1)
    held = life.leased(1, lease_ms=43_200_000)
    for _ in range(10_000):
        life.wait(1)
        life.send(1)
        life.ack(life.leased(1))
    assert len(life.state.lanes[Tier.NORMAL]._times) < 3_000
    seen = look(life.state, old)
    assert seen is not None
    assert seen.sent_at_ms == life.now_ms - 10_000
    life.ack(held)


def test_leases_that_lapse_out_of_order_come_back_in_order() -> None:
    life = Life()
    sent = life.send(6)
    life.leased(2, lease_ms=3_000)
    life.leased(2, lease_ms=1_000)
    life.leased(2, lease_ms=2_000)
    life.wait(5_000)
    assert life.drain() == sent


def test_time_may_pass_in_steps_or_at_once() -> None:
    steps, once = Life(), Life()
    for life in (steps, once):
        life.send(5, Tier.BACKGROUND)
        life.send(3, Tier.LOW, group=b"a")
        life.send(2, delay_ms=7_000)
        life.leased(4, lease_ms=20_000)
    for _ in range(400):
        steps.wait(25_000)
    once.wait(400 * 25_000)
    assert freeze(steps.state) == freeze(once.state)


def test_turns_are_the_same_whether_messages_age_in_steps_or_at_once() -> None:
    steps, once = (Life(QueueSettings(aging_ms=(0, 0, 0, 100, 0))) for _ in range(2))
    for life in (steps, once):
        life.send(1, group=b"first")
        life.send(1, Tier.LOW)
        life.wait(10)
        life.send(1, Tier.LOW, group=b"last")
    for _ in range(200):
        steps.wait(1)
    once.wait(200)
    assert freeze(steps.state) == freeze(once.state)


def test_the_ones_of_a_mask_are_runs() -> None:
    for mask in range(300):
        found = sum(((1 << length) - 1) << start for start, length in bit_runs(mask))
        assert found == mask


def test_looking_at_a_message_says_who_holds_it() -> None:
    life = Life()
    (message,) = life.send(1)
    lease = life.leased()
    seen = look(life.state, message)
    assert seen is not None
    assert (seen.place, seen.lease, seen.deliveries) == ("leased", lease.id, 1)


def test_a_message_that_lapses_too_often_goes_to_the_back_of_its_queue() -> None:
    for group in (b"", b"tenant"):
        life = Life(QueueSettings(deliveries_max=0, back_after_deliveries=2))
        (poison,) = life.send(1, group=group)
        life.wait(1)
        (other,) = life.send(1, group=group)
        assert life.leased(1, lease_ms=100).messages == [poison]
        life.wait(100)
        assert life.leased(1, lease_ms=100).messages == [poison], "the first time it has its place again"
        life.wait(100)
        assert life.leased(1).messages == [other]
        assert life.leased(1).messages == [poison]


def test_a_receipt_outlives_its_lease_also_when_the_message_went_to_the_back() -> None:
    life = Life(QueueSettings(deliveries_max=0, back_after_deliveries=1))
    life.send(3)
    lease = life.leased(2, lease_ms=100)
    life.wait(100)
    event = life.queue.ack(lease.id, lease.token, 0b11, now_ms=life.now_ms, outlives=True)
    assert event is not None
    assert event.mask == 0b11
    life.happen(event)
    assert life.state.ready == [0, 0, 1, 0, 0]


def test_on_a_fifo_queue_nothing_goes_to_the_back() -> None:
    life = Life(QueueSettings(is_fifo=True, deliveries_max=0, back_after_deliveries=1))
    first, second = life.send(2, group=b"a")
    life.leased(1, lease_ms=100)
    life.wait(100)
    assert life.leased(2).messages == [first, second]
