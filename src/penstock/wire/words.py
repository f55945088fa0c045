"""What msgspec says of a value that may not be, in words: a rule for people, not a regular expression."""

import re

from penstock.wire.queues import NAME_OR_ID_PATTERN, NAME_PATTERN
from penstock.wire.topics import TOPIC_NAME_PATTERN

_PATTERN = re.compile(r"Expected `str` matching regex (['\"])(?P<pattern>.*?)\1(?= - at |$)", re.DOTALL)
_BOUND = re.compile(r"Expected `(?:int|float)` (?P<sign>>=|<=|>|<) (?P<bound>[0-9.]+)")
_LENGTH = re.compile(r"Expected `(?P<kind>str|array)` of length (?P<sign>>=|<=) (?P<bound>[0-9]+)")

_RULES = {
    NAME_PATTERN: "a queue name has 1 to 80 of A-Z a-z 0-9 _ - and dots, begins with neither a dot nor q_, and may "
    "have .dead after that",
    NAME_OR_ID_PATTERN: "the name or the id of a queue has A-Z a-z 0-9 _ - and dots, and does not begin with a dot",
    TOPIC_NAME_PATTERN: "a topic name has A-Z a-z 0-9 . _ - and is neither '.' nor '..'",
}
_SIGNS = {">=": "at least", "<=": "at most", ">": "more than", "<": "less than"}
_THINGS = {"str": "characters", "array": "elements"}


def in_words(text: str) -> str:
    """Return what msgspec says as a rule.

    >>> in_words("Expected `float` > 0.0 - at `$.visibility_timeout`")
    'it has to be more than 0 - at `$.visibility_timeout`'
    >>> in_words("Expected `str` of length <= 128")
    'it has at most 128 characters'
    """
    text = _PATTERN.sub(_rule, text)
    text = _BOUND.sub(lambda found: f"it has to be {_SIGNS[found['sign']]} {float(found['bound']):g}", text)
    return _LENGTH.sub(lambda found: f"it has {_SIGNS[found['sign']]} {found['bound']} {_THINGS[found['kind']]}", text)


def _rule(found: re.Match[str]) -> str:
    # It comes as Python writes a text.
    return _RULES.get(found["pattern"].replace("\\\\", "\\"), "it has a character that may not be there")
