"""Which records of a compacted partition stay, and a batch without the others; each engine replaces it in its own way.

    batches:   looked at before       not looked at yet
              ├──────────────────────┼────────────────────┤ upto
    1. `look` at what was not looked at:  key ──▶ offset of its last record
    2. `rest` of all of it: without the records that have a later one of their key, without
       tombstones that all readers have had time to see, and without records that have no key

Laws of this file
-----------------
1. Every offset stays used up: a batch without some of its records says so
   (`THINNED_ATTRIBUTE`), and where nothing is left belongs a hole (`record.hole`). So
   offsets still follow each other without a gap, and a reader's position stays good.
2. A batch that loses nothing is the same as before, to the byte.
3. Memory is bounded: by the number of keys, then only what came before them is cleaned.
"""

import struct
from collections.abc import Sequence
from hashlib import blake2b

from crc32c import crc32c

from penstock.contract.limits import CLEANINGS_MAX, UNPACKED_BYTES_MAX
from penstock.log.record import (
    COMPRESSION_MASK,
    CRC_FROM,
    HEADER,
    HEADER_BYTES,
    LENGTH_FROM,
    THINNED_ATTRIBUTE,
    BadBatch,
    Header,
)
from penstock.runtime.interface import Buffer
from penstock.streams.compression import BadlyPacked, Entry, UnpackedTooLarge, UnsupportedCodec, entries, pack, unpacked
from penstock.streams.produce_checks import APPEND_TIME_ATTRIBUTE

_DIGEST_BYTES = 16
_CRC = struct.Struct(">I")
_CRC_AT = 17


class LatestRecords:
    """The last record of each key that came since a partition was cleaned, and with that which of all records stay."""

    def __init__(self, cleaned_offset: int, *, tombstones_before: int, keys_max: int) -> None:
        # Everything below was looked at.
        self.upto = cleaned_offset
        # Tombstones below have been there long enough.
        self._tombstones_before = tombstones_before
        self._keys_max = keys_max
        self._latest: dict[bytes, int] = {}

    def look(self, header: Header, batch: memoryview) -> bool:
        """Look at the next batch; one that was looked at before is passed over. False if it is of no more use."""
        if header.next_offset <= self.upto:
            return True
        if len(self._latest) >= self._keys_max:
            return False
        _, found = _records(header, batch)
        for entry in found or ():
            if entry.key is not None:
                self._latest[_digest(entry.key)] = header.base_offset + entry.offset_delta
        self.upto = header.next_offset
        return True

    def rest(self, header: Header, batch: memoryview) -> Buffer | None:
        """Return what stays of a batch: the same one if all of it does, None if nothing."""
        if header.base_offset >= self.upto:
            return batch
        records, found = _records(header, batch)
        if found is None:
            return batch
        kept = [entry for entry in found if self._is_kept(header, entry)]
        if not kept:
            return None
        return batch if len(kept) == len(found) else thinned(header, records, kept)

    def _is_kept(self, header: Header, entry: Entry) -> bool:
        offset = header.base_offset + entry.offset_delta
        if offset >= self.upto:
            return True
        if entry.key is None or (entry.is_tombstone and offset < self._tombstones_before):
            return False
        return offset >= self._latest.get(_digest(entry.key), offset)


def thinned(header: Header, records: memoryview, kept: Sequence[Entry]) -> bytearray:
    """Return a batch with some of its records only; the offsets of all of them stay used up."""
    latest_ms = header.base_timestamp_ms + max(entry.timestamp_delta_ms for entry in kept)
    codec = header.attributes & COMPRESSION_MASK
    body = pack(codec, b"".join(records[entry.start : entry.end] for entry in kept))
    attributes = header.attributes | THINNED_ATTRIBUTE
    fields = header._replace(
        length=HEADER_BYTES - LENGTH_FROM + len(body),
        attributes=attributes,
        max_timestamp_ms=header.max_timestamp_ms if header.attributes & APPEND_TIME_ATTRIBUTE else latest_ms,
        record_count=len(kept),
    )
    batch = bytearray(HEADER.pack(*fields)) + body
    _CRC.pack_into(batch, _CRC_AT, crc32c(memoryview(batch)[CRC_FROM:]))
    return batch


def _records(header: Header, batch: memoryview) -> tuple[memoryview, list[Entry] | None]:
    """Return the records of a batch, unpacked; None if they cannot be read.

    From before the topic was compacted there may be some that were not checked. They stay.
    """
    if header.is_hole:
        return batch[:0], []
    try:
        records = unpacked(batch, header, bytes_max=UNPACKED_BYTES_MAX)
        return records, list(entries(records, header.record_count))
    except (BadBatch, BadlyPacked, UnpackedTooLarge, UnsupportedCodec):
        return batch[:0], None


def _digest(key: memoryview) -> bytes:
    return blake2b(key, digest_size=_DIGEST_BYTES).digest()


def cleaned_before(cleanings: Sequence[tuple[int, int]], at_ms: int) -> int:
    """Return up to where everything had been looked at by a cleaning at that time."""
    return max((offset for offset, cleaned_at_ms in cleanings if cleaned_at_ms <= at_ms), default=0)


def with_cleaning(
    cleanings: list[tuple[int, int]], offset: int, at_ms: int, tombstone_ms: int
) -> list[tuple[int, int]]:
    """Return the cleanings that must be known after another one: of those old enough, only the last matters."""
    known = [*cleanings, (offset, at_ms)]
    old = [entry for entry in known if entry[1] <= at_ms - tombstone_ms]
    kept = old[-1:] + known[len(old) :]
    while len(kept) > CLEANINGS_MAX:
        # Of two neighbours the earlier is forgotten: its tombstones then wait for the later one's time.
        del kept[1]
    return kept
