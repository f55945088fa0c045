"""Groups: in order and one lease at a time on a FIFO queue, in turns on a standard one."""

from penstock.contract.messages import Tier
from penstock.contract.queue_settings import QueueSettings
from penstock.core.queue.snapshot import freeze
from tests.core.queue.life import Life

FIFO = QueueSettings(is_fifo=True, deliveries_max=0)


def test_a_group_is_leased_to_one_worker_at_a_time() -> None:
    life = Life(FIFO)
    first, second, third = life.send(3, group=b"a")
    lease = life.leased(2)
    assert lease.messages == [first, second]
    assert life.lease(10) is None
    life.ack(lease)
    assert life.leased(10).messages == [third]


def test_other_groups_go_on_while_one_is_leased() -> None:
    life = Life(FIFO)
    life.send(2, group=b"a")
    (other,) = life.send(1, group=b"b")
    life.leased(1)
    assert life.leased(1).messages == [other]


def test_a_failed_head_keeps_its_group_closed_through_its_backoff() -> None:
    life = Life(FIFO)
    first, second = life.send(2, group=b"a")
    life.release(life.leased(1), delay_ms=1_000)
    assert life.lease(10) is None
    life.wait(1_000)
    assert life.leased(10).messages == [first, second]


def test_later_messages_of_the_same_lease_stay_held_and_may_be_acked() -> None:
    life = Life(FIFO)
    first, _, _ = life.send(3, group=b"a")
    lease = life.leased(3)
    life.release(lease, 0b001, delay_ms=0)
    assert life.lease(10) is None, "the others are still held"
    assert life.ack(lease, 0b110)
    assert life.leased(10).messages == [first]


def test_released_messages_go_back_in_the_order_of_sending() -> None:
    life = Life(FIFO)
    sent = life.send(4, group=b"a")
    lease = life.leased(3)
    life.release(lease, 0b100)
    life.release(lease, 0b001)
    life.release(lease, 0b010)
    assert life.leased(10).messages == sent


def test_a_group_is_served_at_the_most_urgent_tier_waiting_in_it() -> None:
    life = Life(QueueSettings(is_fifo=True, is_strict=True))
    (background,) = life.send(1, Tier.BACKGROUND, group=b"a")
    (normal,) = life.send(1, Tier.NORMAL, group=b"b")
    (critical,) = life.send(1, Tier.CRITICAL, group=b"a")
    lease = life.leased(3)
    assert lease.messages == [background, critical, normal], "nothing reorders inside a group"
    assert lease.tiers == [Tier.CRITICAL, Tier.CRITICAL, Tier.NORMAL]


def test_escalating_one_message_pulls_those_before_it_in_its_group() -> None:
    life = Life(QueueSettings(is_fifo=True, is_strict=True))
    group = life.send(3, Tier.LOW, group=b"a")
    (other,) = life.send(1, Tier.HIGH, group=b"b")
    life.escalate([group[1]], Tier.CRITICAL)
    assert life.leased(4).messages == [*group, other]


def test_burying_the_head_opens_the_group() -> None:
    life = Life(QueueSettings(is_fifo=True, deliveries_max=1))
    first, second = life.send(2, group=b"a")
    life.release(life.leased(1))
    assert life.place(first) == "spent"
    assert life.lease(10) is None
    life.happen(life.queue.bury(into=2, room=10, now_ms=life.now_ms))
    assert life.leased(10).messages == [second]


def test_a_delayed_message_holds_up_those_behind_it_in_its_group() -> None:
    life = Life(FIFO)
    (late,) = life.send(1, group=b"a", delay_ms=500)
    (prompt,) = life.send(1, group=b"a")
    assert life.lease(10) is None
    life.wait(500)
    assert life.leased(10).messages == [late, prompt]


def test_a_lapsed_lease_opens_its_group_again() -> None:
    life = Life(FIFO)
    sent = life.send(3, group=b"a")
    life.leased(2, lease_ms=100)
    life.wait(100)
    assert life.leased(10).messages == sent


def test_messages_without_a_group_have_no_order_to_wait_for() -> None:
    life = Life(FIFO)
    life.send(2)
    life.leased(1)
    assert life.lease(1) is not None


def test_many_groups_each_keep_their_order() -> None:
    life = Life(FIFO)
    sent: dict[bytes, list[int]] = {b"%d" % number: [] for number in range(20)}
    for turn in range(400):
        group = b"%d" % (turn * turn % 20)
        sent[group] += life.send(1, turn % 5, group=group)
    order = life.drain(want=7)
    for messages in sent.values():
        assert [message for message in order if message in set(messages)] == messages


def test_a_noisy_tenant_waits_behind_quiet_ones() -> None:
    life = Life()
    life.send(1_000, group=b"noisy")
    quiet = [*life.send(2, group=b"quiet"), *life.send(2, group=b"shy")]
    served = life.leased(6).messages
    assert set(quiet) & set(served) == set(quiet)


def test_on_a_standard_queue_one_group_is_leased_by_many_workers() -> None:
    life = Life()
    life.send(3, group=b"a")
    assert [len(life.leased(1).messages) for _ in range(3)] == [1, 1, 1]


def test_messages_without_a_group_take_their_turn_beside_groups() -> None:
    life = Life()
    life.send(1_000, group=b"noisy")
    plain = life.send(3)
    assert set(plain) <= set(life.leased(6).messages)


def test_a_group_with_nothing_left_is_forgotten() -> None:
    for settings in (FIFO, QueueSettings()):
        life = Life(settings)
        for number in range(50):
            life.send(1, group=b"%d" % number)
        life.drain()
        assert not life.state.groups.numbers
        assert len(life.state.rows) == 0


def test_turns_are_the_same_whether_time_moves_in_steps_or_at_once() -> None:
    found = []
    for steps in ([15, 16, 10], [15, 26]):
        life = Life(QueueSettings(aging_ms=(0, 20, 10, 0, 0)))
        life.send(1, Tier.NORMAL)
        life.send(1, Tier.HIGH, group=b"red", delay_ms=40)
        for step in steps:
            life.wait(step)
        found.append(freeze(life.state))
    assert found[0] == found[1]
