"""What stands around the work on each message.

A middleware is `async def middleware(message, call_next)`: it awaits `call_next(message)`, which is the next one, and
in the end the work itself. What it raises is what the work raises. The first given to `Worker.use` is outermost.
"""

import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from penstock.client.message import Message
from penstock.client.worker.log_events import MESSAGE_WORKED, note
from penstock.client.worker.retry import Reject

CallNext = Callable[[Message], Awaitable[None]]
Middleware = Callable[[Message, CallNext], Awaitable[None]]


def compose(middleware: Sequence[Middleware], work: CallNext) -> CallNext:
    """One function that goes through all of them."""
    for each in reversed(middleware):
        work = partial(_call, each, work)
    return work


async def _call(middleware: Middleware, call_next: CallNext, message: Message) -> None:
    await middleware(message, call_next)


class LoggingMiddleware:
    """One line for each message: queue, id, delivery, how long it took, and what came of it."""

    def __init__(self, *, level: int = logging.INFO, failure_level: int = logging.WARNING) -> None:
        self._level = level
        self._failure_level = failure_level

    async def __call__(self, message: Message, call_next: CallNext) -> None:
        began_s = time.perf_counter()
        outcome, error = "cancelled", ""
        try:
            await call_next(message)
            outcome = "done"
        except Exception as failure:
            outcome = "rejected" if isinstance(failure, Reject) else "failed"
            error = f"{type(failure).__name__}: {failure}"
            raise
        finally:
            fields: dict[str, object] = {
                "queue": message.queue,
                "id": message.id,
                "delivery": message.delivery_count,
                "duration_ms": round((time.perf_counter() - began_s) * 1_000, 1),
                "outcome": outcome,
            }
            if error:
                fields["error"] = error
            note(MESSAGE_WORKED, self._level if outcome == "done" else self._failure_level, **fields)
