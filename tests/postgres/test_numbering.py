"""Queues of several databases never have one number, in whatever order they are opened."""

import asyncio

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.contract.queue_settings import QueueSettings
from penstock.core.queue.message import Drafts
from penstock.store.ids import parse_queue
from penstock.store.postgres.multi_database import RANGE_BITS, QueueNumbers, QueueNumbersOverlap, claims
from tests.postgres.maps import opened
from tests.postgres.servers import shared_server
from tests.simulation.clock import SimDice

pytestmark = pytest.mark.real_time


def _empty(number: int = 0, *, is_claimed: bool = False) -> QueueNumbers:
    return QueueNumbers(number, is_claimed, None)


def _used(number: int = 0, *, count: int = 7) -> QueueNumbers:
    return QueueNumbers(number, True, (number << RANGE_BITS) + count)


numberings = st.builds(
    lambda number, is_claimed, is_used: _used(number) if is_used else _empty(number, is_claimed=is_claimed),
    st.integers(0, 4),
    st.booleans(),
    st.booleans(),
)


@given(st.lists(numberings, min_size=1, max_size=6))
def test_every_database_of_a_map_has_a_range_of_its_own(found: list[QueueNumbers]) -> None:
    used = [each.range for each in found if each.has_queues]
    if len(set(used)) < len(used):
        with pytest.raises(QueueNumbersOverlap, match="use the same queue ids"):
            claims(found)
        return
    wanted = claims(found)
    assert len(set(wanted)) == len(found)
    assert all(after == before.range for after, before in zip(wanted, found, strict=True) if before.has_queues)
    # Once they are claimed, another order of the map and another database in it change nothing.
    after = [each._replace(range=number, is_claimed=True) for each, number in zip(found, wanted, strict=True)]
    assert claims(after[::-1]) == wanted[::-1]
    assert claims([_empty(), *after])[1:] == wanted


def test_a_database_with_too_many_numbers_stays_alone() -> None:
    with pytest.raises(QueueNumbersOverlap, match=r"database 2 .* serve it by itself"):
        claims([_used(1), _used(0, count=1 << RANGE_BITS)])


async def test_servers_that_open_a_map_at_once_agree_on_its_numbers() -> None:
    a, b = shared_server().new_database(), shared_server().new_database()
    orders = [f"orders.*={a},*={b}", f"mail={b},*={a}"]
    dice = [SimDice(seed) for seed in range(4)]

    async def open_and_create(number: int) -> list[int]:
        async with opened(orders[number % 2], dice=dice[number]) as map_of:
            await map_of.placement.create(f"mail{number}", QueueSettings())
            return map_of.ranges if number % 2 == 0 else map_of.ranges[::-1]

    found = await asyncio.gather(*map(open_and_create, range(4)))
    assert sorted(found[0]) == [0, 1]
    assert found == [found[0]] * 4
    async with opened(f"x={a},*={b}") as map_of:
        numbers = [
            parse_queue((await store.describe(name)).id) for store in map_of.stores for name in await store.queues()
        ]
    assert len(set(numbers)) == len(numbers) == 4


async def test_ids_of_two_databases_differ_and_stay() -> None:
    a, b, c = (shared_server().new_database() for _ in range(3))
    async with opened(f"orders={a},*={b}") as map_of:
        assert (map_of.places, map_of.ranges) == ([0, 1], [0, 1])
        for name in ("orders", "mail"):
            await map_of.placement.create(name, QueueSettings())
        ids = [
            (await map_of.placement.of(name).describe(name)).id
            + (await map_of.placement.of(name).send(name, Drafts(bodies=[b"a"])))[0]
            for name in ("orders", "mail")
        ]
        assert ids == ["q_11-2", "q_10000011000001-2"]
        assert await map_of.placement.name("q_1000001") == "mail"
    # Another order, another name of a database, and one more of them.
    async with opened(f"lamps={c},*={b},orders={a},x={a}&application_name=other") as map_of:
        assert (map_of.places, map_of.ranges) == ([0, 1, 2, 2], [2, 1, 0])
        assert await map_of.placement.name("q_1000001") == "mail"
        assert [span.shard for span in await map_of.placement.history_shards()] == [0, 1, 2]
        await map_of.placement.create("lamps", QueueSettings())
        assert (await map_of.placement.of("lamps").describe("lamps")).id == "q_2000001"
        await map_of.placement.create("mail2", QueueSettings())
        assert (await map_of.placement.of("mail2").describe("mail2")).id == "q_1000002"
        assert (await map_of.placement.of("mail2").live("mail2", most=1)).shard == 1


async def test_databases_that_were_used_apart_are_refused() -> None:
    a, b = shared_server().new_database(), shared_server().new_database()
    for url in (a, b):
        async with opened(f"*={url}") as map_of:
            assert map_of.ranges == [0]
            await map_of.placement.create("orders", QueueSettings())
    with pytest.raises(QueueNumbersOverlap, match="databases 1 and 2 of the map use the same queue ids"):
        async with opened(f"orders={a},*={b}"):
            pass
    with psycopg.connect(b) as connection:
        connection.execute("DROP SCHEMA penstock CASCADE")
    async with opened(f"orders={a},*={b}") as map_of:
        assert map_of.ranges == [0, 1]


async def test_no_queue_is_made_beyond_the_range_of_its_database() -> None:
    a, b = shared_server().new_database(), shared_server().new_database()
    async with opened(f"orders={a},*={b}") as map_of:
        await map_of.placement.create("mail", QueueSettings())
        with psycopg.connect(b) as connection:
            connection.execute("SELECT setval('penstock.queue_number', %s)", ((2 << RANGE_BITS) - 1,))
        with pytest.raises(psycopg.errors.ProgramLimitExceeded, match="all numbers"):
            await map_of.placement.create("mail2", QueueSettings())
