"""The history follows the journal: what it writes, when, and what it says is covered."""

import asyncio
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.contract.history_columns import BodyState
from penstock.contract.limits import BATCH_BYTES_MAX, HISTORY_PENDING_MAX, HISTORY_ROWS_MAX
from penstock.contract.messages import MessageOutcome
from penstock.core.queue.settlements import Settlement
from penstock.log import record
from penstock.log.disk_log import DiskLog
from penstock.log.interface import OffsetOutOfRange
from penstock.log.settings import LogSettings
from penstock.runtime.interface import Buffer
from penstock.runtime.system import ThreadWorkers, halt, system_runtime
from penstock.store.embedded.history_format import UnknownFrame, encode
from penstock.store.embedded.history_writer import FrameLimits, History, QueueInfo, frames, retain
from tests.log.small import append
from tests.simulation.disk import PAGE
from tests.simulation.loop import simulate
from tests.simulation.world import Machine
from tests.store.settled import FULL, LIMITS, OFF, Books, about, events, naive, name, settlement
from tests.waiting import let_others_run

AT_MS = 5_000


async def _a_few_turns() -> None:
    """Let others come to where they wait for the disk, which takes virtual time."""
    await let_others_run(3)


async def test_a_settled_message_is_a_row_of_the_history(machine: Machine) -> None:
    books = await Books.open(machine.start())
    await books.settle(settlement(3, group=b"a", error="late", ending=MessageOutcome.BURIED))
    await books.history.flush()
    (row,) = await books.rows()
    assert row == naive([settlement(3, group=b"a", error="late", ending=MessageOutcome.BURIED)])[0]
    assert (row.queue, row.number, row.ending, row.error) == (name(1), 3, MessageOutcome.BURIED, "late")


async def test_a_frame_waits_for_enough_rows(machine: Machine) -> None:
    books = await Books.open(machine.start())
    await books.settle(settlement(0, LIMITS.rows_min - 1))
    await books.history.run_once(AT_MS)
    assert await books.frames() == []
    await books.settle(settlement(50))
    await books.history.run_once(AT_MS)
    assert [frame.head.rows for frame in await books.frames()] == [LIMITS.rows_min]


async def test_a_row_waits_no_longer_than_a_second(machine: Machine) -> None:
    books = await Books.open(machine.start())
    await books.settle(settlement())
    await books.history.run_once(AT_MS + LIMITS.wait_ms - 1)
    assert await books.rows() == []
    await books.history.run_once(AT_MS + LIMITS.wait_ms)
    assert await books.rows() == naive([settlement()])


async def test_the_history_does_not_tell_of_what_a_crash_could_undo(machine: Machine) -> None:
    books = await Books.open(machine.start())
    first = await books.settle(settlement(0, 30))
    books.append(settlement(30, 30))
    await books.history.run_once(AT_MS + 10_000)
    assert await books.rows() == naive([settlement(0, 30)])
    assert [frame.head.covered for frame in await books.frames()][-1] == first + 1
    await books.history.flush()
    assert await books.rows() == await books.expected()


async def test_a_large_event_is_written_as_many_frames(machine: Machine) -> None:
    books = await Books.open(machine.start())
    offset = await books.settle(settlement(0, 50))
    await books.history.flush()
    heads = [frame.head for frame in await books.frames()]
    assert [(head.rows, head.covered, head.within) for head in heads] == [
        (20, offset, 20),
        (20, offset, 40),
        (10, offset + 1, 0),
    ]
    assert await books.rows() == await books.expected()


async def test_the_rows_of_an_event_are_in_order_of_queue_lane_and_number(machine: Machine) -> None:
    books = await Books.open(machine.start())
    event = [settlement(9, 30, queue=2), settlement(40, 5, lane=3), settlement(5, 3), settlement(2, 3)]
    await books.settle(*event)
    await books.history.flush()
    assert [row.number for row in await books.rows()] == [2, 3, 4, 5, 6, 7, *range(40, 45), *range(9, 39)]


async def test_long_errors_make_small_frames(machine: Machine) -> None:
    books = await Books.open(machine.start(), FrameLimits(text_bytes_max=1_000))
    await books.settle(*(settlement(number, error="é" * 100 + str(number)) for number in range(10)))
    await books.settle(settlement(10, error="é" * 1_000), settlement(11))
    await books.history.flush()
    assert [frame.head.rows for frame in await books.frames()] == [2, 2, 2, 2, 2, 1, 1]
    assert await books.rows() == await books.expected()


@given(
    st.lists(events(), max_size=8),
    st.integers(1, 60),
    st.integers(1, 100),
    st.integers(1, 600),
)
def test_whatever_is_settled_is_in_the_history_once(
    events: list[list[Settlement]], rows_max: int, text_bytes_max: int, body_bytes_max: int
) -> None:
    limits = FrameLimits(rows_max=rows_max, text_bytes_max=text_bytes_max, body_bytes_max=body_bytes_max)

    async def main() -> None:
        books = await Books.open(Machine().start(), limits)
        for event in events:
            await books.settle(*event)
        await books.history.flush()
        assert await books.rows() == await books.expected()
        assert all(frame.head.rows <= rows_max for frame in await books.frames())
        assert books.history.covered == books.journal.durable_offset
        assert (books.history.pending_rows, books.history.pending_settlements) == (0, 0)
        await books.close()

    simulate(main)


async def test_a_queue_without_history_leaves_no_rows_and_holds_nothing_back(machine: Machine) -> None:
    books = await Books.open(machine.start())
    offset = await books.settle(settlement(0, 100, queue=OFF))
    assert books.history.covered == offset + 1
    await books.settle(settlement(0, 10, queue=OFF), settlement(0, 10))
    await books.history.flush()
    assert {row.queue for row in await books.rows()} == {name(1)}


async def test_bodies_are_kept_where_the_queue_wants_them_and_frames_stay_small(machine: Machine) -> None:
    books = await Books.open(machine.start(), FrameLimits(body_bytes_max=500))
    await books.settle(settlement(0, 100, queue=FULL), settlement(0, 10))
    await books.history.flush()
    found = await books.frames()
    assert await books.rows() == await books.expected()
    assert len(found) > 5
    assert all(frame.body is None or len(frame.body.data) <= 500 for frame in found)


@pytest.mark.parametrize(
    ("size", "state"), [(5_000_000, BodyState.KEPT), (BATCH_BYTES_MAX - 60 * 1_024, BodyState.TOO_LARGE)]
)
async def test_a_body_larger_than_a_frame_goes_alone_and_one_larger_than_a_record_is_left_out(
    machine: Machine, size: int, state: BodyState
) -> None:
    async def read(settled: Settlement, start: int, count: int) -> tuple[list[Buffer], list[Buffer]]:
        numbers = range((settled.key >> 3) + start, (settled.key >> 3) + start + count)
        return [bytes(size) if number == 1 else b"small" for number in numbers], [b"{}"] * count

    runtime = machine.start()
    journal, log = await DiskLog.open(runtime, "journal"), await DiskLog.open(runtime, "history")
    history = await History.open(runtime, log, journal=journal, about=lambda _: QueueInfo("orders", read))
    await append(journal, b"an event")
    history.follow(0, [settlement(0, 3)])
    await history.flush()
    found = [frame async for _, frame in frames(log, 0)]
    assert [(frame.head.rows, frame.head.within) for frame in found] == [(1, 1), (1, 2), (1, 0)]
    alone = found[1]
    assert alone.body_state is not None
    assert alone.body is not None
    assert alone.body_state.tolist() == [state]
    assert len(alone.body[0]) == (size if state == BodyState.KEPT else 0)
    assert found[0].attributes is not None
    assert bytes(found[0].attributes[0]) == b"{}"


async def test_what_is_covered_moves_with_events_that_settle_nothing(machine: Machine) -> None:
    books = await Books.open(machine.start())
    for _ in range(5):
        await books.settle()
    assert books.history.covered == 5
    await books.history.run_once(AT_MS + 10_000)
    assert books.log.end_offset == 0


async def test_what_is_covered_stays_before_the_oldest_row_that_is_not_durable(machine: Machine) -> None:
    books = await Books.open(machine.start())
    await books.settle()
    offset = await books.settle(settlement(0, 50))
    await books.settle()
    assert books.history.covered == offset
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(books.history.flush())
        for frame in (1, 2, 3):
            await _a_few_turns()
            assert (books.log.durable_offset, books.log.end_offset) == (frame - 1, frame)
            assert books.history.covered == offset
            await books.log.wait_durable(frame)
        assert books.history.covered == offset + 2
    assert books.history.covered == offset + 2


async def test_what_is_covered_never_runs_ahead_of_the_journal(machine: Machine) -> None:
    books = await Books.open(machine.start())
    books.append()
    assert books.history.covered == 0
    books.append(settlement())
    assert books.history.covered == 0
    await books.journal.wait_durable(2)
    assert books.history.covered == 1


async def test_who_is_cancelled_while_the_disk_works_writes_no_row_twice(machine: Machine) -> None:
    books = await Books.open(machine.start())
    await books.settle(settlement(0, 45))
    async with asyncio.TaskGroup() as tasks:
        writing = tasks.create_task(books.history.flush())
        await _a_few_turns()
        assert (books.log.durable_offset, books.log.end_offset) == (0, 1)
        writing.cancel()
    assert books.history.covered == 0
    await books.history.flush()
    assert await books.rows() == await books.expected()


async def test_two_who_write_at_once_write_no_row_twice(machine: Machine) -> None:
    books = await Books.open(machine.start())
    # Bodies are waited for, so that both get a turn.
    await books.settle(settlement(0, 45, queue=FULL))
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(books.history.run_once(AT_MS))
        tasks.create_task(books.history.flush())
    assert await books.rows() == await books.expected()


async def test_a_full_disk_holds_back_the_history_and_the_journal_it_covers_but_no_verb(machine: Machine) -> None:
    roomy = LogSettings(allocate_bytes=50 * PAGE, spare_bytes=0)
    books = await Books.open(machine.start(), journal_settings=roomy)
    await books.settle(settlement(0, 30))
    machine.disk.capacity_bytes = machine.disk.used_bytes()
    for number in range(30, 130, 10):
        await books.settle(settlement(number, 10))
        await books.history.run_once(AT_MS + 10_000)
    assert await books.rows() == []
    assert books.history.covered == 0
    assert books.history.pending_rows == 130
    assert machine.log_events.names().count("history.stalled") == 1

    machine.disk.capacity_bytes = machine.disk.used_bytes() + 100 * PAGE
    await books.history.run_once(AT_MS + 10_000)
    assert await books.rows() == await books.expected()
    assert books.history.covered == books.journal.durable_offset
    assert machine.log_events.names().count("history.resumed") == 1


async def test_a_history_that_falls_far_behind_says_so(machine: Machine) -> None:
    books = await Books.open(machine.start())
    several = [settlement(number) for number in range(1_000)]
    for offset in range(HISTORY_PENDING_MAX // 1_000):
        books.history.follow(offset, several)
    assert not books.history.is_behind
    books.history.follow(HISTORY_PENDING_MAX, several)
    assert books.history.is_behind


async def test_after_a_restart_the_history_goes_on_where_it_ended(machine: Machine) -> None:
    books = await Books.open(machine.start())
    await books.settle(settlement(0, 5))
    await books.history.flush()
    await books.settle(settlement(5, 5))
    await books.close()
    machine.kill()
    again = await Books.open(machine.start())
    assert again.history.pending_rows == 5
    assert again.history.covered == 1
    await again.history.flush()
    assert await again.rows() == await again.expected()


async def test_the_last_frame_alone_says_where_to_go_on(machine: Machine) -> None:
    """Retention may have taken all others."""
    books = await Books.open(machine.start())
    for number in range(0, 8_000, 20):
        await books.settle(settlement(number, 20))
        await books.history.flush()
    await retain(books.log, now_ms=AT_MS, keep_bytes=1)
    assert books.log.start_offset > 300
    await books.close()
    machine.kill()
    again = await Books.open(machine.start())
    assert again.history.pending_rows == 0
    assert again.history.covered == again.journal.durable_offset


async def test_rows_that_were_lost_to_damage_at_the_end_are_written_again(machine: Machine) -> None:
    books = await Books.open(machine.start())
    await books.settle(settlement(0))
    await books.history.flush()
    await books.settle(settlement(1))
    await books.settle(settlement(2))
    with books.log.reserve(record.HEADER_BYTES) as space:
        books.log.append(record.hole(1, 3), space)
    await books.log.wait_durable(3)
    machine.kill()
    again = await Books.open(machine.start())
    assert (again.history.covered, again.history.pending_rows) == (1, 2)
    await again.history.flush()
    assert await again.rows() == await again.expected()
    assert [offset async for offset, _ in frames(again.log, 0)] == [0, 3]


async def test_a_history_that_was_removed_is_written_again_from_what_the_journal_holds(machine: Machine) -> None:
    books = await Books.open(machine.start())
    await books.settle(settlement(0, 5))
    await books.history.flush()
    await books.close()
    for file in machine.disk.names("history"):
        machine.disk.remove(f"history/{file}")
    machine.kill()
    again = await Books.open(machine.start())
    await again.history.flush()
    assert await again.rows() == await again.expected() != []


async def test_a_history_ahead_of_its_journal_takes_back_what_it_covers(machine: Machine) -> None:
    """A journal that syncs now and then, or an older copy of it, knows less than the history told."""
    books = await Books.open(machine.start())
    await books.settle(settlement(0))
    older = {file: machine.disk.read_bytes(f"journal/{file}") for file in machine.disk.names("journal")}
    await books.settle(settlement(1))
    await books.settle(settlement(2))
    await books.history.flush()
    await books.close()
    machine.kill()
    for file, content in older.items():
        machine.disk.write_bytes(f"journal/{file}", content)

    again = await Books.open(machine.start())
    assert "history.ahead_of_journal" in machine.log_events.names()
    assert again.history.covered == 1
    await again.settle(settlement(10))
    await again.settle(settlement(11))
    # Not flushed: the frame that takes back must be there already.
    await again.close()
    machine.kill()

    third = await Books.open(machine.start())
    await third.history.flush()
    assert [row.number for row in await third.rows()] == [0, 1, 2, 10, 11]


async def test_a_history_of_another_version_is_refused(machine: Machine) -> None:
    books = await Books.open(machine.start())
    key, value = encode([settlement()], {1: "orders"}, covered=1, within=0)
    batch = record.encode([(b"\x01\x02" + key[2:], value)], at_ms=AT_MS)
    with books.log.reserve(len(batch)) as space:
        books.log.append(batch, space)
    await books.close()
    machine.kill()
    with pytest.raises(UnknownFrame, match="version 2"):
        await Books.open(machine.start())


async def test_history_is_kept_for_a_time_after_its_messages_were_settled(machine: Machine) -> None:
    books = await Books.open(machine.start())
    for number in range(100):
        await books.settle(settlement(number, 20, at_ms=AT_MS + number))
        await books.history.flush()
    await retain(books.log, now_ms=AT_MS + 1_050, keep_ms=1_000)
    kept = await books.frames()
    assert 0 < books.log.start_offset <= 50
    assert kept[0].head.settled_to_ms == AT_MS + books.log.start_offset
    assert len(kept) == 100 - books.log.start_offset


async def test_a_reader_begins_at_any_offset_that_is_kept(machine: Machine) -> None:
    books = await Books.open(machine.start())
    for number in range(100):
        await books.settle(settlement(number, 20))
        await books.history.flush()
    found = [(offset, frame.number[0]) async for offset, frame in frames(books.log, 42)]
    assert found == [(offset, offset) for offset in range(42, 100)]
    two = [encode([settlement(number)], {1: name(1)}, covered=100, within=0) for number in (100, 101)]
    batch = record.encode(two, at_ms=AT_MS)
    with books.log.reserve(len(batch)) as space:
        books.log.append(batch, space)
    await books.log.wait_durable(102)
    assert [(offset, frame.number[0]) async for offset, frame in frames(books.log, 101)] == [(101, 101)]
    await retain(books.log, now_ms=AT_MS, keep_bytes=1)
    with pytest.raises(OffsetOutOfRange):
        await anext(frames(books.log, 42))


@pytest.mark.real_time
async def test_a_purge_of_a_million_is_written_in_frames_of_a_bounded_size(tmp_path: Path) -> None:
    async with ThreadWorkers(2, halt) as workers:
        runtime = system_runtime(tmp_path, workers)
        journal, log = await DiskLog.open(runtime, "journal"), await DiskLog.open(runtime, "history")
        history = await History.open(runtime, log, journal=journal, about=about)
        await append(journal, b"a purge")
        history.follow(0, [settlement(0, 1_000_000, ending=MessageOutcome.PURGED)])
        await history.run_once(AT_MS)
        numbers = 0
        async for offset, frame in frames(log, 0):
            assert frame.head.rows <= HISTORY_ROWS_MAX
            assert frame.number.tolist() == list(range(numbers, numbers + frame.head.rows))
            assert frame.head[:2] == ((0, numbers + frame.head.rows) if offset < 15 else (1, 0))
            numbers += frame.head.rows
        assert numbers == 1_000_000
        await log.close()
        await journal.close()
