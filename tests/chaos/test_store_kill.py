"""A store whose process is killed, or whose disk loses power, again and again on one folder."""

import random
from pathlib import Path

import pytest

from tests.acceptance.mounts import ext4, needs_a_loop_device
from tests.acceptance.store_rounds import run_until_killed
from tests.acceptance.store_witness import StoreWitness

KILLS = 50
POWER_CUTS = 20
DISK_BYTES = 256 * 1024 * 1024


@pytest.mark.real_time
async def test_fifty_kills_lose_no_message_and_bring_none_back(tmp_path: Path, seed: int) -> None:
    dice, witness = random.Random(f"store kill/{seed}"), StoreWitness()
    for _ in range(KILLS):
        run_until_killed(tmp_path / "store", witness, lines=some_lines(dice))
        # Otherwise the next worker is the one that recovers, and may be killed right after.
        if dice.random() < 0.4:
            await witness.check(tmp_path / "store", keep=dice.choice([0, 0.3, 1]))
    await witness.check(tmp_path / "store", keep=0)
    assert await witness.check(tmp_path / "store") == 0
    assert len(witness.acked) > 5_000


@needs_a_loop_device
@pytest.mark.real_time
async def test_a_power_cut_loses_no_message_and_brings_none_back(tmp_path: Path, seed: int) -> None:
    dice, witness = random.Random(f"store power/{seed}"), StoreWitness()
    with ext4(tmp_path / "image", tmp_path / "disk", DISK_BYTES) as disk:
        for _ in range(POWER_CUTS):
            folder = disk.folder / "store"
            run_until_killed(folder, witness, lines=some_lines(dice), before_kill=disk.cut_power)
            disk.restore_power()
            if dice.random() < 0.6:
                await witness.check(folder, keep=dice.choice([0, 0.3, 1]))
        await witness.check(folder, keep=0)
        assert await witness.check(folder) == 0
    assert len(witness.acked) > 2_000


@needs_a_loop_device
@pytest.mark.real_time
async def test_a_store_that_does_not_sync_is_caught_breaking_its_word(tmp_path: Path) -> None:
    """If nothing was lost here, no power was cut, and the test above says nothing."""
    witness = StoreWitness()
    with ext4(tmp_path / "image", tmp_path / "disk", DISK_BYTES) as disk:
        folder = disk.folder / "store"
        run_until_killed(folder, witness, lines=10)
        disk.sync()
        run_until_killed(folder, witness, "--sync", "os", lines=2_000, before_kill=disk.cut_power)
        disk.restore_power()
        with pytest.raises(AssertionError, match=r"gone, and nobody acked them|acked, and came back| is .* and "):
            await witness.check(folder)


def some_lines(dice: random.Random) -> int:
    return dice.choice([0, 1, dice.randint(0, 100), dice.randint(0, 3_000), dice.randint(0, 3_000)])
