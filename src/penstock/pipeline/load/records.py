"""Rows of files become records of a topic, or have the reason why they cannot: as `loading` does for messages."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from penstock.pipeline.load.rows import judge, read_bytes, read_time
from penstock.pipeline.sink.topic_batches import RECORD_BYTES_MORE
from penstock.pipeline.sink.topic_columns import COLUMNS
from penstock.pipeline.staging import TO_PARTITION

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

# A topic refuses what is further ahead, unless it is told otherwise.
_AHEAD_MAX = timedelta(hours=1)
_HEADER_BYTES_MORE = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordBounds:
    """What a topic takes, and when it is now."""

    now: datetime
    partitions: int
    batch_bytes_max: int
    is_compacted: bool = False


def checked_records(rows: "DataFrame", bounds: RecordBounds) -> "DataFrame":
    """Return rows of `loading.mapped` with the types of a write to a topic and a `reason`, null for the good ones."""
    names = [name for name in COLUMNS if name in rows.columns]
    judged = judge(rows, names, _read, _wrongs(set(names), bounds))
    return judged.withColumnRenamed("partition", TO_PARTITION)


def record_bytes(names: set[str]) -> "Column":
    """What a record takes of a batch, about and not less."""
    from pyspark.sql import functions as f  # noqa: PLC0415

    sizes = [f.coalesce(f.octet_length(name), f.lit(0)) for name in ("key", "value") if name in names]
    if "headers" in names:
        each = f.aggregate("headers", f.lit(0), lambda sum_, header: sum_ + _header_bytes(header))
        sizes.append(f.coalesce(each, f.lit(0)))
    total = f.lit(RECORD_BYTES_MORE)
    for size in sizes:
        total = total + size
    return total


def _header_bytes(header: "Column") -> "Column":
    from pyspark.sql import functions as f  # noqa: PLC0415

    parts = (f.coalesce(f.octet_length(header[name]), f.lit(0)) for name in ("key", "value"))
    return sum(parts, f.lit(_HEADER_BYTES_MORE))


def pairs_of(texts: "Column") -> "Column":
    """Return headers from a map of texts."""
    from pyspark.sql import functions as f  # noqa: PLC0415

    return f.transform(
        f.map_entries(texts),
        lambda entry: f.struct(entry["key"].alias("key"), entry["value"].cast("binary").alias("value")),
    )


def _read(name: str, kind: str) -> "Column":
    """A column as a write has it; null for what cannot be read as that."""
    from pyspark.sql import functions as f  # noqa: PLC0415

    value = f.col(name)
    if name in ("value", "key"):
        return read_bytes(name, kind)
    if name == "headers":
        return _headers(value, kind)
    if name == "timestamp":
        return read_time(name, kind)
    return value.cast("string").try_cast("int")


def _headers(value: "Column", kind: str) -> "Column":
    from pyspark.sql import functions as f  # noqa: PLC0415

    if kind == "array":
        return f.transform(
            value,
            lambda each: f.struct(each["key"].cast("string").alias("key"), each["value"].cast("binary").alias("value")),
        )
    text = f.to_json(value) if kind in ("map", "struct") else value.cast("string")
    return pairs_of(f.from_json(text, "map<string,string>"))


def _wrongs(names: set[str], bounds: RecordBounds) -> "list[Column]":
    from pyspark.sql import functions as f  # noqa: PLC0415

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
