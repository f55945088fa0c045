"""What was received: a batch as columns, and a message of it, which is made when it is looked at.

A batch is the frame that came, and one lease with a bit for each message. A `Message` is a batch and a row. A program
that needs only bodies iterates `batch.bodies` and makes no messages at all.

`Delivered` and `DeliveredBatch` hold what was received, for both APIs; `Message` and `Batch` add the verbs. These are
superclasses with code in them, against the rule: the other way is to write fifteen properties twice.

The server's clock decides when a lease ends, and ours may be minutes away from it. If the length of the lease is
known, it ends between the moment of the request and the moment of the answer, plus that length, by a monotonic clock.
Otherwise the time of day that the server gives is all there is; it is believed if it is in the future.
"""

import time
from collections import deque
from collections.abc import Awaitable, Generator, Iterator, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from types import TracebackType
from typing import Any, NamedTuple, Protocol, Self, TypeVar, overload

import msgspec

from penstock.client.caller import Connection
from penstock.client.drafts import DELAY_S_MAX, LEASE_S_MAX, milliseconds
from penstock.client.errors import StaleReceipt, bad_field
from penstock.contract.messages import PRIORITIES
from penstock.frame import Blobs, Buffer
from penstock.wire.frames import Held, LeasedFrame

AnyMessage = TypeVar("AnyMessage", bound="Delivered")

_read_attributes = msgspec.json.Decoder(dict[str, Any]).decode


class Receipt(NamedTuple):
    """The right to settle one message; as text it is what the REST API calls a receipt."""

    lease: int
    token: int
    row: int

    def __str__(self) -> str:
        return f"{self.lease:x}-{self.token:x}-{self.row:x}"

    @classmethod
    def of(cls, text: str) -> "Receipt":
        """
        >>> Receipt.of("3-ff-1")
        Receipt(lease=3, token=255, row=1)
        """
        try:
            lease, token, row = (int(part, 16) for part in text.split("-"))
        except ValueError:
            raise bad_field(
                "receipt", f"{text[:64]!r} is not a receipt; give back what came with the message"
            ) from None
        if not (0 <= lease < 2**64 and 0 <= token < 2**64 and 0 <= row < 10_000):
            raise bad_field("receipt", f"{text[:64]!r} is not a receipt; give back what came with the message")
        return cls(lease, token, row)


class LeaseEnd(NamedTuple):
    """Two instants of `time.monotonic`: the lease does not end before the first, nor after the second."""

    earliest_s: float
    latest_s: float


UNKNOWN = LeaseEnd(float("-inf"), float("inf"))


def end_of(lease_s: float, asked_at_s: float) -> LeaseEnd:
    """The end of a lease of known length that was asked for then and is answered now."""
    return LeaseEnd(asked_at_s + lease_s, time.monotonic() + lease_s)


def end_by_time_of_day(until_ms: int) -> LeaseEnd:
    left_s = until_ms / 1_000 - time.time()
    end_s = time.monotonic() + left_s
    return LeaseEnd(end_s, end_s) if left_s > 0 else UNKNOWN


class Bodies(Sequence[bytes]):
    """The bodies of a batch; each is copied when it is read."""

    __slots__ = ("_offsets", "_data")

    def __init__(self, column: Sequence[Buffer]) -> None:
        assert isinstance(column, Blobs)
        self._offsets = column.offsets
        # One copy of all: then a body is a slice of bytes, which costs half of bytes from a slice of a view.
        self._data = bytes(column.data)

    def __len__(self) -> int:
        return len(self._offsets) - 1

    @overload
    def __getitem__(self, row: int) -> bytes: ...

    @overload
    def __getitem__(self, row: slice) -> list[bytes]: ...

    def __getitem__(self, row: int | slice) -> bytes | list[bytes]:
        if isinstance(row, slice):
            return [self[each] for each in range(len(self))[row]]
        row = range(len(self))[row]
        return self._data[self._offsets[row] : self._offsets[row + 1]]

    def __iter__(self) -> Iterator[bytes]:
        data = self._data
        return (data[start:end] for start, end in pairwise(self._offsets))


class LeasedBatch:
    """The columns of one lease, and when it ends as far as the client knows."""

    __slots__ = ("frame", "queue", "feed", "_end", "_extended", "_bodies")

    def __init__(self, frame: LeasedFrame, queue: str, end: LeaseEnd) -> None:
        self.frame = frame
        # The name of the queue it was received from.
        self.queue = queue
        # What takes the next messages, which an ack of these may bring along.
        self.feed: Feed | None = None
        self._end = end
        # Of the rows that were extended: when their lease ends now, and the same as a time of day.
        self._extended: dict[int, tuple[LeaseEnd, int]] = {}
        self._bodies: Bodies | None = None

    def __len__(self) -> int:
        return len(self.frame.deliveries)

    @property
    def bodies(self) -> Bodies:
        if self._bodies is None:
            self._bodies = Bodies(self.frame.bodies)
        return self._bodies

    def ids(self) -> list[str]:
        return [self.frame.ids[row] for row in range(len(self))]

    def held(self, rows: int) -> Held:
        """Some of its messages, for settling: bit i of ``rows`` is message i."""
        return Held(self.frame.lease, self.frame.token, rows)

    def held_all(self) -> Held:
        return self.held((1 << len(self)) - 1)

    def until_ms(self, row: int) -> int:
        """The time of day at which the lease of a row ends."""
        return self._extended[row][1] if row in self._extended else self.frame.until_ms

    def extended(self, rows: int, end: LeaseEnd, until_ms: int) -> None:
        """Remember that the lease of some rows was made longer."""
        self._extended.update((row, (end, until_ms)) for row in range(len(self)) if rows >> row & 1)

    def has_lapsed(self, row: int) -> bool:
        """Whether the lease of a row has ended for certain."""
        return time.monotonic() >= self._end_of(row).latest_s

    def surely_held(self, rows: int) -> int:
        """Return the bits of those ``rows`` whose lease cannot have ended yet."""
        now_s = time.monotonic()
        return sum(1 << row for row in range(len(self)) if rows >> row & 1 and now_s < self._end_of(row).earliest_s)

    def _end_of(self, row: int) -> LeaseEnd:
        return self._extended[row][0] if row in self._extended else self._end


class Wanted(NamedTuple):
    """What to lease along with acks."""

    limit: int
    wait_s: float = 0.0
    visibility_timeout: float | None = None


class Fetch(Protocol):
    """A lease that was begun; a task or a future is one."""

    def done(self) -> bool: ...

    def __await__(self) -> Generator[Any, None, LeasedBatch | None]: ...


class Feed:
    """The messages that one `consume` has in hand, and how it gets more.

    An ack of one of them takes a lease along once half of them are used up, and waits for no message. If that finds
    none, or if messages are not acked one by one, a lease is asked for by itself.
    """

    __slots__ = ("ready", "prefetch", "fetch", "_visibility_timeout", "_is_dry")

    def __init__(self, prefetch: int, visibility_timeout: float | None) -> None:
        # The messages, each as its lease and its row.
        self.ready: deque[tuple[LeasedBatch, int]] = deque()
        # How many there may be; 0 asks for the next message when it is wanted.
        self.prefetch = prefetch
        # The lease that is on its way.
        self.fetch: Fetch | None = None
        self._visibility_timeout = visibility_timeout
        self._is_dry = False

    @property
    def room(self) -> int:
        return max(1, self.prefetch - len(self.ready))

    def is_low(self) -> bool:
        """Whether to ask for more now, while there is still something in hand."""
        if self.fetch is not None or len(self.ready) > self.prefetch // 2:
            return False
        return self._is_dry or len(self.ready) <= self.prefetch // 4

    def wanted(self) -> Wanted | None:
        """What an ack is to take along now."""
        if self.fetch is not None or self._is_dry or not self.prefetch or len(self.ready) > self.prefetch // 2:
            return None
        return Wanted(self.room, visibility_timeout=self._visibility_timeout)

    def put(self, leased: LeasedBatch | None) -> None:
        self._is_dry = leased is None
        if leased is not None:
            leased.feed = self
            self.ready.extend((leased, row) for row in range(len(leased)))

    async def take_fetched(self) -> None:
        """Take what was fetched, once it is there."""
        assert self.fetch is not None
        self.put(await self.fetch)
        self.fetch = None


class Delivered:
    """A message that was received: what is known about it."""

    __slots__ = ("leased", "row")
    leased: LeasedBatch
    row: int

    @property
    def id(self) -> str:
        return self.leased.frame.ids[self.row]

    @property
    def queue(self) -> str:
        """The name of the queue it was received from."""
        return self.leased.queue

    @property
    def body(self) -> bytes:
        return self.leased.bodies[self.row]

    @property
    def text(self) -> str:
        return self.body.decode()

    def json(self) -> Any:
        """The body, decoded as JSON."""
        return msgspec.json.decode(self.body)

    @property
    def attributes(self) -> dict[str, Any]:
        text = _cell(self.leased.frame.attributes, self.row)
        return _read_attributes(text) if text else {}

    @property
    def tier(self) -> int:
        """0 is CRITICAL, 4 is BACKGROUND."""
        return self.leased.frame.tiers[self.row]

    @property
    def priority(self) -> str:
        return PRIORITIES[self.tier]

    @property
    def delivery_count(self) -> int:
        """How often it was delivered, this time included."""
        return self.leased.frame.deliveries[self.row]

    @property
    def sent_at(self) -> datetime:
        return _instant(self.leased.frame.sent_at_ms[self.row])

    @property
    def invisible_until(self) -> datetime:
        """When the lease ends and other consumers may receive it."""
        return _instant(self.leased.until_ms(self.row))

    @property
    def group(self) -> str | None:
        return _cell(self.leased.frame.groups, self.row).decode(errors="replace") or None

    @property
    def last_error(self) -> str | None:
        """What its last release said."""
        return _cell(self.leased.frame.errors, self.row).decode(errors="replace") or None

    @property
    def origin_queue(self) -> str | None:
        """Of a dead letter, and of one that came back: the queue it was first sent to, if that is still there."""
        origins = self.leased.frame.origins
        return None if origins is None else _cell(origins[0], self.row).decode() or None

    @property
    def receipt(self) -> str:
        return str(Receipt(self.leased.frame.lease, self.leased.frame.token, self.row))

    def held(self) -> Held:
        """This message, for settling."""
        frame = self.leased.frame
        return Held(frame.lease, frame.token, 1 << self.row)

    def __repr__(self) -> str:
        body = self.body
        shown = repr(body[:40]) + ("…" if len(body) > 40 else "")
        return f"<{type(self).__name__} {self.id} of {self.queue!r}: {shown}>"


class DeliveredBatch(Sequence[AnyMessage]):
    """Messages of one lease: what is known about them."""

    __slots__ = ("leased",)
    # None if nothing was received.
    leased: LeasedBatch | None

    def __len__(self) -> int:
        return 0 if self.leased is None else len(self.leased)

    @overload
    def __getitem__(self, row: int) -> AnyMessage: ...

    @overload
    def __getitem__(self, row: slice) -> list[AnyMessage]: ...

    def __getitem__(self, row: int | slice) -> AnyMessage | list[AnyMessage]:
        rows, leased = range(len(self))[row], self.leased
        if isinstance(rows, int):
            assert leased is not None
            return self._message(leased, rows)
        return [self._message(leased, each) for each in rows if leased is not None]

    def __iter__(self) -> Iterator[AnyMessage]:
        leased, rows = self.leased, range(len(self))
        return (self._message(leased, row) for row in rows if leased is not None)

    @property
    def bodies(self) -> Sequence[bytes]:
        return () if self.leased is None else self.leased.bodies

    @property
    def ids(self) -> Sequence[str]:
        return () if self.leased is None else self.leased.ids()

    def _message(self, leased: LeasedBatch, row: int) -> AnyMessage:
        raise NotImplementedError


class Settler(Protocol):
    """Settles rows of a lease and returns the bits of those that were done; a `Queue` is one."""

    def settle(
        self, verb: str, held: Held, leased: LeasedBatch | None, *, time_ms: int | None = None, text: str = ""
    ) -> Awaitable[int]: ...

    def ack(self, what: "Delivered | str", *, connection: Connection) -> Awaitable[list[bool]]:
        """Ack a message in a transaction of the caller's."""
        ...


class Message(Delivered):
    """A received message. `async with message:` acks it, or releases it on an exception."""

    __slots__ = ("_settler",)

    def __init__(self, leased: LeasedBatch, row: int, settler: Settler) -> None:
        self.leased = leased
        self.row = row
        self._settler = settler

    async def ack(self, *, connection: Connection = None) -> None:
        """Settle the message. Raises `StaleReceipt` if the lease has ended.

        With a ``connection`` to the database of the queue, it is settled when the transaction of the connection
        commits. If the lease has ended, the transaction fails.
        """
        if connection is not None:
            await self._settler.ack(self, connection=connection)
            return
        check_done(await self._settler.settle("ack", self.held(), self.leased), self)

    async def release(self, error: str = "", *, delay_s: float | None = None) -> None:
        """Return it to the queue, delayed for ``delay_s`` or the queue's backoff."""
        time_ms = release_ms(delay_s)
        done = await self._settler.settle("release", self.held(), self.leased, time_ms=time_ms, text=error)
        check_done(done, self)

    async def reject(self, error: str = "") -> None:
        """Send it to the dead-letter queue, however many deliveries are left."""
        check_done(await self._settler.settle("reject", self.held(), self.leased, text=error), self)

    async def extend(self, visibility_timeout: float) -> None:
        """Extend the lease to end ``visibility_timeout`` seconds from now."""
        time_ms = extend_ms(visibility_timeout)
        check_done(await self._settler.settle("extend", self.held(), self.leased, time_ms=time_ms), self)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            await self.ack()
        else:
            await give_back(self, error)


class Batch(DeliveredBatch[Message]):
    """Messages of one lease; each is made when it is looked at."""

    __slots__ = ("_settler",)

    def __init__(self, leased: LeasedBatch | None, settler: Settler) -> None:
        self.leased = leased
        self._settler = settler

    def _message(self, leased: LeasedBatch, row: int) -> Message:
        return Message(leased, row, self._settler)

    async def ack(self) -> list[bool]:
        """Ack all messages in one request, and say for each whether it was done: False if its lease had ended."""
        return await self._settle("ack")

    async def release(self, error: str = "", *, delay_s: float | None = None) -> list[bool]:
        return await self._settle("release", time_ms=release_ms(delay_s), text=error)

    async def extend(self, visibility_timeout: float) -> list[bool]:
        return await self._settle("extend", time_ms=extend_ms(visibility_timeout))

    async def _settle(self, verb: str, *, time_ms: int | None = None, text: str = "") -> list[bool]:
        if self.leased is None:
            return []
        done = await self._settler.settle(verb, self.leased.held_all(), self.leased, time_ms=time_ms, text=text)
        return flags(done, len(self))


async def give_back(message: Message, error: BaseException) -> None:
    """Release a message whose work has failed. If that fails too, the lease ends by itself."""
    try:
        await message.release(describe(error))
    except StaleReceipt:
        pass


def describe(error: BaseException) -> str:
    """What is kept of an error: its name and its words."""
    words = str(error)
    return f"{type(error).__name__}: {words}" if words else type(error).__name__


def check_done(done: int, message: Delivered) -> None:
    if not done:
        raise StaleReceipt(
            f"the lease of message {message.id} in {message.queue!r} has ended", code="stale_receipt", status=409
        )


def flags(done: int, count: int) -> list[bool]:
    """Bits as a list.

    >>> flags(0b101, 3)
    [True, False, True]
    """
    if done == (1 << count) - 1:
        return [True] * count
    return [bool(done >> row & 1) for row in range(count)]


def release_ms(delay_s: float | None) -> int | None:
    return None if delay_s is None else milliseconds(delay_s, field="delay_s", seconds_max=DELAY_S_MAX)


def extend_ms(visibility_timeout: float) -> int:
    return milliseconds(visibility_timeout, field="visibility_timeout", seconds_max=LEASE_S_MAX)


def _cell(column: Sequence[Buffer] | None, row: int) -> bytes:
    return b"" if column is None else bytes(column[row])


def _instant(at_ms: int) -> datetime:
    seconds, ms = divmod(at_ms, 1_000)
    return datetime.fromtimestamp(seconds, UTC).replace(microsecond=ms * 1_000)
