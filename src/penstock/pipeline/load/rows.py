"""Rows of files become messages or records: the mapping of columns, and what is wrong with a row that cannot be one.

A row is never dropped: it comes out with the columns of a write, or with a `reason`. The reasons are few and fixed,
so that they can be counted; the row itself is beside them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from penstock.contract.limits import (
    ATTRIBUTES_BYTES_MAX,
    ATTRIBUTES_MAX,
    BODY_BYTES_MAX,
    DELIVERIES_MAX,
    DURATION_MS_MAX,
    NAME_BYTES_MAX,
)
from penstock.contract.messages import PRIORITIES
from penstock.pipeline.sink.columns import COLUMNS
from penstock.pipeline.sink.topic_batches import RECORD_BYTES_MORE
from penstock.pipeline.sink.topic_columns import COLUMNS as RECORD_COLUMNS
from penstock.pipeline.staging import TO_PARTITION

# Beside the columns of the file: the row as text, where it is from, and the text of a row that could not be read.
ROW, FILE, CORRUPT = "_row", "_file", "_corrupt_record"
MAPPABLE = tuple(name for name in COLUMNS if name != "queue")
_SIMPLE = "^(STRING|BIGINT|BOOLEAN|DOUBLE|FLOAT|DECIMAL.*)$"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What a queue takes, and when it is now."""

    now: datetime
    body_bytes_max: int = BODY_BYTES_MAX
    # Longer delays than a queue keeps messages are refused by it.
    delay_s_max: float = DURATION_MS_MAX / 1_000


def mapped(
    rows: DataFrame, mapping: Mapping[str, str], *, names: Sequence[str] = MAPPABLE, body: str = "data"
) -> DataFrame:
    """Return the columns of a write, by expressions over the columns of the file, and `_row`, `_file`, what is corrupt.

    A column that is called as one of a write is that one, unless the mapping says otherwise; without any
    for the ``body``, the whole row as JSON is.
    """
    own = [name for name in rows.columns if name not in (ROW, FILE, CORRUPT)]
    said = {name: f.expr(mapping[name]) for name in names if name in mapping}
    same = {name: f.col(f"`{name}`") for name in names if name in own and name not in said}
    chosen = {body: f.col(ROW)} | same | said
    columns = [chosen[name].alias(name) for name in names if name in chosen]
    return rows.select(*columns, ROW, FILE, CORRUPT)


def checked(rows: DataFrame, bounds: Bounds, *, queue: str) -> DataFrame:
    """Return rows of `mapped` with the types of a write and a `reason`, null for those that can be sent."""
    names = [name for name in MAPPABLE if name in rows.columns]
    judged = judge(rows, names, _read_message, _wrongs_of_messages(set(names), bounds))
    return judged.select(f.lit(queue).alias("queue"), "*")


def judge(
    rows: DataFrame,
    names: Sequence[str],
    read: Callable[[str, str], Column],
    wrongs: Sequence[Column],
) -> DataFrame:
    """Return what ``read`` makes of each column, by its name and kind, or else the first of the ``wrongs`` as reason.

    These see the columns as they were read, and in `_has_…` whether anything was said. A row with a reason has its
    file and its text, and nothing else.
    """
    kinds = {field.name: field.dataType.typeName() for field in rows.schema.fields}
    read_rows = rows.select(
        *(f.col(name).isNotNull().alias(f"_has_{name}") for name in names),
        *(read(name, kinds[name]).alias(name) for name in names),
        ROW,
        FILE,
        CORRUPT,
    )
    malformed = f.when(f.col(CORRUPT).isNotNull(), f.lit("malformed row"))
    judged = read_rows.withColumn("reason", f.coalesce(malformed, *wrongs))
    is_bad = f.col("reason").isNotNull()
    return judged.select(
        *(f.when(~is_bad, f.col(name)).alias(name) for name in names),
        "reason",
        f.when(is_bad, f.col(FILE)).alias("file"),
        f.when(is_bad, f.coalesce(CORRUPT, ROW)).alias("row"),
    )


def read_bytes(name: str, kind: str) -> Column:
    """Bytes and texts as they are, and what has parts as JSON."""
    value = f.col(name)
    if kind in ("struct", "array", "map"):
        return f.to_json(value).cast("binary")
    return value if kind == "binary" else value.cast("string").cast("binary")


def read_time(name: str, kind: str) -> Column:
    value = f.col(name)
    is_time = kind in ("timestamp", "timestamp_ntz", "date")
    return value.cast("timestamp") if is_time else value.cast("string").try_cast("timestamp")


def _read_message(name: str, kind: str) -> Column:
    """A column as a write has it; null for what cannot be read as that."""
    value = f.col(name)
    text = value.cast("string")
    if name == "data":
        return read_bytes(name, kind)
    if name == "priority":
        places = [f.when(f.upper(text).isin(word, str(tier)), f.lit(tier)) for tier, word in enumerate(PRIORITIES)]
        return f.coalesce(*places)
    if name == "attributes":
        return f.to_json(value) if kind in ("struct", "map") else text
    if name == "visible_at":
        return read_time(name, kind)
    return text.try_cast({"delay": "double", "max_deliveries": "int"}.get(name, "string"))


def _wrongs_of_messages(names: set[str], bounds: Bounds) -> list[Column]:
    def beyond(name: str, least: float, most: float) -> Column:
        """Said, and unreadable or out of bounds; NaN is greater than all numbers to Spark."""
        return f.col(f"_has_{name}") & ~f.coalesce(f.col(name).between(least, most), f.lit(False))

    def too_long(name: str, most: int) -> Column:
        return f.octet_length(name) > most

    latest = bounds.now + timedelta(seconds=bounds.delay_s_max)
    time = f.col("visible_at")
    is_time = (time > f.timestamp_seconds(f.lit(0))) & (time <= f.lit(latest))
    rules: list[tuple[tuple[str, ...], Column, str]] = [
        (("data",), f.col("data").isNull(), "no data"),
        (("data",), too_long("data", bounds.body_bytes_max), "too large"),
        (("priority",), f.col("_has_priority") & f.col("priority").isNull(), "unknown priority"),
        (("delay",), beyond("delay", 0, bounds.delay_s_max), "bad delay"),
        (("visible_at",), f.col("_has_visible_at") & ~f.coalesce(is_time, f.lit(False)), "bad visible_at"),
        (("delay", "visible_at"), (f.col("delay") > 0) & time.isNotNull(), "delay and visible_at"),
        (("group",), too_long("group", NAME_BYTES_MAX), "group too long"),
        (("dedup_id",), too_long("dedup_id", NAME_BYTES_MAX), "dedup_id too long"),
        (("attributes",), ~_are_attributes(), "bad attributes"),
        (("max_deliveries",), beyond("max_deliveries", 1, DELIVERIES_MAX), "bad max_deliveries"),
    ]
    return [f.when(is_wrong, f.lit(reason)) for needed, is_wrong, reason in rules if names.issuperset(needed)]


def _are_attributes() -> Column:
    """Null is none; otherwise an object of texts, numbers and booleans, as the server takes it."""
    text = f.col("attributes")
    values = f.try_variant_get(f.try_parse_json(text), "$", "map<string,variant>")
    are_simple = f.forall(f.map_values(values), lambda value: f.schema_of_variant(value).rlike(_SIMPLE))
    is_small = (f.octet_length(text) <= ATTRIBUTES_BYTES_MAX) & (f.size(values) <= ATTRIBUTES_MAX)
    return text.isNull() | (text == "") | f.coalesce(are_simple & is_small, f.lit(False))


# A topic refuses what is further ahead, unless it is set otherwise.
_AHEAD_MAX = timedelta(hours=1)
_HEADER_BYTES_MORE = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordBounds:
    """What a topic takes, and when it is now."""

    now: datetime
    partitions: int
    batch_bytes_max: int
    is_compacted: bool = False


def checked_records(rows: DataFrame, bounds: RecordBounds) -> DataFrame:
    """Return rows of `mapped` with the types of a write to a topic and a `reason`, null for the good ones."""
    names = [name for name in RECORD_COLUMNS if name in rows.columns]
    judged = judge(rows, names, _read_record, _wrongs_of_records(set(names), bounds))
    return judged.withColumnRenamed("partition", TO_PARTITION)


def record_bytes(names: set[str]) -> Column:
    """What a record takes of a batch, about and not less."""
    sizes = [f.coalesce(f.octet_length(name), f.lit(0)) for name in ("key", "value") if name in names]
    if "headers" in names:
        each = f.aggregate("headers", f.lit(0), lambda sum_, header: sum_ + _header_bytes(header))
        sizes.append(f.coalesce(each, f.lit(0)))
    total = f.lit(RECORD_BYTES_MORE)
    for size in sizes:
        total = total + size
    return total


def _header_bytes(header: Column) -> Column:
    parts = (f.coalesce(f.octet_length(header[name]), f.lit(0)) for name in ("key", "value"))
    return sum(parts, f.lit(_HEADER_BYTES_MORE))


def pairs_of(texts: Column) -> Column:
    """Return headers from a map of texts."""
    return f.transform(
        f.map_entries(texts),
        lambda entry: f.struct(entry["key"].alias("key"), entry["value"].cast("binary").alias("value")),
    )


def _read_record(name: str, kind: str) -> Column:
    """A column as a write has it; null for what cannot be read as that."""
    value = f.col(name)
    if name in ("value", "key"):
        return read_bytes(name, kind)
    if name == "headers":
        return _headers(value, kind)
    if name == "timestamp":
        return read_time(name, kind)
    return value.cast("string").try_cast("int")


def _headers(value: Column, kind: str) -> Column:
    if kind == "array":
        return f.transform(
            value,
            lambda each: f.struct(each["key"].cast("string").alias("key"), each["value"].cast("binary").alias("value")),
        )
    text = f.to_json(value) if kind in ("map", "struct") else value.cast("string")
    return pairs_of(f.from_json(text, "map<string,string>"))


def _wrongs_of_records(names: set[str], bounds: RecordBounds) -> list[Column]:
    time, partition = f.col("timestamp"), f.col("partition")
    is_time = (time >= f.timestamp_seconds(f.lit(0))) & (time <= f.lit(bounds.now + _AHEAD_MAX))
    has_bad_name = f.exists("headers", lambda header: header["key"].isNull())
    no_key = f.col("key").isNull() if "key" in names else f.lit(True)
    rules: list[tuple[str, Column, str]] = [
        ("value", f.col("value").isNull() & no_key, "no value and no key"),
        ("value", no_key & f.lit(bounds.is_compacted), "no key"),
        ("headers", f.col("_has_headers") & f.coalesce(has_bad_name, f.lit(True)), "bad headers"),
        (
            "partition",
            f.col("_has_partition") & ~f.coalesce(partition.between(0, bounds.partitions - 1), f.lit(False)),
            "bad partition",
        ),
        ("timestamp", f.col("_has_timestamp") & ~f.coalesce(is_time, f.lit(False)), "bad timestamp"),
        ("value", record_bytes(names) > bounds.batch_bytes_max, "too large"),
    ]
    return [f.when(is_wrong, f.lit(reason)) for needed, is_wrong, reason in rules if needed in names]
