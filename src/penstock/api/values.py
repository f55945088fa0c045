"""How many values a body holds, counted before it is decoded: each of them becomes an object of Python.

A body of 16 MB can say millions of them, in which it stands for a gigabyte and stops everybody else for seconds. Text
and binary data are one value each, however long, so what counts is structure and not size.

Laws of this file
-----------------
1. Counting takes less time than decoding what is allowed. Callers leave small bodies out: they cannot hold many.
2. What cannot be understood is counted as far as it goes. The decoder says what is wrong with it.
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
    """Whether a body of JSON separates more than so many values."""
    if body.count(b",") <= most:
        return False
    # Those in texts do not count. What is escaped would hide where a text ends.
    if b"\\" in body:
        body = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    # A member of an object has four quotes at most: of its name, and of its value.
    return body.count(b'"') > 4 * most or b"".join(body.split(b'"')[::2]).count(b",") > most


def has_more_in_msgpack(body: bytes, most: int) -> bool:
    """Whether a body of MessagePack holds more than so many values; a list or a map is one, and so are its members."""
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
