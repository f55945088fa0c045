"""Patterns for the names of queues: `*` stands for any characters, or none; everything else for itself."""

import re

PATTERN_CHARACTERS_MAX = 100

_PATTERN = re.compile(r"[A-Za-z0-9_.*-]+", re.ASCII)


class BadPattern(ValueError):
    """This is no pattern for the names of queues."""


def check_pattern(pattern: str) -> None:
    if len(pattern) > PATTERN_CHARACTERS_MAX or not _PATTERN.fullmatch(pattern):
        allowed = f"1 to {PATTERN_CHARACTERS_MAX} of A-Z a-z 0-9 _ - . and *"
        raise BadPattern(f"{pattern!r} is no pattern for names of queues; it has {allowed}")


def fits(pattern: str, name: str) -> bool:
    """Whether a name fits. It takes time in proportion to the lengths, whatever the pattern.

    >>> [fits("orders.*", name) for name in ("orders.new", "orders.", "orders", "old.orders.new")]
    [True, True, False, False]
    """
    if pattern == "*":
        return True
    first, *parts = pattern.split("*")
    if not parts:
        return name == first
    *parts, last = parts
    end = len(name) - len(last)
    if not (name.startswith(first) and name.endswith(last) and end >= len(first)):
        return False
    place = len(first)
    for part in parts:
        place = name.find(part, place, end)
        if place < 0:
            return False
        place += len(part)
    return True
