"""CRC-32C with numpy alone: executors need not have the package that does it in C, and use it if they do.

A checksum follows from the one before it a byte at a time, but it is linear: those of many
pieces of equal length are computed side by side, and then joined in pairs. What stands
before a piece is added by moving its checksum past as many zeros as the piece has bytes.
"""

from collections.abc import Callable
from functools import lru_cache
from importlib import import_module
from typing import Any

import numpy as np

_POLYNOMIAL = 0x82F63B78
_PIECE_BYTES = 256
_BITS = 32


def crc32c(data: bytes | bytearray | memoryview) -> int:
    """Return the checksum of at least four bytes."""
    return _fastest()(data)


@lru_cache(maxsize=1)
def _fastest() -> Callable[[bytes | bytearray | memoryview], int]:
    try:
        found: Callable[[bytes | bytearray | memoryview], int] = import_module("crc32c").crc32c
    except ImportError:
        return crc32c_of_columns
    return found


def crc32c_of_columns(data: bytes | bytearray | memoryview) -> int:
    """The same, without the package.

    >>> hex(crc32c_of_columns(b"123456789"))
    '0xe3069283'
    """
    assert len(data) >= 4
    count = 1 << max(0, (len(data) - 1) // _PIECE_BYTES).bit_length()
    # Zeros in front change nothing: the checksum of nothing but zeros is zero until the first bytes are inverted.
    padded = np.zeros(count * _PIECE_BYTES, np.uint8)
    start = len(padded) - len(data)
    padded[start:] = np.frombuffer(data, np.uint8)
    padded[start : start + 4] ^= 0xFF
    steps = np.ascontiguousarray(padded.view("<u2").reshape(count, -1).T).astype(np.uint32)
    table = _two_bytes()
    found = np.zeros(count, np.uint32)
    for step in steps:
        found = table[(found ^ step) & 0xFFFF] ^ (found >> np.uint32(16))
    level = _PIECE_BYTES.bit_length() - 1
    while len(found) > 1:
        found = _moved(found[::2], _past_zeros(level)) ^ found[1::2]
        level += 1
    return int(found[0]) ^ 0xFFFFFFFF


@lru_cache(maxsize=1)
def _one_byte() -> Any:
    found: Any = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        found = (found >> np.uint32(1)) ^ (found & 1) * np.uint32(_POLYNOMIAL)
    return found


@lru_cache(maxsize=1)
def _two_bytes() -> Any:
    first = _one_byte()[np.arange(1 << 16) & 0xFF] ^ (np.arange(1 << 16, dtype=np.uint32) >> np.uint32(8))
    return _one_byte()[first & 0xFF] ^ (first >> np.uint32(8))


@lru_cache(maxsize=_BITS)
def _past_zeros(level: int) -> Any:
    """What becomes of each bit of a checksum behind 2 to the power of ``level`` zeros."""
    bits = np.uint32(1) << np.arange(_BITS, dtype=np.uint32)
    if level == 0:
        return _one_byte()[bits & 0xFF] ^ (bits >> np.uint32(8))
    half = _past_zeros(level - 1)
    return _moved(half, half)


def _moved(checksums: Any, by_bit: Any) -> Any:
    found = np.zeros(len(checksums), np.uint32)
    for bit in range(_BITS):
        found ^= (checksums >> np.uint32(bit) & 1) * by_bit[bit]
    return found
