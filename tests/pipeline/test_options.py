"""What a read may be told, and how it says no."""

import pytest

from penstock.contract.history_columns import HISTORY, TOPIC
from penstock.pipeline.options import READ_OPTIONS, BadOption, read_options
from penstock.pipeline.source.reader import schema_for

FOLDER = {"path": "/data"}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"queue": "a"}, "neither url nor path is given; say one"),
        ({}, "a table of a catalog cannot be read from Penstock"),
        ({"url": "http://h", "option.url": "http://h", "provider": "penstock"}, "say CREATE TEMPORARY VIEW … USING"),
        ({"url": "http://h", "path": "/data"}, "both url and path are given; say one"),
        ({"url": "localhost:8080"}, "url is 'localhost:8080'; it must be an address such as http://127.0.0.1:8080"),
        ({"url": "http://"}, "url is 'http://'; it must be an address such as http://127.0.0.1:8080"),
        ({"url": "http://h:99999"}, "url is 'http://h:99999'; it must be an address"),
        ({"url": "http://u:sesame@h"}, "url is 'http://u:…@h'; it must be an address"),
        ({"url": "http://h", "key": "ses\name"}, "key has a character that a header cannot have"),
        ({"url": "http://h", "key": "clé"}, "key has a character that a header cannot have"),
        ({"path": "hdfs://name/data"}, "segments are read as files: one that every executor has under this name"),
        ({"path": "http://localhost"}, "the option for a server is url"),
        ({**FOLDER, "queues": "a"}, "there is no option 'queues'. Do you mean queue? There are: url, path, key"),
        ({**FOLDER, "zzz": "a"}, "there is no option 'zzz'. There are: url, path, key"),
        ({**FOLDER, "read": "all"}, "read is 'all'; it must be history or live"),
        ({**FOLDER, "queue": "a,,b"}, "queue is 'a,,b'; it must be names of queues, with commas between them"),
        ({**FOLDER, "queue": "orders,a/../b"}, "a name is 'a/../b'; a name has A-Z a-z 0-9 _ - and dots"),
        ({**FOLDER, "queue": "q_1"}, "a name is 'q_1'; names that begin with 'q_' are those of ids"),
        ({**FOLDER, "columns": "queue,colour"}, "there is no column 'colour'; there are: queue, queue_id"),
        ({**FOLDER, "columns": "queue,queue"}, "a column is named twice"),
        ({**FOLDER, "startingTime": "soon"}, "startingTime is 'soon'; it must be a time as RFC 3339, such as 2026-"),
        ({**FOLDER, "endingTime": "-1"}, "endingTime is '-1'; it must be a time as RFC 3339"),
        ({**FOLDER, "startingTime": "1969-12-31T23:59:59Z"}, "it is outside the years 1970 to 9999"),
        ({**FOLDER, "endingTime": "253402300800000"}, "it is outside the years 1970 to 9999"),
        ({**FOLDER, "endingTime": "9" * 30}, "it is outside the years 1970 to 9999"),
        ({**FOLDER, "startingOffsets": "first"}, "startingOffsets is 'first'; it must be earliest, latest, or"),
        ({**FOLDER, "endingOffsets": '{"0": true}'}, "'0': True is no shard with an offset from 0 on"),
        ({**FOLDER, "endingOffsets": "[1]"}, "it is no JSON object"),
        ({**FOLDER, "maxRowsPerTrigger": "0"}, "maxRowsPerTrigger is '0'; it must be a number from 1 on"),
        ({**FOLDER, "rowsPerPartition": "many"}, "rowsPerPartition is 'many'; it must be a number from 1 on"),
        ({**FOLDER, "failOnDataLoss": "yes"}, "failOnDataLoss is 'yes'; it must be true or false"),
        ({**FOLDER, "read": "live"}, "only a server knows what is in its queues now; say url"),
        (
            {"url": "postgresql://h/shop", "read": "live"},
            "url is a database: only a server knows what is in its queues",
        ),
        ({"url": "postgresql://h/shop", "schema": "Shop"}, "schema is 'Shop'; it must be a name of a-z 0-9 _"),
        ({"url": "postgresql://h/shop", "schema": "user"}, "schema is 'user'; that is a word of SQL"),
        ({"url": "http://h", "schema": "shop"}, "schema is for a database"),
        ({"url": "postgresql://h/shop?schema=Shop"}, "schema is 'Shop'; it must be a name of a-z 0-9 _"),
        ({"url": "postgresql://h/shop?schema=a", "schema": "b"}, "schema is 'b', and url says 'a': say one"),
        ({"path": "postgresql://u:sesame@h/shop"}, "path is 'postgresql://u:…@h/shop'; it must be a folder"),
        ({**FOLDER, "partitions": "0"}, "partitions is for a topic, and no topic is named"),
        ({**FOLDER, "topic": "events", "partitions": "0,-1"}, "partitions is '0,-1'; it must be numbers, with commas"),
        ({**FOLDER, "topic": "events", "queue": "a"}, "queue is for queues, and topic is given: say one or the other"),
        ({**FOLDER, "topic": "events", "columns": "outcome"}, "there is no column 'outcome'; there are: key, value"),
        ({"url": "postgresql://h/shop", "topic": "events"}, "topics are kept by a server in its data folder"),
        ({"url": "http://h", "read": "live", "endingTime": "0"}, "endingTime is for history; live messages are not"),
        ({"url": "http://h", "read": "live", "minPartitions": "4"}, "minPartitions is for history; live messages are"),
        ({**FOLDER, "startingTimestamp": "soon"}, "startingTimestamp is 'soon'; it must be a time as RFC 3339"),
        ({**FOLDER, "startingTime": "0", "startingTimestamp": "0"}, "are two names of one option; give one of them"),
        ({**FOLDER, "maxRowsPerTrigger": "1", "maxOffsetsPerTrigger": "1"}, "are two names of one option"),
        ({**FOLDER, "startingOffsetsByTimestamp": '{"0": -1}'}, "'0': -1 is no shard with a time from 0 on"),
        ({**FOLDER, "startingOffsets": "latest", "startingOffsetsByTimestamp": '{"0": 1}'}, "both say where to begin"),
        ({**FOLDER, "startingOffsets": '{"0": -3}'}, "from 0 on, or -1 for the newest and -2 for the oldest"),
        (
            {**FOLDER, "topic": "a", "endingOffsets": '{"a": {}, "b": {}}'},
            "names other topics than a, and a read is of",
        ),
        ({**FOLDER, "minOffsetsPerTrigger": "9"}, "offsets of a history rise by frames and do not count rows"),
        ({**FOLDER, "topic": "a", "maxTriggerDelay": "soon"}, "maxTriggerDelay is 'soon'; it must be a time such as"),
        ({**FOLDER, "minPartitions": "0"}, "minPartitions is '0'; it must be a whole number from 1 to 100000"),
        ({**FOLDER, "includeHeaders": "true"}, "includeHeaders is for a topic, and no topic is named"),
        ({**FOLDER, "topic": "a", "includeHeaders": "false", "columns": "headers"}, "there is no column 'headers'"),
    ],
)
def test_an_option_that_is_wrong_is_told_what_is_allowed(given: dict[str, str], said: str) -> None:
    with pytest.raises(BadOption) as error:
        read_options(given)

    assert said in str(error.value)


def test_the_address_of_a_database_may_name_the_schema_and_the_driver_never_sees_it() -> None:
    options = read_options({"url": "postgresql://h/shop?sslmode=require&schema=queues"})

    assert (options.url, options.schema) == ("postgresql://h/shop?sslmode=require", "queues")
    assert read_options({"url": "postgresql://h/shop"}).schema == "penstock"


def test_the_name_of_an_option_knows_no_case() -> None:
    assert read_options({"PATH": "/data", "rowsperpartition": "7"}).rows_per_partition == 7


def test_a_number_of_rows_may_be_larger_than_any_history() -> None:
    assert read_options({**FOLDER, "rowsPerPartition": "9" * 30}).rows_per_partition == 2**53


@pytest.mark.parametrize(
    ("text", "at_ms"),
    [
        ("2026-03-01T12:00:00Z", 1_772_366_400_000),
        ("2026-03-01T13:00:00+01:00", 1_772_366_400_000),
        ("2026-03-01 12:00:00.001", 1_772_366_400_001),
        ("2026-03-01T12:00:00.000001Z", 1_772_366_400_001),
        ("2026-03-01", 1_772_323_200_000),
        ("1772366400000", 1_772_366_400_000),
        ("9999-12-31T23:59:59.999Z", 253_402_300_799_999),
    ],
)
def test_a_time_is_in_utc_unless_it_says_otherwise_and_rounded_up_to_milliseconds(text: str, at_ms: int) -> None:
    assert read_options({**FOLDER, "startingTime": text}).from_ms == at_ms


def test_the_key_of_the_environment_is_used_and_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_KEY", "from-the-environment")

    assert read_options({"url": "http://h"}).key == "from-the-environment"
    # As a file with a line in it has it.
    monkeypatch.setenv("PENSTOCK_KEY", "from-a-file\n")
    assert read_options({"url": "http://h"}).key == "from-a-file"
    options = read_options({"url": "http://h", "key": "sesame"})
    assert options.key == "sesame"
    assert "sesame" not in repr(options)
    assert "sesame" not in repr(read_options({"url": "postgresql://u:sesame@h/shop"}))


def test_the_schema_has_the_columns_that_were_chosen_in_their_order() -> None:
    assert schema_for({**FOLDER, "columns": "offset, outcome"}) == "`offset` BIGINT, `outcome` STRING"
    assert schema_for(FOLDER).count("`") == 2 * len(HISTORY)
    assert schema_for({"url": "http://h", "read": "live", "columns": "state"}) == "`state` STRING"


def test_each_option_is_explained_once() -> None:
    assert len({option.name.lower() for option in READ_OPTIONS}) == len(READ_OPTIONS)
    assert all(option.allowed and option.meaning.endswith(".") for option in READ_OPTIONS)


def test_the_names_of_the_kafka_connector_mean_what_they_mean_there() -> None:
    said = {
        "topic": "events",
        "startingTimestamp": "1772366400000",
        "endingTimestamp": "2026-03-01T13:00:00Z",
        "maxOffsetsPerTrigger": "9",
        "maxTriggerDelay": "30s",
        "startingOffsets": '{"events": {"0": 23, "1": -2}}',
        "includeHeaders": "false",
    }
    options = read_options({**FOLDER, **said})

    assert (options.from_ms, options.until_ms) == (1_772_366_400_000, 1_772_370_000_000)
    assert (options.rows_per_trigger, options.trigger_delay_ms_max) == (9, 30_000)
    assert options.starting == {0: 23, 1: -2}
    assert [column.name for column in TOPIC if column not in options.columns] == ["headers"]
