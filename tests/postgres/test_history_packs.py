"""A history in which messages that were acked together are one row is read as if each had one of its own."""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.contract.history_columns import TRANSACTION_ROW_BITS
from penstock.frame import Blobs
from penstock.store.pages import Coded, HistoryPage, HistoryRange
from penstock.store.postgres import history
from penstock.store.postgres.database import Database, PostgresSettings
from penstock.store.postgres.history import HistoryReader, periods
from penstock.store.postgres.statements import statement
from tests.postgres.packs import FIRST, SCHEMAS, Settled, Settling, fill, make_schemas, name_queues, pasts
from tests.postgres.servers import shared_server


@dataclass
class Two:
    """The same history twice, in two schemas of one database: with packs, and without."""

    url: str
    connection: psycopg.Connection[Any]
    runner: asyncio.Runner
    databases: list[Database]

    def fill(self, past: Sequence[Settling]) -> list[HistoryReader]:
        fill(self.connection, past)
        return [HistoryReader(database, lambda: 1_000_000) for database in self.databases]

    def both(self, readers: list[HistoryReader], name: str, *arguments: Any, **named: Any) -> Any:
        """Return what both say, if it is the same."""
        with_packs, without = (self.runner.run(getattr(reader, name)(*arguments, **named)) for reader in readers)
        if isinstance(with_packs, HistoryPage):
            assert plain(with_packs) == plain(without)
        else:
            assert with_packs == without
        return without


def plain(page: HistoryPage) -> dict[str, Any]:
    """Return a page as values that can be compared."""
    return {field.name: _plain(getattr(page, field.name)) for field in fields(page)}


def _plain(column: Any) -> Any:
    if isinstance(column, memoryview):
        return column.format, column.tolist()
    if isinstance(column, Coded):
        return column.codes.tolist(), _plain(column.words)
    return [bytes(each) for each in column] if isinstance(column, Blobs) else column


@pytest.fixture(scope="module")
def two() -> Iterator[Two]:
    url = shared_server().new_database() + "&options=-c%20synchronous_commit%3Doff"
    with asyncio.Runner() as runner, psycopg.connect(url, autocommit=True) as connection:
        databases = [Database(PostgresSettings(url=url, schema=schema, connections_max=1)) for schema in SCHEMAS]

        async def close() -> None:
            for database in databases:
                await database.close()

        runner.run(make_schemas(url))
        name_queues(connection)
        yield Two(url, connection, runner, databases)
        runner.run(close())


offsets = st.builds(
    lambda transaction, row: transaction << TRANSACTION_ROW_BITS | row,
    st.integers(FIRST - 1, FIRST + 13),
    st.integers(0, 11),
)
ranges = st.builds(
    HistoryRange,
    most=st.integers(1, 12),
    from_offset=st.none() | offsets,
    until_offset=st.none() | offsets,
    from_ms=st.none() | st.integers(700, 2_400),
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    past=pasts(),
    asked=st.lists(st.tuples(ranges, st.none() | st.integers(1, 2)), min_size=4, max_size=4),
    counts=st.lists(st.tuples(offsets, st.integers(1, 20)), min_size=2, max_size=2),
    at_ms=st.integers(600, 2_400),
    limits=st.tuples(st.sampled_from([1, 7, 30, 2**24]), st.sampled_from([1, 5, 4_096])),
)
def test_packs_are_read_as_if_each_message_had_a_row(
    two: Two, past: list[Settling], asked: Any, counts: Any, at_ms: int, limits: tuple[int, int]
) -> None:
    readers = two.fill(past)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(history, "HISTORY_PAGE_BYTES_MAX", limits[0])
        patch.setattr(history, "LOOKED_MIN", limits[1])
        for wanted, queue in asked:
            two.both(readers, "page", wanted, queue=queue)
        # From page to page, everything comes once.
        most = asked[0][0].most
        at, end, found = 0, two.both(readers, "span").end_offset, []
        while at < end:
            page = two.both(readers, "page", HistoryRange(from_offset=at, most=most))
            found += page.offsets.tolist()
            assert page.next_offset > at
            at = page.next_offset
    assert found == [each.offset | message.row for each in past for message in each.messages]
    for offset, count in counts:
        two.both(readers, "offset_after", offset, rows=count)
    two.both(readers, "offset_at", at_ms)
    two.both(readers, "look")


def acked(transaction: int, count: int, **kept: Any) -> Settling:
    messages = [Settled(row, (row + 1) << 3 | 2, 1_000 + row, **kept) for row in range(count)]
    return Settling(transaction, 1, 2_000, 3_000, messages, is_ack=True)


def test_a_page_of_packs_is_fetched_no_further_than_it_goes(two: Two) -> None:
    """What is asked of the database is bounded by messages and bytes, not by rows."""
    (reader, _) = two.fill([acked(FIRST + number, 1_000, body=b"x" * 100) for number in range(8)])
    asked: list[int] = []

    class Counting(Database):
        async def ask(self, name: str, *values: Any, **named: Any) -> list[Any]:
            rows = await super().ask(name, *values, **named)
            if name == "history_page":
                asked.append(len(rows))
            return rows

    watched = Counting(two.databases[0].settings)
    reader = HistoryReader(watched, lambda: 1_000_000)
    first = (FIRST << TRANSACTION_ROW_BITS) + 500
    with pytest.MonkeyPatch.context() as patch:
        page = two.runner.run(reader.page(HistoryRange(from_offset=first, most=1_000)))
        assert (len(page), page.offsets[0], page.next_offset) == (
            1_000,
            first,
            (FIRST + 1 << TRANSACTION_ROW_BITS) + 500,
        )
        patch.setattr(history, "HISTORY_PAGE_BYTES_MAX", 150_000)
        page = two.runner.run(reader.page(HistoryRange(from_offset=first, most=8_000)))
        assert len(page) == 1_500
    two.runner.run(watched.close())
    # The bytes of a pack that begins before the page are not counted.
    assert asked == [2, 3]


def test_a_transaction_of_a_million_rows_is_not_searched_for_a_pack(two: Two) -> None:
    """Where a page begins within a transaction, the pack that may have begun before is found by its offset."""
    text = b"EXPLAIN (ANALYZE, FORMAT JSON, TIMING OFF) " + statement("history_reach", "packed")
    rows = [Settled(row + 1, (row + 1) << 3, 1) for row in range(5_000)]
    two.fill([Settling(FIRST, 1, 1, 2, rows), acked(FIRST + 1, 3)])
    two.connection.execute("SET enable_seqscan = off")
    found = two.connection.execute(
        text, {"first": (FIRST << TRANSACTION_ROW_BITS) + 4_990, "end": FIRST + 9 << TRANSACTION_ROW_BITS, "looked": 5}
    ).fetchone()
    assert found is not None
    assert 5 <= most_rows(found[0][0]["Plan"]) <= 10


def most_rows(plan: dict[str, Any]) -> int:
    return max(int(plan["Actual Rows"]), *(most_rows(each) for each in plan.get("Plans", ())), 0)


def test_columns_of_packs_are_stored_as_they_are_in_every_period(two: Two) -> None:
    """Compressing them would cost more than the rest of an ack: in periods there were before, and in those to come."""
    with two.connection.transaction(force_rollback=True):
        for now_ms in (1, 100_000):
            two.connection.execute("SELECT packed.turn_history(%s::bigint, 1000::bigint)", [now_ms])
        found = two.connection.execute(
            "SELECT attrelid::regclass::text, array_agg(DISTINCT attstorage::text) FROM pg_attribute "
            "WHERE attrelid::regclass::text LIKE 'packed.%' "
            "AND attname IN ('keys', 'sent_ats_ms', 'body_sizes', 'attribute_sizes') GROUP BY 1 ORDER BY 1"
        ).fetchall()
    plain = ["e"]
    assert [row for row in found if ".history" in row[0]] == [
        ("packed.history", plain), ("packed.history_1", plain), ("packed.history_2", plain),
    ]  # fmt: skip


def test_a_period_counts_messages_and_ends_with_the_last_of_them(two: Two) -> None:
    two.fill([acked(FIRST, 7), Settling(FIRST + 1, 1, 1, 2, [Settled(4, 8, 1)]), acked(FIRST + 2, 10)])

    async def found() -> list[Any]:
        async with await psycopg.AsyncConnection.connect(two.url) as connection:
            return [await periods(connection, schema) for schema in SCHEMAS]

    (with_packs,), (without,) = two.runner.run(found())
    assert with_packs.rows == without.rows == 18
    assert with_packs.last_offset == without.last_offset == (FIRST + 2 << TRANSACTION_ROW_BITS) + 9


def test_a_period_stays_until_the_last_message_of_its_last_pack_was_read(two: Two) -> None:
    two.fill([acked(FIRST, 10)])
    last = (FIRST << TRANSACTION_ROW_BITS) + 9
    for schema in SCHEMAS:
        with two.connection.transaction(force_rollback=True):
            two.connection.execute(f"UPDATE {schema}.moment SET period = 3".encode())
            trim = f"SELECT {schema}.trim_history(%s::bigint, NULL, true)".encode()
            assert two.connection.execute(trim, [last]).fetchone() == (0,)
            assert two.connection.execute(trim, [last + 1]).fetchone() == (FIRST + 1 << TRANSACTION_ROW_BITS,)
