"""Reading packs of a history out of PostgreSQL: Spark gets what it got when each message had a row of its own."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import psycopg
import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.contract.history_columns import TRANSACTION_ROW_BITS
from penstock.history_arrow import schema_of
from penstock.pipeline.options import ReadOptions, read_options
from penstock.pipeline.source import database
from penstock.pipeline.source.database import DatabaseHistories, open_database
from penstock.pipeline.source.ranges import Range, Wanted, batch_ranges
from tests.pipeline.reading import read
from tests.postgres.packs import FIRST, SCHEMAS, Settled, Settling, fill, make_schemas, name_queues, pasts
from tests.postgres.servers import shared_server

COLUMNS = ("", "offset", "key,sent_at", "tier,attributes", "data,outcome,group", "priority,queue,number,shard")


@dataclass
class Two:
    """The same history twice, with packs and without: where Spark finds each."""

    urls: list[str]
    connection: psycopg.Connection[Any]
    histories: list[DatabaseHistories]

    def both(self, **given: str) -> Any:
        """Return what is read from both, if it is the same: in the same parts, of just so many messages."""
        (with_packs, parts), (without, same_parts) = (
            _table(each, read_options({"url": self.urls[0], **given})) for each in self.histories
        )
        assert parts == same_parts
        assert with_packs.to_pylist() == without.to_pylist()
        return without


def _table(histories: DatabaseHistories, options: ReadOptions) -> tuple[Any, list[Range]]:
    """Read as Spark does, by a connection that is there already."""
    wanted = Wanted(options.columns, frozenset(options.queues), options.from_ms, options.until_ms)
    batches: list[Any] = []
    parts: list[Range] = []
    for rows in batch_ranges(histories, options):
        for part in histories.slices(rows, options.rows_per_partition, goes_on=True):
            parts.append(part.rows)
            batches += histories.read(part, wanted)
    for batch in batches:
        batch.validate(full=True)
    return pa.Table.from_batches(batches, schema_of(options.columns)), parts


@pytest.fixture(scope="module")
def two() -> Iterator[Two]:
    url = shared_server().new_database()
    asyncio.run(make_schemas(url))
    with ExitStack() as stack:
        to = f"{url}&options=-c%20synchronous_commit%3Doff"
        connection = stack.enter_context(psycopg.connect(to, autocommit=True))
        name_queues(connection)
        histories = [stack.enter_context(open_database(url, schema)) for schema in SCHEMAS]
        yield Two([f"{url}&schema={schema}" for schema in SCHEMAS], connection, histories)


@st.composite
def choices(draw: st.DrawFn) -> dict[str, str]:
    """Options of a read, as far as each is drawn."""
    chosen = {"rowsPerPartition": str(draw(st.integers(1, 12)))}
    if columns := draw(st.sampled_from(COLUMNS)):
        chosen["columns"] = columns
    if draw(st.booleans()):
        chosen["queue"] = draw(st.sampled_from(["queue-1", "queue-2", "queue-1,queue-2"]))
    row = st.builds(
        lambda transaction, place: transaction << TRANSACTION_ROW_BITS | place, st.integers(9, 24), st.integers(0, 11)
    )
    if draw(st.booleans()):
        chosen["startingOffsets"] = json.dumps({"0": draw(row)})
    if draw(st.booleans()):
        chosen["endingOffsets"] = json.dumps({"0": draw(row)})
    return chosen


@settings(max_examples=60, deadline=None)
@given(past=pasts(), chosen=choices(), pages=st.tuples(st.integers(1, 9), st.sampled_from([1, 40, 2**24])))
def test_spark_gets_packs_as_rows_of_their_messages(
    two: Two, past: list[Settling], chosen: dict[str, str], pages: tuple[int, int]
) -> None:
    fill(two.connection, past)
    with pytest.MonkeyPatch.context() as patch:
        for name in ("PAGE_ROWS", "BODY_ROWS", "_SKIPPED_MIN"):
            patch.setattr(database, name, pages[0])
        patch.setattr(database, "PAGE_BYTES", pages[1])
        found = two.both(**chosen)
    if chosen.keys().isdisjoint({"queue", "startingOffsets", "endingOffsets"}):
        assert found.num_rows == sum(len(each.messages) for each in past)


def test_times_choose_among_packs(two: Two) -> None:
    messages = [Settled(row, (row + 1) << 3 | 1, 5_000 + row, b"body", b"{}" if row % 2 else None) for row in range(50)]
    past = [Settling(FIRST + number, 1, 9_000, 10_000 * (number + 1), messages, is_ack=True) for number in range(4)]
    fill(two.connection, past)
    assert read({"url": two.urls[0]}).to_pylist() == read({"url": two.urls[1]}).to_pylist()
    found = two.both(startingTime="1970-01-01T00:00:20Z", endingTime="1970-01-01T00:00:40Z")
    assert found.num_rows == 100
    assert found.column("attributes").to_pylist()[:2] == [None, "{}"]
    assert found.column("priority").to_pylist()[0] == "HIGH"


def test_parts_have_just_so_many_messages_wherever_packs_begin(two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    # So few rows at a time that some are skipped whole.
    monkeypatch.setattr(database, "_SKIPPED_MIN", 1)
    nine = [Settled(row, (row + 1) << 3, 1) for row in range(9)]
    fill(two.connection, [Settling(FIRST + number, 1, 1, 2, nine, is_ack=True) for number in range(8)])
    two.both(rowsPerPartition="12", columns="offset")
    with_packs = two.histories[0]
    (kept,) = with_packs.kept().values()
    starts = [part.rows.start for part in with_packs.slices(kept, 12, goes_on=False)]
    assert starts == [0, *(((FIRST + at // 9) << TRANSACTION_ROW_BITS) + at % 9 for at in range(12, 72, 12))]


def test_a_page_of_packs_that_turn_out_large_is_left_in_the_middle(two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many rows were asked for, what is too much is not kept, and asked for again."""
    monkeypatch.setattr(database, "PAGE_BYTES", 2**20)
    monkeypatch.setattr(database, "BODY_ROWS", 100)
    body = b"x" * 2**19
    past = [
        Settling(FIRST + number, 1, 1, 2, [Settled(0, 8, 3, body), Settled(1, 16, 3, body)], is_ack=True)
        for number in range(48)
    ]
    fill(two.connection, past)
    asked: list[int] = []
    read_page = database._Page.read

    def noting(page: Any, batches: Any) -> None:
        read_page(page, batches)
        asked.append(page.rows)

    monkeypatch.setattr(database._Page, "read", noting)
    found = two.both(columns="data,offset")
    assert found.num_rows == 96
    assert max(asked) < 48


def test_a_schema_of_before_packs_is_read(two: Two) -> None:
    """Spark may be newer than the servers that migrate the schema."""
    fill(two.connection, [Settling(FIRST, 1, 1, 2, [Settled(3, 8, 1), Settled(5, 16, 1)])])
    two.connection.execute("CREATE SCHEMA before")
    two.connection.execute("CREATE TABLE before.moment AS SELECT first_kept_offset FROM single.moment")
    two.connection.execute("CREATE TABLE before.queue AS SELECT * FROM single.queue")
    two.connection.execute("CREATE TABLE before.history AS SELECT * FROM single.history")
    two.connection.execute("CREATE INDEX ON before.history (at_offset)")
    for column in ("packed", "keys", "sent_ats_ms", "body_sizes", "attribute_sizes"):
        two.connection.execute(f"ALTER TABLE before.history DROP COLUMN {column}".encode())
    url = two.urls[0].replace("schema=packed", "schema=before")
    found = read({"url": url, "rowsPerPartition": "1"})
    assert found.to_pylist() == two.both().to_pylist()
    with open_database(two.urls[0].partition("&schema")[0], "before") as histories:
        assert histories.kept()[0].end == FIRST + 1 << TRANSACTION_ROW_BITS
