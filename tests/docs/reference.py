"""The reference pages that are made from the code.

`python -m tests.docs.reference` writes them; a test fails while one is stale.
"""

from collections.abc import Callable
from pathlib import Path

from penstock.core.limits import LIMITS
from penstock.telemetry import NOTES
from tests.docs.pages import ROOT

REFERENCE = ROOT / "docs" / "reference"


def notes_page() -> str:
    rows = [f"| `{note.name}` | {note.level} | {note.meaning} |" for note in NOTES]
    return _page(
        "Notes",
        "src/penstock/telemetry.py",
        "A note is what the system writes about itself: an event with a name and fields. It goes to Python's logging\n"
        "under the name `penstock`, with the event as `record.note` and its fields as `record.fields`. Levels follow\n"
        "what is asked of you: `info` nothing, `warning` a look, `error` an action.",
        ["| note | level | what it tells you |", "|---|---|---|", *rows],
    )


def limits_page() -> str:
    rows = [f"| `{limit.name}` | {limit.value:,} {limit.unit} | {limit.meaning} |" for limit in LIMITS]
    return _page(
        "Limits",
        "src/penstock/core/limits.py",
        "Everything that can grow has a limit, and every limit is in this table. What a caller asks for beyond one is\n"
        "refused before memory or disk is spent on it, and the error names the limit.",
        ["| limit | value | what it bounds |", "|---|---|---|", *rows],
    )


PAGES: dict[Path, Callable[[], str]] = {REFERENCE / "notes.md": notes_page, REFERENCE / "limits.md": limits_page}


def _page(title: str, source: str, opening: str, table: list[str]) -> str:
    made = (
        f"This page is made from [`{source}`](../../{source}): change that, then run `python -m tests.docs.reference`."
    )
    return "\n".join([f"# {title}", "", opening, "", *table, "", made, ""])


def write() -> None:
    for path, make in PAGES.items():
        path.write_text(make())


if __name__ == "__main__":
    write()
