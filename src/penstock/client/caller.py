"""One call, carried by a transport: an answer, or an error with a name."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from penstock.client.errors import ClientClosed, ConnectionFailed, ServerFailed, error_of
from penstock.client.requests import Call
from penstock.client.retrying import repeat
from penstock.client.transport import AnswerTooLarge, NotSent, Transport, Unanswered
from penstock.client.within import Within, within_of

T = TypeVar("T")

TIMEOUT_S = 60.0
# How long one try may take, beside the time that a long poll asks for.
ANSWER_S = 30.0


class Caller:
    """Makes calls. The transport is opened by the first of them, in the loop that makes it."""

    def __init__(self, open_transport: Callable[[], Transport], *, timeout_s: float = TIMEOUT_S) -> None:
        self._open_transport = open_transport
        self._transport: Transport | None = None
        self._is_closed = False
        self.timeout_s = timeout_s

    async def attempt(self, call: Call[T]) -> T:
        """Try once."""
        if self._is_closed:
            raise ClientClosed("the client is closed")
        transport = self._transport or self._open()
        try:
            answer = await transport.request(
                call.method,
                call.path,
                headers=call.headers,
                body=call.body,
                timeout_s=ANSWER_S + call.wait_s,
                is_repeatable=call.is_repeatable,
            )
        except Unanswered as error:
            failed = ConnectionFailed(str(error))
            failed.is_sent = not isinstance(error, NotSent)
            raise failed from error
        except AnswerTooLarge as error:
            raise ServerFailed(str(error)) from error
        if answer.status >= 400 and answer.status != call.also_read:
            raise error_of(answer)
        return call.read(answer)

    async def perform(self, call: Call[T], timeout_s: float | None = None) -> T:
        """Try for as long as it may help, up to ``timeout_s``."""
        time_s = self.timeout_s if timeout_s is None else timeout_s
        deadline_s = asyncio.get_running_loop().time() + time_s
        return await repeat(lambda: self.attempt(call), is_repeatable=call.is_repeatable, deadline_s=deadline_s)

    async def perform_anew(self, ask: Callable[[], Call[T]]) -> T:
        """Try what may be repeated, with a call that ``ask`` makes for each try."""
        deadline_s = asyncio.get_running_loop().time() + self.timeout_s
        return await repeat(lambda: self.attempt(ask()), is_repeatable=True, deadline_s=deadline_s)

    def within(self) -> Within:
        """What sends and acks in transactions of the caller's. Raises `NotTransactional`."""
        if self._is_closed:
            raise ClientClosed("the client is closed")
        return within_of(self._transport or self._open())

    async def close(self) -> None:
        self._is_closed = True
        if self._transport is not None:
            await self._transport.close()

    def _open(self) -> Transport:
        self._transport = self._open_transport()
        return self._transport
