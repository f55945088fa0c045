"""What becomes due all at once is done in turns: whoever asks or leases does a part of it, and tidying the rest."""

from dataclasses import replace

import pytest

from penstock.contract.queue_settings import QueueSettings
from penstock.core.queue.message import Drafts
from penstock.store.postgres import burying, leasing
from tests.postgres.blocks import Stage, opened

pytestmark = pytest.mark.real_time

SETTINGS = QueueSettings(aging_ms=(0, 0, 0, 0, 0))
COUNT = 60


async def lower_the_threshold(stage: Stage) -> None:
    await stage.store.send("orders", Drafts(bodies=[b""] * COUNT))
    stage.clock.advance_ms(2_000)
    await stage.store.change("orders", replace(SETTINGS, aging_ms=(0, 0, 1_000, 0, 0)))


async def aged(stage: Stage) -> int:
    row = await (await stage.watcher.execute("SELECT count(*) FROM penstock.marked WHERE tier = 1")).fetchone()
    assert row is not None
    return int(row[0])


async def test_whoever_asks_does_not_wait_until_all_have_aged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(burying, "ADVANCE_MOST", 10)
    async with opened(SETTINGS) as stage:
        await lower_the_threshold(stage)
        for turn in (1, 2):
            await stage.store.counts("orders")
            assert await aged(stage) == 10 * turn
        await stage.store.tidy()
        assert await aged(stage) == COUNT


async def test_whoever_leases_does_not_wait_until_all_have_aged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leasing, "ADVANCE_MOST_OF_A_LEASE", 10)
    async with opened(SETTINGS) as stage:
        await lower_the_threshold(stage)
        for turn in (1, 2):
            await stage.lease(1)
            # It may have taken one of them.
            assert 10 * turn - turn <= await aged(stage) <= 10 * turn
