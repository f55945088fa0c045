"""A process that appends to a log and tells its standard output what was acknowledged.

    python -m tests.acceptance.writer FOLDER --run 3

It is the witness's only source, so each line is one `write` to the pipe, made
after the fact it tells, and whatever stands in the pipe when the process dies
was true:

    open START END CLEAN    the log was opened
    drop OFFSET             everything below may be dropped from now on
    ack OFFSET NAME AT_NS   this record is durable, and was so at this time of the monotonic clock
    closed END              the log was closed in good order

A record's name, ``run/task/sequence``, is its key, and its value follows from
its name: a reader can tell a record that was never written. Each task has one batch
on its way at a time and numbers its records without a gap.
"""

import argparse
import asyncio
import os
import random
import resource
import time
from collections.abc import Sequence
from pathlib import Path

from penstock.log import record
from penstock.log.disk_log import DiskLog
from penstock.log.interface import LogBusy
from penstock.log.settings import LogSettings, SyncPolicy
from penstock.runtime.system import ThreadWorkers, halt, system_runtime

BATCH_RECORDS_MAX = 3
# A writer that is not stopped ends by itself.
BATCHES_MAX = 50_000


def small(sync: SyncPolicy = "batch", segment_bytes_max: int = 16_384) -> LogSettings:
    """Settings under which a second of work sees many commits and rolls."""
    return LogSettings(
        sync=sync,
        sync_interval_ms=20,
        segment_bytes_max=segment_bytes_max,
        commit_bytes_max=8_192,
        allocate_bytes=32_768,
        spare_bytes=16_384,
        index_every_bytes=1_024,
    )


def body_of(name: str) -> bytes:
    """Return the value of the record with this name."""
    dice = random.Random(name)
    return dice.randbytes(dice.choice([0, 20, 150, 600]))


def tell(*words: object) -> None:
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


class Task:
    """One of several that append at the same time."""

    def __init__(self, log: DiskLog, name: str, drops: float) -> None:
        self._log = log
        self._name = name
        self._drops = drops
        self._dice = random.Random(f"task/{name}")
        self._sequence = 0

    async def append_all(self, batches: int) -> None:
        for _ in range(batches):
            names = [f"{self._name}/{self._sequence + i}" for i in range(self._dice.randint(1, BATCH_RECORDS_MAX))]
            self._sequence += len(names)
            offset = await self._append(names)
            at_ns = time.monotonic_ns()
            lines = [f"ack {offset + i} {name} {at_ns}" for i, name in enumerate(names)]
            tell("\n".join(lines))
            if self._dice.random() < self._drops:
                await self._drop()

    async def _append(self, names: Sequence[str]) -> int:
        batch = record.encode([(name.encode(), body_of(name)) for name in names], at_ms=0)
        while True:
            try:
                space = self._log.reserve(len(batch))
                break
            except LogBusy:
                await self._log.wait_durable(self._log.end_offset)
        with space:
            offset = self._log.append(batch, space)
        await self._log.wait_durable(offset + len(names))
        return offset

    async def _drop(self) -> None:
        offset = self._dice.randint(self._log.start_offset, self._log.durable_offset)
        tell("drop", offset)
        await self._log.drop_before(offset)


async def write(options: argparse.Namespace) -> None:
    folder: Path = options.folder
    settings = small(options.sync, options.segment_bytes_max)
    async with ThreadWorkers(2, halt) as workers:
        log = await DiskLog.open(system_runtime(folder.parent, workers), folder.name, settings)
        tell("open", log.start_offset, log.end_offset, log.was_clean)
        if options.file_bytes_max:
            resource.setrlimit(resource.RLIMIT_FSIZE, (options.file_bytes_max, options.file_bytes_max))
        async with asyncio.TaskGroup() as tasks:
            for number in range(options.tasks):
                task = Task(log, f"{options.run}/{number}", options.drops)
                tasks.create_task(task.append_all(options.batches))
        await log.close()
        tell("closed", log.end_offset)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="writer")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--run", type=int, required=True, help="first part of each record's name, new for each process")
    parser.add_argument("--sync", default="batch")
    parser.add_argument("--tasks", type=int, default=4)
    parser.add_argument("--batches", type=int, default=BATCHES_MAX, help="each task appends so many, then it closes")
    parser.add_argument("--drops", type=float, default=0.0, help="how likely a drop is after each batch")
    parser.add_argument("--segment-bytes-max", type=int, default=16_384)
    parser.add_argument("--file-bytes-max", type=int, default=0, help="set RLIMIT_FSIZE after opening")
    return parser.parse_args()


if __name__ == "__main__":
    asyncio.run(write(_options()))
