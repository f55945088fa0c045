"""Every limit of the system, in one table.

A limit is enforced before memory is spent on what exceeds it, and the error
that follows names it. `docs/reference/limits.md` is made from this file.
"""

from dataclasses import dataclass

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB

BATCH_BYTES_MAX = 16 * MIB
RESERVATION_BYTES_MAX = 32 * MIB
COMMIT_BYTES_MAX = 4 * MIB
BACKLOG_BYTES_MAX = 64 * MIB
SEGMENT_BYTES_MAX = 2 * GIB
SPARE_BYTES = 16 * MIB
OPEN_SEGMENTS_MAX = 64
EPOCHS_MAX = 2_000


@dataclass(frozen=True, slots=True)
class Limit:
    name: str
    value: int
    unit: str
    meaning: str


LIMITS: tuple[Limit, ...] = (
    Limit("BATCH_BYTES_MAX", BATCH_BYTES_MAX, "bytes", "One record batch in a log."),
    Limit("RESERVATION_BYTES_MAX", RESERVATION_BYTES_MAX, "bytes", "What one reservation may set aside in a log."),
    Limit("COMMIT_BYTES_MAX", COMMIT_BYTES_MAX, "bytes", "Gathered for one fsync; a single larger batch goes alone."),
    Limit("BACKLOG_BYTES_MAX", BACKLOG_BYTES_MAX, "bytes", "Waiting in memory for a log's disk; more is turned away."),
    Limit("SEGMENT_BYTES_MAX", SEGMENT_BYTES_MAX, "bytes", "The largest segment size that can be set."),
    Limit("SPARE_BYTES", SPARE_BYTES, "bytes", "Kept in a log for acks and drops, so that a full disk can be emptied."),
    Limit("OPEN_SEGMENTS_MAX", OPEN_SEGMENTS_MAX, "files", "Closed segments of one log kept open for reading."),
    Limit("EPOCHS_MAX", EPOCHS_MAX, "epochs", "Changes of leader one log remembers; the oldest go first."),
)
