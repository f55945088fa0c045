"""Several stores on one database, as several servers have them: they agree on queues, messages and the time."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import psycopg
import pytest

from penstock.contract.limits import LEASE_BYTES_MAX
from penstock.contract.queue_settings import QueueSettings
from penstock.core.queue.message import Drafts
from penstock.store.errors import QueueNotFound
from penstock.store.interface import Outcome
from penstock.store.postgres.database import TIMING, PostgresSettings, Timing
from penstock.store.postgres.store import PostgresStore
from tests.postgres.schemas import empty_schema, until_alone
from tests.postgres.waiting import until_waited_for
from tests.simulation.clock import SimClock, SimDice
from tests.waiting import eventually, let_others_run

pytestmark = pytest.mark.real_time


class Together:
    def __init__(self, settings: PostgresSettings) -> None:
        self.settings = settings
        self.clock = SimClock()
        self.stores: list[PostgresStore] = []

    async def store(self, *, clock: SimClock | None = None, has_upkeep: bool = False) -> PostgresStore:
        store = await PostgresStore.open(
            replace(self.settings, connections_max=3),
            clock=clock or self.clock,
            # No two of them ever roll the same: by that, their calls are told apart.
            dice=SimDice(len(self.stores)),
            may_migrate=False,
            has_upkeep=has_upkeep,
        )
        self.stores.append(store)
        return store


@asynccontextmanager
async def together(timing: Timing = TIMING) -> AsyncIterator[Together]:
    found = Together(replace(empty_schema(), timing=timing))
    try:
        yield found
    finally:
        for store in found.stores:
            await store.close()


async def test_what_one_store_does_to_a_queue_the_others_know_at_once() -> None:
    async with together() as here:
        first, second = await here.store(), await here.store()
        await first.create("orders", QueueSettings())
        await second.send("orders", Drafts(bodies=[b"a"] * 3))
        await first.change("orders", QueueSettings(lease_ms=1_000))
        delivery = await second.lease("orders", want=1)
        assert delivery is not None
        assert delivery.until_ms == here.clock.now_ms() + 1_000
        await first.change("orders", QueueSettings(is_paused=True))
        assert await second.lease("orders", want=1) is None
        await first.delete("orders")
        with pytest.raises(QueueNotFound):
            await second.send("orders", Drafts(bodies=[b"a"]))
        await second.create("orders", QueueSettings(deliveries_max=7))
        assert (await first.describe("orders")).settings.deliveries_max == 7
        assert len(await first.send("orders", Drafts(bodies=[b"a"]))) == 1


async def test_messages_are_leased_to_one_worker_of_any_store_and_none_is_lost() -> None:
    async with together() as here:
        stores = [await here.store() for _ in range(3)]
        await stores[0].create("orders", QueueSettings())
        sent = [b"%d" % number for number in range(600)]
        acked: Counter[bytes] = Counter()

        async def send(store: PostgresStore, part: list[bytes]) -> None:
            for start in range(0, len(part), 20):
                tiers = bytes(number % 5 for number in range(20))
                await store.send("orders", Drafts(bodies=part[start : start + 20], tiers=tiers))

        async def work(store: PostgresStore) -> None:
            while acked.total() < len(sent):
                delivery = await store.lease("orders", want=7)
                if delivery is None:
                    await asyncio.sleep(0.005)  # Real time: the other workers have the rest, or its lease lapses.
                    continue
                outcomes = await store.ack("orders", delivery.receipts())
                assert outcomes == [Outcome.DONE] * len(delivery)
                acked.update(bytes(body) for body in delivery.bodies)

        async with asyncio.TaskGroup() as tasks:
            for nth, store in enumerate(stores):
                tasks.create_task(send(store, sent[nth::3]))
                tasks.create_task(work(store))
                tasks.create_task(work(store))
        assert acked == Counter(sent)


class Line:
    """Groups of a FIFO queue, what came out of each, and which are being worked on."""

    def __init__(self, *groups: bytes) -> None:
        self.found: dict[bytes, list[int]] = {group: [] for group in groups}
        self.busy: set[bytes] = set()

    async def send(self, store: PostgresStore) -> None:
        for number in range(20):
            await store.send("line", Drafts(bodies=[b"%d" % number] * 3, groups=list(self.found)))

    async def work(self, store: PostgresStore) -> None:
        while sum(map(len, self.found.values())) < 60:
            delivery = await store.lease("line", want=2)
            if delivery is None:
                await asyncio.sleep(0.005)  # Real time: the other workers have the first of each group.
                continue
            assert delivery.groups is not None
            groups = set(delivery.groups)
            assert not groups & self.busy
            self.busy |= groups
            await let_others_run()
            for group, body in zip(delivery.groups, delivery.bodies, strict=True):
                self.found[group].append(int(bytes(body)))
            self.busy -= groups
            await store.ack("line", delivery.receipts())


async def test_a_group_in_order_is_held_by_one_worker_of_all_stores() -> None:
    async with together() as here:
        stores = [await here.store() for _ in range(2)]
        await stores[0].create("line", QueueSettings(is_fifo=True))
        line = Line(b"a", b"b", b"c")
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(line.send(stores[0]))
            for store in stores * 2:
                tasks.create_task(line.work(store))
        assert line.found == {group: list(range(20)) for group in line.found}


async def test_the_latest_clock_is_the_time_of_all_stores() -> None:
    async with together() as here:
        slow, fast = SimClock(), SimClock()
        fast.advance_ms(60_000)
        first = await here.store(clock=fast)
        second = await here.store(clock=slow)
        assert second.now_ms() == first.now_ms() == fast.now_ms()
        await second.create("orders", QueueSettings())
        await second.send("orders", Drafts(bodies=[b"a"]))
        delivery = await second.lease("orders", want=1, lease_ms=1_000)
        assert delivery is not None
        assert delivery.until_ms == fast.now_ms() + 1_000


async def test_leases_begin_again_only_for_the_first_store_to_come_and_only_once() -> None:
    async with together() as here:
        first = await here.store()
        await first.create("orders", QueueSettings())
        await first.send("orders", Drafts(bodies=[b"a"]))
        await first.lease("orders", want=1, lease_ms=10_000)
        here.clock.advance_ms(9_000)
        second = await here.store()
        here.clock.advance_ms(1_000)
        delivery = await second.lease("orders", want=1, lease_ms=10_000)
        assert delivery is not None, "another store was there all the time"
        for lapses_at_ms in (9_000, 18_000):
            here.clock.advance_ms(9_000)
            for store in (first, second):
                await store.close()
            await until_alone(here.settings)
            first = second = await here.store()
            is_held = await second.lease("orders", want=1) is None
            assert is_held == (lapses_at_ms == 9_000), "a lease that never ended would never be worked on"
            if is_held:
                here.clock.advance_ms(1_001)


async def test_a_send_that_commits_late_is_not_passed_over() -> None:
    """A lease begins to look where the last one found something; what was numbered before that may come later."""
    async with together() as here:
        store = await here.store()
        await store.create("orders", QueueSettings())
        known = await store._cache.get("orders")
        call = b"SELECT penstock.send_plain(%s::int, %s::bigint, %s::bigint, 2::smallint, %s, NULL, NULL, NULL)"
        async with await psycopg.AsyncConnection.connect(here.settings.url) as late:
            await late.execute(call, (known.number, known.version, here.clock.now_ms(), [b"late"]))
            for _ in range(5):
                await store.send("orders", Drafts(bodies=[b"soon"] * 2))
                delivery = await store.lease("orders", want=2)
                assert delivery is not None
                await store.ack("orders", delivery.receipts())
            assert known.bounds.lowest[2] == 0
            await late.commit()
        await store.send("orders", Drafts(bodies=[b"soon"]))
        delivery = await store.lease("orders", want=1)
        assert delivery is not None
        assert bytes(delivery.bodies[0]) == b"late"


async def test_a_send_that_is_rolled_back_leaves_an_unused_number() -> None:
    async with together() as here:
        store = await here.store()
        await store.create("orders", QueueSettings())
        known = await store._cache.get("orders")
        call = b"SELECT penstock.send_plain(%s::int, %s::bigint, %s::bigint, 2::smallint, %s, NULL, NULL, NULL)"
        async with await psycopg.AsyncConnection.connect(here.settings.url) as undone:
            await undone.execute(call, (known.number, known.version, here.clock.now_ms(), [b"undone"]))
            await undone.rollback()
        await store.send("orders", Drafts(bodies=[b"a"]))
        page = await store.live("orders", most=10)
        assert (list(page.number), page.next_numbers[2]) == ([1], 2)
        assert page.may_skip_numbers


async def test_a_lease_begins_to_look_behind_what_was_leased_before() -> None:
    async with together() as here:
        store = await here.store()
        await store.create("orders", QueueSettings())
        known = await store._cache.get("orders")
        for _ in range(6):
            await store.send("orders", Drafts(bodies=[b"a"] * 10))
            delivery = await store.lease("orders", want=10)
            assert delivery is not None
            await store.ack("orders", delivery.receipts())
        assert known.bounds.lowest[2] >= 20


async def test_what_a_lease_puts_back_is_found_by_the_next_one() -> None:
    """Others pass over what a running lease has taken, and must not begin to look behind it."""
    async with together() as here:
        store = await here.store()
        await store.create("orders", QueueSettings())
        await store.send("orders", Drafts(bodies=[b"%d" % number for number in range(1, 10)]))
        found: list[bytes] = []
        for _ in range(3):
            async with await psycopg.AsyncConnection.connect(here.settings.url) as running:
                if found:
                    await running.execute("DELETE FROM penstock.ready WHERE body = '3'")
                delivery = await store.lease("orders", want=2)
                assert delivery is not None
                found += [bytes(body) for body in delivery.bodies]
                await running.rollback()
        assert found == [b"1", b"2", b"4", b"5", b"6", b"7"]
        delivery = await store.lease("orders", want=2)
        assert delivery is not None
        assert [bytes(body) for body in delivery.bodies] == [b"3", b"8"]


async def test_a_store_elsewhere_is_woken_by_a_send() -> None:
    async with together() as here:
        first, second = await here.store(has_upkeep=True), await here.store(has_upkeep=True)
        await first.create("orders", QueueSettings())
        woken = asyncio.Event()
        second.watch(lambda queue: woken.set() if queue == "orders" else None)
        await asyncio.sleep(0.1)  # Real time: nothing announces that no older notification is on its way.
        woken.clear()
        await first.send("orders", Drafts(bodies=[b"a"]))
        async with asyncio.timeout(60):
            await woken.wait()


async def test_of_all_stores_one_is_the_leader_and_there_is_soon_another() -> None:
    async with together() as here:
        first, second = await here.store(), await here.store()
        assert await first._leadership._leads()
        assert not await second._leadership._leads()
        await first.close()
        # The database notices by itself that the first one has gone.
        await eventually(second._leadership._leads)


async def test_a_store_hears_of_sends_while_a_transaction_holds_up_its_upkeep() -> None:
    async with (
        together(Timing(beat_s=0.01)) as here,
        await psycopg.AsyncConnection.connect(here.settings.url) as holder,
    ):
        other = await here.store()
        await other.create("letters", QueueSettings(is_fifo=True))
        await other.create("orders", QueueSettings())
        await other.send("letters", Drafts(bodies=[b"a"], groups=[b"g"]))
        await other.lease("letters", want=1, lease_ms=1_000)
        await holder.execute("SELECT 1 FROM penstock.line FOR UPDATE")
        store, woken = await here.store(has_upkeep=True), asyncio.Event()
        store.watch(lambda name: woken.set() if name == "orders" else None)
        # The restarted lease expires, and its group is held.
        here.clock.advance_ms(2_000)
        await until_waited_for(holder)
        async with (
            asyncio.timeout(60),
            await psycopg.AsyncConnection.connect(here.settings.url, autocommit=True) as teller,
        ):
            await teller.execute("NOTIFY penstock, '0:orders'")
            await woken.wait()


async def test_messages_that_have_grown_still_fit_into_an_answer() -> None:
    """A lease takes the shortest way where messages were small the last time."""
    async with together() as here:
        store = await here.store()
        await store.create("orders", QueueSettings())
        await store.send("orders", Drafts(bodies=[b"small"] * 20))
        for _ in range(2):
            assert await store.lease("orders", want=10) is not None
        for _ in range(3):
            await store.send("orders", Drafts(bodies=[bytes(900_000)] * 10))
        delivery = await store.lease("orders", want=1_000)
        assert delivery is not None
        assert 15 * 900_000 < sum(map(len, delivery.bodies)) <= LEASE_BYTES_MAX
