"""A log can close its segment when asked, and have a rewritten file in the place of closed ones."""

import asyncio
from dataclasses import replace

import pytest
from crc32c import crc32c

from penstock.log import record
from penstock.log.disk_log import DiskLog
from penstock.log.interface import LogClosed
from penstock.log.record import MarkerPosition, encode_marker
from penstock.log.segment import Segment, segment_name
from tests.log.small import FOLDER, ROLLING, SETTINGS, append, bodies, encode
from tests.simulation.clock import EPOCH_MS
from tests.simulation.disk import SimDisk
from tests.simulation.world import Machine


async def test_a_quiet_segment_is_closed_on_request(machine: Machine) -> None:
    log = await DiskLog.open(machine.start(), FOLDER, SETTINGS)
    await log.roll()
    assert len(log.segments) == 1, "there is nothing in it to be closed"
    await append(log, b"a")
    await log.roll()
    await log.roll()
    assert [segment.base_offset for segment in log.segments] == [0, 1]
    assert log.rolled.is_set()
    await append(log, b"b")
    assert await bodies(log) == [b"a", b"b"]
    await log.roll()
    await log.drop_before(2)
    assert (log.start_offset, log.end_offset) == (2, 2)
    await log.close()
    log = await DiskLog.open(machine.runtime, FOLDER, SETTINGS)  # type: ignore[arg-type]
    assert (log.start_offset, log.end_offset) == (2, 2)
    await append(log, b"c")
    assert await bodies(log) == [b"c"]
    await log.close()
    with pytest.raises(LogClosed):
        await log.roll()


async def test_appends_go_on_while_a_segment_is_closed(machine: Machine) -> None:
    log = await DiskLog.open(machine.start(), FOLDER, replace(SETTINGS, allocate_bytes=10_000))
    await append(log, b"first")

    async def keep_appending() -> None:
        for number in range(20):
            await append(log, b"%d" % number)

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(keep_appending())
        for _ in range(5):
            await log.roll()
    assert await bodies(log) == [b"first", *(b"%d" % number for number in range(20))]
    assert len(log.segments) >= 5
    await log.close()


async def test_a_disk_without_room_for_another_segment_leaves_the_old_one_open() -> None:
    machine = Machine(disk=SimDisk(capacity_bytes=160_000))
    log = await DiskLog.open(machine.start(), FOLDER, replace(SETTINGS, allocate_bytes=4_096))
    await append(log, b"a")
    machine.disk.capacity_bytes = machine.disk.used_bytes()
    await log.roll()
    assert len(log.segments) == 1
    await append(log, b"b")
    assert await bodies(log) == [b"a", b"b"]
    await log.close()


async def test_a_listener_is_told_of_each_commit(machine: Machine) -> None:
    log = await DiskLog.open(machine.start(), FOLDER, SETTINGS)
    told: list[tuple[int, int]] = []
    log.advanced = lambda size_bytes: told.append((log.durable_offset, size_bytes))
    await append(log, b"a")
    await append(log, b"b", b"c")
    assert told == [(1, len(encode(b"a"))), (3, len(encode(b"b", b"c")))]
    await log.close()


async def test_a_rewritten_file_takes_the_place_of_the_segments_whose_offsets_it_uses_up(machine: Machine) -> None:
    runtime = machine.start()
    log = await DiskLog.open(runtime, FOLDER, ROLLING)
    for number in range(20):
        await append(log, b"%d" % number + bytes(50))
    old = log.segments[1:4]
    first, end = old[0].base_offset, old[-1].next_offset
    reading = await log.read(first, bytes_max=10_000)
    size = write_hole(machine, log.log_id, first, end)
    await log.replace_closed(old, Segment(first, end, size, EPOCH_MS), "new")

    for _ in range(2):
        values = await bodies(log)
        assert [value is None for value in values] == [first <= offset < end for offset in range(20)]
        names = machine.disk.names(FOLDER)
        assert segment_name(old[1].base_offset) not in names
        await log.close()
        log = await DiskLog.open(runtime, FOLDER, ROLLING)
    assert record.header(reading[0]).base_offset == first
    await log.close()


async def test_a_crash_between_the_new_file_and_the_end_of_the_old_ones_is_mended(machine: Machine) -> None:
    runtime = machine.start()
    log = await DiskLog.open(runtime, FOLDER, ROLLING)
    for number in range(20):
        await append(log, b"%d" % number + bytes(50))
    old = log.segments[1:4]
    await log.close()
    write_hole(machine, log.log_id, old[0].base_offset, old[-1].next_offset)
    machine.disk.rename(f"{FOLDER}/new", f"{FOLDER}/{segment_name(old[0].base_offset)}")
    log = await DiskLog.open(runtime, FOLDER, ROLLING)
    assert (await bodies(log)).count(None) == old[-1].next_offset - old[0].base_offset
    assert segment_name(old[1].base_offset) not in machine.disk.names(FOLDER)
    await log.close()


def write_hole(machine: Machine, log_id: int, first: int, end: int) -> int:
    """Write a segment in which nothing is left, and return its size."""
    hole = record.hole(first, end)
    marker = encode_marker(MarkerPosition(end - 1, len(hole)), durable_bytes=0, log_id=log_id, heads=[hole[:16]])
    machine.disk.write_bytes(f"{FOLDER}/new", hole + marker)
    return len(hole + marker)


def test_a_batch_with_fewer_records_than_offsets_must_say_so() -> None:
    whole = record.encode([(None, b"a"), (None, b"b")], at_ms=EPOCH_MS)
    for attributes, count, is_good in ((0, 1, False), (record.THINNED_ATTRIBUTE, 1, True), (0x1000, 3, False)):
        fields = record.header(whole)._replace(attributes=attributes, record_count=count)
        batch = bytearray(record.HEADER.pack(*fields)) + whole[record.HEADER_BYTES :]
        batch[17:21] = crc32c(memoryview(batch)[21:]).to_bytes(4, "big")
        if is_good:
            assert record.check(batch).is_thinned
        else:
            with pytest.raises(record.BadBatch):
                record.check(batch)
