"""Queues, as front ends see them: the verbs of the store, by name or id, with waiting, counting and stopping.

A front end translates and calls one of these; nothing here knows a protocol. Every
verb of a batch is one call of the store. What the store raises passes through.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, suppress

from penstock.broker.access import (
    ANONYMOUS_ADMIN,
    Caller,
    Holds,
    NotAllowed,
    Role,
    Share,
    TooManyQueuesMade,
)
from penstock.broker.activity import Activity
from penstock.broker.long_polls import ClientPresence, LongPolls, TooManyWaiting
from penstock.broker.redrives import Redrives, check_dead_letters, check_takes_dead_letters
from penstock.broker.send_batching import SendBatching
from penstock.broker.traffic import Traffic
from penstock.contract.limits import PAGE_MAX
from penstock.contract.names import ID_PREFIX
from penstock.contract.queue_settings import QueueSettings
from penstock.core.queue.message import Drafts, Receipt, Sender
from penstock.frame import size_of
from penstock.log.interface import LogBusy, LogClosed, LogFull
from penstock.runtime.interface import Runtime
from penstock.store.errors import QueueNotFound, StoreUnreachable
from penstock.store.interface import RELEASE, UNTOUCHED, Counts, Delivery, Description, Outcome, Release, Remains
from penstock.store.placement import Placement
from penstock.telemetry import DEAD_LETTERS_FULL

LONG_POLLS_MAX = 16_000
TIDY_MS = 1_000


class Stopping(Exception):
    """The server is stopping and takes no new work."""


class NotLeased(Exception):
    """The message is not leased, so there is nothing to ack."""


class NotScheduled(Exception):
    """The message is due already, or has been: it cannot be taken back."""


class MessageNotFound(Exception):
    """There is no message of this id in the queue."""


class Queues:
    def __init__(
        self,
        placement: Placement,
        runtime: Runtime,
        *,
        long_polls_max: int = LONG_POLLS_MAX,
        redrives: Redrives | None = None,
    ) -> None:
        self.placement = placement
        self._only = placement.only
        self.waiting = LongPolls(placement, most=long_polls_max, seconds=runtime.seconds)
        # What one key may have of what all share.
        self.share = Share()
        self.polls = Holds(long_polls_max, self.share, TooManyWaiting)
        self.redrives = redrives or Redrives(placement, runtime)
        self.redrives.share = self.share
        self.batching = SendBatching(placement)
        # The audit log; in memory, unless the server sets another one.
        self.activity = Activity.in_memory(placement.now_ms)
        self.traffic = Traffic(placement.now_ms)
        # The names of topics, where there are any: they count like queues for what a key may have.
        self.topic_names: Callable[[], Iterable[str]] = tuple
        self._runtime = runtime
        placement.watch_full_dead_letters(
            lambda queue, dead_letters: runtime.log_event(DEAD_LETTERS_FULL, queue=queue, dead_letters=dead_letters)
        )
        # Settings are read, changed and written in turn, so that of two who change some at once neither is lost.
        self._settings_lock = asyncio.Lock()

    def now_ms(self) -> int:
        return self.placement.now_ms()

    async def allowed(self, caller: Caller, role: Role, queue: str) -> str:
        """Return the name of a queue that was given by name or id, if the caller has a role on it.

        Raises `NotAllowed`, which says no more than the caller did, and `QueueNotFound` for an id: to a caller who
        may not see the queue, an id that is there looks like one that is not.
        """
        if not queue.startswith(ID_PREFIX):
            caller.check(role, queue)
            return queue
        try:
            name = await self.placement.name(queue)
        except QueueNotFound:
            name = None
        if name is None or not caller.may_list(name):
            raise QueueNotFound(f"there is no queue with the id {queue[:64]!r}")
        caller.check(role, name)
        return name

    def check_running(self) -> None:
        if self.waiting.is_stopping:
            raise Stopping("the server is stopping")

    async def create(
        self,
        queue: str,
        settings: QueueSettings,
        *,
        caller: Caller = ANONYMOUS_ADMIN,
    ) -> bool:
        """Make a queue, and return whether it is new. Raises `NotAllowed` and `TooManyQueuesMade`."""
        self.check_running()
        async with self._settings_lock:
            await check_dead_letters(self.placement, caller, queue, settings)
            if caller.queues_max is not None:
                # To count what is there is not for every create.
                queues = [name async for name in self._names()]
                caller.check_may_create(queue, queues, others=self.topic_names())
            try:
                await self.placement.of(queue).describe(queue)
                is_new = False
            except QueueNotFound:
                is_new = True
            await self.placement.create(queue, settings)
        return is_new

    async def change(
        self, queue: str, change: Callable[[QueueSettings], QueueSettings], *, caller: Caller = ANONYMOUS_ADMIN
    ) -> None:
        """Change settings from what they are now to what ``change`` makes of them; no other change runs meanwhile."""
        async with self._settings_lock:
            old = (await self.placement.of(queue).describe(queue)).settings
            new = change(old)
            if new.dead_letters != old.dead_letters:
                await check_dead_letters(self.placement, caller, queue, new)
            await self.placement.change(queue, new)

    async def delete(
        self, queue: str, *, with_dead_letters: bool, caller: Caller = ANONYMOUS_ADMIN
    ) -> tuple[str, Remains]:
        """Remove a queue, and return the id it had and what becomes of its dead letters."""
        async with self._settings_lock:
            description = await self.placement.of(queue).describe(queue)
            queue_id = description.id
            if with_dead_letters:
                check_takes_dead_letters(caller, description)
            remains = await self.placement.of(queue).delete(queue, with_dead_letters=with_dead_letters)
        self.traffic.forget(queue)
        if remains.is_deleted and remains.dead_letters is not None:
            self.traffic.forget(remains.dead_letters)
        return queue_id, remains

    async def describe(self, queue: str) -> tuple[Description, Counts]:
        (found,) = await self.placement.summaries([queue])
        if found is None:
            raise QueueNotFound(f"there is no queue {queue!r}")
        return found

    async def send(self, queue: str, drafts: Drafts, *, sender: Sender | None = None) -> Sequence[str]:
        if self.waiting.is_stopping:
            self.check_running()
        if sender is None:
            ids = await self.batching.send(queue, drafts)
        else:
            ids = await (self._only or self.placement.of(queue)).send(queue, drafts, sender=sender)
        total = self.traffic.of(queue)
        total.sent += len(ids)
        total.sent_bytes += size_of(drafts.bodies)
        return ids

    async def lease(
        self,
        queue: str,
        *,
        want: int,
        lease_ms: int | None = None,
        wait_ms: int = 0,
        presence: ClientPresence | None = None,
    ) -> Delivery | None:
        """Lease messages, waiting for the first for up to ``wait_ms``, as long as the client is there."""
        if self.waiting.is_stopping:
            self.check_running()
        delivery = await self.waiting.lease(queue, want=want, lease_ms=lease_ms, wait_ms=wait_ms, presence=presence)
        return None if delivery is None else await self._handed_over(queue, delivery, presence)

    async def ack_and_lease(
        self,
        queue: str,
        receipts: Sequence[Receipt],
        *,
        want: int,
        lease_ms: int | None = None,
        wait_ms: int = 0,
        presence: ClientPresence | None = None,
    ) -> tuple[list[Outcome], Delivery | None]:
        """Ack, and lease as `lease` does. The acks are durable before this waits, also for a client that leaves."""
        self.check_running()
        if wait_ms:
            self.waiting.check_room()
        store = self._only or self.placement.of(queue)
        outcomes, delivery = await store.ack_and_lease(queue, receipts, want=want, lease_ms=lease_ms)
        self.traffic.of(queue).acked += self.traffic.settled(queue, "ack", outcomes)
        if delivery is not None:
            self.waiting.was_leased(queue, delivery.until_ms)
        elif wait_ms:
            # Now that there are acks to be answered, a request that finds no room, or no queue any more, does not wait.
            with suppress(TooManyWaiting, QueueNotFound):
                delivery = await self.waiting.lease(
                    queue, want=want, lease_ms=lease_ms, wait_ms=wait_ms, presence=presence
                )
        return outcomes, None if delivery is None else await self._handed_over(queue, delivery, presence)

    async def _handed_over(self, queue: str, delivery: Delivery, presence: ClientPresence | None) -> Delivery | None:
        if presence is not None and presence.is_gone:
            # The client is gone: others need not wait for the lease to lapse.
            await self.placement.of(queue).release(queue, delivery.receipts(), UNTOUCHED)
            return None
        self.traffic.delivered(queue, delivery)
        return delivery

    async def ack(self, queue: str, receipts: Sequence[Receipt], *, outlives: bool = False) -> list[Outcome]:
        """Ack messages; ``outlives`` as `QueueStore.ack` has it."""
        outcomes = await (self._only or self.placement.of(queue)).ack(queue, receipts, outlives=outlives)
        self.traffic.of(queue).acked += self.traffic.settled(queue, "ack", outcomes)
        return outcomes

    async def ack_by_id(self, queue: str, message_id: str) -> None:
        """Ack whatever lease holds this message. Raises `NotLeased` or `MessageNotFound`."""
        (receipt,) = await self.placement.of(queue).receipts(queue, [message_id])
        if receipt is not None and await self.ack(queue, [receipt]) == [Outcome.DONE]:
            return
        if await self.placement.of(queue).look(queue, message_id) is not None:
            raise NotLeased(f"message {message_id!r} is not leased")
        raise MessageNotFound(f"there is no message {message_id!r} in {queue!r}")

    async def cancel(self, queue: str, message_id: str) -> None:
        """Take back a message that is not due yet. Raises `NotScheduled` or `MessageNotFound`."""
        if await self.placement.of(queue).cancel(queue, message_id):
            self.traffic.of(queue).cancelled += 1
            return
        if await self.placement.of(queue).look(queue, message_id) is not None:
            raise NotScheduled(f"message {message_id!r} is due already: it waits for a consumer, or has one")
        raise MessageNotFound(f"there is no message {message_id!r} in {queue!r}")

    async def release(self, queue: str, receipts: Sequence[Receipt], how: Release = RELEASE) -> list[Outcome]:
        outcomes = await self.placement.of(queue).release(queue, receipts, how)
        self.traffic.of(queue).released += self.traffic.settled(queue, "release", outcomes)
        return outcomes

    async def extend(
        self, queue: str, receipts: Sequence[Receipt], *, lease_ms: int, outlives: bool = False
    ) -> list[Outcome]:
        """Hold messages longer; ``outlives`` as `QueueStore.extend` has it."""
        outcomes = await self.placement.of(queue).extend(queue, receipts, lease_ms=lease_ms, outlives=outlives)
        self.traffic.of(queue).extended += self.traffic.settled(queue, "extend", outcomes)
        return outcomes

    @asynccontextmanager
    async def making_topics(self, caller: Caller, topics: Sequence[str]) -> AsyncIterator[dict[str, Exception]]:
        """Make topics within this; yield those that a caller may not have, and why. One caller at a time is within."""
        if caller.queues_max is None:
            yield {}
            return
        async with self._settings_lock:
            queues = [name async for name in self._names()]
            there, refused = list(self.topic_names()), dict[str, Exception]()
            for topic in topics:
                try:
                    caller.check_may_create(topic, there, others=queues)
                    there.append(topic)
                except (NotAllowed, TooManyQueuesMade) as error:
                    refused[topic] = error
            yield refused

    async def _names(self) -> AsyncIterator[str]:
        after = ""
        while names := await self.placement.queues(after=after, most=PAGE_MAX):
            for name in names:
                yield name
            after = names[-1]

    async def _tidy(self) -> None:
        while True:
            await asyncio.sleep(TIDY_MS / 1_000)
            try:
                await self.placement.tidy()
            except (LogBusy, LogFull, StoreUnreachable):
                # There is no room for it now, or no server to do it; what is due stays due.
                pass
            except LogClosed:
                return


@asynccontextmanager
async def open_queues(
    placement: Placement,
    runtime: Runtime,
    *,
    long_polls_max: int = LONG_POLLS_MAX,
    is_tidied: bool = False,
    redrives: Redrives | None = None,
) -> AsyncIterator[Queues]:
    """Join a store that is open: what is due is done every second, and redrives run, until this ends.

    A store that several processes share ``is_tidied`` by one of them, and not by each of them;
    ``redrives`` says where they are kept, if not in memory.
    """
    queues = Queues(placement, runtime, long_polls_max=long_polls_max, redrives=redrives)
    async with asyncio.TaskGroup() as tasks:
        tidying = None if is_tidied else tasks.create_task(queues._tidy())
        queues.batching.tasks = tasks
        queues.redrives.start(tasks)
        try:
            yield queues
        finally:
            queues.waiting.stop()
            queues.redrives.stop()
            if tidying is not None:
                tidying.cancel()


async def visible_queues(
    placement: Placement, caller: Caller, *, prefix: str = "", after: str = "", most: int = PAGE_MAX
) -> list[str]:
    """Return names as `QueueStore.queues` does, of queues that the caller may see.

    A page is short only where the names end, so where to go on is always a name that was shown.
    """
    patterns = caller.patterns(Role.SEE)
    if patterns is None:
        return await placement.queues(prefix=prefix, after=after, most=most)
    found: list[str] = []
    for each in _prefixes(patterns, prefix):
        last = after
        while len(found) < most:
            names = await placement.queues(prefix=each, after=last, most=PAGE_MAX)
            found += filter(caller.may_list, names)
            if len(names) < PAGE_MAX:
                break
            last = names[-1]
    return found[:most]


def _prefixes(patterns: Iterable[str], prefix: str) -> list[str]:
    """Return what all names begin with that fit a pattern and have the prefix, sorted, none within another.

    >>> _prefixes(["orders*", "orders.eu*", "mail", "*"], "")
    ['']
    >>> _prefixes(["orders*", "orders.eu*", "mail"], "")
    ['mail', 'orders']
    >>> _prefixes(["orders*", "mail"], "orders.e")
    ['orders.e']
    """
    fixed = {pattern.partition("*")[0] for pattern in patterns}
    wanted = sorted(
        {max(each, prefix, key=len) for each in fixed if each.startswith(prefix) or prefix.startswith(each)}
    )
    found: list[str] = []
    for each in wanted:
        if not found or not each.startswith(found[-1]):
            found.append(each)
    return found
