"""The checker finds what is planted, and nothing else."""

import pytest

from tests.cluster.checker import History, faults


def healthy() -> History:
    history = History()
    for number in range(3):
        body = b"a-%d" % number
        history.sent(body, is_ok=True, group="a", number=number)
        history.received(body, f"1-{number}", began_s=number)
        history.acked(body, ended_s=number + 0.5)
    return history


def test_a_history_in_which_all_went_well_has_no_faults() -> None:
    history = healthy()
    # Nobody knows whether it is there; it need not be, and may be.
    history.sent(b"unknown", is_ok=False)
    history.sent(b"unknown and there", is_ok=False)
    history.received(b"unknown and there", "1-8", began_s=8)
    # Received twice, since its ack was not acknowledged before.
    history.sent(b"twice", is_ok=True)
    history.received(b"twice", "1-9", began_s=9)
    history.received(b"twice", "1-9", began_s=10)
    history.acked(b"twice", ended_s=11)
    assert faults(history) == []


def _lose(history: History) -> None:
    history.sent(b"gone", is_ok=True)


def _double(history: History) -> None:
    history.received(b"a-1", "1-77", began_s=1.2)


def _deliver_again(history: History) -> None:
    history.received(b"a-1", "1-1", began_s=1.6)


def _invent(history: History) -> None:
    history.received(b"never sent", "1-5", began_s=5)


def _reorder(history: History) -> None:
    for number in (4, 3):
        history.sent(b"a-%d" % number, is_ok=True, group="a", number=number)
        history.received(b"a-%d" % number, f"1-{number}", began_s=number)


@pytest.mark.parametrize(
    ("plant", "word"),
    [
        (_lose, "lost"),
        (_double, "doubled"),
        (_deliver_again, "after its ack"),
        (_invent, "invented"),
        (_reorder, "out of order"),
    ],
)
def test_a_planted_fault_is_found(plant, word) -> None:  # type: ignore[no-untyped-def]
    history = healthy()
    plant(history)
    (fault,) = faults(history)
    assert word in fault
