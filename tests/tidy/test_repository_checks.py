"""The checks of the repository, tried on texts that break them."""

import pytest

from tests.tidy.repository import (
    DECISION_LINES_MAX,
    machine_paths,
    misshapen_decision,
    requirement_name,
    unlocked_requirements,
    untidy_lines,
)


@pytest.mark.parametrize("folder", ["home/anna", "root/data", "work/tree", "Users/anna"])
def test_a_path_on_one_machine_is_seen(folder: str) -> None:
    assert machine_paths(f"see /{folder}/log.py") == [f"/{folder}"]
    assert machine_paths(f"see docs/{folder}/log.py, ~/{folder} and /usr/bin/env") == []


@pytest.mark.parametrize("text", ["a \n", "a\t\nb\n", "a", "a\n\n"])
def test_an_unclean_end_of_line_is_seen(text: str) -> None:
    assert untidy_lines(text)
    assert untidy_lines("a\n\n\tb\n") == []


@pytest.mark.parametrize(
    "text",
    [
        "click>=8 --hash=sha256:aa",
        "click==8.1",
        "click==8.1 \\\n    --hash=md5:aa",
        "click @ https://example.invalid/click.whl --hash=sha256:aa",
        "--index-url https://example.invalid/simple\nclick==8.1 --hash=sha256:aa",
        "-e .",
    ],
)
def test_a_requirement_that_is_not_locked_is_seen(text: str) -> None:
    assert unlocked_requirements(text)


def test_a_locked_requirement_passes_the_check() -> None:
    text = "# why\n\nclick==8.1 ; python_version > '3' \\\n    --hash=sha256:aa \\\n    --hash=sha256:bb\n"

    assert unlocked_requirements(text) == []


def test_a_decision_without_a_part_is_seen() -> None:
    whole = "# 1. Title\n\n## Context\n\na\n\n## Decision\n\nb\n\n## Consequences\n\nc\n"

    assert misshapen_decision(whole) == []
    assert misshapen_decision(whole.replace("## Decision\n", "")) == ["has no '## Decision'"]
    assert misshapen_decision(whole + "more\n" * DECISION_LINES_MAX) == ["is longer than a page"]


def test_the_name_of_a_requirement_is_read() -> None:
    assert [requirement_name(text) for text in ("click>=8.1", "import-linter", "uvicorn[standard]==1")] == [
        "click",
        "import-linter",
        "uvicorn",
    ]
