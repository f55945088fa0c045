"""Reading the history out of a store in PostgreSQL: the rows of its server, by ADBC."""

import json
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

import penstock
from penstock.pipeline.locations import DatabaseRefused, HistoryLocation, read_history
from penstock.pipeline.source import database
from penstock.pipeline.source.ranges import HistoryDropped, HistoryEndsBefore
from penstock.pipeline.source.reader import HistoryStreamReader
from penstock.settings import ServerSettings
from tests.pipeline.reading import parts_of, read, read_between, stream_of
from tests.pipeline.source.test_server import TOLD_S_MAX, live, told
from tests.pipeline.streams import run
from tests.postgres.schemas import empty_schema
from tests.postgres.servers import shared_server
from tests.server.serving import server
from tests.waiting import wait_until

ALL = ReadAllAvailable()


class Past(NamedTuple):
    """A database with a past, and what a server on it gives Spark."""

    url: str
    rows: list[dict[str, Any]]


@pytest.fixture(scope="module")
def past(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Past]:
    # Its own, as the schema for all tests is emptied by each.
    url = shared_server().new_database()
    with server(ServerSettings(port=0, data=tmp_path_factory.mktemp("data"), store=url)) as running:
        with penstock.connect(running.url).sync() as client:
            settled = live(client)
        told(running.url, settled, shards=1)
        yield Past(url, read({"url": running.url}).to_pylist())


def offsets(options: dict[str, str]) -> list[int]:
    found: list[int] = read({**options, "columns": "offset"}).column("offset").to_pylist()
    return found


def test_a_database_gives_spark_the_rows_and_offsets_of_its_server(past: Past, monkeypatch: pytest.MonkeyPatch) -> None:
    # Pages so small that some begin within a transaction.
    monkeypatch.setattr(database, "BODY_ROWS", 7)
    monkeypatch.setattr(database, "PAGE_ROWS", 7)

    assert read({"url": past.url}).to_pylist() == past.rows
    assert {row["outcome"] for row in past.rows} == {"acked", "buried", "purged", "deleted"}
    assert any(row["data"] for row in past.rows)
    assert any(row["group"] for row in past.rows)
    assert any(row["first_received_at"] is None for row in past.rows)
    assert any(row["first_queue"] != row["queue_id"] for row in past.rows)


def test_a_database_of_several_has_the_shard_that_their_server_says(past: Past) -> None:
    with psycopg.connect(past.url, autocommit=True) as connection:
        connection.execute("UPDATE penstock.moment SET queue_range = 3")
        try:
            assert set(read({"url": past.url, "columns": "shard"}).column("shard").to_pylist()) == {3}
        finally:
            connection.execute("UPDATE penstock.moment SET queue_range = 0")


def test_columns_queues_times_and_offsets_of_a_database_are_chosen(past: Past) -> None:
    url = {"url": past.url}
    chosen = read({**url, "columns": "priority,queue", "queue": "mail,gone"}).to_pylist()
    assert chosen == [
        {"priority": row["priority"], "queue": row["queue"]} for row in past.rows if row["queue"] in {"mail", "gone"}
    ]
    assert offsets({**url, "queue": "nowhere"}) == []

    times = sorted({row["settled_at"] for row in past.rows})
    first, last = times[1], times[-1]
    within = [row["offset"] for row in past.rows if first <= row["settled_at"] < last]
    assert offsets({**url, "startingTime": first.isoformat(), "endingTime": last.isoformat()}) == within

    everything = [row["offset"] for row in past.rows]
    low, high = everything[5], everything[30]
    limits = {"startingOffsets": json.dumps({"0": low}), "endingOffsets": json.dumps({"0": high})}
    assert offsets({**url, **limits}) == everything[5:30]


def test_a_range_of_a_database_is_cut_into_parts_of_just_so_many_rows(past: Past) -> None:
    options = {"url": past.url, "rowsPerPartition": "10", "columns": "offset"}
    parts = parts_of(options)

    found = [read(options, [part]).num_rows for part in parts]
    assert found == [10] * (len(past.rows) // 10) + [len(past.rows) % 10]


def test_a_stream_of_a_database_reads_everything_once_up_to_its_limit(past: Past) -> None:
    everything = [row["offset"] for row in past.rows]
    reader = stream_of({"url": past.url})
    reader.prepareForTriggerAvailableNow()
    at, found = reader.initialOffset(), []
    while (end := reader.latestOffset(at, ReadMaxRows(20))) != at:
        at, end = json.loads(json.dumps([at, end]))
        found.append(read_between(reader, at, end).column("offset").to_pylist())
        # Tried again, it is the same batch.
        assert read_between(stream_of({"url": past.url}), at, end).column("offset").to_pylist() == found[-1]
        at = end

    assert list(chain.from_iterable(found)) == everything
    assert [len(batch) for batch in found] == [20] * (len(everything) // 20) + [len(everything) % 20]
    with pytest.raises(HistoryEndsBefore, match="this is another history than that of the checkpoint"):
        reader.latestOffset({"0": at["0"] + 1}, ALL)


def settle(connection: psycopg.Connection[Any], key: int) -> int:
    """Write a row of history, as every verb that settles a message does within its transaction; return its offset."""
    found = connection.execute(
        "INSERT INTO penstock.history SELECT 1, pg_current_xact_id()::text::bigint << 24 | %s, 1, %s, NULL, NULL, "
        "1000, 0, 0, 2000, 0, 2, 1, %s, NULL, NULL, NULL RETURNING at_offset",
        [key, key << 3, b"\xff"],
    ).fetchone()
    assert found is not None
    return int(found[0])


def end_behind(reader: HistoryStreamReader, start: dict[str, int], offset: int) -> dict[str, int]:
    """Return how far a stream goes once it passes a row.

    Whatever runs on the same PostgreSQL at that moment, a server of another test or autovacuum, holds it up.
    """
    wait_until(lambda: reader.latestOffset(start, ALL)["0"] > offset, within_s=TOLD_S_MAX)
    return reader.latestOffset(start, ALL)


def test_a_stream_does_not_pass_a_transaction_that_commits_late() -> None:
    url = empty_schema().url
    reader = stream_of({"url": url})
    with psycopg.connect(url) as early, psycopg.connect(url) as late:
        early.execute("SELECT pg_current_xact_id()")
        last = settle(late, 2)
        late.commit()
        start = reader.initialOffset()
        # The later one is there for all to see, and must wait for the earlier one.
        assert reader.latestOffset(start, ALL) == start
        settle(early, 1)
        early.commit()
        end = end_behind(reader, start, last)
    rows = read({"url": url, "columns": "number,offset,group"}).to_pylist()

    assert [row["number"] for row in rows] == [1, 2]
    assert [row["group"] for row in rows] == ["\ufffd"] * 2
    assert read_between(reader, start, end).column("offset").to_pylist() == [row["offset"] for row in rows]


def test_rows_of_a_database_that_were_dropped_are_an_error_unless_told_otherwise() -> None:
    url = empty_schema().url
    with psycopg.connect(url) as connection:
        last = settle(connection, 1)
    strict, lenient = stream_of({"url": url}), stream_of({"url": url, "failOnDataLoss": "false"})
    start = strict.initialOffset()
    end = end_behind(strict, start, last)
    # Planned before retention comes, and read after.
    planned, told = strict.partitions(start, end), parts_of({"url": url, "columns": "offset"})
    with psycopg.connect(url) as connection:
        first = connection.execute("SELECT first_kept_offset FROM penstock.moment").fetchone()
        connection.execute("UPDATE penstock.moment SET first_kept_offset = %s", [end["0"]])
        connection.execute("DELETE FROM penstock.history")
    try:
        with pytest.raises(HistoryDropped, match="failOnDataLoss=false"):
            list(strict.read(planned[0]))
        with pytest.raises(HistoryDropped, match="is no longer kept"):
            strict.partitions(start, end)
        assert lenient.partitions(start, end) == []
        assert read({"url": url, "columns": "offset"}, told).num_rows == 0
    finally:
        with psycopg.connect(url) as connection:
            connection.execute("UPDATE penstock.moment SET first_kept_offset = %s", first)


def test_a_database_that_says_no_is_quoted_without_its_password(past: Past) -> None:
    with pytest.raises(DatabaseRefused, match=r'schema "elsewhere" does not exist|relation "elsewhere.moment"'):
        read({"url": f"{past.url}{'&' if '?' in past.url else '?'}schema=elsewhere"})
    with pytest.raises(DatabaseRefused) as error:
        read({"url": "postgresql://penstock:open sesame@/shop?host=/tmp/nowhere"})
    assert "postgresql://penstock:…@/shop" in str(error.value)
    assert "sesame" not in str(error.value)


def test_spark_streams_a_database_and_goes_on_after_a_stop(past: Past, spark: SparkSession, tmp_path: Path) -> None:
    out, checkpoint = str(tmp_path / "out"), str(tmp_path / "checkpoint")
    for _ in range(2):
        # The second run finds everything read, and adds nothing.
        stream = spark.readStream.format("penstock").option("url", past.url).option("maxRowsPerTrigger", "30").load()
        run(stream.writeStream.option("checkpointLocation", checkpoint), out)
    written = spark.read.parquet(out).orderBy("offset").toArrow()

    assert written.to_pylist() == past.rows
    place = HistoryLocation(where=past.url, queues=("mail",))
    named = read_history(spark, place).select("id").toArrow().column("id").to_pylist()
    assert named == [
        f"{row['first_queue']:x}-{row['number'] * 8 + row['sent_tier']:x}"
        for row in past.rows
        if row["queue"] == "mail"
    ]
