"""Reads as Spark does, without Spark: partitions on one side, rows on the other, what goes between them pickled."""

import pickle
from collections.abc import Mapping
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql import types
from pyspark.sql.datasource import InputPartition
from pyspark.sql.pandas.types import to_arrow_schema

from penstock.pipeline.options import read_options
from penstock.pipeline.source.reader import HistoryReader, HistoryStreamReader

HEADERS = types.ArrayType(
    types.StructType([types.StructField("key", types.StringType()), types.StructField("value", types.BinaryType())])
)
KINDS = {
    "STRING": types.StringType(),
    "BIGINT": types.LongType(),
    "INT": types.IntegerType(),
    "TINYINT": types.ByteType(),
    "TIMESTAMP": types.TimestampType(),
    "BINARY": types.BinaryType(),
    "ARRAY<STRUCT<key: STRING, value: BINARY>>": HEADERS,
}


def schema_of(options: Mapping[str, str]) -> types.StructType:
    columns = read_options(options).columns
    return types.StructType([types.StructField(column.name, KINDS[column.kind]) for column in columns])


def parts_of(options: Mapping[str, str]) -> list[InputPartition]:
    return HistoryReader(options, schema_of(options)).partitions()


def read(options: Mapping[str, str], parts: list[InputPartition] | None = None) -> Any:
    """Return all rows as a table; every batch must have the very types that Spark expects."""
    schema = schema_of(options)
    reader = HistoryReader(options, schema)
    parts = reader.partitions() if parts is None else parts
    return _table(pickle.loads(pickle.dumps(reader)), parts, schema)


def read_between(reader: HistoryStreamReader, start: dict[str, int], end: dict[str, int]) -> Any:
    """Return the rows of one batch of a stream of offsets."""
    schema = types.StructType([types.StructField("offset", types.LongType())])
    return _table(reader, reader.partitions(start, end), schema)


def stream_of(options: Mapping[str, str]) -> HistoryStreamReader:
    given = {**options, "columns": "key" if options.get("read") else "offset"}
    return HistoryStreamReader(given, schema_of(given))


def _table(reader: HistoryReader | HistoryStreamReader, parts: list[InputPartition], schema: types.StructType) -> Any:
    expected = to_arrow_schema(schema, timezone="UTC")
    batches = []
    for part in parts:
        for batch in reader.read(pickle.loads(pickle.dumps(part))):
            assert batch.schema.equals(expected)
            batch.validate(full=True)
            batches.append(batch)
    return pa.Table.from_batches(batches, expected)
