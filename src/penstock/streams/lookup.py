"""Finds the first record of a time in one batch."""

from penstock.log.record import BadBatch
from penstock.log.record import header as read_header
from penstock.streams.batches import APPEND_TIME_ATTRIBUTE
from penstock.streams.packing import BadlyPacked, UnpackedTooLarge, UnsupportedCodec
from penstock.streams.records import entries, unpacked


def first_at(
    batch: memoryview, time_ms: int, from_offset: int, *, bytes_max: int
) -> tuple[tuple[int, int] | None, int]:
    """Return offset and time of the first record of this time or later, not before an offset, and where to go on.

    A batch says its latest time itself. One whose records do not bear that out, or
    cannot be read, is taken at its word: its first record is the answer.
    """
    header = read_header(batch)
    if header.is_hole or header.max_timestamp_ms < time_ms:
        return None, header.next_offset
    first = max(header.base_offset, from_offset)
    if header.attributes & APPEND_TIME_ATTRIBUTE:
        return (first, header.max_timestamp_ms), header.next_offset
    try:
        for entry in entries(unpacked(batch, header, bytes_max=bytes_max), header.record_count):
            offset = header.base_offset + entry.offset_delta
            at_ms = header.base_timestamp_ms + entry.timestamp_delta_ms
            if offset >= from_offset and at_ms >= time_ms:
                return (offset, at_ms), header.next_offset
    except (BadBatch, BadlyPacked, UnpackedTooLarge, UnsupportedCodec):
        return (first, header.max_timestamp_ms), header.next_offset
    return (None if from_offset > header.base_offset else (first, header.max_timestamp_ms)), header.next_offset
