"""Which segments of a stream are old enough, or too many, to keep.

Whole segments go, oldest first, and never the active one. A reader's position
plays no part: a stream is kept for a time or a size, not until it is read.
"""

from collections.abc import Sequence

from penstock.log.segment import Segment


def first_kept_offset(
    segments: Sequence[Segment], *, now_ms: int, age_ms_max: int | None = None, bytes_max: int | None = None
) -> int:
    """Return the offset to give to `drop_before`.

    A segment is too old when its newest record is. The log is too large while it
    takes more than ``bytes_max``.
    """
    kept = 0
    total_bytes = sum(segment.size_bytes for segment in segments)
    for segment in segments[:-1]:
        is_old = age_ms_max is not None and segment.max_timestamp_ms < now_ms - age_ms_max
        is_too_much = bytes_max is not None and total_bytes > bytes_max
        if not is_old and not is_too_much:
            break
        kept += 1
        total_bytes -= segment.size_bytes
    return segments[kept].base_offset
