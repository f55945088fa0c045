"""What is tried again, and when.

A request is repeated if that does no harm:

- it was not sent at all: there was no connection;
- it was not answered, and doing it twice is doing it once (``is_repeatable``);
- the server says that it did nothing and may do it later: 503, 507, and 429 of too many waiting.

Between two tries lies the time the server asks for, up to a few seconds, or else a random part of a time that doubles.
A full queue is left to `delivering.py`, which knows what else can be done about it.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

from penstock.client.errors import ConnectionFailed, PenstockError, ServerBusy

T = TypeVar("T")

FIRST_WAIT_S = 0.05
WAIT_S_MAX = 2.0
ASKED_WAIT_S_MAX = 5.0


def wait_s_of(error: PenstockError, tries: int) -> float:
    """How long to wait after so many tries, at least 1."""
    if error.retry_after_s is not None:
        # All that were turned away together shall not come back together. What the server asks for is a guess from the
        # past: nobody shall stay away for a minute from a queue that gets its first worker now.
        return min(ASKED_WAIT_S_MAX, error.retry_after_s) * random.uniform(1.0, 1.25)
    return random.uniform(0.5, 1.0) * min(WAIT_S_MAX, FIRST_WAIT_S * 2.0 ** (min(tries, 20) - 1))


def may_repeat(error: PenstockError, *, is_repeatable: bool) -> bool:
    if isinstance(error, ConnectionFailed):
        return is_repeatable or not error.is_sent
    return isinstance(error, ServerBusy)


async def repeat(attempt: Callable[[], Awaitable[T]], *, is_repeatable: bool, deadline_s: float) -> T:
    """Try until it is done, cannot be done, or the clock of the loop stands at ``deadline_s``."""
    now, tries = asyncio.get_running_loop().time, 0
    while True:
        try:
            return await attempt()
        except PenstockError as error:
            tries += 1
            wait_s = wait_s_of(error, tries)
            if not may_repeat(error, is_repeatable=is_repeatable) or now() + wait_s > deadline_s:
                raise
        await asyncio.sleep(wait_s)
