"""How messages get to a queue: once each, whatever happens on the way.

A request carries up to 1,000 messages under one sequence of this client's sender, and the server answers a sequence
that it knows as it did the first time. So a request that was not answered is repeated as it is, and nothing is
doubled.

What is refused as a whole may be wanted in parts. If a queue is full, or a message is refused that travels with those
of others, half as many are tried, down to a single one: that one is at fault, or has to wait until there is room. What
succeeds doubles the next part. A queue that is too small for all of a `send_many` takes it in parts, too.

    1000 ──429──► 500 ──429──► 250 ──201──► 500 ──429──► … 1 ──429──► wait for `Retry-After`, and on

Laws of the file
----------------
1. A sequence is used for one composition of messages. It is left behind only after a refusal, which says that nothing
   was stored under it.
2. The server remembers the last 64 sequences of a sender. No sequence is begun that is `WINDOW` or more above one
   that has no answer yet, so a repeat is never one that was forgotten.
"""

import asyncio
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Protocol, overload

from penstock.client import requests
from penstock.client.caller import Caller, may_repeat, wait_s_of
from penstock.client.drafts import Drafts
from penstock.client.errors import BadRequest, PenstockError, QueueFull, TooLarge
from penstock.contract.limits import REQUEST_MESSAGES_MAX
from penstock.wire.frames import Ids, Sender
from penstock.wire.operations import SEND_MESSAGES

WINDOW = 32


class SendBatch(Protocol):
    """Messages on their way, and the callers that wait for them."""

    # Whether they belong to several callers, so that one that is refused must not be the others' trouble.
    is_mixed: bool
    # How many there are; fewer when callers have gone.
    length: int

    def drafts(self, start: int, stop: int) -> Drafts:
        """Some of them, to be sent."""
        ...

    def answer(self, start: int, stop: int, ids: Ids) -> None:
        """These were sent."""
        ...

    def fail(self, start: int, stop: int, error: PenstockError) -> None:
        """These were not sent, or it is not known."""
        ...

    def expire(self, start: int, now_s: float, error: PenstockError) -> bool:
        """From ``start`` on: fail those whose time is up, and return whether any caller still waits."""
        ...

    def drop_done(self, start: int) -> None:
        """From ``start`` on: leave out those whose callers have gone."""
        ...


class Window:
    """The sequences of one sender at one queue that have no answer yet."""

    __slots__ = ("_next", "_begun", "_waiting")

    def __init__(self) -> None:
        self._next = 0
        # In the order of their numbers.
        self._begun: dict[int, None] = {}
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def begin(self) -> int:
        while self._begun and self._next - next(iter(self._begun)) >= WINDOW:
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            await turn
        sequence = self._next
        self._next += 1
        self._begun[sequence] = None
        return sequence

    def end(self, sequence: int) -> None:
        del self._begun[sequence]
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)


class Delivery:
    """Delivers batches to one queue."""

    def __init__(self, caller: Caller, queue: str, sender_id: int) -> None:
        self._caller = caller
        self._path = requests.path_of(SEND_MESSAGES, queue=queue)
        self._sender_id = sender_id
        self._window = Window()
        # When this queue was last full, by the clock of the loop.
        self.was_full_at_s = float("-inf")

    async def deliver(self, batch: SendBatch) -> None:
        """Send all of a batch, and answer for each message of it."""
        position, most = 0, REQUEST_MESSAGES_MAX
        while position < batch.length:
            stop = min(position + most, batch.length)
            try:
                ids = await self._send(batch, position, stop)
            except QueueFull as full:
                if stop - position > 1:
                    most = (stop - position) // 2
                else:
                    await self._wait_for_room(batch, position, full)
            except (BadRequest, TooLarge) as error:
                if stop - position > 1 and (batch.is_mixed or isinstance(error, BadRequest)):
                    most = (stop - position) // 2
                else:
                    batch.fail(position, stop, error)
                    position = stop
            except PenstockError as error:
                batch.fail(position, batch.length, error)
                return
            else:
                batch.answer(position, stop, ids)
                position, most = stop, min(most * 2, REQUEST_MESSAGES_MAX)

    async def _send(self, batch: SendBatch, start: int, stop: int) -> Ids:
        """Send some messages under one sequence, repeatedly until there is an answer."""
        sequence, tries = await self._window.begin(), 0
        try:
            call = requests.send(self._path, batch.drafts(start, stop), Sender(self._sender_id, 0, sequence))
            while True:
                try:
                    ids = await self._caller.attempt(call)
                    if len(ids) != stop - start:
                        raise requests.not_ours(f"{len(ids)} ids for {stop - start} messages")
                    return ids
                except PenstockError as error:
                    tries += 1
                    if not may_repeat(error, is_repeatable=True):
                        raise
                    if not batch.expire(start, self._caller.now_s(), error):
                        raise
                    wait_s = wait_s_of(error, tries)
                await self._caller.sleep(wait_s)
        finally:
            self._window.end(sequence)

    async def _wait_for_room(self, batch: SendBatch, position: int, full: QueueFull) -> None:
        self.was_full_at_s = self._caller.now_s()
        if batch.expire(position, self.was_full_at_s, full):
            await self._caller.sleep(wait_s_of(full, 1))
        batch.drop_done(position)


class ListedSends:
    """The messages of one `send_many`, which all have the same time."""

    is_mixed = False

    def __init__(self, drafts: Drafts, deadline_s: float) -> None:
        self._drafts = drafts
        self.length = len(drafts)
        self._deadline_s = deadline_s
        self._parts: list[tuple[int, int, Ids]] = []
        # Of the first message that was not sent.
        self.error: PenstockError | None = None

    def drafts(self, start: int, stop: int) -> Drafts:
        return self._drafts.part(start, stop)

    def answer(self, start: int, stop: int, ids: Ids) -> None:
        self._parts.append((start, stop, ids))

    def fail(self, start: int, stop: int, error: PenstockError) -> None:  # noqa: ARG002 - what follows is not sent.
        self.error = self.error or error
        self.length = start

    def expire(self, start: int, now_s: float, error: PenstockError) -> bool:
        if now_s >= self._deadline_s:
            self.fail(start, self.length, error)
        return now_s < self._deadline_s

    def drop_done(self, start: int) -> None:
        """All of them wait, or none: `expire` has left those out."""

    def ids(self) -> list[Ids]:
        return [ids for _, _, ids in self._parts]

    def known_ids(self) -> list[str | None]:
        """The ids of what was sent, None for the rest."""
        found: list[str | None] = [None] * len(self._drafts)
        for start, stop, ids in self._parts:
            found[start:stop] = texts_of(ids)
        return found


def texts_of(ids: Ids) -> list[str]:
    """All ids, as texts."""
    if ids.keys is not None:
        front = f"{ids.queue:x}-"
        return [f"{front}{key:x}" for key in ids.keys]
    return [ids[row] for row in range(len(ids))]


class SentIds(Sequence[str]):
    """The ids of a `send_many`, in the order of its messages. An id becomes text when it is read."""

    __slots__ = ("_parts", "_length")

    def __init__(self, parts: Sequence[Ids]) -> None:
        self._parts = parts
        self._length = sum(map(len, parts))

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, row: int) -> str: ...

    @overload
    def __getitem__(self, row: slice) -> list[str]: ...

    def __getitem__(self, row: int | slice) -> str | list[str]:
        rows = range(self._length)[row]
        return self._one(rows) if isinstance(rows, int) else [self._one(each) for each in rows]

    def __iter__(self) -> Iterator[str]:
        return chain.from_iterable(map(texts_of, self._parts))

    def _one(self, row: int) -> str:
        for ids in self._parts:
            if row < len(ids):
                return ids[row]
            row -= len(ids)
        raise IndexError(row)
