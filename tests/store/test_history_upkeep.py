"""A journal that is made short leaves to the history what it still needs."""

from dataclasses import replace

from penstock.core.settings import History
from penstock.core.settling import Ending
from tests.simulation.loop import simulate
from tests.simulation.store_history import read_rows
from tests.store.small import QUEUE, opened


def test_the_bodies_of_a_queue_that_is_deleted_meanwhile_stay_until_the_history_has_them() -> None:
    async def main() -> None:
        shop = await opened()
        await shop.store.create("kept", replace(QUEUE, history=History.FULL))
        await shop.send(b"one", b"two", queue="kept")
        while not shop.snapshots():
            await shop.churn(25)
            await shop.upkeep()
        # From memory they could be read in any case.
        await shop.close()
        await shop.open()
        await shop.churn(25)

        async def delete() -> None:
            await shop.store.delete("kept")

        shop.meanwhile = delete
        await shop.upkeep()
        assert "kept" not in await shop.store.queues()
        assert shop.log.start_offset == 0, "it was dropped before the history was written"
        await shop.shorten()
        assert shop.log.start_offset > 0
        rows = [row for row in await read_rows(shop.store) if row.queue == "kept"]
        assert [(row.body, row.ending) for row in rows] == [(b"one", Ending.DELETED), (b"two", Ending.DELETED)]
        await shop.close()

    simulate(main, seed=1)
