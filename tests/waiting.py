"""Wait for what others bring about and nothing announces: look again until it is so.

Each has an upper bound that only a test that has failed reaches, and no lower one. What announces itself (an event, a
notification, the answer to a long poll) is awaited instead.
"""

import asyncio
import inspect
import time
from collections.abc import Callable
from typing import Any

PATIENCE_S = 60.0
# From the first look to the second, and at most.
_LOOK_S = 0.001
_LOOK_S_MAX = 0.02


async def eventually(look: Callable[[], Any], *, within_s: float = PATIENCE_S) -> Any:
    """Return the first true thing that a look finds. It may be a coroutine function."""
    pause_s = _LOOK_S
    async with asyncio.timeout(within_s):
        while True:
            found = look()
            if inspect.isawaitable(found):
                found = await found
            if found:
                return found
            await asyncio.sleep(pause_s)  # Real time: nothing announces it.
            pause_s = min(2 * pause_s, _LOOK_S_MAX)


def wait_until(look: Callable[[], Any], *, within_s: float = PATIENCE_S) -> Any:
    """Return the first true thing that a look finds, in a thread that may block."""
    pause_s, until = _LOOK_S, time.monotonic() + within_s
    while not (found := look()):
        assert time.monotonic() < until, "it has not come about"
        time.sleep(pause_s)  # Real time: nothing announces it.
        pause_s = min(2 * pause_s, _LOOK_S_MAX)
    return found
