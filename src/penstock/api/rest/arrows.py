"""A page of the history as an Arrow IPC stream: columns are wrapped, and nobody loops over rows.

Numbers are the arrays of the history as they are; groups, errors, priorities and
outcomes are dictionaries; bodies are binary. Nothing is made for each row, so the id of
a message is three columns, of which its text is `<first_queue>-<number · 8 + sent_tier>`
in hexadecimal. The metadata of the schema has the offsets.

To import this module is to need `penstock[arrow]`.
"""

from typing import Any

import pyarrow  # type: ignore[import-untyped]
from pyarrow import compute

from penstock.frame import Blobs
from penstock.store.history import BodyState, Coded, HistoryPage
from penstock.wire.operating import OUTCOMES
from penstock.wire.queues import PRIORITIES


def arrow_stream(page: HistoryPage) -> bytes:
    """Return a page as an Arrow IPC stream of one batch. It copies the columns once, and loops over none."""
    columns = _numbers(page) | _texts(page)
    schema = pyarrow.schema([(name, column.type) for name, column in columns.items()]).with_metadata(
        {
            "next_offset": str(page.next_offset),
            "first_kept_offset": str(page.first_kept_offset),
            "end_offset": str(page.end_offset),
        }
    )
    sink = pyarrow.BufferOutputStream()
    with pyarrow.ipc.new_stream(sink, schema) as writer:
        writer.write_batch(pyarrow.RecordBatch.from_arrays(list(columns.values()), schema=schema))
    return bytes(sink.getvalue())


def _numbers(page: HistoryPage) -> dict[str, Any]:
    time = pyarrow.timestamp("ms", tz="UTC")
    return {
        "first_queue": _wrap(page.home, pyarrow.uint32()),
        "sent_tier": _wrap(page.sent_tier, pyarrow.uint8()),
        "number": _wrap(page.number, pyarrow.uint64()),
        "sent_at": _wrap(page.sent_at_ms, time),
        "first_received_at": _null_if(_wrap(page.first_leased_ms, pyarrow.int64()), 0).cast(time),
        "last_received_at": _null_if(_wrap(page.last_leased_ms, pyarrow.int64()), 0).cast(time),
        "settled_at": _wrap(page.settled_at_ms, time),
        "delivery_count": _wrap(page.deliveries, pyarrow.uint32()),
    }


def _texts(page: HistoryPage) -> dict[str, Any]:
    rows, priorities = len(page), pyarrow.array(list(PRIORITIES))
    outcomes = pyarrow.array(list(OUTCOMES))
    return {
        "priority": _coded(page.tier, priorities),
        "sent_priority": _coded(page.sent_tier, priorities),
        "outcome": _coded(page.ending, outcomes),
        "group": _words(page.group, rows, pyarrow.binary()),
        "error": _words(page.error, rows, pyarrow.string()),
        "data": _kept(page, page.body, pyarrow.binary()),
        "attributes": _kept(page, page.attributes, pyarrow.string()),
    }


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
