"""Keeps what a partition knows of its producers on the disk, beside its log.

The snapshot is derived: one that is missing, damaged or ahead of the log is made anew
from the whole log. It is written whenever a segment is closed, and when the log is.

    producers      crc u32 · MessagePack (format, offset, producers)
    producers.new  the next one, until it is durable
"""

import asyncio

from penstock.log.disk_log import DiskLog
from penstock.log.record import header as read_header
from penstock.log.writer_queue import off_loop
from penstock.runtime.interface import NO_SPACE, Disk, Runtime
from penstock.streams.batches import APPEND_TIME_ATTRIBUTE
from penstock.streams.producers import Producers, SnapshotDamaged

NAME = "producers"

_READ_BYTES = 4 << 20


async def recall(runtime: Runtime, folder: str, log: DiskLog) -> tuple[Producers, int]:
    """Return what is known of the producers of a log, and the offset of the snapshot it was made from, or -1."""
    data = await off_loop(runtime.workers, lambda: _load(runtime.disk, folder))
    remembered = -1
    producers = Producers()
    if data is not None:
        try:
            remembered, producers = Producers.from_bytes(data)
        except SnapshotDamaged:
            pass
        if not log.start_offset <= remembered <= log.end_offset:
            # From before the records that are left, or ahead of what a sync policy has lost.
            remembered, producers = -1, Producers() if remembered > log.end_offset else producers
    now_ms = runtime.clock.now_ms()
    await _follow(producers, log, max(remembered, log.start_offset), now_ms)
    producers.forget_silent(now_ms)
    return producers, remembered


async def _follow(producers: Producers, log: DiskLog, offset: int, now_ms: int) -> None:
    """Learn from every batch from an offset on.

    When it came is not known: its time may be its producer's, and long past. So all of them were heard of just now.
    """
    while offset < log.end_offset:
        for batch in await log.read(offset, bytes_max=_READ_BYTES):
            header = read_header(batch)
            offset = header.next_offset
            if header.producer_id >= 0 and not header.is_hole:
                appended_at_ms = header.max_timestamp_ms if header.attributes & APPEND_TIME_ATTRIBUTE else -1
                producers.add(header, header.base_offset, appended_at_ms=appended_at_ms, now_ms=now_ms)
        await asyncio.sleep(0)


async def remember(runtime: Runtime, folder: str, snapshot: bytes) -> bool:
    """Replace the snapshot, and say whether there was room for it."""

    def work() -> bool:
        try:
            _save(runtime.disk, folder, snapshot)
        except OSError as error:
            if error.errno not in NO_SPACE:
                runtime.halt(f"{folder}/{NAME}: {error}")
            return False
        return True

    return await off_loop(runtime.workers, work)


def _load(disk: Disk, folder: str) -> bytes | None:
    if not disk.exists(f"{folder}/{NAME}"):
        return None
    file = disk.open(f"{folder}/{NAME}")
    try:
        return file.read(0, file.size())
    finally:
        file.close()


def _save(disk: Disk, folder: str, snapshot: bytes) -> None:
    file = disk.open(f"{folder}/{NAME}.new")
    try:
        file.truncate(0)
        file.write(snapshot, 0)
        file.sync()
    finally:
        file.close()
    disk.rename(f"{folder}/{NAME}.new", f"{folder}/{NAME}")
    disk.sync_folder(folder)
