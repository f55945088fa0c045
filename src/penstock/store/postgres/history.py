"""The history: a row for each settled message, read in the order of transactions.

An offset is the transaction that settled the message, and the row in it:

    offset = transaction << 24 | row

Transactions end in another order than they begin. So nothing is told of one that is not
older than every transaction that still runs: below that, the history is complete and
does not change. Whoever holds a transaction open that has written something holds up
the history, and nothing else.

Periods are partitions of the table, and go whole. There is one shard: the database.
"""

from array import array
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from penstock.core.limits import HISTORY_PAGE_BYTES_MAX, HISTORY_ROWS_MAX, HISTORY_WAIT_MS
from penstock.frame import Blobs
from penstock.store.history import BodyState, Coded, HistoryPage, HistorySpan, NotWrittenYet, ShardNotFound
from penstock.store.postgres.columns import SENT_AS
from penstock.store.postgres.database import Database

SHARD = 0
ROW_BITS = 24
# How large a row may be taken to be for a page to stay below its size.
_BODY_ROWS = 256


class Sought(NamedTuple):
    """Whose rows, None for those of all queues, from when on, and how many."""

    queue: int | None
    from_ms: int | None
    most: int


class Told(NamedTuple):
    """What can be read: from one offset on, and before the other."""

    first: int
    end: int


def check(from_offset: int | None, until_offset: int | None, most: int) -> None:
    if not 1 <= most <= HISTORY_ROWS_MAX:
        raise ValueError(f"most is {most}; it must be from 1 to HISTORY_ROWS_MAX ({HISTORY_ROWS_MAX})")
    for name, offset in (("from_offset", from_offset), ("until_offset", until_offset)):
        if offset is not None and offset < 0:
            raise ValueError(f"{name} is {offset}; it must not be negative")


def check_shard(shard: int) -> None:
    if shard != SHARD:
        raise ShardNotFound(f"there is no shard {shard}; there is only {SHARD}")


class HistoryReader:
    """Reads the history. What is told moves on about once a second, so that pages are worth their while."""

    def __init__(self, database: Database, now_ms: Callable[[], int]) -> None:
        self._database = database
        self._now_ms = now_ms
        self._end = 0
        self._looked_at_ms = 0

    async def look(self) -> int:
        """Tell of everything that was settled so far, and return where that ends."""
        ((end, first),) = await self._database.ask("history_end")
        ((last,),) = await self._database.ask("history_last", end)
        # Just behind the last row: the end of what is told, and not of what might be.
        self._end = max(self._end, first, 0 if last is None else ((last >> ROW_BITS) + 1) << ROW_BITS)
        self._looked_at_ms = self._now_ms()
        return self._end

    async def span(self) -> HistorySpan:
        told = await self._told()
        return HistorySpan(SHARD, *told)

    async def _told(self) -> Told:
        if self._now_ms() - self._looked_at_ms >= HISTORY_WAIT_MS:
            await self.look()
        ((_, first),) = await self._database.ask("history_end")
        return Told(first, max(first, self._end))

    async def page(self, sought: Sought, from_offset: int | None, until_offset: int | None) -> HistoryPage:
        told = await self._told()
        offset = max(told.first, from_offset or 0)
        stop = told.end if until_offset is None else min(told.end, until_offset)
        if offset >= stop:
            return await self._make([], offset, offset, told)
        looked = min(HISTORY_ROWS_MAX, max(sought.most, 4_096)) if sought.queue is not None else sought.most
        rows = await self._database.ask(
            "history_page", first=offset, end=stop, looked=looked, queue=sought.queue, from_ms=sought.from_ms,
            most=sought.most,
        )  # fmt: skip
        rows = _within_bytes(rows)
        # Where to go on: behind the last row that was looked at, whosever it was.
        if len(rows) == sought.most or (rows and len(rows) < looked and _size(rows) >= HISTORY_PAGE_BYTES_MAX):
            following = await self._database.ask("history_reach", first=rows[-1][0] + 1, end=stop, looked=0)
        else:
            following = await self._database.ask("history_reach", first=offset, end=stop, looked=looked)
        after = following[0][0] if following else stop
        return await self._make(rows, offset, after, told)

    async def _make(self, rows: Sequence[Any], offset: int, after: int, told: Told) -> HistoryPage:
        columns = _columns(rows)
        names = await self._names(set(columns["queue"]))
        return HistoryPage(offset, after, told.first, told.end, **columns, names=names)

    async def _names(self, queues: set[int]) -> Mapping[int, str]:
        if not queues:
            return {}
        rows = await self._database.ask("queue_names", SENT_AS["integer[]"](sorted(queues)))
        return {number: name for number, name, _ in rows}

    async def offset_at(self, at_ms: int) -> int:
        told = await self._told()
        ((first,),) = await self._database.ask("history_at", at_ms)
        return told.end if first is None else max(told.first, min(first, told.end))

    async def offset_after(self, from_offset: int, *, rows: int) -> int:
        """Return where the transaction ends with which there are so many rows."""
        told = await self._told()
        first = max(told.first, from_offset)
        found = await self._database.ask("history_reach", first=min(first, 2**62), end=told.end, looked=rows - 1)
        if not found:
            return told.end
        behind = ((found[0][0] >> ROW_BITS) + 1) << ROW_BITS
        more = await self._database.ask("history_reach", first=behind, end=told.end, looked=0)
        return behind if more else told.end

    async def trim(self, *, before: int) -> int:
        """Drop the periods in which every row is below an offset, except the one that is written to."""
        told = await self._told()
        if before > told.end:
            raise NotWrittenYet(f"{before} is beyond the end of the history, which is {told.end}")
        (kept,) = await self._database.call("trim_history", before)
        return int(kept)


def _size(rows: Sequence[Any]) -> int:
    return sum(len(row[14] or b"") + len(row[15] or b"") for row in rows)


def _within_bytes(rows: list[Any]) -> list[Any]:
    size = 0
    for at, row in enumerate(rows):
        size += len(row[14] or b"") + len(row[15] or b"")
        if size >= HISTORY_PAGE_BYTES_MAX:
            return rows[: at + 1]
    return rows


def _columns(rows: Sequence[Any]) -> dict[str, Any]:
    """Return the columns of a page, by name."""
    (
        offsets, queues, keys, homes, home_keys, sent, first, last, settled, deliveries, tiers, endings, groups, errors,
        bodies, attributes,
    ) = zip(*rows, strict=True) if rows else ((),) * 16  # fmt: skip
    identities = [
        (queue, key) if home is None else (home, own)
        for queue, key, home, own in zip(queues, keys, homes, home_keys, strict=True)
    ]
    columns: dict[str, Any] = {
        "queue": _numbers("I", queues),
        "home": _numbers("I", [home for home, _ in identities]),
        "sent_tier": _numbers("B", [key & 7 for _, key in identities]),
        "number": _numbers("Q", [key >> 3 for _, key in identities]),
        "tier": _numbers("B", tiers),
        "sent_at_ms": _numbers("q", sent),
        "first_leased_ms": _numbers("q", first),
        "last_leased_ms": _numbers("q", last),
        "settled_at_ms": _numbers("q", settled),
        "deliveries": _numbers("I", deliveries),
        "ending": _numbers("B", endings),
        "offsets": _numbers("q", offsets),
        "group": coded([group or b"" for group in groups]),
        "error": coded([(error or "").encode() for error in errors]),
    }
    if any(home is not None for home in homes):
        columns["key"] = _numbers("Q", keys)
    if any(body is not None for body in bodies):
        states = [BodyState.NOT_KEPT if body is None else BodyState.KEPT for body in bodies]
        columns["body_state"] = _numbers("B", states)
        columns["body"] = Blobs.of([body or b"" for body in bodies])
    if any(each is not None for each in attributes):
        columns["attributes"] = Blobs.of([each or b"" for each in attributes])
    return columns


def _numbers(code: str, values: Sequence[int]) -> memoryview:
    return memoryview(array(code, values))


def coded(words: Sequence[bytes]) -> Coded | None:
    """Return a column of words that repeat; None if all are empty."""
    if not any(words):
        return None
    codes = {b"": 0}
    column = [codes.setdefault(word, len(codes)) for word in words]
    return Coded(_numbers("i", column), Blobs.of(list(codes)))
