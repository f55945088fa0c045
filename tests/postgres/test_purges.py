"""A purge goes in turns, each a transaction of its own: what is sent after it began stays, and no turn is large."""

import asyncio
from collections import Counter

import psycopg
import pytest

from penstock.contract.messages import MessageOutcome
from penstock.contract.queue_settings import QueueSettings
from penstock.core.queue.message import Drafts
from penstock.store.ids import message_id
from penstock.store.interface import Outcome
from penstock.store.pages import HistoryRange
from penstock.store.postgres import maintenance
from penstock.store.postgres.database import PostgresSettings, Timing
from penstock.store.postgres.errors import Locked
from penstock.store.postgres.maintenance import PURGE_IDLE_MS
from penstock.store.postgres.store import PostgresStore
from tests.postgres.blocks import Stage, opened
from tests.postgres.waiting import until_waited_for
from tests.simulation.clock import SimDice

pytestmark = pytest.mark.real_time
MOST = 10
SETTINGS = QueueSettings(deliveries_max=0, size_max=1_000)


@pytest.fixture(autouse=True)
def small_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintenance, "PURGE_MOST", MOST)


async def fill(stage: Stage, *, groups: bool = True) -> int:
    """Send messages that wait, rest, and are held in leases of every kind; return how many."""
    store = stage.store
    await store.send("orders", Drafts(bodies=[b"held"] * 16))
    # Packed leases, some of one message; one is partly extended, and so has a row for each.
    delivery = await stage.lease(6, lease_ms=600_000)
    await store.extend("orders", delivery.receipts()[:2], lease_ms=900_000)
    for want in (1, 2, 1, 6):
        await stage.lease(want, lease_ms=600_000)
    if groups:
        await stage.send(24, groups=5)
        await stage.lease(4, lease_ms=600_000)
    else:
        await store.send("orders", Drafts(bodies=[b"later"] * 24, visible_at_ms=[store.now_ms() + 60_000] * 24))
    await store.send("orders", Drafts(bodies=[b"plain"] * 35, tiers=bytes([1, 2, 3, 4, 0] * 7)))
    return 75


async def told(stage: Stage, queue: int = 1) -> Counter[int]:
    """How many rows of the history each transaction has written."""
    rows = await stage.watcher.execute(
        b"SELECT at_offset >> 24 FROM penstock.history WHERE queue = %s AND ending <> 1", (queue,)
    )
    return Counter(transaction for (transaction,) in await rows.fetchall())


async def left(stage: Stage) -> int:
    """Rows of all tables that belong to a queue."""
    tables = ("ready", "marked", "leased", "lease", "line", "tenant", "dedup", "sent", "sender", "escalation")
    counts = " + ".join(f"(SELECT count(*) FROM penstock.{table})" for table in tables)
    row = await (await stage.watcher.execute(f"SELECT {counts}".encode())).fetchone()
    assert row is not None
    return int(row[0])


async def begin(stage: Stage) -> maintenance.PurgeTurn:
    return await stage.store._alone("orders", stage.store._changes.begin_purge)


async def test_a_purge_settles_a_bounded_number_of_messages_in_each_transaction_and_counts_them_all() -> None:
    async with opened(SETTINGS) as stage:
        count = await fill(stage)
        assert await stage.store.purge("orders") == count
        turns = await told(stage)
        assert sum(turns.values()) == count
        # A lease is not divided.
        assert max(turns.values()) <= MOST + 6
        assert (await stage.store.counts("orders")).live == 0
        assert await left(stage) == 0
        # What was settled a moment ago may be hidden behind a transaction that runs.
        stage.clock.advance_ms(2_000)
        page = await stage.store.history("orders", HistoryRange(most=1_000, from_offset=0))
        assert set(page.ending) == {MessageOutcome.PURGED}
        # The queue holds as many as before: nothing was given back twice, or not at all.
        await stage.store.send("orders", Drafts(bodies=[b""] * 1_000))


async def test_what_is_not_much_is_purged_in_one_transaction(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintenance, "PURGE_MOST", 1_000)
    async with opened(SETTINGS) as stage:
        count = await fill(stage)
        assert await stage.store.purge("orders") == count
        assert list((await told(stage)).values()) == [count]


async def test_what_is_sent_after_a_purge_began_stays_and_who_works_meanwhile_settles_each_message_once() -> None:
    async with opened(SETTINGS) as stage:
        store = stage.store
        count = await fill(stage)
        turn = await begin(stage)
        assert not turn.is_over
        assert turn.settled == MOST
        assert (await store.counts("orders")).live == count - MOST, "how far it came can be asked for"
        later = list(await store.send("orders", Drafts(bodies=[b"later"] * 12, groups=[b"1", b"9"] * 6)))
        later += await store.send("orders", Drafts(bodies=[b"later"] * 12))
        # This lease holds both, what goes and what stays.
        mixed = await stage.lease(70, lease_ms=600_000)
        assert len(set(mixed.ids) & set(later)) > 0
        old = [receipt for receipt, each in zip(mixed.receipts(), mixed.ids, strict=True) if each not in later]
        assert await store.ack("orders", old[:3]) == [Outcome.DONE] * 3
        # A purge beside it takes the rest, and what was sent meanwhile; each counts what it settled itself.
        assert await store.purge("orders") == count - MOST - 3 + len(later)
        assert (await store.counts("orders")).live == 0
        assert await store._maintenance.purge("orders", turn) == MOST


async def test_a_lease_keeps_what_was_sent_after_the_purge_began() -> None:
    async with opened(SETTINGS) as stage:
        store = stage.store
        await store.send("orders", Drafts(bodies=[b"old"] * 15, groups=[b"a"] * 15))
        turn = await begin(stage)
        later = set(await store.send("orders", Drafts(bodies=[b"new"] * 5, groups=[b"a"] * 5)))
        mixed = await stage.lease(10, lease_ms=600_000)
        assert len(mixed) == 10
        assert await store._maintenance.purge("orders", turn) == 15
        outcomes = await store.ack("orders", mixed.receipts())
        assert {each for each, outcome in zip(mixed.ids, outcomes, strict=True) if outcome is Outcome.DONE} == later
        assert (await store.counts("orders")).live == 0
        assert await left(stage) == 0


async def test_a_group_of_a_fifo_queue_goes_on_with_what_was_sent_after_the_purge_began() -> None:
    async with opened(QueueSettings(is_fifo=True, deliveries_max=0)) as stage:
        store = stage.store
        await store.send("orders", Drafts(bodies=[b"old"] * 15, groups=[b"a"] * 15))
        await stage.lease(1, lease_ms=600_000)
        turn = await begin(stage)
        await store.send("orders", Drafts(bodies=[b"new"], groups=[b"a"]))
        assert await store.lease("orders", want=1) is None
        assert await store._maintenance.purge("orders", turn) == 15
        assert [bytes(body) for body in (await stage.lease(5)).bodies] == [b"new"]


async def test_a_sender_and_a_consumer_at_work_lose_nothing_and_no_message_is_settled_twice() -> None:
    async with opened(SETTINGS) as stage:
        store = stage.store
        before = list(await store.send("orders", Drafts(bodies=[b""] * 60, groups=[b"a", b"b"] * 30)))
        before += await store.send("orders", Drafts(bodies=[b""] * 60))
        acked: list[str] = []
        is_over = asyncio.Event()

        async def send() -> None:
            while not is_over.is_set():
                await store.send("orders", Drafts(bodies=[b""] * 3))

        async def consume() -> None:
            while not is_over.is_set():
                delivery = await store.lease("orders", want=5, lease_ms=600_000)
                if delivery is not None:
                    outcomes = await store.ack("orders", delivery.receipts())
                    settled = zip(delivery.ids, outcomes, strict=True)
                    acked.extend(each for each, outcome in settled if outcome is Outcome.DONE)

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(send())
            tasks.create_task(consume())
            purged = await store.purge("orders")
            is_over.set()
        rows = await stage.watcher.execute(b"SELECT key FROM penstock.history WHERE ending = 4")
        gone = [message_id(1, key) for (key,) in await rows.fetchall()]
        assert len(gone) == len(set(gone)) == purged
        assert not set(gone) & set(acked)
        # A message has left the queue in one of the two ways, if it was there before.
        page = await store.live("orders", most=1_000)
        assert not set(page.ids) & set(before)


async def test_a_purge_whose_server_died_is_finished_by_another() -> None:
    async with opened(SETTINGS) as stage:
        count = await fill(stage, groups=False)
        turn = await begin(stage)
        settings = PostgresSettings(url=stage.url, may_lose=True)
        other = await PostgresStore.open(settings, clock=stage.clock, dice=SimDice(1), has_upkeep=False)
        async with other:
            await other.tidy()
            assert (await other.counts("orders")).live == count - turn.settled, "its server is at it"
            stage.clock.advance_ms(PURGE_IDLE_MS)
            later = await other.send("orders", Drafts(bodies=[b""]))
            await other.tidy()
            assert list((await other.live("orders", most=10)).ids) == list(later)
        # Had its server only been slow, it would learn of all that went.
        assert await stage.store._maintenance.purge("orders", turn) == count


async def test_a_purge_waits_for_a_transaction_that_holds_a_message_and_says_how_far_it_came_if_that_stays_open() -> (
    None
):
    async with (
        opened(SETTINGS, timing=Timing(retries_s=())) as stage,
        await psycopg.AsyncConnection.connect(stage.url) as other,
    ):
        await stage.store.send("orders", Drafts(bodies=[b""] * 25))
        await stage.lease(3, lease_ms=600_000)
        turn = await begin(stage)
        await other.execute("SELECT FROM penstock.lease FOR UPDATE")
        with pytest.raises(Locked, match="22 messages were purged"):
            await stage.store._maintenance.purge("orders", turn)
        async with asyncio.TaskGroup() as tasks:
            purge = tasks.create_task(stage.store._maintenance.purge("orders", turn))
            await until_waited_for(other)
            await other.rollback()
        assert purge.result() == 25


async def test_a_large_queue_is_deleted_at_once_and_emptied_behind_the_answer() -> None:
    async with opened(SETTINGS) as stage:
        count = await fill(stage)
        await stage.store.delete("orders")
        assert await stage.store.queues() == []
        assert sum((await told(stage)).values()) == MOST
        await stage.store.create("orders", SETTINGS)
        new = await stage.store.send("orders", Drafts(bodies=[b""], groups=[b"a"]))
        stage.clock.advance_ms(PURGE_IDLE_MS)
        await stage.store.tidy()
        turns = await told(stage)
        assert sum(turns.values()) == count
        assert max(turns.values()) <= MOST + 6
        assert list((await stage.store.live("orders", most=10)).ids) == list(new)
        assert await left(stage) == 1
