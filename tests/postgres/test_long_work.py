"""What becomes due all at once is done in turns: a verb does a part of it, and maintenance the rest."""

from dataclasses import replace

import pytest

from penstock.contract.queue_settings import QueueSettings
from penstock.core.queue.message import Drafts
from penstock.store.interface import EscalationOrder, RedriveOrder
from penstock.store.postgres import lease, maintenance
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


async def test_a_question_does_not_wait_until_all_have_aged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintenance, "ADVANCE_MOST", 10)
    async with opened(SETTINGS) as stage:
        await lower_the_threshold(stage)
        for turn in (1, 2):
            await stage.store.counts("orders")
            assert await aged(stage) == 10 * turn
        await stage.store.tidy()
        assert await aged(stage) == COUNT


async def test_an_escalation_or_a_redrive_does_not_wait_until_all_have_aged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintenance, "ADVANCE_MOST", 10)
    async with opened(SETTINGS) as stage:
        await lower_the_threshold(stage)
        await stage.store.escalate("orders", ["1-0"], EscalationOrder(tier=0, actor="ada", reason=""))
        assert await aged(stage) == 10
        await stage.store.redrive("orders", RedriveOrder(most=1))
        assert await aged(stage) == 20


async def test_a_lease_does_not_wait_until_all_have_aged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "ADVANCE_MOST_OF_A_LEASE", 10)
    async with opened(SETTINGS) as stage:
        await lower_the_threshold(stage)
        for turn in (1, 2):
            await stage.lease(1)
            # It may have taken one of them.
            assert 10 * turn - turn <= await aged(stage) <= 10 * turn


async def test_a_receive_does_not_wait_until_all_messages_of_leases_that_lapse_are_dealt_with(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lease, "ADVANCE_MOST_OF_A_LEASE", 10)
    async with opened(replace(SETTINGS, deliveries_max=1)) as stage:
        for _ in range(6):
            await stage.store.send("orders", Drafts(bodies=[b""] * 20))
            await stage.lease(20, lease_ms=1_000)
        stage.clock.advance_ms(2_000)
        assert await stage.store.lease("orders", want=1) is None
        # It finds nothing, so it buries some and looks once more: two turns, of a lease each.
        assert await places_by_state(stage) == {
            ("orders", "leased"): 80,
            ("orders", "spent"): 30,
            ("orders.dead", ""): 10,
        }
        await stage.store.tidy()
        assert await places_by_state(stage) == {("orders.dead", ""): 120}


async def places_by_state(stage: Stage) -> dict[tuple[str, str], int]:
    text = """
        SELECT q.name, CASE WHEN m.state = 4 THEN 'spent' ELSE '' END, count(*)
        FROM penstock.marked AS m JOIN penstock.queue AS q ON q.number = m.queue GROUP BY 1, 2
        UNION ALL SELECT q.name, 'leased', sum(e.held)
        FROM penstock.lease AS e JOIN penstock.queue AS q ON q.number = e.queue GROUP BY 1, 2
    """
    rows = await (await stage.watcher.execute(text.encode())).fetchall()
    return {(name, place): int(count) for name, place, count in rows}


DUE = (
    "a lease lapses", "it is spent", "it wakes", "its escalation ends", "it ages", "a plain one ages", "it is too old",
    "a plain one is too old",
)  # fmt: skip


@pytest.mark.parametrize("what", DUE)
async def test_tidying_finds_whatever_is_due_in_a_queue(what: str) -> None:
    settings = replace(SETTINGS, deliveries_max=1 if what == "it is spent" else 0)
    if what.endswith("ages"):
        settings = replace(settings, aging_ms=(0, 0, 5_000, 0, 0))
    if what.endswith("too old"):
        settings = replace(settings, retention_ms=5_000)
    async with opened(settings) as stage:
        for _ in range(3):
            # What is found once a minute, whatever it is, is not meant.
            await stage.store.tidy()
        at_ms = stage.store.now_ms() + 5_000
        drafts = Drafts(
            bodies=[b""],
            groups=None if "plain" in what else [b"a"],
            visible_at_ms=[at_ms] if what == "it wakes" else None,
        )
        ids = await stage.store.send("orders", drafts)
        if what in {"a lease lapses", "it is spent"}:
            await stage.lease(1, lease_ms=5_000)
        if what == "its escalation ends":
            await stage.store.escalate("orders", ids, EscalationOrder(tier=0, actor="ada", reason="", until_ms=at_ms))
        before = await places(stage)
        stage.clock.advance_ms(4_000)
        await stage.store.tidy()
        assert await places(stage) == before
        stage.clock.advance_ms(2_000)
        await stage.store.tidy()
        assert await places(stage) != before


async def places(stage: Stage) -> list[tuple[object, ...]]:
    """Where messages stand in the tables, which a look at the queue would change."""
    text = """
        SELECT queue, tier, state FROM penstock.marked
        UNION ALL SELECT queue, tier, 0 FROM penstock.leased
        UNION ALL SELECT queue, tier, 1 FROM penstock.ready
    """
    return await (await stage.watcher.execute(text.encode())).fetchall()
