"""How one log behaves: the choices its owner makes when opening it."""

from dataclasses import dataclass
from typing import Literal

from penstock.contract.limits import (
    BACKLOG_BYTES_MAX,
    COMMIT_BYTES_MAX,
    MIB,
    OPEN_SEGMENTS_MAX,
    SEGMENT_BYTES_MAX,
    SPARE_BYTES,
)

SyncPolicy = Literal["batch", "interval", "os"]

# What an operator must know before leaving the default.
MAY_LOSE: dict[SyncPolicy, str] = {
    "batch": "nothing: no answer leaves before its fsync",
    "interval": "on a power cut, what was acknowledged since the last fsync; nothing when only the process dies",
    "os": "on a power cut, what the kernel had not written back, often 30 seconds; nothing when only the process dies",
}


# Of a disk, and at most: what sends leave free for snapshots, histories and new segments, by which it is emptied.
LEAVE_FREE_SHARE = 8
LEAVE_FREE_BYTES_MAX = 256 * MIB


def leave_free_bytes(disk_bytes: int) -> int:
    """Return how much of a disk of this size is left to what empties it; 0 if its size is unknown."""
    return min(disk_bytes // LEAVE_FREE_SHARE, LEAVE_FREE_BYTES_MAX)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSettings:
    sync: SyncPolicy = "batch"
    sync_interval_ms: int = 100
    # How often a log that grows says in its manifest how far it is synced.
    floor_interval_ms: int = 1_000
    segment_bytes_max: int = 128 * MIB
    segment_age_ms_max: int = 7 * 24 * 3600 * 1000
    # Begin the next segment before a batch that would not fit, not after it: no segment is larger than said, unless one
    # batch is.
    rolls_before_full: bool = False
    commit_bytes_max: int = COMMIT_BYTES_MAX
    backlog_bytes_max: int = BACKLOG_BYTES_MAX
    # Space is taken from the disk in steps of this size, ahead of need.
    allocate_bytes: int = 16 * MIB
    # Begin with smaller steps, for an owner of many logs, most of which stay small.
    allocate_grows: bool = False
    spare_bytes: int = SPARE_BYTES
    # What only makes the log longer is refused when it would leave less than this on the disk: the rest is for what
    # empties it.
    leave_free_bytes: int = 0
    index_every_bytes: int = 16 * 1024
    # Commits of at most this size are written and synced in the event loop while the disk is quick; 0: none. Not for
    # one log of many, whose syncs would follow each other there, nor for files that are closed and opened again.
    commit_in_loop_bytes_max: int = 0
    # Closed segments kept open for reading. An owner of many logs gives each few.
    open_segments_max: int = OPEN_SEGMENTS_MAX

    def __post_init__(self) -> None:
        if self.sync not in MAY_LOSE:
            raise ValueError(f"sync is {self.sync!r}; it must be one of {', '.join(MAY_LOSE)}")
        if not 1 <= self.segment_bytes_max <= SEGMENT_BYTES_MAX:
            raise ValueError(f"segment_bytes_max is {self.segment_bytes_max}; it must be from 1 to {SEGMENT_BYTES_MAX}")
        for name in (
            "sync_interval_ms",
            "floor_interval_ms",
            "segment_age_ms_max",
            "commit_bytes_max",
            "backlog_bytes_max",
            "index_every_bytes",
            "open_segments_max",
        ):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least 1")
        for name in ("allocate_bytes", "spare_bytes", "leave_free_bytes", "commit_in_loop_bytes_max"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} is {getattr(self, name)}; it must not be negative")
