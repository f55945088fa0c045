"""Redrives of several servers on one database: seen by all, stopped by any, run by one, and never left half way."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace

import psycopg
import pytest

from penstock.broker.queues import open_queues
from penstock.broker.redrives import RedriveRequest, Redrives, State, TaskNotFound, Timing, TooManyRedrives
from penstock.contract.limits import REDRIVES_KEPT_MAX, REDRIVES_MAX
from penstock.contract.queue_settings import QueueSettings
from penstock.core.queue.message import Drafts
from penstock.core.routes import Routes
from penstock.runtime.memory import memory_runtime
from penstock.store.interface import LOST_MS, KeptRedrives, MessageFilter, Release
from penstock.store.placement import RoutedRedrives
from penstock.store.postgres.database import PostgresSettings
from penstock.store.postgres.store import PostgresStore
from tests.postgres.maps import opened
from tests.postgres.schemas import empty_schema
from tests.simulation.clock import SimClock, SimDice
from tests.waiting import eventually

pytestmark = pytest.mark.real_time

DEAD = "orders.dead"
# One goes at once, and the next a thousand seconds later.
SLOWLY = RedriveRequest(rate_per_s=0.001)


# All that are to stop here do, however busy the machine is.
OFTEN = Timing(beat_s=0.01, look_s=0.01, stop_s_max=60.0)


class Servers:
    """What servers on one database have of their own, at one time that stands still."""

    def __init__(self, settings: PostgresSettings, closing: AsyncExitStack) -> None:
        self.settings = settings
        self.clock = SimClock()
        self._closing = closing
        self._seeds = iter(range(100))

    async def store(self) -> PostgresStore:
        store = await PostgresStore.open(
            replace(self.settings, connections_max=3),
            clock=self.clock,
            dice=SimDice(next(self._seeds)),
            may_migrate=False,
            has_upkeep=False,
        )
        return await self._closing.enter_async_context(store)

    @asynccontextmanager
    async def server(self, *, takes_over: bool = True, timing: Timing = OFTEN) -> AsyncIterator[Redrives]:
        """One that stops in good order."""
        store, runtime = await self.store(), memory_runtime()
        redrives = Redrives(store, runtime, kept=store.redrives, takes_over=takes_over, timing=timing)
        async with open_queues(store, runtime, is_tidied=True, redrives=redrives):
            yield redrives

    async def vanishing(self) -> tuple[Redrives, Callable[[], None]]:
        """One that goes on until it is cut off, without an answer."""
        begun: asyncio.Future[Redrives] = asyncio.get_running_loop().create_future()

        async def serve() -> None:
            async with self.server() as redrives:
                begun.set_result(redrives)
                await asyncio.Event().wait()

        serving = await self._closing.enter_async_context(asyncio.TaskGroup())
        task = serving.create_task(serve())
        return await begun, lambda: _cut_off(task)

    async def bury(self, count: int) -> PostgresStore:
        """Have dead letters of `orders`."""
        store = await self.store()
        await bury(store, count)
        return store


def _cut_off(task: asyncio.Task[None]) -> None:
    task.cancel()


async def bury(store: PostgresStore, count: int) -> None:
    await store.create("orders", QueueSettings(deliveries_max=1))
    await store.send("orders", Drafts(bodies=[b"a"] * count))
    delivery = await store.lease("orders", want=count)
    assert delivery is not None
    await store.release("orders", delivery.receipts(), Release(is_rejected=True))
    while (await store.counts("orders")).live:
        await store.tidy()


@asynccontextmanager
async def servers() -> AsyncIterator[Servers]:
    async with AsyncExitStack() as closing:
        yield Servers(empty_schema(), closing)


async def moved(redrives: Redrives, task_id: str, count: int) -> None:
    """Return when a redrive has moved so many, as a server sees it."""

    async def has_moved() -> bool:
        return (await redrives.look(DEAD, task_id)).moved_total >= count

    await eventually(has_moved)


async def ended(redrives: Redrives, task_id: str) -> State:
    async def has_ended() -> bool:
        return (await redrives.look(DEAD, task_id)).ended_at_ms is not None

    await eventually(has_ended)
    return (await redrives.look(DEAD, task_id)).state


async def test_every_server_of_a_database_sees_a_redrive_and_how_far_it_is() -> None:
    async with servers() as here:
        await here.bury(3)
        async with here.server() as first, here.server() as second:
            order = replace(SLOWLY, filter=MessageFilter(text=b"a", error=""), most=3)
            task = await first.begin(DEAD, order)
            await moved(second, task.id, 1)
            (seen,) = await second.all_of(DEAD)
            assert (seen.id, seen.order, seen.state) == (task.id, task.order, State.RUNNING)
            assert (seen.moved, seen.remaining, seen.sample) == ({"orders": 1}, 2, task.sample)
            assert second.of(DEAD) == []
            assert await second.all_of("orders") == []
            with pytest.raises(TaskNotFound):
                await second.look("orders", task.id)


async def test_a_redrive_is_stopped_from_any_server() -> None:
    async with servers() as here:
        await here.bury(3)
        async with here.server() as first, here.server() as second:
            task = await first.begin(DEAD, SLOWLY)
            await moved(second, task.id, 1)
            stopped = await second.end(await second.look(DEAD, task.id))
            assert (stopped.state, stopped.moved_total) == (State.STOPPED, 1)
            assert stopped.ended_at_ms is not None
            assert task.state is State.STOPPED
            # To stop it again is to stop it once.
            assert (await second.end(stopped)).state is State.STOPPED


async def test_a_redrive_whose_server_is_gone_is_taken_over_and_goes_on() -> None:
    async with servers() as here:
        store = await here.bury(5)
        first, cut_off = await here.vanishing()
        task = await first.begin(DEAD, SLOWLY)
        async with here.server() as second:
            await moved(second, task.id, 1)
            cut_off()
            # It may only be slow.
            assert await store.redrives.hold(runner=1, now_ms=store.now_ms() + LOST_MS, takes_over=True) == []
            here.clock.advance_ms(LOST_MS + 1)
            await moved(second, task.id, 2)
            assert second.find(DEAD, task.id).state is State.RUNNING
            assert (await store.counts("orders")).live == 2


async def test_a_redrive_goes_on_at_once_after_a_restart_and_keeps_to_its_limit() -> None:
    async with servers() as here:
        store = await here.bury(5)
        async with here.server() as first:
            task = await first.begin(DEAD, replace(SLOWLY, most=3))
            await moved(first, task.id, 1)
        for count in (2, 3):
            async with here.server() as again:
                await moved(again, task.id, count)
        async with here.server() as last:
            assert await ended(last, task.id) is State.DONE
            assert (await last.look(DEAD, task.id)).moved == {"orders": 3}
        assert (await store.counts(DEAD)).live == 2


async def test_of_many_servers_one_takes_a_redrive_over() -> None:
    async with servers() as here:
        stores = [await here.bury(2), *[await here.store() for _ in range(3)]]
        async with here.server() as first:
            task = await first.begin(DEAD, SLOWLY)
            await moved(first, task.id, 1)
        now_ms = stores[0].now_ms()
        for _ in range(5):
            async with asyncio.TaskGroup() as tasks:
                taking = [
                    tasks.create_task(store.redrives.hold(runner=runner, now_ms=now_ms, takes_over=True))
                    for runner, store in enumerate(stores, start=1)
                ]
            assert sorted(len(each.result()) for each in taking) == [0, 0, 0, 1]
            now_ms += LOST_MS + 1


async def test_a_server_that_was_taken_for_gone_leaves_its_redrive_to_the_other() -> None:
    async with servers() as here:
        store = await here.bury(200)
        # It is not heard but when it notes a step.
        async with here.server(takes_over=False, timing=replace(OFTEN, beat_s=3_600)) as first:
            task = await first.begin(DEAD, RedriveRequest(rate_per_s=5))
            await moved(first, task.id, 1)
            held = await eventually(lambda: store.redrives.hold(runner=1, now_ms=2**60, takes_over=True))
            assert task.running is not None
            await asyncio.wait([task.running])
            # At most the step it was in has gone beyond what the other one was told.
            (kept,) = await first.all_of(DEAD)
            assert (kept.id, kept.state) == (held[0].id, State.RUNNING)
            assert (await store.counts("orders")).live - kept.moved_total in (0, 1)
            with pytest.raises(TaskNotFound):
                first.find(DEAD, task.id)


async def test_who_has_not_been_heard_for_long_asks_before_the_next_step() -> None:
    async with servers() as here:
        store = await here.bury(3)
        async with here.server(takes_over=False, timing=replace(OFTEN, beat_s=3_600)) as first:
            task = await first.begin(DEAD, RedriveRequest())
            # As a machine that stands still for a while: nothing else runs here until another one has it.
            here.clock.advance_ms(LOST_MS + 1)
            with psycopg.connect(here.settings.url, autocommit=True) as connection:
                connection.execute("UPDATE penstock.redrive SET runner = 1")
            assert task.running is not None
            await asyncio.wait([task.running])
            assert (await first.look(DEAD, task.id)).state is State.RUNNING
            assert (await store.counts(DEAD)).live == 3


async def test_a_redrive_without_a_server_is_stopped_by_any_server() -> None:
    async with servers() as here:
        await here.bury(3)
        async with here.server() as first:
            task = await first.begin(DEAD, SLOWLY)
            await moved(first, task.id, 1)
        # A program goes on with nothing that others began.
        async with here.server(takes_over=False) as program:
            assert (await program.look(DEAD, task.id)).state is State.RUNNING
            stopped = await program.end(await program.look(DEAD, task.id))
            assert (stopped.state, stopped.moved_total) == (State.STOPPED, 1)


async def test_a_step_that_the_database_does_not_note_is_noted_later() -> None:
    async with servers() as here:
        await here.bury(4)
        async with here.server() as first, here.server() as second:
            task = await first.begin(DEAD, RedriveRequest(rate_per_s=20))
            with psycopg.connect(here.settings.url, autocommit=True) as connection:
                # Nothing else runs here until it is away: it has not made a step.
                connection.execute("ALTER TABLE penstock.redrive RENAME TO away")
                await eventually(lambda: task.moved_total)
                connection.execute("ALTER TABLE penstock.away RENAME TO redrive")
            assert await ended(second, task.id) is State.DONE
            assert (await second.look(DEAD, task.id)).moved == {"orders": 4}


async def test_only_so_many_run_on_one_database_and_only_so_many_are_remembered() -> None:
    rows = """
        INSERT INTO penstock.redrive (id, queue, ordered, state, progress, started_at_ms, ended_at_ms, heard_at_ms)
        SELECT 'r_' || place, %(queue)s, '{}', %(state)s,
               '{"moved": {}, "sample": [], "without_origin": 0, "remaining": null, "error": null, "not_allowed": 0}',
               place, CASE WHEN %(state)s = 'done' THEN place END, 0
        FROM generate_series(%(first)s::int, %(last)s::int) AS rows (place)
    """
    async with servers() as here:
        await here.bury(2)
        async with here.server(takes_over=False) as first:
            with psycopg.connect(here.settings.url, autocommit=True) as connection:
                done = {"queue": DEAD, "state": "done", "first": 1, "last": REDRIVES_KEPT_MAX + 5}
                connection.execute(rows, done)
                running = {"queue": "letters.dead", "state": "running", "first": 2_001, "last": 2_000 + REDRIVES_MAX}
                connection.execute(rows, running)
                with pytest.raises(TooManyRedrives):
                    await first.begin(DEAD, RedriveRequest())
                connection.execute("DELETE FROM penstock.redrive WHERE id = 'r_2001'")
            task = await first.begin(DEAD, RedriveRequest())
            listed = await first.all_of(DEAD)
            assert [each.id for each in listed] == [task.id, *(f"r_{nth}" for nth in range(1_005, 5, -1))]


async def test_a_redrive_is_kept_in_the_database_of_its_queue() -> None:
    databases = [empty_schema(0), empty_schema(1)]
    async with opened(f"orders*={databases[1].url},*={databases[0].url}", may_migrate=False) as (store, stores, places):
        (other, own), routes = (stores[place] for place in (places[1], places[0])), Routes(["orders*", "*"], places)
        await bury(own, 3)
        kept: KeptRedrives = RoutedRedrives([each.redrives for each in stores], routes)
        runtime = memory_runtime()
        first, second = (Redrives(store, runtime, kept=kept, takes_over=True, timing=OFTEN) for _ in range(2))
        async with (
            open_queues(store, runtime, is_tidied=True, redrives=second),
            open_queues(store, runtime, is_tidied=True, redrives=first),
        ):
            task = await first.begin(DEAD, SLOWLY)
            await moved(second, task.id, 1)
            assert [each.id for each in await own.redrives.of(DEAD)] == [task.id]
            assert await other.redrives.of(DEAD) == []
            first.stop()
            await moved(second, task.id, 2)
            assert (await second.end(second.find(DEAD, task.id))).state is State.STOPPED
