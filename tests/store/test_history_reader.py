"""Pages of the history of one queue, out of frames of many: every row once, however the pages are cut."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.contract.history_columns import FRAME_ROW_BITS, BodyState
from penstock.core.queue.settlements import Settlement
from penstock.log import record
from penstock.runtime.interface import Runtime
from penstock.store.embedded import history_reader
from penstock.store.embedded.history_reader import offset_after, read_page, trim
from penstock.store.embedded.history_writer import retain
from penstock.store.pages import HistoryPage, HistoryRange
from tests.simulation.loop import simulate
from tests.simulation.world import Machine
from tests.store.settled import FULL, Books, Row, events, name, settlement

AT_MS = 5_000


def rows_of(page: HistoryPage, queue: int) -> list[Row]:
    """Read a page the slow way, a row at a time."""
    return [
        Row(
            name(queue),
            page.home[row],
            page.sent_tier[row],
            page.number[row],
            page.tier[row],
            page.sent_at_ms[row],
            page.first_leased_ms[row],
            page.last_leased_ms[row],
            page.settled_at_ms[row],
            page.deliveries[row],
            page.ending[row],
            b"" if page.group is None else bytes(page.group[row]),
            "" if page.error is None else bytes(page.error[row]).decode(),
            None
            if page.body is None or page.body_state is None or page.body_state[row] != BodyState.KEPT
            else bytes(page.body[row]),
            page.key_of(row),
        )
        for row in range(len(page))
    ]


async def all_rows(runtime: Runtime, books: Books, queue: int, *, most: int, from_ms: int | None = None) -> list[Row]:
    wanted = HistoryRange(from_ms=from_ms, most=most)
    page = await read_page(runtime, books.log, wanted, queue=queue)
    found = rows_of(page, queue)
    while page.next_offset < page.end_offset:
        wanted = replace(wanted, from_offset=page.next_offset)
        before, page = page, await read_page(runtime, books.log, wanted, queue=queue)
        assert page.offset == before.next_offset < page.next_offset
        found += rows_of(page, queue)
    return found


@given(
    events=st.lists(events(least=1, most=4), max_size=6),
    most=st.sampled_from([1, 3, 20, 1_000]),
    queue=st.sampled_from([1, 2, FULL]),
    from_ms=st.none() | st.integers(0, 10**13),
)
def test_pages_hold_what_the_frames_say_of_a_queue(
    events: list[list[Settlement]], most: int, queue: int, from_ms: int | None
) -> None:
    async def story() -> None:
        runtime = Machine().start()
        books = await Books.open(runtime)
        for event in events:
            await books.settle(*event)
            await books.history.flush()
        expected = [row for row in await books.rows() if row.queue == name(queue)]
        expected = [row for row in expected if from_ms is None or row.settled_at_ms >= from_ms]
        # The log is searched by time, and here messages are not settled in the order of time.
        found = await all_rows(runtime, books, queue, most=most)
        assert [row for row in found if from_ms is None or row.settled_at_ms >= from_ms] == expected
        if from_ms is not None:
            assert set(await all_rows(runtime, books, queue, most=most, from_ms=from_ms)) <= set(expected)

    simulate(story, seed=0)


async def test_a_reader_that_comes_too_late_begins_with_what_is_kept(machine: Machine) -> None:
    runtime = machine.start()
    books = await Books.open(runtime)
    for number in range(100):
        await books.settle(settlement(number, 20, at_ms=AT_MS + number))
        await books.history.flush()
    await retain(books.log, now_ms=AT_MS + 1_050, keep_ms=1_000)
    kept = books.log.start_offset
    page = await read_page(runtime, books.log, HistoryRange(from_offset=3 << FRAME_ROW_BITS | 7, most=10), queue=1)
    assert page.offset == page.first_kept_offset == kept << FRAME_ROW_BITS > 0
    assert page.number.tolist() == list(range(kept, kept + 10))


async def test_a_time_is_found_without_reading_all_before_it(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = machine.start()
    books = await Books.open(runtime)
    for number in range(100):
        await books.settle(settlement(number, 20, at_ms=AT_MS + number))
        await books.history.flush()
    # So little that a page which began at the beginning would end long before.
    monkeypatch.setattr(history_reader, "HISTORY_PAGE_BYTES_MAX", 1)
    monkeypatch.setattr(history_reader, "READ_BYTES", 1)
    page = await read_page(runtime, books.log, HistoryRange(from_ms=AT_MS + 60, most=10), queue=1)
    assert page.settled_at_ms.tolist() == [AT_MS + 60] * 10
    other = await read_page(runtime, books.log, HistoryRange(most=10), queue=2)
    assert (len(other), other.next_offset) == (0, 1 << FRAME_ROW_BITS)


async def test_rows_lost_to_damage_are_passed_over(machine: Machine) -> None:
    runtime = machine.start()
    books = await Books.open(runtime)
    await books.settle(settlement(0))
    await books.history.flush()
    with books.log.reserve(record.HEADER_BYTES) as space:
        books.log.append(record.hole(1, 3), space)
    await books.log.wait_durable(3)
    page = await read_page(runtime, books.log, HistoryRange(most=10), queue=1)
    assert (page.number.tolist(), page.next_offset) == ([0], 3 << FRAME_ROW_BITS)


async def test_a_page_of_whole_frames_of_one_queue_copies_nothing(machine: Machine) -> None:
    runtime = machine.start()
    books = await Books.open(runtime)
    await books.settle(settlement(0, 20))
    await books.history.flush()
    (frame,) = await books.frames()
    page = await read_page(runtime, books.log, HistoryRange(most=10), queue=1)
    assert memoryview(page.number.obj).nbytes > 10 * 8
    assert page.number.tolist() == frame.number.tolist()[:10]


async def test_trimming_drops_whole_segments_below_an_offset_and_no_more(machine: Machine) -> None:
    runtime = machine.start()
    books = await Books.open(runtime)
    for number in range(100):
        await books.settle(settlement(number, 20, at_ms=AT_MS + number))
        await books.history.flush()
    bases = [segment.base_offset for segment in books.log.segments]
    assert len(bases) > 4
    # In the middle of a segment: that one stays, though most of it is below.
    assert await trim(books.log, (bases[3] - 1) << FRAME_ROW_BITS | 19) == bases[2] << FRAME_ROW_BITS
    assert await trim(books.log, bases[3] << FRAME_ROW_BITS) == bases[3] << FRAME_ROW_BITS
    assert await trim(books.log, 0) == bases[3] << FRAME_ROW_BITS
    page = await read_page(runtime, books.log, HistoryRange(from_offset=0, most=10))
    assert page.number[0] == page.offset >> FRAME_ROW_BITS == bases[3]
    assert await trim(books.log, books.log.durable_offset << FRAME_ROW_BITS) == bases[-1] << FRAME_ROW_BITS


async def test_rows_are_counted_by_the_keys_of_frames_alone(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = machine.start()
    books = await Books.open(runtime)
    for number in range(100):
        await books.settle(settlement(number, 20, at_ms=AT_MS + number))
        await books.history.flush()

    async def read(*_: object, **__: object) -> list[memoryview]:
        pytest.fail("a batch was read")

    with monkeypatch.context() as forbidden:
        forbidden.setattr(books.log, "read", read)
        assert await offset_after(books.log, 0, 1) == 1 << FRAME_ROW_BITS
        assert await offset_after(books.log, 0, 21) == 2 << FRAME_ROW_BITS
        # From the middle of a frame, that frame counts for what is left of it.
        assert await offset_after(books.log, 5 << FRAME_ROW_BITS | 10, 10) == 6 << FRAME_ROW_BITS
        assert await offset_after(books.log, 5 << FRAME_ROW_BITS | 10, 11) == 7 << FRAME_ROW_BITS
        assert await offset_after(books.log, 0, 20 * 99) == 99 << FRAME_ROW_BITS
        assert await offset_after(books.log, 0, 10**9) == 100 << FRAME_ROW_BITS
        monkeypatch.setattr(history_reader, "FRAMES_MAX", 7)
        assert await offset_after(books.log, 0, 10**9) == 7 << FRAME_ROW_BITS
