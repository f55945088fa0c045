"""True power cuts: what the file system had not synced is gone.

The log lives on an ext4 of its own, which is shut down without flushing its
journal while a writer is at work. Mounting it again shows what was on the disk.
"""

import random
import signal
from pathlib import Path

import pytest

from penstock.log.settings import SyncPolicy
from penstock.runtime.interface import EXIT_STORAGE_FAILED
from tests.acceptance.mounts import Ext4, ext4, needs_a_loop_device
from tests.acceptance.processes import Writer
from tests.acceptance.witness import Witness

pytestmark = [needs_a_loop_device, pytest.mark.real_time]

ROUNDS = 20
DISK_BYTES = 64 * 1024 * 1024


async def test_a_power_cut_loses_nothing_acknowledged(tmp_path: Path, seed: int) -> None:
    dice, witness = random.Random(f"power/{seed}"), Witness()
    with ext4(tmp_path / "image", tmp_path / "disk", DISK_BYTES) as disk:
        for _ in range(ROUNDS):
            write_until_power_is_cut(disk, witness, dice, "batch")
            # Otherwise the next writer is the one that recovers, and may lose power right after.
            if dice.random() < 0.7:
                await witness.check(disk.folder / "log")
        await witness.check(disk.folder / "log")
    assert witness.lost_records == 0
    assert witness.checked_records > 1_000


@pytest.mark.parametrize("sync", ["interval", "os"])
async def test_a_power_cut_leaves_a_log_that_was_not_synced_shorter_but_right(
    tmp_path: Path, seed: int, sync: SyncPolicy
) -> None:
    dice, witness = random.Random(f"power/{sync}/{seed}"), Witness()
    with ext4(tmp_path / "image", tmp_path / "disk", DISK_BYTES) as disk:
        for _ in range(ROUNDS):
            write_until_power_is_cut(disk, witness, dice, sync)
            await witness.check(disk.folder / "log", may_lose=True)
    # If nothing was ever lost, no power was cut.
    assert witness.lost_records > 0
    assert witness.checked_records > 100


def write_until_power_is_cut(disk: Ext4, witness: Witness, dice: random.Random, sync: SyncPolicy) -> None:
    with Writer(disk.folder / "log", witness, "--sync", sync, "--drops", "0.01") as writer:
        writer.listen(until_acknowledged=dice.choice([0, 1, dice.randint(0, 100), dice.randint(0, 1_500)]))
        cut_at_ns = disk.cut_power()
        if dice.random() < 0.5:
            assert writer.kill() in {-signal.SIGKILL, EXIT_STORAGE_FAILED}, writer.errors
        else:
            assert writer.finish() == EXIT_STORAGE_FAILED, writer.errors
    witness.power_was_cut(cut_at_ns)
    disk.restore_power()
