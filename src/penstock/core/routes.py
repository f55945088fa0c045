"""Where things belong: which of several databases has a queue, by its name, and which partition the records of a key.

    orders.*=postgresql://a/shop,*=postgresql://b/shop        the first pattern that fits counts

A URL may have commas and equals signs of its own. So an entry begins only where a
pattern, `=` and the beginning of a URL follow each other, at the start or after a comma;
everything up to the next such place belongs to its URL. libpq takes no bare `=` in the
value of an option, so nothing that it understands is cut in two.

Dead letters are kept beside their queue, in one transaction with it: `orders.new.dead` is
where `orders.new` is, whatever the patterns say about the longer name.

A partition is found by murmur2, as Kafka's clients for Java and Python do it.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

from penstock.contract.names import DEAD, BadPattern, check_pattern, fits

ROUTES_MAX = 100

_SCHEME = r"\w+://|memory:|file:"
_BEGIN = re.compile(rf"(?:\A|,)\s*([^\s=,/?&@:]*)\s*=\s*(?={_SCHEME})")
_DATABASE = re.compile(r"postgres(?:ql)?://[^/?]*(/[^?]*)?")


class BadRoutes(ValueError):
    """A map that says where queues are is not written as one; the message names the entry."""


class Route(NamedTuple):
    """The queues whose names fit a pattern, and the database they are in."""

    pattern: str
    url: str


def is_map(text: str) -> bool:
    """Whether a text is meant as a map.

    >>> is_map("*=postgresql://db/shop"), is_map("postgresql://db/shop?options=-cjit%3Doff")
    (True, False)
    """
    return _BEGIN.match(text) is not None


def split(text: str) -> list[Route]:
    """Return the entries of a map as they stand there, right or wrong."""
    found = list(_BEGIN.finditer(text))
    ends = [*(each.start() for each in found[1:]), len(text)]
    return [Route(each[1], text[each.end() : end].strip()) for each, end in zip(found, ends, strict=True)]


def parse(text: str) -> tuple[Route, ...]:
    """Return the entries of a map. Raises `BadRoutes`, and shows nothing of a URL but its scheme.

    >>> parse("orders.*=postgresql://a,b/shop?sslmode=require, *=postgresql://c/shop")[0].url
    'postgresql://a,b/shop?sslmode=require'
    """
    entries = split(text)
    if len(entries) > ROUTES_MAX:
        raise BadRoutes(f"there are {len(entries)} entries; there may be {ROUTES_MAX}")
    for place, (pattern, url) in enumerate(entries):
        _check(f"entry {place + 1} ({pattern or 'without a pattern'})", pattern, url)
    patterns = [pattern for pattern, _ in entries]
    for place, pattern in enumerate(patterns):
        if pattern in patterns[:place]:
            raise BadRoutes(f"entry {place + 1} ({pattern}) has the pattern of entry {patterns.index(pattern) + 1}")
    return tuple(entries)


def _check(entry: str, pattern: str, url: str) -> None:
    try:
        check_pattern(pattern)
    except BadPattern as error:
        raise BadRoutes(f"{entry}: {error}") from None
    found = _DATABASE.match(url)
    if found is None:
        scheme = re.match(_SCHEME, url)
        named = scheme[0] if scheme else "something else"
        raise BadRoutes(f"{entry} leads to {named}; a map leads to postgresql://… alone")
    if "," in (found[1] or ""):
        raise BadRoutes(
            f"{entry} has a comma in the name of its database: write it %2C, or let what follows be an entry of its "
            "own, PATTERN=postgresql://…"
        )


class Routes:
    """Patterns in their order, and for each which of several places its queues are in."""

    def __init__(self, patterns: Sequence[str], places: Sequence[int]) -> None:
        self._entries = list(zip(patterns, places, strict=True))

    def place_of(self, queue: str) -> int | None:
        """Return where a queue is, or would be; None if no pattern fits.

        >>> routes = Routes(["orders.*", "*"], [0, 1])
        >>> [routes.place_of(queue) for queue in ("orders.new", "orders.new.dead", "orders.dead", "mail")]
        [0, 0, 1, 1]
        """
        stem = queue
        while stem.endswith(DEAD) and stem != DEAD:
            stem = stem.removesuffix(DEAD)
        return next((place for pattern, place in self._entries if fits(pattern, stem)), None)

    def patterns_of(self, place: int) -> str:
        return ",".join(pattern for pattern, each in self._entries if each == place)

    def name_of(self, place: int | None) -> str:
        """What a place is called in a sentence: by its number and its patterns, since a URL may hold a password."""
        return "no database" if place is None else f"database {place + 1} ({self.patterns_of(place)})"

    @property
    def patterns(self) -> str:
        return ", ".join(pattern for pattern, _ in self._entries)


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
