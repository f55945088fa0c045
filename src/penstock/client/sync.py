"""The synchronous API: the classes of the asynchronous one, whose methods return when they are done.

No method is written twice. `_mirrors` gives each class here the methods of its asynchronous class; `sync.pyi` tells
editors and type checkers about them, and is made from the asynchronous classes (`python -m tests.docs.reference`).

Calls to a server run in the thread that makes them, over blocking sockets: their coroutines never wait for an event
loop, so `drive` takes them to their end in one step. Threads may share a client; each call is a request of its own.

What needs an event loop runs in a `LoopThread`: topics, and queues in this very process (`penstock.connect("file:…")`).
It is started by the first call that needs it.

In a forked process the first call makes a new client, with connections and senders of its own.
"""

import asyncio
import functools
import inspect
import os
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import suppress
from typing import Any, Self, TypeVar

from penstock.client.blocking_http import drive
from penstock.client.client import Client
from penstock.client.errors import ClientClosed
from penstock.client.message import Batch, Delivered, DeliveredBatch, LeasedBatch, Message
from penstock.client.queue import Queue
from penstock.client.topics.topic import Topic

T = TypeVar("T")
Class = TypeVar("Class", bound=type)

# The loops of a parent process, in its child: they cannot be closed there, and must not be collected as if unclosed.
_left_behind: list[asyncio.AbstractEventLoop] = []


Run = Callable[[Coroutine[Any, Any, T]], T]


class LoopThread:
    """An event loop in a thread of its own. It starts with the first call and ends with `close`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._is_closed = False

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            loop = self._started()
        except BaseException:
            work.close()
            raise
        future = asyncio.run_coroutine_threadsafe(work, loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def close(self, last: Coroutine[Any, Any, None]) -> None:
        if self._loop is None or self._is_closed:
            self._is_closed = True
            last.close()
            return
        try:
            self.run(last)
        finally:
            with self._lock:
                self._is_closed = True
            assert self._thread is not None
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def leave_behind(self) -> None:
        """Forget the loop: its thread has stayed in the parent process."""
        if self._loop is not None:
            _left_behind.append(self._loop)

    def _started(self) -> asyncio.AbstractEventLoop:
        if threading.current_thread() is self._thread:
            raise RuntimeError("the synchronous API was called in its own thread; use the asynchronous one there")
        with self._lock:
            if self._is_closed:
                raise ClientClosed("the client is closed")
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=self._loop.run_forever, name="penstock-client", daemon=True)
                self._thread.start()
            return self._loop


def _mirrors(asynchronous: type, *iterators: str) -> Callable[[Class], Class]:
    """Give a class the coroutine methods of ``asynchronous``, and those that return an asynchronous iterator."""

    def add(own: Class) -> Class:
        for name, function in vars(asynchronous).items():
            plain = {"__aenter__": "__enter__", "__aexit__": "__exit__"}.get(name, name)
            if plain in vars(own) or (plain == name and name.startswith("_")):
                continue
            if inspect.isasyncgenfunction(function) or name in iterators:
                setattr(own, plain, _iterator(name, function))
            elif inspect.iscoroutinefunction(function):
                setattr(own, plain, _method(name, function))
        return own

    return add


def _method(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def method(self: Any, *arguments: Any, **keywords: Any) -> Any:
        # Of the object, not of its class: `tracing.py` has queues of its own.
        asynchronous = self._asynchronous()
        found = self._run(getattr(asynchronous, name)(*arguments, **keywords))
        kind = type(found)
        if kind is Message:
            return SyncMessage(found.leased, found.row, self)
        if kind is Batch:
            return SyncBatch(found.leased, self)
        if kind is tuple:
            # The acks and the batch of `ack_and_receive`.
            return found[0], SyncBatch(found[1].leased, self)
        return self if found is asynchronous else found

    return method


def _iterator(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def iterate(self: Any, *arguments: Any, **keywords: Any) -> Iterator[Any]:
        items = getattr(self._asynchronous(), name)(*arguments, **keywords)
        run = self._run
        try:
            while (found := run(_next(items))) is not None:
                yield SyncMessage(found.leased, found.row, self) if type(found) is Message else found
        finally:
            with suppress(ClientClosed):
                run(items.aclose())

    return iterate


async def _next(items: AsyncIterator[T]) -> T | None:
    return await anext(items, None)


@_mirrors(Message)
class SyncMessage(Delivered):
    """A received message. `with message:` acks it, or releases it on an exception."""

    __slots__ = ("_queue",)

    def __init__(self, leased: LeasedBatch, row: int, queue: "SyncQueue") -> None:
        self.leased = leased
        self.row = row
        self._queue = queue

    @property
    def _run(self) -> Run[Any]:
        return self._queue._run

    def _asynchronous(self) -> Message:
        return Message(self.leased, self.row, self._queue._asynchronous())


@_mirrors(Batch)
class SyncBatch(DeliveredBatch[SyncMessage]):
    """Messages of one lease; each is made when it is looked at."""

    __slots__ = ("_queue",)

    def __init__(self, leased: LeasedBatch | None, queue: "SyncQueue") -> None:
        self.leased = leased
        self._queue = queue

    @property
    def _run(self) -> Run[Any]:
        return self._queue._run

    def _asynchronous(self) -> Batch:
        return Batch(self.leased, self._queue._asynchronous())

    def _message(self, leased: LeasedBatch, row: int) -> SyncMessage:
        return SyncMessage(leased, row, self._queue)


@_mirrors(Queue)
class SyncQueue:
    """A handle of a queue. To make one sends no request."""

    __slots__ = ("name", "_client", "_run", "_made", "_made_by")

    def __init__(self, name: str, client: "SyncClient") -> None:
        self.name = name
        self._client = client
        self._make(client._current())

    def __repr__(self) -> str:
        return f"<SyncQueue {self.name!r}>"

    def _asynchronous(self) -> Queue:
        current = self._client._current()
        if current is not self._made_by:
            # After a fork.
            self._make(current)
        return self._made

    def _make(self, sides: "_Sides") -> None:
        self._made, self._run = sides.client.queue(self.name), sides.run
        # Last: other threads go by it.
        self._made_by = sides


@_mirrors(Topic, "consume")
class SyncTopic:
    """A handle of a topic. To make one sends no request."""

    __slots__ = ("name", "_client", "_kafka")

    def __init__(self, name: str, client: "SyncClient", *, kafka: str | None = None) -> None:
        self.name = name
        self._client = client
        self._kafka = kafka

    def __repr__(self) -> str:
        return f"<SyncTopic {self.name!r}>"

    @property
    def _run(self) -> Run[Any]:
        return self._client._current().loop.run

    def _asynchronous(self) -> Topic:
        return self._client._current().looping.topic(self.name, kafka=self._kafka)


class _Sides:
    """The clients of one process: one for what needs an event loop, and one for all else, which may be the same."""

    __slots__ = ("looping", "loop", "client", "run")

    def __init__(self, looping: Client) -> None:
        self.looping = looping
        self.loop = LoopThread()
        blocking = looping.blocking()
        self.client = blocking or looping
        self.run: Run[Any] = self.loop.run if blocking is None else drive

    def close(self) -> None:
        try:
            if self.client is not self.looping:
                drive(self.client.close())
        finally:
            self.loop.close(self.looping.close())

    def leave_behind(self) -> None:
        self.client.forget()
        self.loop.leave_behind()


@_mirrors(Client)
class SyncClient:
    """A client of one server. Use it in `with`, or call `close` in the end. Threads may share it."""

    def __init__(self, client: Client) -> None:
        # By the process. A forked one has its own.
        self._sides = {os.getpid(): _Sides(client)}

    def queue(self, name: str) -> SyncQueue:
        """Return a handle of a queue, which need not exist yet."""
        return SyncQueue(name, self)

    def topic(self, name: str, *, kafka: str | None = None) -> SyncTopic:
        """Return a handle of a topic; it need not exist. ``kafka`` is its host and port, if not the server's."""
        return SyncTopic(name, self, kafka=kafka)

    def close(self) -> None:
        """Wait for requests on their way, and close the connections."""
        # After a fork, the parent's client stays open: it is the parent's.
        self._current().close()

    def _current(self) -> _Sides:
        found = self._sides.get(os.getpid())
        return self._forked() if found is None else found

    def _forked(self) -> _Sides:
        # Several threads may be here at once: the first one's stays.
        parents = dict(self._sides)
        found = self._sides.setdefault(os.getpid(), _Sides(next(iter(parents.values())).looping.copy()))
        for pid, sides in parents.items():
            if pid != os.getpid() and self._sides.pop(pid, None) is not None:
                sides.leave_behind()
        return found

    def _asynchronous(self) -> Client:
        return self._current().client

    @property
    def _run(self) -> Run[Any]:
        return self._current().run

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
