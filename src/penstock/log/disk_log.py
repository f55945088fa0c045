"""A log on one disk: segments in order, group commit, roll, retain, read.

    event loop                         worker thread
    ──────────                         ─────────────
    append: offsets given, gathered
    end of the turn: commit ─────────▶ (roll) write, fdatasync
    meanwhile: the next one gathers        │
    acknowledge, wake who waits  ◀─────────┘

Rules of this file
------------------
1. There is at most one job of a log in a worker: a commit, or something that
   must not meet one (drop, close). So files have one writer and no locks.
2. A job tells the loop what it did; only the loop changes what callers see.
3. A write or sync that fails stops the process. It is never tried again, and
   nothing is acknowledged after it (decision 0004).

Offsets: `start` ≤ `durable` ≤ `end`. Under the policies `interval` and `os`,
"durable" means written: they say what they may lose (`settings.MAY_LOSE`).
"""

import asyncio
import struct
from bisect import bisect_right, insort
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import NoReturn, TypeVar

from penstock.contract.limits import BATCH_BYTES_MAX
from penstock.log import manifest as manifests
from penstock.log.active_segment import ActiveSegment, Tail, TailReservation
from penstock.log.group_commit import Appended, Commit, Confirming, Floor, gather, roll
from penstock.log.interface import LogClosed, OffsetOutOfRange, Reservation
from penstock.log.manifest import Manifest
from penstock.log.reader import OpenSegment, Reader
from penstock.log.record import HEAD_BYTES, HEADER_BYTES, MARKER_BYTES, MarkerPosition
from penstock.log.recovery import REFUSALS, LogCorrupted, Recovered, recover, remove_segment
from penstock.log.segment import Segment, index_names, segment_name
from penstock.log.settings import LogSettings
from penstock.log.writer_queue import Job, WriterQueue, off_loop
from penstock.runtime.interface import EXIT_FILES_TAKEN, Buffer, FolderLock, Runtime
from penstock.telemetry import LOG_FAILED, LOG_OPENED, LOG_SEGMENT_DROPPED, LOG_TAKEN_AWAY

T = TypeVar("T")

DEFAULTS = LogSettings()

# Last offset delta, base timestamp, max timestamp.
_GLANCE = struct.Struct(">iqq")
_GLANCE_AT = 23


class DiskLog:
    """Satisfies `log.interface.Log`; see there for what the verbs promise."""

    def __init__(
        self, runtime: Runtime, folder: str, settings: LogSettings, lock: FolderLock | None, found: Recovered
    ) -> None:
        self._runtime = runtime
        self._folder = folder
        self._settings = settings
        # None if its owner has locked a folder above.
        self._lock = lock
        # The durable state. Only jobs change it, one after the other: each write must follow the last.
        self._manifest = found.manifest
        self._start_offset = found.manifest.start_offset
        self._closed = found.closed
        self._active = _open_active(found)
        self._tail = Tail(_active_segment(found, self._active), settings, runtime.disk, folder)
        self._reader = Reader(runtime, folder, settings)
        self._end_offset = self._durable_offset = found.active.next_offset
        self._pending: deque[Appended] = deque()
        # When the oldest of them was appended.
        self._pending_since_s = 0.0
        self._waiters = _Waiters()
        self._jobs = WriterQueue(runtime, self._next_commit, self._fail)
        self._confirming = Confirming(self._jobs.schedule)
        self._floor = Floor(runtime, folder, found, settings.floor_interval_ms, self._fail)
        self._is_closing = self._is_closed = self._sync_is_due = False
        self._roll_not_before_bytes = 0
        self.was_clean = found.was_clean
        # When it was last closed in good order. The owner sets it before it closes the log, by a clock it trusts.
        self.closed_at_ms = found.manifest.closed_at_ms
        # Set when a segment has been closed; cleared by the task that waits for it.
        self.rolled = asyncio.Event()
        # Told of each commit when it is durable, with the size of its batches.
        self.advanced: Callable[[int], None] | None = None
        self._roll_wanted: asyncio.Future[None] | None = None

    @classmethod
    async def open(
        cls, runtime: Runtime, folder: str, settings: LogSettings = DEFAULTS, *, takes_lock: bool = True
    ) -> "DiskLog":
        """Recover a log, or create it, and take its folder for this process alone, unless it is taken already.

        Raises `FolderTaken`, `LogCorrupted`, `UnknownVersion` or `UnknownFormat`
        and leaves everything as it was; `OSError` where the system refuses a file. A
        disk that fails stops the process here too.
        """

        def work() -> tuple[FolderLock | None, Recovered]:
            # A folder with a manifest was made durably before that: to make sure costs a sync of the one above.
            if not runtime.disk.exists(f"{folder}/{manifests.NAME}"):
                runtime.disk.make_folder(folder)
            lock = runtime.disk.lock(folder) if takes_lock else None
            try:
                return lock, recover(runtime, folder, settings)
            except BaseException as error:
                if lock is not None:
                    lock.release()
                if isinstance(error, OSError) and error.errno not in REFUSALS:
                    fail(runtime, folder, error)
                raise

        log = cls(runtime, folder, settings, *await off_loop(runtime.workers, work))
        if not log._tail.active.is_confirmed:
            log._confirming.begin()
        runtime.log_event(
            LOG_OPENED, folder=folder, start_offset=log.start_offset, end_offset=log.end_offset, was_clean=log.was_clean
        )
        return log

    @property
    def start_offset(self) -> int:
        return self._start_offset

    @property
    def durable_offset(self) -> int:
        return self._durable_offset

    @property
    def end_offset(self) -> int:
        return self._end_offset

    @property
    def log_id(self) -> int:
        """Chosen at random when the log was created: by it an emptied or foreign disk is known."""
        return self._manifest.log_id

    @property
    def settings(self) -> LogSettings:
        return self._settings

    @property
    def segments(self) -> tuple[Segment, ...]:
        """All segments in order, the active one last."""
        active = self._tail.active
        last = Segment(active.base_offset, self._durable_offset, active.end_bytes, active.index.max_timestamp_ms)
        return (*self._closed, last)

    def reserve(self, size_bytes: int, *, from_spare: bool = False) -> TailReservation:
        self._refuse_if_closing()
        try:
            return self._tail.reserve(size_bytes, from_spare=from_spare)
        except OSError as error:
            self._fail(error)

    def append(self, batch: Buffer, space: Reservation) -> int:
        self._refuse_if_closing()
        assert isinstance(space, TailReservation)
        if not HEADER_BYTES <= len(batch) <= BATCH_BYTES_MAX:
            raise ValueError(f"a batch of {len(batch)} bytes; BATCH_BYTES_MAX is {BATCH_BYTES_MAX}")
        space.take(len(batch))
        base_offset = self._end_offset
        last_delta, _, timestamp_ms = _GLANCE.unpack_from(batch, _GLANCE_AT)
        self._end_offset = base_offset + last_delta + 1
        rest = memoryview(batch)[HEAD_BYTES:]
        if not self._pending:
            self._pending_since_s = self._runtime.seconds()
        self._pending.append((rest, base_offset, self._end_offset, timestamp_ms))
        self._jobs.schedule()
        return base_offset

    async def wait_durable(self, offset: int) -> None:
        if offset <= self._durable_offset:
            return
        if self._is_closed or offset > self._end_offset:
            raise LogClosed(f"offset {offset} of {self._folder} will not become durable")
        await self._waiters.add(offset)

    async def read(self, offset: int, *, bytes_max: int) -> list[memoryview]:
        if not self.start_offset <= offset <= self._durable_offset:
            known = f"from {self.start_offset} to {self._durable_offset - 1}"
            raise OffsetOutOfRange(f"offset {offset} of {self._folder}: there are offsets {known}")
        if offset == self._durable_offset:
            return []
        return await self._in_segment(offset, lambda source: self._reader.read(source, offset, bytes_max))

    async def fronts(self, offset: int, *, most: int, front_bytes: int) -> list[bytes]:
        """Return the first bytes of up to ``most`` batches, from the one holding ``offset`` on; nothing else is read.

        For callers that only count: no CRC is checked. They are of
        one segment, so there may be fewer; an empty list is the durable end.
        """
        if not self.start_offset <= offset <= self._durable_offset:
            raise OffsetOutOfRange(f"offset {offset} of {self._folder} is not there")
        if offset == self._durable_offset:
            return []
        return await self._in_segment(
            offset, lambda source: self._reader.fronts(source, offset, most=most, front_bytes=front_bytes)
        )

    async def offset_at(self, timestamp_ms: int) -> int:
        """Return the offset of the first batch with a timestamp this late, or the durable end."""
        for segment in self.segments:
            if segment.max_timestamp_ms >= timestamp_ms and segment.next_offset > segment.base_offset:
                return await self._in_segment(
                    segment.base_offset, lambda source: self._reader.offset_at(source, timestamp_ms)
                )
        return self._durable_offset

    async def _in_segment(self, offset: int, work: Callable[[OpenSegment], Awaitable[T]]) -> T:
        """Do something with the segment that holds an offset, while it is open."""
        while True:
            source = await self._source(offset)
            try:
                return await work(source)
            except FileNotFoundError as error:
                # It was not kept open (`runtime/open_files.py`), and its name leads to no file, or to another.
                if source is self._active:
                    self._fail(error)
                self._reader.forget(source.base_offset)
            finally:
                source.release()

    async def _source(self, offset: int) -> OpenSegment:
        if offset >= self._active.base_offset:
            self._active.users += 1
            return self._active
        if offset < self._start_offset:
            raise OffsetOutOfRange(f"offset {offset} of {self._folder} has just been dropped")
        segment = self._closed[bisect_right(self._closed, offset, key=lambda each: each.base_offset) - 1]
        try:
            return await self._reader.open_closed(segment)
        except FileNotFoundError as error:
            if segment not in self._closed:
                # It was dropped, or another file has taken its place.
                return await self._source(offset)
            raise LogCorrupted(f"{self._folder}/{segment_name(segment.base_offset)}", "it is gone") from error

    async def drop_before(self, offset: int) -> None:
        kept = next((i for i, segment in enumerate(self._closed) if segment.next_offset > offset), len(self._closed))
        if kept == 0:
            return
        dropped, self._closed = self._closed[:kept], self._closed[kept:]
        self._start_offset = dropped[-1].next_offset
        for segment in dropped:
            self._reader.forget(segment.base_offset)

        def work() -> None:
            # First the manifest: a crash must not make a dropped segment look like a lost one.
            self._save(start_offset=dropped[-1].next_offset)
            for segment in dropped:
                remove_segment(self._runtime.disk, self._folder, segment.base_offset)
                self._runtime.log_event(LOG_SEGMENT_DROPPED, file=f"{self._folder}/{segment_name(segment.base_offset)}")

        await self._jobs.alone(work)

    async def close(self) -> None:
        """Write what is waiting, then mark the stop as clean and let the folder go."""
        if self._is_closing:
            return
        self._is_closing = True
        self._end_roll()
        await self.wait_durable(self._end_offset)
        await self._floor.hold()
        await self._jobs.alone(self._close_now)
        self._is_closed = True
        self._confirming.end()
        self._reader.close()
        self._active.retire()
        if self._lock is not None:
            self._lock.release()

    def _close_now(self) -> None:
        self._tail.give_back()
        self._tail.active.file.sync()
        self._save(clean_end_offset=self._durable_offset)

    async def watch(self) -> None:
        """Stop the process if what it writes to is not what others would find; to be called about every second.

        Among the jobs, so that it never meets a roll or a drop.
        """
        if not self._is_closing:
            await self._jobs.alone(self._check_in_place)

    def _check_in_place(self) -> None:
        if self._is_closed:
            return
        active = self._tail.active
        if self._lock is not None and not self._lock.is_in_place():
            taken = self._folder
        elif not active.file.is_in_place():
            taken = f"{self._folder}/{segment_name(active.base_offset)}"
        else:
            return
        _stop_without(self._runtime, taken)

    def _refuse_if_closing(self) -> None:
        if self._is_closing:
            raise LogClosed(f"{self._folder} is closed")

    def _save(self, *, start_offset: int | None = None, clean_end_offset: int | None = None) -> None:
        """Write the next manifest. Runs in a job."""
        state = replace(self._next_manifest(), clean_end_offset=clean_end_offset, closed_at_ms=self.closed_at_ms)
        if start_offset is not None:
            state = replace(state, start_offset=start_offset)
        manifests.write(self._runtime.disk, self._folder, state)
        self._manifest = state

    def _next_manifest(self) -> Manifest:
        return replace(self._manifest, sequence=self._manifest.sequence + 1)

    def resize_segments(self, *, bytes_max: int, age_ms_max: int) -> None:
        """Close segments at another size and age from now on."""
        self._settings = replace(self._settings, segment_bytes_max=bytes_max, segment_age_ms_max=age_ms_max)

    async def roll(self) -> None:
        """Close the active segment now, unless it is empty or the disk has no room for another.

        So that what is in it can be dropped or replaced, although nothing more comes.
        """
        self._refuse_if_closing()
        await self.wait_durable(self._end_offset)
        if self._tail.active.begun_at_ms is None:
            return
        if self._roll_wanted is None:
            self._roll_wanted = asyncio.get_running_loop().create_future()
        self._jobs.schedule()
        await asyncio.shield(self._roll_wanted)

    async def replace_closed(self, old: Sequence[Segment], new: Segment, file: str) -> None:
        """Put a file in the place of closed segments that follow each other, and whose offsets it uses up alike.

        The file is in the folder of the log, and durable. Reads that have begun go on
        with what they have. After a crash the old ones are there, or the new one.
        """
        first = self._closed.index(old[0])
        assert self._closed[first : first + len(old)] == list(old), "the segments are no longer there"
        assert (new.base_offset, new.next_offset) == (old[0].base_offset, old[-1].next_offset)

        def done(_: None) -> None:
            self._closed[first : first + len(old)] = [new]
            for segment in old:
                self._reader.forget(segment.base_offset)

        await self._jobs.alone(lambda: self._put_in_place(new.base_offset, file), then=done)
        # Only now: until the new one was known, readers were sent to these.
        await self._jobs.alone(lambda: self._remove_segments(old[1:]))

    def _put_in_place(self, base_offset: int, file: str) -> None:
        """Give a file, whole and durable, the name of the first segment that it replaces.

        From here on the file counts. The segments after it, whose offsets it uses up too, are left over: if power is
        lost before they are removed, recovery removes them.
        """
        disk, folder = self._runtime.disk, self._folder
        for name in index_names(base_offset):
            if disk.exists(f"{folder}/{name}"):
                disk.remove(f"{folder}/{name}")
        disk.rename(f"{folder}/{file}", f"{folder}/{segment_name(base_offset)}")
        disk.sync_folder(folder)

    def _remove_segments(self, segments: Sequence[Segment]) -> None:
        for segment in segments:
            remove_segment(self._runtime.disk, self._folder, segment.base_offset)

    def _next_commit(self) -> Job | None:
        if not self._pending:
            return self._job_of_a_quiet_log()
        must_roll = self._must_roll(HEAD_BYTES + len(self._pending[0][0]))
        batches, size = gather(self._pending, self._commit_bytes_max(is_rolling=must_roll))
        for _ in batches:
            self._pending.popleft()
        if self._pending:
            # They did not fit: they are for the next one.
            self._jobs.schedule()
        commit = Commit(batches, size, self._tail.active, began_s=self._pending_since_s)
        if must_roll:
            self._tail.begin_roll()

        # To roll, or to take more space, means other work of the disk, which nothing tells the time of.
        is_small = size <= self._settings.commit_in_loop_bytes_max and not must_roll and self._tail.is_ahead()

        def work() -> None:
            if must_roll:
                self._roll(commit, batches[0][1])
            self._write(commit)
            if commit.rolled_from is None and not is_small:
                self._tail.allocate_ahead()

        return Job(work, lambda: self._committed(commit), is_small)

    def _job_of_a_quiet_log(self) -> Job | None:
        if self._roll_wanted is not None:
            return self._lone_roll()
        # A lone marker: the log has been quiet since the last commit.
        place = MarkerPosition(self._durable_offset - 1, self._tail.active.end_bytes)
        return None if self._is_closing else self._confirming.next_job(self._tail, place, self._manifest.log_id)

    def _lone_roll(self) -> Job:
        """Roll without a commit: everything is durable, and nothing waits to be."""
        commit = Commit([], 0, self._tail.active)
        self._tail.begin_roll()
        base_offset = self._end_offset
        return Job(lambda: self._roll(commit, base_offset), lambda: self._rolled(commit))

    def _roll(self, commit: Commit, base_offset: int) -> None:
        state = replace(self._next_manifest(), active_offset=base_offset)
        if roll(self._runtime, self._folder, self._settings, self._tail, commit, state):
            self._manifest = state

    def _commit_bytes_max(self, *, is_rolling: bool) -> int:
        settings = self._settings
        if not settings.rolls_before_full:
            return settings.commit_bytes_max
        used = 0 if is_rolling else self._tail.active.end_bytes
        return min(settings.commit_bytes_max, max(0, settings.segment_bytes_max - used - MARKER_BYTES))

    def _must_roll(self, next_bytes: int) -> bool:
        active, settings = self._tail.active, self._settings
        if active.begun_at_ms is None or active.end_bytes < self._roll_not_before_bytes:
            return False
        age_ms = self._runtime.clock.now_ms() - active.begun_at_ms
        # What would be in the segment, of which there is to be less than one byte more than it may have.
        end_bytes = active.end_bytes + (next_bytes + MARKER_BYTES - 1 if settings.rolls_before_full else 0)
        return (
            self._roll_wanted is not None
            or end_bytes >= settings.segment_bytes_max
            or age_ms >= settings.segment_age_ms_max
        )

    def _write(self, commit: Commit) -> None:
        """Runs in a worker: the one place where batches reach the disk."""
        data = commit.assemble(self._manifest.log_id)
        active = commit.active
        active.file.write(data, active.end_bytes)
        commit.synced_bytes = active.synced_bytes
        if self._settings.sync == "batch":
            began_s = self._runtime.seconds()
            active.file.sync()
            commit.sync_s = self._runtime.seconds() - began_s
            commit.synced_bytes = commit.end_bytes

    def _committed(self, commit: Commit) -> None:
        if self._tail.rolling_to_bytes is not None:
            self._rolled(commit)
        active = commit.active
        active.end_bytes = self._active.end_bytes = commit.end_bytes
        active.synced_bytes = commit.synced_bytes
        active.is_confirmed = False
        if active.begun_at_ms is None:
            active.begun_at_ms = self._runtime.clock.now_ms()
        commit.fill(active.index)
        self._tail.pending_bytes -= commit.batch_bytes
        self._durable_offset = commit.next_offset
        self._waiters.wake(self._durable_offset)
        if self.advanced is not None:
            self.advanced(commit.batch_bytes)
        if self._settings.sync == "interval":
            self._sync_later()
        else:
            self._confirming.begin()
        if self._settings.sync == "batch":
            self._floor.rise(self._durable_offset)
            self._runtime.timings.fsync.add(commit.sync_s)
        self._runtime.timings.commit.add(self._runtime.seconds() - commit.began_s)

    def _rolled(self, commit: Commit) -> None:
        """Go on in the new segment, or, if there was no space for one, in the old."""
        self._tail.rolling_to_bytes = None
        self._end_roll()
        old = commit.rolled_from
        if old is None:
            self._roll_not_before_bytes = self._tail.active.end_bytes + max(self._settings.allocate_bytes, 1)
            return
        next_offset = commit.active.base_offset
        self._closed.append(Segment(old.base_offset, next_offset, old.end_bytes, old.index.max_timestamp_ms))
        self._active.is_active = False
        self._reader.keep(self._active)
        self._active = OpenSegment(next_offset, commit.active.file, commit.active.index, 0, is_active=True)
        self._tail.active = commit.active
        self._roll_not_before_bytes = 0
        self.rolled.set()

    def _end_roll(self) -> None:
        if self._roll_wanted is not None and not self._roll_wanted.done():
            self._roll_wanted.set_result(None)
        self._roll_wanted = None

    def _sync_later(self) -> None:
        if not self._sync_is_due:
            self._sync_is_due = True
            asyncio.get_running_loop().call_later(self._settings.sync_interval_ms / 1000, self._sync_soon)

    def _sync_soon(self) -> None:
        active, end_bytes, end_offset = self._tail.active, self._tail.active.end_bytes, self._durable_offset

        def done() -> None:
            self._sync_is_due = False
            self._floor.rise(end_offset)
            active.synced_bytes = max(active.synced_bytes, end_bytes)
            self._confirming.begin()

        if not self._is_closing:
            self._jobs.add(Job(active.file.sync, done))

    def _fail(self, error: OSError) -> NoReturn:
        self._is_closing = self._is_closed = True
        fail(self._runtime, self._folder, error)


def _stop_without(runtime: Runtime, taken: str) -> NoReturn:
    runtime.log_event(LOG_TAKEN_AWAY, file=taken)
    runtime.halt(f"{taken} was removed, renamed or replaced while it was in use", EXIT_FILES_TAKEN)


def fail(runtime: Runtime, folder: str, error: OSError) -> NoReturn:
    """Stop the process: what is on the disk is not known any more."""
    if isinstance(error, FileNotFoundError):
        # A write may notice it before the watch does.
        _stop_without(runtime, folder)
    runtime.log_event(LOG_FAILED, folder=folder, error=str(error))
    runtime.halt(f"{folder}: {error}")


def _open_active(found: Recovered) -> OpenSegment:
    return OpenSegment(
        found.manifest.active_offset, found.active_file, found.active.index, found.active.end_position, is_active=True
    )


def _active_segment(found: Recovered, opened: OpenSegment) -> ActiveSegment:
    end = found.active.end_position
    return ActiveSegment(
        base_offset=opened.base_offset,
        file=opened.file,
        index=opened.index,
        end_bytes=end,
        synced_bytes=end,
        allocated_bytes=end,
        begun_at_ms=found.active.first_timestamp_ms,
        is_confirmed=found.active.is_confirmed,
    )


class _Waiters:
    """Callers who wait until the log is durable up to an offset, in the order of their offsets."""

    def __init__(self) -> None:
        # (offset, order of arrival, future): nearly everyone waits for the newest offset, so appending keeps the order.
        self._waiting: deque[tuple[int, int, asyncio.Future[None]]] = deque()
        self._arrivals = 0

    def add(self, offset: int) -> "asyncio.Future[None]":
        """Return a future that ends when the log is durable up to ``offset``."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._arrivals += 1
        waiter = (offset, self._arrivals, future)
        if self._waiting and offset < self._waiting[-1][0]:
            insort(self._waiting, waiter)
        else:
            self._waiting.append(waiter)
        return future

    def wake(self, durable_offset: int) -> None:
        """Let everyone go on who waited for no more than this."""
        while self._waiting and self._waiting[0][0] <= durable_offset:
            _, _, future = self._waiting.popleft()
            if not future.done():
                future.set_result(None)
