"""Sending twice is sending once: by an id, and by a sender that counts its sends."""

import pytest

from penstock.contract.limits import SENDER_MS, SENDER_SENDS_MAX
from penstock.contract.queue_settings import DedupScope, QueueSettings
from penstock.core.queue.deduplication import SenderFenced, SendForgotten
from penstock.core.queue.message import Sender
from tests.core.queue.life import Life

LIVE = QueueSettings(dedup_scope=DedupScope.LIVE)


def test_a_duplicate_answers_with_the_first_message() -> None:
    life = Life()
    (first,) = life.send(1, ids=[b"a"])
    assert life.send(1, ids=[b"a"]) == [first]
    assert life.state.live == 1


def test_duplicates_inside_one_batch_are_found_too() -> None:
    life = Life()
    first, second, third = life.send(3, ids=[b"a", b"b", b"a"])
    assert first == third != second
    assert life.state.live == 2


def test_messages_without_an_id_are_never_duplicates() -> None:
    life = Life()
    life.send(2, ids=[b"", b""])
    assert life.state.live == 2


def test_in_the_window_an_id_is_taken_even_after_the_ack() -> None:
    life = Life(QueueSettings(dedup_scope=DedupScope.WINDOW, dedup_window_ms=1_000))
    (first,) = life.send(1, ids=[b"a"])
    life.drain()
    life.wait(999)
    assert life.send(1, ids=[b"a"]) == [first]
    life.wait(1)
    assert life.send(1, ids=[b"a"]) != [first]


def test_a_repeat_does_not_lengthen_the_window() -> None:
    life = Life(QueueSettings(dedup_scope=DedupScope.WINDOW, dedup_window_ms=1_000))
    (first,) = life.send(1, ids=[b"a"])
    life.wait(900)
    life.send(1, ids=[b"a"])
    life.wait(100)
    assert life.send(1, ids=[b"a"]) != [first]


def test_in_the_live_scope_an_id_is_free_when_its_message_is_settled() -> None:
    life = Life(LIVE)
    (first,) = life.send(1, ids=[b"a"])
    life.wait(86_400_000)
    assert life.send(1, ids=[b"a"]) == [first]
    life.drain()
    assert life.send(1, ids=[b"a"]) != [first]


def test_in_the_live_scope_a_failed_message_keeps_its_id() -> None:
    life = Life(LIVE)
    (first,) = life.send(1, ids=[b"a"])
    life.release(life.leased(), delay_ms=5_000)
    assert life.send(1, ids=[b"a"]) == [first]


def test_a_repeated_send_answers_as_the_first_and_adds_nothing() -> None:
    life = Life()
    first = life.send(3, sender=Sender(7, 0, 0))
    life.drain()
    assert life.send(3, sender=Sender(7, 0, 0)) == first
    assert life.state.live == 0


def test_a_repeated_send_answers_for_duplicates_too() -> None:
    life = Life(LIVE)
    (taken,) = life.send(1, ids=[b"a"])
    first = life.send(2, ids=[b"a", b"b"], sender=Sender(7, 0, 0))
    assert first[0] == taken
    life.drain()
    assert life.send(2, ids=[b"a", b"b"], sender=Sender(7, 0, 0)) == first


def test_sequences_may_come_out_of_order_and_with_gaps() -> None:
    life = Life()
    fifth = life.send(1, sender=Sender(7, 0, 5))
    third = life.send(1, sender=Sender(7, 0, 3))
    assert life.send(1, sender=Sender(7, 0, 5)) == fifth
    assert life.send(1, sender=Sender(7, 0, 3)) == third


def test_a_sender_of_an_older_epoch_is_fenced() -> None:
    life = Life()
    life.send(1, sender=Sender(7, 1, 0))
    with pytest.raises(SenderFenced):
        life.send(1, sender=Sender(7, 0, 1))


def test_a_newer_epoch_begins_its_sequences_again() -> None:
    life = Life()
    first = life.send(1, sender=Sender(7, 0, 0))
    assert life.send(1, sender=Sender(7, 1, 0)) != first


def test_a_sequence_too_old_to_be_known_is_refused_rather_than_repeated() -> None:
    life = Life()
    for sequence in range(SENDER_SENDS_MAX + 1):
        life.send(1, sender=Sender(7, 0, sequence))
    with pytest.raises(SendForgotten):
        life.send(1, sender=Sender(7, 0, 0))
    assert life.state.live == SENDER_SENDS_MAX + 1


def test_a_silent_sender_is_forgotten_after_days() -> None:
    life = Life()
    life.send(1, sender=Sender(7, 1, 0))
    life.wait(SENDER_MS)
    life.send(1, sender=Sender(7, 0, 0))
    assert len(life.state.senders) == 1
