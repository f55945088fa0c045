"""What the reference says of the source for Spark: its options, columns and errors, as the code has them."""

from penstock.contract.history_columns import HISTORY, LIVE, TOPIC, Column
from penstock.pipeline.options import READ_OPTIONS, Option

OPENING = """\
`spark.read.format("penstock")` gives settled and live messages, and records of topics, as DataFrames;
`spark.readStream` gives settled messages and records as they come. It registers itself where `penstock[spark]` is
installed, or where the package is shipped with `--py-files`.

```text
rows = spark.read.format("penstock").option("url", "http://127.0.0.1:8080").option("queue", "orders,mail").load()
rows = spark.read.format("penstock").option("columns", "queue,outcome,settled_at").load("/var/lib/penstock")
rows = spark.read.format("penstock").option("url", "postgresql://reader@db/shop").load()
events = spark.read.format("penstock").option("url", "http://127.0.0.1:8080").option("topic", "events").load()
live = spark.read.format("penstock").option("url", "http://127.0.0.1:8080").option("read", "live").load()

stream = spark.readStream.format("penstock").option("url", url).option("maxRowsPerTrigger", "1000000").load()
stream.writeStream.option("checkpointLocation", "./checkpoint").trigger(availableNow=True).start("./messages")
```"""

_PLACES = """\
## From a server, or directly from what it keeps

A server and its data folder, or its database, give the same rows with the same offsets. A stream may change from one to
the other.

- **A server** (`url`) is asked over HTTP, by several tasks at once. It needs `penstock[arrow]`.
  Executors need pyarrow and nothing else of a
  server. The API key must be good for all queues, deleted ones included. A server that is busy or restarts is asked
  again for about a quarter of a minute.
- **A data folder** (`path`) is read directly, also while a server uses it: nothing is locked, nothing is changed,
  every CRC is checked. Executors need `crc32c`, and access to the folder. While the server runs, a row is visible once
  a later commit, or two quiet seconds, have proven it durable; after a clean stop all rows are. If the server was
  killed, the last commit is visible after its next start.
- **A database** (`url` with `postgresql://…`) is asked by ADBC, by several tasks at once, while servers use it or
  not. Executors need the extra `spark-postgres`, and to reach the database; the user needs `SELECT` on `history`,
  `moment` and `queue`. Each page is read in a short read-only transaction, so a slow job blocks nothing. The rows of a
  transaction are visible once no older one runs: a transaction that is left open delays the history, and is never
  skipped. A password belongs into the file that `passfile` in the address names, on every
  executor, or else is in the address, which is not shown. There is one shard, 0; of a database
  that is one of [several](../how-to/spread-queues-over-databases.md), with the number that their server has for it.

Name the columns that you need: Spark does not tell a Python source which it uses, and columns that are not named are
neither fetched nor converted. The same holds for times and queues: filters in Spark give the same rows, options are
faster. A read is planned once; call `load()` again to see newer rows. A queue without a history, or one that never
existed, has no rows.

In SQL, a read is a temporary view, `CREATE TEMPORARY VIEW settled USING penstock OPTIONS (url 'http://127.0.0.1:8080')`.
`CREATE TABLE` is refused: Spark hands the options of a table to no source in Python.

Times without a zone are in UTC. `startingTime` and `endingTime` go by `settled_at`; «from this one on» and «before
that one» are exact. A stream with `startingTime` leaves out rows that were settled earlier for as long as it runs."""

_TOPICS = """\
## Topics

With `topic` set, the records of a topic are read: from a server that keeps topics, over HTTP, or from its
data folder. What is said here of shards holds for partitions; offsets are those of Kafka's clients.

- `startingOffsets` and `endingOffsets` name partitions, `{"0": 100, "1": 250}`; one that is not named has no limit.
- `startingTime` and `endingTime` go by `timestamp`, and are exact, whatever order producers stamp their records in.
- `maxRowsPerTrigger` and `rowsPerPartition` count offsets; a compacted topic has fewer records than that.
- Partitions in which there is little to read share a task, of a sixteenth of `rowsPerPartition` at most.
- The API key must be good for the topic. Nothing is committed, and no consumer group is involved.
- Batches that are packed (gzip, snappy, lz4, zstd) are unpacked on the executors, by pyarrow.
- Of the data folder of a running server, the last commit to a partition, or a topic that was just created, is seen
  when another one follows, or after two quiet seconds.
- A topic that was deleted and made again has other records at the same offsets: begin with a new checkpoint."""

_STREAMS = """\
## Streams

The offset of a stream is that of the next row, by shard: `{"0": 393216}`. The same two offsets always give the same
rows, so a batch that is tried again after a crash is the same batch, and a sink that knows its batches has every row
once. Nothing is committed to the server: it keeps its history for seven days or 10 GiB, read or not.

`maxRowsPerTrigger` takes whole frames, at least one, and counts rows of all queues. A frame has at most 65,536 rows.
From a database it takes exactly that many rows. Shards with new rows share it equally. `AvailableNow` ends at the last
row that was there when it began."""

_PROGRESS = """\
## What a batch of a stream tells

Of each batch, the progress of a query (`query.lastProgress`, or a listener) has what Spark 4.3 lets a source in
Python say:

| of `sources[0]` | meaning |
|---|---|
| `numInputRows`, `processedRowsPerSecond` | rows of this batch, and how fast they went |
| `startOffset`, `endOffset` | from where, and up to where, by shard or partition, as a text of JSON |
| `latestOffset` | where each of them ended when the batch began |

What a batch leaves, `latestOffset` minus `endOffset`, is the lag of a topic by partition, in records. Offsets of a
history rise by frames, so there the difference says which shard is behind, and not by how much. For the lag in seconds,
let the query look at its own rows: `rows.observe("batch", f.max("settled_at").alias("newest"))` puts it into
`observedMetrics`. `sources[0].metrics`, where Kafka's connector has `avgOffsetsBehindLatest`, stays empty: sources in
Python have no call for it. [Follow a topic with Spark](../how-to/follow-a-topic-with-spark.md) shows both in a
program."""

# An option of Spark's connector for Kafka, ours, and what differs or why there is none.
_KAFKA = (
    ("kafka.bootstrap.servers", "url", "The HTTP address of the server; or `path`, its data folder."),
    ("subscribe", "topic", "One topic for each read; `union` joins several."),
    ("assign", "topic, partitions", "`partitions` is a list of numbers."),
    ("subscribePattern", "", "One topic for each read: a topic that appears later would change what a query reads."),
    (
        "startingTimestamp, endingTimestamp",
        "the same",
        "Exact for rows, and not only where to begin: late rows stay out.",
    ),
    ("startingOffsetsByTimestamp", "the same", "At the batch, or frame, of the first row of that time, or before it."),
    ("startingOffsetsByTimestampStrategy", "", "A time after all rows begins at the end, as with `latest`."),
    ("endingOffsetsByTimestamp", "endingTime", "One time for all partitions, exact for rows."),
    (
        "startingOffsets, endingOffsets",
        "the same",
        'Also as `{"events": {"0": 23, "1": -1}}`; -1 is the newest, -2 the oldest.',
    ),
    ("failOnDataLoss", "the same", ""),
    ("minPartitions", "the same", "By cutting smaller; a frame of a history is never cut."),
    ("maxRecordsPerPartition", "rowsPerPartition", ""),
    ("maxOffsetsPerTrigger", "the same", "Also `maxRowsPerTrigger`."),
    ("minOffsetsPerTrigger, maxTriggerDelay", "the same", "Of topics. `AvailableNow` does not wait."),
    ("includeHeaders", "the same", "By default true; leave `headers` out of `columns` to the same effect."),
    ("Trigger.AvailableNow", "the same", "Ends at what was there when it began."),
    ("Trigger.ProcessingTime, Trigger.Once", "the same", ""),
    ("Trigger.Continuous, Trigger.RealTime", "", "Spark gives them to sources in Java only."),
    ("groupIdPrefix, kafka.group.id", "", "No consumer group is involved; the checkpoint has the offsets."),
    ("kafka.security.*, kafka.sasl.*", "key", "An API key; TLS by `https://` in `url`."),
    ("kafkaConsumer.*, fetchOffset.*", "", "Requests are tried again for about a quarter of a minute."),
    ("kafka.isolation.level", "", "The server takes no transactions."),
)

_ERRORS = (
    ("BadOption", "An option is unknown, or its value is not allowed.", "The message says what is."),
    (
        "HistoryDropped",
        "Rows between where to begin and what is kept are gone: retention was faster.",
        "Say `failOnDataLoss=false` to go on with what is kept. A batch from `earliest` goes on by itself.",
    ),
    (
        "HistoryEndsBefore",
        "A checkpoint is ahead of the history: it belongs to another one.",
        "Name the right server or folder, or begin with a new checkpoint.",
    ),
    (
        "NoHistory",
        "There is no history in this folder.",
        "`path` names the data folder of a server, not `history` in it.",
    ),
    (
        "LogCorrupted",
        "A file is damaged; the message has file, byte and offset.",
        "Run `penstock repair` on a stopped server, or read around it with offsets.",
    ),
    (
        "BadRecords",
        "Records of a topic are not what their batch says; the server took them from a producer unread.",
        "Read around them with offsets.",
    ),
    (
        "DatabaseRefused",
        "The database said no or could not be reached; the message has its words.",
        "As they say. A task is tried again by Spark.",
    ),
    ("ServerRefused", "The server said no; the message has its [code](errors.md) and its words.", "As the code says."),
    ("ServerUnreachable", "The server did not answer, or stayed busy, nine times.", "Look after the server."),
)


def spark_lines() -> list[str]:
    return [
        "## Options",
        "",
        "Names know no case.",
        "",
        "| option | allowed | default | meaning |",
        "|---|---|---|---|",
        *map(_option, READ_OPTIONS),
        "",
        _PLACES,
        "",
        _TOPICS,
        "",
        _STREAMS,
        "",
        _PROGRESS,
        "",
        "## For those who know the Kafka connector",
        "",
        "| there | here | |",
        "|---|---|---|",
        *(
            f"| {_code(theirs)} | {ours if ours == 'the same' else _code(ours)} | {note} |"
            for theirs, ours, note in _KAFKA
        ),
        "",
        "## Columns of history",
        "",
        "One row for each message that left a queue.",
        "",
        *_columns(HISTORY),
        "",
        "## Columns of live messages",
        "",
        "With `read` set to `live`: one row for each message that is in a queue when the server looks, page by page.",
        "",
        *_columns(LIVE),
        "",
        "## Columns of a topic",
        "",
        "With `topic`: one row for each record.",
        "",
        *_columns(TOPIC),
        "",
        "## Errors",
        "",
        "| error | what happened | what to do |",
        "|---|---|---|",
        *(f"| `{name}` | {what} | {then} |" for name, what, then in _ERRORS),
    ]


def _code(names: str) -> str:
    return ", ".join(f"`{name}`" for name in names.split(", ")) if names else "–"


def _option(option: Option) -> str:
    return f"| `{option.name}` | {option.allowed} | {option.default or '–'} | {option.meaning} |"


def _columns(columns: tuple[Column, ...]) -> list[str]:
    rows = [f"| `{column.name}` | {column.kind} | {column.meaning} |" for column in columns]
    return ["| column | type | meaning |", "|---|---|---|", *rows]
