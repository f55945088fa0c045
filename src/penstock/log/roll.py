"""Closes the active segment and begins the next, or leaves everything as it is.

The order matters, since power may be lost after any step:

1. the new file exists, with room for all that has been promised;
2. the old segment is wholly durable;
3. the manifest names the new one. From here on the old one is closed.

Before 3 the new file is empty and unknown: recovery removes it.
"""

from penstock.log import manifest as manifests
from penstock.log.commit import Commit
from penstock.log.index import Index
from penstock.log.manifest import Manifest
from penstock.log.recovery import save_index
from penstock.log.segment import segment_name
from penstock.log.settings import LogSettings
from penstock.log.tail import ActiveSegment, Tail
from penstock.runtime.interface import NO_SPACE, File, Runtime
from penstock.telemetry import LOG_ROLL_PUT_OFF, LOG_ROLLED


def roll(runtime: Runtime, folder: str, settings: LogSettings, tail: Tail, commit: Commit, manifest: Manifest) -> bool:
    """Move ``commit`` to a new segment, and say whether the disk had room for one. Runs in a worker."""
    assert tail.rolling_to_bytes is not None
    old, base_offset = tail.active, manifest.active_offset
    allocated = tail.rolling_to_bytes + settings.spare_bytes
    file = _new_file(runtime, folder, base_offset, allocated, leave_free=settings.leave_free_bytes)
    if file is None and (settings.spare_bytes or settings.leave_free_bytes):
        # The old segment has the spare, and gives it up only when this one has taken over.
        allocated = tail.rolling_to_bytes
        file = _new_file(runtime, folder, base_offset, allocated)
    if file is None and settings.leave_free_bytes and tail.lend_spare():
        file = _new_file(runtime, folder, base_offset, allocated)
    if file is None:
        runtime.note(LOG_ROLL_PUT_OFF, file=f"{folder}/{segment_name(old.base_offset)}", size_bytes=old.end_bytes)
        return False
    if old.synced_bytes < old.end_bytes:
        old.file.sync()
    manifests.write(runtime.disk, folder, manifest, floor_offset=base_offset)
    old.file.truncate(old.end_bytes)
    save_index(runtime.disk, folder, old.index)
    commit.rolled_from = old
    commit.active = ActiveSegment(
        base_offset,
        file,
        Index(base_offset, settings.index_every_bytes),
        end_bytes=0,
        synced_bytes=0,
        allocated_bytes=allocated,
    )
    if allocated == tail.rolling_to_bytes:
        tail.keep_spare(commit.active)
    runtime.note(LOG_ROLLED, file=f"{folder}/{segment_name(old.base_offset)}", next_offset=base_offset)
    return True


def _new_file(runtime: Runtime, folder: str, base_offset: int, allocated: int, *, leave_free: int = 0) -> File | None:
    path = f"{folder}/{segment_name(base_offset)}"
    try:
        file = runtime.disk.open(path)
    except OSError as error:
        if error.errno in NO_SPACE:
            return None
        raise
    try:
        file.allocate(allocated, leave_free=leave_free)
    except OSError as error:
        file.close()
        if error.errno not in NO_SPACE:
            raise
        runtime.disk.remove(path)
        return None
    file.sync()
    runtime.disk.sync_folder(folder)
    return file
