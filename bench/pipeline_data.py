"""A history as a store writes it, made quickly: for the benchmarks of the pipeline, and for its larger tests.

    write_history(folder, 1_000_000, queues=("orders", "mail", "thumbnails"), seed=7)

makes `<folder>/history`, which a reader of data folders takes for that of a store that
was closed in good order, and a server opens. The rows are made up, but shaped as those
of a busy week: days and nights, five tiers with lognormal waits and handling times,
batches that are acked as one, groups in the second queue, retries, burials with one of
twenty errors, and an hour in which one of them was the cause of nearly all.

The same arguments give the same rows. Nothing loops over messages except for bodies.
"""

import asyncio
from array import array
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from penstock.contract.history_columns import BodyState
from penstock.contract.messages import MessageOutcome
from penstock.core.queue.settlements import Settlement
from penstock.log import record
from penstock.log.disk_log import DiskLog
from penstock.runtime.system import ThreadWorkers, halt, system_runtime
from penstock.store.embedded.history_format import Bodies, encode, part
from penstock.store.embedded.history_writer import LOG_SETTINGS

QUEUES = ("orders", "mail", "thumbnails")
# 1 March 2026, midnight.
END_MS = 1_772_323_200_000
DAY_MS = 24 * 3_600_000
ROWS_PER_FRAME = 8_192
DELIVERIES_MAX = 5

ERRORS = (
    "ConnectionError: [Errno 111] Connection refused",
    "TimeoutError: the payment provider did not answer within 30 s",
    "KeyError: 'customer_id'",
    "ValueError: invalid literal for int() with base 10: 'n/a'",
    "HTTPError: 503 Server Error: Service Unavailable for url: https://api.example.com/v1/charge",
    "HTTPError: 429 Client Error: Too Many Requests for url: https://api.example.com/v1/mail",
    "psycopg.errors.DeadlockDetected: deadlock detected",
    "psycopg.OperationalError: server closed the connection unexpectedly",
    "json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)",
    "FileNotFoundError: [Errno 2] No such file or directory: '/data/in/4711.png'",
    "PIL.UnidentifiedImageError: cannot identify image file",
    "MemoryError",
    "smtplib.SMTPRecipientsRefused: 550 no such user here",
    "ssl.SSLCertVerificationError: certificate has expired",
    "AttributeError: 'NoneType' object has no attribute 'lower'",
    "ZeroDivisionError: division by zero",
    "PermissionError: [Errno 13] Permission denied: '/data/out'",
    "UnicodeDecodeError: 'utf-8' codec can't decode byte 0xff in position 0",
    "AssertionError: the order is already paid",
    "lease lapsed",
)
# Of the hour in which the payment provider was down.
OUTAGE_ERROR = 1


def write_history(
    folder: Path,
    rows: int,
    *,
    queues: Sequence[str] = QUEUES,
    seed: int = 0,
    with_bodies: bool = False,
    end_ms: int = END_MS,
    days: float = 5,
    rows_per_frame: int = ROWS_PER_FRAME,
) -> None:
    """Write so many settled messages to `<folder>/history`, the last of them settled before ``end_ms``.

    A server keeps its history for seven days: who lets one open the folder gives the
    present as ``end_ms``. Queues are numbered from 1 on.
    """
    made = _settlements(np.random.default_rng(seed), rows, len(queues), end_ms, days)
    names = dict(enumerate(queues, start=1))
    asyncio.run(_write(folder, _frames(made, rows_per_frame), names, with_bodies))


async def _write(folder: Path, frames: Iterator[list[Settlement]], names: Mapping[int, str], with_bodies: bool) -> None:
    async with ThreadWorkers(1, halt) as workers:
        log = await DiskLog.open(system_runtime(folder, workers), "history", LOG_SETTINGS)
        for at, settlements in enumerate(frames):
            bodies = _bodies(settlements) if with_bodies else None
            # Nothing is covered: the journal beside it is empty, and a server that opens it must not wonder.
            frame = encode(settlements, names, covered=0, within=0, bodies=bodies)
            batch = record.encode([frame], at_ms=max(each.settled_at_ms for each in settlements))
            with log.reserve(len(batch)) as space:
                log.append(batch, space)
            if at % 8 == 7:
                await log.wait_durable(log.end_offset)
        await log.close()


def _frames(settlements: list[Settlement], rows_per_frame: int) -> Iterator[list[Settlement]]:
    frame: list[Settlement] = []
    room = rows_per_frame
    for whole in settlements:
        left = whole
        while left.count > room:
            yield [*frame, part(left, 0, room)]
            left, frame, room = part(left, room, left.count - room), [], rows_per_frame
        frame.append(left)
        room -= left.count
        if not room:
            yield frame
            frame, room = [], rows_per_frame
    if frame:
        yield frame


def _settlements(dice: np.random.Generator, rows: int, queues: int, end_ms: int, days: float) -> list[Settlement]:
    """Return settlements of so many messages in all, in the order they were settled."""
    queue, lane, count = _kinds(dice, rows, queues)
    size = len(count)
    sent = _sent(dice, size, end_ms, days)
    is_failed, is_buried, is_expired = _fates(dice, sent, count, end_ms - int(days * DAY_MS))
    code = np.where(is_failed, _errors(dice, sent, end_ms - int(days * DAY_MS)), -1)
    first = sent + np.minimum(dice.lognormal(4.0 + lane, 1.2, size), 3_600_000).astype(np.int64)
    deliveries = np.where(is_failed, dice.integers(2, DELIVERIES_MAX, size), 1)
    deliveries = np.where(is_buried, DELIVERIES_MAX, deliveries)
    last = first + np.where(is_failed, (1_000 * 2.0**deliveries * dice.random(size)).astype(np.int64), 0)
    settled = last + np.minimum(dice.lognormal(5.0 + queue / 2, 0.9, size), 600_000).astype(np.int64)
    settled = np.where(is_expired, sent + 3_600_000, settled)
    first, last, deliveries = (np.where(is_expired, 0, column) for column in (first, last, deliveries))
    ending = np.where(
        is_buried, MessageOutcome.BURIED, np.where(is_expired, MessageOutcome.EXPIRED, MessageOutcome.ACKED)
    )
    number = _numbers(queue, lane, count)
    columns: list[Any] = [queue, number << 3 | lane, count, queue, lane, number, lane]
    columns += [_groups(dice, queue, count), sent, first, last, settled, deliveries, ending, code]
    order = np.argsort(settled, kind="stable")
    listed = [
        [column[at] for at in order] if isinstance(column, list) else column[order].tolist() for column in columns
    ]
    texts = ("", *ERRORS)
    listed[-2] = list(map(MessageOutcome, listed[-2]))
    listed[-1] = [texts[each + 1] for each in listed[-1]]
    return list(map(Settlement._make, zip(*listed, strict=True)))


def _kinds(dice: np.random.Generator, rows: int, queues: int) -> tuple[Any, Any, Any]:
    """Return queue, lane and count of as many settlements as have so many messages."""
    shares = 1.0 / np.arange(1, queues + 1)
    count = np.empty(0, np.int64)
    while count.sum() < rows:
        count = np.concatenate([count, np.minimum(dice.geometric(1 / 24, rows // 24 + 64), 512)])
    ends = np.cumsum(count)
    count = count[: int(np.searchsorted(ends, rows)) + 1]
    count[-1] -= ends[len(count) - 1] - rows
    queue = dice.choice(np.arange(1, queues + 1), len(count), p=shares / shares.sum())
    lane = dice.choice(5, len(count), p=[0.05, 0.15, 0.5, 0.2, 0.1])
    return queue, lane, count


def _sent(dice: np.random.Generator, size: int, end_ms: int, days: float) -> Any:
    """Return times of sending, rising: three times as many at noon as at midnight."""
    at = np.linspace(0, days, 2_048)
    arrived = np.cumsum(1.0 - 0.5 * np.cos(2 * np.pi * at))
    drawn = np.sort(dice.random(size))
    since = np.interp(drawn, (arrived - arrived[0]) / (arrived[-1] - arrived[0]), at)
    # What is sent last is settled before the end, too.
    return end_ms - int(days * DAY_MS) + (since * (DAY_MS * days - 7_200_000) / days).astype(np.int64)


def _fates(dice: np.random.Generator, sent: Any, count: Any, start_ms: int) -> tuple[Any, Any, Any]:
    """Return which settlements failed at least once, were buried, and expired. Short ones fail: a failure is alone."""
    roll, is_short = dice.random(len(sent)), count <= 8
    in_outage = _in_outage(sent, start_ms)
    is_failed = is_short & (roll < np.where(in_outage, 0.8, 0.2))
    is_buried = is_short & (roll < np.where(in_outage, 0.5, 0.02))
    return is_failed, is_buried, ~is_failed & (roll > 0.998)


def _in_outage(sent: Any, start_ms: int) -> Any:
    since = sent - start_ms - int(1.6 * DAY_MS)
    return (since >= 0) & (since < 3_600_000)


def _errors(dice: np.random.Generator, sent: Any, start_ms: int) -> Any:
    weights = 1.0 / np.arange(1, len(ERRORS) + 1)
    drawn = dice.choice(len(ERRORS), len(sent), p=weights / weights.sum())
    return np.where(_in_outage(sent, start_ms) & (dice.random(len(sent)) < 0.95), OUTAGE_ERROR, drawn)


def _numbers(queue: Any, lane: Any, count: Any) -> Any:
    """Return the number of the first message of each settlement: in each lane they are given out one by one."""
    number = np.zeros(len(count), np.int64)
    for each in np.unique(queue * 8 + lane):
        chosen = queue * 8 + lane == each
        number[chosen] = np.cumsum(count[chosen]) - count[chosen]
    return number


def _groups(dice: np.random.Generator, queue: Any, count: Any) -> list[bytes]:
    """Return a group for each settlement of the second queue: a few have most of it."""
    names = [b"", *(b"customer-%d" % each for each in range(200))]
    drawn = np.minimum(dice.geometric(0.02, len(count)), 200)
    return [names[each] for each in np.where(queue == 2, drawn, 0).tolist()]


def _bodies(settlements: Sequence[Settlement]) -> Bodies:
    bodies = [
        b'{"order": %d, "queue": %d, "total": %d.%02d}' % (number, each.queue, number * 7 % 900, number % 100)
        for each in settlements
        for number in range(each.number, each.number + each.count)
    ]
    return Bodies(array("B", [BodyState.KEPT]) * len(bodies), list(bodies), [b'{"origin": "bench"}'] * len(bodies))
