"""The ways of a test to wait. No test sleeps: `tests/tidy` finds a sleep that gives no reason for real time.

    elapse           virtual time passes, in the simulator only
    let_others_run   the other tasks of the loop get their turns, and no time passes
    until_cancelled  work without an end, which a test cancels
    eventually       wait for what other tasks, threads or processes bring about and nothing announces
    wait_until       the same in a thread that may block

The last two have an upper bound that only a failed test reaches, and no lower one. What announces itself (an event, a
notification, the answer to a long poll) is awaited instead.
"""

import asyncio
import inspect
import time
from collections.abc import Callable
from typing import Any

from tests.simulation.loop import SimLoop

PATIENCE_S = 60.0
# From the first look to the second, and at most.
_LOOK_S = 0.001
_LOOK_S_MAX = 0.02


async def elapse(seconds: float) -> None:
    """Let virtual time pass. It costs none that is real, so it is refused in a loop that would sleep."""
    assert isinstance(asyncio.get_running_loop(), SimLoop), "time is real here: wait for the thing itself"
    await asyncio.sleep(seconds)  # Real time: none, it is virtual.


async def let_others_run(turns: int = 1) -> None:
    """Give each task that is ready as many turns."""
    for _ in range(turns):
        await asyncio.sleep(0)  # Real time: none.


async def until_cancelled() -> None:
    """Be work that has no end of its own."""
    await asyncio.Event().wait()


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
