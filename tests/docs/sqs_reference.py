"""The tables of the SQS page, from what the tests claim; the rest of that page is written by hand."""

from collections.abc import Iterable
from pathlib import Path

from tests.sqs.supported import ACTIONS, MESSAGE, QUEUE_ATTRIBUTES, SYSTEM_ATTRIBUTES, Row

BEGIN = "<!-- Made from tests/sqs/supported.py by `python -m tests.docs.reference`: do not edit from here -->"
END = "<!-- to here. -->"
_SECTIONS = (
    ("Actions", "action", ACTIONS),
    ("Attributes of a queue", "attribute", QUEUE_ATTRIBUTES),
    ("Messages", "member", MESSAGE),
    ("Attributes of a message", "attribute", SYSTEM_ATTRIBUTES),
)
_OPENING = """\
Every name in the model of the service is in one of these tables. Each line has tests that show it, which
[`supported.py`](../../tests/sqs/supported.py) names."""


class NoPlace(Exception):
    """The page does not have the two lines between which the tables belong."""


def sqs_page(path: Path) -> str:
    """Return the page with new tables, and everything else as it is."""
    before, began, rest = path.read_text().partition(BEGIN)
    _, ended, after = rest.partition(END)
    if not began or not ended:
        raise NoPlace(f"{path} needs both lines: {BEGIN} {END}")
    return f"{before}{BEGIN}\n\n{_OPENING}\n{''.join(_lines())}\n{END}{after}"


def _lines() -> Iterable[str]:
    for title, noun, rows in _SECTIONS:
        yield f"\n## {title}\n\n| {noun} | differs |\n|---|---|\n"
        yield from map(_line, rows)


def _line(row: Row) -> str:
    names = ", ".join(f"`{name}`" for name in row.names)
    differs = " ".join(difference.text for difference in row.differences)
    return f"| {names} | {differs or 'as AWS'} |\n"
