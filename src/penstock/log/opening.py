"""What a recovered log begins with: its active segment, for readers and for the writer."""

import errno

from penstock.log.reader import OpenSegment
from penstock.log.recovery import Recovered
from penstock.log.tail import ActiveSegment
from penstock.runtime.interface import NO_SPACE

# Opening a log may be refused by the system without anything being wrong with the disk.
REFUSALS = NO_SPACE | {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOENT, errno.EMFILE, errno.ENFILE, errno.ELOOP}


def open_active(found: Recovered) -> OpenSegment:
    return OpenSegment(
        found.manifest.active_offset, found.active_file, found.active.index, found.active.end_position, is_active=True
    )


def active_segment(found: Recovered, opened: OpenSegment) -> ActiveSegment:
    end = found.active.end_position
    return ActiveSegment(
        base_offset=opened.base_offset,
        file=opened.file,
        index=opened.index,
        end_bytes=end,
        synced_bytes=end,
        allocated_bytes=end,
        begun_at_ms=found.active.first_timestamp_ms,
        is_confirmed=found.active.is_confirmed,
    )
