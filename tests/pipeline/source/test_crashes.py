"""A reader of the files of a running log sees nothing that a power cut takes back."""

import asyncio
from pathlib import Path

from penstock.log.disk_log import DiskLog
from penstock.log.group_commit import QUIET_MS
from penstock.pipeline.source import log_files
from tests.log.small import FOLDER, ROLLING, append, bodies, on
from tests.simulation.world import Died, Machine
from tests.waiting import elapse


async def _life(log: DiskLog) -> None:
    """Appends of one record and of many pages, in commits alone and together, with rests and rolls between."""
    for number in range(6):
        await append(log, b"%d" % number)
        if number % 3 == 0:
            await elapse(3 * QUIET_MS / 1000)
    async with asyncio.TaskGroup() as tasks:
        for _ in range(3):
            tasks.create_task(append(log, bytes(6_000)))
    await elapse(3 * QUIET_MS / 1000)


def _shown(machine: Machine, folder: Path) -> int:
    """Return up to which offset a reader is shown the files as the kernel has them now."""
    folder.mkdir()
    for name in machine.disk.names(FOLDER):
        (folder / name).write_bytes(machine.disk.read_bytes(f"{FOLDER}/{name}"))
    if not log_files.is_created(folder):
        return 0
    spans = log_files.list_spans(folder)
    for span in spans:
        for _ in log_files.batches(folder, span, (span.base_offset, 0)):
            pass
    return spans[-1].next_offset


def test_what_a_reader_of_the_files_is_shown_survives_a_power_cut_at_any_step(tmp_path: Path) -> None:
    whole = Machine()
    on(whole, _life, ROLLING)
    seen = []
    for step in range(whole.disk.operations + 1):
        machine = Machine(step)
        machine.disk.crash_after = step
        try:
            on(machine, _life, ROLLING)
        except Died:
            machine.kill()
        seen.append(_shown(machine, tmp_path / f"{step}"))
        # What was not synced is lost, all of it.
        machine.power_cut(lambda path, page: False)
        assert len(on(machine, bodies, ROLLING)) >= seen[-1], step
    assert seen == sorted(seen)
    assert seen[-1] == 9
