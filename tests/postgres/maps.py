"""Several databases as one store, for tests: empty ones of the shared server, each with our schema."""

import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

from penstock.core.routes import Routes, parse
from penstock.runtime.interface import Clock, Dice
from penstock.store.placement import RoutedPlacement
from penstock.store.postgres.database import PostgresSettings
from penstock.store.postgres.multi_database import open_several
from penstock.store.postgres.store import PostgresStore
from tests.simulation.clock import SimClock, SimDice

# Two stores of one database never draw the same token, by which an operation is known.
_seeds = itertools.count()


class Opened(NamedTuple):
    placement: RoutedPlacement
    stores: list[PostgresStore]
    places: list[int]

    @property
    def ranges(self) -> list[int]:
        return [store._history.shard for store in self.stores]


@asynccontextmanager
async def opened(
    text: str, *, clock: Clock | None = None, dice: Dice | None = None, may_migrate: bool = True
) -> AsyncIterator[Opened]:
    """Open a map as a server does, without maintenance."""
    entries = parse(text)
    databases = [PostgresSettings(url=url, may_lose=True) for _, url in entries]
    async with open_several(
        databases,
        clock=clock or SimClock(),
        dice=dice or SimDice(next(_seeds)),
        may_migrate=may_migrate,
        has_upkeep=False,
    ) as (
        stores,
        places,
    ):
        routes = Routes([pattern for pattern, _ in entries], places)
        yield Opened(RoutedPlacement(stores, routes), stores, places)
