"""Which store has a queue, and the verbs that concern several stores.

    placement.of("orders.new").lease("orders.new", …)      a verb of one queue goes to its store
    placement.summaries(names)                             one that spans stores is the placement's own

A single store is its own placement: `of` returns the store. With several stores, a name pattern decides which
one has a queue (`core/routes.py`).

Laws of this file
-----------------
1. A verb of a queue is made in the store of that queue and in no other. If a store does not answer, the queues
   of the others go on. What is asked about all queues fails then, since half an answer would pass for a whole one.
2. A queue and its dead-letter queue are in one store, so no message moves between stores: settings that ask for
   that are refused, and so is a redrive.
3. A queue in a store that its name does not lead to, because the map was changed, is not there: no verb could
   reach it. `misplaced` names those.
4. The stores number their queues and histories apart from each other. The code that opens them sees to that.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Protocol

from penstock.contract.limits import PAGE_MAX
from penstock.contract.names import BadName, check_name
from penstock.contract.queue_settings import BadSettings, QueueSettings
from penstock.core.routes import Routes
from penstock.store.errors import QueueNotFound, ShardNotFound, StoreForbids, StoreUnreachable
from penstock.store.interface import (
    Counts,
    Description,
    HistoryStore,
    KeptRedrive,
    KeptRedrives,
    QueueStore,
    Redrive,
    RedriveOrder,
)
from penstock.store.pages import HistorySpan


class NoMatchingRoute(BadName):
    """No pattern of the map fits the name, so that there is no store to make the queue in."""


class Placement(Protocol):
    """See `QueueStore` for what the verbs promise."""

    @property
    def only(self) -> QueueStore | None:
        """The store, if there is just one: then a hot verb need not ask for each queue."""
        ...

    def of(self, queue: str) -> QueueStore:
        """Return the store that has a queue, or would have it. Raises `QueueNotFound` if there is none."""
        ...

    def of_shard(self, shard: int) -> HistoryStore:
        """Return the store that has a shard. Raises `ShardNotFound`."""
        ...

    # These name two queues, which have to be in one store.

    async def create(self, queue: str, settings: QueueSettings) -> None: ...

    async def change(self, queue: str, settings: QueueSettings) -> None: ...

    async def redrive(self, dead_letters: str, order: RedriveOrder) -> Redrive: ...

    # These are about all queues.

    async def queues(self, *, prefix: str = "", after: str = "", most: int = PAGE_MAX) -> list[str]: ...

    async def summaries(self, queues: Sequence[str]) -> list[tuple[Description, Counts] | None]: ...

    async def name(self, queue_id: str) -> str: ...

    def now_ms(self) -> int: ...

    def watch(self, wake: Callable[[str], None]) -> None: ...

    def watch_full_dead_letters(self, tell: Callable[[str, str], None]) -> None: ...

    async def history_shards(self) -> list[HistorySpan]: ...

    async def tidy(self) -> None: ...


class RoutedPlacement:
    """Several stores, and the patterns that lead to them."""

    only = None

    def __init__(self, stores: Sequence[QueueStore], routes: Routes) -> None:
        self._stores = stores
        self._routes = routes

    def of(self, queue: str) -> QueueStore:
        return self._stores[_place_of(self._routes, queue)]

    def of_shard(self, shard: int) -> HistoryStore:
        for store in self._stores:
            with suppress(ShardNotFound):
                return store.of_shard(shard)
        raise ShardNotFound(f"there is no shard {shard}")

    async def misplaced(self) -> dict[str, list[str]]:
        """Return the names of queues that no verb reaches, by where they are."""
        found: dict[str, list[str]] = {}
        for place, store in enumerate(self._stores):
            names = [name for name in await _all_names(store) if self._routes.place_of(name) != place]
            if names:
                found[self._routes.name_of(place)] = names
        return found

    async def create(self, queue: str, settings: QueueSettings) -> None:
        check_name(queue)
        if self._routes.place_of(queue) is None:
            raise NoMatchingRoute(
                f"queue is {queue!r}; no pattern of the map of databases fits it ({self._routes.patterns})"
            )
        self._check_dead_letters(queue, settings)
        await self.of(queue).create(queue, settings)

    async def change(self, queue: str, settings: QueueSettings) -> None:
        self._check_dead_letters(queue, settings)
        await self.of(queue).change(queue, settings)

    def _check_dead_letters(self, queue: str, settings: QueueSettings) -> None:
        if not settings.dead_letters:
            return
        here, there = self._routes.place_of(queue), self._routes.place_of(settings.dead_letters)
        if here is not None and here != there:
            raise BadSettings(
                f"dead_letters is {settings.dead_letters!r}, which would be in {self._routes.name_of(there)}; "
                f"they have to be where {queue!r} is, in {self._routes.name_of(here)}"
            )

    async def queues(self, *, prefix: str = "", after: str = "", most: int = PAGE_MAX) -> list[str]:
        pages = [await self._page(place, prefix, after, most) for place in range(len(self._stores))]
        return sorted(name for page in pages for name in page)[:most]

    async def _page(self, place: int, prefix: str, after: str, most: int) -> list[str]:
        """Return names of one store, as many as are wanted if it has so many that are routed to it."""
        found: list[str] = []
        while True:
            names = await self._stores[place].queues(prefix=prefix, after=after, most=most)
            found += [name for name in names if self._routes.place_of(name) == place]
            if len(names) < most or len(found) >= most:
                return found
            after = names[-1]

    async def summaries(self, queues: Sequence[str]) -> list[tuple[Description, Counts] | None]:
        found: dict[str, tuple[Description, Counts] | None] = {}
        for place, store in enumerate(self._stores):
            here = [queue for queue in queues if self._routes.place_of(queue) == place]
            if here:
                found |= zip(here, await store.summaries(here), strict=True)
        return [found.get(queue) for queue in queues]

    async def name(self, queue_id: str) -> str:
        silent: StoreUnreachable | None = None
        for place, store in enumerate(self._stores):
            try:
                name = await store.name(queue_id)
            except QueueNotFound:
                continue
            except StoreUnreachable as error:
                silent = error
                continue
            if self._routes.place_of(name) == place:
                return name
        raise silent or QueueNotFound(f"there is no queue with the id {queue_id!r}")

    def now_ms(self) -> int:
        return max(store.now_ms() for store in self._stores)

    def watch(self, wake: Callable[[str], None]) -> None:
        for store in self._stores:
            store.watch(wake)

    def watch_full_dead_letters(self, tell: Callable[[str, str], None]) -> None:
        for store in self._stores:
            store.watch_full_dead_letters(tell)

    async def redrive(self, dead_letters: str, order: RedriveOrder) -> Redrive:
        here = self.of(dead_letters)
        if order.into is not None and self.of(order.into) is not here:
            places = [self._routes.name_of(self._routes.place_of(queue)) for queue in (order.into, dead_letters)]
            raise ValueError(
                f"target_queue is {order.into!r}, in {places[0]}; {dead_letters!r} is in {places[1]}. "
                "Messages stay in their database: name a queue in it"
            )
        return await here.redrive(dead_letters, order)

    async def tidy(self) -> None:
        silent: StoreUnreachable | None = None
        for store in self._stores:
            try:
                await store.tidy()
            except StoreUnreachable as error:
                silent = error
        if silent is not None:
            raise silent

    async def history_shards(self) -> list[HistorySpan]:
        spans = [span for store in self._stores for span in await store.history_shards()]
        return sorted(spans, key=lambda span: span.shard)


class RoutedRedrives:
    """Redrives, each where its queue is; satisfies `store.kept_redrives.KeptRedrives`."""

    def __init__(self, places: Sequence[KeptRedrives], routes: Routes) -> None:
        self._places = places
        self._routes = routes

    def _of(self, queue: str) -> KeptRedrives:
        return self._places[_place_of(self._routes, queue)]

    async def begin(self, redrive: KeptRedrive, *, runner: int) -> bool:
        return await self._of(redrive.queue).begin(redrive, runner=runner)

    async def note(self, redrive: KeptRedrive, *, runner: int, now_ms: int) -> bool | None:
        return await self._of(redrive.queue).note(redrive, runner=runner, now_ms=now_ms)

    async def hold(self, *, runner: int, now_ms: int, takes_over: bool) -> list[KeptRedrive]:
        held: list[KeptRedrive] = []
        for place, each in enumerate(self._places):
            with suppress(StoreUnreachable, StoreForbids):
                found = await each.hold(runner=runner, now_ms=now_ms, takes_over=takes_over)
                # With another map its queue would be looked for elsewhere.
                held += [redrive for redrive in found if self._routes.place_of(redrive.queue) == place]
        return held

    async def let_go(self, *, runner: int) -> None:
        for each in self._places:
            with suppress(StoreUnreachable, StoreForbids):
                await each.let_go(runner=runner)

    async def stop(self, queue: str, task_id: str, *, state: str, now_ms: int) -> None:
        await self._of(queue).stop(queue, task_id, state=state, now_ms=now_ms)

    async def of(self, queue: str) -> list[KeptRedrive]:
        return await self._of(queue).of(queue)

    async def find(self, queue: str, task_id: str) -> KeptRedrive | None:
        return await self._of(queue).find(queue, task_id)


def _place_of(routes: Routes, queue: str) -> int:
    place = routes.place_of(queue)
    if place is None:
        raise QueueNotFound(f"there is no queue {queue!r}: no pattern of the map fits it ({routes.patterns})")
    return place


async def _all_names(store: QueueStore) -> list[str]:
    names: list[str] = []
    while page := await store.queues(after=names[-1] if names else "", most=PAGE_MAX):
        names += page
    return names
