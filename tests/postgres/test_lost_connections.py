"""A connection that breaks leaves in doubt what was done; the store finds out, and nothing is done twice."""

import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest

from penstock.contract.queue_settings import QueueSettings
from penstock.core.queue.message import Drafts, Sender
from penstock.store.interface import EscalationOrder, Outcome, RedriveOrder, Release
from penstock.store.postgres.database import Timing
from penstock.store.postgres.store import PostgresStore
from tests.postgres.cutting import Wire, wire
from tests.postgres.schemas import empty_schema, shared_settings
from tests.postgres.waiting import until_waited_for
from tests.simulation.clock import SimClock, SimDice

pytestmark = pytest.mark.real_time


# However long a busy machine takes: the servers here come back.
PATIENT = Timing(settle_s_max=600.0)


@asynccontextmanager
async def store_on_a_wire() -> AsyncIterator[tuple[PostgresStore, Wire]]:
    settings = empty_schema()
    # Short, since the path of a Unix socket may have about a hundred characters.
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        async with wire(settings.url, Path(folder)) as (laid, url):
            # A call that a busy machine delays is not asked after: what is cut is the answer to the call itself.
            on_wire = replace(settings, url=url, silence_s=600, timing=PATIENT)
            store = await PostgresStore.open(
                on_wire, clock=SimClock(), dice=SimDice(), may_migrate=False, has_upkeep=False
            )
            async with store:
                await store.create("orders", QueueSettings())
                yield store, laid


async def test_a_send_whose_answer_is_lost_was_made_once() -> None:
    async with store_on_a_wire() as (store, laid):
        await store.send("orders", Drafts(bodies=[b"before"]))
        laid.cut_next_answer()
        ids = await store.send("orders", Drafts(bodies=[b"a", b"b"]))
        assert laid.cuts == 1
        assert (await store.counts("orders")).live == 3
        delivery = await store.lease("orders", want=10)
        assert delivery is not None
        assert list(delivery.ids)[1:] == list(ids)


async def test_a_send_that_never_arrived_is_made_all_the_same() -> None:
    async with store_on_a_wire() as (store, laid):
        await store.send("orders", Drafts(bodies=[b"before"]))
        laid.cut_next_question()
        await store.send("orders", Drafts(bodies=[b"a"], groups=[b"g"]))
        assert laid.cuts == 1
        assert (await store.counts("orders")).live == 2


async def test_a_sender_is_answered_as_if_nothing_had_broken() -> None:
    async with store_on_a_wire() as (store, laid):
        await store.send("orders", Drafts(bodies=[b"before"]))
        laid.cut_next_answer()
        ids = await store.send("orders", Drafts(bodies=[b"a"]), sender=Sender(7, 0, 1))
        assert await store.send("orders", Drafts(bodies=[b"a"]), sender=Sender(7, 0, 1)) == ids
        assert (await store.counts("orders")).live == 2


async def test_an_ack_whose_answer_is_lost_is_done_and_not_stale() -> None:
    async with store_on_a_wire() as (store, laid):
        await store.send("orders", Drafts(bodies=[b"a", b"b", b"c"]))
        delivery = await store.lease("orders", want=10)
        assert delivery is not None
        laid.cut_next_answer()
        assert await store.ack("orders", list(delivery.receipts())[:1]) == [Outcome.DONE]
        held = [receipt for receipt in delivery.receipts() if receipt.row > 0]
        laid.cut_next_answer()
        assert await store.release("orders", held, Release(delay_ms=0, error="no")) == [Outcome.DONE] * 2
        again = await store.lease("orders", want=10)
        assert again is not None
        laid.cut_next_answer()
        assert await store.ack("orders", again.receipts()) == [Outcome.DONE] * 2
        assert laid.cuts == 3
        assert (await store.counts("orders")).live == 0


async def test_what_a_server_did_before_it_was_restarted_is_found_out_when_it_is_back() -> None:
    async with store_on_a_wire() as (store, laid):
        await store.send("orders", Drafts(bodies=[b"a", b"b"]))
        delivery = await store.lease("orders", want=1)
        assert delivery is not None
        for call in (store.send("orders", Drafts(bodies=[b"c"])), store.ack("orders", list(delivery.receipts()))):
            laid.cut_next_answer()
            laid.refuse_next_connections(3)
            result = await call
        assert result == [Outcome.DONE]
        assert laid.cuts == 2
        assert (await store.counts("orders")).live == 2


async def test_a_lease_whose_answer_was_lost_is_given_back_and_not_counted() -> None:
    async with store_on_a_wire() as (store, laid):
        await store.send("orders", Drafts(bodies=[b"a", b"b"]))
        await store.counts("orders")
        laid.cut_next_answer()
        delivery = await store.lease("orders", want=2)
        assert delivery is not None
        assert laid.cuts == 1
        assert list(delivery.deliveries) == [1, 1]
        assert (await store.counts("orders")).leased == 2


async def test_a_queue_whose_answer_was_lost_is_made_once() -> None:
    async with store_on_a_wire() as (store, laid):
        laid.cut_next_commits()
        await store.create("letters", QueueSettings(lease_ms=7_000))
        laid.cut_next_commits()
        await store.change("letters", QueueSettings(lease_ms=9_000))
        assert laid.cuts == 2
        assert (await store.describe("letters")).settings.lease_ms == 9_000
        laid.cut_next_commits()
        assert (await store.delete("letters")).dead_letters is None
        assert laid.cuts == 3
        assert "letters" not in await store.queues()


async def test_what_was_done_to_queues_before_a_restart_is_found_out_when_the_server_is_back() -> None:
    async with store_on_a_wire() as (store, laid):
        await store.send("orders", Drafts(bodies=[b"a", b"b"]))

        def restart() -> None:
            laid.cut_next_commits()
            laid.refuse_next_connections(3)

        restart()
        await store.create("letters", QueueSettings(lease_ms=7_000))
        restart()
        await store.change("letters", QueueSettings(lease_ms=9_000))
        restart()
        assert await store.purge("orders") == 2
        restart()
        assert not (await store.delete("letters")).is_deleted
        assert laid.cuts == 4
        assert await store.queues() == ["orders"]


async def test_what_never_arrived_is_done_to_a_queue_when_the_server_is_back() -> None:
    async with store_on_a_wire() as (store, laid):
        await store.send("orders", Drafts(bodies=[b"a", b"b"]))
        laid.cut_next_question()
        laid.refuse_next_connections(3)
        assert await store.purge("orders") == 2


async def test_what_operators_decide_is_answered_as_if_nothing_had_broken() -> None:
    async with store_on_a_wire() as (store, laid):
        await store.change("orders", QueueSettings(deliveries_max=1))
        ids = list(await store.send("orders", Drafts(bodies=[b"a", b"b", b"c"])))
        laid.cut_next_commits()
        assert await store.escalate("orders", ids[:1], EscalationOrder(tier=0, actor="ada", reason="")) == [
            Outcome.DONE
        ]
        assert len(await store.audit("orders", most=10)) == 1, "it was written down once"
        delivery = await store.lease("orders", want=1)
        assert delivery is not None
        await store.release("orders", delivery.receipts(), Release(is_rejected=True))
        await store.tidy()
        laid.cut_next_commits()
        moved = await store.redrive("orders.dead", RedriveOrder(most=10))
        assert (moved.moved, moved.remaining) == ({"orders": ids[:1]}, 0)
        laid.cut_next_commits()
        assert await store.purge("orders") == 3
        assert laid.cuts == 3


async def test_a_queue_is_deleted_with_its_dead_letters_or_not_at_all() -> None:
    async with store_on_a_wire() as (store, laid):
        await store.create("orders.dead", QueueSettings(deliveries_max=0))
        with psycopg.connect(shared_settings().url) as connection:
            # The dead letters change under its hands: a deletion of both finds that out at the second.
            connection.execute("SELECT number FROM penstock.queue WHERE name = 'orders.dead' FOR UPDATE")
            async with asyncio.TaskGroup() as tasks:
                deleting = tasks.create_task(store.delete("orders", with_dead_letters=True))
                await until_waited_for(connection)
                assert sorted(await store.queues()) == ["orders", "orders.dead"]
                connection.rollback()
            assert deleting.result().is_deleted
        assert await store.queues() == []
        await store.create("orders", QueueSettings())
        await store.create("orders.dead", QueueSettings(deliveries_max=0))
        laid.cut_next_commits()
        remains = await store.delete("orders", with_dead_letters=True)
        assert (remains.dead_letters, remains.is_deleted) == ("orders.dead", True)
        assert await store.queues() == []


async def test_a_store_goes_on_when_all_its_connections_were_ended() -> None:
    async with store_on_a_wire() as (store, _):
        await asyncio.gather(*[store.send("orders", Drafts(bodies=[b"a"])) for _ in range(5)])
        for _ in range(2):
            with psycopg.connect(shared_settings().url, autocommit=True) as connection:
                connection.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                    "WHERE datname = current_database() AND pid <> pg_backend_pid()"
                )
            delivery = await store.lease("orders", want=2)
            assert delivery is not None
            assert len(delivery) == 2
            assert await store.ack("orders", delivery.receipts()) == [Outcome.DONE] * 2
        await store.send("orders", Drafts(bodies=[b"b"]))
        assert (await store.counts("orders")).live == 2
