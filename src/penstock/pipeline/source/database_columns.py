"""Rows of the table `history` as the columns of `schemas.py`: what to ask for, and what to make of it.

The database is asked for its own columns, as few as will do: each costs it as much as
the rest of the way. What follows from another one is computed here, whole columns at once.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import pyarrow as pa  # type: ignore[import-untyped]
from pyarrow import compute

from penstock.pipeline.schemas import Column
from penstock.pipeline.source.history_arrow import (
    KINDS,
    OUTCOMES,
    PRIORITIES,
    TIME,
    micros,
    null_if_empty,
    schema_of,
    texts_of,
)

# A message is known by the queue that it was first sent to, and by its place there.
_HOME = {"home": "coalesce(home, queue)"}
_HOME_KEY = {"home_key": "coalesce(home_key, key)"}


class Made(NamedTuple):
    """Which fields a column takes, by name and in SQL, and how it is made of them."""

    fields: Mapping[str, str]
    make: Callable[[Any], Any]


def fields_of(columns: tuple[Column, ...]) -> dict[str, str]:
    """Return what to ask the database for, by name: always the offset, by which pages go on."""
    fields = {"at_offset": "at_offset"}
    for column in columns:
        if column.name != "shard":
            fields |= _MADE[column.name].fields
    return fields


def batch_of(rows: Any, columns: tuple[Column, ...], names: Mapping[int, str], shard: int) -> Any:
    """Return a batch with these columns; ``names`` are those of queues, by number."""
    made = [
        pa.repeat(pa.scalar(shard, KINDS[column.kind]), rows.num_rows)
        if column.name == "shard"
        else _column(rows, column, names)
        for column in columns
    ]
    return pa.RecordBatch.from_arrays(made, schema=schema_of(columns))


def _column(rows: Any, column: Column, names: Mapping[int, str]) -> Any:
    kind = KINDS[column.kind]
    found = _MADE[column.name].make(rows)
    if column.name == "queue":
        numbers = pa.array(list(names), pa.int32())
        return pa.array(list(names.values()), pa.string()).take(compute.index_in(found, value_set=numbers))
    return found if found.type == kind else found.cast(kind)


def _plain(name: str, field: str | None = None) -> Made:
    field = field or name
    return Made({field: field}, lambda rows: rows.column(field))


def _time(field: str) -> Made:
    return Made({field: field}, lambda rows: micros(rows.column(field)))


def _received(field: str) -> Made:
    """A time of which 0 means never."""

    def make(rows: Any) -> Any:
        at_ms = rows.column(field)
        return compute.if_else(compute.not_equal(at_ms, 0), micros(at_ms), pa.scalar(None, TIME))

    return Made({field: field}, make)


def _word(field: str, words: Any) -> Made:
    return Made({field: field}, lambda rows: words.take(rows.column(field)))


def _text(field: str) -> Made:
    """Text that may be kept as bytes; null where it is empty."""

    def make(rows: Any) -> Any:
        found = rows.column(field)
        try:
            return null_if_empty(found.cast(pa.string()))
        except pa.ArrowInvalid:
            # Some of it is no UTF-8, which is rare: then word by word, each once.
            coded = found.dictionary_encode()
            return texts_of([word or b"" for word in coded.dictionary.to_pylist()]).take(coded.indices)

    return Made({field: field}, make)


_MADE: dict[str, Made] = {
    "queue": _plain("queue"),
    "queue_id": _plain("queue_id", "queue"),
    "first_queue": Made(_HOME, lambda rows: rows.column("home")),
    "sent_tier": Made(_HOME_KEY, lambda rows: compute.bit_wise_and(rows.column("home_key"), 7)),
    "number": Made(_HOME_KEY, lambda rows: compute.shift_right(rows.column("home_key"), 3)),
    "key": _plain("key"),
    "tier": _plain("tier"),
    "priority": _word("tier", PRIORITIES),
    "sent_at": _time("sent_at_ms"),
    "first_received_at": _received("first_leased_ms"),
    "last_received_at": _received("last_leased_ms"),
    "settled_at": _time("settled_at_ms"),
    "delivery_count": _plain("delivery_count", "deliveries"),
    "outcome": _word("ending", OUTCOMES),
    "group": _text("grp"),
    "error": _text("error"),
    "data": _plain("data", "body"),
    "attributes": _text("attributes"),
    "offset": _plain("offset", "at_offset"),
}
