"""Several stores used as one: which of them a queue is in says a pattern of its name.

    RoutedStore ──▶ place_of("orders.new") ──▶ the store with the queues orders.*

Satisfies `store.interface.QueueStore`; see there for what the verbs promise.

Laws of this file
-----------------
1. A verb is made in the store of its queue and in no other. If that one does not answer,
   the queues of the others go on; what is asked about all of them fails, since half an
   answer would pass for a whole one.
2. A queue and its dead letters are in one store, so no move goes from one to another:
   settings that ask for that are refused, and so is a redrive.
3. A queue that is in a store it is not routed to, because the map was changed, is not
   there: no verb could reach it. `misplaced` names those.
4. The stores give different numbers to their queues and histories. Whoever opens them
   sees to that.
"""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import TypeVar

from penstock.contract.limits import PAGE_MAX
from penstock.contract.names import BadName, check_name
from penstock.contract.queue_settings import BadSettings, QueueSettings
from penstock.core.queue.message import Drafts, Receipt, Sender
from penstock.core.routes import Routes
from penstock.store.history import HistoryPage, HistoryRange, HistorySpan, ShardNotFound
from penstock.store.interface import (
    EVERY_MESSAGE,
    RELEASE,
    Counts,
    Delivery,
    Description,
    Escalation,
    EscalationOrder,
    Explained,
    Message,
    MessageFilter,
    Outcome,
    Page,
    QueueNotFound,
    QueueStore,
    Redrive,
    RedriveOrder,
    Release,
    Remains,
    StoreUnreachable,
)
from penstock.store.kept_redrives import KeptRedrive, KeptRedrives
from penstock.store.live import LivePage
from penstock.store.refusals import StoreForbids

T = TypeVar("T")


class Unrouted(BadName):
    """No pattern of the map fits the name, so that there is no store to make the queue in."""


class RoutedStore:
    def __init__(self, stores: Sequence[QueueStore], routes: Routes) -> None:
        self._stores = stores
        self._routes = routes

    def _of(self, queue: str) -> QueueStore:
        """Return the store that a queue is in, if it is in any."""
        place = self._routes.place_of(queue)
        if place is None:
            raise QueueNotFound(f"there is no queue {queue!r}: no pattern of the map fits it ({self._routes.patterns})")
        return self._stores[place]

    async def misplaced(self) -> dict[str, list[str]]:
        """Return the names of queues that nobody reaches, by where they are: the map has another place for them."""
        found: dict[str, list[str]] = {}
        for place, store in enumerate(self._stores):
            names = [name for name in await _all_names(store) if self._routes.place_of(name) != place]
            if names:
                found[self._routes.name_of(place)] = names
        return found

    # Queues.

    async def create(self, queue: str, settings: QueueSettings) -> None:
        check_name(queue)
        if self._routes.place_of(queue) is None:
            raise Unrouted(f"queue is {queue!r}; no pattern of the map of databases fits it ({self._routes.patterns})")
        self._check_dead_letters(queue, settings)
        await self._of(queue).create(queue, settings)

    async def change(self, queue: str, settings: QueueSettings) -> None:
        self._check_dead_letters(queue, settings)
        await self._of(queue).change(queue, settings)

    def _check_dead_letters(self, queue: str, settings: QueueSettings) -> None:
        if not settings.dead_letters:
            return
        here, there = self._routes.place_of(queue), self._routes.place_of(settings.dead_letters)
        if here is not None and here != there:
            raise BadSettings(
                f"dead_letters is {settings.dead_letters!r}, which would be in {self._routes.name_of(there)}; "
                f"they have to be where {queue!r} is, in {self._routes.name_of(here)}"
            )

    async def delete(self, queue: str, *, with_dead_letters: bool = False) -> Remains:
        return await self._of(queue).delete(queue, with_dead_letters=with_dead_letters)

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

    async def describe(self, queue: str) -> Description:
        return await self._of(queue).describe(queue)

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

    # Time and waking.

    def now_ms(self) -> int:
        return max(store.now_ms() for store in self._stores)

    def watch(self, wake: Callable[[str], None]) -> None:
        for store in self._stores:
            store.watch(wake)

    def watch_full_dead_letters(self, tell: Callable[[str, str], None]) -> None:
        for store in self._stores:
            store.watch_full_dead_letters(tell)

    def has_ready(self, queue: str) -> bool:
        return self._of(queue).has_ready(queue)

    async def wakes_at_ms(self, queue: str) -> int | None:
        return await self._of(queue).wakes_at_ms(queue)

    # The life of a message.

    async def send(self, queue: str, drafts: Drafts, *, sender: Sender | None = None) -> Sequence[str]:
        return await self._of(queue).send(queue, drafts, sender=sender)

    async def lease(self, queue: str, *, want: int, lease_ms: int | None = None) -> Delivery | None:
        return await self._of(queue).lease(queue, want=want, lease_ms=lease_ms)

    async def ack(self, queue: str, receipts: Sequence[Receipt], *, outlives: bool = False) -> list[Outcome]:
        return await self._of(queue).ack(queue, receipts, outlives=outlives)

    async def release(self, queue: str, receipts: Sequence[Receipt], how: Release = RELEASE) -> list[Outcome]:
        return await self._of(queue).release(queue, receipts, how)

    async def extend(
        self, queue: str, receipts: Sequence[Receipt], *, lease_ms: int, outlives: bool = False
    ) -> list[Outcome]:
        return await self._of(queue).extend(queue, receipts, lease_ms=lease_ms, outlives=outlives)

    async def purge(self, queue: str) -> int:
        return await self._of(queue).purge(queue)

    # What can be asked.

    async def counts(self, queue: str) -> Counts:
        return await self._of(queue).counts(queue)

    async def peek(self, queue: str, sought: MessageFilter = EVERY_MESSAGE, *, most: int, after: str = "") -> Page:
        return await self._of(queue).peek(queue, sought, most=most, after=after)

    async def look(self, queue: str, message_id: str) -> Message | None:
        return await self._of(queue).look(queue, message_id)

    async def explain(self, queue: str, message_id: str) -> Explained | None:
        return await self._of(queue).explain(queue, message_id)

    async def receipts(self, queue: str, ids: Sequence[str], *, outlives: bool = False) -> list[Receipt | None]:
        return await self._of(queue).receipts(queue, ids, outlives=outlives)

    async def audit(self, queue: str, *, most: int) -> list[Escalation]:
        return await self._of(queue).audit(queue, most=most)

    # What operators decide.

    async def escalate(self, queue: str, ids: Sequence[str], order: EscalationOrder) -> list[Outcome]:
        return await self._of(queue).escalate(queue, ids, order)

    async def redrive(self, dead_letters: str, order: RedriveOrder) -> Redrive:
        here = self._of(dead_letters)
        if order.into is not None and self._of(order.into) is not here:
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

    # History.

    async def history(self, queue: str, wanted: HistoryRange) -> HistoryPage:
        return await self._of(queue).history(queue, wanted)

    async def live(
        self, queue: str, *, after: str = "", most: int, with_bodies: bool = True, is_told: bool = False
    ) -> LivePage:
        return await self._of(queue).live(queue, after=after, most=most, with_bodies=with_bodies, is_told=is_told)

    async def history_shards(self) -> list[HistorySpan]:
        spans = [span for store in self._stores for span in await store.history_shards()]
        return sorted(spans, key=lambda span: span.shard)

    async def shard_history(self, shard: int, wanted: HistoryRange) -> HistoryPage:
        return await self._with(shard, lambda store: store.shard_history(shard, wanted))

    async def history_offset_at(self, shard: int, at_ms: int) -> int:
        return await self._with(shard, lambda store: store.history_offset_at(shard, at_ms))

    async def history_offset_after(self, shard: int, from_offset: int, *, rows: int) -> int:
        return await self._with(shard, lambda store: store.history_offset_after(shard, from_offset, rows=rows))

    async def trim_history(self, shard: int, *, before: int) -> int:
        return await self._with(shard, lambda store: store.trim_history(shard, before=before))

    async def _with(self, shard: int, verb: Callable[[QueueStore], Awaitable[T]]) -> T:
        """Make a verb in the store that has a shard: the others say that it is not theirs."""
        for store in self._stores:
            try:
                return await verb(store)
            except ShardNotFound:
                continue
        raise ShardNotFound(f"there is no shard {shard}")


class RoutedRedrives:
    """Redrives, each where its queue is; satisfies `store.kept_redrives.KeptRedrives`."""

    def __init__(self, places: Sequence[KeptRedrives], routes: Routes) -> None:
        self._places = places
        self._routes = routes

    def _of(self, queue: str) -> KeptRedrives:
        place = self._routes.place_of(queue)
        if place is None:
            raise QueueNotFound(f"there is no queue {queue!r}: no pattern of the map fits it ({self._routes.patterns})")
        return self._places[place]

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


async def _all_names(store: QueueStore) -> list[str]:
    names: list[str] = []
    while page := await store.queues(after=names[-1] if names else "", most=PAGE_MAX):
        names += page
    return names
