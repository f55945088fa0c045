"""The real disk: files, folders and locks of the operating system."""

import ctypes
import errno
import fcntl
import os
import sys
from pathlib import Path

from penstock.runtime.interface import Buffer, FolderTaken

_FALLOC_FL_KEEP_SIZE = 1
_RWF_NOWAIT = getattr(os, "RWF_NOWAIT", None)
_libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


class SystemFile:
    __slots__ = ("_fd", "_path", "_can_read_cached", "_can_allocate", "_allocated")

    def __init__(self, path: Path, *, must_exist: bool = False) -> None:
        self._path = path
        self._fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | (0 if must_exist else os.O_CREAT), 0o640)
        self._can_read_cached = _RWF_NOWAIT is not None
        self._can_allocate = _libc is not None
        self._allocated = 0

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def read(self, position: int, size: int) -> bytes:
        data = os.pread(self._fd, size, position)
        if len(data) == size or not data:
            return data
        # A signal or the end of the file cut the read short: only the latter stays.
        return data + self.read(position + len(data), size - len(data))

    def read_cached(self, position: int, size: int) -> bytearray | None:
        if not self._can_read_cached:
            return None
        data = bytearray(size)
        try:
            count = os.preadv(self._fd, [data], position, _RWF_NOWAIT or 0)
        except BlockingIOError:
            return None
        except OSError as error:
            if error.errno not in {errno.EOPNOTSUPP, errno.EINVAL}:
                raise
            self._can_read_cached = False
            return None
        # Fewer bytes than asked: the rest is not in memory, or not in the file. `read` can tell.
        return data if count == size else None

    def write(self, data: Buffer, position: int) -> None:
        view = memoryview(data)
        while view:
            count = os.pwrite(self._fd, view, position)
            view, position = view[count:], position + count

    def allocate(self, end: int) -> None:
        if not self._can_allocate:
            self._check_free(end)
            return
        assert _libc is not None
        start = min(self._allocated, end)
        # Blocks beyond the end of the file, so that its size goes on saying how much was written.
        # A plain posix_fallocate would leave a tail of zeros for recovery to puzzle over.
        if (
            _libc.fallocate(self._fd, _FALLOC_FL_KEEP_SIZE, ctypes.c_long(start), ctypes.c_long(max(end - start, 1)))
            == 0
        ):
            self._allocated = max(self._allocated, end)
            return
        code = ctypes.get_errno()
        if code in {errno.EOPNOTSUPP, errno.ENOSYS}:
            self._can_allocate = False
            self._check_free(end)
        elif code == errno.EINTR:
            self.allocate(end)
        else:
            raise OSError(code, os.strerror(code), str(self._path))

    def _check_free(self, end: int) -> None:
        """The best a file system without allocation can do: ask whether there is room now."""
        stats = os.fstatvfs(self._fd)
        if end - self.size() > stats.f_bavail * stats.f_frsize:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._path))

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)
        self._allocated = min(self._allocated, size)

    def sync(self) -> None:
        if sys.platform == "darwin":
            # Plain fsync there leaves the data in the drive's own cache.
            fcntl.fcntl(self._fd, fcntl.F_FULLFSYNC)
        else:
            os.fdatasync(self._fd)

    def forget_cached(self) -> None:
        if sys.platform == "linux":
            os.posix_fadvise(self._fd, 0, 0, os.POSIX_FADV_DONTNEED)

    def close(self) -> None:
        os.close(self._fd)


class SystemLock:
    def __init__(self, fd: int) -> None:
        self._fd = fd

    def release(self) -> None:
        os.close(self._fd)


class SystemDisk:
    def __init__(self, root: Path) -> None:
        self._root = root

    def open(self, path: str, *, must_exist: bool = False) -> SystemFile:
        return SystemFile(self._root / path, must_exist=must_exist)

    def exists(self, path: str) -> bool:
        return (self._root / path).exists()

    def names(self, folder: str) -> list[str]:
        try:
            return sorted(os.listdir(self._root / folder))  # noqa: PTH208
        except FileNotFoundError:
            return []

    def make_folder(self, path: str) -> None:
        folder = self._root / path
        made = [folder, *(parent for parent in folder.parents if not parent.exists())]
        folder.mkdir(parents=True, exist_ok=True)
        # The folder's own name too: whoever made it may have died before syncing it.
        for new in made:
            self._sync(new.parent)

    def rename(self, old: str, new: str) -> None:
        (self._root / old).rename(self._root / new)

    def remove(self, path: str) -> None:
        (self._root / path).unlink()

    def remove_folder(self, path: str) -> None:
        (self._root / path).rmdir()

    def sync_folder(self, path: str) -> None:
        self._sync(self._root / path)

    def _sync(self, folder: Path) -> None:
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def lock(self, folder: str) -> SystemLock:
        path = self._root / folder / "lock"
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            raise FolderTaken(f"{path.parent} is in use by another process. Stop that one first.") from None
        return SystemLock(fd)
