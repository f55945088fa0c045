"""The history: settled messages in the order of transactions, read page by page, and its periods.

An offset is the transaction that settled the message, and the row in it:

    offset = transaction << 24 | row

Transactions end in another order than they begin. So readers see only rows older than every running transaction: below
that, the history is complete and does not change. A transaction that has written something and stays open delays the
history, and nothing else.

    row    at_offset │ queue │ key  │ sent_at_ms  │ …       one message
    pack   at_offset │ queue │ keys │ sent_ats_ms │ …       messages acked together; message i is at at_offset + i
                             └ 8 bytes for each ──┘   bodies stand back to back, and 4 bytes say how long each is

A pack is all that its transaction wrote. Everything counts messages, so packing is invisible to readers.

Periods are partitions of the table, and are dropped whole; nothing is deleted row by row. The current period and the
one before it stay. There is one shard, the database, and its number is its range of queue numbers: 0, unless it is one
of several.

Laws of this file
-----------------
1. The content of a page does not depend on how its messages are packed: it ends after as many
   messages, and behind the message that fills it, also within a pack.
2. No message of a pack becomes an object: columns are cut, swapped and joined whole.
"""

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby, repeat
from operator import add, sub
from typing import Any, NamedTuple

import psycopg

from penstock.contract.history_columns import NUMBERS, TRANSACTION_ROW_BITS, BodyState
from penstock.contract.limits import HISTORY_PAGE_BYTES_MAX, HISTORY_ROWS_MAX, HISTORY_WAIT_MS
from penstock.frame import Blobs
from penstock.store.errors import NotWrittenYet, ShardNotFound
from penstock.store.pages import Coded, HistoryPage, HistoryRange, HistorySpan
from penstock.store.postgres.array_codec import SENT_AS, numbers
from penstock.store.postgres.database import Database
from penstock.store.postgres.errors import retry_on_lock
from penstock.store.postgres.statements import statement

# The columns of numbers that a page has, and their widths.
_CODES = {**NUMBERS, "offsets": "q", "key": "Q"}
# The last byte of a key as the tier that its message was sent at.
_LANES = bytes(byte & 7 for byte in range(256))
# The places of some columns in what `history_page.sql` asks for.
_BODY, _ATTRIBUTES, _PACK = 14, 15, 16


class TextColumn:
    """Bodies, or attributes, of some messages: back to back, in as many pieces as there are rows or packs."""

    __slots__ = ("sizes", "pieces", "is_there")

    def __init__(self) -> None:
        self.sizes = array("i")
        self.pieces: list[bytes | memoryview] = []
        self.is_there = False

    def add(self, sizes: "Iterable[int]", pieces: Iterable[bytes | memoryview], *, is_there: bool) -> None:
        self.sizes.extend(sizes)
        self.pieces.extend(pieces)
        self.is_there = self.is_there or is_there

    def blobs(self) -> Blobs:
        offsets = array("i", accumulate(self.sizes, initial=0))
        return Blobs(offsets, memoryview(b"".join(self.pieces)))


class HistoryRows:
    """The messages of one page: from an offset on and before another, so many and no more behind so many bytes."""

    def __init__(self, *, first: int, end: int, most: int, size_max: int) -> None:
        self._first, self._end = first, end
        self._most, self._size_max = most, size_max
        self.size = 0
        # Where the last row ends that something was taken of.
        self.row_end = first
        self._numbers = {name: array(code) for name, code in _CODES.items()}
        self._groups: list[bytes] = []
        self._errors: list[bytes] = []
        self._has_moved = False
        self._states = bytearray()
        self._bodies, self._attributes = TextColumn(), TextColumn()

    def __len__(self) -> int:
        return len(self._states)

    @property
    def is_full(self) -> bool:
        return len(self) >= self._most or self.size >= self._size_max

    @property
    def last(self) -> int:
        """The offset of the last message."""
        return self._numbers["offsets"][-1]

    def add(self, rows: Sequence[Any]) -> None:
        """Take as many messages of these rows as there is room for."""
        for is_single, found in groupby(rows, key=_is_single):
            if is_single:
                self._add_singles(list(found))
            else:
                for row in found:
                    self._add_pack(row)

    def columns(self) -> dict[str, Any]:
        """Return the columns of a page, by name."""
        columns: dict[str, Any] = {name: memoryview(column) for name, column in self._numbers.items()}
        if not self._has_moved:
            del columns["key"]
        columns["group"], columns["error"] = coded(self._groups), coded(self._errors)
        if self._bodies.is_there:
            columns["body_state"] = memoryview(array("B", self._states))
            columns["body"] = self._bodies.blobs()
        if self._attributes.is_there:
            columns["attributes"] = self._attributes.blobs()
        return columns

    def _extend(self, **columns: "Iterable[int]") -> None:
        for name, column in columns.items():
            self._numbers[name].extend(column)

    def _room(self, ends: Sequence[int], most: int) -> int:
        """Return how many messages there is room for, of which each ends behind so many bytes."""
        return min(most, self._most - len(self), bisect_left(ends, self._size_max - self.size) + 1)

    def _add_singles(self, rows: list[Any]) -> None:
        if self.is_full:
            return
        ends = list(accumulate(len(row[_BODY] or b"") + len(row[_ATTRIBUTES] or b"") for row in rows))
        count = self._room(ends, len(rows))
        (
            offsets, queues, keys, homes, home_keys, sent, first, last, settled, deliveries, tiers, endings, groups,
            errors, bodies, attributes, _,
        ) = zip(*rows[:count], strict=True)  # fmt: skip
        self._has_moved = self._has_moved or any(home is not None for home in homes)
        own = [key if home_key is None else home_key for key, home_key in zip(keys, home_keys, strict=True)]
        self._extend(
            offsets=offsets, queue=queues, key=keys, sent_at_ms=sent, first_leased_ms=first, last_leased_ms=last,
            home=[queue if home is None else home for queue, home in zip(queues, homes, strict=True)],
            sent_tier=[key & 7 for key in own], number=[key >> 3 for key in own],
            settled_at_ms=settled, deliveries=deliveries, tier=tiers, ending=endings,
        )  # fmt: skip
        self._groups += [group or b"" for group in groups]
        self._errors += [(error or "").encode() for error in errors]
        self._states += bytes(BodyState.NOT_KEPT if body is None else BodyState.KEPT for body in bodies)
        for column, texts in ((self._bodies, bodies), (self._attributes, attributes)):
            pieces = [text or b"" for text in texts]
            column.add(map(len, pieces), pieces, is_there=any(text is not None for text in texts))
        self.size += ends[count - 1]
        self.row_end = offsets[-1] + 1

    def _add_pack(self, row: Sequence[Any]) -> None:
        if self.is_full:
            return
        offset, *_, body, attributes, pack = row
        packed = PackedRow(pack, has_bodies=body is not None, has_attributes=attributes is not None)
        start = max(0, self._first - offset)
        count = min(packed.count, self._end - offset) - start
        body_ends = _ends(packed.body_sizes, start, count)
        attribute_ends = _ends(packed.attribute_sizes, start, count)
        ends = _sums(body_ends, attribute_ends) if body is not None else bytes(count)
        count = self._room(ends, count)
        self.size += ends[count - 1]
        self._add_numbers(row, packed, start, start + count)
        self._groups += [b""] * count
        self._errors += [b""] * count
        self._states += bytes([BodyState.NOT_KEPT if body is None else BodyState.KEPT]) * count
        _cut(self._bodies, body, body_ends[: count + 1], is_there=body is not None)
        has_some = attribute_ends[count] > attribute_ends[0]
        _cut(self._attributes, attributes, attribute_ends[: count + 1], is_there=has_some)
        self.row_end = offset + packed.count

    def _add_numbers(self, row: Sequence[Any], packed: "PackedRow", start: int, stop: int) -> None:
        offset, queue, _, _, _, _, first_leased_ms, last_leased_ms, settled_at_ms, deliveries, _, ending, *_ = row
        key_bytes = packed.keys[8 * start : 8 * stop]
        keys, lanes, count = numbers("Q", key_bytes), key_bytes[7::8].translate(_LANES), stop - start
        self._extend(
            offsets=range(offset + start, offset + stop), queue=repeat(queue, count), home=repeat(queue, count),
            key=keys, sent_tier=lanes, number=[key >> 3 for key in keys], tier=lanes,
            sent_at_ms=numbers("q", packed.sent_ats_ms[8 * start : 8 * stop]),
            first_leased_ms=repeat(first_leased_ms, count), last_leased_ms=repeat(last_leased_ms, count),
            settled_at_ms=repeat(settled_at_ms, count), deliveries=repeat(deliveries, count),
            ending=repeat(ending, count),
        )  # fmt: skip


class PackedRow:
    """What a row says of each of its messages: the column of that, cut into its parts."""

    __slots__ = ("count", "keys", "sent_ats_ms", "body_sizes", "attribute_sizes")

    def __init__(self, data: bytes, *, has_bodies: bool, has_attributes: bool) -> None:
        self.count = count = int.from_bytes(data[:4], "big")
        bodies_at = 4 + 16 * count
        attributes_at = bodies_at + 4 * count * has_bodies
        assert len(data) == attributes_at + 4 * count * has_attributes
        self.keys = data[4 : 4 + 8 * count]
        self.sent_ats_ms = data[4 + 8 * count : bodies_at]
        self.body_sizes = data[bodies_at:attributes_at]
        self.attribute_sizes = data[attributes_at:]


def _is_single(row: Any) -> bool:
    return row[_PACK] is None


def _ends(sizes: bytes, start: int, count: int) -> Sequence[int]:
    """Return where some texts of a pack begin, and behind it where each ends; zeros if it has none."""
    if not sizes:
        return bytes(count + 1)
    return list(accumulate(numbers("i", sizes[: 4 * (start + count)]), initial=0))[start:]


def _sums(bodies: Sequence[int], attributes: Sequence[int]) -> Sequence[int]:
    """Return behind how many bytes each message ends."""
    before = bodies[0] + attributes[0]
    return [end - before for end in map(add, bodies[1:], attributes[1:])]


def _cut(column: TextColumn, data: bytes | None, ends: Sequence[int], *, is_there: bool) -> None:
    sizes = array("i", map(sub, ends[1:], ends)) if is_there else repeat(0, len(ends) - 1)
    column.add(sizes, [memoryview(data or b"")[ends[0] : ends[-1]]], is_there=is_there)


def coded(words: Sequence[bytes]) -> Coded | None:
    """Return a column of words that repeat; None if all are empty."""
    if not any(words):
        return None
    codes = {b"": 0}
    column = [codes.setdefault(word, len(codes)) for word in words]
    return Coded(memoryview(array("i", column)), Blobs.of(list(codes)))


# So many messages are looked at for those of one queue, even if fewer are asked for.
LOOKED_MIN = 4_096
_AHEAD = (
    "the history is from a server that has had more transactions than this one: what was settled there cannot be read, "
    "and is not in order with what is settled now. See what to restore in how to run on PostgreSQL"
)


class HistoryBounds(NamedTuple):
    """What can be read: from one offset on, and before the other."""

    first: int
    end: int


class HistoryReader:
    """Reads the history. Its visible end moves on about once a second, so that pages are not tiny."""

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
        # Just behind the last row: the end of the visible history.
        behind = 0 if last is None else ((last >> TRANSACTION_ROW_BITS) + 1) << TRANSACTION_ROW_BITS
        self._end = max(self._end, first, behind)
        self._looked_at_ms = self._now_ms()
        return self._end

    async def durability_warnings(self) -> list[str]:
        """What is wrong with it: a dump that was restored elsewhere has rows of transactions that are still to come."""
        ((is_ahead,),) = await self._database.ask("history_ahead")
        return [_AHEAD] if is_ahead else []

    async def span(self) -> HistorySpan:
        told = await self._told()
        return HistorySpan(self.shard, *told)

    async def _told(self) -> HistoryBounds:
        if self._now_ms() - self._looked_at_ms >= HISTORY_WAIT_MS:
            await self.look()
        ((_, first, self.shard),) = await self._database.ask("history_end")
        return HistoryBounds(first, max(first, self._end))

    async def page(self, wanted: HistoryRange, *, queue: int | None = None) -> HistoryPage:
        """Return rows of one queue, or of all queues."""
        told = await self._told()
        offset = max(told.first, wanted.from_offset or 0)
        stop = told.end if wanted.until_offset is None else min(told.end, wanted.until_offset)
        found = HistoryRows(first=offset, end=stop, most=wanted.most, size_max=HISTORY_PAGE_BYTES_MAX)
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
        found = HistoryRows(first=offset, end=reach, most=wanted.most, size_max=HISTORY_PAGE_BYTES_MAX)
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

    async def _behind(self, found: HistoryRows, stop: int) -> int:
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

    async def _make(self, found: HistoryRows, offset: int, after: int, told: HistoryBounds) -> HistoryPage:
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
        # A reader may hold the period that is to be dropped.
        (kept,) = await retry_on_lock(
            lambda: self._database.call("trim_history", before, None, True), self._database.settings.timing.retries_s
        )
        return int(kept)


_COUNTED_MAX = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Period:
    table: str
    size_bytes: int
    # How many messages. A million rows are counted; of more there are as many as the statistics of PostgreSQL say, with
    # as many messages in each as in those that were counted.
    rows: int
    # Whether messages that are settled now go into it.
    is_written: bool
    # Whether it is past its retention and was taken out of the history, and not dropped.
    is_detached: bool
    # When its first and its last message were settled, and the offset of the last; None if it has none.
    first_at_ms: int | None
    last_at_ms: int | None
    last_offset: int | None


async def periods(connection: psycopg.AsyncConnection[Any], schema: str) -> list[Period]:
    """Every period there is, the oldest first."""
    rows = await (await connection.execute(statement("periods", schema))).fetchall()
    return [await _period(connection, *row) for row in rows]


async def _period(  # noqa: PLR0913, PLR0917 - a row.
    connection: psycopg.AsyncConnection[Any],
    table: str,
    size_bytes: int,
    estimate: int,
    is_written: bool,
    has_packs: bool,
    is_detached: bool,
) -> Period:
    # The name is one that PostgreSQL itself has quoted. Both ends are found by the index.
    messages = "coalesce(packed, 1)" if has_packs else "1"
    ends = f"""
        (SELECT at_offset, settled_at_ms FROM {table} ORDER BY at_offset LIMIT 1)
         UNION ALL
        (SELECT at_offset + {messages} - 1, settled_at_ms FROM {table} ORDER BY at_offset DESC LIMIT 1)
    """
    found = await (await connection.execute(ends.encode())).fetchall()
    counting = f"""
        SELECT count(*), coalesce(sum(messages), 0)::bigint
        FROM (SELECT {messages} AS messages FROM {table} LIMIT {_COUNTED_MAX}) AS row
    """
    counted = await (await connection.execute(counting.encode())).fetchone()
    assert counted is not None
    rows, count = counted
    return Period(
        table=table,
        size_bytes=size_bytes,
        rows=count if rows < _COUNTED_MAX else max(estimate, rows) * count // rows,
        is_written=is_written,
        is_detached=is_detached,
        first_at_ms=found[0][1] if found else None,
        last_at_ms=found[1][1] if found else None,
        last_offset=found[1][0] if found else None,
    )


def droppable(found: Sequence[Period], *, before_ms: int) -> list[Period]:
    """The periods that are over, and whose messages were all settled before an instant; they are the oldest ones."""
    chosen: list[Period] = []
    for period in found:
        if period.is_detached:
            continue
        if period.is_written or (period.last_at_ms is not None and period.last_at_ms >= before_ms):
            break
        chosen.append(period)
    return chosen
