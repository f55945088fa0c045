"""The real disk: files, folders and locks of the operating system.

Everything below the root is reached folder by folder without following a link, and
only regular files are opened: who may write to the folder must not be able to have the
server overwrite, or copy, a file elsewhere, or wait for a pipe. What is made is closed
to others whatever the umask says: folders 0750 at most, files 0640.
"""

import ctypes
import errno
import fcntl
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from penstock.runtime.interface import Buffer, FolderTaken, NotARegularFile, Space

# With fewer files left a disk counts as full: segments, indexes and snapshots must still be made to empty it.
FREE_FILES_MIN = 64

LOCK = "lock"
FOLDER_MODE = 0o750
FILE_MODE = 0o640

_FALLOC_FL_KEEP_SIZE = 1
_RWF_NOWAIT = getattr(os, "RWF_NOWAIT", None)
_libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


class SystemFile:
    __slots__ = ("_fd", "_path", "_can_read_cached", "_can_allocate", "_allocated")

    def __init__(self, fd: int, path: Path) -> None:
        self._path = path
        self._fd = fd
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

    def allocate(self, end: int, *, leave_free: int = 0) -> None:
        if leave_free and _space(os.fstatvfs(self._fd)).free_bytes < leave_free + max(0, end - self._blocks_end()):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._path))
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
            self.allocate(end, leave_free=leave_free)
        else:
            raise OSError(code, os.strerror(code), str(self._path))

    def _blocks_end(self) -> int:
        """Return up to where the file has its space already, at the most."""
        return max(self._allocated, os.fstat(self._fd).st_blocks * 512)

    def _check_free(self, end: int) -> None:
        """The best a file system without allocation can do: ask whether there is room now."""
        if end - self.size() > _space(os.fstatvfs(self._fd)).free_bytes:
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

    def is_in_place(self) -> bool:
        return _leads_to(self._path, self.identity())

    def identity(self) -> "Identity":
        return _identity(os.fstat(self._fd))

    def forget_cached(self) -> None:
        if sys.platform == "linux":
            os.posix_fadvise(self._fd, 0, 0, os.POSIX_FADV_DONTNEED)

    def close(self) -> None:
        os.close(self._fd)


def open_regular(path: Path, flags: int, *, folder_fd: int | None = None, mode: int = FILE_MODE) -> int:
    """Open a regular file by the last part of its path, and no link to one; raises `NotARegularFile`.

    Nothing is waited for: a pipe that has no writer is refused like one that has.
    """
    name = path if folder_fd is None else path.name
    try:
        fd = os.open(name, flags | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, mode, dir_fd=folder_fd)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise NotARegularFile(path, "a symbolic link") from None
        if error.errno in {errno.ENXIO, errno.EISDIR}:
            raise NotARegularFile(path, "no regular file") from None
        raise
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise NotARegularFile(path, "no regular file")
    return fd


def make_folders(folder: Path) -> list[Path]:
    """Create a folder and its parents where they are missing; return those that were."""
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    for each in reversed(missing):
        each.mkdir(FOLDER_MODE, exist_ok=True)
    return missing


def _space(stats: os.statvfs_result) -> Space:
    free_bytes, total_bytes = stats.f_bavail * stats.f_frsize, stats.f_blocks * stats.f_frsize
    # A file system without a limit of files says 0 of 0.
    has_files = not stats.f_files or stats.f_favail >= FREE_FILES_MIN
    return Space(free_bytes if has_files else 0, total_bytes)


Identity = tuple[int, int]


def _identity(found: os.stat_result) -> Identity:
    return found.st_dev, found.st_ino


def _leads_to(path: Path, identity: Identity) -> bool:
    try:
        return _identity(os.lstat(path)) == identity
    except (FileNotFoundError, NotADirectoryError):
        return False


class SystemLock:
    """A lock on a folder; where folders cannot be locked, on a file in it that is made for this.

    One file is held open, since there may be thousands of logs. It is the one that is
    locked, so its number cannot be given to another file while the lock is held.
    """

    def __init__(self, fd: int, places: dict[Path, Identity]) -> None:
        self._fd = fd
        self._places = places

    def is_in_place(self) -> bool:
        return all(_leads_to(path, identity) for path, identity in self._places.items())

    def release(self) -> None:
        os.close(self._fd)


class SystemDisk:
    def __init__(self, root: Path) -> None:
        self._root = root

    def open(self, path: str, *, must_exist: bool = False) -> SystemFile:
        full = self._root / path
        with self._folder_of(path) as fd:
            return SystemFile(open_regular(full, os.O_RDWR | (0 if must_exist else os.O_CREAT), folder_fd=fd), full)

    def exists(self, path: str) -> bool:
        # A link counts, even a broken one: opening it says what is wrong.
        return os.path.lexists(self._root / path)

    def names(self, folder: str) -> list[str]:
        try:
            with self._folder(folder) as fd:
                return sorted(os.listdir(fd))  # noqa: PTH208
        except FileNotFoundError:
            return []

    def make_folder(self, path: str) -> None:
        folder = self._root / path
        # The folder's own name too: the process that made it may have died before syncing it.
        for new in {folder, *make_folders(folder)}:
            self._sync(new.parent)
        with self._folder(path):
            pass

    def rename(self, old: str, new: str) -> None:
        with self._folder_of(old) as old_fd, self._folder_of(new) as new_fd:
            os.rename(Path(old).name, Path(new).name, src_dir_fd=old_fd, dst_dir_fd=new_fd)

    def remove(self, path: str) -> None:
        with self._folder_of(path) as fd:
            os.unlink(Path(path).name, dir_fd=fd)

    def remove_folder(self, path: str) -> None:
        with self._folder_of(path) as fd:
            os.rmdir(Path(path).name, dir_fd=fd)

    def sync_folder(self, path: str) -> None:
        with self._folder(path) as fd:
            os.fsync(fd)

    def space(self, folder: str) -> Space:
        return _space(os.statvfs(self._root / folder))

    @contextmanager
    def _folder_of(self, path: str) -> Iterator[int]:
        with self._folder(path.rpartition("/")[0]) as fd:
            yield fd

    @contextmanager
    def _folder(self, path: str) -> Iterator[int]:
        """Lend a folder below the root, which no link has led to."""
        fd = os.open(self._root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            reached = self._root
            for name in filter(None, path.split("/")):
                reached /= name
                above, fd = fd, open_folder(reached, above_fd=fd)
                os.close(above)
            yield fd
        finally:
            os.close(fd)

    def _sync(self, folder: Path) -> None:
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def lock(self, folder: str) -> SystemLock:
        path = self._root / folder
        with self._folder(folder) as lent:
            places = {path: _identity(os.fstat(lent))}
            if _is_locked(lent, path):
                # What is locked is open as long as any duplicate of it is.
                return SystemLock(os.dup(lent), places)
            fd = open_regular(path / LOCK, os.O_RDWR | os.O_CREAT, folder_fd=lent)
        try:
            _lock(fd, path)
        except BaseException:
            os.close(fd)
            raise
        return SystemLock(fd, {**places, path / LOCK: _identity(os.fstat(fd))})


def _is_locked(folder_fd: int, folder: Path) -> bool:
    """Lock a folder, if its file system can lock folders."""
    try:
        _lock(folder_fd, folder)
    except OSError:
        # Network file systems lock files only.
        return False
    return True


def _lock(fd: int, folder: Path) -> None:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise FolderTaken(f"{folder} is in use by another process. Stop that one first.") from None


def open_folder(path: Path, *, above_fd: int | None = None) -> int:
    """Open a folder by the last part of its path; raises `NotARegularFile` for a link."""
    name = path if above_fd is None else path.name
    try:
        return os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=above_fd)
    except NotADirectoryError:
        # A link is none either, since it is not followed.
        raise NotARegularFile(path, "no folder, or a symbolic link to one") from None
