"""Every link of every page leads somewhere, and every page of docs/ can be found."""

from pathlib import Path

import pytest

from tests.docs.links import broken_links, reachable
from tests.docs.pages import ROOT, Page, pages, parse


def by_path() -> dict[Path, Page]:
    return {page.path: page for page in pages()}


def test_every_link_leads_to_something() -> None:
    others = by_path()
    broken = [line for page in others.values() for line in broken_links(page, others)]

    assert not broken, "\n" + "\n".join(broken)


def test_every_page_can_be_reached_from_the_index() -> None:
    others = by_path()
    found = reachable(ROOT / "docs" / "README.md", others)

    assert [str(path) for path in others if (ROOT / "docs") in path.parents and path not in found] == []


def test_the_docs_can_be_reached_from_the_readme() -> None:
    assert ROOT / "docs" / "README.md" in reachable(ROOT / "README.md", by_path())


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("[a](missing.md)", 1),
        ("[a](other.md#nothing) and [b](#nothing)", 2),
        ("[a](other.md) [b](other.md#two-words--more) [c](#here)\n\n# Here", 0),
        ("`[a](missing.md)` and https://example.invalid and [a](https://example.invalid)", 0),
        ("```text\n[a](missing.md)\n```", 0),
    ],
)
def test_a_link_to_nowhere_is_seen(text: str, count: int, tmp_path: Path) -> None:
    other = tmp_path / "other.md"
    other.write_text("# Two words & more\n")
    page = parse(tmp_path / "page.md", text)
    others = {other: parse(other, other.read_text()), page.path: page}

    assert len(list(broken_links(page, others))) == count


def test_a_page_without_links_to_it_is_seen() -> None:
    first, second, third = (Path(f"/{name}.md") for name in ("first", "second", "third"))
    others = {first: parse(first, "[x](second.md)"), second: parse(second, "[y](#z)"), third: parse(third, "")}

    assert reachable(first, others) == {first, second}
