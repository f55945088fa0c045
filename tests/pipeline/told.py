"""Histories of a few rows, written by the real log, and what a reader has to find in them."""

import asyncio
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from penstock.contract.history_columns import HISTORY, BodyState
from penstock.contract.messages import PRIORITIES, MessageOutcome
from penstock.core.queue.settlements import Settlement
from penstock.log import record
from penstock.log.disk_log import DiskLog
from penstock.log.settings import LogSettings
from penstock.runtime.system import ThreadWorkers, halt, system_runtime
from penstock.store.embedded.history_format import Bodies, encode
from penstock.store.embedded.history_writer import LOG_SETTINGS

NAMES = {1: "orders", 2: "mail", 3: "orders.dead"}
START_MS = 1_772_366_400_000
# Every frame has a segment of its own.
SHORT = replace(LOG_SETTINGS, segment_bytes_max=1)

PLAIN = Settlement(
    queue=1,
    key=7 << 3 | 2,
    count=3,
    home=1,
    lane=2,
    number=7,
    tier=2,
    group=b"",
    sent_at_ms=START_MS,
    first_leased_ms=START_MS + 10,
    last_leased_ms=START_MS + 10,
    settled_at_ms=START_MS + 100,
    deliveries=1,
    ending=MessageOutcome.ACKED,
    error="",
)
# A frame with everything in it: groups, errors, a message that was moved, one that was never leased.
MIXED = (
    PLAIN,
    PLAIN._replace(
        queue=2, home=2, key=4, count=1, number=0, lane=4, tier=3, group=b"anna", ending=MessageOutcome.EXPIRED
    ),
    PLAIN._replace(queue=2, home=2, key=12, count=2, number=1, lane=4, tier=4, group=b"\xff!", deliveries=2),
    PLAIN._replace(
        queue=3,
        key=1,
        count=1,
        number=99,
        lane=0,
        tier=1,
        deliveries=9,
        ending=MessageOutcome.DELETED,
        error="no «stock»",
    ),
    PLAIN._replace(key=80, count=1, number=10, lane=0, tier=0, first_leased_ms=0, last_leased_ms=0, deliveries=0),
)


def run(settled_at_ms: int, *, queue: int = 1, count: int = 3, number: int = 0) -> Settlement:
    """Return messages that were acked at this time, counted from the start."""
    at_ms = START_MS + settled_at_ms
    return PLAIN._replace(queue=queue, home=queue, key=number << 3 | 2, count=count, number=number, settled_at_ms=at_ms)


def write_frames(
    folder: Path, frames: Sequence[Sequence[Settlement]], *, bodies: Bodies | None = None, name: str = "history"
) -> None:
    """Write frames and close the log in good order."""
    asyncio.run(_write(folder, frames, name, LOG_SETTINGS, bodies))


def write_segments(folder: Path, frames: Sequence[Sequence[Settlement]], *, name: str = "history") -> None:
    """Write frames, each into a segment of its own."""
    asyncio.run(_write(folder, frames, name, SHORT, None))


async def _write(
    folder: Path, frames: Sequence[Sequence[Settlement]], name: str, settings: LogSettings, bodies: Bodies | None
) -> None:
    async with ThreadWorkers(1, halt) as workers:
        log = await DiskLog.open(system_runtime(folder, workers), name, settings)
        for settlements in frames:
            await append(log, settlements, bodies)
        await log.close()


async def append(log: DiskLog, settlements: Sequence[Settlement], bodies: Bodies | None = None) -> None:
    """Write one frame, as one commit."""
    frame = encode(settlements, NAMES, covered=0, within=0, bodies=bodies)
    at_ms = max((each.settled_at_ms for each in settlements), default=0)
    batch = record.encode([frame], at_ms=at_ms)
    with log.reserve(len(batch)) as space:
        log.append(batch, space)
    await log.wait_durable(log.end_offset)


def kept(bodies: Sequence[bytes], attributes: Sequence[bytes], states: Sequence[BodyState]) -> Bodies:
    return Bodies(array("B", states), list(bodies), list(attributes))


def rows_of(frames: Sequence[Sequence[Settlement]], *, shard: int = 0) -> list[dict[str, Any]]:
    """Return what there is to read of frames without bodies, row by row."""
    rows = []
    for frame, settlements in enumerate(frames):
        row = 0
        for each in settlements:
            for step in range(each.count):
                rows.append(_row(each, step, NAMES) | {"shard": shard, "offset": frame << 17 | row})
                row += 1
    return rows


def _row(each: Settlement, step: int, names: Mapping[int, str]) -> dict[str, Any]:
    assert isinstance(each.sent_at_ms, int)
    values = {
        "queue": names[each.queue],
        "queue_id": each.queue,
        "first_queue": each.home,
        "sent_tier": each.lane,
        "number": each.number + step,
        "key": each.key + step * 8,
        "tier": each.tier,
        "priority": PRIORITIES[each.tier],
        "sent_at": at(each.sent_at_ms),
        "first_received_at": at(each.first_leased_ms),
        "last_received_at": at(each.last_leased_ms),
        "settled_at": at(each.settled_at_ms),
        "delivery_count": each.deliveries,
        "outcome": each.ending.name.lower(),
        "group": each.group.decode(errors="replace") or None,
        "error": each.error or None,
        "data": None,
        "attributes": None,
    }
    return {column.name: values.get(column.name) for column in HISTORY}


def at(at_ms: int) -> datetime | None:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=at_ms) if at_ms else None
