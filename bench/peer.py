"""What the disk does without us: plain loops, the peers every figure is compared with.

    one_thread     write, fdatasync, write, fdatasync, … in one file
    many_threads   the same in many threads, each with a file of its own
    reading        pread from end to end, over and over

They write the same bytes as the log, at the same time of day, on the same disk.
They keep nothing else of what a log promises: no offsets, no index, no marker,
no way to find the end after a crash. So a ratio of 1 is a log that costs nothing.
"""

import os
from array import array
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter

READ_BYTES = 1 << 20
_WARM_SECONDS_MAX = 0.5


@dataclass(frozen=True, slots=True)
class Window:
    """The time in which things count: what begins before it only warms up."""

    since: float
    until: float

    @classmethod
    def lasting(cls, seconds: float) -> "Window":
        since = perf_counter() + min(_WARM_SECONDS_MAX, seconds / 4)
        return cls(since, since + seconds)


@dataclass(frozen=True, slots=True)
class Tally:
    """How many batches were done in how many seconds, and how long each took."""

    seconds: float
    waits_ms: "array[float]" = field(repr=False)

    @property
    def per_second(self) -> float:
        return len(self.waits_ms) / self.seconds


def all_waits_ms(tallies: Iterable[Tally]) -> list[float]:
    return [wait for tally in tallies for wait in tally.waits_ms]


def percentile(waits_ms: Sequence[float], share: float) -> float:
    return sorted(waits_ms)[min(int(len(waits_ms) * share), len(waits_ms) - 1)]


def one_thread(folder: Path, batch: bytes | bytearray, seconds: float) -> Tally:
    window = Window.lasting(seconds)
    waits_ms = _write_and_sync(folder / "plain", batch, window)
    return Tally(perf_counter() - window.since, waits_ms)


def many_threads(folder: Path, batch: bytes | bytearray, threads: int, seconds: float) -> Tally:
    window = Window.lasting(seconds)
    waits_ms: array[float] = array("d")
    with ThreadPoolExecutor(threads) as pool:
        running = [pool.submit(_write_and_sync, folder / f"plain-{i}", batch, window) for i in range(threads)]
        for each in running:
            waits_ms.extend(each.result())
    return Tally(perf_counter() - window.since, waits_ms)


def reading(folder: Path, size_bytes: int, seconds: float) -> Tally:
    """Read a file of ``size_bytes`` that is still in memory, `READ_BYTES` at a time."""
    path = folder / "plain"
    with path.open("wb") as file:
        for _ in range(size_bytes // READ_BYTES):
            file.write(os.urandom(READ_BYTES))
    try:
        return _read(path, seconds)
    finally:
        path.unlink()


def forget_cached(folder: Path) -> None:
    """Ask the kernel to drop what it holds of the files in ``folder``, as after a restart of the machine."""
    for path in filter(Path.is_file, folder.rglob("*")):
        fd = os.open(path, os.O_RDONLY)
        try:
            os.fsync(fd)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(fd)


def _write_and_sync(path: Path, batch: bytes | bytearray, window: Window) -> "array[float]":
    waits_ms: array[float] = array("d")
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    try:
        while (began := perf_counter()) < window.until:
            os.write(fd, batch)
            os.fdatasync(fd)
            if began >= window.since:
                waits_ms.append((perf_counter() - began) * 1_000)
    finally:
        os.close(fd)
        path.unlink()
    return waits_ms


def _read(path: Path, seconds: float) -> Tally:
    window = Window.lasting(seconds)
    waits_ms: array[float] = array("d")
    fd = os.open(path, os.O_RDONLY)
    try:
        position = 0
        while (began := perf_counter()) < window.until:
            position = position + READ_BYTES if os.pread(fd, READ_BYTES, position) else 0
            if began >= window.since:
                waits_ms.append((perf_counter() - began) * 1_000)
    finally:
        os.close(fd)
    return Tally(perf_counter() - window.since, waits_ms)
