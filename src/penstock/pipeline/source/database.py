"""Read the history out of a store in PostgreSQL: Arrow batches by ADBC, with no server between Spark and the database.

    driver      what is kept, where a time begins, every so-many-th offset
    executors   pages of a range of offsets, by the index; each in a transaction of its own

Laws of this file
-----------------
1. Only transactions that are older than every running one are read: transactions end
   in another order than they begin, and a stream never looks back. It is the store's own
   rule (`store/postgres/history.py`), with the same offsets.
2. A page is read whole before Spark gets it, so that a job that is slow holds neither
   a transaction open nor a table: the store drops old tables, and would wait.
3. A reader asks after a page, not before it, whether rows were dropped: so it also learns of a table that
   was dropped meanwhile.
4. No row is an object. The database sends numbers. Words are looked up as columns, and packs of messages that were
   acked together are unpacked as columns. Everything is counted in messages.
5. A page is bounded by its bytes. Rows beyond the bound are not kept, and are asked for again. A page may be many
   messages, as packs are small; they are unpacked some at a time.
6. An older schema without ranges and without packs can be read.
7. Nothing loops over messages, nor over packs: words of 4 bytes are gathered from the whole column at once. Bodies are
   not copied. They stand back to back in the column of bodies, and only get more ends.

The store writes what was acked together as one row, a *pack* (`store/postgres/history.py`). What differs between
its messages comes in one column, since each column costs rows that are no packs as much as a value:

    ┌───────┬─ ─ ─ ─ ─ ┬─ ─ ─ ─ ─ ─ ─ ─┬─ ─ ─ ─ ─ ─ ─┬─ ─ ─ ─ ─ ─ ─ ─ ─ ─┐
    │ count │ keys     │ times of send │ body sizes  │ attribute sizes   │    big-endian; those parts that are wanted
    │ 4     │ 8 each   │ 8 each        │ 4 each      │ 4 each            │
    └───────┴─ ─ ─ ─ ─ ┴─ ─ ─ ─ ─ ─ ─ ─┴─ ─ ─ ─ ─ ─ ─┴─ ─ ─ ─ ─ ─ ─ ─ ─ ─┘

The query selects as few columns as will do: each costs the database as much as the rest of the way. What follows from
another column is computed here, whole columns at once.

Importing this module needs `adbc-driver-postgresql`, the extra `spark-postgres`.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
from pyarrow import compute

from penstock.contract.history_columns import FIELDS, OFFSETS, TRANSACTION_ROW_BITS, Column
from penstock.contract.limits import MIB
from penstock.history_arrow import record_batch
from penstock.pipeline.locations import DatabaseRefused, passwords_in, without_password
from penstock.pipeline.source.ranges import Range, Slice, Wanted, dropped

# A message is known by the queue that it was first sent to, and by its place there.
_COMPUTED = {"home": "coalesce(home, queue)", "home_key": "coalesce(home_key, key)"}
_SQL = {field.name: field.sql for field in (*FIELDS, OFFSETS)}


def fields_of(columns: tuple[Column, ...]) -> dict[str, str]:
    """Return what to ask the database for, by name: always the offset, by which pages go on."""
    names = [_SQL[column.field] for column in columns if column.field]
    return {name: _COMPUTED.get(name, name) for name in (OFFSETS.sql, *names)}


class DatabaseRows:
    """Rows as the database has sent them."""

    def __init__(self, batch: Any, names: Mapping[int, str]) -> None:
        self._batch = batch
        self.names = names

    def __len__(self) -> int:
        return int(self._batch.num_rows)

    def field(self, name: str) -> Any:
        found = self._batch.column(_SQL[name])
        if name == "number":
            return compute.shift_right(found, 3)
        return compute.bit_wise_and(found, 7) if name == "sent_tier" else found

    def batch(self, columns: tuple[Column, ...], shard: int) -> Any:
        return record_batch(self, columns, {"shard": shard}, dictionary=False)


PACK = "pack"
_ZEROS = "decode(repeat('00', 4 * packed), 'hex')"


class Part(NamedTuple):
    """A part of the column: its SQL, how many words of 4 bytes a message has in it, and the fields that need it."""

    value: str
    words: int
    needed_by: frozenset[str]


_PARTS = (
    Part("keys", 2, frozenset({"key", "home_key", "tier"})),
    Part("sent_ats_ms", 2, frozenset({"sent_at_ms"})),
    Part(f"CASE WHEN body IS NULL THEN {_ZEROS} ELSE body_sizes END", 1, frozenset({"body"})),
    Part(f"CASE WHEN attributes IS NULL THEN {_ZEROS} ELSE attribute_sizes END", 1, frozenset({"attributes"})),
)


def pack_field(fields: Mapping[str, str]) -> dict[str, str]:
    """Return what to ask for besides these fields, so that their packs can be unpacked."""
    parts = " || ".join(["int4send(packed)", *(part.value for part in _parts_of(fields))])
    return {PACK: f"CASE WHEN packed IS NOT NULL THEN {parts} END"}


def _parts_of(fields: Mapping[str, Any]) -> list[Part]:
    return [part for part in _PARTS if not part.needed_by.isdisjoint(fields)]


def counts_of(rows: Any) -> Any:
    """Return how many messages each row stands for."""
    return Packs(rows).counts


def unpacked(rows: Any, *, most: int, start: int, end: int) -> Iterator[Any]:
    """Yield batches of about so many messages: those of these rows from an offset on and before another."""
    if PACK not in rows.schema.names or rows.column(PACK).null_count == rows.num_rows:
        # Each is one message, and they were asked for by their offsets.
        yield rows
        return
    ends = np.cumsum(counts_of(rows))
    first, taken = 0, 0
    while first < rows.num_rows:
        stop = max(int(np.searchsorted(ends, taken + most, "right")), first + 1)
        batch = Packs(rows.slice(first, stop - first)).messages()
        offsets = _numbers(batch.column("at_offset"), np.int64)
        low, high = np.searchsorted(offsets, (start, end))
        if low < high:
            yield batch.slice(low, high - low)
        first, taken = stop, int(ends[stop - 1])


class Packs:
    """Some rows, of which some are packs."""

    def __init__(self, rows: Any) -> None:
        self._rows = rows
        self.counts = np.ones(rows.num_rows, np.int64)
        self._words = np.empty(0, ">u4")
        self._bases = np.empty(0, np.int64)
        if PACK not in rows.schema.names:
            return
        column = rows.column(PACK)
        self._is_pack = _bits(column)
        ends = _ends(column)
        _, _, data = column.buffers()
        if data is not None and self._is_pack.any():
            self._words = np.frombuffer(data, ">u4", count=ends[-1] // 4)
            # Where each pack has its first word.
            self._bases = ends[:-1][self._is_pack] // 4
            self.counts[self._is_pack] = self._words[self._bases]

    def messages(self) -> Any:
        """Return the same fields with a row for each message."""
        self._total = int(self.counts.sum())
        self._of_pack = np.repeat(self._is_pack, self.counts)
        # The place of each message in its row.
        self._places = np.arange(self._total) - np.repeat(np.cumsum(self.counts) - self.counts, self.counts)
        names = [name for name in self._rows.schema.names if name != PACK]
        self._parts = dict(self._gathered(names))
        return pa.RecordBatch.from_arrays([self._column(name) for name in names], names)

    def _gathered(self, names: list[str]) -> Iterator[tuple[frozenset[str], Any]]:
        """Yield what packs say of each of their messages, a part at a time."""
        counts = self.counts[self._is_pack]
        places = self._places[self._of_pack]
        begins = self._bases + 1
        for part in _parts_of(dict.fromkeys(names)):
            at = np.repeat(begins, counts) + part.words * places
            found = self._words[at].astype(np.int64)
            if part.words == 2:
                found = found << 32 | self._words[at + 1]
            yield part.needed_by, found
            begins = begins + part.words * counts

    def _column(self, name: str) -> Any:
        column = self._rows.column(name)
        if name == "at_offset":
            return pa.array(self._repeated(_numbers(column, np.int64)) + self._places)
        if name in {"body", "attributes"}:
            return self._texts(column, self._part(name))
        if column.null_count == len(column):
            return pa.nulls(self._total, column.type)
        found = self._part(name)
        if found is None:
            return column.take(pa.array(np.repeat(np.arange(len(column)), self.counts)))
        values = self._repeated(_numbers(column, column.type.to_pandas_dtype()))
        values[self._of_pack] = found & 7 if name == "tier" else found
        return pa.array(values)

    def _part(self, name: str) -> Any:
        return next((found for needed_by, found in self._parts.items() if name in needed_by), None)

    def _repeated(self, values: Any) -> Any:
        return np.repeat(values, self.counts)

    def _texts(self, column: Any, sizes_of_packs: Any) -> Any:
        if column.null_count == len(column):
            return pa.nulls(self._total, column.type)
        ends = _ends(column)
        sizes = self._repeated(np.diff(ends))
        sizes[self._of_pack] = sizes_of_packs
        offsets = np.zeros(self._total + 1, np.int32)
        np.cumsum(sizes, out=offsets[1:])
        offsets += ends[0]
        is_there = None
        if column.null_count:
            is_there = pa.array(np.repeat(_bits(column), self.counts)).buffers()[1]
        return pa.Array.from_buffers(
            column.type, self._total, [is_there, pa.py_buffer(offsets), column.buffers()[2] or pa.py_buffer(b"")]
        )


def _bits(column: Any) -> Any:
    """Return which rows are not null."""
    return column.is_valid().to_numpy(zero_copy_only=False)


def _ends(column: Any) -> Any:
    """Return where the first text of a column begins, and behind it where each ends."""
    ends = np.frombuffer(column.buffers()[1], np.int32, count=column.offset + len(column) + 1)
    return ends[column.offset :].astype(np.int64)


def _numbers(column: Any, kind: Any) -> Any:
    """Return a column of numbers without nulls."""
    found = np.frombuffer(column.buffers()[1], kind, count=column.offset + len(column))
    return found[column.offset :]


try:
    import adbc_driver_manager
    from adbc_driver_postgresql import dbapi  # type: ignore[import-untyped]
except ModuleNotFoundError:
    raise ModuleNotFoundError(
        "reading a store in PostgreSQL needs the package adbc-driver-postgresql on every executor: "
        "pip install 'penstock[spark-postgres]', or read from a server"
    ) from None


PAGE_ROWS = 65_536
# Where there are bodies: begin with few rows, and go on with as many as make this many bytes. A pack has up to 1 MiB.
BODY_ROWS = 32
PAGE_BYTES = 16 * MIB
_OFFSET_MAX = 2**63 - 1
# So many rows are looked at first where some are counted that may be packs.
_SKIPPED_MIN = 1_024
_ROW_MASK = (1 << TRANSACTION_ROW_BITS) - 1

# Every page is found by the index. A table may be large before PostgreSQL has counted it.
_BY_INDEX = (
    "SELECT set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true), "
    "set_config('enable_sort', 'off', true), set_config('jit', 'off', true)"
)


class DatabaseHistories:
    def __init__(self, connection: Any, schema: str) -> None:
        self._connection = connection
        self._schema = schema
        self._has_packs: bool | None = None

    def kept(self) -> dict[int, Range]:
        with self._transaction() as cursor:
            # A schema of before has no ranges, and is shard 0.
            ((end, first, shard),) = _rows(
                cursor,
                "SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint << 24, first_kept_offset, "
                f"coalesce((to_jsonb(moment) ->> 'queue_range')::integer, 0) FROM {self._schema}.moment",
            )
            # Another statement sees more, and nothing more below this end.
            ((last,),) = _rows(cursor, f"SELECT max(at_offset) FROM {self._schema}.history WHERE at_offset < {end}")
        behind = 0 if last is None else ((last >> TRANSACTION_ROW_BITS) + 1) << TRANSACTION_ROW_BITS
        return {shard: Range(shard, first, max(first, behind))}

    def offset_since(self, kept: Range, at_ms: int) -> int:
        with self._transaction() as cursor:
            sought = f"{_between(kept)} AND settled_at_ms >= {at_ms}"
            ((first,),) = _rows(cursor, f"SELECT min(at_offset) FROM {self._schema}.history WHERE {sought}")
        return kept.end if first is None else int(first)

    def offset_after(self, rows: Range, count: int) -> int:
        """Return where a range of so many rows ends: exactly, as every transaction that is read is whole."""
        with self._transaction() as cursor:
            return self._after(cursor, rows, count)

    def _after(self, cursor: Any, rows: Range, count: int) -> int:
        """Return the offset of the message behind so many others, or the end of a range that has not so many."""
        place = ""
        if self._has_packs_in(cursor):
            rows, count = self._skip(cursor, rows, count)
            first, end = min(rows.start, _OFFSET_MAX), min(rows.end, _OFFSET_MAX)
            last = f"least(coalesce(packed, 1), {end} - at_offset) - 1"
            place = f" + generate_series(greatest(0, {first} - at_offset), {last})"
        found = _rows(
            cursor,
            f"SELECT at_offset{place} FROM {self._schema}.history WHERE {self._within(cursor, rows)} "
            f"ORDER BY at_offset OFFSET {min(count, _OFFSET_MAX)} LIMIT 1",
        )
        return int(found[0][0]) if found else rows.end

    def _skip(self, cursor: Any, rows: Range, count: int) -> tuple[Range, int]:
        """Skip messages, but not so many, and return what is left of both: rows are counted faster than messages."""
        most = _SKIPPED_MIN
        while True:
            own = f"(messages - greatest(0, {min(rows.start, _OFFSET_MAX)} - at_offset))::integer"
            ((skipped, behind),) = _rows(
                cursor,
                f"SELECT sum({own}), max(at_offset + messages) FROM ("
                f"SELECT at_offset, coalesce(packed, 1) AS messages FROM {self._schema}.history "
                f"WHERE {self._within(cursor, rows)} ORDER BY at_offset LIMIT {min(most, count)}) AS looked",
            )
            # A range that ends within a pack has nothing left behind it.
            if skipped is None or skipped > count or behind >= rows.end:
                return rows, count
            rows, count = rows._replace(start=min(behind, rows.end)), count - skipped
            most = min(4 * most, PAGE_ROWS)

    def _has_packs_in(self, cursor: Any) -> bool:
        """Whether a row may be a pack of messages."""
        if self._has_packs is None:
            ((self._has_packs,),) = _rows(
                cursor,
                "SELECT EXISTS (SELECT 1 FROM pg_attribute "
                f"WHERE attrelid = '{self._schema}.history'::regclass AND attname = 'packed')",
            )
        return self._has_packs

    def _within(self, cursor: Any, rows: Range) -> str:
        """Return which rows have messages in a range: of a transaction that it begins within, maybe a pack."""
        row = rows.start & _ROW_MASK
        if not row or not self._has_packs_in(cursor):
            return _between(rows)
        before = f"SELECT at_offset FROM {self._schema}.history WHERE at_offset = {rows.start - row} AND packed > {row}"
        return f"at_offset >= coalesce(({before}), {rows.start}) AND {_below(rows)}"

    def slices(self, rows: Range, count: int, *, goes_on: bool) -> list[Slice]:
        parts, start = [], rows.start
        while start < rows.end:
            end = self.offset_after(Range(rows.shard, start, rows.end), count)
            parts.append(Slice(Range(rows.shard, start, end), goes_on=goes_on))
            start = end
        return parts

    def has_reached(self, shard: int, offset: int) -> bool:
        kept = self.kept()
        return shard in kept and offset <= kept[shard].end

    def read(self, part: Slice, wanted: Wanted) -> Iterator[Any]:
        """Yield the wanted rows of a part. Their transactions have ended: rows do not change, but may be dropped."""
        with self._transaction() as cursor:
            # Those of all queues there ever were: a queue is known before its history is.
            names = dict(_rows(cursor, f"SELECT number, name FROM {self._schema}.queue"))
        if wanted.queues:
            numbers = [number for number, name in names.items() if name in wanted.queues]
            if not numbers:
                return
            chosen = f" AND queue = ANY ('{{{','.join(map(str, numbers))}}}'::integer[])"
        else:
            chosen = ""
        if wanted.from_ms is not None:
            chosen += f" AND settled_at_ms >= {wanted.from_ms}"
        if wanted.until_ms is not None:
            chosen += f" AND settled_at_ms < {wanted.until_ms}"
        for batch in self._pages(part, fields_of(wanted.columns), chosen):
            for messages in unpacked(batch, most=PAGE_ROWS, start=part.rows.start, end=part.rows.end):
                yield DatabaseRows(messages, names).batch(wanted.columns, part.rows.shard)

    def _pages(self, part: Slice, fields: dict[str, str], chosen: str) -> Iterator[Any]:
        """Yield rows as the database has them."""
        has_bodies = not fields.keys().isdisjoint({"body", "attributes"})
        most = BODY_ROWS if has_bodies else PAGE_ROWS
        rest = part.rows
        while True:
            page = self._page(part, rest, fields, f"{chosen} ORDER BY at_offset LIMIT {most}")
            yield from page.batches
            if page.is_whole and page.rows < most:
                return
            rest = rest._replace(start=page.end)
            if has_bodies:
                most = min(max(PAGE_BYTES * page.rows // max(page.size, 1), 1), 4 * most, PAGE_ROWS)

    def _page(self, part: Slice, rest: Range, fields: dict[str, str], chosen: str) -> "_Page":
        with self._transaction() as cursor:
            if self._has_packs_in(cursor):
                fields = {**fields, **pack_field(fields)}
            asked = ", ".join(f"{value} AS {name}" for name, value in fields.items())
            cursor.execute(f"SELECT {asked} FROM {self._schema}.history WHERE {self._within(cursor, rest)}{chosen}")
            page = _Page()
            with cursor.fetch_record_batch() as batches:
                page.read(batches)
            ((first,),) = _rows(cursor, f"SELECT first_kept_offset FROM {self._schema}.moment")
        if first > rest.start and not part.goes_on:
            raise dropped(part.rows.shard, rest.start, first)
        return page

    @contextmanager
    def _transaction(self) -> Iterator[Any]:
        with self._connection.cursor() as cursor:
            cursor.execute("BEGIN READ ONLY")
            try:
                _rows(cursor, _BY_INDEX)
                yield cursor
            finally:
                # It has changed nothing, and a transaction that failed can end only so.
                cursor.execute("ROLLBACK")


class _Page:
    """What the database answers, up to twice the bytes that were meant: rows turn out larger than those before."""

    def __init__(self) -> None:
        self.batches: list[Any] = []
        self.rows = 0
        self.size = 0
        self.is_whole = True

    def read(self, batches: Any) -> None:
        for batch in batches:
            if self.size >= 2 * PAGE_BYTES:
                self.is_whole = False
                return
            if batch.num_rows:
                self.batches.append(batch)
                self.rows += batch.num_rows
                self.size += batch.nbytes

    @property
    def end(self) -> int:
        """Behind the last message."""
        last = self.batches[-1].slice(self.batches[-1].num_rows - 1)
        return int(last.column("at_offset")[0].as_py() + counts_of(last)[0])


def _rows(cursor: Any, statement: str) -> list[Any]:
    cursor.execute(statement)
    found: list[Any] = cursor.fetchall()
    return found


def _between(rows: Range) -> str:
    return f"at_offset >= {min(rows.start, _OFFSET_MAX)} AND {_below(rows)}"


def _below(rows: Range) -> str:
    return f"at_offset < {min(rows.end, _OFFSET_MAX)}"


@contextmanager
def open_database(url: str, schema: str) -> Iterator[DatabaseHistories]:
    try:
        with dbapi.connect(url, autocommit=True) as connection:
            yield DatabaseHistories(connection, schema)
    except adbc_driver_manager.Error as error:
        raise DatabaseRefused(_said(url, str(error))) from None


def _said(url: str, words: str) -> str:
    """Return what the database says is wrong, without a password that libpq may repeat."""
    for password in passwords_in(url):
        words = words.replace(password, "…")
    return f"{without_password(url)} said: {' '.join(words.split())}"
