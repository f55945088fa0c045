"""Copies a store that is in use.

    newest snapshot ──▶ history ──▶ journal

In this order, because each must lead to the end of the next: the journal that is
copied last holds everything since the snapshot, and what the history does not tell
yet. If the journal was shortened past the snapshot meanwhile, the copy starts over.

A store of several shards is copied only while it is not in use: messages move between
their journals, and no order of copying would keep each of them in one place.
"""

from collections.abc import Callable
from typing import NamedTuple

from penstock.log import manifest as manifests
from penstock.log.backup import Copied, Folder, LogMovesTooFast, TargetNotEmpty, backup, copy_file
from penstock.store.embedded.shard_set import count_shards, folders_of
from penstock.store.embedded.snapshot_file import snapshot_name, snapshot_offsets

TRIES_MAX = 5

Progress = Callable[[str, int, int], None]


def is_store(source: Folder) -> bool:
    return count_shards(source.disk, source.path) > 0


def backup_store(source: Folder, target: Folder, progress: Progress = lambda _what, _done, _total: None) -> Copied:
    """Copy a store into an empty folder; durable on return. Blocks on the disk.

    Raises what `log.backup` does; `FolderTaken` if there are several shards, and
    they are in use.
    """
    if target.disk.names(target.path):
        raise TargetNotEmpty(f"{target.path} is not empty; a backup goes into a folder of its own")
    shards = range(count_shards(source.disk, source.path))
    locks = [source.disk.lock(folders_of(source.path, index).journal) for index in shards] if len(shards) > 1 else []
    try:
        done = [_copy_shard(_ways(source, target, index), progress) for index in shards]
    finally:
        for lock in locks:
            lock.release()
    return Copied(sum(copied.segments for copied in done), sum(copied.size_bytes for copied in done))


class Ways(NamedTuple):
    """Each folder of a shard, and where it is copied to."""

    journal: tuple[Folder, Folder]
    snapshots: tuple[Folder, Folder]
    history: tuple[Folder, Folder]


def _ways(source: Folder, target: Folder, index: int) -> Ways:
    pairs = zip(folders_of(source.path, index), folders_of(target.path, index), strict=True)
    return Ways(*((Folder(source.disk, old), Folder(target.disk, new)) for old, new in pairs))


def _copy_shard(ways: Ways, progress: Progress) -> Copied:
    for _ in range(TRIES_MAX):
        try:
            offset, snapshot_bytes = _copy_snapshot(*ways.snapshots)
        except FileNotFoundError:
            # Replaced by newer ones while it was being copied.
            continue
        history = _copy_log(*ways.history, progress)
        journal = _copy_log(*ways.journal, progress)
        begins = manifests.read(ways.journal[1].disk, ways.journal[1].path)
        assert begins is not None
        if begins.manifest.start_offset <= offset:
            size = snapshot_bytes + history.size_bytes + journal.size_bytes
            return Copied(history.segments + journal.segments, size)
        for _, copy in ways:
            for name in copy.disk.names(copy.path):
                copy.disk.remove(f"{copy.path}/{name}")
    path = ways.journal[0].path
    raise LogMovesTooFast(f"{path} was shortened {TRIES_MAX} times while it was being copied; try again later")


def _copy_snapshot(source: Folder, target: Folder) -> tuple[int, int]:
    """Copy the newest snapshot, and return its offset and size; 0 if there is none yet."""
    offsets = snapshot_offsets(source.disk, source.path)
    if not offsets:
        return 0, 0
    target.disk.make_folder(target.path)
    name = snapshot_name(offsets[-1])
    size = copy_file(Folder(source.disk, f"{source.path}/{name}"), Folder(target.disk, f"{target.path}/{name}"))
    target.disk.sync_folder(target.path)
    return offsets[-1], size


def _copy_log(source: Folder, target: Folder, progress: Progress) -> Copied:
    return backup(source, target, lambda done, total: progress(source.path, done, total))
