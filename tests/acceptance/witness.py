"""Remembers what writers were told, and compares a log with it.

What must hold whenever a log is opened
---------------------------------------
1. Each record that was acknowledged is there, at its offset, unless it was
   dropped on purpose.
2. Each record that is there was written by a writer: its value follows from its
   name, no name occurs twice, and a task's records are in order without a gap.
3. Of what was not acknowledged there is at most the one batch that each task
   had on its way.
"""

from collections import defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path

from penstock.log import record
from penstock.log.disk_log import DiskLog
from penstock.log.settings import LogSettings
from penstock.runtime.system import ThreadWorkers, halt, system_runtime
from penstock.telemetry import LogEvent
from tests.acceptance.writer import BATCH_RECORDS_MAX, body_of, small


@dataclass
class Opened:
    """What the log said when it was opened to be checked."""

    start_offset: int
    end_offset: int
    was_clean: bool
    log_events: list[LogEvent]


@dataclass
class Witness:
    # Name by offset: what may never be lost or change.
    acknowledged: dict[int, str] = field(default_factory=dict)
    # When each was acknowledged in the last run.
    acknowledged_at_ns: dict[int, int] = field(default_factory=dict)
    # Acknowledged after the power had gone, which no real machine can do: there or not, but nothing else there.
    uncertain: dict[int, str] = field(default_factory=dict)
    # The log may begin anywhere up to here.
    dropped_before: int = 0
    runs: int = 0
    checked_records: int = 0
    lost_records: int = 0

    def next_run(self) -> int:
        self.runs += 1
        return self.runs

    def hear(self, line: str) -> None:
        match line.split():
            case ["open", _, end_offset, _]:
                self._settle(int(end_offset))
            case ["ack", offset, name, at_ns]:
                assert int(offset) not in self.acknowledged, f"offset {offset} was given twice"
                self.acknowledged[int(offset)] = name
                self.acknowledged_at_ns[int(offset)] = int(at_ns)
            case ["drop", offset]:
                self.dropped_before = max(self.dropped_before, int(offset))

    def power_was_cut(self, at_ns: int) -> None:
        """No longer insist on what was acknowledged since.

        A file system that is being shut down may let an fsync that is under way
        succeed for nothing. A machine without power would not have answered.
        """
        since = [offset for offset, told_at_ns in self.acknowledged_at_ns.items() if told_at_ns >= at_ns]
        self.uncertain.update((offset, self.acknowledged.pop(offset)) for offset in since)

    def _settle(self, end_offset: int) -> None:
        """A recovery has decided: what it kept is durable from now on, and may be told to anyone."""
        self.acknowledged.update((offset, name) for offset, name in self.uncertain.items() if offset < end_offset)
        self.uncertain.clear()
        self.acknowledged_at_ns.clear()

    async def check(self, folder: Path, *, may_lose: bool = False) -> Opened:
        """Open the log, compare all of it, and close it.

        With ``may_lose`` the log may end anywhere, as after a power cut under a
        policy that says so; what it has must still be right.
        """

        async def compare(log: DiskLog) -> None:
            assert log.start_offset <= self.dropped_before, "more was dropped than was asked for"
            last = max(self.acknowledged, default=-1)
            assert may_lose or log.end_offset > last, (
                f"offset {last} was acknowledged; the log ends at {log.end_offset}"
            )
            self._compare(await names(log))
            self._settle(log.end_offset)
            self._forget_beyond(log.end_offset)

        return await visit(folder, compare)

    def _compare(self, found: dict[int, str]) -> None:
        told = self.acknowledged | self.uncertain
        expected = {offset: name for offset, name in told.items() if offset in found}
        there = {offset: found[offset] for offset in expected}
        assert there == expected, "a record is not the one that was acknowledged at its offset"
        _check_tasks(list(found.values()))
        waiting = defaultdict[str, int](int)
        for offset, name in found.items():
            waiting[_task(name)] += offset not in expected
        assert all(count <= BATCH_RECORDS_MAX for count in waiting.values()), "more records than were ever on their way"
        self.acknowledged.update(found)
        self.checked_records += len(found)

    def _forget_beyond(self, end_offset: int) -> None:
        lost = [offset for offset in self.acknowledged if offset >= end_offset]
        self.lost_records += len(lost)
        for offset in lost:
            del self.acknowledged[offset]


async def visit(
    folder: Path, look: Callable[[DiskLog], Awaitable[None]], settings: LogSettings | None = None
) -> Opened:
    """Open a log in this process, look at it, and close it."""
    log_events: list[LogEvent] = []

    def log_event(event: LogEvent, /, **fields: object) -> None:
        log_events.append(event)

    async with ThreadWorkers(1, halt) as workers:
        runtime = replace(system_runtime(folder.parent, workers), log_event=log_event)
        log = await DiskLog.open(runtime, folder.name, settings or small())
        opened = Opened(log.start_offset, log.end_offset, log.was_clean, log_events)
        try:
            await look(log)
        finally:
            await log.close()
    return opened


async def names(log: DiskLog) -> dict[int, str]:
    """Read the whole log and return the name at each offset; each value must follow from its name."""
    found: dict[int, str] = {}
    offset = log.start_offset
    while offset < log.durable_offset:
        for batch in await log.read(offset, bytes_max=4_096):
            assert record.header(batch).base_offset == offset, "offsets do not follow one another"
            for entry in record.records(batch):
                assert entry.key is not None
                assert entry.value is not None
                name = bytes(entry.key).decode()
                assert bytes(entry.value) == body_of(name), f"the value of {name} is not what was written"
                found[offset] = name
                offset += 1
    assert offset == log.durable_offset
    return found


def _check_tasks(found: list[str]) -> None:
    """Each task's records come in order, each once. The first may be any, as the ones before it may be dropped."""
    sequences = defaultdict[str, list[int]](list)
    for name in found:
        sequences[_task(name)].append(int(name.rpartition("/")[2]))
    for task, numbers in sequences.items():
        for before, after in pairwise(numbers):
            assert after == before + 1, f"task {task}: record {after} follows {before}"


def _task(name: str) -> str:
    return name.rpartition("/")[0]
