"""A disk in memory that loses power, fills up and fails, as a real one does.

A change is first in the cache, where every process sees it. `File.sync` makes the
bytes and the size of one file durable, `sync_folder` the names in one folder.

    kill()       the process died: the cache stays, handles and locks do not
    power_cut()  of what was not synced, some survives: the dice or `choose` say what

Laws of this file
-----------------
1. Changes of the names in a folder survive as a prefix, in order, as a journaling
   file system keeps them. A file may outlive its contents, and the reverse.
2. Bytes survive by the laws of `pages.py`.
3. A process that died touches nothing: its handles raise `AssertionError`, and
   between a crash and the restart every operation raises `PowerCut`.
4. The faults below are attributes that a test sets, and count from 0: a value of 0
   strikes the very next operation of the kind.

| attribute          | what happens                                                         |
|--------------------|----------------------------------------------------------------------|
| `crash_after`      | once `operations` has reached it, the next one happens partly, or    |
|                    | not at all, or in full, and raises `PowerCut`                        |
| `fail_sync_after`  | after so many more syncs, one raises EIO and forgets what is dirty   |
| `fail_write_after` | after so many more writes, one raises EIO, with a part of it written |
| `capacity_bytes`   | writing or allocating beyond it raises ENOSPC                        |
| `cold`             | `read_cached` finds nothing                                          |
"""

import copy
import errno
import os
import posixpath
import random
from collections.abc import Callable
from dataclasses import dataclass

from penstock.runtime.interface import Buffer, FolderTaken, Space
from tests.simulation.pages import CUT, NAME, PAGE, SECTOR, SIZE, Choose, Pages

__all__ = ["CUT", "NAME", "PAGE", "SECTOR", "SIZE", "Choose", "PowerCut", "SimDisk", "SimFile", "SimLock"]


class PowerCut(BaseException):
    """The machine stopped in the middle of an operation. Only the simulator catches it."""


class SimFile:
    def __init__(self, disk: "SimDisk", path: str, pages: Pages) -> None:
        self._disk = disk
        self._path = path
        self._pages = pages
        self._process = disk.process
        self._is_closed = False

    def size(self) -> int:
        self._check()
        return len(self._pages.cache)

    def read(self, position: int, size: int) -> bytes:
        self._check()
        return bytes(self._pages.cache[position : position + size])

    def read_cached(self, position: int, size: int) -> bytes | None:
        data = self.read(position, size)
        return None if self._disk.cold else data

    def write(self, data: Buffer, position: int) -> None:
        self._check()
        self._disk.write(self._path, self._pages, memoryview(data).cast("B"), position)

    def allocate(self, end: int, *, leave_free: int = 0) -> None:
        self._check()
        self._disk.allocate(self._path, self._pages, end, leave_free)

    def truncate(self, size: int) -> None:
        self._check()
        self._disk.operate(f"truncate {self._path}", lambda: self._pages.truncate(size))

    def sync(self) -> None:
        self._check()
        self._disk.syncing()
        self._disk.sync(self._path, self._pages)

    def is_in_place(self) -> bool:
        self._check()
        return self._disk.is_named(self._path, self._pages)

    def identity(self) -> object:
        self._check()
        return id(self._pages)

    def forget_cached(self) -> None:
        self._check()
        self._pages.forget_clean()

    def close(self) -> None:
        """Close the file. A dead process may close too, and changes nothing by it."""
        if self._process == self._disk.process:
            assert not self._is_closed, f"{self._path} is closed twice"
        self._is_closed = True

    def _check(self) -> None:
        self._disk.check_is_up()
        assert self._process == self._disk.process, f"{self._path} was opened by a process that is dead"
        assert not self._is_closed, f"{self._path} is closed"


class SimLock:
    def __init__(self, disk: "SimDisk", folder: str) -> None:
        self._disk = disk
        self._folder = folder
        self._process = disk.process

    def is_in_place(self) -> bool:
        return self._disk.exists(self._folder)

    def release(self) -> None:
        if self._process == self._disk.process:
            self._disk.locked.discard(self._folder)


@dataclass(frozen=True, slots=True)
class NameChange:
    """A file got a name (no ``old``), lost it (no ``new``), or changed it."""

    old: str | None
    new: str | None
    pages: Pages

    @property
    def path(self) -> str:
        return self.new or self.old or ""

    def apply(self, names: dict[str, Pages]) -> None:
        if self.old is not None:
            names.pop(self.old, None)
        if self.new is not None:
            names[self.new] = self.pages


def _at_once() -> None:
    """No time passes."""


class SimDisk:
    def __init__(self, dice_seed: int = 0, *, capacity_bytes: int | None = None) -> None:
        self.capacity_bytes = capacity_bytes
        self.operations = 0
        self.crash_after: int | None = None
        self.fail_sync_after: int | None = None
        self.fail_write_after: int | None = None
        self.cold = False
        # Called in the middle of every sync of a file: time may pass.
        self.syncing: Callable[[], None] = _at_once
        # Counts the processes this disk has outlived: a handle knows by it whose it was.
        self.process = 0
        self.locked: set[str] = set()
        self._dice = random.Random(f"disk/{dice_seed}")
        self._is_down = False
        self._folders = {""}
        self._names: dict[str, Pages] = {}
        self._names_durable: dict[str, Pages] = {}
        # By folder: what was done to its names since its last sync, in order.
        self._unsynced: dict[str, list[NameChange]] = {}

    # The disk, as a process sees it.

    def open(self, path: str, *, must_exist: bool = False) -> SimFile:
        self.check_is_up()
        path = _clean(path)
        if must_exist:
            self._find(path)
        if path not in self._names:
            self._check_folder(path)
            self._rename_in_cache(f"create {path}", NameChange(None, path, Pages()))
        return SimFile(self, path, self._names[path])

    def exists(self, path: str) -> bool:
        self.check_is_up()
        return _clean(path) in self._names or _clean(path) in self._folders

    def names(self, folder: str) -> list[str]:
        self.check_is_up()
        paths = [path for path in {*self._names, *self._folders} if path and _folder(path) == _clean(folder)]
        return sorted(map(posixpath.basename, paths))

    def make_folder(self, path: str) -> None:
        self.check_is_up()
        if _clean(path) not in self._folders:
            self.operate(f"make folder {path}", lambda: self._add_folder(_clean(path)))

    def rename(self, old: str, new: str) -> None:
        self.check_is_up()
        old, new = _clean(old), _clean(new)
        assert _folder(old) == _folder(new), "a rename from folder to folder is not simulated"
        self._rename_in_cache(f"rename {old} to {new}", NameChange(old, new, self._find(old)))

    def remove(self, path: str) -> None:
        self.check_is_up()
        path = _clean(path)
        self._rename_in_cache(f"remove {path}", NameChange(path, None, self._find(path)))

    def remove_folder(self, path: str) -> None:
        """Remove an empty folder. Like the making of one, this is durable at once: no file depends on it."""
        self.check_is_up()
        assert not self.names(path), f"{path} is not empty"
        self.operate(f"remove folder {path}", lambda: self._drop_folder(_clean(path)))

    def sync_folder(self, path: str) -> None:
        self.check_is_up()
        folder = _clean(path)
        if folder not in self._folders:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        changes = len(self._unsynced.get(folder, []))
        self.operate(
            f"sync folder {path}",
            lambda: self._sync_names(folder, changes),
            lambda: self._sync_names(folder, self._dice.randint(0, changes)),
        )

    def space(self, folder: str) -> Space:
        self.check_is_up()
        if self.capacity_bytes is None:
            return Space(0, 0)
        return Space(max(0, self.capacity_bytes - self.used_bytes()), self.capacity_bytes)

    def lock(self, folder: str) -> SimLock:
        self.check_is_up()
        folder = _clean(folder)
        if folder in self.locked:
            raise FolderTaken(f"{folder} is in use by another process.")
        self._check_folder(posixpath.join(folder, "any"))
        self.locked.add(folder)
        return SimLock(self, folder)

    # What happens to a disk.

    def kill(self) -> None:
        """End the process that used the disk: what it wrote stays in the cache."""
        self._is_down = False
        self.process += 1
        self.locked.clear()
        self.crash_after = self.fail_sync_after = self.fail_write_after = None

    def power_cut(self, choose: Choose | None = None) -> None:
        """Lose power: of what was not synced, the dice or ``choose`` say what survives.

        ``choose`` is asked about each dirty page, about `NAME` for each unsynced
        change of a name (the first refusal in a folder ends its prefix), about `CUT` for
        a file that was made shorter, and about `SIZE` for one that grew beyond the pages
        that survive: the rest of it is zeros then. What is left is durable.
        """
        self.kill()
        for folder, changes in sorted(self._unsynced.items()):
            self._sync_names(folder, self._surviving(changes, choose))
        self._unsynced.clear()
        self._names = dict(self._names_durable)
        for path, pages in sorted(self._names.items()):
            if choose is None:
                pages.cut_power_by_dice(self._dice)
            else:
                pages.cut_power(path, choose)

    def _surviving(self, changes: list[NameChange], choose: Choose | None) -> int:
        if choose is None:
            return self._dice.randint(0, len(changes))
        return next((i for i, change in enumerate(changes) if not choose(change.path, NAME)), len(changes))

    def copy(self) -> "SimDisk":
        """Return the same disk again, in a machine where nothing is running."""
        # A machine's; its loop cannot be copied.
        syncing, self.syncing = self.syncing, _at_once
        twin = copy.deepcopy(self)
        self.syncing = syncing
        twin.locked.clear()
        return twin

    def used_bytes(self) -> int:
        return sum(pages.used_bytes() for _, pages in sorted(self._names.items()))

    def read_bytes(self, path: str) -> bytes:
        return bytes(self._find(_clean(path)).cache)

    def write_bytes(self, path: str, data: bytes) -> None:
        """Make a file hold ``data``, durably, its name and its folders included."""
        path = _clean(path)
        folder = _folder(path)
        self._add_folder(folder)
        self._sync_names(folder, len(self._unsynced.get(folder, [])))
        pages = Pages(cache=bytearray(data))
        pages.make_durable()
        self._names[path] = self._names_durable[path] = pages

    def flip_bit(self, path: str, bit_index: int) -> None:
        """Damage a file, in the cache and on the platter."""
        pages = self._find(_clean(path))
        at, mask = bit_index // 8, 1 << bit_index % 8
        pages.cache[at] ^= mask
        if at < len(pages.platter):
            pages.platter[at] ^= mask

    # What files ask of their disk.

    def is_named(self, path: str, pages: Pages) -> bool:
        return self._names.get(path) is pages

    def check_is_up(self) -> None:
        if self._is_down:
            raise PowerCut("the disk has no power; restart it with power_cut() or kill()")

    def operate(self, label: str, act: Callable[[], None], act_partly: Callable[[], None] | None = None) -> None:
        """Count an operation and carry it out, unless this is the one to crash in."""
        if self.crash_after is None or self.operations < self.crash_after:
            self.operations += 1
            act()
            return
        self._is_down = True
        if self._dice.random() < 0.5:
            (act_partly or act)()
        raise PowerCut(f"in operation {self.operations}: {label}")

    def write(self, path: str, pages: Pages, data: memoryview, position: int) -> None:
        def write_part() -> None:
            pages.write(data[: self._dice.randint(0, len(data))], position)

        def write_all() -> None:
            is_due, self.fail_write_after = _count_down(self.fail_write_after)
            if is_due:
                write_part()
                raise OSError(errno.EIO, os.strerror(errno.EIO), path)
            room = self._room(pages)
            fits = len(data) if room is None else max(0, min(len(data), room - position))
            pages.write(data[:fits], position)
            if fits < len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

        self.operate(f"write {path}, {len(data)} bytes at {position}", write_all, write_part)

    def allocate(self, path: str, pages: Pages, end: int, leave_free: int) -> None:
        def allocate() -> None:
            room = self._room(pages)
            if room is not None and end + leave_free > room:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
            pages.allocated = max(pages.allocated, end)

        self.operate(f"allocate {path} up to {end}", allocate, lambda: None)

    def sync(self, path: str, pages: Pages) -> None:
        def sync() -> None:
            is_due, self.fail_sync_after = _count_down(self.fail_sync_after)
            if is_due:
                pages.forget_dirty()
                raise OSError(errno.EIO, os.strerror(errno.EIO), path)
            pages.sync()

        def sync_partly() -> None:
            pages.sync_some([page for page in sorted(pages.dirty) if self._dice.random() < 0.5])

        self.operate(f"sync {path}", sync, sync_partly)

    def _room(self, pages: Pages) -> int | None:
        """Return how far a file may reach: over what it has, and what is free."""
        if self.capacity_bytes is None:
            return None
        free = max(0, self.capacity_bytes - self.used_bytes())
        return pages.used_bytes() + free // PAGE * PAGE

    # Names.

    def _rename_in_cache(self, label: str, change: NameChange) -> None:
        def act() -> None:
            change.apply(self._names)
            self._unsynced.setdefault(_folder(change.path), []).append(change)

        self.operate(label, act)

    def _sync_names(self, folder: str, count: int) -> None:
        changes = self._unsynced.get(folder, [])
        for change in changes[:count]:
            change.apply(self._names_durable)
        del changes[:count]

    def _add_folder(self, folder: str) -> None:
        while folder:
            self._folders.add(folder)
            folder = _folder(folder)

    def _drop_folder(self, folder: str) -> None:
        # The names that were taken out of it go with it.
        self._sync_names(folder, len(self._unsynced.get(folder, [])))
        self._folders.discard(folder)

    def _check_folder(self, path: str) -> None:
        assert path not in self._folders, f"{path} is a folder"
        if _folder(path) not in self._folders:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)

    def _find(self, path: str) -> Pages:
        if path not in self._names:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return self._names[path]


def _count_down(left: int | None) -> tuple[bool, int | None]:
    return left == 0, left - 1 if left else None


def _clean(path: str) -> str:
    path = posixpath.normpath(path)
    assert not path.startswith(("/", "..")), f"{path} is not below the root of the disk"
    return "" if path == "." else path


def _folder(path: str) -> str:
    return posixpath.dirname(path)
