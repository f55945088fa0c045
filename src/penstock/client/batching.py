"""Single sends of many callers, gathered into requests.

A call adds its message to a lane and waits. A lane that has nothing on its way is emptied in the next turn of the
loop, so all who call in one turn travel together. While requests are on their way messages gather, until one comes
back or there are enough to fill another well:

    send ──► lane ──next turn──► request ──► answer ──► each caller its id
              │                     │
              └──while it is away───┘ gather; `EAGER` of them start a further request, up to `IN_FLIGHT_MAX`

Laws of the file
----------------
1. What one task sends, one call after the other, arrives in that order. Calls that do not wait for each other may
   change places where several requests are on their way; messages with a group do not, as they have a lane of their
   own with one request at a time.
2. Each caller gets the answer to its own message.
3. A caller that is cancelled takes its message back if it has not left yet.
4. If a queue was full lately, each tier has a lane of its own: the server keeps room for what is urgent, and it must
   not stand behind what is not.
"""

import asyncio
from copy import copy

from penstock.client.delivery import Delivery, texts_of
from penstock.client.drafts import NORMAL, Drafts, Extras
from penstock.client.errors import ClientClosed, PenstockError
from penstock.client.room import Room
from penstock.wire.frames import Ids
from penstock.wire.messages import MESSAGES_MAX

IN_FLIGHT_MAX = 4
EAGER = 128
REQUEST_BYTES_MAX = 4 * 1024 * 1024
# What a message costs beside its body, while it waits.
MESSAGE_BYTES = 500
_FULL_FOR_S = 10.0

# A body, what is said about it, who waits, and until when by the clock of the loop.
Waiting = tuple[bytes, Extras | None, "asyncio.Future[str]", float]


class GatheredParcel:
    """Messages of several callers in one request."""

    is_mixed = True
    __slots__ = ("_rows",)

    def __init__(self, rows: list[Waiting]) -> None:
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    def drafts(self, start: int, stop: int) -> Drafts:
        rows = self._rows[start:stop]
        extras = [row[1] for row in rows]
        return Drafts([row[0] for row in rows], extras if any(extras) else None)

    def answer(self, start: int, stop: int, ids: Ids) -> None:
        for (_, _, future, _), text in zip(self._rows[start:stop], texts_of(ids), strict=True):
            if not future.done():
                future.set_result(text)

    def fail(self, start: int, stop: int, error: PenstockError) -> None:
        for _, _, future, _ in self._rows[start:stop]:
            if not future.done():
                future.set_exception(copy(error))

    def expire(self, start: int, now_s: float, error: PenstockError) -> bool:
        is_awaited = False
        for _, _, future, deadline_s in self._rows[start:]:
            if not future.done():
                if now_s >= deadline_s:
                    future.set_exception(copy(error))
                else:
                    is_awaited = True
        return is_awaited

    def is_awaited(self) -> bool:
        return not all(row[2].done() for row in self._rows)

    def drop_done(self, start: int) -> None:
        self._rows[start:] = [row for row in self._rows[start:] if not row[2].done()]


class Lane:
    """Messages that travel together."""

    __slots__ = ("_delivery", "_room", "_in_flight_max", "_rows", "_tasks", "_is_due", "_loop")

    def __init__(self, delivery: Delivery, room: Room, *, in_flight_max: int) -> None:
        self._delivery = delivery
        self._room = room
        self._in_flight_max = in_flight_max
        self._loop = asyncio.get_running_loop()
        self._rows: list[Waiting] = []
        self._tasks: dict[asyncio.Task[None], GatheredParcel] = {}
        self._is_due = False

    def add(self, body: bytes, extras: Extras | None, deadline_s: float) -> "asyncio.Future[str]":
        """Take a message along; its room is taken already, and given back when it has an answer."""
        future: asyncio.Future[str] = self._loop.create_future()
        self._rows.append((body, extras, future, deadline_s))
        if not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._start)
        return future

    async def drain(self) -> None:
        """Return when everything has an answer."""
        while self._tasks or self._rows:
            self._start()
            for task, parcel in self._tasks.items():
                if not parcel.is_awaited():
                    task.cancel()
            await asyncio.wait(self._tasks)

    async def abandon(self) -> None:
        """Stop everything; who waits still gets an error."""
        rows, self._rows = self._rows, []
        GatheredParcel(rows).fail(0, len(rows), ClientClosed("the client was closed"))
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _start(self) -> None:
        self._is_due = False
        while self._rows and (not self._tasks or (len(self._tasks) < self._in_flight_max and len(self._rows) >= EAGER)):
            rows, size = self._take()
            parcel = GatheredParcel(rows)
            self._tasks[self._loop.create_task(self._carry(parcel, size))] = parcel

    def _take(self) -> tuple[list[Waiting], int]:
        """Take as many as fit into a request, and return how much room they have."""
        rows = self._rows[:MESSAGES_MAX]
        size = sum([len(row[0]) for row in rows])
        while size > REQUEST_BYTES_MAX and len(rows) > 1:
            size -= len(rows.pop()[0])
        del self._rows[: len(rows)]
        return rows, size + MESSAGE_BYTES * len(rows)

    async def _carry(self, parcel: GatheredParcel, size: int) -> None:
        parcel.drop_done(0)
        try:
            await self._delivery.deliver(parcel)
        except asyncio.CancelledError:
            parcel.fail(0, len(parcel), ClientClosed("the client was closed"))
            raise
        except Exception as error:
            # A mistake of ours: whoever waits must not wait for ever.
            parcel.fail(0, len(parcel), PenstockError(f"the client made a mistake: {error!r}"))
            raise
        finally:
            self._room.give(size)
            task = asyncio.current_task()
            assert task is not None
            self._tasks.pop(task, None)
            self._start()


class Gathering:
    """The lanes of one queue."""

    __slots__ = ("_delivery", "_room", "_lanes", "_loop")

    def __init__(self, delivery: Delivery, room: Room) -> None:
        self._delivery = delivery
        self._room = room
        self._loop = asyncio.get_running_loop()
        # By tier where the queue was full, -1 where it was not; -2 is that of groups.
        self._lanes: dict[int, Lane] = {}

    async def wait_for_room(self, body: bytes) -> None:
        """Wait until there is memory for a message, and take it."""
        await self._room.wait(len(body) + MESSAGE_BYTES)

    def take_room(self, body: bytes) -> bool:
        """Take memory for a message, if there is some."""
        return self._room.take(len(body) + MESSAGE_BYTES)

    def add(self, body: bytes, extras: Extras | None, timeout_s: float) -> "asyncio.Future[str]":
        """Send one message together with others; its id comes in the end. Room for it was taken before."""
        now_s = self._loop.time()
        key = -1
        if extras is not None and extras.group:
            key = -2
        elif now_s - self._delivery.was_full_at_s < _FULL_FOR_S:
            key = NORMAL if extras is None else extras.tier
        lane = self._lanes.get(key) or self._lane(key)
        return lane.add(body, extras, now_s + timeout_s)

    async def drain(self) -> None:
        for lane in list(self._lanes.values()):
            await lane.drain()

    async def abandon(self) -> None:
        for lane in self._lanes.values():
            await lane.abandon()

    def _lane(self, key: int) -> Lane:
        lane = self._lanes[key] = Lane(self._delivery, self._room, in_flight_max=1 if key == -2 else IN_FLIGHT_MAX)
        return lane
