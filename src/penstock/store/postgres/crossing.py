"""Transactions of callers where queues are in several databases: a connection is to one of them, and a queue in one.

Nothing is written to a database that the queue is not in: that a connection is to the right one is found out before
it is first used, by a lock that the store holds and that the connection cannot take. A connection stays with its
database, so that is asked once.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any
from weakref import WeakKeyDictionary

from penstock.core.queue.message import Drafts, Receipt
from penstock.core.routes import Routes
from penstock.runtime.interface import Dice
from penstock.store.errors import QueueNotFound
from penstock.store.postgres.borrowing import QueueElsewhere, Transactions
from penstock.store.postgres.within import Joined, Raw


class RoutedTransactions:
    """What `borrowing.Transactions` does, in the database that a queue is in."""

    def __init__(self, routes: Routes, places: Sequence[Transactions], dice: Dice) -> None:
        self._routes = routes
        self._places = places
        self._token: Callable[[], int] = dice.token
        self._known: WeakKeyDictionary[Raw, int] = WeakKeyDictionary()

    async def send(self, connection: object, queue: str, drafts: Drafts) -> Sequence[str]:
        return await (await self._at(connection, queue)).send(connection, queue, drafts)

    async def ack(self, connection: object, queue: str, receipts: Sequence[Receipt]) -> bool:
        return await (await self._at(connection, queue)).ack(connection, queue, receipts)

    def transaction(self, *, is_threaded: bool, queue: str | None = None) -> AbstractAsyncContextManager[Raw]:
        """Lend a connection to the database that a queue is in; it must be said which, unless there is but one."""
        if queue is None and len(self._places) > 1:
            raise ValueError("queue is not given, and queues are in several databases: say transaction(queue=…)")
        place = 0 if queue is None else self._place(queue)
        return self._places[place].transaction(is_threaded=is_threaded)

    def _place(self, queue: str) -> int:
        place = self._routes.place_of(queue)
        if place is None:
            raise QueueNotFound(f"there is no queue {queue!r}: no pattern of the map fits it ({self._routes.patterns})")
        return place

    async def _at(self, connection: object, queue: str) -> Transactions:
        """Return the transactions of the database that a queue is in. Raises `QueueElsewhere`."""
        place = self._place(queue)
        there = self._places[place]
        joined = await there.join(connection)
        if self._known.get(joined.raw) != place:
            if not await self._is_at(there, joined):
                raise QueueElsewhere(
                    f"{queue!r} is in {self._routes.name_of(place)}, and the connection is to another database: "
                    "nothing was written"
                )
            self._known[joined.raw] = place
        return there

    async def _is_at(self, there: Transactions, joined: Joined) -> bool:
        key: Any = (self._token(),)
        async with there.holding(b"SELECT pg_advisory_xact_lock(%s::bigint)", key):
            row = await joined.fetch(b"SELECT pg_try_advisory_xact_lock(%s::bigint)", key)
        return row is not None and not row[0]
