"""HTTP/1.1 over blocking sockets, for programs without an event loop: `http.py` says what both transports promise.

A request runs in the thread that makes it, on a connection of the pool. There is no other thread, and no event loop:
`request` is a coroutine that never waits for one, so a call takes it to its end in one step (`drive`).

Threads may share a transport. Lists and sets change in one step of the interpreter, so a request takes a connection and
gives it back without a lock; only those that find none idle use one, to open a connection or to wait.

A forked process must not use the connections of its parent. `forget` closes the child's copies of the sockets, which
ends nothing for the parent.
"""

import select
import socket
import ssl
import threading
from collections.abc import Coroutine
from time import monotonic
from typing import Any, TypeVar

from penstock.client.caller import Answer, Headers, NotSent, Unanswered
from penstock.client.http import (
    CONNECT_S_MAX,
    CONNECTIONS_MAX,
    COPIED_BYTES_MAX,
    PIECE_BYTES,
    RESTED_S,
    Address,
    Endpoint,
    tls_of,
)
from penstock.client.http_answer import AnswerParser
from penstock.frame import Buffer

# What one call of the system reads: small answers come whole, large ones in few pieces.
_READ_BYTES = 65_536
_READ_BYTES_LARGE = 1_048_576

T = TypeVar("T")


def drive(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that waits for no event loop, and return what it returns."""
    try:
        work.send(None)
    except StopIteration as end:
        found: T = end.value
        return found
    work.close()
    raise RuntimeError("a call of the synchronous API waits for an event loop, and there is none")


class BlockingConnection:
    """A connection, of one request at a time."""

    __slots__ = ("has_heard", "idle_since_s", "is_dropped", "is_open", "_parser", "_poll", "_socket", "_timeout_s")

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self._parser = AnswerParser()
        self._poll = select.poll()
        self._poll.register(connected, select.POLLIN)
        # Of the socket, which is told only what changes.
        self._timeout_s = -1.0
        # Whether a byte of the answer that is waited for has come.
        self.has_heard = False
        self.is_open = True
        # Whether the other side closed it, and not we for a reason of ours.
        self.is_dropped = False
        self.idle_since_s = 0.0

    def exchange(self, head: bytes, body: Buffer, timeout_s: float) -> Answer:
        """Send a request and return its answer. Raises `Unanswered` if the connection ends before."""
        parser, until_s = self._parser, monotonic() + timeout_s
        parser.begin()
        self.has_heard = False
        try:
            self._set_timeout(timeout_s)
            answer = None
            if len(body) <= COPIED_BYTES_MAX:
                self._socket.sendall(head + body)
            else:
                answer = self._send_in_pieces(head, memoryview(body), until_s)
            size = _READ_BYTES
            while answer is None:
                answer = self._heard(self._socket.recv(size))
                if answer is None:
                    size = _READ_BYTES_LARGE
                    self._set_timeout(max(0.001, until_s - monotonic()))
        except TimeoutError:
            self.close()
            raise Unanswered(f"no answer within {timeout_s:g} s") from None
        except OSError as error:
            self.is_dropped = self.is_open
            self.close()
            raise Unanswered(f"the connection was lost: {error}") from error
        except BaseException:
            self.close()
            raise
        if parser.is_last:
            self.close()
        return answer

    def is_quiet(self) -> bool:
        """Whether the server has neither closed it nor said anything while it was idle."""
        return not self._poll.poll(0)

    def close(self) -> None:
        self.is_open = False
        self._socket.close()

    def shut_down(self) -> None:
        """End it under the request of another thread, which is then unanswered."""
        self.is_open = False
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            # It has ended by itself.
            pass

    def _heard(self, data: bytes) -> Answer | None:
        if not data:
            self.is_dropped = self.is_open
            raise Unanswered("the server closed the connection")
        self.has_heard = True
        return self._parser.feed(data)

    def _set_timeout(self, timeout_s: float) -> None:
        if timeout_s != self._timeout_s:
            self._timeout_s = timeout_s
            self._socket.settimeout(timeout_s)

    def _send_in_pieces(self, head: bytes, body: memoryview, until_s: float) -> Answer | None:
        """Send a large body. An answer before its end refuses it: the rest is not sent, and the answer is returned."""
        rest = memoryview(head + body[:COPIED_BYTES_MAX])
        position, answer = COPIED_BYTES_MAX, None
        poll = select.poll()
        poll.register(self._socket, select.POLLIN | select.POLLOUT)
        self._set_timeout(0)
        while rest or position < len(body):
            if not rest:
                rest = body[position : position + PIECE_BYTES]
                position += len(rest)
            wait_s = until_s - monotonic()
            if wait_s <= 0 or not (ready := poll.poll(wait_s * 1_000)):
                raise TimeoutError
            try:
                if (
                    ready[0][1] & ~select.POLLOUT
                    and (answer := self._heard(self._socket.recv(_READ_BYTES))) is not None
                ):
                    # What follows on this connection would not be understood.
                    self.close()
                    return answer
                rest = rest[self._socket.send(rest) :]
            except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                # TLS says things of its own, or has no room yet.
                continue
        self._set_timeout(max(0.001, until_s - monotonic()))
        return None


class BlockingTransport:
    """Carries requests to one server, each in the thread of its caller. ``headers`` go with each of them."""

    def __init__(
        self,
        address: Address,
        *,
        headers: Headers = (),
        tls: ssl.SSLContext | None = None,
        connections_max: int = CONNECTIONS_MAX,
    ) -> None:
        self._endpoint = Endpoint(address, headers)
        self._tls = tls_of(address, tls)
        # How many more connections there may be.
        self._room = connections_max
        # The one that was used last is the last: it is the next to be used.
        self._idle: list[BlockingConnection] = []
        self._open: set[BlockingConnection] = set()
        self._is_closed = False
        # For those that find no connection. Who waits is counted, so that a connection is given back without the lock.
        self._changed = threading.Condition()
        self._waiting = 0

    async def request(
        self, method: str, path: str, *, headers: Headers, body: Buffer, timeout_s: float, is_repeatable: bool
    ) -> Answer:
        head = self._endpoint.head(method, path, headers, len(body))
        connection = self._take(is_repeatable)
        if connection is not None:
            try:
                return self._exchange(connection, head, body, timeout_s)
            except Unanswered:
                if connection.has_heard or not connection.is_dropped or not is_repeatable or self._is_closed:
                    raise
            connection = self._take_place()
        return self._exchange(connection or self._connect(), head, body, timeout_s)

    async def close(self) -> None:
        self._is_closed = True
        for connection in list(self._open):
            connection.shut_down()
        while self._idle:
            self._end(self._idle.pop())
        with self._changed:
            self._changed.notify_all()

    def forget(self) -> None:
        """In a forked process: close its copies of the sockets."""
        for connection in list(self._open):
            connection.close()

    def _exchange(self, connection: BlockingConnection, head: bytes, body: Buffer, timeout_s: float) -> Answer:
        try:
            answer = connection.exchange(head, body, timeout_s)
        finally:
            if connection.is_open and not self._is_closed:
                connection.idle_since_s = monotonic()
                self._idle.append(connection)
                if self._waiting:
                    with self._changed:
                        self._changed.notify()
            else:
                self._end(connection)
        return answer

    def _take(self, is_repeatable: bool) -> BlockingConnection | None:
        """Return an idle connection, or None with a place for one more."""
        while True:
            try:
                connection = self._idle.pop()
            except IndexError:
                break
            rested_s = monotonic() - connection.idle_since_s
            if (is_repeatable or rested_s < RESTED_S) and connection.is_quiet():
                return connection
            self._end(connection)
        return self._take_place()

    def _take_place(self) -> BlockingConnection | None:
        """Wait until there may be one more connection, or one is idle."""
        with self._changed:
            self._waiting += 1
            try:
                while not self._is_closed:
                    if self._idle:
                        return self._idle.pop()
                    if self._room:
                        self._room -= 1
                        return None
                    self._changed.wait()
            except IndexError:
                # Another thread was faster, which is as if there had been none.
                return self._take_place()
            finally:
                self._waiting -= 1
        raise NotSent("the client is closed")

    def _end(self, connection: BlockingConnection) -> None:
        connection.close()
        self._open.discard(connection)
        self._give_place()

    def _give_place(self) -> None:
        with self._changed:
            self._room += 1
            self._changed.notify()

    def _connect(self) -> BlockingConnection:
        """Open a connection, for which there is a place."""
        address = self._endpoint.address
        try:
            connected = socket.create_connection((address.host, address.port), CONNECT_S_MAX)
            try:
                connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                if self._tls is not None:
                    connected = self._tls.wrap_socket(connected, server_hostname=address.host)
            except BaseException:
                connected.close()
                raise
        except OSError as error:
            self._give_place()
            raise self._endpoint.lost(error) from error
        except BaseException:
            self._give_place()
            raise
        self._endpoint.found()
        connection = BlockingConnection(connected)
        self._open.add(connection)
        if self._is_closed:
            self._end(connection)
            raise NotSent("the client is closed")
        return connection
