"""What an audit compares: a look at the queues of a server, and the history up to that look.

The order matters: a message that is not in its queue at the look was settled before it, so
the history that is read after the look, up to where the server then said, must have it.
"""

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import NamedTuple
from urllib.parse import quote

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from penstock.contract.history_columns import FRAME_ROW_BITS, TRANSACTION_ROW_BITS
from penstock.pipeline.audit.look import LOOK, looker
from penstock.pipeline.job import JobFailed
from penstock.pipeline.locations import HistoryLocation, check_folder, client_of, is_archive, read_history

# As if a history began then: nothing it could tell of was sent before.
NEVER = datetime(9999, 1, 1, tzinfo=UTC)
_COLUMNS = (
    "queue",
    "queue_id",
    "first_queue",
    "sent_tier",
    "number",
    "key",
    "sent_at",
    "settled_at",
    "outcome",
    "shard",
    "offset",
)
# How far up in an offset that of the frame stands; in one of a database, that of the transaction.
_ID = "^[1-9a-f][0-9a-f]{0,7}-(0|[1-9a-f][0-9a-f]{0,15})$"


class Lane(NamedTuple):
    queue: str
    queue_id: int
    lane: int
    end: int
    seen_at: datetime | None
    shard: int
    # Whether numbers may have been given to messages that never were.
    may_skip: bool = False


class ServerFacts(NamedTuple):
    """What a server says before it is looked at."""

    queues: list[str]
    # Queues that keep no history: what left them is not known.
    silent: set[str]
    # For each shard the first offset that is kept, and the end.
    kept: dict[int, tuple[int, int]]


def ask_server(place: HistoryLocation) -> ServerFacts:
    """Ask for the queues that are audited, and for what is kept of the history."""
    if not place.is_server:
        raise JobFailed(
            f"{place.shown} is no server, and only a server knows what is in its queues now; "
            "name it, as in http://127.0.0.1:8080, and give an archive with --history"
        )
    with client_of(place) as client:
        known = [each["queue_name"] for each in client.queues()]
        if missing := sorted(set(place.queues) - set(known)):
            raise JobFailed(f"there is no queue {missing[0]!r} at {place.where}")
        queues = sorted(place.queues) if place.queues else known
        shards = client.json("/api/history/shards")["shards"]
        silent = {queue for queue in queues if client.json(f"/api/queues/{quote(queue)}")["history"] == "off"}
    kept = {each["shard"]: (each["first_kept_offset"], each["end_offset"]) for each in shards}
    return ServerFacts(queues, silent, kept)


def queue_ids(place: HistoryLocation) -> set[int]:
    with client_of(place) as client:
        return {int(each["queue_id"].removeprefix("q_"), 16) for each in client.queues()}


def look(spark: SparkSession, server: HistoryLocation, queues: Sequence[str]) -> DataFrame:
    rows = spark.createDataFrame([(queue,) for queue in queues], "queue STRING")
    tasks = max(1, min(len(queues), spark.sparkContext.defaultParallelism * 4))
    # Kept as it was seen: looked at again, it would be another look.
    return rows.repartition(tasks).mapInArrow(looker(server.where.rstrip("/"), server.key), LOOK).localCheckpoint()


def lanes(seen: DataFrame) -> list[Lane]:
    by_lane = seen.where("lane IS NOT NULL").groupBy("queue", "queue_id", "lane", "shard")
    # The last look at a lane is the one that knows where it ended.
    return [
        Lane(row.queue, row.queue_id, row.lane, row.end, row.seen_at.astimezone(UTC), row.shard, row.may_skip)
        for row in by_lane.agg(
            f.max("end").alias("end"), f.max("seen_at").alias("seen_at"), f.max("may_skip").alias("may_skip")
        ).collect()
    ]


def ends(seen: DataFrame, kept: dict[int, tuple[int, int]]) -> dict[int, int]:
    """Return up to where the history of each shard has to be read."""
    ranges = seen.where("lane IS NOT NULL").groupBy("shard")
    told = ranges.agg(
        f.max("history_offset").alias("end"), f.count_if(f.col("history_offset").isNull()).alias("untold")
    )
    ends = {shard: end for shard, (_, end) in kept.items()}
    for row in told.collect():
        if row.untold:
            raise JobFailed("the server has no room to write its history, so it cannot tell what was settled")
        ends[row.shard] = max(ends.get(row.shard, 0), row.end)
    return ends


def settled(
    spark: SparkSession,
    server: HistoryLocation,
    elsewhere: str,
    kept: dict[int, tuple[int, int]],
    ends: dict[int, int],
    *,
    is_database: bool,
) -> DataFrame:
    """Return the history: what was kept elsewhere as far as it goes, and the server's from there on."""
    starts = {shard: first for shard, (first, _) in kept.items()}
    if not elsewhere:
        return _told(spark, server, starts, ends)
    found = _elsewhere(spark, elsewhere)
    for shard, last in found.groupBy("shard").agg(f.max("offset")).collect():
        if has_gap(last, starts.get(shard, 0), is_database=is_database) and not server.since:
            raise JobFailed(
                f"the history between offset {last} of shard {shard}, where {elsewhere} ends, and {starts[shard]}, "
                "where the server begins, is gone; say with --since from when on to audit"
            )
        starts[shard] = max(starts.get(shard, 0), last + 1)
    chosen = found.where(f.col("queue").isin(list(server.queues))) if server.queues else found
    return chosen.unionByName(_told(spark, server, starts, ends))


def has_gap(last: int, first_kept: int, *, is_database: bool) -> bool:
    """Return whether something may have been between the last row kept elsewhere and the first offset of the server.

    A frame, or a transaction, is read whole: its last row is followed by the first of the next, which is further up.
    """
    row_bits = TRANSACTION_ROW_BITS if is_database else FRAME_ROW_BITS
    return (last >> row_bits) + 1 < first_kept >> row_bits


def _elsewhere(spark: SparkSession, where: str) -> DataFrame:
    if is_archive(where):
        return read_history(spark, HistoryLocation(where=where)).select(*_COLUMNS)
    check_folder(HistoryLocation(where=where))
    reader = spark.read.format("penstock").option("path", where)
    return reader.option("columns", ",".join(_COLUMNS)).load()


def _told(spark: SparkSession, server: HistoryLocation, starts: dict[int, int], ends: dict[int, int]) -> DataFrame:
    said = {
        "url": server.where.rstrip("/"),
        "key": server.key,
        "queue": ",".join(server.queues),
        "columns": ",".join(_COLUMNS),
        "startingOffsets": json.dumps({str(shard): at for shard, at in starts.items()}),
        "endingOffsets": json.dumps({str(shard): max(at, starts[shard]) for shard, at in ends.items()}),
        # What retention drops while this runs is unknown, and not an error.
        "failOnDataLoss": "false",
    }
    return spark.read.format("penstock").options(**{name: value for name, value in said.items() if value}).load()


def deleted(settled: DataFrame, looked_at: set[int], skipping: set[int]) -> list[Lane]:
    """Return lanes of queues that are only in the history: they end with the highest number it tells of.

    ``skipping`` are the shards where other queues may skip numbers.
    """
    lane = (f.col("key") % 8).alias("lane")
    gone = settled.where(~f.col("queue_id").isin(sorted(looked_at))) if looked_at else settled
    ends = gone.groupBy("queue", "queue_id", lane, "shard").agg((f.shiftright(f.max("key"), 3) + 1).alias("end"))
    return [
        Lane(row.queue, row.queue_id, row.lane, row.end, None, row.shard, row.shard in skipping)
        for row in ends.collect()
    ]


def begins(settled: DataFrame, kept: dict[int, tuple[int, int]], since: str) -> dict[int, datetime | None]:
    """Return for each shard when its history begins; None where it has everything from the first offset on."""
    firsts = settled.groupBy("shard").agg(f.min("offset").alias("offset"), f.min("settled_at").alias("settled_at"))
    rows = {row.shard: row for row in firsts.collect()}
    begins: dict[int, datetime | None] = {}
    for shard, (first_kept, _) in kept.items():
        row = rows.get(shard)
        is_whole = first_kept == 0 or (row is not None and row.offset == 0)
        begins[shard] = None if is_whole else NEVER if row is None else row.settled_at.astimezone(UTC)
    if since:
        wanted = datetime.fromisoformat(since)
        if wanted.tzinfo is None:
            raise JobFailed(f"since is {since!r}, which does not say its time zone; end it with Z or an offset")
        begins = {shard: wanted if at is None else max(at, wanted) for shard, at in begins.items()}
    return begins


def bounds(
    lanes: Sequence[Lane], begins: dict[int, datetime | None], silent: set[str]
) -> list[tuple[str, int, int, int, datetime | None, datetime | None, bool]]:
    """Return lanes as rows of `ledger.LANES`: where each ends, when that was seen, and when its history begins."""
    rows = []
    for each in lanes:
        is_silent = each.queue in silent and each.seen_at is not None
        since = NEVER if is_silent else begins.get(each.shard)
        rows.append((each.queue, each.queue_id, each.lane, each.end, each.seen_at, since, each.may_skip))
    return rows


def sent_ids(spark: SparkSession, where: str) -> DataFrame:
    if where.endswith(".csv"):
        rows = spark.read.option("header", "true").csv(where)
    elif where.endswith(".txt"):
        rows = spark.read.text(where).withColumnRenamed("value", "id")
    else:
        rows = spark.read.parquet(where)
    if "id" not in rows.columns:
        raise JobFailed(f"{where} has no column `id`; it has {', '.join(rows.columns)}")
    ids = rows.select(f.trim("id").alias("id")).where(f.col("id") != "")
    for row in ids.where(~f.col("id").rlike(_ID)).limit(1).collect():
        raise JobFailed(f"{where} has {row.id!r}, which is no id of a message; one looks like 1f-28a2")
    return ids
