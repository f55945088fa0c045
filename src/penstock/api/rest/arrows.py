"""Pages as Arrow IPC streams: columns are wrapped, without a loop over rows.

Numbers are the arrays of the history as they are; groups, errors, priorities and
outcomes are dictionaries; bodies are binary. Nothing is made for each row, so the id of
a message is three columns, of which its text is `<first_queue>-<number · 8 + sent_tier>`
in hexadecimal. The metadata of the schema has the offsets.

Importing this module needs `penstock[arrow]`.
"""

import json
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow  # type: ignore[import-untyped]
from pyarrow import compute

from penstock.contract.messages import NUMBERED_OUTCOMES, PRIORITIES, STATES
from penstock.frame import Blobs
from penstock.store.history import BodyState, Coded, HistoryPage
from penstock.store.live import LivePage

_TIME = pyarrow.timestamp("ms", tz="UTC")
_PRIORITIES = pyarrow.array(list(PRIORITIES))
_OUTCOMES = pyarrow.array(list(NUMBERED_OUTCOMES))
# A place of 0 stands for none.
_STATES = pyarrow.array(["", *STATES])


def history_stream(page: HistoryPage, wanted: Sequence[str]) -> bytes:
    """Return some columns of a page of the history. It copies them once, and loops over none."""
    offsets = {
        "next_offset": page.next_offset,
        "first_kept_offset": page.first_kept_offset,
        "end_offset": page.end_offset,
    }
    return stream_of({name: HISTORY[name](page) for name in wanted}, {name: str(at) for name, at in offsets.items()})


def live_stream(page: LivePage, wanted: Sequence[str]) -> bytes:
    """Return some columns of what is in a queue."""
    said: dict[str, object] = {
        "seen_at": page.seen_at_ms,
        "next_cursor": page.next,
        "ranges": json.dumps(page.ranges),
        "next_numbers": json.dumps(page.next_numbers),
        "shard": page.shard,
        "queue": page.queue,
        "queue_id": page.queue_number,
        "history_offset": "" if page.history_offset is None else page.history_offset,
        "may_skip_numbers": json.dumps(page.may_skip_numbers),
    }
    return stream_of({name: LIVE[name](page) for name in wanted}, {name: str(each) for name, each in said.items()})


def stream_of(columns: dict[str, Any], metadata: dict[str, str]) -> bytes:
    """Return columns as an Arrow IPC stream of one batch."""
    schema = pyarrow.schema([(name, column.type) for name, column in columns.items()]).with_metadata(metadata)
    sink = pyarrow.BufferOutputStream()
    with pyarrow.ipc.new_stream(sink, schema) as writer:
        writer.write_batch(pyarrow.RecordBatch.from_arrays(list(columns.values()), schema=schema))
    return bytes(sink.getvalue())


def _queues(page: HistoryPage) -> Any:
    # Two queues may have had one name, and a word of a dictionary is there once.
    words = sorted(set(page.names.values()))
    word_of = pyarrow.array([words.index(name) for name in page.names.values()], pyarrow.int32())
    numbers = compute.index_in(
        _wrap(page.queue, pyarrow.uint32()), value_set=pyarrow.array(list(page.names), pyarrow.uint32())
    )
    return pyarrow.DictionaryArray.from_arrays(word_of.take(numbers), pyarrow.array(words, pyarrow.string()))


def _keys(page: HistoryPage) -> Any:
    if page.key is not None:
        return _wrap(page.key, pyarrow.uint64())
    eight = pyarrow.scalar(8, pyarrow.uint64())
    lanes = _wrap(page.sent_tier, pyarrow.uint8()).cast(pyarrow.uint64())
    return compute.add(compute.multiply(_wrap(page.number, pyarrow.uint64()), eight), lanes)


def _same(word: str, rows: int) -> Any:
    return _coded(memoryview(bytes(rows)), pyarrow.array([word]))


def _same_number(number: int, rows: int) -> Any:
    return pyarrow.repeat(pyarrow.scalar(number, pyarrow.uint32()), rows)


def _maybe_blobs(column: Blobs | None, rows: int, kind: Any) -> Any:
    return pyarrow.nulls(rows, kind) if column is None else _blobs(column, kind)


def _null_if_empty(column: Any) -> Any:
    return compute.if_else(compute.equal(compute.binary_length(column), 0), pyarrow.scalar(None, column.type), column)


def _wrap(column: memoryview, kind: Any) -> Any:
    return pyarrow.Array.from_buffers(kind, len(column), [None, pyarrow.py_buffer(column)])


def _null_if(column: Any, value: int) -> Any:
    return compute.if_else(compute.equal(column, value), pyarrow.scalar(None, column.type), column)


def _coded(codes: memoryview, words: Any) -> Any:
    kinds = {1: pyarrow.uint8(), 2: pyarrow.uint16(), 4: pyarrow.uint32()}
    # Signed indices are what everyone reads; the cast is one step for all.
    indices = _wrap(codes, kinds[codes.itemsize]).cast(pyarrow.int32())
    return pyarrow.DictionaryArray.from_arrays(indices, words)


def _words(column: Coded | None, rows: int, kind: Any) -> Any:
    if column is None:
        return _coded(memoryview(bytes(rows)), pyarrow.array([""], kind))
    return _coded(column.codes, _blobs(column.words, kind))


def _kept(page: HistoryPage, column: Blobs | None, kind: Any) -> Any:
    """A column of what a queue with `full` history keeps; null where it was not kept."""
    if column is None or page.body_state is None:
        return pyarrow.nulls(len(page), kind)
    is_kept = compute.equal(_wrap(page.body_state, pyarrow.uint8()), int(BodyState.KEPT))
    return compute.if_else(is_kept, _blobs(column, kind), pyarrow.scalar(None, kind))


def _blobs(column: Blobs, kind: Any) -> Any:
    offsets, data = pyarrow.py_buffer(memoryview(column.offsets)), pyarrow.py_buffer(memoryview(column.data))
    return pyarrow.Array.from_buffers(kind, len(column), [None, offsets, data])


# What makes each column of a page of the history.
HISTORY: dict[str, Callable[[HistoryPage], Any]] = {
    "queue": _queues,
    "queue_id": lambda page: _wrap(page.queue, pyarrow.uint32()),
    "first_queue": lambda page: _wrap(page.home, pyarrow.uint32()),
    "sent_tier": lambda page: _wrap(page.sent_tier, pyarrow.uint8()),
    "number": lambda page: _wrap(page.number, pyarrow.uint64()),
    "key": _keys,
    "offset": lambda page: _wrap(page.offsets, pyarrow.int64()),
    "sent_at": lambda page: _wrap(page.sent_at_ms, _TIME),
    "first_received_at": lambda page: _null_if(_wrap(page.first_leased_ms, pyarrow.int64()), 0).cast(_TIME),
    "last_received_at": lambda page: _null_if(_wrap(page.last_leased_ms, pyarrow.int64()), 0).cast(_TIME),
    "settled_at": lambda page: _wrap(page.settled_at_ms, _TIME),
    "delivery_count": lambda page: _wrap(page.deliveries, pyarrow.uint32()),
    "tier": lambda page: _wrap(page.tier, pyarrow.uint8()),
    "priority": lambda page: _coded(page.tier, _PRIORITIES),
    "sent_priority": lambda page: _coded(page.sent_tier, _PRIORITIES),
    "outcome": lambda page: _coded(page.ending, _OUTCOMES),
    "group": lambda page: _words(page.group, len(page), pyarrow.binary()),
    "error": lambda page: _words(page.error, len(page), pyarrow.string()),
    "data": lambda page: _kept(page, page.body, pyarrow.binary()),
    "attributes": lambda page: _kept(page, page.attributes, pyarrow.string()),
}

# The same for a page of what is in a queue.
LIVE: dict[str, Callable[[LivePage], Any]] = {
    "queue": lambda page: _same(page.queue, len(page)),
    "queue_id": lambda page: _same_number(page.queue_number, len(page)),
    "first_queue": lambda page: _wrap(page.home, pyarrow.uint32()),
    "sent_tier": lambda page: _wrap(page.sent_tier, pyarrow.uint8()),
    "number": lambda page: _wrap(page.number, pyarrow.uint64()),
    "key": lambda page: _wrap(page.key, pyarrow.uint64()),
    "tier": lambda page: _wrap(page.tier, pyarrow.uint8()),
    "priority": lambda page: _coded(page.tier, _PRIORITIES),
    "state": lambda page: _coded(page.place, _STATES),
    "sent_at": lambda page: _wrap(page.sent_at_ms, _TIME),
    "delivery_count": lambda page: _wrap(page.deliveries, pyarrow.uint32()),
    "group": lambda page: _words(page.group, len(page), pyarrow.binary()),
    "error": lambda page: _words(page.error, len(page), pyarrow.string()),
    "data": lambda page: _maybe_blobs(page.body, len(page), pyarrow.binary()),
    "attributes": lambda page: _null_if_empty(_maybe_blobs(page.attributes, len(page), pyarrow.string())),
}
