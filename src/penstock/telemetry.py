"""The name of every note the system writes about itself; no I/O.

A note is an event with fields, not a sentence with holes: `log.tail_cut` with a
file, a position and a count of bytes can be searched, counted and alerted on.
Nothing may be noted that is not declared here, so this file is the reference.
"""

from dataclasses import dataclass
from typing import Literal

Level = Literal["info", "warning", "error"]


@dataclass(frozen=True, slots=True)
class Note:
    """One kind of note: its name, how loud it is, and what it tells an operator."""

    name: str
    level: Level
    meaning: str


LOG_OPENED = Note(
    "log.opened", "info", "A log is open; says from which offset to which, and whether the last stop was clean."
)
LOG_TAIL_CUT = Note(
    "log.tail_cut",
    "warning",
    "The last stop left unsynced bytes behind; they were cut off. Nothing acknowledged was in them, unless the disk "
    "has damaged the very last commit, which cannot be told apart.",
)
LOG_INDEX_REBUILT = Note(
    "log.index_rebuilt", "info", "An index was missing or wrong and was made anew from its segment."
)
LOG_ROLLED = Note("log.rolled", "info", "A segment was closed and the next one begun.")
LOG_ROLL_PUT_OFF = Note("log.roll_put_off", "warning", "No space for a new segment; the old one goes on past its size.")
LOG_SEGMENT_DROPPED = Note("log.segment_dropped", "info", "A segment went, because nothing in it is needed any more.")
LOG_TRUNCATED = Note("log.truncated", "warning", "A log was cut back to an offset because its leader says so.")
LOG_FAILED = Note(
    "log.failed", "error", "A write or an fsync failed. The process stops at once; nothing is acknowledged after it."
)
STORE_SNAPSHOT_MADE = Note(
    "store.snapshot_made", "info", "What a shard is was written down; opening it begins there, not at the beginning."
)
STORE_SNAPSHOT_DAMAGED = Note(
    "store.snapshot_damaged", "error", "A snapshot cannot be read. The one before it is used, if there is one."
)
STORE_SNAPSHOT_FAILED = Note(
    "store.snapshot_failed", "warning", "No snapshot was made; it is tried again. Until then the journal grows."
)
STORE_UPKEEP_FAILED = Note(
    "store.upkeep_failed", "error", "Shortening a journal went wrong; it is tried again. Until then the journal grows."
)
HISTORY_STALLED = Note(
    "history.stalled",
    "warning",
    "No space for the history of settled messages. Queues go on; the journal keeps what the history has not written.",
)
HISTORY_RESUMED = Note("history.resumed", "info", "There is space again, and the history is being written.")
HISTORY_AHEAD = Note(
    "history.ahead",
    "warning",
    "The history tells of events that the journal has lost, by a sync policy that may lose or an older copy of the "
    "journal. It goes on from where the journal ends.",
)
REST_FAILED = Note(
    "rest.failed", "error", "A request was answered with 500: a mistake of ours, with the trace of where it was made."
)
KEYS_CHANGED = Note("keys.changed", "info", "The file with the keys was replaced, and other keys are good now.")
KEYS_DAMAGED = Note(
    "keys.damaged", "error", "The file with the keys cannot be used; those that were good before still are. Mend it."
)
SERVER_STARTED = Note("server.started", "info", "The server listens; says where, and where its data is.")
SERVER_STOPPING = Note(
    "server.stopping", "info", "No new work is taken; long polls are answered and running requests finished."
)
SERVER_STOPPED = Note("server.stopped", "info", "Everything is closed and the journal is clean.")

NOTES: tuple[Note, ...] = (
    LOG_OPENED,
    LOG_TAIL_CUT,
    LOG_INDEX_REBUILT,
    LOG_ROLLED,
    LOG_ROLL_PUT_OFF,
    LOG_SEGMENT_DROPPED,
    LOG_TRUNCATED,
    LOG_FAILED,
    STORE_SNAPSHOT_MADE,
    STORE_SNAPSHOT_DAMAGED,
    STORE_SNAPSHOT_FAILED,
    STORE_UPKEEP_FAILED,
    HISTORY_STALLED,
    HISTORY_RESUMED,
    HISTORY_AHEAD,
    REST_FAILED,
    KEYS_CHANGED,
    KEYS_DAMAGED,
    SERVER_STARTED,
    SERVER_STOPPING,
    SERVER_STOPPED,
)
