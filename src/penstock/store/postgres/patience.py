"""What takes a lock that others may hold for long is tried for a moment, and again a little later.

Whoever waits for such a lock holds up everybody who comes behind: so it waits for half a second at most (`sql/`), gives
way, and comes again.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from penstock.store.postgres.refusals import Locked

T = TypeVar("T")

_WAITS_S = (0.5, 1.0, 2.0, 4.0, 8.0)


async def patiently(run: Callable[[], Awaitable[T]]) -> T:
    """Do something that may find a lock taken; raises `Locked` if it still is after some tries."""
    for wait_s in _WAITS_S:
        try:
            return await run()
        except Locked:
            await asyncio.sleep(wait_s)
    return await run()
