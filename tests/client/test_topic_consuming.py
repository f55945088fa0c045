"""A consumer's loop: what is committed and when, what is tried again, and what becomes a dead letter.

The source is scripted in the place of aiokafka's consumer; tests/kafka has it with the real one.
"""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pytest
from aiokafka.errors import CommitFailedError, ConsumerStoppedError

from penstock.client import PenstockError
from penstock.client.topics.consumer import (
    COMMIT_S,
    ERROR_HEADER,
    OFFSET_HEADER,
    Loop,
    Record,
    RetryPolicy,
    body_of,
    dead_letter_headers,
)
from tests.waiting import elapse

PATIENCE = RetryPolicy(attempts=3, rest_s=1.0, rest_s_max=1.5)


class Row(NamedTuple):
    """What aiokafka hands out."""

    partition: int
    offset: int
    value: bytes = b"{}"
    topic: str = "events"
    key: bytes | None = b"k"
    headers: tuple[tuple[str, bytes], ...] = ()
    timestamp: int = 5


@dataclass
class ScriptedSource:
    batches: list[dict[str, list[Row]]]
    commits: list[dict[str, int]] = field(default_factory=list)
    refuses: Exception | None = None
    is_started: bool = False
    stopped: asyncio.Event = field(default_factory=asyncio.Event)

    async def start(self) -> None:
        self.is_started = True

    async def stop(self) -> None:
        self.stopped.set()

    async def getmany(self, *, timeout_ms: int, max_records: int) -> dict[Any, list[Any]]:
        if self.batches:
            return self.batches.pop(0)
        try:
            async with asyncio.timeout(timeout_ms / 1_000):
                await self.stopped.wait()
        except TimeoutError:
            return {}
        raise ConsumerStoppedError

    async def commit(self, offsets: dict[Any, int]) -> None:
        if self.refuses is not None:
            raise self.refuses
        self.commits.append(offsets)


class Buried:
    def __init__(self) -> None:
        self.records: list[Record] = []

    async def __call__(self, record: Record) -> None:
        self.records.append(record)


def rows(partition: int, offsets: Iterable[int]) -> dict[str, list[Row]]:
    return {f"p{partition}": [Row(partition, offset) for offset in offsets]}


def loop_over(*batches: dict[str, list[Row]]) -> tuple[Loop, ScriptedSource, Buried]:
    source, buried = ScriptedSource(list(batches)), Buried()
    return Loop(source, PATIENCE, buried), source, buried


async def next_of(loop: Loop) -> Record:
    record = await loop.next()
    assert record is not None
    return record


async def test_a_record_is_processed_when_the_next_is_asked_for() -> None:
    loop, source, _ = loop_over(rows(0, [4, 5]))
    assert (await next_of(loop)).offset == 4
    await loop.aclose()
    assert source.commits == []
    loop, source, _ = loop_over(rows(0, [4, 5]))
    await next_of(loop)
    assert (await next_of(loop)).offset == 5
    await loop.aclose()
    assert source.commits == [{"p0": 5}]
    assert source.stopped.is_set()


async def test_a_record_whose_block_has_ended_well_is_processed_at_once() -> None:
    loop, source, _ = loop_over(rows(0, [4, 5]))
    with await next_of(loop):
        pass
    await loop.aclose()
    assert source.commits == [{"p0": 5}]


async def test_what_was_processed_is_committed_within_a_second() -> None:
    loop, source, _ = loop_over(rows(0, range(10)))
    for _ in range(10):
        await next_of(loop)
        await elapse(COMMIT_S / 4)
    assert source.commits == [{"p0": 4}, {"p0": 8}]


async def test_a_batch_is_committed_when_there_is_nothing_left_of_it() -> None:
    loop, source, _ = loop_over({**rows(0, [1, 2]), **rows(1, [7])}, rows(0, [3]))
    for _ in range(4):
        await next_of(loop)
    assert source.commits == [{"p0": 3, "p1": 8}]


async def test_a_record_that_fails_comes_again_after_a_rest() -> None:
    loop, source, buried = loop_over(rows(0, [1, 2]))
    began = asyncio.get_running_loop().time()
    with await next_of(loop):
        raise ValueError("no")
    record = await next_of(loop)
    assert (record.offset, record.attempt, record.error) == (1, 2, None)
    assert asyncio.get_running_loop().time() - began == pytest.approx(PATIENCE.rest_s)
    with record:
        pass
    assert (await next_of(loop)).offset == 2
    assert (buried.records, source.commits) == ([], [{"p0": 2}])


async def test_a_record_that_always_fails_becomes_a_dead_letter_and_the_group_goes_on() -> None:
    loop, source, buried = loop_over(rows(0, [1, 2]))
    for _ in range(PATIENCE.attempts):
        with await next_of(loop):
            raise ValueError("no")
    assert buried.records == []
    assert (await next_of(loop)).offset == 2
    (dead,) = buried.records
    assert (dead.offset, dead.attempt, str(dead.error)) == (1, PATIENCE.attempts, "no")
    await loop.aclose()
    assert source.commits == [{"p0": 2}]


async def test_a_record_that_cannot_be_buried_is_not_passed_over() -> None:
    source = ScriptedSource([rows(0, [1, 2])])

    async def refuse(record: Record) -> None:
        raise PenstockError("the disk is full")

    loop = Loop(source, RetryPolicy(attempts=1), refuse)
    with await next_of(loop):
        raise ValueError("no")
    with pytest.raises(PenstockError, match="full"):
        await loop.next()
    await loop.aclose()
    assert source.commits == []


async def test_a_cancelled_block_has_not_processed_its_record() -> None:
    loop, source, _ = loop_over(rows(0, [1]))
    record = await next_of(loop)
    with pytest.raises(asyncio.CancelledError), record:
        raise asyncio.CancelledError
    await loop.aclose()
    assert source.commits == []


async def test_partitions_that_go_away_are_committed_and_not_handed_out_any_more() -> None:
    loop, source, _ = loop_over({**rows(0, [1, 2, 3]), **rows(1, [7, 8])})
    await next_of(loop)
    at_hand = await next_of(loop)
    await loop.on_partitions_revoked({"p0"})
    assert source.commits == [{"p0": 2}]
    # Another member has this record now, whatever becomes of it here.
    with at_hand:
        raise ValueError("no")
    record = await next_of(loop)
    assert (record.partition, record.offset) == (1, 7)
    await next_of(loop)
    await loop.aclose()
    assert source.commits == [{"p0": 2}, {"p1": 8}]


async def test_a_record_that_went_away_while_it_rested_is_not_tried_again() -> None:
    loop, _, buried = loop_over(rows(0, [1, 2]), rows(1, [7]))
    with await next_of(loop):
        raise ValueError("no")
    async with asyncio.TaskGroup() as tasks:
        asked = tasks.create_task(next_of(loop))
        await elapse(PATIENCE.rest_s / 2)
        await loop.on_partitions_revoked({"p0"})
    assert (asked.result().partition, asked.result().offset) == (1, 7)
    assert buried.records == []


async def test_a_commit_of_a_generation_that_has_ended_is_no_error() -> None:
    loop, source, _ = loop_over(rows(0, [1]), rows(0, [2]))
    source.refuses = CommitFailedError("the group has gone on")
    await next_of(loop)
    assert (await next_of(loop)).offset == 2
    await loop.aclose()
    assert source.stopped.is_set()


async def test_a_call_that_waits_for_a_record_is_told_when_the_loop_is_closed() -> None:
    loop, _, _ = loop_over()
    async with asyncio.TaskGroup() as tasks:
        asked = tasks.create_task(loop.next())
        await elapse(COMMIT_S / 2)
        await loop.aclose()
    assert asked.result() is None
    assert await loop.next() is None


def test_a_dead_letter_says_where_it_is_from_and_why() -> None:
    record = Record("events", 3, 9, b"k", b"v", ((ERROR_HEADER, b"of before"), ("trace", b"t")), attempt=5)
    record.error = ValueError("x" * 5_000)
    headers = dict(dead_letter_headers(record, group="billing"))
    assert headers[OFFSET_HEADER] == b"9"
    assert headers[ERROR_HEADER] == b"x" * 1_024
    assert headers["penstock-error-kind"] == b"ValueError"
    assert headers["trace"] == b"t"
    assert len(headers) == len(dead_letter_headers(record, group="billing"))


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        (b"\xff", b"\xff"),
        ("ä", "ä".encode()),
        ({"a": 1}, b'{"a":1}'),
        (None, None),
        (memoryview(b"m"), b"m"),
        (7, b"7"),
    ],
)
def test_a_value_is_stored_as_bytes_text_or_json(value: object, stored: bytes | None) -> None:
    assert body_of(value) == stored
