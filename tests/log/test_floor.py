"""A log remembers outside its segments how far it was durable: what is missing below that is damage."""

from dataclasses import replace

import pytest

from penstock.log.disk_log import DiskLog
from penstock.log.recovery import LogCorrupted
from penstock.log.repair import repair
from penstock.log.segment import segment_name
from penstock.log.survey import survey
from tests.log.small import FOLDER, SETTINGS, append, bodies
from tests.simulation.world import Machine
from tests.waiting import elapse

SEGMENT = f"{FOLDER}/{segment_name(0)}"


async def reopened(machine: Machine) -> DiskLog:
    return await DiskLog.open(machine.start(), FOLDER, SETTINGS)


async def wait_for_the_floor() -> None:
    await elapse(3 * SETTINGS.floor_interval_ms / 1_000)


async def killed(machine: Machine, count: int, *, settings: object = SETTINGS) -> None:
    """Append so many records, wait a moment, and kill the process."""
    log = await DiskLog.open(machine.start(), FOLDER, settings)  # type: ignore[arg-type]
    for number in range(count):
        await append(log, b"%d" % number)
    await wait_for_the_floor()
    machine.kill()


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9])
async def test_a_segment_that_was_cut_after_a_kill_is_damage_and_not_a_torn_tail(
    machine: Machine, share: float
) -> None:
    await killed(machine, 20)
    whole = machine.disk.read_bytes(SEGMENT)
    machine.disk.write_bytes(SEGMENT, whole[: int(len(whole) * share)])
    with pytest.raises(LogCorrupted, match=r"durable up to offset 20.*penstock repair small") as refused:
        await reopened(machine)
    assert refused.value.file == SEGMENT
    assert len(machine.disk.read_bytes(SEGMENT)) == int(len(whole) * share)


async def test_a_segment_cut_to_nothing_can_be_repaired_and_its_offsets_are_not_used_again(machine: Machine) -> None:
    await killed(machine, 20)
    machine.disk.write_bytes(SEGMENT, b"")
    found = survey(machine.disk, FOLDER)
    assert not found.is_sound
    repair(machine.disk, found, "skip")
    log = await reopened(machine)
    assert log.end_offset == 20
    await log.close()


async def test_a_torn_tail_above_the_floor_is_still_cut_off(machine: Machine) -> None:
    log = await reopened(machine)
    await append(log, b"first")
    await wait_for_the_floor()
    size = len(machine.disk.read_bytes(SEGMENT))
    await append(log, b"second")
    machine.kill()
    machine.disk.write_bytes(SEGMENT, machine.disk.read_bytes(SEGMENT)[: size + 20])
    log = await reopened(machine)
    assert await bodies(log) == [b"first"]
    await log.close()


async def test_where_nothing_is_synced_the_floor_promises_nothing(machine: Machine) -> None:
    await killed(machine, 20, settings=replace(SETTINGS, sync="os"))
    machine.disk.write_bytes(SEGMENT, b"")
    log = await reopened(machine)
    assert log.end_offset == 0
    await log.close()


async def test_where_syncs_are_rare_the_floor_names_what_was_synced(machine: Machine) -> None:
    await killed(machine, 20, settings=replace(SETTINGS, sync="interval"))
    machine.disk.write_bytes(SEGMENT, b"")
    with pytest.raises(LogCorrupted, match="durable up to offset 20"):
        await reopened(machine)
