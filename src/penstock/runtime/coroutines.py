"""Coroutines that run without a task: here up to their first wait, and from each wait on in its callback.

    drive ──▶ first step ──▶ waits for a future ─ ─ done ─▶ next step ──▶ … ──▶ end

A task costs more than many a step of a request: to make it, and a turn of the loop until it begins.

Laws of this file
-----------------
1. The coroutine has no current task. It may wait for futures, for tasks, and for its turn (`asyncio.sleep(0)`). It may
   not use `asyncio.timeout` or a `TaskGroup` of its own: they look for the current task, and raise without one.
2. What it waits for is among its owner's ``waits`` like a task. To cancel that cancels the coroutine at this place.
3. The coroutine handles its own errors, as no caller hears of them. Only `CancelledError` may leave it.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any


def drive(coroutine: Coroutine[Any, Any, None], waits: "set[Any]") -> None:
    """Run a coroutine to its first wait, and go on when that has ended."""
    try:
        waited = coroutine.send(None)
    except BaseException as error:
        # It has ended, or was cancelled where it waited, and no caller waits to hear of that.
        if isinstance(error, StopIteration | asyncio.CancelledError):
            return
        raise
    if waited is None:
        waited = asyncio.get_running_loop().create_future()
        waited.set_result(None)
    else:
        # As a task does it with what it is given to wait for.
        waited._asyncio_future_blocking = False

    def go_on(_: object) -> None:
        waits.discard(waited)
        drive(coroutine, waits)

    waits.add(waited)
    waited.add_done_callback(go_on)
