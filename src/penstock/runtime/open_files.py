"""Keeps few files open of many: one that was not used for long is closed, and opened again by its name.

Thousands of partitions have a file each that they may write to at any time, and a
process may have some hundred files open.

A file that is open is used without the lock, since each read, write and sync passes here.
A call is added to the users of a file first, and then looks whether it is open; to close
one, it is taken away first, and given back if it has users by then. Either of the two sees
the other: appending, popping and setting a field are one step each for all threads.

Which one goes is chosen as a clock does: the first in a circle that was not used since it
was passed the last time.

Laws of this file
-----------------
1. A file that is being read, written or synced stays open.
2. What was written is synced before its file is closed: the kernel tells a failed write
   to those who had the file open then, and perhaps only to them. A sync that fails
   stops the process, also if another call needed the room.
3. A name that leads to another file than it did, or to none, raises `FileNotFoundError`.
4. The event loop closes nothing, since a sync may come with it: there may be a few files
   too many until a worker uses one.
"""

import errno
import resource
from collections import OrderedDict
from collections.abc import Callable
from threading import Lock
from types import TracebackType
from typing import NoReturn

from penstock.contract.limits import TOPIC_FILES_MAX
from penstock.runtime.interface import Buffer, Disk, File, FolderLock, Space

# The topics' part of what the process may open.
_TOPICS_PERCENT = 25

Fail = Callable[[str, OSError], NoReturn]


def files_for_topics() -> int:
    """Return how many files topics keep open, as things are: the rest is for connections and for queues."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return TOPIC_FILES_MAX
    return max(1, min(TOPIC_FILES_MAX, soft * _TOPICS_PERCENT // 100))


class OpenFiles:
    """Satisfies `runtime.interface.Disk`: another disk, of which at most so many files are open at once."""

    def __init__(self, disk: Disk, most: int, fail: Fail) -> None:
        assert most >= 1
        self._disk = disk
        self._most = most
        self._fail = fail
        self.mutex = Lock()
        # Those that are open now, the one to be looked at next in front.
        self.open_now: OrderedDict[LentFile, None] = OrderedDict()

    def open(self, path: str, *, must_exist: bool = False) -> "LentFile":
        lent = LentFile(self, path, self._disk.open(path, must_exist=must_exist))
        with self.mutex:
            self.open_now[lent] = None
        self.shrink()
        return lent

    def reopen(self, lent: "LentFile") -> File:
        file = self._disk.open(lent.path, must_exist=True)
        with self.mutex:
            found = lent.file
            if found is None and (file.identity(), file.size()) == (lent.identity_, lent.size_bytes):
                self.open_now[lent] = None
                lent.file = file
                return file
        file.close()
        if found is None:
            raise FileNotFoundError(errno.ENOENT, "it is another file than it was", lent.path)
        # Another thread was quicker.
        return found

    def shrink(self) -> None:
        """Close files until there are as few as may be, except those in use."""
        while len(self.open_now) > self._most:
            with self.mutex:
                found = self._take_idle()
            if found is None:
                return
            path, file, is_dirty = found
            if is_dirty:
                try:
                    file.sync()
                except OSError as error:
                    self._fail(path, error)
            file.close()

    def _take_idle(self) -> tuple[str, File, bool] | None:
        """Choose a file that can be closed, and take it away; say whether it has to be synced."""
        # The first time round there may be none that was not used meanwhile.
        for _ in range(2 * len(self.open_now) if len(self.open_now) > self._most else 0):
            lent = next(iter(self.open_now))
            self.open_now.move_to_end(lent)
            file, was_used = lent.file, lent.was_used
            assert file is not None
            lent.was_used = False
            if was_used:
                continue
            lent.file = None
            if lent.users:
                lent.file = file
                continue
            self._note_closed(lent, file)
            is_dirty, lent.is_dirty = lent.is_dirty, False
            return lent.path, file, is_dirty
        return None

    def _note_closed(self, lent: "LentFile", file: File) -> None:
        lent.size_bytes = file.size()
        del self.open_now[lent]

    def close(self, lent: "LentFile") -> None:
        with self.mutex:
            lent.is_closed = True
            file, lent.file = lent.file, None
            if file is not None:
                self._note_closed(lent, file)
        if file is not None:
            file.close()

    def exists(self, path: str) -> bool:
        return self._disk.exists(path)

    def names(self, folder: str) -> list[str]:
        return self._disk.names(folder)

    def make_folder(self, path: str) -> None:
        self._disk.make_folder(path)

    def rename(self, old: str, new: str) -> None:
        self._disk.rename(old, new)

    def remove(self, path: str) -> None:
        self._disk.remove(path)

    def remove_folder(self, path: str) -> None:
        self._disk.remove_folder(path)

    def sync_folder(self, path: str) -> None:
        self._disk.sync_folder(path)

    def space(self, folder: str) -> Space:
        return self._disk.space(folder)

    def lock(self, folder: str) -> FolderLock:
        return self._disk.lock(folder)


class LentFile:
    """Satisfies `runtime.interface.File`."""

    __slots__ = ("_files", "path", "file", "identity_", "size_bytes", "users", "was_used", "is_dirty", "is_closed")

    def __init__(self, files: OpenFiles, path: str, file: File) -> None:
        self._files = files
        self.path = path
        self.file: File | None = file
        self.identity_ = file.identity()
        # When it was put away.
        self.size_bytes = 0
        # One for each call under way.
        self.users: list[None] = []
        # Since `OpenFiles` looked for one to close.
        self.was_used = False
        # Something was written that is not known to be synced.
        self.is_dirty = False
        self.is_closed = False

    def __enter__(self) -> File:
        """Lend the real file for one call."""
        self.users.append(None)
        self.was_used = True
        if (file := self.file) is not None:
            return file
        try:
            assert not self.is_closed, f"{self.path} is closed"
            return self._files.reopen(self)
        except BaseException:
            self.__exit__(None, None, None)
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.users.pop()

    def size(self) -> int:
        with self as file:
            return file.size()

    def read(self, position: int, size: int) -> bytes:
        with self as file:
            data = file.read(position, size)
        self._files.shrink()
        return data

    def read_cached(self, position: int, size: int) -> Buffer | None:
        if self.file is None:
            return None
        with self as file:
            return file.read_cached(position, size)

    def write(self, data: Buffer, position: int) -> None:
        with self as file:
            self.is_dirty = True
            file.write(data, position)
        self._files.shrink()

    def allocate(self, end: int, *, leave_free: int = 0) -> None:
        with self as file:
            file.allocate(end, leave_free=leave_free)

    def truncate(self, size: int) -> None:
        with self as file:
            self.is_dirty = True
            file.truncate(size)

    def sync(self) -> None:
        with self as file:
            file.sync()
            self.is_dirty = False
        self._files.shrink()

    def is_in_place(self) -> bool:
        try:
            with self as file:
                return file.is_in_place()
        except FileNotFoundError:
            return False

    def identity(self) -> object:
        return self.identity_

    def forget_cached(self) -> None:
        with self as file:
            file.forget_cached()

    def close(self) -> None:
        self._files.close(self)
