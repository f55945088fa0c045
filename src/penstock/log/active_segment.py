"""The end of a log: its active segment, and the room that is left in it.

    0            synced      end        end + pending + reserved     allocated
    ├─ durable ────┼─ written ─┼─ promised ──────────────┼─ free ─ · ─ spare ─┤

Invariant: what is promised fits into what is allocated, so that an append
within a reservation cannot run out of space. Only `reserve` may refuse, before
anything has been decided.
"""

from dataclasses import dataclass
from types import TracebackType
from typing import Self

from penstock.contract.limits import KIB, MIB, RESERVATION_BYTES_MAX
from penstock.log.interface import LogBusy, LogFull
from penstock.log.record import MARKER_BYTES
from penstock.log.segment import Index
from penstock.log.settings import LogSettings
from penstock.runtime.interface import NO_SPACE, Disk, File

_FIRST_STEP_BYTES = 64 * KIB
# Of a new segment on a disk that is nearly full: enough for a message of any size.
_SHORT_STEP_BYTES = 2 * MIB


@dataclass(slots=True)
class ActiveSegment:
    base_offset: int
    file: File
    index: Index
    # Where the next commit goes.
    end_bytes: int
    # Known durable: never more than `end_bytes`.
    synced_bytes: int
    allocated_bytes: int
    # When its first batch came, or None while it is empty.
    begun_at_ms: int | None = None
    # Its last marker stands alone and says that all before it is durable, or it is empty.
    is_confirmed: bool = True


class TailReservation:
    """A reservation: room for so many bytes that no other append may take."""

    __slots__ = ("_tail", "left_bytes")

    def __init__(self, tail: "Tail", size_bytes: int) -> None:
        self._tail = tail
        self.left_bytes = size_bytes

    def take(self, size_bytes: int) -> None:
        assert size_bytes <= self.left_bytes, "more was appended than had been reserved"
        self.left_bytes -= size_bytes
        self._tail.reserved_bytes -= size_bytes
        self._tail.pending_bytes += size_bytes

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._tail.reserved_bytes -= self.left_bytes
        self.left_bytes = 0


class Tail:
    """Keeps the books of the active segment's space. Lives on the event loop."""

    def __init__(self, active: ActiveSegment, settings: LogSettings, disk: Disk, folder: str) -> None:
        self.active = active
        self._settings = settings
        self._disk = disk
        self._folder = folder
        self.reserved_bytes = 0
        self.pending_bytes = 0
        # While a roll is under way, promises must also fit into what it allocates for the next segment.
        self.rolling_to_bytes: int | None = None

    @property
    def promised_bytes(self) -> int:
        """Reserved or appended, with the markers that may come on top."""
        return self._with_markers(self.reserved_bytes + self.pending_bytes)

    def _with_markers(self, size_bytes: int) -> int:
        """Add what the markers of so many bytes take.

        Appends of one turn of the loop share a commit, or fill several, of which any
        two in a row hold more than one may. At most one commit is being written while
        the next gathers, so a handful of markers and two for each commit's worth is
        enough for whatever is outstanding. A lone marker (`group_commit.py`) is a commit
        without batches.
        """
        return size_bytes + (8 + 2 * size_bytes // self._settings.commit_bytes_max) * MARKER_BYTES

    def reserve(self, size_bytes: int, *, from_spare: bool) -> TailReservation:
        if not 0 <= size_bytes <= RESERVATION_BYTES_MAX:
            raise ValueError(
                f"size_bytes is {size_bytes}; it must be from 0 to RESERVATION_BYTES_MAX ({RESERVATION_BYTES_MAX})"
            )
        outstanding = self.reserved_bytes + self.pending_bytes
        if outstanding and outstanding + size_bytes > self._settings.backlog_bytes_max:
            raise LogBusy(
                f"{outstanding} bytes wait for the disk; backlog_bytes_max is {self._settings.backlog_bytes_max}"
            )
        promised = self._with_markers(outstanding + size_bytes)
        if self.rolling_to_bytes is not None and promised > self.rolling_to_bytes:
            raise LogBusy("a new segment is being made, and has no room for more yet")
        spare = 0 if from_spare else self._settings.spare_bytes
        needed = self.active.end_bytes + promised + spare
        if needed > self.active.allocated_bytes:
            self._allocate(needed, leave_free=0 if from_spare else self._settings.leave_free_bytes)
        self.reserved_bytes += size_bytes
        return TailReservation(self, size_bytes)

    def begin_roll(self) -> None:
        """Promise from now on only what the next segment will hold, too: it gets the step that this one would take.

        On a disk that is nearly full it gets as little as will do: the old segment may
        have to be closed before it can go.
        """
        step = self._step_bytes
        if self._settings.leave_free_bytes and step > _SHORT_STEP_BYTES:
            wanted = self.promised_bytes + step + self._settings.spare_bytes + self._settings.leave_free_bytes
            step = step if self._disk.space(self._folder).free_bytes >= wanted else _SHORT_STEP_BYTES
        self.rolling_to_bytes = self.promised_bytes + step

    @property
    def _step_bytes(self) -> int:
        """How much space to take ahead of need: in a log that grows into it, as much again as there is."""
        most = self._settings.allocate_bytes
        return min(most, max(_FIRST_STEP_BYTES, self.active.end_bytes)) if self._settings.allocate_grows else most

    def _allocate(self, needed: int, *, leave_free: int) -> None:
        step_end, keep = needed + self._step_bytes, self._settings.leave_free_bytes
        if not (
            self._try_to_allocate(step_end, leave_free=keep) or self._try_to_allocate(needed, leave_free=leave_free)
        ):
            raise LogFull("the disk is full: nothing was written, and what is there can still be read and acknowledged")

    def has_room_for_marker(self) -> bool:
        """Say whether a lone marker fits, after taking no more space for it than it needs."""
        end = self.active.end_bytes + MARKER_BYTES
        return end <= self.active.allocated_bytes or self._try_to_allocate(end)

    def give_back(self) -> None:
        """Return what was allocated and is not needed, except the spare: a log may be opened again on a full disk."""
        active = self.active
        active.file.truncate(active.end_bytes)
        active.allocated_bytes = active.end_bytes
        if self._settings.spare_bytes:
            self._try_to_allocate(active.end_bytes + self._settings.spare_bytes)

    def allocate_ahead(self) -> None:
        """Take the next step of space before anyone needs it. Called off the loop, between two commits."""
        if not self.is_ahead():
            self._try_to_allocate(self._needed_bytes + self._step_bytes, leave_free=self._settings.leave_free_bytes)

    def is_ahead(self) -> bool:
        """Whether there is half a step more than is needed."""
        return self._needed_bytes + self._step_bytes // 2 <= self.active.allocated_bytes

    @property
    def _needed_bytes(self) -> int:
        promised_bytes = self._with_markers(self.reserved_bytes + self.pending_bytes)
        return self.active.end_bytes + promised_bytes + self._settings.spare_bytes

    def lend_spare(self) -> bool:
        """Give the spare of the active segment back, so that the next one can be made; say whether there was any.

        What is promised stays allocated: while a roll is under way that is bounded.
        """
        assert self.rolling_to_bytes is not None
        active, needed = self.active, self.active.end_bytes + self.rolling_to_bytes
        if active.allocated_bytes <= needed:
            return False
        active.allocated_bytes = needed
        active.file.truncate(active.end_bytes)
        active.file.allocate(needed)
        return True

    def keep_spare(self, active: ActiveSegment) -> None:
        """Take the spare for a new segment that was made without. Called off the loop, by the roll."""
        end = active.allocated_bytes + self._settings.spare_bytes
        if self._settings.spare_bytes and _has_allocated(active.file, end, leave_free=self._settings.leave_free_bytes):
            active.allocated_bytes = end

    def _try_to_allocate(self, end: int, *, leave_free: int = 0) -> bool:
        if not _has_allocated(self.active.file, end, leave_free=leave_free):
            return False
        self.active.allocated_bytes = max(self.active.allocated_bytes, end)
        return True


def _has_allocated(file: File, end: int, *, leave_free: int = 0) -> bool:
    """Take space for a file, and say whether the disk had it."""
    try:
        file.allocate(end, leave_free=leave_free)
    except OSError as error:
        if error.errno not in NO_SPACE:
            raise
        return False
    return True
