"""A connection that breaks leaves in doubt what was done; the store finds out, and nothing is done twice."""

import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest

from penstock.core.message import Drafts, Sender
from penstock.core.settings import QueueSettings
from penstock.store.interface import Outcome
from penstock.store.postgres.store import PostgresStore
from tests.postgres.cutting import Wire, wire
from tests.postgres.schemas import empty_schema, shared_settings
from tests.simulation.clock import SimClock, SimDice

pytestmark = pytest.mark.real_time


@asynccontextmanager
async def store_on_a_wire() -> AsyncIterator[tuple[PostgresStore, Wire]]:
    settings = empty_schema()
    # Short, since the path of a Unix socket may have about a hundred characters.
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        async with wire(settings.url, Path(folder)) as (laid, url):
            store = await PostgresStore.open(
                replace(settings, url=url), clock=SimClock(), dice=SimDice(), may_migrate=False, has_upkeep=False
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
        assert await store.release("orders", held, delay_ms=0, error="no") == [Outcome.DONE] * 2
        again = await store.lease("orders", want=10)
        assert again is not None
        laid.cut_next_answer()
        assert await store.ack("orders", again.receipts()) == [Outcome.DONE] * 2
        assert laid.cuts == 3
        assert (await store.counts("orders")).live == 0


async def test_a_lease_that_nobody_heard_of_is_given_back_and_not_counted() -> None:
    async with store_on_a_wire() as (store, laid):
        await store.send("orders", Drafts(bodies=[b"a", b"b"]))
        await store.counts("orders")
        laid.cut_next_answer()
        delivery = await store.lease("orders", want=2)
        assert delivery is not None
        assert laid.cuts == 1
        assert list(delivery.deliveries) == [1, 1]
        assert (await store.counts("orders")).leased == 2


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
