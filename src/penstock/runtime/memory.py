"""A world that is gone with its process: a disk in memory, and everything done by the event loop itself.

For tests of programs that use queues, and for queues that need not outlive their
process. Nothing here fails, nothing is slow, and nothing is durable.

    disk      files as bytes, by path; durable means written
    workers   the event loop, in its next turn, so that `submit` never runs the work itself
    aside     a thread: a snapshot takes long, and verbs go on meanwhile
"""

import asyncio
import time
import traceback
from collections import deque
from collections.abc import Callable

from penstock.runtime.interface import BackgroundProcessFailed, Buffer, Clock, Disk, FolderTaken, Runtime, Space
from penstock.runtime.system import SystemClock, SystemDice, halt, log_event


class MemoryFile:
    """A file that is open. All that have it open have the same bytes."""

    def __init__(self, data: bytearray) -> None:
        self._data = data

    def size(self) -> int:
        return len(self._data)

    def read(self, position: int, size: int) -> bytes:
        # Through a view: a slice of a bytearray would be copied twice.
        with memoryview(self._data) as view:
            return bytes(view[position : position + size])

    def read_cached(self, position: int, size: int) -> Buffer | None:
        return self.read(position, size)

    def write(self, data: Buffer, position: int) -> None:
        if position > len(self._data):
            self._data.extend(bytes(position - len(self._data)))
        self._data[position : position + len(data)] = data

    def allocate(self, end: int, *, leave_free: int = 0) -> None:
        """Nothing is set aside: memory has no quota that could be asked."""

    def truncate(self, size: int) -> None:
        if size > len(self._data):
            self._data.extend(bytes(size - len(self._data)))
        del self._data[size:]

    def sync(self) -> None:
        """What is written is as durable as it will be."""

    def is_in_place(self) -> bool:
        """No other process has this disk."""
        return True

    def identity(self) -> object:
        return id(self._data)

    def forget_cached(self) -> None:
        """There is nothing behind it."""

    def close(self) -> None:
        """The bytes belong to the disk."""


class MemoryLock:
    def __init__(self, taken: set[str], folder: str) -> None:
        self._taken = taken
        self._folder = folder

    def is_in_place(self) -> bool:
        """No other process has this disk."""
        return True

    def release(self) -> None:
        self._taken.discard(self._folder)


class MemoryDisk:
    """Satisfies `runtime.interface.Disk`. A removed file lives on for those who have it open, as on a disk."""

    def __init__(self) -> None:
        self._files: dict[str, bytearray] = {}
        self._folders = {""}
        self._taken: set[str] = set()

    @property
    def size_bytes(self) -> int:
        return sum(map(len, list(self._files.values())))

    def open(self, path: str, *, must_exist: bool = False) -> MemoryFile:
        if must_exist and path not in self._files:
            raise FileNotFoundError(f"there is no file {path}")
        if path.rpartition("/")[0] not in self._folders:
            raise FileNotFoundError(f"there is no folder for {path}")
        return MemoryFile(self._files.setdefault(path, bytearray()))

    def exists(self, path: str) -> bool:
        return path in self._files or path in self._folders

    def names(self, folder: str) -> list[str]:
        prefix = f"{folder}/" if folder else ""
        # Copied first: a snapshot may be made in a thread at the same time.
        paths = [*self._files, *self._folders]
        return sorted({path[len(prefix) :].partition("/")[0] for path in paths if path.startswith(prefix)} - {""})

    def make_folder(self, path: str) -> None:
        while path:
            self._folders.add(path)
            path = path.rpartition("/")[0]

    def rename(self, old: str, new: str) -> None:
        self._files[new] = self._files.pop(old)

    def remove(self, path: str) -> None:
        if self._files.pop(path, None) is None:
            raise FileNotFoundError(f"there is no file {path}")

    def remove_folder(self, path: str) -> None:
        assert not self.names(path), f"{path} is not empty"
        self._folders.discard(path)

    def sync_folder(self, path: str) -> None:
        """Names are as durable as the bytes."""

    def space(self, folder: str) -> Space:  # noqa: ARG002
        return Space(0, 0)

    def lock(self, folder: str) -> MemoryLock:
        if folder in self._taken:
            raise FolderTaken(f"{folder} is in use by another part of this process")
        self._taken.add(folder)
        return MemoryLock(self._taken, folder)


class LoopWorkers:
    """Does the work in the next turn of the event loop, in the order it was submitted."""

    def __init__(self, halt: Callable[[str], object]) -> None:
        self._halt = halt
        self._jobs: deque[tuple[Callable[[], None], Callable[[], None]]] = deque()

    def submit(self, work: Callable[[], None], done: Callable[[], None]) -> None:
        self._jobs.append((work, done))
        asyncio.get_running_loop().call_soon(self._run_next)

    def _run_next(self) -> None:
        self.run_here(*self._jobs.popleft())

    def run_here(self, work: Callable[[], None], done: Callable[[], None]) -> None:
        try:
            work()
        except BaseException:
            # Work reports its own failures. One that it did not foresee would leave its caller waiting for ever.
            self._halt(traceback.format_exc())
        done()


class InThread:
    """Satisfies `runtime.interface.BackgroundProcess` without another process, which could not see this disk."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk

    async def run(self, work: Callable[[Disk, bytes], bytes], request: bytes) -> bytes:
        try:
            return await asyncio.to_thread(work, self._disk, request)
        except Exception as error:
            raise BackgroundProcessFailed(f"{type(error).__name__}: {error}") from error


def memory_runtime(clock: Clock | None = None) -> Runtime:
    """Return a world of its own, with an empty disk, for the event loop that runs now."""
    disk = MemoryDisk()
    return Runtime(
        clock=clock or SystemClock(),
        dice=SystemDice(),
        disk=disk,
        workers=LoopWorkers(halt),
        aside=InThread(disk),
        halt=halt,
        log_event=log_event,
        ticks_us=lambda: 0,
        seconds=time.perf_counter,
    )
