"""The history: settled messages, read in the order of transactions.

An offset is the transaction that settled the message, and the row in it:

    offset = transaction << 24 | row

Transactions end in another order than they begin. So nothing is told of one that is not
older than every transaction that still runs: below that, the history is complete and
does not change. Whoever holds a transaction open that has written something holds up
the history, and nothing else.

A row of the table is one message, or a pack of messages that were acked together: then the transaction wrote nothing
else, and message i of it is its row i. Whoever reads does not notice: everything is counted in messages, and a page may
begin and end within a pack (`unpacking.py`).

Periods are partitions of the table, and go whole. There is one shard, the database, and its number is that of the
range that its queues are numbered in: 0, unless it is one of several.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from penstock.contract.history_columns import TRANSACTION_ROW_BITS
from penstock.contract.limits import HISTORY_PAGE_BYTES_MAX, HISTORY_ROWS_MAX, HISTORY_WAIT_MS
from penstock.store.errors import NotWrittenYet, ShardNotFound
from penstock.store.pages import HistoryPage, HistoryRange, HistorySpan
from penstock.store.postgres.columns import SENT_AS
from penstock.store.postgres.database import Database
from penstock.store.postgres.patience import patiently
from penstock.store.postgres.unpacking import Unpacked

# So many messages are looked at for those of one queue, even if fewer are asked for.
LOOKED_MIN = 4_096
_AHEAD = (
    "the history is from a server that has had more transactions than this one: what was settled there cannot be read, "
    "and is not in order with what is settled now. See what to restore in how to run on PostgreSQL"
)


class Told(NamedTuple):
    """What can be read: from one offset on, and before the other."""

    first: int
    end: int


class HistoryReader:
    """Reads the history. What is told moves on about once a second, so that pages are worth their while."""

    def __init__(self, database: Database, now_ms: Callable[[], int]) -> None:
        self._database = database
        self._now_ms = now_ms
        self._end = 0
        self._looked_at_ms = 0
        self.shard = 0

    def check_shard(self, shard: int) -> None:
        if shard != self.shard:
            raise ShardNotFound(f"there is no shard {shard}; there is only {self.shard}")

    async def look(self) -> int:
        """Tell of everything that was settled so far, and return where that ends."""
        ((end, first, self.shard),) = await self._database.ask("history_end")
        ((last,),) = await self._database.ask("history_last", end)
        # Just behind the last row: the end of what is told, and not of what might be.
        behind = 0 if last is None else ((last >> TRANSACTION_ROW_BITS) + 1) << TRANSACTION_ROW_BITS
        self._end = max(self._end, first, behind)
        self._looked_at_ms = self._now_ms()
        return self._end

    async def doubts(self) -> list[str]:
        """What is wrong with it: a dump that was restored elsewhere has rows of transactions that are still to come."""
        ((is_ahead,),) = await self._database.ask("history_ahead")
        return [_AHEAD] if is_ahead else []

    async def span(self) -> HistorySpan:
        told = await self._told()
        return HistorySpan(self.shard, *told)

    async def _told(self) -> Told:
        if self._now_ms() - self._looked_at_ms >= HISTORY_WAIT_MS:
            await self.look()
        ((_, first, self.shard),) = await self._database.ask("history_end")
        return Told(first, max(first, self._end))

    async def page(self, wanted: HistoryRange, *, queue: int | None = None) -> HistoryPage:
        """Return rows of one queue, or of all queues."""
        told = await self._told()
        offset = max(told.first, wanted.from_offset or 0)
        stop = told.end if wanted.until_offset is None else min(told.end, wanted.until_offset)
        found = Unpacked(first=offset, end=stop, most=wanted.most, size_max=HISTORY_PAGE_BYTES_MAX)
        if offset >= stop:
            return await self._make(found, offset, offset, told)
        looked = min(HISTORY_ROWS_MAX, max(wanted.most, LOOKED_MIN)) if queue is not None else wanted.most
        # Behind what is looked at, whosever it is.
        reach, size = await self._look_through(offset, stop, looked=looked)
        end = reach
        if size >= HISTORY_PAGE_BYTES_MAX:
            filled = await self._database.ask(
                "history_full",
                first=offset,
                end=reach,
                queue=queue,
                from_ms=wanted.from_ms,
                size=HISTORY_PAGE_BYTES_MAX,
            )
            # No row is read behind a page that is full of bytes.
            end = reach if filled[0][0] is None else int(filled[0][0])
        found = Unpacked(first=offset, end=reach, most=wanted.most, size_max=HISTORY_PAGE_BYTES_MAX)
        found.add(
            await self._database.ask(
                "history_page", first=offset, end=end, queue=queue, from_ms=wanted.from_ms, most=wanted.most
            )
        )
        after = reach if len(found) == looked or not found.is_full else await self._behind(found, stop)
        return await self._make(found, offset, after, told)

    async def _look_through(self, first: int, end: int, *, looked: int) -> tuple[int, int]:
        """Return the offset of the message behind so many, or the end if there are not, and about their bytes."""
        ((messages, size, behind),) = await self._database.ask("history_looked", first=first, end=end, looked=looked)
        if messages is None or messages < looked:
            return end, size or 0
        if messages == looked:
            return await self._reach(behind, end, looked=0), size
        # Some rows are packs, so fewer will do.
        return await self._reach(first, end, looked=looked), size

    async def _behind(self, found: Unpacked, stop: int) -> int:
        """Return which message comes behind those of a page that is full."""
        after = found.last + 1
        return min(after, stop) if after < found.row_end else await self._reach(after, stop, looked=0)

    async def _reach(self, first: int, end: int, *, looked: int) -> int:
        found = await self._found(first, end, looked=looked)
        return end if found is None else found

    async def _found(self, first: int, end: int, *, looked: int) -> int | None:
        """Return the offset of the message behind so many others; None if there are not so many."""
        found = await self._database.ask("history_reach", first=first, end=end, looked=looked)
        return int(found[0][0]) if found else None

    async def _make(self, found: Unpacked, offset: int, after: int, told: Told) -> HistoryPage:
        columns = found.columns()
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
        last = await self._found(min(first, 2**62), told.end, looked=rows - 1)
        if last is None:
            return told.end
        behind = ((last >> TRANSACTION_ROW_BITS) + 1) << TRANSACTION_ROW_BITS
        return told.end if await self._found(behind, told.end, looked=0) is None else behind

    async def trim(self, *, before: int) -> int:
        """Drop the periods in which every row is below an offset, except the one that is written to."""
        told = await self._told()
        if before > told.end:
            raise NotWrittenYet(f"{before} is beyond the end of the history, which is {told.end}")
        # Somebody may read what is to go.
        (kept,) = await patiently(lambda: self._database.call("trim_history", before, None, True))
        return int(kept)
