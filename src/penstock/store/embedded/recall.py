"""Opening: which snapshot to begin with, and where the journal goes on from it."""

from typing import NamedTuple

from penstock.log.interface import Log
from penstock.log.jobs import off_loop
from penstock.runtime.interface import Runtime
from penstock.store.embedded.memory import Memory
from penstock.store.embedded.snapshot import SnapshotDamaged, load, snapshot_name, snapshot_offsets
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
    for offset in reversed(snapshot_offsets(runtime.disk, snapshots)):
        if not start_offset <= offset <= end_offset:
            # Left by a process that was killed, or a copy of the journal that is older than it.
            continue
        try:
            return Recalled(load(runtime.disk, snapshots, offset), offset)
        except SnapshotDamaged as error:
            runtime.note(STORE_SNAPSHOT_DAMAGED, file=f"{snapshots}/{snapshot_name(offset)}", error=str(error))
    if start_offset:
        raise JournalHasNoBeginning(
            f"the journal begins at offset {start_offset}, and no whole snapshot in {snapshots} leads to it; "
            "restore a backup, or put back the snapshots that belong to this journal"
        )
    return Recalled(Memory(), start_offset)
