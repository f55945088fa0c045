"""Every example runs against a real server and prints what its head says; twice, as a reader may."""

import ast
import doctest
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import pytest

from tests.docs.pages import ROOT
from tests.docs.serving import server

EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
EXAMPLE_SECONDS_MAX = 300


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with server(tmp_path_factory.mktemp("server")) as found:
        yield found


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_prints_what_its_head_says(path: Path, address: str, tmp_path: Path) -> None:
    wanted = promised(path.read_text())

    for _ in range(2):
        printed = outcome(path, address, tmp_path)
        assert doctest.OutputChecker().check_output(wanted, printed, doctest.ELLIPSIS), printed


def test_the_readme_of_the_examples_names_each() -> None:
    text = (ROOT / "examples" / "README.md").read_text()

    assert sorted(set(re.findall(r"\]\((\w+\.py)\)", text))) == [path.name for path in EXAMPLES]


def test_an_example_that_promises_nothing_is_found_out() -> None:
    with pytest.raises(AssertionError):
        promised('"""It does this and that."""\n')


def promised(source: str) -> str:
    """What the docstring of an example says that it prints."""
    _, mark, text = (ast.get_docstring(ast.parse(source)) or "").partition("It prints:\n")
    assert mark, "say at the head of an example what it prints"
    return dedent(text).strip() + "\n"


def outcome(path: Path, address: str, folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", str(path)],
        cwd=folder,
        env={**os.environ, "PENSTOCK_URL": f"http://{address}"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=EXAMPLE_SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout
