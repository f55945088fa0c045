"""A lease of plain messages is one row, and so is the history of its ack, as long as all of them share one fate."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import psycopg
import pytest

from penstock.contract.queue_settings import History, QueueSettings
from penstock.core.queue.message import Drafts
from penstock.core.queue.rows import LEASED
from penstock.store.interface import Delivery, MessageFilter, Outcome, Release
from penstock.store.postgres.store import PostgresStore
from tests.postgres.schemas import empty_schema
from tests.simulation.clock import SimClock, SimDice

pytestmark = pytest.mark.real_time
BODIES = [b"", b"one", b"\x00" * 5_000, b"three"]
ATTRIBUTES = [b"", b"", b"two's", b"three's"]


class Stage:
    """A store with a queue, and a look below it."""

    def __init__(self, store: PostgresStore, clock: SimClock, url: str, schema: str) -> None:
        self.store = store
        self.clock = clock
        self._url = url
        self._schema = schema

    async def leased(self, bodies: list[bytes], attributes: list[bytes] | None = None) -> Delivery:
        await self.store.send("orders", Drafts(bodies=bodies, attributes=attributes))
        delivery = await self.store.lease("orders", want=len(bodies), lease_ms=60_000)
        assert delivery is not None
        assert len(delivery) == len(bodies)
        return delivery

    def rows(self) -> tuple[int, int]:
        """How many leases are packed, and how many leased messages have a row of their own."""
        with psycopg.connect(self._url) as connection:
            found = connection.execute(
                f"SELECT (SELECT count(*) FROM {self._schema}.lease WHERE keys IS NOT NULL), "
                f"(SELECT count(*) FROM {self._schema}.leased)".encode()
            ).fetchone()
        assert found is not None
        return found[0], found[1]

    def packs(self) -> list[tuple[bytes | None, ...]]:
        """The columns of the packs in the history."""
        names = "keys, sent_ats_ms, body_sizes, body, attribute_sizes, attributes"
        with psycopg.connect(self._url) as connection:
            text = f"SELECT {names} FROM {self._schema}.history WHERE keys IS NOT NULL"
            return connection.execute(text.encode()).fetchall()

    def skip_numbers(self, *, tier: int, to: int) -> None:
        """As if so many had been sent in between."""
        with psycopg.connect(self._url) as connection:
            connection.execute(f"SELECT setval('{self._schema}.lane_1_{tier}', {to})".encode())

    async def held(self) -> list[tuple[bytes, bytes]]:
        page = await self.store.peek("orders", MessageFilter(place="leased"), most=100)
        return [(bytes(each.body), bytes(each.attributes)) for each in page.messages]


@asynccontextmanager
async def stage() -> AsyncIterator[Stage]:
    settings, clock = empty_schema(), SimClock()
    async with PostgresStore(settings, clock=clock, dice=SimDice(1)) as store:
        await store.create("orders", QueueSettings(history=History.FULL))
        yield Stage(store, clock, settings.url, settings.schema)


async def test_a_lease_that_is_acked_as_a_whole_never_has_a_row_for_each_message() -> None:
    async with stage() as on:
        delivery = await on.leased(BODIES, ATTRIBUTES)
        assert on.rows() == (1, 0)
        assert await on.held() == list(zip(BODIES, ATTRIBUTES, strict=True))
        assert await on.store.ack("orders", delivery.receipts()) == [Outcome.DONE] * 4
        assert on.rows() == (0, 0)


async def test_a_pack_in_the_history_is_written_byte_by_byte_as_its_drawing_says() -> None:
    async with stage() as on:
        delivery = await on.leased([b"one", b"", b"\xff"], [b"", b"{}", b""])
        assert await on.store.ack("orders", delivery.receipts()) == [Outcome.DONE] * 3
        (row,) = on.packs()

    at_ms = on.clock.now_ms().to_bytes(8, "big")
    assert [bytes(each or b"").hex(" ", 4) for each in row] == [
        "00000000 00000002 00000000 0000000a 00000000 00000012",
        bytes(at_ms * 3).hex(" ", 4),
        "00000003 00000000 00000001",
        "6f6e65ff",
        "00000000 00000002 00000000",
        "7b7d",
    ]


async def test_messages_of_a_lease_have_rows_of_their_own_once_their_fates_differ() -> None:
    async with stage() as on:
        receipts = (await on.leased(BODIES, ATTRIBUTES)).receipts()
        assert await on.store.ack("orders", [receipts[1]]) == [Outcome.DONE]
        assert on.rows() == (0, 3)
        assert await on.held() == [(BODIES[n], ATTRIBUTES[n]) for n in (0, 2, 3)]
        assert await on.store.release("orders", [receipts[2]], Release(delay_ms=0)) == [Outcome.DONE]
        again = await on.store.lease("orders", want=9)
        assert again is not None
        assert [bytes(body) for body in again.bodies] == [BODIES[2]]
        assert [bytes(each) for each in again.attributes or ()] == [ATTRIBUTES[2]]
        assert await on.store.ack("orders", receipts) == [
            Outcome.DONE, Outcome.STALE, Outcome.STALE, Outcome.DONE
        ]  # fmt: skip


async def test_a_packed_lease_that_lapses_returns_every_message_of_it() -> None:
    async with stage() as on:
        receipts = (await on.leased(BODIES, ATTRIBUTES)).receipts()
        on.clock.advance_ms(60_001)
        again = await on.store.lease("orders", want=9)
        assert again is not None
        assert [bytes(body) for body in again.bodies] == BODIES
        assert list(again.deliveries) == [2] * 4
        assert await on.store.ack("orders", receipts) == [Outcome.STALE] * 4


async def test_one_message_of_a_packed_lease_is_extended_alone() -> None:
    async with stage() as on:
        receipts = (await on.leased(BODIES, ATTRIBUTES)).receipts()
        assert await on.store.extend("orders", [receipts[3]], lease_ms=600_000) == [Outcome.DONE]
        on.clock.advance_ms(60_001)
        again = await on.store.lease("orders", want=9)
        assert again is not None
        assert [bytes(body) for body in again.bodies] == BODIES[:3]
        assert (
            await on.held() == [*zip(BODIES, ATTRIBUTES, strict=True)][3:] + [*zip(BODIES, ATTRIBUTES, strict=True)][:3]
        )


async def test_a_lease_that_is_extended_as_a_whole_stays_packed() -> None:
    async with stage() as on:
        receipts = (await on.leased(BODIES, ATTRIBUTES)).receipts()
        twice = [*receipts, receipts[0]]
        assert await on.store.extend("orders", twice, lease_ms=600_000) == [Outcome.DONE] * 5
        assert on.rows() == (1, 0)
        on.clock.advance_ms(60_001)
        assert await on.store.lease("orders", want=9) is None
        assert await on.store.ack("orders", receipts) == [Outcome.DONE] * 4


async def test_receipts_that_were_never_given_extend_nothing() -> None:
    async with stage() as on:
        receipts = (await on.leased(BODIES, ATTRIBUTES)).receipts()
        made_up = [receipt._replace(row=receipt.row + 1) for receipt in receipts]
        assert await on.store.extend("orders", made_up, lease_ms=600_000) == [Outcome.DONE] * 3 + [Outcome.STALE]
        on.clock.advance_ms(60_001)
        again = await on.store.lease("orders", want=9)
        assert again is not None
        assert [bytes(body) for body in again.bodies] == BODIES[:1]


async def test_a_queue_is_purged_of_what_is_packed_too() -> None:
    async with stage() as on:
        receipts = (await on.leased(BODIES, ATTRIBUTES)).receipts()
        assert await on.store.purge("orders") == 4
        assert on.rows() == (0, 0)
        assert await on.store.ack("orders", receipts) == [Outcome.STALE] * 4


async def test_a_lease_of_large_messages_is_not_packed() -> None:
    async with stage() as on:
        delivery = await on.leased([b"x" * 400_000] * 3)
        assert on.rows() == (0, 3)
        assert await on.store.ack("orders", delivery.receipts()) == [Outcome.DONE] * 3


async def test_whatever_is_leased_together_is_found_by_its_id_and_page_by_page() -> None:
    async with stage() as on:
        # Leases of one tier, of several, of what is far apart, and of one message.
        held: set[str] = set()
        for tiers, want in [([2] * 9, 4), ([0, 2, 4, 2] * 3, 7), ([2], 9), ([1] * 5, 5), ([3], 1)]:
            await on.store.send("orders", Drafts(bodies=[b"x"] * len(tiers), tiers=bytes(tiers)))
            if want == 9:
                on.skip_numbers(tier=2, to=20_000)
                await on.store.send("orders", Drafts(bodies=[b"x"] * 3))
            delivery = await on.store.lease("orders", want=want, lease_ms=60_000)
            assert delivery is not None
            held |= set(delivery.ids)
        receipts = await on.store.receipts("orders", sorted(held))
        assert None not in receipts
        found: list[tuple[int, int]] = []
        after = ""
        while True:
            page = await on.store.live("orders", after=after, most=2)
            found += [(page.sent_tier[n], page.number[n]) for n in range(len(page.place)) if page.place[n] == LEASED]
            after = page.next
            if not after:
                break
        assert len(found) == len(set(found)) == len(held)
