"""A disk without space: the log refuses before it writes, and works again when there is room."""

from pathlib import Path

import pytest

from penstock.log import record
from penstock.log.disk_log import DiskLog
from penstock.log.interface import LogFull
from penstock.log.settings import LogSettings
from penstock.runtime.system import ThreadWorkers, halt, system_runtime
from tests.acceptance.mounts import needs_to_mount, tmpfs

pytestmark = [needs_to_mount, pytest.mark.real_time]

BATCH = record.encode([(None, bytes(1_000))], at_ms=0)
SETTINGS = LogSettings(segment_bytes_max=100_000, allocate_bytes=65_536, spare_bytes=65_536, index_every_bytes=4_096)
DISK_BYTES = 2_000_000


async def append(log: DiskLog, *, from_spare: bool = False) -> int:
    with log.reserve(len(BATCH), from_spare=from_spare) as space:
        offset = log.append(BATCH, space)
    await log.wait_durable(offset + 1)
    return offset


async def fill(log: DiskLog) -> None:
    """Append until the log refuses. The count is bounded by the size of the disk."""
    for _ in range(DISK_BYTES // len(BATCH)):
        try:
            await append(log)
        except LogFull:
            return
    raise AssertionError("more was appended than the disk can hold")


async def read_all(log: DiskLog) -> int:
    """Read everything, check it, and return how many records there are."""
    count, offset = 0, log.start_offset
    while batches := await log.read(offset, bytes_max=50_000):
        for batch in batches:
            header = record.header(batch)
            assert header.base_offset == offset
            assert [bytes(entry.value or b"") for entry in record.records(batch)] == [bytes(1_000)]
            offset, count = header.next_offset, count + 1
    return count


def used_bytes(folder: Path) -> int:
    return sum(path.stat().st_blocks * 512 for path in folder.iterdir())


async def test_a_full_disk_refuses_new_records_and_changes_nothing(tmp_path: Path) -> None:
    with tmpfs(tmp_path / "disk", DISK_BYTES) as disk:
        async with ThreadWorkers(1, halt) as workers:
            log = await DiskLog.open(system_runtime(disk, workers), "log", SETTINGS)
            await fill(log)
            end_offset = log.end_offset
            before = {path.name: path.read_bytes() for path in (disk / "log").iterdir()}
            for _ in range(3):
                with pytest.raises(LogFull, match="the disk is full: nothing was written"):
                    log.reserve(len(BATCH))
            assert (log.end_offset, log.durable_offset) == (end_offset, end_offset)
            assert {path.name: path.read_bytes() for path in (disk / "log").iterdir()} == before
            assert await read_all(log) == end_offset > 1_000
            await log.close()


async def test_a_full_disk_still_takes_what_frees_space_and_then_goes_on(tmp_path: Path) -> None:
    with tmpfs(tmp_path / "disk", DISK_BYTES) as disk:
        async with ThreadWorkers(1, halt) as workers:
            log = await DiskLog.open(system_runtime(disk, workers), "log", SETTINGS)
            await fill(log)
            # As an ack would: events that let space go may use the spare.
            spare = [await append(log, from_spare=True) for _ in range(20)]
            used_before = used_bytes(disk / "log")
            await log.drop_before(spare[-1] // 2)
            assert log.start_offset > 0
            assert used_bytes(disk / "log") < used_before * 2 // 3
            appended = [await append(log) for _ in range(200)]
            assert appended == list(range(spare[-1] + 1, spare[-1] + 201))
            start_offset, end_offset = log.start_offset, log.end_offset
            assert await read_all(log) == end_offset - start_offset
            await log.close()
        async with ThreadWorkers(1, halt) as workers:
            log = await DiskLog.open(system_runtime(disk, workers), "log", SETTINGS)
            assert log.was_clean
            assert (log.start_offset, log.end_offset) == (start_offset, end_offset)
            assert await read_all(log) == end_offset - start_offset
            await log.close()


async def test_a_log_opens_is_read_and_emptied_on_a_disk_without_a_free_byte(tmp_path: Path) -> None:
    with tmpfs(tmp_path / "disk", DISK_BYTES) as disk:
        async with ThreadWorkers(1, halt) as workers:
            log = await DiskLog.open(system_runtime(disk, workers), "log", SETTINGS)
            for _ in range(500):
                await append(log)
            await log.close()
            leave_no_byte_free(disk / "ballast")
            log = await DiskLog.open(system_runtime(disk, workers), "log", SETTINGS)
            # The active segment may still have blocks of its own.
            await fill(log)
            assert await read_all(log) == log.end_offset
            await log.drop_before(400)
            assert log.start_offset > 300
            await append(log)
            await log.close()


async def test_reservations_that_were_granted_are_kept_when_the_disk_fills_up(tmp_path: Path) -> None:
    with tmpfs(tmp_path / "disk", DISK_BYTES) as disk:
        async with ThreadWorkers(1, halt) as workers:
            log = await DiskLog.open(system_runtime(disk, workers), "log", SETTINGS)
            spaces = [log.reserve(len(BATCH)) for _ in range(400)]
            leave_no_byte_free(disk / "ballast")
            with pytest.raises(LogFull):
                log.reserve(len(BATCH) * 1_000)
            for space in spaces:
                with space:
                    log.append(BATCH, space)
            await log.wait_durable(400)
            assert await read_all(log) == 400
            await log.close()


def leave_no_byte_free(ballast: Path) -> None:
    with pytest.raises(OSError, match="No space left"):
        ballast.write_bytes(bytes(DISK_BYTES))
