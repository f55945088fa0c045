"""Messages one after the other, with the next ones fetched while the caller works on this one.

A message waits here under its lease. One whose lease has ended by the time it is its turn is left out: others may
have it. What nobody has looked at in the end is given back at once.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from typing import Protocol

from penstock.client.errors import bad_field
from penstock.client.message import Facts, Message, Settler
from penstock.wire.frames import Held
from penstock.wire.messages import MESSAGES_MAX

Ready = deque[tuple[Facts, int]]


class Source(Settler, Protocol):
    """A queue, as far as it is needed here."""

    async def lease(self, *, limit: int, wait_s: float, visibility_timeout: float | None) -> Facts | None: ...


async def messages(
    queue: Source, *, prefetch: int, wait_s: float, visibility_timeout: float | None
) -> AsyncGenerator[Message, None]:
    """Yield messages for ever. With ``prefetch`` 0 the next one is asked for only when it is wanted."""
    if not 0 <= prefetch <= MESSAGES_MAX:
        raise bad_field("prefetch", f"prefetch is {prefetch}; it is between 0 and {MESSAGES_MAX}", limit=MESSAGES_MAX)
    ready: Ready = deque()
    fetching: asyncio.Task[Facts | None] | None = None
    try:
        while True:
            if fetching is None and len(ready) <= prefetch // 2:
                limit = max(1, prefetch - len(ready))
                lease = queue.lease(limit=limit, wait_s=wait_s, visibility_timeout=visibility_timeout)
                fetching = asyncio.create_task(lease)  # noqa: TID251 - awaited below, also in the end.
            if fetching is not None and (fetching.done() or not ready):
                _put(ready, await fetching)
                fetching = None
            if ready:
                facts, row = ready.popleft()
                if not facts.has_lapsed(row):
                    yield Message(facts, row, queue)
    finally:
        await _end(queue, ready, fetching)


def _put(ready: Ready, facts: Facts | None) -> None:
    if facts is not None:
        ready.extend((facts, row) for row in range(len(facts)))


async def _end(queue: Source, ready: Ready, fetching: "asyncio.Task[Facts | None] | None") -> None:
    if fetching is not None:
        fetching.cancel()
        await asyncio.wait([fetching])
        if not fetching.cancelled() and fetching.exception() is None:
            _put(ready, fetching.result())
    leases: dict[int, tuple[Facts, int]] = {}
    for facts, row in ready:
        leases[id(facts)] = facts, leases.get(id(facts), (facts, 0))[1] | 1 << row
    for facts, rows in leases.values():
        held: Held = facts.held(rows)
        await queue.settle("release", held, facts, time_ms=0)
