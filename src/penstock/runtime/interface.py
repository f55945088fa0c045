"""What the rest of the system may ask of the outside world."""

import asyncio
import errno
from bisect import bisect_left
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, NoReturn, Protocol

from penstock.frame import Buffer
from penstock.telemetry import LogEvent

__all__ = [
    "EXIT_FILES_TAKEN",
    "EXIT_STORAGE_FAILED",
    "LONG_S",
    "SHORT_S",
    "NO_SPACE",
    "BackgroundProcess",
    "BackgroundProcessFailed",
    "Buffer",
    "Clock",
    "Dice",
    "Disk",
    "File",
    "FolderLock",
    "FolderTaken",
    "Halt",
    "Histogram",
    "NotARegularFile",
    "LogEventWriter",
    "Runtime",
    "Space",
    "Timings",
    "Workers",
    "beside",
]

# EX_IOERR of sysexits.h: a supervisor can tell a broken disk from a bug.
EXIT_STORAGE_FAILED = 74

# EX_OSFILE of sysexits.h: the files of a running process were removed or replaced.
EXIT_FILES_TAKEN = 72

# What a full disk, or a full quota, says.
NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT})


class Clock(Protocol):
    def now_ms(self) -> int:
        """Return wall time in milliseconds; it never goes back."""
        ...


class Dice(Protocol):
    def roll(self) -> float:
        """Return a number in [0, 1)."""
        ...

    def token(self) -> int:
        """Return 63 random bits that cannot be guessed."""
        ...


class File(Protocol):
    """An open file. All calls block, and raise `OSError` when the disk does.

    Positions are explicit, so a reader and a writer never share a cursor.
    """

    def size(self) -> int: ...

    def read(self, position: int, size: int) -> bytes:
        """Return ``size`` bytes, or fewer only where the file ends."""
        ...

    def read_cached(self, position: int, size: int) -> Buffer | None:
        """Like `read`, but return None rather than wait for the disk."""
        ...

    def write(self, data: Buffer, position: int) -> None:
        """Write all of ``data``. It is durable only after `sync`."""
        ...

    def allocate(self, end: int, *, leave_free: int = 0) -> None:
        """Make sure that writes below ``end`` cannot run out of space.

        The size of the file does not change. Raises `OSError` (ENOSPC) and
        keeps what was allocated before, also if fewer than ``leave_free`` bytes,
        or next to no more files, would be left for others.
        """
        ...

    def truncate(self, size: int) -> None:
        """Cut the file to ``size`` and give back what was allocated beyond it."""
        ...

    def sync(self) -> None:
        """Return when every write so far, and the size, survive a power cut.

        A failure is final: what was written since the last success is in an
        unknown state, and asking again may lie. See docs/decisions/0004.
        """
        ...

    def is_in_place(self) -> bool:
        """Whether this is still the file of its name: not removed, renamed or replaced."""
        ...

    def identity(self) -> object:
        """Return what tells this file from every other, also from one that has its name later."""
        ...

    def forget_cached(self) -> None:
        """Let reads come from the disk again: memory may show what a failed sync has lost.

        Only what is synced can be forgotten.
        """
        ...

    def close(self) -> None: ...


class Space(NamedTuple):
    """Room on a file system, in bytes. A file system that can hold next to no more files has none free."""

    free_bytes: int
    # 0 if it is unknown.
    total_bytes: int


class FolderLock(Protocol):
    def is_in_place(self) -> bool:
        """Whether the folder, and the file in it if that is locked, are still those that were taken."""
        ...

    def release(self) -> None: ...


class FolderTaken(Exception):
    """Another process, or another part of this one, has the folder open."""


class NotARegularFile(OSError):
    """A link, a pipe or a device has the name of a file or a folder of ours. It was not touched."""

    def __init__(self, path: object, what: str) -> None:
        super().__init__(errno.ELOOP, f"{path} is {what}. Links are not followed in a data folder: put the file back")

    def __str__(self) -> str:
        return str(self.strerror)


class Disk(Protocol):
    """Files below one root. Paths are relative, with `/` between the parts.

    A new, renamed or removed name survives a power cut only after
    `sync_folder` of the folder it is in.
    """

    def open(self, path: str, *, must_exist: bool = False) -> File:
        """Open a file to read and write; one that is missing is created, or raises `FileNotFoundError`."""
        ...

    def exists(self, path: str) -> bool: ...

    def names(self, folder: str) -> list[str]:
        """List what is in a folder, sorted; nothing if there is no such folder."""
        ...

    def make_folder(self, path: str) -> None:
        """Create a folder and its parents durably, if they are missing."""
        ...

    def rename(self, old: str, new: str) -> None:
        """Give a file another name, replacing what had it."""
        ...

    def remove(self, path: str) -> None: ...

    def remove_folder(self, path: str) -> None:
        """Remove a folder that is empty."""
        ...

    def sync_folder(self, path: str) -> None: ...

    def space(self, folder: str) -> Space:
        """Say how much room the file system of a folder has."""
        ...

    def lock(self, folder: str) -> FolderLock:
        """Take a folder for this process alone, or raise `FolderTaken`."""
        ...


class Workers(Protocol):
    """Threads for calls that block on a disk."""

    def submit(self, work: Callable[[], None], done: Callable[[], None]) -> None:
        """Run ``work`` off the event loop, then ``done`` on it.

        Work is taken up in the order it was submitted. ``work`` handles its own
        errors: an exception that leaves it stops the process.
        """
        ...

    def run_here(self, work: Callable[[], None], done: Callable[[], None]) -> None:
        """Like `submit`, but on the event loop and before this returns: for what blocks for less than a hand-over."""
        ...


class BackgroundProcessFailed(Exception):
    """Work done aside ended without an answer. What it did to the disk may be half done."""

    def __init__(self, reason: str, *, is_disk_failure: bool = False) -> None:
        super().__init__(reason)
        # The disk refused a write or an fsync, and not for want of space.
        self.is_disk_failure = is_disk_failure


class BackgroundProcess(Protocol):
    """A process of its own, for work that would hold up the event loop, or a thread of it, for long."""

    async def run(self, work: Callable[["Disk", bytes], bytes], request: bytes) -> bytes:
        """Call a function of a module with the disk, in another process, and return what it returns.

        Raises `BackgroundProcessFailed`. If this process ends, the other one does.
        """
        ...


# From half a millisecond, which is an fsync of a good disk, to the half minute of a long poll.
SHORT_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
# From a queue that is served at once to one that waits for the next day.
LONG_S = (0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3_600.0, 21_600.0, 86_400.0)


class Histogram:
    """How many values were not above each bound, and their sum."""

    __slots__ = ("bounds", "buckets", "sum")

    def __init__(self, bounds: Sequence[float] = SHORT_S) -> None:
        self.bounds = bounds
        # One more than there are bounds.
        self.buckets = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def add(self, value: float, count: int = 1) -> None:
        self.buckets[bisect_left(self.bounds, value)] += count
        self.sum += value * count

    def merge(self, other: "Histogram") -> None:
        self.buckets = [mine + others for mine, others in zip(self.buckets, other.buckets, strict=True)]
        self.sum += other.sum

    @property
    def count(self) -> int:
        return sum(self.buckets)


@dataclass(frozen=True, slots=True)
class Timings:
    """What logs and stores measure, in seconds. Only the event loop adds to it."""

    fsync: Histogram = field(default_factory=Histogram)
    commit: Histogram = field(default_factory=Histogram)
    handling: Histogram = field(default_factory=partial(Histogram, LONG_S))


@dataclass(frozen=True, slots=True)
class Runtime:
    """The outside world, as one part of the system sees it."""

    clock: Clock
    dice: Dice
    disk: Disk
    workers: Workers
    aside: BackgroundProcess
    # Stops the process at once, from any thread. Nothing after it runs.
    halt: "Halt"
    # Logs an event: `log_event(LOG_TAIL_CUT, file=…, position=…)`.
    log_event: "LogEventWriter"
    # Microseconds since some moment: to measure how long something takes.
    ticks_us: Callable[[], int]
    # The clock on the wall, as it is set now: it may go back, or be wrong. None where it is the other clock.
    wall: Callable[[], int] | None = None
    # A clock to measure with, in seconds; where nothing is measured it stands at 0.
    seconds: Callable[[], float] = float
    # What is measured for metrics.
    timings: Timings = field(default_factory=Timings)

    def wall_ms(self) -> int:
        return self.clock.now_ms() if self.wall is None else self.wall()


class Halt(Protocol):
    def __call__(self, reason: str, /, code: int = EXIT_STORAGE_FAILED) -> NoReturn: ...


class LogEventWriter(Protocol):
    def __call__(self, event: LogEvent, /, **fields: object) -> None: ...


@asynccontextmanager
async def beside(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Let work run beside the block, and cancel it at the end of the block.

    It is no TaskGroup, which would wrap what the block raises into a group.
    """
    task = asyncio.create_task(work)  # noqa: TID251 - It is awaited below.
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])
