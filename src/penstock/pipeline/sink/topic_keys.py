"""The partition of each row: what its column says, or its key, or one for all rows that have neither."""

from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from penstock.core.partitioning import murmur2
from penstock.pipeline.sink.topic_batches import without_null

NOT_SAID = -1
_SEED, _FACTOR = np.uint32(0x9747B28C), np.uint32(0x5BD1E995)
# Longer keys are few, and go one by one.
_WORDS_MAX = 64


def partitions_of(rows: pa.RecordBatch, *, partitions: int, otherwise: int) -> Any:
    """Return a partition for each row of `columns.read_rows`; ``otherwise`` where nothing is said and no key is there.

    Rows without a key that are sent together go to one partition, as Kafka's own clients have it: many small
    batches cost more than a few large ones. The next ones go to the next.
    """
    found = np.full(rows.num_rows, otherwise % partitions, np.int32)
    names = rows.schema.names
    if "key" in names:
        keys = rows.column("key")
        has_key = pc.is_valid(keys).to_numpy(zero_copy_only=False)
        if has_key.any():
            hashes = murmur2_of(without_null(keys)) & np.uint32(0x7FFFFFFF)
            found = np.where(has_key, (hashes % np.uint32(partitions)).astype(np.int32), found)
    if "partition" in names:
        said = rows.column("partition").to_numpy(zero_copy_only=False)
        found = np.where(said == NOT_SAID, found, said)
    return found.astype(np.int32)


def murmur2_of(keys: pa.Array) -> Any:
    """Return the hash of each key of an Arrow column of binary without nulls."""
    _, offsets, buffer = keys.buffers()
    ends = np.frombuffer(offsets, np.int32)[keys.offset : keys.offset + len(keys) + 1].astype(np.int64)
    starts, lengths = ends[:-1], np.diff(ends)
    content = b"" if buffer is None else buffer[int(ends[0]) : int(ends[-1])]
    # What follows the last key is looked at and not used.
    data = np.frombuffer(b"".join((content, bytes(4))), np.uint8).astype(np.uint32)
    starts = starts - ends[0]
    words = lengths // 4
    found = _SEED ^ lengths.astype(np.uint32)
    for place in range(min(int(words.max(initial=0)), _WORDS_MAX)):
        chosen = np.flatnonzero(words > place)
        word = _word(data, starts[chosen] + 4 * place) * _FACTOR
        word = (word ^ word >> np.uint32(24)) * _FACTOR
        found[chosen] = found[chosen] * _FACTOR ^ word
    rest = lengths % 4
    tails = np.flatnonzero(rest)
    tail = _word(data, starts[tails] + 4 * words[tails]) & ((np.uint32(1) << (8 * rest[tails]).astype(np.uint32)) - 1)
    found[tails] = (found[tails] ^ tail.astype(np.uint32)) * _FACTOR
    found = (found ^ found >> np.uint32(13)) * _FACTOR
    found = found ^ found >> np.uint32(15)
    for long in np.flatnonzero(words > _WORDS_MAX).tolist():
        found[long] = murmur2(keys[long].as_py())
    return found


def _word(data: Any, at: Any) -> Any:
    """The four bytes at each position as a number, the lowest first."""
    found = data[at]
    for place in range(1, 4):
        found = found | data[at + place] << np.uint32(8 * place)
    return found
