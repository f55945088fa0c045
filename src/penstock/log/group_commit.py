"""Group commit: batches that share a write, a marker and an fsync; the roll before one, the lone marker after the last.

    ─ commit ─┤marker├─ commit ─┤marker├                the last one is durable, and no byte of the file says it
    ─ commit ─┤marker├─ commit ─┤marker├─┤marker├       a moment later: a lone marker

A marker says what was durable before it. A process that reads the files beside a running
server, or recovers them, believes nothing else (decisions 0003 and 0031).

Laws of this file
-----------------
1. A lone marker is written once after the last commit of a log, and never while commits
   follow each other: then the next commit confirms the one before.
2. A lone marker is not synced. It names what is durable already: a power cut that takes
   the marker takes nothing else.
3. A lone marker takes no room from an append. It waits for reservations that are held,
   and is left out where the disk has no room for it.
4. A roll closes the active segment and begins the next, or leaves everything as it is. Its
   order matters, since power may be lost after any step:
   a. the new file exists, with room for all that has been promised;
   b. the old segment is wholly durable;
   c. the manifest names the new one. From here on the old one is closed.
   Before c the new file is empty and unknown: recovery removes it.

The floor says outside the segments how far a log is known to be durable: below it nothing
may be missing. A torn tail and a segment that was cut short look alike from within. The
floor tells them apart: power that is lost cannot take what was synced a second ago.

5. The floor names only what is synced. It may be lost, or late: then it is lower than
   it could be, and a tear stays a tear.
6. No answer waits for it: it is written and synced beside the commits, at most once a
   second, while the log grows. Rolls, starts and stops write it with the manifest.
7. It never goes down: only a repair, which may make a log shorter, begins it again at 0.
"""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NoReturn, TypeAlias

from penstock.log import manifest as manifests
from penstock.log.active_segment import ActiveSegment, Tail
from penstock.log.manifest import Manifest
from penstock.log.record import HEAD, HEAD_BYTES, LEADER_EPOCH, LENGTH_FROM, MARKER_BYTES, MarkerPosition, encode_marker
from penstock.log.recovery import Recovered, save_index
from penstock.log.segment import Index, segment_name
from penstock.log.settings import LogSettings
from penstock.log.writer_queue import Job
from penstock.runtime.interface import NO_SPACE, Buffer, File, Runtime
from penstock.telemetry import LOG_ROLL_DEFERRED, LOG_ROLLED

# A batch that has its offsets but is not yet written: its bytes without the head, which is written over, its base
# offset, next offset and max timestamp. A plain tuple, because one is made on every append.
Appended: TypeAlias = tuple[memoryview, int, int, int]
# How long nothing is written before the last commit is confirmed: at most twice this after it.
QUIET_MS = 1_000


@dataclass(slots=True)
class Commit:
    batches: list[Appended]
    batch_bytes: int
    # Where it is to go, until a roll names another.
    active: ActiveSegment
    # Set when this commit begins a new segment.
    rolled_from: ActiveSegment | None = None
    end_bytes: int = 0
    synced_bytes: int = 0
    # When the first of its batches was appended, and how long its fsync took.
    began_s: float = 0.0
    sync_s: float = 0.0
    _positions: list[int] = field(default_factory=list)

    @property
    def next_offset(self) -> int:
        return self.batches[-1][2]

    def assemble(self, log_id: int) -> bytes:
        """Return what is written: heads, batches and the marker, in one piece."""
        position = self.active.end_bytes
        heads: list[bytes] = []
        parts: list[Buffer] = []
        for rest, base_offset, _, _ in self.batches:
            head = HEAD.pack(base_offset, HEAD_BYTES - LENGTH_FROM + len(rest), LEADER_EPOCH)
            heads.append(head)
            parts.append(head)
            parts.append(rest)
            self._positions.append(position)
            position += HEAD_BYTES + len(rest)
        place = MarkerPosition(self.batches[-1][2] - 1, position)
        parts.append(encode_marker(place, durable_bytes=self.active.synced_bytes, log_id=log_id, heads=heads))
        self.end_bytes = position + MARKER_BYTES
        return b"".join(parts)

    def fill(self, index: Index) -> None:
        """Take the batches into the index of the segment they were written to."""
        for (_, base_offset, _, timestamp_ms), position in zip(self.batches, self._positions, strict=True):
            index.add(base_offset, position, timestamp_ms)


def gather(pending: Iterable[Appended], bytes_max: int) -> tuple[list[Appended], int]:
    """Return the first batches that fill a commit, and their size; at least one."""
    batches: list[Appended] = []
    total = 0
    for batch in pending:
        size = HEAD_BYTES + len(batch[0])
        if batches and total + size > bytes_max:
            break
        batches.append(batch)
        total += size
    return batches, total


class Confirming:
    """Confirms the last commit by a lone marker. Lives on the event loop, with one timer at most."""

    def __init__(self, schedule: Callable[[], None]) -> None:
        self._schedule = schedule
        self._timer: asyncio.TimerHandle | None = None
        self._is_quiet = True
        # The log has been quiet since something was written that no marker confirms.
        self._is_due = False

    def begin(self) -> None:
        """Something is written, or stands, unconfirmed: wait until the log has been quiet."""
        self._is_due = self._is_quiet = False
        if self._timer is None:
            self._wait()

    def _wait(self) -> None:
        self._is_quiet = True
        self._timer = asyncio.get_running_loop().call_later(QUIET_MS / 1000, self._ring)

    def _ring(self) -> None:
        self._timer = None
        if not self._is_quiet:
            self._wait()
            return
        self._is_due = True
        self._schedule()

    def next_job(self, tail: Tail, place: MarkerPosition, log_id: int) -> Job | None:
        """Return what writes a lone marker at a place, if it is due."""
        active = tail.active
        if not self._is_due or active.is_confirmed or active.synced_bytes < active.end_bytes:
            return None
        if tail.reserved_bytes:
            self.begin()
            return None
        self._is_due = was_written = False

        def work() -> None:
            nonlocal was_written
            if tail.has_room_for_marker():
                durable = encode_marker(place, durable_bytes=active.end_bytes, log_id=log_id, heads=())
                active.file.write(durable, active.end_bytes)
                was_written = True

        def done() -> None:
            if was_written:
                active.is_confirmed = True
                active.end_bytes += MARKER_BYTES

        return Job(work, done)

    def end(self) -> None:
        self._is_due = False
        if self._timer is not None:
            self._timer.cancel()


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
        runtime.log_event(LOG_ROLL_DEFERRED, file=f"{folder}/{segment_name(old.base_offset)}", size_bytes=old.end_bytes)
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
    runtime.log_event(LOG_ROLLED, file=f"{folder}/{segment_name(old.base_offset)}", next_offset=base_offset)
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


class Floor:
    """Knows how far the floor could rise. Lives on the event loop, with one timer at most."""

    def __init__(
        self, runtime: Runtime, folder: str, found: Recovered, every_ms: int, fail: Callable[[OSError], NoReturn]
    ) -> None:
        self._runtime = runtime
        self._every_s = every_ms / 1_000
        self._folder = folder
        self._log_id = found.manifest.log_id
        self._fail = fail
        self._written = self._synced = found.active.next_offset
        self._timer: asyncio.TimerHandle | None = None
        self._writing: asyncio.Future[None] | None = None
        self._is_held = False

    def rise(self, synced_offset: int) -> None:
        """Everything below an offset is synced: say so within about a second."""
        self._synced = synced_offset
        if self._timer is None and self._writing is None and not self._is_held:
            self._timer = asyncio.get_running_loop().call_later(self._every_s, self._write)

    def _write(self) -> None:
        self._timer = None
        offset = self._synced
        if offset <= self._written:
            return
        self._writing = asyncio.get_running_loop().create_future()

        def work() -> None:
            try:
                manifests.write_floor(self._runtime.disk, self._folder, self._log_id, offset)
            except OSError as error:
                self._fail(error)

        def done() -> None:
            assert self._writing is not None
            self._written = max(self._written, offset)
            self._writing.set_result(None)
            self._writing = None
            if self._synced > self._written:
                self.rise(self._synced)

        self._runtime.workers.submit(work, done)

    async def hold(self) -> None:
        """Return when nothing is being written; nothing will be after that."""
        self._is_held = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._writing is not None:
            await self._writing
