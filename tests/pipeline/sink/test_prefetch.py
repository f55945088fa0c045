"""A task makes its next chunk while the server is at the one before."""

import threading
from collections.abc import Iterator

import pytest

from penstock.pipeline.sink.partition import Prefetch
from penstock.pipeline.sink.send import Answered
from tests.pipeline.answering import FULL, TAKEN, answering, waiting


class BadRows(Exception):
    """What is wrong with rows that come later."""


def test_the_next_chunk_is_made_before_the_answer_is_there() -> None:
    made = threading.Event()
    with answering(TAKEN, after=made) as asked:
        sending, slept = waiting(asked.url)
        # The server answers once it is made; a task that waited first would wait in vain.
        assert sending.send("orders", b"frame", meanwhile=made.set) == Answered("1-10", "1-18")
        sending.close()

    assert (asked.answers, slept) == ([201], [])


def test_the_time_that_the_next_chunk_takes_is_none_that_the_server_is_waited_for() -> None:
    with answering(FULL, FULL, TAKEN) as asked:
        sending, slept = waiting(asked.url, wait_s_max=60)
        sending.send("orders", b"frame", meanwhile=lambda: slept.append(1_000))
        sending.close()

    assert asked.answers == [429, 429, 201]
    assert slept[0] == 1_000
    assert len(slept) == 3


def test_what_is_wrong_with_the_next_chunk_is_said_when_its_turn_comes() -> None:
    def chunks() -> Iterator[int]:
        yield 1
        raise BadRows

    ahead = Prefetch(chunks())
    assert next(ahead) == 1
    ahead.make()
    ahead.make()
    with pytest.raises(BadRows):
        next(ahead)
    assert list(ahead) == []


def test_chunks_that_are_made_ahead_come_in_their_order_and_one_at_a_time() -> None:
    begun: list[int] = []

    def chunks() -> Iterator[int]:
        for each in range(4):
            begun.append(each)
            yield each

    ahead = Prefetch(chunks())
    seen = []
    for each in ahead:
        ahead.make()
        ahead.make()
        seen.append((each, len(begun)))

    assert seen == [(0, 2), (1, 3), (2, 4), (3, 4)]
