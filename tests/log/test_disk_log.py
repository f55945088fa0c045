"""A log on one disk: offsets, group commit, rolls, reads, and drops."""

import asyncio
from dataclasses import replace
from itertools import pairwise

import pytest

from penstock.contract.limits import BATCH_BYTES_MAX, RESERVATION_BYTES_MAX
from penstock.log import record
from penstock.log.disk_log import DiskLog
from penstock.log.interface import LogBusy, LogClosed, OffsetOutOfRange
from penstock.log.segment import first_kept_offset
from penstock.log.settings import LogSettings
from penstock.runtime.interface import FolderTaken
from tests.log.small import FOLDER, ROLLING, SETTINGS, append, bodies, contents, encode, on, written
from tests.simulation.clock import EPOCH_MS
from tests.simulation.world import Machine
from tests.waiting import elapse, let_others_run


async def opened(machine: Machine, settings: LogSettings = SETTINGS) -> DiskLog:
    return await DiskLog.open(machine.runtime or machine.start(), FOLDER, settings)


async def test_offsets_number_records_from_nought_without_gaps(machine: Machine) -> None:
    log = await opened(machine)
    assert [await append(log, b"a", b"b"), await append(log, b"c"), await append(log, b"d")] == [0, 2, 3]
    assert (log.start_offset, log.durable_offset, log.end_offset) == (0, 4, 4)
    assert await bodies(log) == [b"a", b"b", b"c", b"d"]


async def test_a_batch_is_stored_as_it_came_but_for_offset_and_epoch(machine: Machine) -> None:
    log = await opened(machine)
    await append(log, b"first")
    sent = encode(b"x", b"y")
    with log.reserve(len(sent)) as space:
        log.append(sent, space)
    await log.wait_durable(log.end_offset)
    (found,) = await log.read(1, bytes_max=1)
    assert bytes(found[16:]) == sent[16:]
    assert record.header(found).base_offset == 1


async def test_appends_of_one_turn_share_one_sync(machine: Machine) -> None:
    log = await opened(machine)
    await append(log, b"warm")
    before = machine.disk.operations
    async with asyncio.TaskGroup() as tasks:
        for number in range(32):
            tasks.create_task(append(log, str(number).encode()))
    assert await bodies(log, 1) == [str(number).encode() for number in range(32)]
    writes_and_syncs = machine.disk.operations - before - 32  # Each reservation allocates in these settings.
    assert writes_and_syncs == 2


async def test_what_arrives_during_a_sync_goes_with_the_next_one(machine: Machine) -> None:
    log = await opened(machine)
    first = encode(b"first")
    with log.reserve(len(first)) as space:
        log.append(first, space)
    await let_others_run()
    await let_others_run()
    # The first commit is in a worker's hands now.
    late = encode(b"late")
    with log.reserve(len(late)) as space:
        log.append(late, space)
    await log.wait_durable(1)
    assert (log.durable_offset, log.end_offset) == (1, 2)
    await log.wait_durable(2)
    assert await bodies(log) == [b"first", b"late"]


async def test_nothing_is_readable_before_it_is_durable(machine: Machine) -> None:
    log = await opened(machine)
    batch = encode(b"unsynced")
    with log.reserve(len(batch)) as space:
        log.append(batch, space)
    assert await log.read(0, bytes_max=100) == []
    with pytest.raises(OffsetOutOfRange):
        await log.read(1, bytes_max=100)
    await log.wait_durable(1)
    assert await bodies(log) == [b"unsynced"]


async def test_a_commit_is_capped(machine: Machine) -> None:
    log = await opened(machine, replace(SETTINGS, commit_bytes_max=600))
    batch = encode(b"x" * 200)
    before = machine.disk.operations
    with log.reserve(len(batch) * 7) as space:
        for _ in range(7):
            log.append(batch, space)
    await log.wait_durable(7)
    assert machine.disk.operations - before == 1 + 4 * 2  # One allocation; two batches in each of four commits.


async def test_waiting_for_an_earlier_offset_ends_earlier(machine: Machine) -> None:
    log = await opened(machine, replace(SETTINGS, commit_bytes_max=1))
    batch = encode(b"x")
    with log.reserve(len(batch) * 3) as space:
        for _ in range(3):
            log.append(batch, space)
    seen: list[tuple[int, int]] = []

    async def wait(offset: int) -> None:
        await log.wait_durable(offset)
        seen.append((offset, log.durable_offset))

    async with asyncio.TaskGroup() as tasks:
        for offset in (3, 1, 2):
            tasks.create_task(wait(offset))
    assert seen == [(1, 1), (2, 2), (3, 3)]


async def test_a_cancelled_waiter_disturbs_no_other(machine: Machine) -> None:
    log = await opened(machine)
    batch = encode(b"x")
    with log.reserve(len(batch)) as space:
        log.append(batch, space)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await log.wait_durable(1)
    await log.wait_durable(1)
    assert await append(log, b"y") == 1


async def test_waiting_for_what_was_never_appended_is_an_error(machine: Machine) -> None:
    log = await opened(machine)
    with pytest.raises(LogClosed):
        await log.wait_durable(1)


async def test_an_unused_reservation_is_given_back(machine: Machine) -> None:
    log = await opened(machine, replace(SETTINGS, backlog_bytes_max=1_000))
    for _ in range(10):
        with log.reserve(900):
            pass
    assert await append(log, b"x") == 0


async def test_more_than_may_wait_for_the_disk_is_turned_away(machine: Machine) -> None:
    log = await opened(machine, replace(SETTINGS, backlog_bytes_max=1_000))
    batch = encode(b"x" * 500)
    with log.reserve(len(batch)) as space:
        log.append(batch, space)
    with pytest.raises(LogBusy, match="backlog_bytes_max is 1000"):
        log.reserve(len(batch))
    await log.wait_durable(log.end_offset)
    assert await append(log, b"x" * 500) == 1


async def test_limits_are_enforced_and_named(machine: Machine) -> None:
    log = await opened(machine)
    with pytest.raises(ValueError, match="RESERVATION_BYTES_MAX"):
        log.reserve(RESERVATION_BYTES_MAX + 1)
    with log.reserve(BATCH_BYTES_MAX + 1) as space, pytest.raises(ValueError, match="BATCH_BYTES_MAX"):
        log.append(bytes(BATCH_BYTES_MAX + 1), space)
    assert log.end_offset == 0


@pytest.mark.parametrize(
    "wrong", [{"sync": "never"}, {"segment_bytes_max": 0}, {"spare_bytes": -1}, {"sync_interval_ms": 0}]
)
def test_settings_that_make_no_sense_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        LogSettings(**wrong)  # type: ignore[arg-type]


async def test_segments_roll_by_size_and_offsets_run_on(machine: Machine) -> None:
    log = await opened(machine, ROLLING)
    for number in range(20):
        await append(log, str(number).encode())
    segments = log.segments
    assert len(segments) > 4
    assert all(one.next_offset == two.base_offset for one, two in pairwise(segments))
    assert await bodies(log) == [str(number).encode() for number in range(20)]
    assert await bodies(log, bytes_max=1) == [str(number).encode() for number in range(20)]


async def test_segments_roll_by_age(machine: Machine) -> None:
    log = await opened(machine, replace(SETTINGS, segment_age_ms_max=60_000))
    await append(log, b"a")
    await append(log, b"b")
    assert len(log.segments) == 1
    await elapse(61)
    await append(log, b"c")
    assert [segment.base_offset for segment in log.segments] == [0, 2]


async def test_a_read_returns_whole_batches_and_at_least_one(machine: Machine) -> None:
    log = await opened(machine)
    for size in (10, 5_000, 10):
        await append(log, b"x" * size)
    assert len(await log.read(1, bytes_max=1)) == 1
    assert len(await log.read(1, bytes_max=5_100)) == 1
    assert len(await log.read(1, bytes_max=6_000)) == 2
    assert len(await log.read(0, bytes_max=1 << 20)) == 3


async def test_a_read_may_start_in_the_middle_of_a_batch(machine: Machine) -> None:
    log = await opened(machine)
    await append(log, b"a", b"b", b"c")
    (batch,) = await log.read(2, bytes_max=1)
    assert record.header(batch).base_offset == 0


async def test_reads_beyond_either_end_are_refused(machine: Machine) -> None:
    log = await opened(machine, ROLLING)
    for number in range(12):
        await append(log, str(number).encode())
    await log.drop_before(6)
    for offset in (-1, log.start_offset - 1, 13):
        with pytest.raises(OffsetOutOfRange, match=f"offset {offset} "):
            await log.read(offset, bytes_max=1)
    assert await log.read(12, bytes_max=1) == []


async def test_what_is_not_in_memory_is_read_off_the_loop(machine: Machine) -> None:
    log = await opened(machine, ROLLING)
    for number in range(12):
        await append(log, str(number).encode())
    machine.disk.cold = True
    assert await bodies(log) == [str(number).encode() for number in range(12)]


async def test_reads_go_on_while_their_segment_is_dropped(machine: Machine) -> None:
    log = await opened(machine, ROLLING)
    for number in range(12):
        await append(log, str(number).encode())
    machine.disk.cold = True
    async with asyncio.TaskGroup() as tasks:
        reading = [tasks.create_task(log.read(0, bytes_max=1)) for _ in range(3)]
        await let_others_run()
        tasks.create_task(log.drop_before(12))
    assert all(record.header(task.result()[0]).base_offset == 0 for task in reading)


async def test_a_read_that_comes_too_late_does_not_bring_a_dropped_segment_back() -> None:
    machine = Machine()
    log = await opened(machine, ROLLING)
    for number in range(12):
        await append(log, str(number).encode())
    await log.close()
    again = await opened(machine, ROLLING)
    machine.disk.cold = True
    async with asyncio.TaskGroup() as tasks:
        dropping = tasks.create_task(again.drop_before(12))
        await let_others_run()
        # The drop is on its way to a worker: a read now is refused, or still served.
        reading = tasks.create_task(read_or_refusal(again))
    assert dropping.done()
    assert reading.result() in {b"0", "refused"}
    assert machine.disk.names(FOLDER) == [f"{again.start_offset:020}.log", "manifest"]


async def read_or_refusal(log: DiskLog) -> bytes | str:
    try:
        (batch, *_) = await log.read(0, bytes_max=1)
    except OffsetOutOfRange:
        return "refused"
    (entry,) = record.records(batch)
    return bytes(entry.value or b"")


async def test_the_first_batch_of_a_time_is_found(machine: Machine) -> None:
    log = await opened(machine, ROLLING)
    for number in range(30):
        await append(log, b"x", at_ms=EPOCH_MS + number * 10)
    for number in range(30):
        assert await log.offset_at(EPOCH_MS + number * 10) == number
        assert await log.offset_at(EPOCH_MS + number * 10 - 9) == number
    assert await log.offset_at(EPOCH_MS + 291) == 30


async def test_dropping_lets_whole_segments_go_and_keeps_the_rest(machine: Machine) -> None:
    log = await opened(machine, ROLLING)
    for number in range(12):
        await append(log, str(number).encode())
    await log.drop_before(7)
    assert 0 < log.start_offset <= 7
    assert await bodies(log) == [str(number).encode() for number in range(log.start_offset, 12)]
    await log.drop_before(1_000)
    assert len(log.segments) == 1, "the active segment stays"


def test_what_was_dropped_stays_dropped() -> None:
    machine = written(12, settings=ROLLING)

    async def drop(log: DiskLog) -> int:
        await log.drop_before(7)
        return log.start_offset

    start = on(machine, drop, ROLLING)
    assert contents(machine, ROLLING) == [str(number).encode() for number in range(start, 12)]


async def test_retention_by_bytes_and_by_age_chooses_whole_closed_segments(machine: Machine) -> None:
    log = await opened(machine, ROLLING)
    for number in range(12):
        await append(log, b"x", at_ms=EPOCH_MS + number * 1_000)
    segments = log.segments
    now_ms = EPOCH_MS + 11_000
    assert first_kept_offset(segments, now_ms=now_ms) == 0
    assert first_kept_offset(segments, now_ms=now_ms, age_ms_max=0) == segments[-1].base_offset
    assert first_kept_offset(segments, now_ms=now_ms, bytes_max=0) == segments[-1].base_offset
    total = sum(segment.size_bytes for segment in segments)
    assert first_kept_offset(segments, now_ms=now_ms, bytes_max=total) == 0
    assert first_kept_offset(segments, now_ms=now_ms, bytes_max=total - 1) == segments[1].base_offset
    kept = first_kept_offset(segments, now_ms=now_ms, age_ms_max=5_000)
    assert all((s.base_offset >= kept) == (s.max_timestamp_ms >= now_ms - 5_000) for s in segments)


async def test_a_closed_log_refuses_everything_and_frees_its_folder(machine: Machine) -> None:
    log = await opened(machine)
    await append(log, b"a")
    with pytest.raises(FolderTaken):
        await opened(machine)
    await log.close()
    await log.close()
    with pytest.raises(LogClosed):
        log.reserve(1)
    again = await opened(machine)
    assert again.was_clean
    assert await bodies(again) == [b"a"]


async def test_closing_writes_what_is_waiting(machine: Machine) -> None:
    log = await opened(machine)
    batch = encode(b"last words")
    with log.reserve(len(batch)) as space:
        log.append(batch, space)
    await log.close()
    assert await bodies(await opened(machine)) == [b"last words"]


async def test_a_clean_stop_is_told_from_a_crash(machine: Machine) -> None:
    log = await opened(machine)
    await append(log, b"a")
    machine.kill()
    machine.start()
    assert not (await opened(machine)).was_clean
    assert "log.tail_cut" not in machine.log_events.names()


@pytest.mark.parametrize("policy", ["interval", "os"])
def test_a_relaxed_policy_loses_nothing_when_only_the_process_dies(policy: str) -> None:
    settings = replace(ROLLING, sync=policy)  # type: ignore[arg-type]
    machine = written(12, settings=settings)
    assert contents(machine, settings) == [str(number).encode() for number in range(12)]


def test_the_interval_policy_syncs_on_its_own() -> None:
    settings = replace(SETTINGS, sync="interval", sync_interval_ms=50)
    machine = Machine()

    async def write(log: DiskLog) -> None:
        await append(log, b"a")
        await elapse(0.1)
        await append(log, b"b")

    on(machine, write, settings)
    machine.power_cut(lambda path, page: False)
    assert contents(machine, settings) == [b"a"]


def test_the_os_policy_may_lose_what_was_never_synced_but_stays_whole() -> None:
    settings = replace(ROLLING, sync="os")
    for seed in range(30):
        machine = written(12, settings=settings, seed=seed)
        machine.power_cut()
        found = contents(machine, settings)
        assert found == [str(number).encode() for number in range(len(found))]
