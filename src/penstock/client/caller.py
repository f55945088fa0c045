"""One request and its answer: what a transport promises, what is retried and when, and the errors that callers see.

Two transports carry requests: `http.py` over sockets, and the in-process application of `connect.py`. Both promise:

- An answer is whole, whatever its status: the caller judges it.
- `NotSent` means that the other side cannot have seen the request; `Unanswered` that it may have.
- `AnswerTooLarge` means that there is an answer which is not read: another try would not make it smaller.
- With ``is_repeatable`` a request may have been sent twice when the answer comes.
- Cancelling leaves nothing behind: no answer of one request is taken for another's.

A request is retried if that does no harm:

- it was not sent: there was no connection;
- it was not answered, and doing it twice is doing it once (``is_repeatable``);
- the server says that it did nothing and may do it later: 503, 507, and 429 of too many long polls.

The pause between two tries is what the server asks for, up to a few seconds, or else a random part of a time that
doubles. `delivery.py` handles a full queue, as there is more that can be done about it.

`Caller` is given the clock and the pause that it uses, and asks for no event loop otherwise. A transport whose
`request` blocks can so be driven without one.
"""

import asyncio
import random
import threading
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, Protocol, TypeVar, runtime_checkable

from penstock.client.errors import (
    ClientClosed,
    ConnectionFailed,
    PenstockError,
    ServerBusy,
    ServerError,
    TransactionRequired,
    error_of,
)
from penstock.frame import Buffer
from penstock.wire.frames import Held

T = TypeVar("T")

TIMEOUT_S = 60.0
# How long one try may take, beside the time that a long poll asks for.
ANSWER_S = 30.0
FIRST_WAIT_S = 0.05
WAIT_S_MAX = 2.0
ASKED_WAIT_S_MAX = 5.0

# Pairs of a lower-case name and a value.
Headers = tuple[tuple[str, str], ...]
# A database connection of the caller's; the store that uses it finds out of which library it is.
Connection = Any


class Unanswered(Exception):
    """The connection broke, or time ran out, and the request may have arrived."""


class NotSent(Unanswered):
    """There was no connection, so the request cannot have arrived."""


class AnswerTooLarge(Exception):
    """The answer has more bytes than any answer that the client asks for."""


class Answer(NamedTuple):
    status: int
    # Names are in lower case; the last value of a repeated name counts. Only those of an error are looked at.
    headers: dict[str, str]
    body: bytes


@dataclass(slots=True)
class Call(Generic[T]):
    """One request, and the function that reads its answer.

    ``wait_s`` is how long the server may take on purpose; a status of ``also_read`` is no error.
    """

    method: str
    path: str
    read: Callable[[Answer], T]
    is_repeatable: bool
    headers: Headers = ()
    body: Buffer = b""
    wait_s: float = 0.0
    also_read: int = 0
    # Whether a try that failed may have arrived.
    may_have_arrived: bool = False


class Transport(Protocol):
    async def request(
        self, method: str, path: str, *, headers: Headers, body: Buffer, timeout_s: float, is_repeatable: bool
    ) -> Answer:
        """Send a request and return the answer, within ``timeout_s`` from when a connection is there."""
        ...

    async def close(self) -> None:
        """End everything. What is under way then is `Unanswered`."""
        ...


@runtime_checkable
class TransactionalTransport(Protocol):
    """A transport to a database, `penstock.connect("postgresql://…")`, to which the caller has a connection, too.

    Sends and acks are part of the caller's transaction: they commit with the rest of it, or not at all. A connection is
    psycopg's, synchronous or asynchronous, or SQLAlchemy's over psycopg. The client only runs statements on it; the
    caller begins and ends the transaction. An asynchronous connection belongs to the event loop it was made in, so it
    goes with the asynchronous client.
    """

    async def send_within(self, connection: Connection, queue: str, frame: bytes) -> Sequence[str]:
        """Send the messages of a frame. The ids are good once the caller commits."""
        ...

    async def ack_within(self, connection: Connection, queue: str, held: Sequence[Held]) -> bool:
        """Ack messages. If the lease of any has ended, return False, and the transaction cannot commit any more."""
        ...

    def transaction(self, *, is_threaded: bool, queue: str | None = None) -> AbstractAsyncContextManager[Connection]:
        """Lend a connection in a transaction, which is committed at the end, or rolled back on an exception.

        It is to the database of ``queue``, which has to be named if there are several databases. With ``is_threaded``
        it is a synchronous connection of psycopg.
        """
        ...


def loop_time_s() -> float:
    return asyncio.get_running_loop().time()


class Caller:
    """Makes calls. The first one opens the transport, in the event loop that it runs in."""

    def __init__(
        self,
        open_transport: Callable[[], Transport],
        *,
        timeout_s: float = TIMEOUT_S,
        now_s: Callable[[], float] = loop_time_s,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self._open_transport = open_transport
        self._transport: Transport | None = None
        # Threads may make their first calls at the same time.
        self._opening = threading.Lock()
        self._is_closed = False
        self.timeout_s = timeout_s
        # What a trace adds to each request.
        self.trace: Callable[[], Headers] | None = None
        self.now_s = now_s
        self.sleep = sleep

    async def attempt(self, call: Call[T]) -> T:
        """Try once."""
        transport = self._transport or self._open()
        try:
            answer = await transport.request(
                call.method,
                call.path,
                headers=call.headers if self.trace is None else (*call.headers, *self.trace()),
                body=call.body,
                timeout_s=ANSWER_S + call.wait_s,
                is_repeatable=call.is_repeatable,
            )
        except Unanswered as error:
            failed = ConnectionFailed(str(error))
            failed.is_sent = not isinstance(error, NotSent)
            raise failed from error
        except AnswerTooLarge as error:
            raise ServerError(str(error)) from error
        if answer.status >= 400 and answer.status != call.also_read:
            raise error_of(*answer)
        return call.read(answer)

    async def perform(
        self, ask: Call[T] | Callable[[], Call[T]], timeout_s: float | None = None, *, is_harmless: bool = False
    ) -> T:
        """Try until ``timeout_s`` is over; a function makes a fresh call for each try.

        With ``is_harmless`` a call is repeated that a transport must not repeat.
        """
        deadline_s, tries = self.now_s() + (self.timeout_s if timeout_s is None else timeout_s), 0
        while True:
            call = ask if isinstance(ask, Call) else ask()
            try:
                return await self.attempt(call)
            except PenstockError as error:
                tries += 1
                wait_s = wait_s_of(error, tries)
                if not may_repeat(error, is_repeatable=is_harmless or call.is_repeatable):
                    raise
                if self.now_s() + wait_s > deadline_s:
                    raise
                call.may_have_arrived |= isinstance(error, ConnectionFailed) and error.is_sent
            await self.sleep(wait_s)

    def transactional(self) -> TransactionalTransport:
        """Return the transport if it takes part in transactions of the caller's; raises `TransactionRequired`."""
        transport = self._transport or self._open()
        if isinstance(transport, TransactionalTransport):
            return transport
        raise TransactionRequired(
            "a transaction needs a client of the database itself: penstock.connect('postgresql://…')",
            code="bad_request",
        )

    async def close(self) -> None:
        with self._opening:
            self._is_closed = True
            transport, self._transport = self._transport, None
        if transport is not None:
            await transport.close()

    def _open(self) -> Transport:
        with self._opening:
            if self._is_closed:
                raise ClientClosed("the client is closed")
            if self._transport is None:
                self._transport = self._open_transport()
            return self._transport


def wait_s_of(error: PenstockError, tries: int) -> float:
    """How long to wait after this many tries, at least 1."""
    if error.retry_after_s is not None:
        # Clients that were refused together must not return together. What the server asks for is a guess from the
        # past: no client should stay away for a minute from a queue that gets its first worker now.
        return min(ASKED_WAIT_S_MAX, error.retry_after_s) * random.uniform(1.0, 1.25)
    return random.uniform(0.5, 1.0) * min(WAIT_S_MAX, FIRST_WAIT_S * 2.0 ** (min(tries, 20) - 1))


def may_repeat(error: PenstockError, *, is_repeatable: bool) -> bool:
    if isinstance(error, ConnectionFailed):
        return is_repeatable or not error.is_sent
    return isinstance(error, ServerBusy)
