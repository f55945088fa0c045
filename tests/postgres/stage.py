"""The stage of `tests/conformance`, with a store in two databases: queues `mail…` are in one, all others in another."""

import asyncio
import importlib
import pkgutil
from contextlib import AsyncExitStack
from typing import Any, cast

import tests.conformance
from penstock.contract.queue_settings import QueueSettings
from penstock.store.interface import HistoryStore, QueueStore
from penstock.store.placement import RoutedPlacement
from penstock.store.postgres.database import PostgresSettings
from penstock.store.postgres.store import PostgresStore
from tests.conformance.stores import STORIES, Story
from tests.postgres.maps import opened
from tests.postgres.schemas import empty_schema, until_alone
from tests.simulation.clock import SimClock, SimDice
from tests.waiting import let_others_run


class InTwoDatabases:
    store: QueueStore
    _stores: list[PostgresStore]

    def __init__(self, databases: list[PostgresSettings], *, apart: str) -> None:
        self._databases = databases
        self._apart = apart
        self._clock = SimClock()
        self._dice = SimDice()
        self._closing = AsyncExitStack()

    async def open(self) -> None:
        text = f"{self._apart}={self._databases[1].url},*={self._databases[0].url}"
        opening = opened(text, clock=self._clock, dice=self._dice, may_migrate=False)
        placement, self._stores, _ = await self._closing.enter_async_context(opening)
        self.store = cast("QueueStore", _AllQueues(placement))

    async def close(self) -> None:
        await self._closing.aclose()

    def now_ms(self) -> int:
        return self._clock.now_ms()

    async def advance(self, count_ms: int) -> None:
        self._clock.advance_ms(count_ms)
        await let_others_run()

    async def reopen(self) -> None:
        await self.close()
        await self._until_alone()
        await self.open()

    async def crash(self) -> None:
        """Go on without a word to the databases; what was asked for and not answered yet is still answered."""
        killed, self._closing = self._closing, AsyncExitStack()
        for store in self._stores:
            await store.simulate_crash()
        await self._until_alone()
        await self.open()
        await killed.aclose()

    async def _until_alone(self) -> None:
        for database in self._databases:
            await until_alone(database)


class _AllQueues:
    """All queues of a placement as if they were in one store: each verb goes where a caller would send it."""

    def __init__(self, placement: RoutedPlacement) -> None:
        self._placement = placement

    def __getattr__(self, verb: str) -> Any:
        if hasattr(self._placement, verb):
            return getattr(self._placement, verb)
        if verb == "has_ready":
            return lambda queue: self._placement.of(queue).has_ready(queue)

        async def call(of: Any, *arguments: Any, **named: Any) -> Any:
            is_of_shard = hasattr(HistoryStore, verb) and isinstance(of, int)
            store = self._placement.of_shard(of) if is_of_shard else self._placement.of(of)
            return await getattr(store, verb)(of, *arguments, **named)

        return call


# Here `mail` buries where `orders` does, so that both have to be in one database.
_TOGETHER = frozenset(
    {
        "test_a_queue_is_described_with_its_settings_and_since_when_it_is_there",
        "test_several_queues_may_share_their_dead_letters",
        "test_redriven_messages_go_back_to_where_they_came_from",
        "test_a_redrive_may_go_elsewhere_and_take_only_some",
        "test_dead_letters_that_others_share_are_not_deleted_with_one_of_them",
    }
)


def stories() -> list[Story]:
    """Every story that any store is told."""
    for module in pkgutil.iter_modules(tests.conformance.__path__):
        if module.name.startswith("test_queue_store"):
            importlib.import_module(f"tests.conformance.{module.name}")
    return STORIES


def tell(story: Story) -> None:
    """Tell a story to an empty store."""
    databases = [empty_schema(0), empty_schema(1)]
    apart = "nothing" if story.__name__ in _TOGETHER else "mail*"

    async def main() -> None:
        stage = InTwoDatabases(databases, apart=apart)
        await stage.open()
        try:
            await stage.store.create("orders", QueueSettings())
            await story(stage)
        finally:
            await stage.close()

    asyncio.run(main())
