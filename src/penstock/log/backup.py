"""Copies a log while a process writes to it.

A log only grows at its end, so a copy needs no lock and disturbs no writer: first
the manifest is read, then every segment it speaks of, as long as it is at that
moment. What is being written meanwhile is in the copy wholly, or as a torn tail
that opening the copy cuts off. The copy is therefore the log as it was at some
instant between the start and the end of the copying.

If segments are dropped on the way, or replaced by a rewritten file, the copying
begins again. A file is copied from one opening of it, with the size it has then: the
name of a segment may belong to a rewritten file by then, which may be larger.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from penstock.log import manifest as manifests
from penstock.log.segment import WINDOW_BYTES, base_offsets, segment_name
from penstock.log.survey import NothingToRead, check_is_log
from penstock.runtime.interface import Disk

TRIES_MAX = 5


class TargetNotEmpty(Exception):
    """A backup goes into a folder of its own: nothing is written over."""


class LogMovesTooFast(Exception):
    """Segments are dropped faster than they can be copied."""


@dataclass(frozen=True, slots=True)
class Copied:
    segments: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder of a disk, or a file in one."""

    disk: Disk
    path: str


def backup(source: Folder, target: Folder, progress: Callable[[int, int], None] = lambda _done, _total: None) -> Copied:
    """Copy the log in one folder into another, which must be empty; durable on return. Blocks on the disk.

    ``progress`` is called with how many bytes are done, and of how many.
    """
    check_is_log(source.disk, source.path)
    if target.disk.names(target.path):
        raise TargetNotEmpty(f"{target.path} is not empty; a backup goes into a folder of its own")
    target.disk.make_folder(target.path)
    for _ in range(TRIES_MAX):
        try:
            return _copy(source, target, progress)
        except FileNotFoundError:
            for name in target.disk.names(target.path):
                target.disk.remove(f"{target.path}/{name}")
    raise LogMovesTooFast(f"{source.path} was shortened {TRIES_MAX} times while it was being copied; try again later")


def _copy(source: Folder, target: Folder, progress: Callable[[int, int], None]) -> Copied:
    found = manifests.read(source.disk, source.path)
    if found is None:
        raise NothingToRead(
            f"the manifest of {source.path} is missing or unreadable: see penstock repair {source.path}"
        )
    state = found.manifest
    names = source.disk.names(source.path)
    bases = [base for base in base_offsets(names) if state.start_offset <= base <= state.active_offset]
    if state.active_offset not in bases:
        raise NothingToRead(f"{segment_name(state.active_offset)} is missing: see penstock repair {source.path}")
    total, done = sum(_size(source, base) for base in bases), 0
    for base in bases:
        file, copy = (Folder(folder.disk, f"{folder.path}/{segment_name(base)}") for folder in (source, target))
        for part in _copy_pieces(file, copy):
            done += part
            progress(done, max(done, total))
    _check_not_replaced(source, bases)
    target.disk.sync_folder(target.path)
    # It was not closed in good order, and opening it must look at its end.
    manifests.create(target.disk, target.path, replace(state, sequence=0, clean_end_offset=None))
    return Copied(len(bases), done)


def _check_not_replaced(source: Folder, bases: list[int]) -> None:
    """Raise `FileNotFoundError` if segments were replaced meanwhile: the file in their place may reach beyond
    what was the active one when the manifest was read."""
    found = manifests.read(source.disk, source.path)
    there = set(base_offsets(source.disk.names(source.path)))
    for base in bases:
        if base not in there and (found is None or base >= found.manifest.start_offset):
            raise FileNotFoundError(f"{source.path}/{segment_name(base)}")


def _size(source: Folder, base_offset: int) -> int:
    file = source.disk.open(f"{source.path}/{segment_name(base_offset)}", must_exist=True)
    try:
        return file.size()
    finally:
        file.close()


def copy_file(source: Folder, target: Folder) -> int:
    """Copy one finished file; its bytes are durable on return, its name is not. Returns its size."""
    return sum(_copy_pieces(source, target))


def _copy_pieces(source: Folder, target: Folder) -> Iterator[int]:
    old = source.disk.open(source.path, must_exist=True)
    new = target.disk.open(target.path)
    try:
        size = old.size()
        for position in range(0, size, WINDOW_BYTES):
            data = old.read(position, min(WINDOW_BYTES, size - position))
            new.write(data, position)
            yield len(data)
        new.sync()
    finally:
        old.close()
        new.close()
