"""Acks, releases and extensions of many callers, gathered into requests.

A lane has what is asked in the same words: the verb, its time and its error. A request names each lease once, with a
bit for each message. As with sends, a lane that has nothing on its way leaves in the next turn of the loop.

Doing it twice is doing it once, so what was not answered is repeated. The repeat of one that had arrived is answered
"stale", because the first has settled it. If the lease cannot have ended yet by our own clock, that is what happened,
and it counts as done.
"""

import asyncio
import time
from copy import copy

from penstock.client import requests
from penstock.client.caller import Caller
from penstock.client.errors import ClientClosed, ConnectionFailed, PenstockError
from penstock.client.lease_ends import end_of
from penstock.client.message import Facts
from penstock.client.retrying import may_repeat, wait_s_of
from penstock.wire.frames import Held

IN_FLIGHT_MAX = 4
EAGER = 128
LEASES_MAX = 1_000
ROWS_MAX = 10_000

# Which messages, what is known of their lease, and who waits for the bits of those that were done.
Asked = tuple[Held, Facts | None, "asyncio.Future[int]"]
# What is asked: the verb, its time and its error.
Words = tuple[str, int | None, str]


class Settling:
    """The lanes of one queue."""

    __slots__ = ("_caller", "_path", "_lanes")

    def __init__(self, caller: Caller, queue: str) -> None:
        self._caller = caller
        self._path = requests.path_of(queue)
        self._lanes: dict[Words, _Lane] = {}

    def settle(
        self, verb: str, held: Held, facts: Facts | None, time_ms: int | None, text: str
    ) -> "asyncio.Future[int]":
        """Settle some messages of a lease; in the end there are the bits of those that were done."""
        words = verb, time_ms, text
        lane = self._lanes.get(words)
        if lane is None:
            lane = self._lanes[words] = _Lane(self._caller, self._path, words, self._lanes)
        return lane.add(held, facts)

    async def drain(self) -> None:
        for lane in list(self._lanes.values()):
            await lane.drain()

    async def abandon(self) -> None:
        for lane in list(self._lanes.values()):
            await lane.abandon()


class _Lane:
    __slots__ = ("_caller", "_path", "_words", "_lanes", "_loop", "_asked", "_row_count", "_tasks", "_is_due")

    def __init__(self, caller: Caller, path: str, words: Words, lanes: "dict[Words, _Lane]") -> None:
        self._caller = caller
        self._path = path
        self._words = words
        self._lanes = lanes
        self._loop = asyncio.get_running_loop()
        self._asked: list[Asked] = []
        self._row_count = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_due = False

    def add(self, held: Held, facts: Facts | None) -> "asyncio.Future[int]":
        future: asyncio.Future[int] = self._loop.create_future()
        self._asked.append((held, facts, future))
        self._row_count += held.rows.bit_count()
        if not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._start)
        return future

    async def drain(self) -> None:
        """Return when everything has an answer."""
        while self._tasks or self._asked:
            self._start()
            await asyncio.wait(self._tasks)

    async def abandon(self) -> None:
        asked, self._asked = self._asked, []
        _fail(asked, ClientClosed("the client was closed"))
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _start(self) -> None:
        self._is_due = False
        while self._asked and (not self._tasks or (len(self._tasks) < IN_FLIGHT_MAX and self._row_count >= EAGER)):
            self._tasks.add(self._loop.create_task(self._carry(self._take())))
        if not self._asked and not self._tasks:
            # Errors are words, too, and there is no end of them.
            self._lanes.pop(self._words, None)

    def _take(self) -> list[Asked]:
        count = taken = 0
        for held, _, _ in self._asked[:LEASES_MAX]:
            rows = held.rows.bit_count()
            if taken + rows > ROWS_MAX and count:
                break
            taken += rows
            count += 1
        asked = self._asked[:count]
        del self._asked[:count]
        self._row_count -= taken
        return asked

    async def _carry(self, asked: list[Asked]) -> None:
        try:
            await self._settle(asked)
        except PenstockError as error:
            _fail(asked, error)
        except asyncio.CancelledError:
            _fail(asked, ClientClosed("the client was closed"))
            raise
        except Exception as error:
            # A mistake of ours: whoever waits must not wait for ever.
            _fail(asked, PenstockError(f"the client made a mistake: {error!r}"))
            raise
        finally:
            task = asyncio.current_task()
            assert task is not None
            self._tasks.discard(task)
            self._start()

    async def _settle(self, asked: list[Asked]) -> None:
        verb, time_ms, text = self._words
        asked_at_s, lease_s = time.monotonic(), (time_ms or 0) / 1_000
        leases: dict[tuple[int, int], int] = {}
        for (lease, token, rows), _, _ in asked:
            leases[lease, token] = leases.get((lease, token), 0) | rows
        held = [Held(lease, token, rows) for (lease, token), rows in leases.items()]
        found, is_repeated = await self._ask(requests.settle(self._path, verb, held, time_ms=time_ms, text=text))
        if len(found) != len(held):
            raise requests.not_ours(f"{len(found)} results for {len(held)} leases")
        done = dict(zip(leases, found, strict=True))
        for (lease, token, rows), facts, future in asked:
            if not future.done():
                rows_done = done[lease, token] & rows
                if facts is not None:
                    if verb == "extend":
                        facts.extended(rows_done, end_of(lease_s, asked_at_s), int((time.time() + lease_s) * 1_000))
                    elif is_repeated and rows_done != rows:
                        rows_done |= _not_lapsed(facts, rows)
                future.set_result(rows_done)

    async def _ask(self, call: requests.Call[list[int]]) -> tuple[list[int], bool]:
        """Ask until there is an answer, and say whether an earlier try may have arrived."""
        deadline_s, tries, is_repeated = self._loop.time() + self._caller.timeout_s, 0, False
        while True:
            try:
                return await self._caller.attempt(call), is_repeated
            except PenstockError as error:
                tries += 1
                wait_s = wait_s_of(error, tries)
                if not may_repeat(error, is_repeatable=True) or self._loop.time() + wait_s > deadline_s:
                    raise
                is_repeated |= isinstance(error, ConnectionFailed) and error.is_sent
            await asyncio.sleep(wait_s)


def _not_lapsed(facts: Facts, rows: int) -> int:
    return sum(1 << row for row in range(rows.bit_length()) if rows >> row & 1 and not facts.may_have_lapsed(row))


def _fail(asked: list[Asked], error: PenstockError) -> None:
    for _, _, future in asked:
        if not future.done():
            future.set_exception(copy(error))
