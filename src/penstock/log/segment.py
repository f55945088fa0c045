"""One file of batches, named by its first offset.

    00000000000000000000.log   batches and commit markers, back to back
                        .index, .timeindex   where to find them (`index.py`)

A segment is *active* while the log writes to it and *closed* ever after. A
closed segment is wholly durable: the log syncs it before the manifest names the
next one. So damage in a closed segment is never a torn tail.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from penstock.contract.limits import BATCH_BYTES_MAX, MIB
from penstock.log.record import HEADER_BYTES, LENGTH_FROM, BadBatch, Header, check
from penstock.runtime.interface import File

SUFFIX = ".log"
WINDOW_BYTES = 4 * MIB

_LENGTH = struct.Struct(">i")
_LENGTH_AT = 8


@dataclass(slots=True)
class Segment:
    """What is known of a segment without opening it."""

    base_offset: int
    next_offset: int
    size_bytes: int
    max_timestamp_ms: int


class BadAt(Exception):
    """There is no whole, undamaged batch at this position."""

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(reason)
        self.position = position
        self.reason = reason


def segment_name(base_offset: int) -> str:
    return f"{base_offset:020}{SUFFIX}"


def index_names(base_offset: int) -> tuple[str, str]:
    return f"{base_offset:020}.index", f"{base_offset:020}.timeindex"


def base_offsets(names: list[str]) -> list[int]:
    """Return the first offsets of the segments among these file names, in order."""
    stems = (name.removesuffix(SUFFIX) for name in names if name.endswith(SUFFIX))
    return sorted(int(stem) for stem in stems if len(stem) == 20 and stem.isdigit())


def walk(file: File, start: int, end: int) -> Iterator[tuple[int, Header, memoryview]]:
    """Iterate over position, header and bytes of each batch and marker, checking all of them.

    Raises `BadAt` at the first that is cut short or damaged. ``start`` must be
    the beginning of a batch.
    """
    position = window_at = start
    window = memoryview(b"")
    while position < end:
        at = position - window_at
        if len(window) - at < min(batch_size(window, at), end - position):
            size = max(WINDOW_BYTES, batch_size(window, at))
            window, window_at, at = memoryview(file.read(position, min(size, end - position))), position, 0
            if len(window) < min(batch_size(window, 0), end - position):
                window = memoryview(file.read(position, min(batch_size(window, 0), end - position)))
        try:
            header = check(window, at)
        except BadBatch as error:
            raise BadAt(position, str(error)) from None
        yield position, header, window[at : at + header.size]
        position += header.size


def batch_size(window: memoryview, at: int) -> int:
    """Return how many bytes the batch at ``at`` claims, or a header's worth if that cannot be seen."""
    if len(window) - at < HEADER_BYTES:
        return HEADER_BYTES
    length: int = _LENGTH.unpack_from(window, at + _LENGTH_AT)[0]
    # An absurd length is left for `check` to refuse: it must not decide how much is read.
    return length + LENGTH_FROM if 0 <= length <= BATCH_BYTES_MAX else HEADER_BYTES
