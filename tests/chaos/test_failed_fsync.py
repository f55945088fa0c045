"""A disk that really fails its fsync: it promised more blocks than it has.

The log lives on an ext4 in a sparse file, and the file in a memory too small for
it. A write goes to the kernel's memory and succeeds; writing it back does not.

    log ── ext4, 64 MiB ── loop device ── sparse file ── tmpfs, a few MiB

What fails first depends on what the file system has touched before. On a fresh
one it is the journal, and ext4 stops altogether. Once every block of the journal
has been written, it is the data: ext4 goes on, says so to one fsync, and takes
the pages for written from then on (decision 0004).
"""

import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from penstock.runtime.interface import EXIT_STORAGE_FAILED
from tests.acceptance.mounts import Ext4, ext4, needs_a_loop_device, resize_tmpfs, tmpfs
from tests.acceptance.processes import Writer
from tests.acceptance.witness import Witness

pytestmark = [needs_a_loop_device, pytest.mark.real_time]

ROUNDS = 8
MIB = 1024 * 1024
DISK_BYTES = 64 * MIB
# Each creation of a file writes some blocks of the journal, which has a thousand.
JOURNAL_ROUND = 700


@dataclass
class ThinDisk:
    """A disk that has fewer blocks than it says."""

    ext4: Ext4
    memory: Path

    def use_whole_journal(self) -> None:
        for _ in range(JOURNAL_ROUND):
            path = self.ext4.folder / "passing"
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            path.unlink()
        self.ext4.sync()

    def leave_room(self, size_bytes: int) -> None:
        stats = os.statvfs(self.memory)
        resize_tmpfs(self.memory, (stats.f_blocks - stats.f_bfree) * stats.f_frsize + size_bytes)

    def grow(self) -> None:
        resize_tmpfs(self.memory, 2 * DISK_BYTES)


@contextmanager
def thin_disk(folder: Path) -> Iterator[ThinDisk]:
    folder.mkdir()
    with (
        tmpfs(folder / "memory", 2 * DISK_BYTES) as memory,
        ext4(memory / "image", folder / "disk", DISK_BYTES) as disk,
    ):
        yield ThinDisk(disk, memory)


def write_until_the_disk_fails(disk: ThinDisk, witness: Witness, dice: random.Random) -> None:
    disk.leave_room(dice.randint(MIB // 2, 2 * MIB))
    with Writer(disk.ext4.folder / "log", witness, "--segment-bytes-max", str(4 * MIB)) as writer:
        assert writer.finish() == EXIT_STORAGE_FAILED, writer.errors
        assert "stopped, because the disk failed" in writer.errors
    assert witness.acknowledged


@pytest.mark.parametrize("journal", ["fresh", "used"])
async def test_what_was_acknowledged_before_an_fsync_failed_is_there_when_the_disk_is_well_again(
    tmp_path: Path, seed: int, journal: str
) -> None:
    dice = random.Random(f"fsync/{journal}/{seed}")
    for number in range(ROUNDS):
        witness = Witness()
        with thin_disk(tmp_path / str(number)) as disk:
            if journal == "used":
                disk.use_whole_journal()
            write_until_the_disk_fails(disk, witness, dice)
            disk.grow()
            # Nothing that only the kernel's memory knows counts.
            disk.ext4.cut_power()
            disk.ext4.restore_power()
            await witness.check(disk.ext4.folder / "log")
        assert witness.lost_records == 0


async def test_a_restart_after_a_failed_fsync_does_not_take_the_memory_of_the_kernel_for_the_disk(
    tmp_path: Path, seed: int
) -> None:
    dice = random.Random(f"restart/{seed}")
    for number in range(ROUNDS):
        witness = Witness()
        with thin_disk(tmp_path / str(number)) as disk:
            disk.use_whole_journal()
            write_until_the_disk_fails(disk, witness, dice)
            disk.grow()
            # As a supervisor would: the machine went on, and so did the file system.
            with Writer(disk.ext4.folder / "log", witness) as writer:
                writer.listen(until_acknowledged=dice.randint(0, 300))
                cut_at_ns = disk.ext4.cut_power()
                writer.kill()
            witness.power_was_cut(cut_at_ns)
            disk.ext4.restore_power()
            await witness.check(disk.ext4.folder / "log")
        assert witness.lost_records == 0
