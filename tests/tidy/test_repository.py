"""The repository around the source: locked requirements, listed decisions, plain text."""

import re
import tomllib
from pathlib import Path

import pytest

from tests.tidy.repository import (
    machine_paths,
    misshapen_decision,
    requirement_name,
    unlocked_requirements,
    untidy_lines,
)
from tests.tidy.source import ROOT, files

DECISIONS = ROOT / "docs" / "decisions"


def texts() -> dict[Path, str]:
    found = {path: path.read_bytes() for path in files()}
    return {path.relative_to(ROOT): data.decode() for path, data in found.items() if b"\0" not in data}


def decisions() -> list[Path]:
    return sorted(path for path in DECISIONS.glob("*.md") if path.name != "README.md")


def test_no_file_names_a_place_on_one_machine() -> None:
    found = {str(path): paths for path, text in texts().items() if (paths := machine_paths(text))}

    assert found == {}


def test_every_text_file_ends_its_lines_cleanly() -> None:
    found = {str(path): lines for path, text in texts().items() if (lines := untidy_lines(text))}

    assert found == {}


def test_every_requirement_is_pinned_hashed_and_placeless() -> None:
    locks = sorted((ROOT / "requirements").glob("*.txt"))

    assert locks
    assert {lock.name: found for lock in locks if (found := unlocked_requirements(lock.read_text()))} == {}


def test_there_is_no_second_lock_file() -> None:
    assert [path for path in files() if path.name == "uv.lock"] == []


def test_every_decision_is_listed_in_the_index() -> None:
    index = (DECISIONS / "README.md").read_text()

    assert [path.name for path in decisions() if f"({path.name})" not in index] == []


def test_decisions_are_numbered_without_a_gap() -> None:
    assert [path.name[:5] for path in decisions()] == [f"{number:04}-" for number in range(1, len(decisions()) + 1)]


def test_every_decision_has_its_three_parts() -> None:
    assert {path.name: found for path in decisions() if (found := misshapen_decision(path.read_text()))} == {}


def test_every_dependency_has_a_reason_written_down() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    asked = [*project["project"]["dependencies"]]
    for requirements in (*project["project"]["optional-dependencies"].values(), *project["dependency-groups"].values()):
        asked.extend(requirement for requirement in requirements if isinstance(requirement, str))
    reasons = (DECISIONS / "0002-dependencies.md").read_text()

    assert [name for name in map(requirement_name, asked) if f"| {name} |" not in reasons] == []


def test_the_changelog_says_what_the_next_release_brings() -> None:
    assert re.search(r"^## Unreleased\n\n\S", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)


@pytest.mark.parametrize("page", ["ARCHITECTURE.md", "CONTRIBUTING.md"])
def test_every_file_of_the_source_that_a_page_names_is_there(page: str) -> None:
    names = set(re.findall(r"[\w/]+/\w+\.(?:py|sql)\b", (ROOT / page).read_text()))
    places = ROOT, ROOT / "src", ROOT / "src" / "penstock"

    assert names
    assert {name for name in names if not any((place / name).is_file() for place in places)} == set()
