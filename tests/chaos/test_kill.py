"""kill -9, again and again, on one folder."""

import random
import signal
from pathlib import Path

import pytest

from penstock.log.settings import MAY_LOSE
from tests.acceptance.processes import Writer
from tests.acceptance.witness import Witness

ROUNDS = 60


@pytest.mark.real_time
async def test_sixty_kills_lose_nothing_acknowledged(tmp_path: Path, seed: int) -> None:
    dice, witness = random.Random(f"kill/{seed}"), Witness()
    for _ in range(ROUNDS):
        # Policies differ in what a power cut takes, never in what a kill does.
        sync = dice.choice(list(MAY_LOSE))
        with Writer(tmp_path / "log", witness, "--sync", sync, "--drops", "0.01") as writer:
            writer.listen(until_acknowledged=dice.choice([0, 1, dice.randint(0, 100), dice.randint(0, 2_000)]))
            assert writer.kill() == -signal.SIGKILL, writer.errors
        # Otherwise the next writer is the one that recovers, and may be killed right after.
        if dice.random() < 0.5:
            await witness.check(tmp_path / "log")
    await witness.check(tmp_path / "log")
    assert witness.lost_records == 0
