"""A store whose process is killed, or whose disk loses power, again and again on one folder."""

import logging
import random
from pathlib import Path

import pytest

from tests.acceptance.mounts import ext4, needs_a_loop_device
from tests.acceptance.store_rounds import Moment, run_until_killed, some_moment
from tests.acceptance.store_witness import StoreWitness

KILLS = 50
POWER_CUTS = 20
DISK_BYTES = 256 * 1024 * 1024


@pytest.mark.real_time
@pytest.mark.parametrize("shards", [1, 2])
async def test_fifty_kills_lose_no_message_and_bring_none_back(tmp_path: Path, seed: int, shards: int) -> None:
    dice, witness = random.Random(f"store kill/{seed}"), StoreWitness(shards)
    for _ in range(KILLS):
        run_until_killed(tmp_path / "store", witness, moment=some_moment(dice))
        # Otherwise the next worker is the one that recovers, and may be killed right after.
        if dice.random() < 0.4:
            await witness.check(tmp_path / "store", keep=dice.choice([0, 0.3, 1]))
    await witness.check_end(tmp_path / "store")
    check_was_shortened(witness)
    assert witness.copies, "nothing was copied forward"
    assert witness.orphans > 0, "no process was making a snapshot when its parent was killed"
    assert len(witness.acked) > 5_000


@needs_a_loop_device
@pytest.mark.real_time
@pytest.mark.parametrize("shards", [1, 2])
async def test_a_power_cut_loses_no_message_and_brings_none_back(tmp_path: Path, seed: int, shards: int) -> None:
    dice, witness = random.Random(f"store power/{seed}"), StoreWitness(shards)
    with ext4(tmp_path / "image", tmp_path / "disk", DISK_BYTES) as disk:
        for _ in range(POWER_CUTS):
            folder = disk.folder / "store"
            run_until_killed(folder, witness, moment=some_moment(dice), before_kill=disk.cut_power)
            disk.restore_power()
            if dice.random() < 0.6:
                await witness.check(folder, keep=dice.choice([0, 0.3, 1]))
        await witness.check_end(folder)
    check_was_shortened(witness)
    assert len(witness.acked) > 2_000


@needs_a_loop_device
@pytest.mark.real_time
async def test_a_store_that_does_not_sync_is_caught_breaking_its_word(tmp_path: Path) -> None:
    """If nothing was lost here, no power was cut, and the test above says nothing."""
    witness = StoreWitness()
    with ext4(tmp_path / "image", tmp_path / "disk", DISK_BYTES) as disk:
        folder = disk.folder / "store"
        run_until_killed(folder, witness, moment=Moment(10))
        disk.sync()
        run_until_killed(folder, witness, "--sync", "os", moment=Moment(2_000), before_kill=disk.cut_power)
        disk.restore_power()
        with pytest.raises(AssertionError, match=r"gone, but not acked|acked, and came back| is .* and "):
            await witness.check(folder)


def check_was_shortened(witness: StoreWitness) -> None:
    """Otherwise the crashes fell on a journal that only grows, and say nothing about one that does not."""
    # Shown with `--log-cli-level=INFO`.
    logging.getLogger(__name__).info(witness.figures())
    assert witness.snapshots > 5, f"only {witness.snapshots} snapshots"
    assert witness.dropped > 10, f"only {witness.dropped} segments were dropped"
