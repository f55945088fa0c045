"""Snapshots: what a shard was at one offset of its journal, in a file.

    snapshots/00000000000000004711.snapshot    everything below offset 4711 is in it

A file is sections, each checked by itself:

     0        8        12
    ┌────────┬────────┬─ ─ ─ ─ ─ ─ ─ ─ ┐
    │ length │ CRC-32C│ MessagePack    │      little-endian; the CRC is of the MessagePack
    │ u64    │ u32    │                │
    └────────┴────────┴─ ─ ─ ─ ─ ─ ─ ─ ┘

The first says what the file is and how many follow; each of the others is a
queue. A queue is the plain values of `core/queue/snapshot.py`, its name, and where its
bodies are.

Laws of the file
----------------
1. A snapshot has its name only when it is whole and durable: it is written under
   another one, synced, renamed, and the folder synced.
2. A snapshot is made of what is durable in the journal, never of what is not.
3. The two newest are kept, and with them the journal from the older one on. A
   damaged one is therefore an annoyance: the one before it still leads to the end.
"""

import struct
from array import array
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from crc32c import crc32c

from penstock.core.queue.queue import Queue
from penstock.core.queue.snapshot import StateUnreadable, freeze, thaw
from penstock.runtime.interface import Disk, File
from penstock.store.embedded.body_index import BodyIndex
from penstock.store.embedded.shard_state import ShardState

FORMAT = 1
SUFFIX = ".snapshot"
UNFINISHED = ".tmp"
# For a person to look at; no program reads it.
UNUSABLE = ".unusable"

_HEAD = struct.Struct("<QI")
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder().decode


class SnapshotDamaged(Exception):
    """A snapshot is not what was written."""


class SnapshotUnknown(Exception):
    """A snapshot was written by a newer version, which this one does not understand."""


def snapshot_name(offset: int) -> str:
    return f"{offset:020}{SUFFIX}"


def snapshot_offsets(disk: Disk, folder: str) -> list[int]:
    """Return the offsets of the snapshots in a folder, rising."""
    stems = (name.removesuffix(SUFFIX) for name in disk.names(folder) if name.endswith(SUFFIX))
    return sorted(int(stem) for stem in stems if len(stem) == 20 and stem.isdigit())


def set_aside(disk: Disk, folder: str, offsets: Sequence[int]) -> None:
    """Let the names go by which snapshots are found: the next is not to be built on them.

    A journal that was put back from a copy goes on differently from there. Once it
    is long enough, a snapshot from beyond its end would look as if it were its own.
    """
    for offset in offsets:
        path = f"{folder}/{snapshot_name(offset)}"
        disk.rename(path, path + UNUSABLE)
    if offsets:
        disk.sync_folder(folder)


def save(disk: Disk, folder: str, memory: ShardState, offset: int) -> int:
    """Write the snapshot of a shard at ``offset``; durable on return. Returns its size in bytes."""
    disk.make_folder(folder)
    for name in disk.names(folder):
        if name.endswith(UNFINISHED):
            disk.remove(f"{folder}/{name}")
    path = f"{folder}/{snapshot_name(offset)}"
    file = disk.open(path + UNFINISHED)
    try:
        size = _write(file, memory, offset)
        file.sync()
    finally:
        file.close()
    disk.rename(path + UNFINISHED, path)
    disk.sync_folder(folder)
    return size


def _write(file: File, memory: ShardState, offset: int) -> int:
    position = 0
    head = {
        "format": FORMAT,
        "offset": offset,
        "next_queue": memory.next_queue,
        "newest_ms": memory.newest_ms,
        "queues": len(memory.queues),
    }
    for section in (head, *_queues(memory)):
        data = _encode(section)
        file.write(_HEAD.pack(len(data), crc32c(data)) + data, position)
        position += _HEAD.size + len(data)
    return position


def _queues(memory: ShardState) -> Iterator[dict[str, Any]]:
    """One at a time, so that only one is twice in memory."""
    for number, queue in memory.queues.items():
        places = memory.places[number]
        yield {
            "name": memory.names[number],
            "state": freeze(queue.state),
            "places": [(*lane.columns(), lane.next) for lane in places.lanes],
        }


def load(disk: Disk, folder: str, offset: int) -> ShardState:
    """Read a snapshot. Raises `SnapshotDamaged`, or `SnapshotUnknown` for one of another format."""
    path = f"{folder}/{snapshot_name(offset)}"
    file = disk.open(path, must_exist=True)
    try:
        sections = _sections(file, path)
        head = next(sections, None)
        if head is None:
            raise SnapshotDamaged(f"{path} is empty")
        if head.get("format") != FORMAT:
            raise SnapshotUnknown(f"{path} is of format {head.get('format')}; this version knows {FORMAT}")
        if head["offset"] != offset:
            raise SnapshotDamaged(f"{path} is the snapshot of offset {head['offset']}")
        memory = ShardState()
        for section in sections:
            _put(memory, section, path)
    finally:
        file.close()
    if len(memory.queues) != head["queues"]:
        raise SnapshotDamaged(f"{path} has {len(memory.queues)} of {head['queues']} queues")
    memory.next_queue = head["next_queue"]
    memory.newest_ms = head["newest_ms"]
    return memory


def _sections(file: File, path: str) -> Iterator[dict[str, Any]]:
    position, end = 0, file.size()
    while position < end:
        head = file.read(position, _HEAD.size)
        length, crc = _HEAD.unpack(head) if len(head) == _HEAD.size else (end, 0)
        position += _HEAD.size
        data = file.read(position, length) if length <= end - position else b""
        # Zeros are a section of no bytes with the right CRC.
        if not data or len(data) != length or crc32c(data) != crc:
            raise SnapshotDamaged(f"{path} is damaged at byte {position}")
        yield _decode(data)
        position += length


def _put(memory: ShardState, section: dict[str, Any], path: str) -> None:
    try:
        state = thaw(section["state"])
    except StateUnreadable as error:
        raise SnapshotDamaged(f"{path}, queue {section['name']!r}: {error}") from None
    queue = Queue(state.queue)
    queue.state = state
    places = BodyIndex()
    for lane, (firsts, records, rows, sizes, next_number) in zip(places.lanes, section["places"], strict=True):
        lane.firsts, lane.records = array("Q", firsts), array("Q", records)
        lane.rows, lane.sizes = array("I", rows), array("I", sizes)
        lane.next = next_number
    memory.put(queue, section["name"], places)
