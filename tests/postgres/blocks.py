"""A store over an empty schema whose clock stands still, and how many blocks PostgreSQL looks at for a statement."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

import psycopg

from penstock.contract.queue_settings import QueueSettings
from penstock.core.queue.message import Drafts
from penstock.store.interface import Delivery
from penstock.store.postgres.database import TIMING, Database, Timing
from penstock.store.postgres.queue_cache import CachedQueue
from penstock.store.postgres.statements import function
from penstock.store.postgres.store import PostgresStore
from tests.postgres.schemas import empty_schema
from tests.simulation.clock import SimClock, SimDice

DEAD = 6_000
# A lease of ten, with a block or two for each row that it deletes and each index that it writes to.
BLOCKS_MOST = 400


class Stage:
    def __init__(self, store: PostgresStore, clock: SimClock, watcher: psycopg.AsyncConnection) -> None:
        self.store, self.clock, self.watcher = store, clock, watcher

    @property
    def url(self) -> str:
        return self.store._database.settings.url

    async def known(self) -> CachedQueue:
        return await self.store._cache.get("orders")

    async def send(self, count: int, *, groups: int = 10) -> None:
        names = [b"%d" % (number % groups) for number in range(count)]
        await self.store.send("orders", Drafts(bodies=[b""] * count, groups=names))

    async def lease(self, want: int, lease_ms: int = 60_000) -> Delivery:
        delivery = await self.store.lease("orders", want=want, lease_ms=lease_ms)
        assert delivery is not None
        return delivery

    async def serve(self, count: int, *, times: int = 6) -> None:
        """Send and settle as many, some times over, so that turns pass and bounds rise."""
        for _ in range(times):
            await self.send(count)
            delivery = await self.lease(count)
            assert len(delivery) == count
            await self.store.ack("orders", delivery.receipts())

    async def blocks(self, statement: str, values: Sequence[object] = ()) -> int:
        """How many blocks PostgreSQL looks at for a statement."""
        explained = f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {statement}"
        row = await (await self.watcher.execute(explained.encode(), values)).fetchone()
        assert row is not None
        plan = row[0][0]["Plan"]
        return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])

    async def blocks_of_a_lease(self) -> int:
        """The same for a lease of ten messages, asked for as the store would."""
        known, now_ms = await self.known(), self.store.now_ms()
        call = function("lease", "penstock")
        values = call.arguments([
            known.number, known.version, now_ms, 60_000, 1, 10, 1_000_000, False, [0, 0, 10, 0, 0], [2, 0, 1, 3, 4],
            known.bounds.lowest, known.turns, known.turn_bounds.lowest, False, known.settings.is_fifo, False, -1, 0,
            known.aging_ms, 1_000,
        ])  # fmt: skip
        return await self.blocks(call.text.decode(), values)


@asynccontextmanager
async def opened(queue: QueueSettings | None = None, *, timing: Timing = TIMING) -> AsyncIterator[Stage]:
    settings, clock = replace(empty_schema(), timing=timing), SimClock()
    store = await PostgresStore.open(settings, clock=clock, dice=SimDice(0), may_migrate=False, has_upkeep=False)
    async with store, await Database(settings).connect() as watcher:
        await store.create("orders", queue or QueueSettings(deliveries_max=0))
        yield Stage(store, clock, watcher)


@asynccontextmanager
async def pinned(stage: Stage) -> AsyncIterator[None]:
    """Hold a snapshot open, so that nothing that dies from now on is cleared away."""
    # What earlier tests have left is not meant.
    await stage.watcher.execute(
        "VACUUM penstock.marked, penstock.leased, penstock.lease, penstock.tenant, penstock.tenant_held, penstock.line"
    )
    async with await psycopg.AsyncConnection.connect(stage.url) as holder:
        await holder.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        await holder.execute("SELECT count(*) FROM penstock.marked")
        yield
