"""Puts a rewritten file in the place of closed segments.

1. The new file is whole and durable, under a name that recovery does not look at.
2. It gets the name of the first segment it replaces. From here on it is the one, and
   those after it, whose offsets it uses up too, are left over.
3. Those are removed. If power is lost before, recovery removes them.
"""

from collections.abc import Sequence

from penstock.log.recovery import remove_segment
from penstock.log.segment import Segment, index_names, segment_name
from penstock.runtime.interface import Disk


def put_in_place(disk: Disk, folder: str, base_offset: int, file: str) -> None:
    for name in index_names(base_offset):
        if disk.exists(f"{folder}/{name}"):
            disk.remove(f"{folder}/{name}")
    disk.rename(f"{folder}/{file}", f"{folder}/{segment_name(base_offset)}")
    disk.sync_folder(folder)


def remove_replaced(disk: Disk, folder: str, segments: Sequence[Segment]) -> None:
    for segment in segments:
        remove_segment(disk, folder, segment.base_offset)
