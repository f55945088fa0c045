"""Opening: which snapshot to begin with, and where the journal goes on from it."""

from typing import NamedTuple

from penstock.log.interface import Log
from penstock.log.writer_queue import off_loop
from penstock.runtime.interface import Runtime
from penstock.store.embedded.memory import Memory
from penstock.store.embedded.snapshot import SnapshotDamaged, load, set_aside, snapshot_name, snapshot_offsets
from penstock.telemetry import STORE_SNAPSHOT_DAMAGED


class JournalHasNoBeginning(Exception):
    """The journal's first events are gone, and no snapshot that could be read holds what they came to."""


class Recalled(NamedTuple):
    memory: Memory
    # The journal goes on from here.
    offset: int


async def recall(runtime: Runtime, snapshots: str, log: Log) -> Recalled:
    """Read the newest snapshot that is whole and leads to the end of the journal.

    Raises `JournalHasNoBeginning`, and `SnapshotUnknown` for one of a newer version.
    """
    return await off_loop(runtime.workers, lambda: _recall(runtime, snapshots, log.start_offset, log.durable_offset))


def _recall(runtime: Runtime, snapshots: str, start_offset: int, end_offset: int) -> Recalled:
    recalled = None
    unusable: list[int] = []
    for offset in reversed(snapshot_offsets(runtime.disk, snapshots)):
        # One from before the start was left by a process that was killed before it could remove it.
        if offset < start_offset:
            break
        error = f"it is from beyond the end of this journal, which is at {end_offset}"
        if offset <= end_offset:
            try:
                recalled = Recalled(load(runtime.disk, snapshots, offset), offset)
                break
            except SnapshotDamaged as damage:
                error = str(damage)
        runtime.log_event(STORE_SNAPSHOT_DAMAGED, file=f"{snapshots}/{snapshot_name(offset)}", error=error)
        unusable.append(offset)
    if recalled is None and start_offset:
        raise JournalHasNoBeginning(
            f"the journal begins at offset {start_offset}, and no whole snapshot in {snapshots} leads to it; "
            "restore a backup, or put back the snapshots that belong to this journal"
        )
    set_aside(runtime.disk, snapshots, unusable)
    return recalled or Recalled(Memory(), start_offset)
