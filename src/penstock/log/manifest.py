"""What must be known about a log before its segments are read.

One small file with two slots, written in turn, each with its own CRC:

    0                       65,536                  131,072
    ├── slot 0 ─────────────┼── slot 1 ─────────────┼── floor ──────────────────────────────┤
    │ crc u32 · length u32 · JSON · (unused)        │ crc u32 · log id u64 · offset u64     │

A new state goes into the slot of the older one, then is synced. A write that a
crash tears leaves the other slot whole; the file never grows, is never renamed,
and can be written on a full disk, where dropping a segment must still work.

The floor (`group_commit.py`) lies within one sector, which a disk writes wholly or not at
all. Without it, or with one of another log, there is none.

If a slot is bad, the older state counts. That is safe only if the segments
agree with it, so recovery checks them against it and refuses what does not fit.
"""

import json
import struct
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

from crc32c import crc32c

from penstock.runtime.interface import Disk

FORMAT = 1
NAME = "manifest"
SLOT_BYTES = 64 * 1024

_PREFIX = struct.Struct(">II")
_FLOOR = struct.Struct(">QQ")
_FLOOR_AT = 2 * SLOT_BYTES
_CRC = struct.Struct(">I")


class UnknownFormat(Exception):
    """The log was written by another version of Penstock. Nothing was changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    log_id: int
    # Each change of the manifest counts one up; the larger of the two slots is the state.
    sequence: int = 0
    # Everything below was dropped on purpose: a segment missing above it is damage.
    start_offset: int = 0
    # The segment being written. A later one never held anything acknowledged.
    active_offset: int = 0
    # Where the log ended when it was last closed in good order; None while it is open.
    clean_end_offset: int | None = None
    # When it was last closed in good order, if its owner has said so.
    closed_at_ms: int = 0


@dataclass(frozen=True, slots=True)
class ManifestRead:
    manifest: Manifest
    # Whether the other slot is bad: a torn write, or damage to the newer state.
    is_fallback: bool
    # Everything below it was synced: what is missing there is damage.
    floor_offset: int = 0


def read(disk: Disk, folder: str) -> ManifestRead | None:
    """Return the newest whole state, or None if the log was never completely created."""
    if not disk.exists(f"{folder}/{NAME}"):
        return None
    file = disk.open(f"{folder}/{NAME}")
    try:
        # A killed process may have left a state that only the kernel's memory knows. It is about to be acted
        # upon, segments removed by it, so it must not go back any more.
        file.sync()
        file.forget_cached()
        slots = [file.read(at, SLOT_BYTES) for at in (0, SLOT_BYTES)]
        floor = file.read(_FLOOR_AT, _CRC.size + _FLOOR.size)
    finally:
        file.close()
    found = newest(slots)
    return None if found is None else replace(found, floor_offset=_floor_of(floor, found.manifest.log_id))


def newest(slots: Sequence[bytes]) -> ManifestRead | None:
    """Return the newest whole state among the slots of a manifest; None if there is none.

    Also for those who only look: one slot may be half written while they do, and the
    other is whole then.
    """
    whole = [state for state in map(_decode, slots) if state is not None]
    if not whole:
        return None
    return ManifestRead(max(whole, key=lambda slot: slot.sequence), is_fallback=len(whole) < 2)


def write(disk: Disk, folder: str, manifest: Manifest, *, floor_offset: int | None = None) -> None:
    """Make ``manifest`` the durable state of the log, and raise its floor. The file's name must already be durable."""
    file = disk.open(f"{folder}/{NAME}")
    try:
        file.write(_encode(manifest), manifest.sequence % 2 * SLOT_BYTES)
        if floor_offset is not None:
            file.write(_encode_floor(manifest.log_id, floor_offset), _FLOOR_AT)
        file.sync()
    finally:
        file.close()


def write_floor(disk: Disk, folder: str, log_id: int, offset: int) -> None:
    """Say durably that everything below an offset is durable. It touches neither slot, so it may meet a `write`."""
    file = disk.open(f"{folder}/{NAME}", must_exist=True)
    try:
        file.write(_encode_floor(log_id, offset), _FLOOR_AT)
        file.sync()
    finally:
        file.close()


def create(disk: Disk, folder: str, manifest: Manifest) -> None:
    """Write the first state of a log into both slots, and make the file's name durable."""
    assert manifest.sequence == 0
    file = disk.open(f"{folder}/{NAME}")
    try:
        # Both slots have a state, so that a bad slot always means a torn write or damage. What is between takes no
        # room: there may be thousands of logs.
        for at in (0, SLOT_BYTES):
            file.write(_encode(manifest), at)
        file.write(_encode_floor(manifest.log_id, 0), _FLOOR_AT)
        file.sync()
    finally:
        file.close()
    disk.sync_folder(folder)


def _encode(manifest: Manifest) -> bytes:
    text = json.dumps({"format": FORMAT, **asdict(manifest)}, separators=(",", ":")).encode()
    slot = _PREFIX.pack(crc32c(text), len(text)) + text
    assert len(slot) <= SLOT_BYTES
    return slot


def _encode_floor(log_id: int, offset: int) -> bytes:
    floor = _FLOOR.pack(log_id, offset)
    return _CRC.pack(crc32c(floor)) + floor


def _floor_of(data: bytes, log_id: int) -> int:
    if len(data) < _CRC.size + _FLOOR.size or data[: _CRC.size] != _CRC.pack(crc32c(data[_CRC.size :])):
        return 0
    owner, offset = _FLOOR.unpack_from(data, _CRC.size)
    return int(offset) if owner == log_id else 0


def _decode(slot: bytes) -> Manifest | None:
    if len(slot) < _PREFIX.size:
        return None
    crc, length = _PREFIX.unpack_from(slot)
    text = slot[_PREFIX.size : _PREFIX.size + length]
    if not text or len(text) != length or crc32c(text) != crc:
        return None
    fields = json.loads(text)
    found = fields.pop("format")
    if found != FORMAT:
        raise UnknownFormat(f"this log has format {found}; this version of Penstock reads format {FORMAT}")
    return Manifest(**fields)
