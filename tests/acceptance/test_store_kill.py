"""A store whose process is killed in the middle of its work."""

import random
from pathlib import Path

import pytest

from penstock.telemetry import LOG_SEGMENT_DROPPED
from tests.acceptance.store_rounds import Moment, run_until_killed, some_moment
from tests.acceptance.store_witness import StoreWitness

ROUNDS = 5


@pytest.mark.slow
@pytest.mark.real_time
async def test_kill_nine_at_any_moment_loses_no_message_and_brings_none_back(tmp_path: Path) -> None:
    # Several shards, many more kills and power cuts: tests/chaos.
    dice, witness = random.Random("store kill/1"), StoreWitness(1)
    shortened = [Moment(lines, LOG_SEGMENT_DROPPED.name) for lines in (0, 100)]
    for moment in dice.sample([*shortened, *(some_moment(dice) for _ in range(ROUNDS))], ROUNDS + len(shortened)):
        run_until_killed(tmp_path / "store", witness, moment=moment)
        # Otherwise the next worker is the one that recovers, and may be killed right after.
        if dice.random() < 0.4:
            await witness.check(tmp_path / "store")
    await witness.check_end(tmp_path / "store")
    assert len(witness.sent) > 1_000
    assert len(witness.acked) > 500
    # Otherwise nothing was shortened, and the crashes fell on a journal that only grows.
    assert witness.snapshots > 1
    assert witness.dropped > 1
