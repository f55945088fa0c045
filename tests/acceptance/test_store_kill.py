"""A store whose process is killed in the middle of its work."""

import random
from pathlib import Path

import pytest

from tests.acceptance.store_rounds import run_until_killed
from tests.acceptance.store_witness import StoreWitness

ROUNDS = 10


@pytest.mark.slow
@pytest.mark.real_time
async def test_kill_nine_at_any_moment_loses_no_message_and_brings_none_back(tmp_path: Path) -> None:
    dice, witness = random.Random("store kill"), StoreWitness()
    for _ in range(ROUNDS):
        run_until_killed(
            tmp_path / "store",
            witness,
            lines=dice.choice([1, dice.randint(0, 100), dice.randint(0, 3_000), dice.randint(0, 3_000)]),
        )
        # Otherwise the next worker is the one that recovers, and may be killed right after.
        if dice.random() < 0.4:
            await witness.check(tmp_path / "store")
    await witness.check(tmp_path / "store", keep=0)
    assert await witness.check(tmp_path / "store") == 0
    assert len(witness.sent) > 1_000
    assert len(witness.acked) > 500
