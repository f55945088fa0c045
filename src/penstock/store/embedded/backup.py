"""Copies a store while somebody uses it.

    newest snapshot ──▶ history ──▶ journal

In this order, because each must lead to the end of the next: the journal that is
copied last holds everything since the snapshot, and what the history does not tell
yet. If the journal was shortened past the snapshot meanwhile, all begins anew.

A store of several shards is copied only while nobody uses it: messages move between
their journals, and no order of copying would keep each of them in one place.
"""

from collections.abc import Callable
from typing import NamedTuple

from penstock.log import manifest as manifests
from penstock.log.backup import Copied, Folder, LogMovesTooFast, TargetNotEmpty, backup, copy_file
from penstock.log.survey import NothingToRead
from penstock.store.embedded.snapshot import snapshot_name, snapshot_offsets

TRIES_MAX = 5

Progress = Callable[[str, int, int], None]


class ShardNames(NamedTuple):
    """The folders of one shard, in the folder of its store."""

    journal: str
    snapshots: str
    history: str


def shard_names(number: int) -> ShardNames:
    """Return the names of a shard's folders.

    >>> shard_names(0).journal, shard_names(2).journal
    ('journal', 'journal-2')
    """
    ending = f"-{number}" if number else ""
    return ShardNames(f"journal{ending}", f"snapshots{ending}", f"history{ending}")


def is_store(source: Folder) -> bool:
    return bool(source.disk.names(f"{source.path}/{shard_names(0).journal}"))


def backup_store(source: Folder, target: Folder, progress: Progress = lambda _what, _done, _total: None) -> Copied:
    """Copy a store into an empty folder; durable on return. Blocks on the disk.

    Raises what `log.backup` does; `FolderTaken` if there are several shards, and
    somebody uses them.
    """
    if target.disk.names(target.path):
        raise TargetNotEmpty(f"{target.path} is not empty; a backup goes into a folder of its own")
    shards = [shard_names(number) for number in range(_count_shards(source))]
    journals = [f"{source.path}/{names.journal}" for names in shards]
    locks = [source.disk.lock(path) for path in journals] if len(shards) > 1 else []
    try:
        done = [_copy_shard(source, target, names, progress) for names in shards]
    finally:
        for lock in locks:
            lock.release()
    return Copied(sum(copied.segments for copied in done), sum(copied.size_bytes for copied in done))


def _count_shards(source: Folder) -> int:
    number = 0
    while source.disk.names(f"{source.path}/{shard_names(number).journal}"):
        number += 1
    if not number:
        raise NothingToRead(f"there is no store in {source.path}")
    return number


def _copy_shard(source: Folder, target: Folder, names: ShardNames, progress: Progress) -> Copied:
    for _ in range(TRIES_MAX):
        try:
            offset, snapshot_bytes = _copy_snapshot(source, target, names.snapshots)
        except FileNotFoundError:
            # Replaced by newer ones while it was being copied.
            continue
        history = _copy_log(source, target, names.history, progress)
        journal = _copy_log(source, target, names.journal, progress)
        begins = manifests.read(target.disk, f"{target.path}/{names.journal}")
        assert begins is not None
        if begins.manifest.start_offset <= offset:
            size = snapshot_bytes + history.size_bytes + journal.size_bytes
            return Copied(history.segments + journal.segments, size)
        for name in names:
            _clear(Folder(target.disk, f"{target.path}/{name}"))
    raise LogMovesTooFast(f"{source.path} was shortened {TRIES_MAX} times while it was being copied; try again later")


def _copy_snapshot(source: Folder, target: Folder, folder: str) -> tuple[int, int]:
    """Copy the newest snapshot, and return its offset and size; 0 if there is none yet."""
    offsets = snapshot_offsets(source.disk, f"{source.path}/{folder}")
    if not offsets:
        return 0, 0
    target.disk.make_folder(f"{target.path}/{folder}")
    name = f"{folder}/{snapshot_name(offsets[-1])}"
    size = copy_file(Folder(source.disk, f"{source.path}/{name}"), Folder(target.disk, f"{target.path}/{name}"))
    target.disk.sync_folder(f"{target.path}/{folder}")
    return offsets[-1], size


def _copy_log(source: Folder, target: Folder, folder: str, progress: Progress) -> Copied:
    return backup(
        Folder(source.disk, f"{source.path}/{folder}"),
        Folder(target.disk, f"{target.path}/{folder}"),
        lambda done, total: progress(folder, done, total),
    )


def _clear(folder: Folder) -> None:
    for name in folder.disk.names(folder.path):
        folder.disk.remove(f"{folder.path}/{name}")
