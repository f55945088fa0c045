"""A store whose process is killed in the middle of its work."""

import random
from pathlib import Path

import pytest

from tests.acceptance.store_rounds import run_until_killed, some_moment
from tests.acceptance.store_witness import StoreWitness

ROUNDS = 10


@pytest.mark.slow
@pytest.mark.real_time
@pytest.mark.parametrize("shards", [1, 2])
async def test_kill_nine_at_any_moment_loses_no_message_and_brings_none_back(tmp_path: Path, shards: int) -> None:
    dice, witness = random.Random(f"store kill/{shards}"), StoreWitness(shards)
    for _ in range(ROUNDS):
        run_until_killed(tmp_path / "store", witness, moment=some_moment(dice))
        # Otherwise the next worker is the one that recovers, and may be killed right after.
        if dice.random() < 0.4:
            await witness.check(tmp_path / "store")
    await witness.check_end(tmp_path / "store")
    assert len(witness.sent) > 1_000
    assert len(witness.acked) > 500
    # Otherwise nothing was shortened, and the crashes fell on a journal that only grows.
    assert witness.snapshots > 2
    assert witness.dropped > 2
