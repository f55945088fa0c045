"""Count the values of a body before it is decoded: each of them becomes a Python object.

A body of 16 MB can hold millions of values. Decoded, they take a gigabyte and block the event loop for seconds.
Text and binary data are one value each, however long: the limit is on structure, not on size.

Laws of this file
-----------------
1. Counting takes less time than decoding what is allowed. Callers skip small bodies, which cannot hold many values.
2. A malformed body is counted as far as it can be read. The decoder reports what is wrong with it.
"""

# By the first byte of a value in MessagePack: how many bytes follow, or, negative, in how many bytes that is said.
_FOLLOWING = [0] * 256
for _first in range(0xA0, 0xC0):
    _FOLLOWING[_first] = _first - 0xA0
for _first, _bytes in (
    *zip(range(0xC4, 0xCA), (-1, -2, -4, -1, -2, -4), strict=True),
    *zip(range(0xCA, 0xD4), (4, 8, 1, 2, 4, 8, 1, 2, 4, 8), strict=True),
    *zip(range(0xD4, 0xD9), (2, 3, 5, 9, 17), strict=True),
    *zip(range(0xD9, 0xDC), (-1, -2, -4), strict=True),
    *zip(range(0xDC, 0xE0), (2, 4, 2, 4), strict=True),
):
    _FOLLOWING[_first] = _bytes
# They have a byte for their type beside their length.
_EXTENSIONS = range(0xC7, 0xCA)


def has_more_in_json(body: bytes, most: int) -> bool:
    """Whether a body of JSON separates more than ``most`` values."""
    if body.count(b",") <= most:
        return False
    # Those in texts do not count. What is escaped would hide where a text ends.
    if b"\\" in body:
        body = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    # A member of an object has four quotes at most: of its name, and of its value.
    return body.count(b'"') > 4 * most or b"".join(body.split(b'"')[::2]).count(b",") > most


def has_more_in_msgpack(body: bytes, most: int) -> bool:
    """Whether a body of MessagePack holds more than ``most`` values; a list or a map is one, and so are its members."""
    at = found = 0
    end = len(body)
    while at < end and found <= most:
        first = body[at]
        following = _FOLLOWING[first]
        at += 1
        if following < 0:
            said = body[at : at - following]
            at += len(said) + int.from_bytes(said, "big") + (first in _EXTENSIONS)
        else:
            at += following
        found += 1
    return found > most
