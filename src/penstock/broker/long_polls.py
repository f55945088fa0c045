"""Long polls. A request that finds its queue empty waits here until a message may be visible.

    lease ──▶ nothing ──▶ wait in the queue's line ──wake──▶ lease again
                                    │
                                    └── time is up, the client is gone, the server stops ──▶ nothing

Laws of this file
-----------------
1. Nothing is missed: the wakes of a queue are counted, and a request that saw the count change
   while it asked the store asks again before it waits.
2. A wake wakes one. A request that gets messages wakes the next if there are more; so one
   message does not make a thousand clients ask. One that is woken and leaves without any,
   because its time is up or its client is gone, wakes the next.
3. What the clock alone makes visible wakes by one timer for each queue, set to what the
   store says. It may be early, never late.
4. The longest waiting is first; a request that was woken in vain keeps its place.
5. Nothing is leased for a client that is known to be gone: it would count as a delivery.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from typing import Protocol

from penstock.runtime.interface import Histogram
from penstock.store.errors import QueueNotFound
from penstock.store.interface import Delivery
from penstock.store.placement import Placement

# Timers of the loop are exact to this; a ring that is too early costs another one.
_TIMER_MS = 1


class TooManyWaiting(Exception):
    """As many are waiting as may; ``most`` says how many."""

    def __init__(self, most: int) -> None:
        super().__init__(f"{most} are waiting for messages already")
        self.most = most


class ClientPresence(Protocol):
    """Whether a client is still there. This is checked only when there is nothing for it yet."""

    def watch(self) -> "asyncio.Future[None]":
        """Return a future that is done when the client is gone."""
        ...

    @property
    def is_gone(self) -> bool: ...


class QueueWaiters:
    """The requests that wait for one queue."""

    __slots__ = ("waiters", "count", "wakes", "timer", "timer_at_ms")

    def __init__(self) -> None:
        # In the order of their coming; one may leave from the middle.
        self.waiters: OrderedDict[asyncio.Future[bool], None] = OrderedDict()
        # All that wait or are about to: the last one to leave removes this object.
        self.count = 0
        self.wakes = 0
        self.timer: asyncio.TimerHandle | None = None
        self.timer_at_ms = 0


class LongPolls:
    def __init__(self, placement: Placement, *, most: int, seconds: Callable[[], float] = float) -> None:
        self._placement = placement
        self._seconds = seconds
        # How long requests waited for messages to come; and how long those that got some took, apart from that.
        self.waits, self.works = Histogram(), Histogram()
        self._only = placement.only
        self._most = most
        self._waiting: dict[str, QueueWaiters] = {}
        self.count = 0
        self.is_stopping = False
        placement.watch(self.wake)

    def wake(self, queue: str) -> None:
        """Something in this queue may have become visible."""
        line = self._waiting.get(queue)
        if line is not None:
            line.wakes += 1
            _wake_one(line)

    def stop(self) -> None:
        """Answer all waiting requests, and let none wait from now on."""
        self.is_stopping = True
        for line in self._waiting.values():
            for waiter in line.waiters:
                if not waiter.done():
                    waiter.set_result(False)

    async def lease(
        self, queue: str, *, want: int, lease_ms: int | None, wait_ms: int, presence: "ClientPresence | None"
    ) -> Delivery | None:
        """Lease, and if there is nothing wait for it; ``presence`` tells whether the client is still there."""
        began_s, waited_s = self._seconds(), 0.0
        if wait_ms <= 0 or self.is_stopping:
            delivery = await (self._only or self._placement.of(queue)).lease(queue, want=want, lease_ms=lease_ms)
        else:
            delivery, waited_s = await self._wait(queue, want, lease_ms, wait_ms, presence)
            if waited_s:
                self.waits.add(waited_s)
        if delivery is not None:
            self.works.add(self._seconds() - began_s - waited_s)
            self.was_leased(queue, delivery.until_ms)
        return delivery

    def was_leased(self, queue: str, until_ms: int) -> None:
        """Messages were leased until then: they may come back, and there may be more for others now."""
        line = self._waiting.get(queue)
        if line is not None:
            self._set_timer(queue, line, until_ms)
            if self._placement.of(queue).has_ready(queue):
                line.wakes += 1
                _wake_one(line)

    async def _wait(
        self, queue: str, want: int, lease_ms: int | None, wait_ms: int, presence: "ClientPresence | None"
    ) -> tuple[Delivery | None, float]:
        ends_at = asyncio.get_running_loop().time() + wait_ms / 1_000
        line = self._enter(queue)
        delivery: Delivery | None = None
        gone: asyncio.Future[None] | None = None
        was_woken = False
        waited_s = 0.0
        try:
            while not _is_done(gone):
                wakes = line.wakes
                delivery = await (self._only or self._placement.of(queue)).lease(queue, want=want, lease_ms=lease_ms)
                if delivery is not None or self._is_over(ends_at):
                    break
                if line.wakes == wakes:
                    await self._look_ahead(queue, line)
                if gone is None and presence is not None:
                    gone = presence.watch()
                if line.wakes == wakes:
                    began_s = self._seconds()
                    was_woken = await _wait_in_line(line, ends_at, gone, is_first=was_woken)
                    waited_s += self._seconds() - began_s
                    if not was_woken:
                        # Nothing has come, so there is nothing to ask for.
                        break
            await self._wake_next(queue, line, delivery, was_woken=was_woken)
            return delivery, waited_s
        except BaseException:
            # A queue or a client that is gone, say: the next request has to learn it, too.
            _wake_one(line)
            raise
        finally:
            self._leave(queue, line)

    def _is_over(self, ends_at: float) -> bool:
        return self.is_stopping or asyncio.get_running_loop().time() >= ends_at

    def check_room(self) -> None:
        if self.count >= self._most:
            raise TooManyWaiting(self._most)

    def _enter(self, queue: str) -> QueueWaiters:
        self.check_room()
        self.count += 1
        line = self._waiting.get(queue)
        if line is None:
            line = self._waiting[queue] = QueueWaiters()
        line.count += 1
        return line

    def _leave(self, queue: str, line: QueueWaiters) -> None:
        self.count -= 1
        line.count -= 1
        if not line.count:
            if line.timer is not None:
                line.timer.cancel()
            del self._waiting[queue]

    async def _wake_next(self, queue: str, line: QueueWaiters, delivery: Delivery | None, *, was_woken: bool) -> None:
        """A woken request leaves. What woke it may be for later, so another request must look then."""
        if was_woken and delivery is None:
            _wake_one(line)
        elif was_woken:
            await self._look_ahead(queue, line)

    async def _look_ahead(self, queue: str, line: QueueWaiters) -> None:
        try:
            at_ms = await self._placement.of(queue).wakes_at_ms(queue)
        except QueueNotFound:
            # Deleted meanwhile: the next request has to learn it.
            line.wakes += 1
            _wake_one(line)
            return
        if at_ms is not None:
            self._set_timer(queue, line, at_ms)

    def _set_timer(self, queue: str, line: QueueWaiters, at_ms: int) -> None:
        if line.timer is not None:
            if line.timer_at_ms <= at_ms:
                return
            line.timer.cancel()
        delay_ms = max(0, at_ms - self._placement.now_ms()) + _TIMER_MS
        line.timer_at_ms = at_ms
        line.timer = asyncio.get_running_loop().call_later(delay_ms / 1_000, self._wake_by_timer, queue, line)

    def _wake_by_timer(self, queue: str, line: QueueWaiters) -> None:
        line.timer = None
        if self._waiting.get(queue) is line:
            self.wake(queue)


def _is_done(gone: "asyncio.Future[None] | None") -> bool:
    return gone is not None and gone.done()


def _wake_one(line: QueueWaiters) -> None:
    while line.waiters:
        waiter, _ = line.waiters.popitem(last=False)
        if not waiter.done():
            waiter.set_result(True)
            return


async def _wait_in_line(
    line: QueueWaiters, ends_at: float, gone: "asyncio.Future[None] | None", *, is_first: bool
) -> bool:
    """Wait for a wake, the end of the time or of the client, and return whether it was a wake."""
    loop = asyncio.get_running_loop()
    waiter: asyncio.Future[bool] = loop.create_future()
    line.waiters[waiter] = None
    if is_first:
        line.waiters.move_to_end(waiter, last=False)

    def give_up(_: object = None) -> None:
        if not waiter.done():
            waiter.set_result(False)

    timer = loop.call_at(ends_at, give_up)
    if gone is not None:
        gone.add_done_callback(give_up)
    try:
        return await waiter
    except asyncio.CancelledError:
        # If it had been woken, the wake is for the next.
        if waiter not in line.waiters:
            _wake_one(line)
        raise
    finally:
        timer.cancel()
        line.waiters.pop(waiter, None)
        if gone is not None:
            gone.remove_done_callback(give_up)
