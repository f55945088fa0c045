"""The reference pages say what the code says."""

from pathlib import Path

import pytest

from penstock.core.limits import LIMITS
from penstock.telemetry import NOTES
from tests.docs.reference import PAGES, limits_page, notes_page


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_a_generated_page_is_not_stale(path: Path) -> None:
    assert path.read_text() == PAGES[path](), "run `python -m tests.docs.reference`"


def test_every_declared_name_is_on_its_page() -> None:
    assert all(f"| `{note.name}` | {note.level} |" in notes_page() for note in NOTES)
    assert all(f"| `{limit.name}` |" in limits_page() for limit in LIMITS)
