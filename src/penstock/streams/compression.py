"""Unpacks and packs the records of a batch: Kafka's four codecs, none of which may take more memory than allowed.

`entries` reads the unpacked records one by one. Of what is produced and fetched only
batches of compacted topics are read so.

What a sender says about the unpacked size is never believed. The output has a fixed
size, the allowed one at most, and a codec that wants to write beyond it fails.

Snappy has two forms: bare, and in the frame of its Java library, which is what
Kafka's clients send:

    82 'SNAPPY' 00 · i32 version · i32 compatible · n × (i32 length · block)

A batch may not cost much time for few bytes, either: snappy has a bounded number of
blocks, and gzip one member, as all clients send it.
"""

import struct
import zlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import cramjam

from penstock.contract.limits import KIB, MIB
from penstock.log.record import COMPRESSION_MASK, HEADER_BYTES, BadBatch, Header, read_bytes, read_varint
from penstock.runtime.interface import Buffer

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)

_JAVA_SNAPPY = b"\x82SNAPPY\0"
_JAVA_SNAPPY_HEAD = _JAVA_SNAPPY + struct.pack(">ii", 1, 1)
_JAVA_SNAPPY_BLOCK_BYTES = 32 * KIB
# With blocks of the usual size, twice what any batch may become.
_SNAPPY_BLOCKS_MAX = 4_096
_LENGTH = struct.Struct(">i")
# A window of 32 KiB, in gzip's frame.
_GZIP_WINDOW_BITS = 31

# Magic number; version 1, independent blocks, no checksums; at most 64 KiB in a block; the checksum of those two bytes.
_LZ4_HEAD = b"\x04\x22\x4d\x18\x60\x40\x82"
_LZ4_BLOCK_BYTES = 64 * KIB
_LZ4_LENGTH = struct.Struct("<I")
_LZ4_IS_PLAIN = 0x8000_0000

# A decoder of zstandard keeps this much of what it wrote, before it has written anything.
_WINDOW_BYTES_MAX = 8 * MIB
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"


class UnsupportedCodec(Exception):
    """The batch is packed in a way that is not known here."""


class UnpackedTooLarge(Exception):
    """The batch becomes larger than allowed when it is unpacked. It was not."""


class BadlyPacked(Exception):
    """The batch cannot be unpacked."""


def unpack(codec: int, packed: Buffer, *, bytes_max: int) -> memoryview:
    """Return what was packed; raises the three above."""
    match codec:
        case 1:
            return _unpack_gzip(packed, bytes_max)
        case 2:
            return _unpack_snappy(memoryview(packed), bytes_max)
        case 3:
            return _unpack_into(cramjam.lz4.decompress_into, packed, bytes_max)
        case 4:
            _check_window(bytes(packed[:18]), bytes_max)
            return _unpack_into(cramjam.zstd.decompress_into, packed, bytes_max)
    raise UnsupportedCodec(f"codec {codec}; there are 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd")


def _unpack_into(decode: Callable[[Any, Any], int], packed: Buffer, bytes_max: int) -> memoryview:
    size = min(bytes_max, max(64 * KIB, 8 * len(packed)))
    while True:
        room = bytearray(size)
        try:
            return memoryview(room)[: decode(packed, room)]
        except cramjam.DecompressionError as error:
            # What a full output says; everything else is about what came in.
            if "whole buffer" not in str(error):
                raise BadlyPacked(str(error)) from None
        if size == bytes_max:
            raise UnpackedTooLarge(f"it becomes larger than {bytes_max} bytes")
        size = bytes_max


def pack(codec: int, records: Buffer) -> bytes:
    """Pack records again as they were packed, so that every client can read them."""
    match codec:
        case 0:
            return bytes(records)
        case 1:
            return bytes(cramjam.gzip.compress(records))
        case 2:
            return _pack_snappy(memoryview(records))
        case 3:
            return _pack_lz4(memoryview(records))
        case 4:
            return bytes(cramjam.zstd.compress(records))
    raise UnsupportedCodec(f"codec {codec}")


def _pack_snappy(records: memoryview) -> bytes:
    parts = [_JAVA_SNAPPY_HEAD]
    for at in range(0, len(records), _JAVA_SNAPPY_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(records[at : at + _JAVA_SNAPPY_BLOCK_BYTES]))
        parts += (_LENGTH.pack(len(block)), block)
    return b"".join(parts)


def _pack_lz4(records: memoryview) -> bytes:
    """Make a frame of blocks that do not depend on each other: the library's own do, and Kafka's Java client refuses
    them."""
    parts = [_LZ4_HEAD]
    for at in range(0, len(records), _LZ4_BLOCK_BYTES):
        plain = records[at : at + _LZ4_BLOCK_BYTES]
        block = bytes(cramjam.lz4.compress_block(plain, store_size=False))
        if len(block) < len(plain):
            parts += (_LZ4_LENGTH.pack(len(block)), block)
        else:
            parts += (_LZ4_LENGTH.pack(len(plain) | _LZ4_IS_PLAIN), bytes(plain))
    return b"".join((*parts, bytes(4)))


def _unpack_gzip(packed: Buffer, bytes_max: int) -> memoryview:
    decoder = zlib.decompressobj(_GZIP_WINDOW_BITS)
    try:
        # The output grows as it is written.
        found = decoder.decompress(packed, bytes_max)
        if not decoder.eof and decoder.decompress(decoder.unconsumed_tail, 1):
            raise UnpackedTooLarge(f"it becomes larger than {bytes_max} bytes")
    except zlib.error as error:
        raise BadlyPacked(str(error)) from None
    if not decoder.eof or decoder.unused_data:
        raise BadlyPacked("gzip that is cut short, or that has more than one member")
    return memoryview(found)


def _unpack_snappy(packed: memoryview, bytes_max: int) -> memoryview:
    if packed[: len(_JAVA_SNAPPY)] != _JAVA_SNAPPY:
        return _unpack_blocks([packed], bytes_max)
    blocks: list[memoryview] = []
    at = len(_JAVA_SNAPPY_HEAD)
    while at < len(packed):
        if at + _LENGTH.size > len(packed):
            raise BadlyPacked("a block of snappy without its length")
        (length,) = _LENGTH.unpack_from(packed, at)
        at += _LENGTH.size
        if not 0 < length <= len(packed) - at:
            raise BadlyPacked(f"a block of snappy of {length} bytes")
        if len(blocks) == _SNAPPY_BLOCKS_MAX:
            raise BadlyPacked(f"more than {_SNAPPY_BLOCKS_MAX} blocks of snappy")
        blocks.append(packed[at : at + length])
        at += length
    return _unpack_blocks(blocks, bytes_max)


def _unpack_blocks(blocks: list[memoryview], bytes_max: int) -> memoryview:
    try:
        # Each block says its size, and its decoder holds it to that.
        sizes = [cramjam.snappy.decompress_raw_len(block) for block in blocks]
        total = sum(sizes)
        if total > bytes_max:
            raise UnpackedTooLarge(f"it becomes {total} bytes; {bytes_max} are allowed")
        room = memoryview(bytearray(total))
        at = 0
        for block, size in zip(blocks, sizes, strict=True):
            at += cramjam.snappy.decompress_raw_into(block, room[at : at + size])
    except cramjam.DecompressionError as error:
        raise BadlyPacked(str(error)) from None
    return room[:at]


def _check_window(front: bytes, bytes_max: int) -> None:
    """Refuse a frame of zstandard whose decoder would take much memory at once (RFC 8878, 3.1.1.1)."""
    if front[:4] != _ZSTD_MAGIC or len(front) < 6:
        raise BadlyPacked("it does not begin as zstandard does")
    descriptor = front[4]
    if not descriptor & 0x20:
        exponent, mantissa = front[5] >> 3, front[5] & 7
        base = 1 << (10 + exponent)
        window = base + base // 8 * mantissa
    else:
        # A single segment: the window is all of the content.
        at = 5 + (0, 1, 2, 4)[descriptor & 3]
        width = (1, 2, 4, 8)[descriptor >> 6]
        window = int.from_bytes(front[at : at + width], "little")
    if window > max(_WINDOW_BYTES_MAX, bytes_max):
        raise UnpackedTooLarge(f"zstandard with a window of {window} bytes")


class Entry(NamedTuple):
    """A record and where it lies among the unpacked ones of its batch."""

    start: int
    end: int
    offset_delta: int
    timestamp_delta_ms: int
    key: memoryview | None
    is_tombstone: bool


def unpacked(batch: Buffer, header: Header, *, bytes_max: int) -> memoryview:
    """Return the records of a batch as bytes; raises what `unpack` does."""
    packed = memoryview(batch)[HEADER_BYTES : header.size]
    codec = header.attributes & COMPRESSION_MASK
    return unpack(codec, packed, bytes_max=bytes_max) if codec else packed


def entries(records: memoryview, count: int) -> Iterator[Entry]:
    """Iterate over ``count`` records, which must be all there are. Raises `BadBatch`."""
    position = 0
    last_delta = -1
    for _ in range(count):
        length, at = read_varint(records, position)
        end = at + length
        timestamp_delta_ms, at = read_varint(records, at + 1)
        offset_delta, at = read_varint(records, at)
        key, at = read_bytes(records, at)
        value, at = read_bytes(records, at)
        # A length that leads back would have us read a small batch for ever.
        if not at < end <= len(records):
            raise BadBatch("a record does not end where it says")
        if offset_delta <= last_delta:
            raise BadBatch(f"offset delta {offset_delta} after {last_delta}")
        last_delta = offset_delta
        yield Entry(position, end, offset_delta, timestamp_delta_ms, key, value is None)
        position = end
    if position != len(records):
        raise BadBatch(f"{len(records) - position} bytes after the last record")
