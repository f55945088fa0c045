"""What a server answers in Arrow, as Spark takes it: the types of `schemas.py`, and no dictionaries."""

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
from pyarrow import compute

from penstock.pipeline.schemas import Column
from penstock.pipeline.source.history_arrow import KINDS, PRIORITIES, TIME, Wanted, null_if_empty, schema_of, texts_of

_MS = pa.timestamp("ms", tz="UTC")


def asked_of(names: Iterable[str], *, wanted: Wanted) -> list[str]:
    """Return the columns to ask a server for: those that are wanted, and those by which rows are chosen."""
    asked = {"tier" if name == "priority" else name for name in names if name != "shard"}
    if wanted.queues:
        asked.add("queue")
    if wanted.from_ms is not None or wanted.until_ms is not None:
        asked.add("settled_at")
    # A page without columns would not say how many rows it has.
    return sorted(asked) or ["offset"]


def chosen(batch: Any, wanted: Wanted) -> Any:
    """Return the wanted rows of what a server answered."""
    if wanted.queues:
        queue = batch.column("queue")
        codes = [code for code, name in enumerate(queue.dictionary.to_pylist()) if name in wanted.queues]
        batch = batch.filter(compute.is_in(queue.indices, value_set=pa.array(codes, queue.indices.type)))
    if wanted.from_ms is not None:
        batch = batch.filter(compute.greater_equal(batch.column("settled_at"), pa.scalar(wanted.from_ms, _MS)))
    if wanted.until_ms is not None:
        batch = batch.filter(compute.less(batch.column("settled_at"), pa.scalar(wanted.until_ms, _MS)))
    return batch


def converted(batch: Any, columns: tuple[Column, ...], said: Mapping[str, Any]) -> Any:
    """Return a batch with these columns; ``said`` has a value for each that is the same in every row."""
    made = []
    for column in columns:
        kind = KINDS[column.kind]
        if column.name in said:
            made.append(pa.repeat(pa.scalar(said[column.name], kind), batch.num_rows))
        elif column.name == "priority":
            made.append(PRIORITIES.take(batch.column("tier")))
        elif column.name in batch.schema.names:
            made.append(_as(batch.column(column.name), kind))
        else:
            made.append(pa.nulls(batch.num_rows, kind))
    return pa.RecordBatch.from_arrays(made, schema=schema_of(columns))


def _as(column: Any, kind: Any) -> Any:
    if pa.types.is_dictionary(column.type):
        words = column.dictionary.cast(pa.binary()).to_pylist()
        return texts_of(words).take(column.indices)
    if kind == pa.string():
        return null_if_empty(column)
    if kind == TIME:
        return column.cast(_MS).cast(TIME)
    return column if column.type == kind else column.cast(kind)
