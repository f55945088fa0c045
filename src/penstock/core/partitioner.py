"""Which partition of a topic the records of a key go to: murmur2, as the clients of Java and Python do it."""

_SEED, _FACTOR, _WORD = 0x9747B28C, 0x5BD1E995, 0xFFFFFFFF


def partition_of(key: bytes, partitions: int) -> int:
    """Return where records with a key go.

    >>> [partition_of(key, 100) for key in (b"", b"a", b"ab", b"abc", b"abcd")]
    [81, 24, 34, 7, 0]
    """
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def murmur2(data: bytes) -> int:
    length = len(data)
    found = (_SEED ^ length) & _WORD
    whole = length & ~3
    for place in range(0, whole, 4):
        word = int.from_bytes(data[place : place + 4], "little") * _FACTOR & _WORD
        word = (word ^ word >> 24) * _FACTOR & _WORD
        found = found * _FACTOR & _WORD ^ word
    if length > whole:
        found = (found ^ int.from_bytes(data[whole:], "little")) * _FACTOR & _WORD
    found = (found ^ found >> 13) * _FACTOR & _WORD
    return found ^ found >> 15
