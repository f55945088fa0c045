"""Single sends, acks, releases and extensions of many callers, batched into requests.

A call adds its row to a lane and waits. A lane without a request on its way is emptied in the next turn of the loop,
so calls of one turn travel together. While requests are on their way rows collect, until one is answered or there are
enough to fill another well:

    call ──► lane ──next turn──► request ──► answer ──► each caller its own
              │                     │
              └─while it is away────┘ collect; `EAGER` of them start another request, up to `IN_FLIGHT_MAX`

Laws of the file
----------------
1. What one task sends, one call after the other, arrives in that order. Calls that do not wait for each other may
   change places if several requests are on their way. Messages with a group do not: they have a lane of their own
   with one request at a time.
2. Each caller gets the answer to its own row.
3. A caller that is cancelled takes its message back if it has not left yet.
4. If a queue was full lately, each tier has a lane of its own: the server keeps room for urgent messages, and they
   must not wait behind others.
5. Settlements share a request if they have the verb, the time and the error in common. Acks take along a lease that is
   wanted at that moment (`settling.py`).
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from copy import copy
from functools import partial
from operator import itemgetter
from typing import Any, Generic, TypeVar

from penstock.client import settling
from penstock.client.caller import Caller
from penstock.client.delivery import Delivery, texts_of
from penstock.client.drafts import NORMAL, Drafts, Extras
from penstock.client.errors import ClientClosed, PenstockError
from penstock.client.message import LeasedBatch, Wanted
from penstock.client.settling import ACK, Terms
from penstock.contract.limits import REQUEST_MESSAGES_MAX
from penstock.wire.frames import Held, Ids

IN_FLIGHT_MAX = 4
EAGER = 128
REQUEST_BYTES_MAX = 4 * 1024 * 1024
# What a message costs beside its body, while it waits.
MESSAGE_BYTES = 500
# More lanes for settlements than this are not kept while they are empty: errors and times are of any number.
SETTLE_LANES_KEPT = 16
_FULL_FOR_S = 10.0
_BODY = itemgetter(0)

# A body, its other fields, the caller's future, and its deadline by the clock of the loop.
Send = tuple[bytes, Extras | None, "asyncio.Future[str]", float]
# Which messages, what is known of their lease, and the caller's future, which gets the bits of those that were done.
Settlement = tuple[Held, LeasedBatch | None, "asyncio.Future[int]"]
# A lease that goes along with acks, and the future that gets it.
Rider = tuple[Wanted, "asyncio.Future[LeasedBatch | None]"]

Row = TypeVar("Row", Send, Settlement)


class MemoryLimit:
    """Limits the memory of unsent messages. A sender waits while it is reached; the one that waits longest is first.

    A message that is larger than the limit is sent alone.
    """

    __slots__ = ("_bytes_max", "free_bytes", "_waiting")

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self.free_bytes = bytes_max
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    def take(self, size: int) -> bool:
        """Take memory if there is enough and no sender waits for it."""
        if self._waiting or (size > self.free_bytes and self.free_bytes < self._bytes_max):
            return False
        self.free_bytes -= size
        return True

    async def wait(self, size: int) -> None:
        """Take memory as soon as there is enough."""
        if self.take(size):
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((size, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.give(size)
            raise

    def give(self, size: int) -> None:
        """Give memory back."""
        self.free_bytes += size
        while self._waiting:
            wanted, turn = self._waiting[0]
            if turn.done():
                self._waiting.popleft()
                continue
            if wanted > self.free_bytes and self.free_bytes < self._bytes_max:
                return
            self._waiting.popleft()
            self.free_bytes -= wanted
            turn.set_result(None)


class Lane(Generic[Row]):
    """Rows that travel together.

    ``cut`` says how many rows fit into a request and what they weigh; ``carry`` makes the request and answers each row.
    """

    __slots__ = ("_cut", "_carry", "_in_flight_max", "_loop", "_rows", "_weight", "_tasks", "_is_due", "_starting")

    def __init__(
        self,
        cut: Callable[[list[Row]], tuple[int, int]],
        carry: Callable[[list[Row]], Awaitable[None]],
        in_flight_max: int = IN_FLIGHT_MAX,
    ) -> None:
        self._cut: Callable[[list[Row]], tuple[int, int]] = cut
        self._carry: Callable[[list[Row]], Awaitable[None]] = carry
        self._in_flight_max = in_flight_max
        self._loop = asyncio.get_running_loop()
        self._rows: list[Row] = []
        self._weight = 0
        self._tasks: dict[asyncio.Task[None], list[Row]] = {}
        self._is_due = False
        # Requests whose rows are known, and which have not begun.
        self._starting = 0

    @property
    def is_empty(self) -> bool:
        return not self._rows and not self._tasks

    @property
    def is_leaving(self) -> bool:
        """Whether a request is about to begin, in this turn of the loop or the next."""
        return self._starting > 0 or (self._is_due and not self._tasks)

    def add(self, row: Row, weight: int) -> None:
        self._rows.append(row)
        self._weight += weight
        if not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._start)

    async def drain(self, *, drops_cancelled: bool) -> None:
        """Return when every row has an answer; those of cancelled callers may be dropped."""
        while self._tasks or self._rows:
            self._start()
            for task, rows in self._tasks.items():
                if drops_cancelled and all(row[2].done() for row in rows):
                    task.cancel()
            await asyncio.wait(self._tasks)

    async def abandon(self) -> None:
        """Stop everything; callers that wait still get an error."""
        rows, self._rows = self._rows, []
        _fail(rows, ClientClosed("the client was closed"))
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _start(self) -> None:
        self._is_due = False
        while self._rows and (not self._tasks or (len(self._tasks) < self._in_flight_max and self._weight >= EAGER)):
            count, weight = (1, self._weight) if len(self._rows) == 1 else self._cut(self._rows)
            rows = self._rows[:count]
            del self._rows[:count]
            self._weight -= weight
            self._tasks[self._loop.create_task(self._run(rows))] = rows
            self._starting += 1

    async def _run(self, rows: list[Row]) -> None:
        self._starting -= 1
        try:
            await self._carry(rows)
        except PenstockError as error:
            _fail(rows, error)
        except asyncio.CancelledError:
            _fail(rows, ClientClosed("the client was closed"))
            raise
        except Exception as error:
            # A bug in the client. Fail the callers instead of leaving them waiting.
            _fail(rows, PenstockError(f"a bug in the client: {error!r}"))
            raise
        finally:
            task = asyncio.current_task()
            assert task is not None
            del self._tasks[task]
            if self._rows:
                self._start()


class SendBatcher:
    """Batches the single sends to one queue."""

    __slots__ = ("memory", "_delivery", "_lanes", "_loop")

    def __init__(self, delivery: Delivery, memory: MemoryLimit) -> None:
        self.memory = memory
        self._delivery = delivery
        self._loop = asyncio.get_running_loop()
        # By tier if the queue was full lately, -1 if not; -2 is that of groups.
        self._lanes: dict[int, Lane[Send]] = {}

    def add(self, body: bytes, extras: Extras | None, timeout_s: float) -> "asyncio.Future[str]":
        """Send one message together with others; the future gets its id. Its memory was taken before."""
        loop = self._loop
        now_s, future = loop.time(), loop.create_future()
        key = -1
        if extras is not None and extras.group:
            key = -2
        elif now_s - self._delivery.was_full_at_s < _FULL_FOR_S:
            key = NORMAL if extras is None else extras.tier
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = Lane(_cut_sends, self._carry, 1 if key == -2 else IN_FLIGHT_MAX)
        lane.add((body, extras, future, now_s + timeout_s), 1)
        return future

    async def drain(self) -> None:
        for lane in list(self._lanes.values()):
            await lane.drain(drops_cancelled=True)

    async def abandon(self) -> None:
        for lane in self._lanes.values():
            await lane.abandon()

    async def _carry(self, rows: list[Send]) -> None:
        size = sum(map(len, map(_BODY, rows))) + MESSAGE_BYTES * len(rows)
        try:
            await self._delivery.deliver(BatchedSends([row for row in rows if not row[2].done()]))
        finally:
            self.memory.give(size)


class BatchedSends:
    """Messages of several callers in one request, a `delivery.SendBatch`."""

    is_mixed = True
    __slots__ = ("_rows", "length")

    def __init__(self, rows: list[Send]) -> None:
        self._rows = rows
        self.length = len(rows)

    def drafts(self, start: int, stop: int) -> Drafts:
        bodies, extras, _, _ = zip(*self._rows[start:stop], strict=True)
        return Drafts(bodies, extras if any(extras) else None)

    def answer(self, start: int, stop: int, ids: Ids) -> None:
        for (_, _, future, _), text in zip(self._rows[start:stop], texts_of(ids), strict=True):
            if not future.done():
                future.set_result(text)

    def fail(self, start: int, stop: int, error: PenstockError) -> None:
        _fail(self._rows[start:stop], error)

    def expire(self, start: int, now_s: float, error: PenstockError) -> bool:
        rows = self._rows[start:]
        _fail([row for row in rows if now_s >= row[3]], error)
        return not all(row[2].done() for row in rows)

    def drop_done(self, start: int) -> None:
        self._rows[start:] = [row for row in self._rows[start:] if not row[2].done()]
        self.length = len(self._rows)


class SettlementBatcher:
    """Batches the settlements of one queue."""

    __slots__ = ("_caller", "_queue", "_lanes", "_loop", "_rider")

    def __init__(self, caller: Caller, queue: str) -> None:
        self._caller = caller
        self._queue = queue
        self._loop = asyncio.get_running_loop()
        self._lanes: dict[Terms, Lane[Settlement]] = {}
        # What goes along with the next acks.
        self._rider: Rider | None = None

    def add(self, terms: Terms, held: Held, leased: LeasedBatch | None) -> "asyncio.Future[int]":
        """Settle some messages of a lease; the future gets the bits of those that were done."""
        lane = self._lanes.get(terms)
        if lane is None:
            if len(self._lanes) >= SETTLE_LANES_KEPT:
                self._lanes = {terms: lane for terms, lane in self._lanes.items() if not lane.is_empty}
            lane = self._lanes[terms] = Lane(settling.cut, partial(self._carry, terms))
        future: asyncio.Future[int] = self._loop.create_future()
        lane.add((held, leased, future), held.rows.bit_count())
        return future

    def ride(self, wanted: Wanted) -> "asyncio.Future[LeasedBatch | None] | None":
        """Lease along with acks that are about to leave; None if there are none, or none without a lease already."""
        lane = self._lanes.get(ACK)
        if lane is None or not lane.is_leaving or (self._rider is not None and not self._rider[1].done()):
            return None
        future: asyncio.Future[LeasedBatch | None] = self._loop.create_future()
        self._rider = wanted, future
        return future

    async def drain(self) -> None:
        for lane in list(self._lanes.values()):
            await lane.drain(drops_cancelled=False)

    async def abandon(self) -> None:
        for lane in list(self._lanes.values()):
            await lane.abandon()
        if self._rider is not None:
            self._rider[1].cancel()

    async def _carry(self, terms: Terms, rows: list[Settlement]) -> None:
        wanted = rider = leased = None
        if terms == ACK and self._rider is not None:
            if not self._rider[1].done():
                wanted, rider = self._rider
            self._rider = None
        try:
            asked = [(held, batch) for held, batch, _ in rows]
            found, leased = await settling.settle_and_lease(self._caller, self._queue, terms, asked, wanted)
        finally:
            if rider is not None and not rider.done():
                rider.set_result(leased)
            elif leased is not None:
                # Not wanted any more.
                self.add(("return", None, ""), leased.held_all(), leased)
        for (_, _, future), bits in zip(rows, found, strict=True):
            if not future.done():
                future.set_result(bits)


def _cut_sends(rows: list[Send]) -> tuple[int, int]:
    """How many messages fit into a request."""
    count = min(len(rows), REQUEST_MESSAGES_MAX)
    size = sum(map(len, map(_BODY, rows[:count])))
    while size > REQUEST_BYTES_MAX and count > 1:
        count -= 1
        size -= len(rows[count][0])
    return count, count


def _fail(rows: Iterable[tuple[Any, ...]], error: PenstockError) -> None:
    for row in rows:
        if not row[2].done():
            row[2].set_exception(copy(error))
