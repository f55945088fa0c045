"""Few files are open, however many are used: nothing is lost by closing one, and nothing taken for it afterwards."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from penstock.log import record
from penstock.log.disk_log import DiskLog, fail
from penstock.log.interface import OffsetOutOfRange
from penstock.runtime.disk import SystemDisk
from penstock.runtime.interface import Runtime
from penstock.runtime.open_files import LentFile, OpenFiles
from tests.log.small import FOLDER, ROLLING, append
from tests.simulation.disk import SimDisk, SimFile
from tests.simulation.world import Died, Halted, Machine
from tests.waiting import let_others_run

MOST = 2


class Counted(SimDisk):
    """Knows how many of its files are open."""

    opened = 0

    def open(self, path: str, *, must_exist: bool = False) -> SimFile:
        file = super().open(path, must_exist=must_exist)
        self.opened += 1
        close = file.close

        def count() -> None:
            self.opened -= 1
            close()

        file.close = count  # type: ignore[method-assign]
        return file


def bounded(machine: Machine, most: int = MOST) -> tuple[OpenFiles, Runtime]:
    runtime = machine.start()
    files = OpenFiles(runtime.disk, most, partial(fail, runtime))
    return files, replace(runtime, disk=files)


def crowd_out(files: OpenFiles, *crowded: LentFile) -> None:
    """Open others until these are closed to make room."""
    for number in range(3 * MOST):
        files.open(f"other-{number}")
    assert [file for file in crowded if file.file is not None] == []


@pytest.fixture
def counted() -> Counted:
    return Counted()


async def test_few_files_are_open_and_all_can_be_used(counted: Counted) -> None:
    files, _ = bounded(Machine(disk=counted))
    lent = [files.open(f"file-{number}") for number in range(20)]
    assert counted.opened == MOST
    for turn in range(3):
        for number, file in enumerate(lent):
            file.write(b"%d" % number, turn * 2)
    assert [file.read(4, 2) for file in lent] == [b"%d" % number for number in range(20)]
    assert counted.opened == MOST
    for file in lent:
        file.close()
    assert counted.opened == 0


async def test_a_file_that_was_not_used_is_closed_before_one_that_was(machine: Machine) -> None:
    files, _ = bounded(machine)
    old, other = files.open("old"), files.open("other")
    old.size()
    files.open("new")
    assert (old.file is None, other.file is None) == (False, True)


async def test_a_file_that_is_not_used_any_more_is_closed_in_its_turn(machine: Machine) -> None:
    files, _ = bounded(machine)
    old, busy = files.open("old"), files.open("busy")
    old.size()
    for number in range(2 * MOST):
        busy.size()
        files.open(f"new-{number}")
    assert old.file is None


async def test_a_file_that_is_being_used_stays_open(machine: Machine) -> None:
    files, _ = bounded(machine, most=1)
    busy = files.open("busy")
    with busy as file:
        files.open("other")
        assert busy.file is file
    crowd_out(files, busy)


async def test_what_was_written_survives_the_power_if_its_file_was_closed_for_others(machine: Machine) -> None:
    files, _ = bounded(machine)
    file = files.open("kept")
    file.write(b"written", 0)
    crowd_out(files, file)
    machine.disk.sync_folder("")
    machine.power_cut(lambda _path, _what: False)
    assert machine.disk.read_bytes("kept") == b"written"


async def test_nothing_is_synced_that_was_synced_already(machine: Machine) -> None:
    files, _ = bounded(machine)
    file = files.open("kept")
    file.write(b"written", 0)
    file.sync()
    machine.disk.fail_sync_after = 0
    crowd_out(files, file)


async def test_a_failed_sync_stops_the_process_whichever_append_needed_the_room(machine: Machine) -> None:
    files, _ = bounded(machine)
    file = files.open("kept")
    file.write(b"written", 0)
    machine.disk.fail_sync_after = 0
    with pytest.raises(Halted, match="kept"):
        crowd_out(files, file)


@pytest.mark.parametrize("what", ["removed", "replaced", "made longer"])
async def test_another_file_of_the_name_is_not_taken_for_it(machine: Machine, what: str) -> None:
    files, _ = bounded(machine)
    file = files.open("kept")
    file.write(b"written", 0)
    crowd_out(files, file)
    if what == "made longer":
        machine.disk.open("kept").write(b"by others", 7)
    else:
        machine.disk.remove("kept")
    if what == "replaced":
        machine.disk.open("kept").write(b"written", 0)
    assert file.read_cached(0, 7) is None
    with pytest.raises(FileNotFoundError):
        file.read(0, 7)
    assert not file.is_in_place()
    file.close()


async def test_the_event_loop_opens_no_file_to_read_it(machine: Machine) -> None:
    files, _ = bounded(machine, most=1)
    file = files.open("kept")
    file.write(b"written", 0)
    crowd_out(files, file)
    assert file.read_cached(0, 7) is None
    assert file.file is None
    assert file.read(0, 7) == b"written"
    assert file.read_cached(0, 7) == b"written"


@pytest.mark.parametrize("use", [lambda log: append(log, b"more"), lambda log: log.read(0, bytes_max=1)])
async def test_a_log_whose_segment_is_taken_while_it_is_closed_stops_the_process(
    machine: Machine, use: Callable[[DiskLog], Awaitable[object]]
) -> None:
    files, runtime = bounded(machine)

    async def life() -> None:
        log = await DiskLog.open(runtime, FOLDER, ROLLING)
        await append(log, b"kept")
        crowd_out(files)
        machine.disk.remove(f"{FOLDER}/{0:020}.log")
        await use(log)

    with pytest.raises(Died) as died:
        await machine.run(life())
    assert "was removed, renamed or replaced" in str(died.value.__cause__)


async def test_a_read_under_way_finds_what_took_the_place_of_a_segment(machine: Machine) -> None:
    files, runtime = bounded(machine, most=1)
    log = await DiskLog.open(runtime, FOLDER, ROLLING)
    for number in range(12):
        await append(log, b"%d" % number)
    offset = log.segments[1].base_offset
    await log.read(offset, bytes_max=1)
    source = log._reader._open[offset]
    assert isinstance(source.file, LentFile)
    crowd_out(files, source.file)
    # As a cleaning does it, just before the read opens the file again.
    path = f"{FOLDER}/{offset:020}.log"
    data = machine.disk.read_bytes(path)
    machine.disk.remove(path)
    machine.disk.open(path).write(data, 0)
    (batch, *_) = await log.read(offset, bytes_max=1)
    assert record.header(batch).base_offset == offset
    assert log._reader._open[offset] is not source


async def test_a_read_under_way_of_a_segment_that_was_dropped_is_refused(machine: Machine) -> None:
    files, runtime = bounded(machine, most=1)
    log = await DiskLog.open(runtime, FOLDER, ROLLING)
    for number in range(12):
        await append(log, b"%d" % number)
    await log.read(0, bytes_max=1)
    crowd_out(files)
    async with asyncio.TaskGroup() as tasks:
        reading = tasks.create_task(refusal(log, 0))
        await let_others_run()
        machine.disk.remove(f"{FOLDER}/{0:020}.log")
        log._closed, log._start_offset = log._closed[1:], log._closed[0].next_offset
    assert "has just been dropped" in reading.result()


async def refusal(log: DiskLog, offset: int) -> str:
    with pytest.raises(OffsetOutOfRange) as refused:
        await log.read(offset, bytes_max=1)
    return str(refused.value)


@contextmanager
def together(*threads: threading.Thread) -> Iterator[None]:
    for thread in threads:
        thread.start()
    yield
    for thread in threads:
        thread.join()


def test_threads_share_few_files_of_the_real_disk(tmp_path: Path) -> None:
    failed: list[Any] = []
    files = OpenFiles(SystemDisk(tmp_path), 3, lambda path, error: failed.append((path, error)))  # type: ignore[arg-type,return-value]
    lent = [files.open(f"file-{number}") for number in range(12)]
    wrong: list[str] = []

    def use(first: int) -> None:
        """Each thread writes every fourth file; all of them read all."""
        for turn in range(100):
            for number in range(first, 12, 4):
                lent[number].write(b"%08d" % turn, turn * 8)
                lent[number].sync()
            for number in range(12):
                data = lent[number].read(0, 800)
                if data != b"".join(b"%08d" % each for each in range(len(data) // 8)):
                    wrong.append(f"{number}: {data!r}")

    with together(*(threading.Thread(target=use, args=(first,)) for first in range(4))):
        pass
    assert wrong == failed == []
    files.shrink()
    assert len(files.open_now) <= 3
    for file in lent:
        assert file.size() == 800
        file.close()


async def test_an_open_file_is_used_while_the_lock_is_taken(machine: Machine) -> None:
    files, _ = bounded(machine)
    file = files.open("kept")
    done = threading.Event()

    def use() -> None:
        file.write(b"written", 0)
        file.read(0, 7)
        file.sync()
        done.set()

    with files.mutex:
        threading.Thread(target=use, daemon=True).start()
        assert done.wait(timeout=60)
