"""Long polls. A request that finds its queue empty waits here until a message may be visible.

    lease ──▶ nothing ──▶ a place in the queue's room ──wake──▶ lease again
                                    │
                                    └── time is up, the client is gone, the server stops ──▶ nothing

Laws of this file
-----------------
1. Nothing is missed: a room counts its wakes, and a request that saw the count change while
   it asked the store asks again before it sits down.
2. A wake wakes one. A request that gets messages wakes the next if there are more; so one
   message does not make a thousand clients ask. One that is woken and leaves without any,
   because its time is up or its client is gone, wakes the next.
3. What the clock alone makes visible wakes by one timer for each room, set to what the
   store says. It may be early, never late.
4. The longest waiting is first; a request that was woken in vain keeps its place.
5. Nothing is leased for a client that is known to be gone: it would count as a delivery.
"""

import asyncio
from collections import OrderedDict
from typing import Protocol

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
    """Whether a client is still there. It is asked for only when there is nothing for it yet."""

    def watch(self) -> "asyncio.Future[None]":
        """Return a future that is done when the client is gone."""
        ...

    @property
    def is_gone(self) -> bool: ...


class QueueWaiters:
    """Those who wait for one queue."""

    __slots__ = ("places", "guests", "wakes", "timer", "timer_at_ms")

    def __init__(self) -> None:
        # In the order of their coming; a place is given up in the middle, too.
        self.places: OrderedDict[asyncio.Future[bool], None] = OrderedDict()
        # Everyone who waits or is about to, so that a room is left only by its last guest.
        self.guests = 0
        self.wakes = 0
        self.timer: asyncio.TimerHandle | None = None
        self.timer_at_ms = 0


class LongPolls:
    def __init__(self, placement: Placement, *, most: int) -> None:
        self._placement = placement
        self._only = placement.only
        self._most = most
        self._rooms: dict[str, QueueWaiters] = {}
        self.count = 0
        self.is_stopping = False
        placement.watch(self.wake)

    def wake(self, queue: str) -> None:
        """Something in this queue may have become visible."""
        room = self._rooms.get(queue)
        if room is not None:
            room.wakes += 1
            _wake_one(room)

    def stop(self) -> None:
        """Answer all waiting requests, and let none wait from now on."""
        self.is_stopping = True
        for room in self._rooms.values():
            for place in room.places:
                if not place.done():
                    place.set_result(False)

    async def lease(
        self, queue: str, *, want: int, lease_ms: int | None, wait_ms: int, absence: "ClientPresence | None"
    ) -> Delivery | None:
        """Lease, and if there is nothing wait for it; ``absence`` tells whether the client is still there."""
        if wait_ms <= 0 or self.is_stopping:
            delivery = await (self._only or self._placement.of(queue)).lease(queue, want=want, lease_ms=lease_ms)
        else:
            delivery = await self._wait(queue, want, lease_ms, wait_ms, absence)
        room = self._rooms.get(queue)
        if delivery is not None and room is not None:
            # What was taken comes back when the lease lapses, and there may be more for others now.
            self._set_timer(queue, room, delivery.until_ms)
            if self._placement.of(queue).has_ready(queue):
                room.wakes += 1
                _wake_one(room)
        return delivery

    async def _wait(
        self, queue: str, want: int, lease_ms: int | None, wait_ms: int, absence: "ClientPresence | None"
    ) -> Delivery | None:
        ends_at = asyncio.get_running_loop().time() + wait_ms / 1_000
        room = self._enter(queue)
        delivery: Delivery | None = None
        gone: asyncio.Future[None] | None = None
        was_woken = False
        try:
            while not _is_done(gone):
                wakes = room.wakes
                delivery = await (self._only or self._placement.of(queue)).lease(queue, want=want, lease_ms=lease_ms)
                if delivery is not None or self._is_over(ends_at):
                    break
                if room.wakes == wakes:
                    await self._look_ahead(queue, room)
                if gone is None and absence is not None:
                    gone = absence.watch()
                if room.wakes == wakes:
                    was_woken = await _sit(room, ends_at, gone, is_first=was_woken)
                    if not was_woken:
                        # Nothing has come, so there is nothing to ask for.
                        break
            await self._hand_on(queue, room, delivery, was_woken=was_woken)
            return delivery
        except BaseException:
            # Whatever it is, a queue that is gone or a client that is: the next one is to learn it, too.
            _wake_one(room)
            raise
        finally:
            self._leave(queue, room)

    def _is_over(self, ends_at: float) -> bool:
        return self.is_stopping or asyncio.get_running_loop().time() >= ends_at

    def _enter(self, queue: str) -> QueueWaiters:
        if self.count >= self._most:
            raise TooManyWaiting(self._most)
        self.count += 1
        room = self._rooms.get(queue)
        if room is None:
            room = self._rooms[queue] = QueueWaiters()
        room.guests += 1
        return room

    def _leave(self, queue: str, room: QueueWaiters) -> None:
        self.count -= 1
        room.guests -= 1
        if not room.guests:
            if room.timer is not None:
                room.timer.cancel()
            del self._rooms[queue]

    async def _hand_on(self, queue: str, room: QueueWaiters, delivery: Delivery | None, *, was_woken: bool) -> None:
        """A woken request leaves. What woke it may be for later, so another request must look then."""
        if was_woken and delivery is None:
            _wake_one(room)
        elif was_woken:
            await self._look_ahead(queue, room)

    async def _look_ahead(self, queue: str, room: QueueWaiters) -> None:
        try:
            at_ms = await self._placement.of(queue).wakes_at_ms(queue)
        except QueueNotFound:
            # Deleted meanwhile: the next request is told.
            room.wakes += 1
            _wake_one(room)
            return
        if at_ms is not None:
            self._set_timer(queue, room, at_ms)

    def _set_timer(self, queue: str, room: QueueWaiters, at_ms: int) -> None:
        if room.timer is not None:
            if room.timer_at_ms <= at_ms:
                return
            room.timer.cancel()
        delay_ms = max(0, at_ms - self._placement.now_ms()) + _TIMER_MS
        room.timer_at_ms = at_ms
        room.timer = asyncio.get_running_loop().call_later(delay_ms / 1_000, self._ring, queue, room)

    def _ring(self, queue: str, room: QueueWaiters) -> None:
        room.timer = None
        if self._rooms.get(queue) is room:
            self.wake(queue)


def _is_done(gone: "asyncio.Future[None] | None") -> bool:
    return gone is not None and gone.done()


def _wake_one(room: QueueWaiters) -> None:
    while room.places:
        place, _ = room.places.popitem(last=False)
        if not place.done():
            place.set_result(True)
            return


async def _sit(room: QueueWaiters, ends_at: float, gone: "asyncio.Future[None] | None", *, is_first: bool) -> bool:
    """Wait for a wake, the end of the time or of the client, and return whether it was a wake."""
    loop = asyncio.get_running_loop()
    place: asyncio.Future[bool] = loop.create_future()
    room.places[place] = None
    if is_first:
        room.places.move_to_end(place, last=False)

    def give_up(_: object = None) -> None:
        if not place.done():
            place.set_result(False)

    timer = loop.call_at(ends_at, give_up)
    if gone is not None:
        gone.add_done_callback(give_up)
    try:
        return await place
    except asyncio.CancelledError:
        # If it had been woken, the wake is for the next.
        if place not in room.places:
            _wake_one(room)
        raise
    finally:
        timer.cancel()
        room.places.pop(place, None)
        if gone is not None:
            gone.remove_done_callback(give_up)
