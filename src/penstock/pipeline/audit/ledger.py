"""The books of queues: every number that was given is live, or was settled exactly once.

    lanes      one row for each queue and lane: numbers were given from 0 up to `end`
                 0 ·········· start ───────────────── end
                 unknown      audited: live, settled once, or a fault
    live       messages that were in a queue when it was looked at
    settled    the history, up to where it tells of all that was settled before the look

    lost       a number that is neither; a message that left for another queue and never came
    doubled    settled twice; settled before it was seen live; in a queue it never left for
    phantom    a message of a number that its first queue had not given when it was looked at

    unused     where numbers `may_skip`: one that is neither. A send that was rolled back, or a crash of the database,
               leaves such; a producer that was answered one of them shows that it is lost after all

What the history does not keep cannot be judged: numbers below `start` that are missing
are unknown, and counted apart. `start` is the first number known to be sent after the
history begins: numbers rise with the time of sending, so all that follow are in it.

Nothing here reads a clock, a server or a file.
"""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

FAULTS = ("lost", "doubled", "phantom")
# Gaps are looked for in so many numbers at a time: one task need not sort a whole lane.
BUCKET = 1 << 20

LANES = (
    "`queue` STRING, `queue_id` BIGINT, `lane` TINYINT, `end` BIGINT, `seen_at` TIMESTAMP, `since` TIMESTAMP, "
    "`may_skip` BOOLEAN"
)
_PLACE = ("queue_id", "key")
_IDENTITY = ("first_queue", "sent_tier", "number")
_FAULT = ("queue_id", "key", "id", "fault", "why")
_ANSWERED = "its producer was answered, and it is neither live nor settled"


def queue_visits(live: DataFrame, settled: DataFrame) -> DataFrame:
    """Return a row for each place in a queue that a message was in: when it was seen, and how often settled.

    Everything else is made of these, so a caller that uses them often keeps them.
    """
    none = f.lit(None).cast("timestamp")
    columns = (*_PLACE, *_IDENTITY, "sent_at")
    is_gone = f.col("outcome").isin("buried", "redriven")
    seen = live.select(
        *columns,
        f.col("seen_at").alias("live_at"),
        none.alias("settled_at"),
        none.alias("left_at"),
        (f.col("state") == "moving").alias("is_moving"),
    )
    gone = settled.select(
        *columns,
        none.alias("live_at"),
        "settled_at",
        f.when(is_gone, f.col("settled_at")).alias("left_at"),
        f.lit(False).alias("is_moving"),
    )
    at_home = (f.col("queue_id") == f.col("first_queue")) & (f.col("key") == f.col("number") * 8 + f.col("sent_tier"))
    return (
        seen.unionByName(gone)
        .groupBy(*_PLACE, *_IDENTITY)
        .agg(
            f.min("sent_at").alias("sent_at"),
            f.max("live_at").alias("live_at"),
            f.count("settled_at").alias("settles"),
            f.min("settled_at").alias("first_settled_at"),
            f.max("left_at").alias("left_at"),
            f.max("is_moving").alias("is_moving"),
        )
        .withColumn("is_at_home", at_home)
        .withColumn("lane", (f.col("key") % 8).cast("tinyint"))
        .withColumn("place", f.shiftright(f.col("key"), 3))
    )


def with_start(lanes: DataFrame, found: DataFrame) -> DataFrame:
    """Add `start`: the first number of a lane that is audited.

    `since` of a lane is when its history begins; null if it has everything, and after
    all else if it has nothing.
    """
    known = (
        found.where("is_at_home")
        .join(f.broadcast(lanes.select("queue_id", "lane", "since")), ["queue_id", "lane"])
        .where(f.col("sent_at") > f.col("since"))
        .groupBy("queue_id", "lane")
        .agg(f.min("number").alias("lowest"))
    )
    start = f.when(f.col("since").isNull(), f.lit(0)).otherwise(f.least(f.coalesce("lowest", "end"), "end"))
    return lanes.join(known, ["queue_id", "lane"], "left").select(*lanes.columns, start.cast("bigint").alias("start"))


def gaps(lanes: DataFrame, found: DataFrame) -> DataFrame:
    """Return the stretches of given numbers that nothing is known of: `first` to `last`, below `start` or not."""
    cut = f.sequence(f.lit(0).cast("bigint"), f.floor((f.col("end") - 1) / BUCKET))
    low, high = f.col("bucket") * BUCKET, f.least((f.col("bucket") + 1) * BUCKET, f.col("end"))
    # The edges of a bucket, where nothing need be: a gap reaches from what is before it to what is after it.
    edge = f.array(_edge(low - 1, low), _edge(high, high))
    edges = (
        lanes.where(f.col("end") > 0)
        .select("queue_id", "lane", "start", "end", f.explode(cut).alias("bucket"))
        .select("queue_id", "lane", "start", "bucket", f.explode(edge).alias("edge"))
        .select("queue_id", "lane", "start", "bucket", "edge.after", "edge.place")
    )
    inside = (
        found.join(f.broadcast(lanes.select("queue_id", "lane", "start", "end")), ["queue_id", "lane"])
        .where(f.col("place") < f.col("end"))
        .withColumn("bucket", f.floor(f.col("place") / BUCKET))
        .select("queue_id", "lane", "start", "bucket", f.col("place").alias("after"), "place")
    )
    # An edge comes before what stands at its number.
    by_number = Window.partitionBy("queue_id", "lane", "bucket").orderBy("place", "after")
    first, last = f.lag("after").over(by_number) + 1, f.col("place") - 1
    return (
        edges.unionByName(inside)
        .select("queue_id", "lane", "start", first.alias("first"), last.alias("last"))
        .where(f.col("last") >= f.col("first"))
    )


def _edge(after: Column, place: Column) -> Column:
    return f.struct(after.alias("after"), place.alias("place"))


def faults(lanes: DataFrame, found: DataFrame, missing: DataFrame, *, is_silent: bool = False) -> DataFrame:
    """Return every fault: queue, key and id of a message, what is wrong with it, and why that is said.

    ``lanes`` have a `start`, ``missing`` are their gaps. Where ``is_silent``, some queue keeps no history: who left
    for another queue and is not seen again may have been settled there.
    """
    skipping = lanes.where("may_skip").select("queue_id", "lane")
    wrong = _lost(missing.join(f.broadcast(skipping), ["queue_id", "lane"], "left_anti")).unionByName(
        _misplaced(lanes, found)
    )
    if not is_silent:
        wrong = wrong.unionByName(_strays(lanes, found))
    return _named(lanes, wrong)


def _lost(missing: DataFrame) -> DataFrame:
    numbers = f.explode(f.sequence(f.greatest("first", "start"), f.col("last"))).alias("number")
    rows = missing.where(f.col("last") >= f.col("start")).select("queue_id", "lane", numbers)
    rows = rows.withColumn("key", f.col("number") * 8 + f.col("lane"))
    # Of a message that came from elsewhere the id is not known; this is that of one that was sent here.
    named = rows.withColumn("id", _id("queue_id", f.col("key")))
    return _fault(named, f.lit("lost"), f.lit("its number was given, and it is neither live nor settled"))


def _misplaced(lanes: DataFrame, found: DataFrame) -> DataFrame:
    """What is wrong with a message in one place: settled twice, back from the dead, or of a number never given."""
    given = lanes.select(f.col("queue_id").alias("first_queue"), f.col("lane").alias("sent_tier"), "end", "seen_at")
    is_twice = f.col("settles") > 1
    is_back = f.col("first_settled_at") < f.col("live_at")
    is_made_up = (f.col("number") >= f.col("end")) & (f.col("sent_at") < f.col("seen_at"))
    twice = f.concat(f.lit("it was settled "), f.col("settles"), f.lit(" times"))
    judged = f.filter(
        f.array(
            f.when(is_twice, _said("doubled", twice)),
            f.when(is_back, _said("doubled", f.lit("it was settled before it was seen live"))),
            f.when(is_made_up, _said("phantom", f.lit("its first queue had not given this number"))),
        ),
        lambda each: each.isNotNull(),
    )
    rows = found.join(f.broadcast(given), ["first_queue", "sent_tier"], "left").withColumn("id", _identity())
    each = rows.select(*_PLACE, "id", f.explode(judged).alias("judged"))
    return each.select(*_PLACE, "id", "judged.fault", "judged.why").dropDuplicates([*_PLACE, "id", "fault"])


def _said(fault: str, why: Column) -> Column:
    return f.struct(f.lit(fault).alias("fault"), why.alias("why"))


def _strays(lanes: DataFrame, found: DataFrame) -> DataFrame:
    """Messages that left for another queue and came to none, or came to one without having left."""
    looked = lanes.agg(
        f.min("seen_at").alias("looked_at"),
        f.max(f.coalesce("since", f.timestamp_seconds(f.lit(0)))).alias("told_since"),
    )
    place = f.struct("queue_id", "key")
    chains = found.groupBy(*_IDENTITY).agg(
        f.count("left_at").alias("left"),
        f.count_if(~f.col("is_at_home")).alias("came"),
        f.max("left_at").alias("left_at"),
        f.max("is_moving").alias("is_moving"),
        f.min("sent_at").alias("sent_at"),
        f.max_by(place, "left_at").alias("left_from"),
        f.max(f.when(~f.col("is_at_home"), place)).alias("came_to"),
    )
    # While queues are looked at one after the other, messages go from one to another: those are not judged.
    is_over = f.coalesce(f.col("left_at") < f.col("looked_at"), f.lit(True))
    is_gone = f.col("left") > f.col("came")
    is_new = (f.col("left") < f.col("came")) & ~f.col("is_moving") & (f.col("sent_at") > f.col("told_since"))
    rows = chains.join(f.broadcast(looked)).where(is_over & (is_gone | is_new)).withColumn("id", _identity())
    where = f.when(is_gone, f.col("left_from")).otherwise(f.col("came_to"))
    rows = rows.withColumn("queue_id", where["queue_id"]).withColumn("key", where["key"])
    gone, new = (
        "it left for another queue and came to none",
        "it is in a queue that it was moved to, and left none for it",
    )
    fault = f.when(is_gone, f.lit("lost")).otherwise(f.lit("doubled"))
    return _fault(rows, fault, f.when(is_gone, f.lit(gone)).otherwise(f.lit(new)))


def unknown_to_producers(lanes: DataFrame, found: DataFrame, sent: DataFrame, *, is_complete: bool) -> DataFrame:
    """Return the faults that a producer's own list of ids shows: `sent` has one column, `id`.

    An id that the producer was answered, of an audited queue, which is neither live nor
    settled, is lost. If the list ``is_complete``, a message that is not in it is a phantom.
    """
    parts = f.split("id", "-")
    listed = sent.select(
        "id",
        f.conv(parts[0], 16, 10).cast("bigint").alias("listed_queue"),
        f.conv(parts[1], 16, 10).cast("bigint").alias("listed_key"),
        f.lit(True).alias("is_listed"),
    ).distinct()
    known = found.select("*", _identity().alias("id")).groupBy("id").agg(f.max(f.struct(*_IDENTITY)).alias("known"))
    both = listed.join(known, "id", "full")
    queue = f.coalesce("listed_queue", "known.first_queue").alias("queue_id")
    key = f.coalesce(f.col("listed_key"), f.col("known.number") * 8 + f.col("known.sent_tier")).alias("key")
    rows = both.select("id", "is_listed", "known", queue, key).withColumn("lane", (f.col("key") % 8).cast("tinyint"))
    audited = rows.join(f.broadcast(lanes.select("queue_id", "lane", "start")), ["queue_id", "lane"])
    is_lost = f.col("known").isNull() & (f.shiftright(f.col("key"), 3) >= f.col("start"))
    is_strange = f.col("is_listed").isNull() & f.lit(is_complete)
    wrong = audited.where(is_lost | is_strange)
    why = f.when(is_lost, f.lit(_ANSWERED))
    fault = f.when(is_lost, f.lit("lost")).otherwise(f.lit("phantom"))
    return _named(lanes, _fault(wrong, fault, why.otherwise(f.lit("its producer knows nothing of it"))))


def summary(lanes: DataFrame, found: DataFrame, missing: DataFrame, wrong: DataFrame) -> DataFrame:
    """Return a row for each queue: how many numbers are audited, live, settled, unknown and unused, and wrong."""
    numbers = ("audited", "live", "settled", "unknown", "unused", *FAULTS)

    def tally(rows: DataFrame, **counts: Column) -> DataFrame:
        return rows.select("queue_id", *(counts.get(name, f.lit(0)).cast("bigint").alias(name) for name in numbers))

    is_live = f.col("live_at").isNotNull()
    bounds = f.broadcast(lanes.select("queue_id", "lane", "start", "end"))
    audited = found.join(bounds, ["queue_id", "lane"]).where(
        (f.col("place") >= f.col("start")) & (f.col("place") < f.col("end"))
    )
    unknown = f.greatest(f.lit(0), f.least("last", f.col("start") - 1) - f.col("first") + 1)
    gone = f.greatest(f.lit(0), f.col("last") - f.greatest("first", "start") + 1)
    skipping = f.broadcast(lanes.where("may_skip").select("queue_id", "lane", "end"))
    # Unused, until a producer knows of it.
    answered = (
        wrong.where((f.col("fault") == "lost") & (f.col("why") == _ANSWERED))
        .withColumn("lane", (f.col("key") % 8).cast("tinyint"))
        .join(skipping, ["queue_id", "lane"])
        .where(f.shiftright(f.col("key"), 3) < f.col("end"))
    )
    tallies = (
        tally(lanes, audited=f.col("end") - f.col("start"))
        .unionByName(tally(audited.dropDuplicates([*_PLACE]), live=is_live, settled=~is_live))
        .unionByName(tally(missing, unknown=unknown))
        .unionByName(tally(missing.join(skipping, ["queue_id", "lane"]), unused=gone))
        .unionByName(tally(answered, unused=f.lit(-1)))
        .unionByName(tally(wrong, **{fault: f.col("fault") == fault for fault in FAULTS}))
    )
    counted = tallies.groupBy("queue_id").agg(*(f.sum(name).alias(name) for name in numbers))
    names = lanes.select("queue_id", "queue").distinct()
    return (
        counted.join(f.broadcast(names), "queue_id").select("queue", "queue_id", *numbers).orderBy("queue", "queue_id")
    )


def _named(lanes: DataFrame, wrong: DataFrame) -> DataFrame:
    """Add the names of queues, and keep to those that are audited."""
    return wrong.join(f.broadcast(lanes.select("queue_id", "queue").distinct()), "queue_id")


def _identity() -> Column:
    return _id("first_queue", f.col("number") * 8 + f.col("sent_tier"))


def _id(queue: str, key: Column) -> Column:
    return f.concat_ws("-", f.lower(f.hex(f.col(queue))), f.lower(f.hex(key.cast("bigint"))))


def _fault(rows: DataFrame, fault: Column, why: Column) -> DataFrame:
    return rows.withColumn("fault", fault).withColumn("why", why).select(*_FAULT)
