"""Random commands of several stores at once: whatever they answer, the core could have answered.

The same with many more seeds is in tests/chaos. The judge is tested here, too: it must find what is wrong.
"""

import pytest

from penstock.contract.queue_settings import QueueSettings
from penstock.core.queue.message import Drafts, Receipt
from penstock.store.interface import Outcome
from tests.postgres.judging import Answer, Call, Leased, Left, Nothing, Sent, Settled, Strand
from tests.postgres.races import raced
from tests.postgres.schemas import empty_schema

PLAIN, FIFO = QueueSettings(deliveries_max=2), QueueSettings(is_fifo=True)
NOW_MS = 2_000_000


@pytest.mark.real_time
@pytest.mark.parametrize("seed", [1, 3, 8, 26])
async def test_whatever_stores_answer_at_once_the_core_could_have_answered(seed: int) -> None:
    race = await raced(empty_schema(), seed, rounds=5, held_min=21)
    assert race.illegal() == []


def is_legal(settings: QueueSettings, *told: tuple[int, int, Answer], at_ms: int = NOW_MS) -> bool:
    return Strand(settings, [Call(began, ended, at_ms, answer) for began, ended, answer in told]).has_legal_order()


def sent(*ids: str, group: bytes = b"") -> Sent:
    return Sent(Drafts(bodies=[b""] * len(ids), groups=[group] * len(ids) if group else None), ids)


def leased(lease: int, *ids: str, deliveries: int = 1) -> Leased:
    return Leased(lease, 1_000, ids, (deliveries,) * len(ids))


def settled(verb: str, lease: int, outcome: Outcome) -> Settled:
    return Settled(verb, (Receipt(lease, 0, 0),), ("a",), (outcome,), delay_ms=0)


DONE, STALE = Outcome.DONE, Outcome.STALE


def test_a_message_leased_to_two_at_once_is_illegal() -> None:
    assert is_legal(PLAIN, (1, 2, sent("a")), (3, 4, leased(1, "a")))
    assert not is_legal(PLAIN, (1, 2, sent("a")), (3, 6, leased(1, "a")), (4, 5, leased(2, "a")))
    back = settled("give back", 1, DONE)
    assert is_legal(PLAIN, (1, 2, sent("a")), (3, 4, leased(1, "a")), (5, 8, back), (6, 7, leased(2, "a")))
    assert not is_legal(PLAIN, (1, 2, sent("a")), (3, 4, leased(1, "a")), (5, 6, leased(2, "a")), (7, 8, back))


def test_an_ack_is_judged_by_who_could_have_been_first() -> None:
    begun = (1, 2, sent("a")), (3, 4, leased(1, "a"))
    release, ack = settled("release", 1, DONE), settled("ack", 1, STALE)
    assert is_legal(PLAIN, *begun, (5, 8, release), (6, 7, ack))
    assert is_legal(PLAIN, *begun, (5, 6, release), (7, 8, ack))
    assert not is_legal(PLAIN, *begun, (5, 6, ack), (7, 8, release))
    assert not is_legal(PLAIN, *begun, (5, 8, settled("ack", 1, DONE)), (6, 7, release))


def test_deliveries_that_were_not_counted_are_illegal() -> None:
    begun = (1, 2, sent("a")), (3, 4, leased(1, "a")), (5, 6, settled("release", 1, DONE))
    assert is_legal(PLAIN, *begun, (7, 8, leased(2, "a", deliveries=2)))
    assert not is_legal(PLAIN, *begun, (7, 8, leased(2, "a", deliveries=1)))


def test_a_group_that_is_served_out_of_order_is_illegal() -> None:
    begun = ((1, 2, sent("a", "b", group=b"g")),)
    assert is_legal(FIFO, *begun, (3, 4, leased(1, "a")), (5, 6, settled("ack", 1, DONE)), (7, 8, leased(2, "b")))
    assert not is_legal(FIFO, *begun, (3, 4, leased(1, "b")))
    assert not is_legal(FIFO, *begun, (3, 4, leased(1, "a")), (5, 6, leased(2, "b")))
    # Who was first of two that were sent at once, only a lease tells.
    both = (1, 4, sent("a", group=b"g")), (2, 3, sent("b", group=b"g"))
    assert is_legal(FIFO, *both, (5, 6, leased(1, "b")))


def test_what_is_lost_or_left_over_is_illegal() -> None:
    begun = (1, 2, sent("a")), (3, 4, leased(1, "a"))
    dead = (5, 6, settled("reject", 1, DONE)), (7, 8, Nothing())
    assert is_legal(PLAIN, *begun, *dead, (9, 10, Left({}, {"a": 1})))
    assert not is_legal(PLAIN, *begun, *dead, (9, 10, Left({}, {})))
    assert not is_legal(PLAIN, *begun, (5, 6, settled("ack", 1, DONE)), (7, 8, Left({"a": ("waiting", 2, 1)}, {})))
    assert not is_legal(PLAIN, (1, 2, sent("a")), (3, 4, Nothing()))
