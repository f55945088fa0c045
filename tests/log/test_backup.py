"""A log is copied while it is written to, and the copy opens as the log once was."""

import asyncio
from dataclasses import replace

import pytest

from penstock.log import manifest as manifests
from penstock.log.backup import Folder, TargetNotEmpty, backup
from penstock.log.disk_log import DiskLog
from penstock.log.recovery import remove_segment
from penstock.log.segment import base_offsets
from penstock.log.survey import NothingToRead
from tests.log.small import FOLDER, ROLLING, append, contents, on, written
from tests.simulation.disk import SimDisk
from tests.simulation.loop import simulate
from tests.simulation.world import Machine
from tests.waiting import elapse


def copied(machine: Machine) -> Machine:
    """Back a log up onto another machine's disk, under the same name."""
    other = Machine(seed=9)
    backup(Folder(machine.disk, FOLDER), Folder(other.disk, FOLDER))
    return other


def numbers(count: int) -> list[bytes | None]:
    return [str(number).encode() for number in range(count)]


@pytest.mark.parametrize("end", ["kill", "close"])
def test_a_copy_holds_what_the_log_held(end: str) -> None:
    assert contents(copied(written(12, end=end, settings=ROLLING)), ROLLING) == numbers(12)


def test_a_copy_is_durable_when_it_is_done() -> None:
    other = copied(written(12, settings=ROLLING))
    other.disk.power_cut(lambda _path, _page: False)
    assert contents(other, ROLLING) == numbers(12)


def test_a_copy_made_while_the_log_grows_is_the_log_at_some_moment() -> None:
    machine, copies = Machine(), []

    async def grow(log: DiskLog) -> None:
        for number in range(40):
            await append(log, str(number).encode())

    async def copy_now_and_then(log: DiskLog) -> None:
        while log.durable_offset < 40:
            before = log.durable_offset
            copies.append((before, copied(machine), log.end_offset))
            await elapse(0.001)

    async def main() -> None:
        log = await DiskLog.open(machine.start(), FOLDER, ROLLING)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(grow(log))
            tasks.create_task(copy_now_and_then(log))

    simulate(main, seed=3)
    assert len(copies) > 5
    for before, copy, after in copies:
        found = contents(copy, ROLLING)
        assert found == numbers(len(found))
        assert before <= len(found) <= after


def test_a_copy_in_which_the_last_commit_is_torn_opens_without_it() -> None:
    machine = written(12, settings=ROLLING)
    last = f"{FOLDER}/{base_offsets(machine.disk.names(FOLDER))[-1]:020}.log"
    machine.disk.write_bytes(last, machine.disk.read_bytes(last) + b"half a batch")
    assert contents(copied(machine), ROLLING) == numbers(12)


def test_a_copy_and_its_original_go_separate_ways() -> None:
    machine = written(3)
    other = copied(machine)

    async def add(log: DiskLog) -> None:
        await append(log, b"only here")

    on(other, add)
    assert contents(machine) == numbers(3)
    assert contents(other) == [*numbers(3), b"only here"]


def test_progress_is_told_and_ends_at_the_whole() -> None:
    seen: list[tuple[int, int]] = []
    machine = written(12, settings=ROLLING)
    done = backup(
        Folder(machine.disk, FOLDER), Folder(SimDisk(), "copy"), lambda done, total: seen.append((done, total))
    )
    assert seen[-1] == (done.size_bytes, done.size_bytes)
    assert done.segments == len(base_offsets(machine.disk.names(FOLDER)))


def test_nothing_is_written_over() -> None:
    machine = written(3)
    with pytest.raises(TargetNotEmpty, match=FOLDER):
        backup(Folder(machine.disk, FOLDER), Folder(machine.disk, FOLDER))


def test_a_folder_without_a_log_is_not_backed_up() -> None:
    with pytest.raises(NothingToRead):
        backup(Folder(SimDisk(), "nothing"), Folder(SimDisk(), "copy"))


def test_a_log_that_lost_its_manifest_is_not_backed_up() -> None:
    machine = written(3)
    machine.disk.remove(f"{FOLDER}/{manifests.NAME}")
    with pytest.raises(NothingToRead, match="penstock repair"):
        copied(machine)


def test_segments_that_are_dropped_on_the_way_make_the_copying_begin_again() -> None:
    machine, other = written(12, settings=ROLLING), Machine(seed=9)
    bases = base_offsets(machine.disk.names(FOLDER))
    is_dropped = False

    def drop_two(_done: int, _total: int) -> None:
        nonlocal is_dropped
        found = manifests.read(machine.disk, FOLDER)
        assert found is not None
        if not is_dropped:
            state = found.manifest
            manifests.write(machine.disk, FOLDER, replace(state, sequence=state.sequence + 1, start_offset=bases[2]))
            for base in bases[:2]:
                remove_segment(machine.disk, FOLDER, base)
            is_dropped = True

    backup(Folder(machine.disk, FOLDER), Folder(other.disk, FOLDER), drop_two)
    assert contents(other, ROLLING) == numbers(12)[bases[2] :]


def test_a_log_with_a_missing_end_is_not_backed_up() -> None:
    machine = written(12, settings=ROLLING)
    machine.disk.remove(f"{FOLDER}/{base_offsets(machine.disk.names(FOLDER))[-1]:020}.log")
    with pytest.raises(NothingToRead, match="missing"):
        copied(machine)
