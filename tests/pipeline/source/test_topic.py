"""Reading a topic: from a server and from its data folder, what a Kafka client reads there."""

import json
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import TopicPartition
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from penstock.broker.records import PlainRecord
from penstock.broker.records import batch_of as plain_batch
from penstock.contract.history_columns import TOPIC
from penstock.log.record import HEADER_BYTES
from penstock.pipeline.options import BadOption
from penstock.pipeline.source.ranges import HistoryDropped, HistoryEndsBefore, Range, Slice, Slices, Wanted, joined
from penstock.pipeline.source.record_batches import BadRecords, batch_of, read_batches
from tests.kafka.brokers import Broker
from tests.kafka.librdkafka import admin, consumer, create, producer
from tests.pipeline.reading import parts_of, read, read_between, stream_of
from tests.pipeline.streams import run
from tests.waiting import wait_until

AT_MS = 1_700_000_000_000
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
WAIT_S = 60
EVERYTHING = Wanted(TOPIC, frozenset(), None, None)


class Filled(NamedTuple):
    """A topic of three partitions, and its records as librdkafka reads them."""

    url: str
    path: str
    rows: list[dict[str, Any]]

    def of(self, *partitions: int) -> list[tuple[int, int]]:
        return [(row["partition"], row["offset"]) for row in self.rows if row["partition"] in partitions]


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Filled]:
    data = tmp_path_factory.mktemp("topics") / "data"
    with Broker(data) as broker:
        # The records are years old, and shall stay.
        create(broker.servers, "events", 3, retention_ms="-1")
        create(broker.servers, "stamped", 1, message_timestamp_type="LogAppendTime")
        for number, codec in enumerate(CODECS):
            made = producer(broker.servers, compression_type=codec)
            for place in range(40):
                made.produce(
                    "events",
                    None if place == 7 else b"value %d %s" % (place, b"x" * (place * number)),
                    key=None if place % 5 else b"key %d" % place,
                    partition=(place + number) % 2,
                    timestamp=AT_MS + number * 100 + place,
                    headers=[("name", b"\xff"), ("none", None)] if place in {3, 39} else None,
                )
            assert made.flush(WAIT_S) == 0
        made = producer(broker.servers)
        made.produce("stamped", b"now")
        assert made.flush(WAIT_S) == 0
        yield Filled(broker.url, str(data), _consumed(broker, 5 * 40))
        assert broker.stop() == 0


def _consumed(broker: Broker, count: int) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    with consumer(broker.servers) as client:
        client.assign([TopicPartition("events", partition, 0) for partition in range(3)])
        while len(rows) < count:
            for message in client.consume(count, WAIT_S):
                assert message.error() is None
                found: Any = message.headers() or ()
                headers = [{"key": name, "value": value} for name, value in found]
                rows.append(
                    {
                        "key": message.key(),
                        "value": message.value(),
                        "topic": message.topic(),
                        "partition": message.partition(),
                        "offset": message.offset(),
                        "at_ms": message.timestamp()[1],
                        "timestampType": 0,
                        "headers": headers or None,
                    }
                )
    return sorted(rows, key=lambda row: (row["partition"], row["offset"]))


def shown(table: Any) -> list[dict[str, Any]]:
    """Return rows of Spark's as the client has them."""
    rows = table.to_pylist()
    for row in rows:
        row["at_ms"] = round(row.pop("timestamp").timestamp() * 1_000)
    return sorted(rows, key=lambda row: (row["partition"], row["offset"]))


def places(options: dict[str, str]) -> list[tuple[int, int]]:
    table = read({**options, "topic": "events", "columns": "partition,offset"})
    return [(row["partition"], row["offset"]) for row in table.to_pylist()]


def test_a_topic_gives_spark_the_records_that_a_kafka_client_reads(filled: Filled) -> None:
    assert shown(read({"url": filled.url, "topic": "events"})) == filled.rows
    assert {row["headers"] is None for row in filled.rows} == {True, False}
    (stamped,) = read({"url": filled.url, "topic": "stamped", "columns": "timestampType,value"}).to_pylist()
    assert stamped == {"timestampType": 1, "value": b"now"}


def test_partitions_offsets_and_times_of_a_topic_are_chosen(filled: Filled) -> None:
    url = {"url": filled.url}
    assert places({**url, "partitions": "1,2"}) == filled.of(1)
    limits = {"startingOffsets": '{"0": 7, "1": 95}', "endingOffsets": '{"0": 30}'}
    assert places({**url, **limits}) == [*filled.of(0)[7:30], *filled.of(1)[95:]]
    since, until = AT_MS + 130, AT_MS + 310
    timed = [(row["partition"], row["offset"]) for row in filled.rows if since <= row["at_ms"] < until]
    assert places({**url, "startingTime": str(since), "endingTime": str(until)}) == timed
    assert 0 < len(timed) < len(filled.rows)
    assert places({**url, "startingOffsets": "latest"}) == []
    with pytest.raises(BadOption, match="partitions names 3; events has: 0, 1, 2"):
        places({**url, "partitions": "3"})


def test_a_topic_is_cut_into_parts_that_join(filled: Filled) -> None:
    options = {"url": filled.url, "topic": "events", "rowsPerPartition": "30", "columns": "partition,offset"}
    parts = parts_of(options)

    assert [read(options, [part]).num_rows for part in parts] == [30, 30, 30, 10] * 2
    assert places({"url": filled.url, "rowsPerPartition": "30"}) == filled.of(0, 1)


def test_a_topic_begins_and_ends_where_the_kafka_connector_would(filled: Filled) -> None:
    place = {"url": filled.url}
    offsets = {"startingOffsets": '{"events": {"0": -1, "1": 95, "2": -2}}', "endingOffsets": '{"1": -1}'}
    assert places({**place, **offsets}) == filled.of(1)[95:]
    at_ms = AT_MS + 300
    found = places({**place, "startingOffsetsByTimestamp": f'{{"0": {at_ms}}}'})
    late = {(row["partition"], row["offset"]) for row in filled.rows if row["at_ms"] >= at_ms}
    # Of one partition what comes before is left out, and of the others nothing.
    assert late <= set(found) < set(filled.of(0, 1))
    assert set(filled.of(1)) < set(found)
    with pytest.raises(BadOption, match="offsets are given for the partition 7; there are: 0, 1, 2"):
        places({"url": filled.url, "startingOffsetsByTimestamp": '{"7": 0}'})


def test_a_read_has_at_least_as_many_tasks_as_it_was_told(filled: Filled) -> None:
    options = {"url": filled.url, "topic": "events", "columns": "partition,offset"}

    assert len(parts_of(options)) == 1
    assert 9 <= len(parts_of({**options, "minPartitions": "9"})) < 40
    assert len(parts_of({**options, "minPartitions": "5000"})) == 200
    assert sorted(places({"url": filled.url, "minPartitions": "9"})) == filled.of(0, 1)


def test_a_stream_waits_for_as_many_records_as_it_was_told(filled: Filled) -> None:
    def ends(said: dict[str, str]) -> list[dict[str, int]]:
        reader = stream_of({"url": filled.url, "topic": "events", "minOffsetsPerTrigger": "150", **said})
        at = {"0": 0, "1": 0, "2": 0}
        first = reader.latestOffset(at, ReadMaxRows(80))
        return [first, reader.latestOffset(first, ReadAllAvailable())]

    whole = {"0": 100, "1": 100, "2": 0}
    # The first batch waits for nothing; behind it there are only 120.
    assert ends({}) == [{"0": 40, "1": 40, "2": 0}] * 2
    assert ends({"minOffsetsPerTrigger": "120"}) == [{"0": 40, "1": 40, "2": 0}, whole]
    assert ends({"maxTriggerDelay": "0s"}) == [{"0": 40, "1": 40, "2": 0}, whole]


def test_a_stream_of_a_topic_has_each_record_once_within_its_limit(filled: Filled) -> None:
    reader = stream_of({"url": filled.url, "topic": "events"})
    reader.prepareForTriggerAvailableNow()
    at, found = reader.initialOffset(), []
    assert at == {"0": 0, "1": 0, "2": 0}
    while (end := reader.latestOffset(at, ReadMaxRows(80))) != at:
        at, end = json.loads(json.dumps([at, end]))
        found.append(read_between(reader, at, end).column("offset").to_pylist())
        at = end

    assert at == {"0": 100, "1": 100, "2": 0}
    assert [len(batch) for batch in found] == [80, 80, 40]
    assert sorted(chain.from_iterable(found)) == sorted(offset for _, offset in filled.of(0, 1))
    with pytest.raises(HistoryEndsBefore, match="has read partition 0 up to offset 101"):
        reader.latestOffset({"0": 101}, ReadAllAvailable())


def test_small_partitions_share_a_task_and_a_repeated_batch_has_the_same_tasks(filled: Filled) -> None:
    _wait_for(filled.path, "events", len(filled.rows))
    for place in ({"url": filled.url}, {"path": filled.path}):
        few, many = ({**place, "topic": "events", "rowsPerPartition": rows} for rows in ("500000", "160"))
        assert [_ranges(task) for task in parts_of(few)] == [[(0, 0, 100), (1, 0, 100)]]
        assert [_ranges(task) for task in parts_of(many)] == [[(0, 0, 100)], [(1, 0, 100)]]
        stream = stream_of(few)
        start, end = {"0": 10, "1": 90, "2": 0}, {"0": 20, "1": 95, "2": 0}
        for _ in range(2):
            assert [_ranges(task) for task in stream.partitions(start, end)] == [[(0, 10, 20), (1, 90, 95)]]
        assert read_between(stream, start, end).column("offset").to_pylist() == [*range(10, 20), *range(90, 95)]


def _ranges(task: InputPartition) -> list[Range]:
    assert isinstance(task, Slice | Slices)
    return [part.rows for part in (task.parts if isinstance(task, Slices) else [task])]


def test_tasks_are_filled_with_small_neighbours_and_large_parts_stay_alone() -> None:
    sizes = [3, 4, 3, 1, 160, 9, 1, 1]
    parts = [Slice(Range(shard, 0, size), goes_on=True) for shard, size in enumerate(sizes)]
    tasks = [[rows.shard for rows in _ranges(task)] for task in joined(parts, 160)]
    assert tasks == [[0, 1, 2], [3], [4], [5, 6], [7]]


def test_the_files_of_an_idle_server_give_all_records_of_its_topics(filled: Filled) -> None:
    # A topic that was created last, and the last commit of a partition, are seen when the logs have been quiet.
    _wait_for(filled.path, "events", len(filled.rows))
    _wait_for(filled.path, "stamped", 1)


def _wait_for(path: str, topic: str, count: int) -> None:
    wait_until(lambda: _shows(path, topic, count), within_s=WAIT_S)


def _shows(path: str, topic: str, count: int) -> bool:
    try:
        return len(read({"path": path, "topic": topic}).to_pylist()) == count
    except BadOption:
        return False


def test_the_files_of_a_topic_give_the_same_records_and_so_do_those_that_are_trimmed(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with Broker(data) as broker:
        create(broker.servers, "other", 1)
        create(broker.servers, "events", 2, retention_ms="-1")
        made = producer(broker.servers)
        for number in range(20):
            made.produce("events", b"%d" % number, partition=0, timestamp=AT_MS + number)
        assert made.flush(WAIT_S) == 0
        told = read({"url": broker.url, "topic": "events"}).to_pylist()
        stream = stream_of({"url": broker.url, "topic": "events"})
        planned = stream.partitions({"0": 0, "1": 0}, {"0": 20, "1": 0})
        _trim(broker, 8)
        with pytest.raises(
            HistoryDropped, match=r"^partition 0 is no longer kept from offset 0 on: what is kept begins at 8"
        ):
            list(stream.read(planned[0]))
        assert places({"url": broker.url}) == [(0, offset) for offset in range(8, 20)]
        assert broker.stop() == 0

    path = {"path": str(data), "topic": "events"}
    assert read(path).to_pylist() == told[8:]
    assert places({"path": str(data), "rowsPerPartition": "5"}) == [(0, offset) for offset in range(8, 20)]
    assert places({"path": str(data), "startingTime": str(AT_MS + 15)}) == [(0, offset) for offset in range(15, 20)]
    with pytest.raises(BadOption, match=r"there is no topic nothing in .*; there are: events, other"):
        read({"path": str(data), "topic": "nothing"})
    with pytest.raises(
        HistoryDropped, match=r"^partition 0 is no longer kept from offset 0 on: what is kept begins at 8"
    ):
        stream_of(path).partitions({"0": 0}, {"0": 20})


def _trim(broker: Broker, before: int) -> None:
    made = admin(broker.servers)
    (future,) = made.delete_records([TopicPartition("events", 0, before)]).values()
    future.result(WAIT_S)


@given(st.data())
def test_records_that_are_not_what_their_batch_says_are_an_error_and_nothing_else(data: st.DataObject) -> None:
    good = plain_batch([PlainRecord(b"k", b"v" * 200, (("a", b"b"),)), PlainRecord(None, None)], at_ms=AT_MS)
    position = data.draw(st.integers(HEADER_BYTES, len(good) - 1))
    bad = bytearray(good)
    bad[position] = data.draw(st.integers(0, 255))
    try:
        rows = batch_of(list(read_batches(memoryview(bytes(bad)))), "events", 0, (0, 2), EVERYTHING)
    except BadRecords:
        return
    if rows is not None:
        rows.validate(full=True)


def test_spark_reads_and_streams_a_topic(filled: Filled, spark: SparkSession, tmp_path: Path) -> None:
    out, checkpoint = str(tmp_path / "out"), str(tmp_path / "checkpoint")
    told = []
    for _ in range(2):
        # The second run finds everything read, and adds nothing.
        reader = spark.readStream.format("penstock").option("url", filled.url).option("topic", "events")
        reader = reader.options(startingTimestamp="0", minPartitions="4", minOffsetsPerTrigger="1")
        stream = reader.option("maxOffsetsPerTrigger", "150").load()
        query = run(stream.writeStream.option("checkpointLocation", checkpoint), out)
        told.append([each["sources"][0] for each in query.recentProgress if each["numInputRows"]])
    first, again = told
    assert ([each["numInputRows"] for each in first], again) == ([150, 50], [])
    assert [json.loads(each["endOffset"]) for each in first] == [
        {"0": 75, "1": 75, "2": 0},
        {"0": 100, "1": 100, "2": 0},
    ]
    assert [json.loads(each["latestOffset"]) for each in first] == [{"0": 100, "1": 100, "2": 0}] * 2
    written = spark.read.parquet(out).toArrow()

    assert shown(written) == filled.rows
