"""What a log promises.

    reserve ──▶ (decide, apply) ──▶ append ──▶ wait_durable ──▶ answer
       │                              │
       └─ the only step that refuses  └─ cannot fail within a reservation

Offsets number records. `start_offset` ≤ `durable_offset` ≤ `end_offset`: what
was dropped, what survives anything the log promises to survive, and what the
next append receives.

`DiskLog` keeps this promise with an fsync. Queues and streams hold this interface,
so that they reach nothing else of a log: none of them can cut one back.
"""

from types import TracebackType
from typing import Protocol, Self

from penstock.runtime.interface import Buffer


class LogFull(Exception):
    """The disk has no room for this. Nothing was decided or written; reading still works."""


class LogBusy(Exception):
    """More is waiting for the disk than may wait. Wait for what is there, then try again."""


class LogClosed(Exception):
    """The log was closed, or has failed; nothing more is acknowledged."""


class OffsetOutOfRange(Exception):
    """There is nothing at this offset: it was dropped, or not yet written."""


class Reservation(Protocol):
    """Room in the log for appends of at most so many bytes together.

    A context manager: what was not used is given back on the way out.
    """

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class Log(Protocol):
    @property
    def start_offset(self) -> int: ...

    @property
    def durable_offset(self) -> int:
        """Everything below this offset is acknowledged and may be read."""
        ...

    @property
    def end_offset(self) -> int:
        """The offset the next append receives."""
        ...

    def reserve(self, size_bytes: int, *, from_spare: bool = False) -> Reservation:
        """Set room aside for batches of ``size_bytes`` together, or refuse.

        Raises `LogFull` when the disk has no room and `LogBusy` when too much
        waits for it. ``from_spare`` may also use the spare kept for events that
        free space (acks, drops): so a full disk can be emptied.
        """
        ...

    def append(self, batch: Buffer, space: Reservation) -> int:
        """Take a whole record batch as it is and return the offset of its first record.

        Base offset and leader epoch are written over; everything else, the CRC
        included, is stored as it came. It is not yet durable on return.
        """
        ...

    async def wait_durable(self, offset: int) -> None:
        """Return when every record below ``offset`` is durable.

        Raises `LogClosed` if that will never be known. An answer about the state
        at this moment waits for `end_offset`, also if it wrote nothing itself.
        """
        ...

    async def read(self, offset: int, *, bytes_max: int) -> list[memoryview]:
        """Return whole batches, from the one holding ``offset`` on, none beyond `durable_offset`.

        At least one batch if there is one, however large; then as many as fit
        in ``bytes_max``. Each was checked against its CRC. An empty list means
        that ``offset`` is `durable_offset`; beyond either end raises
        `OffsetOutOfRange`.
        """
        ...

    async def drop_before(self, offset: int) -> None:
        """Drop whole segments in which every offset is below ``offset``."""
        ...
