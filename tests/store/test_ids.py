"""Ids as the world sees them: one text for each message, and no other text is one."""

import doctest

import hypothesis.strategies as st
from hypothesis import given

from penstock.contract.messages import Tier
from penstock.store import ids


def test_the_examples_in_the_docstrings_hold() -> None:
    result = doctest.testmod(ids)
    assert result.attempted > 0
    assert result.failed == 0


@given(st.integers(1, 2**32 - 1), st.sampled_from(Tier), st.integers(0, 2**61 - 1))
def test_an_id_is_read_back_as_what_it_was_made_of(queue: int, lane: Tier, number: int) -> None:
    text = ids.message_id(queue, number << 3 | lane)
    assert ids.parse(text) == (queue, lane, number)
    made = ids.MessageIds(queue, [number << 3 | lane] * 3)
    assert list(made) == [text] * 3 == made[0:3] == [made[0], made[1], made[-1]]
    assert ids.parse_queue(ids.queue_id(queue)) == queue


@given(st.one_of(st.text(alphabet="0123456789abcdefABCDEFx_q- \n", max_size=30), st.text(max_size=10)))
def test_what_is_no_id_is_read_as_nothing(text: str) -> None:
    found = ids.parse(text)
    assert found is None or ids.message_id(found.queue, found.number << 3 | found.lane) == text
    number = ids.parse_queue(text)
    assert number is None or ids.queue_id(number) == text
