"""Old history goes in whole periods: what can go is shown, written to files if wanted, and dropped."""

import asyncio
import gzip
import json
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

import psycopg
import pytest
from typer.testing import CliRunner

from penstock.cli import app
from penstock.contract.queue_settings import DAY_MS, QueueSettings
from penstock.core.queue.message import Drafts
from penstock.store.interface import Outcome
from penstock.store.pages import HistoryRange
from penstock.store.postgres.database import TIMING, PostgresSettings, Timing
from penstock.store.postgres.store import PostgresStore
from tests.postgres.servers import shared_server
from tests.postgres.waiting import until_waited_for
from tests.simulation.clock import EPOCH_MS, SimClock, SimDice
from tests.waiting import eventually

pytestmark = pytest.mark.real_time

# Two stores of one database draw other numbers for their operations.
_seeds = count()


async def opened(dsn: str, clock: SimClock, *, has_upkeep: bool = False, timing: Timing = TIMING) -> PostgresStore:
    dice = SimDice(next(_seeds))
    return await PostgresStore.open(
        PostgresSettings(url=dsn, timing=timing), clock=clock, dice=dice, has_upkeep=has_upkeep
    )


async def settle_for_days(dsn: str, *, days: int) -> None:
    """Settle as many messages on each day as its number says."""
    clock = SimClock()
    async with await opened(dsn, clock) as store:
        await store.create("orders", QueueSettings())
        for day in range(1, days + 1):
            await store.send("orders", Drafts(bodies=[b"%d" % day] * day))
            delivery = await store.lease("orders", want=10)
            assert delivery is not None
            await store.ack("orders", delivery.receipts())
            clock.advance_ms(DAY_MS)
            await store.tidy()


def history(dsn: str, verb: str = "list", *options: str) -> Any:
    done = CliRunner().invoke(app, ["history", verb, "--store", dsn, "--json", *options])
    assert done.exit_code == 0, done.output
    return json.loads(done.output)["periods"]


def day_of(number: int) -> str:
    return datetime.fromtimestamp((EPOCH_MS + number * DAY_MS) / 1_000, UTC).date().isoformat()


def written_to(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


async def test_periods_that_are_over_go_whole(tmp_path: Path) -> None:
    dsn = shared_server().new_database()
    await settle_for_days(dsn, days=5)

    shown = await asyncio.to_thread(history, dsn)
    assert [(period["rows"], period["can_go"]) for period in shown] == [
        (1, True), (2, True), (3, True), (4, True), (5, False), (0, False),
    ]  # fmt: skip
    assert [period["is_written"] for period in shown] == [False] * 4 + [True] * 2
    older = await asyncio.to_thread(history, dsn, "list", "--before", day_of(2))
    assert [period["can_go"] for period in older] == [True, True, False, False, False, False]
    await asyncio.to_thread(history, dsn, "export", str(tmp_path / "copy"), "--before", day_of(2))
    assert written_to(tmp_path / "copy") == ["history_1.csv.gz", "history_2.csv.gz"]
    refused = await asyncio.to_thread(CliRunner().invoke, app, ["history", "drop", "--store", dsn], "n")
    assert refused.exit_code == 1
    assert len(await asyncio.to_thread(history, dsn)) == 6

    gone = await asyncio.to_thread(
        history, dsn, "drop", "--yes", "--before", day_of(2), "--export", str(tmp_path / "old")
    )
    assert [period["rows"] for period in gone if period["can_go"]] == [1, 2]
    left = await asyncio.to_thread(history, dsn)
    # The command has a store open for a moment, which begins a period of its own.
    assert [period["rows"] for period in left][:4] == [3, 4, 5, 0]
    assert written_to(tmp_path / "old") == ["history_1.csv.gz", "history_2.csv.gz"]
    with gzip.open(tmp_path / "old" / "history_2.csv.gz", "rt") as file:
        head, *lines = file.read().splitlines()
    assert head.startswith("period,at_offset,queue")
    told = [dict(zip(head.split(","), line.split(","), strict=True)) for line in lines]
    assert int(told[1]["at_offset"]) == int(told[0]["at_offset"]) + 1
    assert [int(each["key"]) >> 3 for each in told] == [1, 2]
    assert [each["sent_at_ms"] for each in told] == [str(EPOCH_MS + DAY_MS)] * 2

    # What is left can be read, and what has gone is known to have.
    async with await opened(dsn, SimClock()) as store:
        page = await store.history("orders", HistoryRange(from_offset=0, most=100))
        assert len(page.ending) == 3 + 4 + 5
        assert page.first_kept_offset > 0


async def test_a_period_that_is_being_read_goes_when_it_was_read() -> None:
    """No settlement waits for that: the drop gives up soon, and tries again."""
    dsn = shared_server().new_database()
    await settle_for_days(dsn, days=3)
    async with await psycopg.AsyncConnection.connect(dsn) as reader:
        await reader.execute("SELECT count(*) FROM penstock.history")
        async with asyncio.TaskGroup() as tasks:
            dropping = tasks.create_task(asyncio.to_thread(history, dsn, "drop", "--yes"))
            await until_waited_for(reader)
            await reader.rollback()
        assert [period["rows"] for period in dropping.result() if period["can_go"]] == [1, 2]


async def test_a_new_period_begins_while_the_history_is_read() -> None:
    """A backup reads for an hour, and no settlement may wait for it."""
    dsn = shared_server().new_database()
    async with await opened(dsn, SimClock()) as store, await psycopg.AsyncConnection.connect(dsn) as reader:
        await store.create("orders", QueueSettings())
        await reader.execute("SELECT count(*) FROM penstock.history")
        async with asyncio.timeout(60):
            await settle_for_days(dsn, days=2)
    assert [period["rows"] for period in await asyncio.to_thread(history, dsn)][:2] == [1, 2]


async def test_every_store_settles_into_the_newest_period_with_any_leader() -> None:
    dsn, clock, often = shared_server().new_database(), SimClock(), Timing(beat_s=0.01)
    async with (
        await opened(dsn, clock, has_upkeep=True, timing=often) as one,
        await opened(dsn, clock, has_upkeep=True, timing=often) as other,
    ):
        await one.create("orders", QueueSettings())
        for period in (2, 3, 4):
            clock.advance_ms(DAY_MS)

            def has_begun(period: int = period) -> bool:
                return {one._maintenance.period, other._maintenance.period} == {period}

            await eventually(has_begun)
        await one.trim_history(0, before=0)
        for store in (one, other):
            await store.send("orders", Drafts(bodies=[b"a"]))
            delivery = await store.lease("orders", want=1)
            assert delivery is not None
            assert await store.ack("orders", delivery.receipts()) == [Outcome.DONE]


async def test_the_history_of_a_schema_without_old_periods_stays(tmp_path: Path) -> None:
    dsn = shared_server().new_database()
    await settle_for_days(dsn, days=1)
    shown = await asyncio.to_thread(history, dsn, "drop", "--yes", "--export", str(tmp_path))
    assert [period["can_go"] for period in shown] == [False, False]
    assert written_to(tmp_path) == []


@pytest.mark.parametrize("drops", [False, True])
async def test_periods_past_their_retention_are_detached_or_dropped_by_the_leader(
    drops: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    dsn = shared_server().new_database()
    await settle_for_days(dsn, days=5)
    clock = SimClock()
    clock.advance_ms(5 * DAY_MS)
    settings = PostgresSettings(url=dsn, history_retention_ms=3 * DAY_MS, drops_history=drops)
    async with await PostgresStore.open(settings, clock=clock, dice=SimDice(next(_seeds)), has_upkeep=False) as store:
        await store.tidy()
        (span,) = await store.history_shards()
        page = await store.history("orders", HistoryRange(from_offset=0, most=100))
        # Of the first two days nothing is told any more, and the rest is whole.
        assert len(page.ending) == 3 + 4 + 5
        assert span.first_kept_offset > 0
    monkeypatch.setenv("PENSTOCK_POSTGRES_HISTORY_RETENTION_S", str(3 * 86_400))
    shown = await asyncio.to_thread(history, dsn)
    detached = [] if drops else [1, 2]
    assert [period["rows"] for period in shown if period["is_detached"]] == detached
    assert [period["rows"] for period in shown if not period["is_detached"]][:3] == [3, 4, 5]
    assert not [period for period in shown if period["is_detached"] and period["can_go"]]
    said = (await asyncio.to_thread(CliRunner().invoke, app, ["history", "list", "--store", dsn])).output
    assert "A server with these settings detaches periods whose messages were all settled more than 3" in said


async def test_a_period_that_is_read_stays_until_the_next_time() -> None:
    dsn = shared_server().new_database()
    await settle_for_days(dsn, days=4)
    clock = SimClock()
    clock.advance_ms(4 * DAY_MS)
    settings = PostgresSettings(url=dsn, history_retention_ms=DAY_MS, drops_history=True)
    async with await PostgresStore.open(settings, clock=clock, dice=SimDice(next(_seeds)), has_upkeep=False) as store:
        async with await psycopg.AsyncConnection.connect(dsn) as backup:
            await backup.execute("LOCK TABLE penstock.history_1 IN ACCESS SHARE MODE")
            await store.tidy()
            assert len((await store.history("orders", HistoryRange(from_offset=0, most=100))).ending) == 10
        clock.advance_ms(60_000)
        await store.tidy()
        assert len((await store.history("orders", HistoryRange(from_offset=0, most=100))).ending) < 10
