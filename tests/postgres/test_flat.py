"""What an operation looks at does not grow with what it does not touch, in tables that were never counted.

Rows that PostgreSQL read are counted, and no time: two sizes, and the larger one costs about the same.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import psycopg
import pytest

from penstock.contract.queue_settings import DedupScope, QueueSettings
from penstock.core.queue.message import Drafts
from penstock.runtime.system import SystemDice
from penstock.store.interface import EscalationOrder, MessageFilter, RedriveOrder, Release
from penstock.store.postgres import operations, queries
from penstock.store.postgres.connection import Arguments
from penstock.store.postgres.database import PostgresSettings
from penstock.store.postgres.store import PostgresStore
from tests.postgres.servers import Server
from tests.simulation.clock import SimClock
from tests.steps import counted as lines_counted

pytestmark = pytest.mark.real_time

# Rows fetched from tables and entries read from indexes, by the sessions that have told so far.
_READ = """
SELECT coalesce(sum(idx_tup_read), 0)::bigint FROM pg_stat_user_indexes WHERE schemaname = 'penstock'
"""


class Counted:
    """A store on a database that is never analyzed, and how many entries of indexes it has read."""

    def __init__(self, store: PostgresStore, watcher: psycopg.AsyncConnection) -> None:
        self.store = store
        self._watcher = watcher

    async def rows(self, run: Callable[[], Awaitable[object]]) -> int:
        before = await self._read()
        await run()
        return await self._read() - before

    async def _read(self) -> int:
        # Its connections tell what they have read when they end, at the latest.
        await self.store._database._close_free()
        await self._until_told()
        await self._watcher.execute("SELECT pg_stat_clear_snapshot()")
        row = await (await self._watcher.execute(_READ)).fetchone()
        assert row is not None
        return int(row[0])

    async def _until_told(self) -> None:
        others = """
            SELECT count(*) FROM pg_stat_activity
            WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()
        """
        # The connection on which the store listens stays.
        while (await (await self._watcher.execute(others)).fetchone()) != (1,):
            await self._watcher.execute("SELECT pg_sleep(0.01)")
            await self._watcher.execute("SELECT pg_stat_clear_snapshot()")


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """Nothing counts its tables: plans are those of tables that look empty."""
    with Server(options={"autovacuum": "off"}) as server:
        yield server


@asynccontextmanager
async def counted(server: Server, settings: QueueSettings) -> AsyncIterator[Counted]:
    url = f"{server.new_database()}&options=-c%20synchronous_commit%3Doff"
    database = PostgresSettings(url=url, may_lose=True)
    async with (
        await PostgresStore.open(database, clock=SimClock(), dice=SystemDice(), has_upkeep=False) as store,
        await psycopg.AsyncConnection.connect(url, autocommit=True) as watcher,
    ):
        await store.create("orders", settings)
        yield Counted(store, watcher)


def drafts(first: int, count: int = 1_000, *, groups: bool = False, names: bool = False) -> Drafts:
    return Drafts(
        bodies=[b"x"] * count,
        groups=[b"g%d" % (number % 50) for number in range(count)] if groups else None,
        dedup_ids=[b"%d" % (first + number) for number in range(count)] if names else None,
    )


async def test_a_batch_of_new_ids_costs_the_same_however_many_ids_there_are(server: Server) -> None:
    async with counted(server, QueueSettings(dedup_scope=DedupScope.WINDOW)) as here:
        costs = [
            await here.rows(lambda first=first: here.store.send("orders", drafts(first, names=True)))  # type: ignore[misc]
            for first in range(0, 6_000, 1_000)
        ]
        assert costs[-1] <= 2 * costs[0] + 1_000, costs


async def escalate(store: PostgresStore, ids: Sequence[str]) -> None:
    await store.escalate("orders", ids, EscalationOrder(tier=0, actor="ada", reason=""))


async def test_an_escalation_costs_the_same_however_many_messages_wait(server: Server) -> None:
    async with counted(server, QueueSettings()) as here:
        costs = []
        for _ in range(4):
            ids = await here.store.send("orders", drafts(0))
            for _ in range(2):
                await here.store.send("orders", drafts(0, groups=True))

            costs.append(await here.rows(lambda ids=ids: escalate(here.store, ids[:200])))  # type: ignore[misc]
        assert costs[-1] <= 2 * costs[0], costs


async def test_a_peek_costs_the_same_however_many_messages_wait(server: Server) -> None:
    async with counted(server, QueueSettings()) as here:
        costs = []
        for _ in range(4):
            for _ in range(2):
                await here.store.send("orders", drafts(0, groups=True))
            costs.append(await here.rows(lambda: here.store.peek("orders", most=10)))
        assert costs[-1] <= 2 * costs[0], costs


async def bury(store: PostgresStore, count: int) -> None:
    await store.send("orders", drafts(0, count))
    delivery = await store.lease("orders", want=count)
    assert delivery is not None
    await store.release("orders", delivery.receipts(), Release(is_rejected=True))
    await store.tidy()


async def test_a_peek_at_dead_letters_costs_the_same_however_many_there_are(server: Server) -> None:
    async with counted(server, QueueSettings(deliveries_max=1)) as here:
        costs = []
        for _ in range(4):
            await bury(here.store, 1_000)
            costs.append(await here.rows(lambda: here.store.peek("orders.dead", most=10)))
        assert costs[-1] <= 2 * costs[0], costs


async def test_a_redrive_of_named_dead_letters_costs_the_same_however_many_there_are(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As if so few took long to count.
    monkeypatch.setattr(operations, "COUNTED_EACH_TIME", 10)
    async with counted(server, QueueSettings(deliveries_max=1)) as here:
        costs = []
        for _ in range(4):
            await bury(here.store, 1_000)
            page = await here.store.peek("orders.dead", most=10)
            ids = [each.id for each in page.messages]
            # What is left is counted now and then, and not at the next step.
            await here.store.redrive("orders.dead", RedriveOrder(most=1, ids=ids[:1]))
            order = RedriveOrder(most=10, ids=ids)
            costs.append(await here.rows(lambda order=order: here.store.redrive("orders.dead", order)))  # type: ignore[misc]
        assert costs[-1] <= 2 * costs[0], costs


@pytest.mark.parametrize(("groups", "want", "tiers"), [(False, 1, 1), (True, 1, 1), (False, 3, 1), (False, 10, 5)])
async def test_a_look_at_what_is_leased_costs_the_same_however_many_leases_there_are(
    server: Server, groups: bool, want: int, tiers: int
) -> None:
    async with counted(server, QueueSettings(noisy_percent=100, noisy_time_percent=100)) as here:
        costs, pages = [], []
        for _ in range(3):
            count = 150 * want
            spread = bytes(number % tiers + (2 if tiers == 1 else 0) for number in range(count))
            await here.store.send("orders", replace(drafts(0, count, groups=groups), tiers=spread))
            for _ in range(150):
                delivery = await here.store.lease("orders", want=want, lease_ms=600_000)
                assert delivery is not None
                held = delivery.ids[-1]

            async def ask(held: str = held) -> None:
                message = await here.store.look("orders", held)
                assert message is not None
                assert message.place == "leased"
                assert (await here.store.receipts("orders", [held]))[0] is not None

            costs.append(await here.rows(ask))
            pages.append(await here.rows(lambda: here.store.live("orders", most=10)))
        assert costs[-1] <= costs[0] + 20, costs
        assert pages[-1] <= pages[0] + 20, pages


def count_little(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let few messages be much: what is more is counted behind those who ask, and now and then."""
    monkeypatch.setattr(queries, "COUNTED_MOST", 100)
    monkeypatch.setattr(queries, "COUNTED_EACH_TIME", 0)
    monkeypatch.setattr(queries, "COUNTED_PER_MS", 1)


async def test_a_description_costs_the_same_however_many_messages_there_are(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    count_little(monkeypatch)
    async with counted(server, QueueSettings()) as here:
        costs = []
        for _ in range(4):
            await here.store.send("orders", drafts(0))
            await here.store.send("orders", drafts(0, groups=True))
            await here.store.summaries(["orders"])
            costs.append(await here.rows(lambda: here.store.summaries(["orders"])))
        assert costs[-1] <= costs[0] + 20, costs


async def test_an_explanation_of_a_message_of_a_group_costs_the_same_however_many_messages_wait(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    count_little(monkeypatch)
    async with counted(server, QueueSettings()) as here:
        costs = []
        for _ in range(4):
            for _ in range(2):
                await here.store.send("orders", drafts(0, groups=True))
            (first,) = (await here.store.peek("orders", most=1)).messages
            ask = partial(here.store.explain, "orders", first.id)
            await ask()
            costs.append(await here.rows(ask))
        assert costs[-1] <= 2 * costs[0], costs


def statements(store: PostgresStore) -> list[str]:
    """Note which statements a store makes from now on: the first line of each."""
    asked: list[str] = []
    read, call = store._database.read, store._database.call

    async def noted(text: bytes, values: Arguments = ()) -> list[Any]:
        asked.append(text.decode().partition("\n")[0])
        return await read(text, values)

    async def called(name: str, *values: Any) -> Any:
        asked.append(name)
        return await call(name, *values)

    store._database.read = noted  # type: ignore[method-assign]
    store._database.call = called  # type: ignore[method-assign]
    return asked


async def test_any_number_of_queues_is_described_by_one_statement(server: Server) -> None:
    async with counted(server, QueueSettings()) as here:
        queues = [f"queue-{number}" for number in range(20)]
        for queue in queues:
            await here.store.create(queue, QueueSettings())
            await here.store.send(queue, drafts(0, 2))
        asked = statements(here.store)
        assert len([each for each in await here.store.summaries(queues) if each]) == 20
        assert len(asked) == 1


async def test_a_step_of_a_redrive_costs_the_same_however_many_dead_letters_there_are(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As if so few took long to count.
    monkeypatch.setattr(operations, "COUNTED_EACH_TIME", 10)
    async with counted(server, QueueSettings(deliveries_max=1)) as here:
        costs = []
        for _ in range(4):
            await bury(here.store, 1_000)
            # What is left is counted now and then, and not at the next step.
            await here.store.redrive("orders.dead", RedriveOrder(most=1))
            costs.append(await here.rows(lambda: here.store.redrive("orders.dead", RedriveOrder(most=10))))
            delivery = await here.store.lease("orders", want=1_000)
            assert delivery is not None
            await here.store.ack("orders", delivery.receipts())
        assert costs[-1] <= 2 * costs[0], costs


async def test_a_search_for_a_text_reads_many_small_messages_at_once(server: Server) -> None:
    async with counted(server, QueueSettings(deliveries_max=1)) as here:
        await bury(here.store, 900)
        await here.store.send("orders.dead", Drafts(bodies=[b"the needle"], groups=[b"last"]))
        asked = statements(here.store)
        page = await here.store.peek("orders.dead", MessageFilter(text=b"needle"), most=10)
        assert [bytes(each.body) for each in page.messages] == [b"the needle"]
        assert len(asked) < 20, asked


async def test_a_lease_from_a_queue_of_groups_costs_the_same_however_many_messages_are_out(server: Server) -> None:
    async with counted(server, QueueSettings(deliveries_max=0)) as here:
        costs = []
        for _ in range(4):
            await here.store.send("orders", drafts(0, groups=True))
            for _ in range(9):
                await here.store.lease("orders", want=50, lease_ms=600_000)
            costs.append(await here.rows(lambda: here.store.lease("orders", want=1, lease_ms=600_000)))
        assert costs[-1] <= 2 * costs[0], costs


async def test_a_lease_from_a_queue_of_groups_costs_the_same_however_many_leases_are_out(server: Server) -> None:
    async with counted(server, QueueSettings(deliveries_max=0)) as here:
        costs = []
        for _ in range(3):
            groups = [b"g%d" % (number % 20) for number in range(700)]
            await here.store.send("orders", Drafts(bodies=[b"x"] * 700, groups=groups))
            for _ in range(60):
                await asyncio.gather(*(here.store.lease("orders", want=1, lease_ms=600_000) for _ in range(10)))
            costs.append(await here.rows(lambda: here.store.lease("orders", want=1, lease_ms=600_000)))
        assert costs[-1] <= 1.5 * costs[0], costs
        # Each holds 90 of 1,800: more than a tenth of the leases that are looked at, less than a tenth of all.
        assert (await here.store.counts("orders")).noisy_groups == 0


async def test_idle_queues_are_tidied_by_one_statement(server: Server) -> None:
    async with counted(server, QueueSettings(retention_ms=60_000, aging_ms=(0, 0, 9_000, 0, 0))) as here:
        asked = statements(here.store)
        counts = []
        for size in (5, 20):
            for number in range(size):
                queue = f"queue-{size}-{number}"
                await here.store.create(queue, QueueSettings(retention_ms=60_000, aging_ms=(0, 0, 9_000, 0, 0)))
                await here.store.send(queue, drafts(0, 2))
            # The first time those that are new are read.
            for _ in range(2):
                asked.clear()
                await here.store.tidy()
            counts.append(len(asked))
        assert counts[0] == counts[1] < 6, asked
        await here.store.send("orders", drafts(0, 2))
        asked.clear()
        await here.store.tidy()
        assert len(asked) == counts[0], "nothing is due"


async def test_thousands_of_queues_are_made_known_in_turns(server: Server) -> None:
    async with counted(server, QueueSettings()) as here:
        for number in range(60):
            await here.store.create(f"queue-{number}", QueueSettings(lease_ms=1_000 + number))
        url = here.store._database.settings.url
        database = PostgresSettings(url=url, may_lose=True)
        async with await PostgresStore.open(database, clock=SimClock(), dice=SystemDice(), has_upkeep=False) as other:
            with lines_counted() as steps:
                await other.tidy()
            found = [known.name async for queues in other._cache.pages() for known in queues]
    assert len(found) == 61
    assert steps.longest < steps.total / 2, steps.culprit
