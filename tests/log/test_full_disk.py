"""A full disk refuses before anything is decided, stays readable, and can be emptied."""

from dataclasses import replace

import pytest

from penstock.log.disk_log import DiskLog
from penstock.log.interface import LogFull
from penstock.log.settings import LogSettings
from tests.log.small import FOLDER, append, bodies, contents, encode
from tests.simulation.disk import PAGE
from tests.simulation.world import Machine

SETTINGS = LogSettings(
    segment_bytes_max=4 * PAGE, allocate_bytes=PAGE, spare_bytes=8 * PAGE, index_every_bytes=500, commit_bytes_max=PAGE
)
BODY = b"x" * 1_000


async def filled(machine: Machine, settings: LogSettings = SETTINGS) -> tuple[DiskLog, int]:
    """Return a log on a disk that has just refused it, and how many records it took."""
    machine.disk.capacity_bytes = 100 * PAGE
    log = await DiskLog.open(machine.start(), FOLDER, settings)
    for number in range(1_000):
        try:
            await append(log, BODY)
        except LogFull:
            return log, number
    raise AssertionError("the disk never filled up")


async def test_a_full_disk_refuses_before_anything_is_written(machine: Machine) -> None:
    log, count = await filled(machine)
    assert count > 100
    before = machine.disk.read_bytes(f"{FOLDER}/manifest"), log.end_offset
    with pytest.raises(LogFull, match="full"):
        log.reserve(10_000)
    assert (machine.disk.read_bytes(f"{FOLDER}/manifest"), log.end_offset) == before


async def test_a_full_disk_stays_readable(machine: Machine) -> None:
    log, count = await filled(machine)
    assert await bodies(log) == [BODY] * count


async def test_acks_go_on_from_the_spare_of_a_full_disk(machine: Machine) -> None:
    log, count = await filled(machine)
    for _ in range(8):
        batch = encode(b"ack")
        with log.reserve(len(batch), from_spare=True) as space:
            log.append(batch, space)
        await log.wait_durable(log.end_offset)
    assert (await bodies(log))[count:] == [b"ack"] * 8


async def test_the_spare_has_an_end_too_and_is_refilled_when_there_is_room(machine: Machine) -> None:
    log, _ = await filled(machine)
    batch = encode(BODY)
    taken = 0
    while taken < 100:
        try:
            with log.reserve(len(batch), from_spare=True) as space:
                log.append(batch, space)
        except LogFull:
            break
        await log.wait_durable(log.end_offset)
        taken += 1
    assert 6 * PAGE < taken * len(batch) < 100 * len(batch)
    machine.disk.capacity_bytes = 200 * PAGE
    await append(log, BODY)


async def test_dropping_works_on_a_full_disk_and_makes_room_without_a_restart(machine: Machine) -> None:
    log, count = await filled(machine)
    with pytest.raises(LogFull):
        log.reserve(len(BODY) * 20)
    await log.drop_before(count)
    assert await append(log, BODY) == count
    assert (await bodies(log))[-1] == BODY


async def test_room_made_by_others_is_used_without_a_restart(machine: Machine) -> None:
    log, count = await filled(machine)
    machine.disk.capacity_bytes = 200 * PAGE
    assert await append(log, BODY) == count


async def test_when_there_is_no_room_for_a_new_segment_the_old_one_goes_on(machine: Machine) -> None:
    log, _ = await filled(machine)
    machine.disk.capacity_bytes = machine.disk.used_bytes()
    batch = encode(BODY)
    for _ in range(16):
        with log.reserve(len(batch), from_spare=True) as space:
            log.append(batch, space)
        await log.wait_durable(log.end_offset)
    assert "log.roll_deferred" in machine.log_events.names()
    machine.disk.capacity_bytes = 400 * PAGE
    segments = len(log.segments)
    for _ in range(40):
        await append(log, BODY)
    assert len(log.segments) > segments


async def test_a_nearly_full_disk_has_room_for_a_new_segment_because_the_spare_moves_along(machine: Machine) -> None:
    log, _ = await filled(machine, replace(SETTINGS, spare_bytes=30 * PAGE, leave_free_bytes=4 * PAGE))
    segments = len(log.segments)
    await log.roll()
    assert len(log.segments) == segments + 1
    with log.reserve(20 * PAGE, from_spare=True):
        pass


async def test_what_only_makes_a_log_longer_leaves_room_for_what_makes_it_shorter(machine: Machine) -> None:
    log, _ = await filled(machine, replace(SETTINGS, leave_free_bytes=20 * PAGE))
    assert machine.disk.space(FOLDER).free_bytes >= 20 * PAGE
    with log.reserve(20 * PAGE, from_spare=True):
        pass


async def test_a_log_on_a_full_disk_can_be_closed_and_opened_again(machine: Machine) -> None:
    log, count = await filled(machine)
    await log.close()
    again = await DiskLog.open(machine.runtime or machine.start(), FOLDER, SETTINGS)
    assert again.was_clean
    assert await bodies(again) == [BODY] * count


def test_a_crash_on_a_full_disk_loses_nothing() -> None:
    from tests.simulation.loop import simulate

    machine = Machine()

    async def fill() -> int:
        return (await filled(machine))[1]

    count = simulate(fill)
    machine.power_cut()
    assert contents(machine, SETTINGS) == [BODY] * count


async def test_what_was_reserved_is_never_refused_later(machine: Machine) -> None:
    """The promise of a reservation: whatever happens to the disk meanwhile, its bytes can be written."""
    machine.disk.capacity_bytes = 100 * PAGE
    log = await DiskLog.open(machine.start(), FOLDER, SETTINGS)
    batch = encode(BODY)
    for _ in range(12):
        with log.reserve(3 * len(batch)) as space:
            machine.disk.capacity_bytes = machine.disk.used_bytes()
            for _ in range(3):
                log.append(batch, space)
        await log.wait_durable(log.end_offset)
        machine.disk.capacity_bytes = 100 * PAGE
    assert await bodies(log) == [BODY] * 36


async def test_a_small_log_takes_little_of_the_disk_after_a_roll_too(machine: Machine) -> None:
    settings = LogSettings(allocate_bytes=16 * 2**20, allocate_grows=True, spare_bytes=0)
    log = await DiskLog.open(machine.start(), FOLDER, settings)
    await append(log, BODY)
    await log.roll()
    assert machine.disk.used_bytes() < 2**20
    await append(log, BODY)
    assert await bodies(log) == [BODY, BODY]
    await log.close()
