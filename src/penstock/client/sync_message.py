"""Messages and batches of the synchronous face: the same facts, and verbs that return when they are done."""

from collections.abc import Sequence
from types import TracebackType
from typing import Protocol, Self, overload

from penstock.client.errors import StaleReceipt
from penstock.client.message import Delivered, Facts, check_done, describe, extend_ms, flags, release_ms
from penstock.client.within import Connection
from penstock.wire.frames import Held


class SyncSettler(Protocol):
    def settle(
        self, verb: str, held: Held, facts: Facts | None, *, time_ms: int | None = None, text: str = ""
    ) -> int: ...

    def ack(self, what: Delivered, *, connection: Connection) -> list[bool]:
        """Ack a message in a transaction of the caller's."""
        ...


class SyncMessage(Delivered):
    """A message. `with message:` acks it, or releases it on an exception."""

    __slots__ = ("_settler",)

    def __init__(self, facts: Facts, row: int, settler: SyncSettler) -> None:
        super().__init__(facts, row)
        self._settler = settler

    def ack(self, *, connection: Connection = None) -> None:
        """Settle it for good, or with a ``connection`` when that one commits. Raises `StaleReceipt`."""
        if connection is not None:
            self._settler.ack(self, connection=connection)
            return
        check_done(self._settler.settle("ack", self.held(), self.facts), self)

    def release(self, error: str = "", *, delay_s: float | None = None) -> None:
        """Give it back, to rest for ``delay_s`` or for the queue's own backoff."""
        time_ms = release_ms(delay_s)
        check_done(self._settler.settle("release", self.held(), self.facts, time_ms=time_ms, text=error), self)

    def reject(self, error: str = "") -> None:
        """Send it to the dead letters, whatever deliveries it has left: another would be no use."""
        check_done(self._settler.settle("reject", self.held(), self.facts, text=error), self)

    def extend(self, visibility_timeout: float) -> None:
        """Hold it for so many seconds from now on."""
        time_ms = extend_ms(visibility_timeout)
        check_done(self._settler.settle("extend", self.held(), self.facts, time_ms=time_ms), self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.ack()
            return
        try:
            self.release(describe(error))
        except StaleReceipt:
            pass


class SyncBatch(Sequence[SyncMessage]):
    """Messages of one lease; each is made when it is looked at."""

    __slots__ = ("facts", "_settler")

    def __init__(self, facts: Facts | None, settler: SyncSettler) -> None:
        # None if nothing was received.
        self.facts = facts
        self._settler = settler

    def __len__(self) -> int:
        return 0 if self.facts is None else len(self.facts)

    @overload
    def __getitem__(self, row: int) -> SyncMessage: ...

    @overload
    def __getitem__(self, row: slice) -> list[SyncMessage]: ...

    def __getitem__(self, row: int | slice) -> SyncMessage | list[SyncMessage]:
        rows, facts = range(len(self))[row], self.facts
        if isinstance(rows, int):
            assert facts is not None
            return SyncMessage(facts, rows, self._settler)
        return [SyncMessage(facts, each, self._settler) for each in rows if facts is not None]

    @property
    def bodies(self) -> Sequence[bytes]:
        return () if self.facts is None else self.facts.bodies

    @property
    def ids(self) -> Sequence[str]:
        return () if self.facts is None else self.facts.ids()

    def ack(self) -> list[bool]:
        """Ack all of it in one request, and say for each whether it was done: False if the lease had ended."""
        return self._settle("ack")

    def release(self, error: str = "", *, delay_s: float | None = None) -> list[bool]:
        return self._settle("release", time_ms=release_ms(delay_s), text=error)

    def extend(self, visibility_timeout: float) -> list[bool]:
        return self._settle("extend", time_ms=extend_ms(visibility_timeout))

    def _settle(self, verb: str, *, time_ms: int | None = None, text: str = "") -> list[bool]:
        if self.facts is None:
            return []
        done = self._settler.settle(verb, self.facts.held_all(), self.facts, time_ms=time_ms, text=text)
        return flags(done, len(self))
