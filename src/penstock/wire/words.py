"""Validation errors of msgspec in words: the field and a rule for people, without types and patterns."""

import re
from typing import NamedTuple, get_args

from penstock.contract.messages import STATES
from penstock.contract.names import NAME_OR_ID_PATTERN, NAME_PATTERN, TOPIC_NAME_PATTERN
from penstock.wire import queue_settings
from penstock.wire.topics import Cleanup


class Rule(NamedTuple):
    """Which field is wrong (empty for the whole), the rule it breaks, and the bound in it if there is one."""

    field: str
    words: str
    limit: float | None = None

    def __str__(self) -> str:
        return f"{self.field}: {self.words}" if self.field else self.words


# How msgspec says where: "Expected `int`, got `str` - at `$.messages[3].priority`".
_PLACE = re.compile(r" - at `(?:key in )?\$\.?(.*)`$")
_PATTERN = re.compile(r"Expected `str` matching regex (['\"])(?P<pattern>.*)\1$", re.DOTALL)
_BOUND = re.compile(r"Expected `(?:int|float)` (?P<sign>>=|<=|>|<) (?P<bound>[0-9.]+)")
_LENGTH = re.compile(r"Expected `(?P<kind>str|array|object)` of length (?P<sign>>=|<=) (?P<bound>[0-9]+)")
_KIND = re.compile(r"Expected `(?P<wanted>[a-z| ]+)`, got `(?P<got>[a-z]+)`$")
_MISSING = re.compile(r"Object missing required field `(.*?)`$")
_UNKNOWN = re.compile(r"Object contains unknown field `(.*?)`$", re.DOTALL)
_NO_CHOICE = re.compile(r"Invalid enum value (.*)$", re.DOTALL)

# The patterns there are, in words.
RULES = {
    NAME_PATTERN: "a queue name has 1 to 80 of A-Z a-z 0-9 _ - and dots, begins with neither a dot nor q_, and may "
    "have .dead after that",
    NAME_OR_ID_PATTERN: "the name or the id of a queue has A-Z a-z 0-9 _ - and dots, and does not begin with a dot",
    TOPIC_NAME_PATTERN: "a topic name has A-Z a-z 0-9 . _ - and is neither '.' nor '..'",
}
_SIGNS = {">=": "at least", "<=": "at most", ">": "more than", "<": "less than"}
_THINGS = {"str": "character", "array": "element", "object": "field"}
_KINDS = {
    "int": "a whole number",
    "float": "a number",
    "str": "text",
    "bool": "true or false",
    "array": "a list",
    "object": "an object",
    "null": "null",
    "bytes": "bytes",
}
# What a field with choices may be; msgspec says only what it may not.
CHOICES: dict[str, tuple[str, ...]] = {
    **queue_settings.CHOICES,
    "cleanup": get_args(Cleanup),
    "state": STATES,
}


def rule_of(text: str) -> Rule:
    """Return what msgspec says as a rule.

    >>> str(rule_of("Expected `float` > 0.0 - at `$.visibility_timeout`"))
    'visibility_timeout: it has to be more than 0'
    >>> str(rule_of("Expected `array` of length >= 1 - at `$.receipts`"))
    'receipts: it has at least 1 element'
    >>> str(rule_of("Expected `int | str`, got `null` - at `$.messages[3].priority`"))
    'messages[3].priority: it has to be a whole number or text, not null'
    >>> str(rule_of("Object missing required field `actor`"))
    'actor: it is missing'
    """
    place = _PLACE.search(text)
    field, text = (place[1], text[: place.start()]) if place else ("", text)
    if named := _MISSING.match(text):
        return Rule(_within(field, named[1]), "it is missing")
    if named := _UNKNOWN.match(text):
        return Rule(_within(field, named[1]), "there is no such field")
    if found := _BOUND.match(text):
        bound = _number(found["bound"])
        return Rule(field, f"it has to be {_SIGNS[found['sign']]} {bound}", bound)
    if found := _LENGTH.match(text):
        count = int(found["bound"])
        things = f"{count} {_THINGS[found['kind']]}{'' if count == 1 else 's'}"
        return Rule(field, f"it has {_SIGNS[found['sign']]} {things}", count)
    return Rule(field, _without_bound(field, text))


def _without_bound(field: str, text: str) -> str:
    if found := _PATTERN.match(text):
        # It comes as Python writes a text.
        return RULES.get(found["pattern"].replace("\\\\", "\\"), "it has a character that may not be there")
    if found := _KIND.match(text):
        wanted = [_KINDS.get(each, each) for each in found["wanted"].split(" | ")]
        return f"it has to be {' or '.join(wanted)}, not {_KINDS.get(found['got'], found['got'])}"
    choices = CHOICES.get(field.rpartition(".")[2])
    if choices and (found := _NO_CHOICE.match(text)):
        return f"it is one of {', '.join(choices)}, not {found[1]}"
    return text


def _within(field: str, name: str) -> str:
    return f"{field}.{name}" if field else name


def _number(text: str) -> float:
    number = float(text)
    return int(number) if number % 1 == 0 else number
