"""The commit marker: what makes a torn tail and a damaged middle two different things.

Each commit ends with one. It is an empty record batch (`record.py`) with an
attribute of our own; its idle fields carry what recovery needs to know:

    base offset      last offset of the commit: a marker uses up no offset
    base timestamp   position in this segment known durable when this was written
    max timestamp    position of the marker itself
    producer id      the log's id: random, so that no message body can pose as a
                     marker, and a segment of another log is recognised
    producer epoch   version of the marker
    base sequence    CRC-32C over the heads of the commit's batches and of the
                     marker: what Kafka's CRC leaves out, because brokers write
                     offset and epoch over

A bad batch at X is *damage* if a later marker says that more than X was
durable. Otherwise power was lost before anyone was told that X is safe.

Markers never leave the log: `DiskLog.read` returns batches without them.
"""

import struct
from collections.abc import Iterable
from typing import NamedTuple

from crc32c import crc32c

from penstock.log.record import (
    CRC_FROM,
    HEAD,
    HEADER_BYTES,
    LEADER_EPOCH,
    LENGTH_FROM,
    MARKER_ATTRIBUTE,
    VERSION,
    Header,
)
from penstock.runtime.interface import Buffer

MARKER_BYTES = HEADER_BYTES
MARKER_VERSION = 1
LOG_ID_AT = 43

_TAIL = struct.Struct(">hiqqqhii")
_VERSION_AND_CRC = struct.Struct(">bI")
assert HEAD.size + _VERSION_AND_CRC.size == CRC_FROM


class Marker(NamedTuple):
    durable_bytes: int
    position: int
    log_id: int
    version: int
    heads_crc: int


class MarkerPosition(NamedTuple):
    """Where a marker stands: after which record, at which byte."""

    last_offset: int
    position: int


def encode(place: MarkerPosition, *, durable_bytes: int, log_id: int, heads: Iterable[Buffer]) -> bytes:
    """Return the marker that closes a commit of batches with these ``heads``."""
    assert 0 <= durable_bytes <= place.position
    assert place.last_offset >= 0
    head = HEAD.pack(place.last_offset, HEADER_BYTES - LENGTH_FROM, LEADER_EPOCH)
    tail = _TAIL.pack(
        MARKER_ATTRIBUTE, 0, durable_bytes, place.position, log_id, MARKER_VERSION, _signed(heads_crc(heads, head)), 0
    )
    return b"".join((head, _VERSION_AND_CRC.pack(VERSION, crc32c(tail)), tail))


def decode(header: Header) -> Marker:
    """Read the marker out of a checked header."""
    assert header.is_marker
    return Marker(
        durable_bytes=header.base_timestamp_ms,
        position=header.max_timestamp_ms,
        log_id=header.producer_id,
        version=header.producer_epoch,
        heads_crc=header.base_sequence & 0xFFFFFFFF,
    )


def heads_crc(heads: Iterable[Buffer], own_head: Buffer) -> int:
    return crc32c(b"".join((*heads, own_head)))


def _signed(number: int) -> int:
    return number - (1 << 32) if number >= 1 << 31 else number
