"""Settlements, what they mean row by row, and a journal of them with the history that follows it."""

import pickle
from array import array
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from hypothesis import strategies as st

from penstock.contract.history_columns import BodyState
from penstock.contract.messages import MessageOutcome
from penstock.core.queue.settlements import Settlement
from penstock.log import record
from penstock.log.disk_log import DiskLog
from penstock.log.settings import LogSettings
from penstock.runtime.interface import Buffer, Runtime
from penstock.store.embedded.history_format import HistoryFrame
from penstock.store.embedded.history_writer import FrameLimits, History, QueueInfo, frames

LOG_SETTINGS = LogSettings(allocate_bytes=0, spare_bytes=0, index_every_bytes=500, segment_bytes_max=20_000)
LIMITS = FrameLimits(rows_min=10, wait_ms=1_000, rows_max=20, text_bytes_max=1_000, body_bytes_max=500)

# What the queues of these tests keep: most of them facts.
FULL, OFF = 7, 9


class Row(NamedTuple):
    """All that the history says of one message."""

    queue: str
    home: int
    lane: int
    number: int
    tier: int
    sent_at_ms: int
    first_leased_ms: int
    last_leased_ms: int
    settled_at_ms: int
    deliveries: int
    ending: int
    group: bytes
    error: str
    body: bytes | None
    # Its place in the queue it left.
    key: int


def settlement(
    number: int = 0,
    count: int = 1,
    *,
    queue: int = 1,
    lane: int = 2,
    at_ms: int = 5_000,
    group: bytes = b"",
    error: str = "",
    sent_at_ms: "int | tuple[array[int], array[int]]" = 1_000,
    ending: MessageOutcome = MessageOutcome.ACKED,
) -> Settlement:
    """Return messages that were settled where they were first sent."""
    return Settlement(
        queue,
        number << 3 | lane,
        count,
        queue,
        lane,
        number,
        lane,
        group,
        sent_at_ms,
        2_000,
        3_000,
        at_ms,
        1,
        ending,
        error,
    )


def naive(settlements: Sequence[Settlement]) -> list[Row]:
    """Return the rows of one event, each message by itself."""
    rows = []
    for each in settlements:
        for nth in range(each.count):
            number, lane = (each.key >> 3) + nth, each.key & 7
            row = Row(
                name(each.queue),
                each.home,
                each.lane,
                each.number + nth,
                each.tier,
                _sent_at(each, number),
                each.first_leased_ms,
                each.last_leased_ms,
                each.settled_at_ms,
                each.deliveries,
                int(each.ending),
                each.group,
                each.error,
                body(each.queue, lane, number) if each.queue == FULL else None,
                number << 3 | lane,
            )
            rows.append(((each.queue, lane, number), row))
    return [row for (queue, _, _), row in sorted(rows) if queue != OFF]


def _sent_at(settled: Settlement, number: int) -> int:
    if isinstance(settled.sent_at_ms, int):
        return settled.sent_at_ms
    at_ms = -1
    for first, time_ms in zip(*settled.sent_at_ms, strict=True):
        if first <= number:
            at_ms = time_ms
    assert at_ms >= 0
    return at_ms


def name(queue: int) -> str:
    return f"queue {queue} ✓"


def body(queue: int, lane: int, number: int) -> bytes:
    """Return a body of up to 199 bytes, and none for each tenth message."""
    return b"%d/%d/%d " % (queue, lane, number) * (number % 10)


def about(queue: int) -> QueueInfo | None:
    return None if queue == OFF else QueueInfo(name(queue), _read_bodies if queue == FULL else None)


async def _read_bodies(settled: Settlement, start: int, count: int) -> tuple[Sequence[Buffer], None]:
    first = (settled.key >> 3) + start
    return [body(settled.queue, settled.key & 7, number) for number in range(first, first + count)], None


def rows_of(frame: HistoryFrame) -> Iterator[Row]:
    """Read a frame the slow way, a row at a time."""
    names = frame.names()
    for row in range(frame.head.rows):
        has_body = frame.body_state is not None and frame.body_state[row] == BodyState.KEPT
        assert frame.body is not None or not has_body
        yield Row(
            names[frame.queue[row]],
            frame.home[row],
            frame.sent_tier[row],
            frame.number[row],
            frame.tier[row],
            frame.sent_at_ms[row],
            frame.first_leased_ms[row],
            frame.last_leased_ms[row],
            frame.settled_at_ms[row],
            frame.deliveries[row],
            frame.ending[row],
            bytes(frame.group[row]) if frame.group is not None else b"",
            bytes(frame.error[row]).decode() if frame.error is not None else "",
            bytes(frame.body[row]) if frame.body is not None and has_body else None,
            frame.number[row] << 3 | frame.sent_tier[row] if frame.key is None else frame.key[row],
        )


@st.composite
def marks(draw: st.DrawFn, first: int) -> "tuple[array[int], array[int]]":
    """Draw times of sending, the first of them for a number at or below ``first``."""
    later = draw(st.lists(st.integers(1, 60), max_size=5, unique=True))
    firsts = [first - draw(st.integers(0, min(first, 5))), *sorted(first + step for step in later)]
    times = sorted(draw(st.lists(st.integers(0, 10**13), min_size=len(firsts), max_size=len(firsts))))
    return array("Q", firsts), array("q", times)


@st.composite
def settlements(draw: st.DrawFn) -> Settlement:
    first = draw(st.integers(0, 2**40))
    # What is not drawn to be moved is where it was first sent.
    queue, lane = draw(st.sampled_from([1, 2, FULL, OFF])), draw(st.integers(0, 4))
    home = draw(st.none() | st.tuples(st.integers(0, 2**32 - 1), st.integers(0, 4), st.integers(0, 2**60)))
    times = st.integers(0, 10**13)
    return Settlement(
        queue,
        first << 3 | lane,
        draw(st.integers(1, 50)),
        *(home or (queue, lane, first)),
        draw(st.integers(0, 4)),
        draw(st.just(b"") | st.binary(max_size=8)),
        draw(times | marks(first)),
        draw(times),
        draw(times),
        draw(times),
        draw(st.integers(0, 10_000)),
        draw(st.sampled_from(MessageOutcome)),
        draw(st.just("") | st.text(max_size=8)),
    )


def events(*, least: int = 0, most: int = 3) -> st.SearchStrategy[list[Settlement]]:
    """Draw what one event settles: no message twice."""
    return st.lists(settlements(), min_size=least, max_size=most).filter(_are_apart)


def _are_apart(event: list[Settlement]) -> bool:
    spans = sorted((each.queue, each.key & 7, each.key >> 3, each.count) for each in event)
    return all(
        (queue, lane) != after[:2] or first + count <= after[2]
        for (queue, lane, first, count), after in pairwise(spans)
    )


class Books:
    """A journal in which each event is a list of settlements, and the history that follows it."""

    def __init__(self, journal: DiskLog, log: DiskLog, history: History) -> None:
        self.journal = journal
        self.log = log
        self.history = history

    @classmethod
    async def open(
        cls, runtime: Runtime, limits: FrameLimits = LIMITS, journal_settings: LogSettings = LOG_SETTINGS
    ) -> "Books":
        """Open both logs and replay the journal, as a store does."""
        journal = await DiskLog.open(runtime, "journal", journal_settings)
        log = await DiskLog.open(runtime, "history", LOG_SETTINGS)
        books = cls(journal, log, await History.open(runtime, log, journal=journal, about=about, limits=limits))
        for offset, event in await books.events():
            books.history.follow(offset, event)
        return books

    def append(self, *event: Settlement) -> int:
        """Let something be settled, and return its offset. It is not yet durable."""
        batch = record.encode([(None, pickle.dumps(event))], at_ms=5_000)
        with self.journal.reserve(len(batch)) as space:
            offset = self.journal.append(batch, space)
        self.history.follow(offset, event)
        return offset

    async def settle(self, *event: Settlement) -> int:
        offset = self.append(*event)
        await self.journal.wait_durable(offset + 1)
        return offset

    async def events(self) -> list[tuple[int, tuple[Settlement, ...]]]:
        """Return what the journal holds."""
        found = []
        offset = self.journal.start_offset
        while offset < self.journal.durable_offset:
            for batch in await self.journal.read(offset, bytes_max=1 << 20):
                for entry in record.records(batch):
                    assert entry.value is not None
                    found.append((offset, pickle.loads(entry.value)))
                    offset += 1
        return found

    async def expected(self) -> list[Row]:
        return [row for _, event in await self.events() for row in naive(event)]

    async def frames(self) -> list[HistoryFrame]:
        return [frame async for _, frame in frames(self.log, self.log.start_offset)]

    async def rows(self) -> list[Row]:
        return [row for frame in await self.frames() for row in rows_of(frame)]

    async def close(self) -> None:
        await self.log.close()
        await self.journal.close()
