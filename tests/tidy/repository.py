"""What is asked of the repository's other files: requirements, decisions, plain text.

Each function takes a text and returns what is wrong with it, so that the rules
can be tried on texts that break them.
"""

import re

# Folders of a developer's machine. `\w` after them: prose may still speak of a home folder.
_MACHINE_PATH = re.compile(r"(?<![\w.~])/(?:home|root|work|Users)/\w+")
_REQUIREMENT = re.compile(r"^[A-Za-z0-9._-]+==[^\s;]+")
_ELSEWHERE = re.compile(r"://|^\s*(?:-i|-f|-e|--index-url|--extra-index-url|--find-links|--trusted-host)\b| @ ")
_DECISION_PARTS = ("## Context", "## Decision", "## Consequences")
DECISION_LINES_MAX = 95


def machine_paths(text: str) -> list[str]:
    return _MACHINE_PATH.findall(text)


def untidy_lines(text: str) -> list[str]:
    found = [
        f"line {number} ends in blanks" for number, line in enumerate(text.split("\n"), 1) if line != line.rstrip()
    ]
    if text and (not text.endswith("\n") or text.endswith("\n\n")):
        found.append("the last line is not followed by exactly one line end")
    return found


def unlocked_requirements(text: str) -> list[str]:
    """Every requirement is pinned and hashed, and none says where to fetch it from."""
    found = [f"names a place: {line}" for line in text.splitlines() if _ELSEWHERE.search(line)]
    for entry in text.replace("\\\n", " ").splitlines():
        if not entry.strip() or entry.lstrip().startswith("#"):
            continue
        if not _REQUIREMENT.match(entry):
            found.append(f"is not pinned: {entry[:60]}")
        elif "--hash=sha256:" not in entry:
            found.append(f"has no hash: {entry[:60]}")
    return found


def misshapen_decision(text: str) -> list[str]:
    found = [f"has no {part!r}" for part in _DECISION_PARTS if f"\n{part}\n" not in text]
    if len(text.splitlines()) > DECISION_LINES_MAX:
        found.append("is longer than a page")
    return found


def requirement_name(requirement: str) -> str:
    """The bare name in `click>=8.1`."""
    name = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert name
    return name[0]
