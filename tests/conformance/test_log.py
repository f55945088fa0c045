"""What a log promises, on a simulated disk and on a real one."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.contract.limits import RESERVATION_BYTES_MAX
from penstock.log import record
from penstock.log.interface import Log, OffsetOutOfRange
from tests.conformance.logs import IMPLEMENTATIONS, Story
from tests.waiting import let_others_run

Tell = Callable[[Story], None]


@pytest.fixture(params=list(IMPLEMENTATIONS.values()), ids=list(IMPLEMENTATIONS))
def tell(request: pytest.FixtureRequest, tmp_path: Path) -> Tell:
    """Open a log of each kind and tell it a story."""
    return lambda story: request.param(story, tmp_path)


async def append(log: Log, *bodies: bytes) -> int:
    batch = record.encode([(None, body) for body in bodies], at_ms=1_700_000_000_000)
    with log.reserve(len(batch)) as space:
        return log.append(batch, space)


async def bodies(log: Log, offset: int) -> list[bytes]:
    found = []
    while offset < log.durable_offset:
        for batch in await log.read(offset, bytes_max=500):
            found += [bytes(entry.value or b"") for entry in record.records(batch)]
            offset = record.header(batch).next_offset
    return found


def test_an_append_knows_its_offset_at_once_and_is_durable_after_waiting(tell: Tell) -> None:
    async def story(log: Log) -> None:
        first = log.end_offset
        assert await append(log, b"a", b"b") == first
        assert await append(log, b"c") == first + 2
        assert log.end_offset == first + 3
        await log.wait_durable(first + 3)
        assert log.durable_offset >= first + 3
        assert await bodies(log, first) == [b"a", b"b", b"c"]

    tell(story)


def test_offsets_are_in_order_start_durable_end(tell: Tell) -> None:
    async def story(log: Log) -> None:
        for number in range(20):
            await append(log, str(number).encode())
            assert log.start_offset <= log.durable_offset <= log.end_offset
            await let_others_run()
        await log.wait_durable(log.end_offset)
        assert log.durable_offset == log.end_offset

    tell(story)


def test_nothing_is_read_before_it_is_durable(tell: Tell) -> None:
    async def story(log: Log) -> None:
        await log.wait_durable(log.end_offset)
        offset = await append(log, b"not yet")
        assert log.durable_offset == offset
        assert await log.read(offset, bytes_max=100) == []
        await log.wait_durable(offset + 1)
        assert await bodies(log, offset) == [b"not yet"]

    tell(story)


def test_many_appenders_get_offsets_of_their_own_and_all_become_durable(tell: Tell) -> None:
    async def story(log: Log) -> None:
        first = log.end_offset
        acknowledged: dict[int, bytes] = {}

        async def send(name: int) -> None:
            for number in range(5):
                body = b"%d/%d" % (name, number)
                offset = await append(log, body)
                await log.wait_durable(offset + 1)
                acknowledged[offset] = body

        async with asyncio.TaskGroup() as tasks:
            for name in range(8):
                tasks.create_task(send(name))
        assert sorted(acknowledged) == list(range(first, first + 40))
        assert await bodies(log, first) == [acknowledged[offset] for offset in sorted(acknowledged)]

    tell(story)


def test_a_batch_comes_back_as_it_was_but_for_offset_and_epoch(tell: Tell) -> None:
    async def story(log: Log) -> None:
        sent = record.encode([(b"key", b"value"), (None, None)], at_ms=7, producer=record.Producer(1, 2, 3))
        with log.reserve(len(sent)) as space:
            offset = log.append(sent, space)
        await log.wait_durable(log.end_offset)
        (found,) = await log.read(offset, bytes_max=1)
        assert bytes(found[16:]) == sent[16:]
        assert record.check(found).base_offset == offset

    tell(story)


def test_a_read_gives_at_least_one_batch_and_no_more_than_fit(tell: Tell) -> None:
    async def story(log: Log) -> None:
        first = log.end_offset
        for size in (10, 3_000, 10):
            await append(log, b"x" * size)
        await log.wait_durable(log.end_offset)
        assert len(await log.read(first + 1, bytes_max=1)) == 1
        assert sum(map(len, await log.read(first, bytes_max=200))) <= 200

    tell(story)


def test_reading_beyond_the_durable_end_is_refused_by_name(tell: Tell) -> None:
    async def story(log: Log) -> None:
        await append(log, b"x")
        await log.wait_durable(log.end_offset)
        assert await log.read(log.durable_offset, bytes_max=1) == []
        for offset in (-1, log.durable_offset + 1):
            with pytest.raises(OffsetOutOfRange, match=str(offset)):
                await log.read(offset, bytes_max=1)

    tell(story)


def test_an_empty_turn_can_wait_for_the_tail_as_it_is(tell: Tell) -> None:
    """An answer that wrote nothing still waits for everything that was decided before it."""

    async def story(log: Log) -> None:
        offset = await append(log, b"x")
        await log.wait_durable(log.end_offset)
        assert log.durable_offset > offset
        await log.wait_durable(log.end_offset)
        await log.wait_durable(0)

    tell(story)


def test_what_is_reserved_and_not_used_is_given_back(tell: Tell) -> None:
    async def story(log: Log) -> None:
        for _ in range(10):
            with log.reserve(RESERVATION_BYTES_MAX):
                pass
        offset = await append(log, b"x")
        await log.wait_durable(offset + 1)
        assert await bodies(log, offset) == [b"x"]

    tell(story)


def test_dropping_keeps_everything_from_the_offset_on(tell: Tell) -> None:
    async def story(log: Log) -> None:
        first = log.end_offset
        for number in range(60):
            offset = await append(log, b"%03d" % number + b"x" * 200)
            await log.wait_durable(offset + 1)
        await log.drop_before(first + 40)
        assert first < log.start_offset <= first + 40
        found = await bodies(log, log.start_offset)
        assert [int(body[:3]) for body in found] == list(range(log.start_offset - first, 60))
        with pytest.raises(OffsetOutOfRange):
            await log.read(log.start_offset - 1, bytes_max=1)

    tell(story)
