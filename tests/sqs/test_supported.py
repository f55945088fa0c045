"""The table of what is supported: complete by the service's model, and each claim with a test that is there."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.sqs.older import model
from tests.sqs.supported import ACTIONS, MESSAGE, QUEUE_ATTRIBUTES, SYSTEM_ATTRIBUTES, Row

HERE = Path(__file__).parent
SHAPES = model()["shapes"]
TABLES = {
    "actions": (ACTIONS, set(model()["operations"])),
    "attributes of a queue": (QUEUE_ATTRIBUTES, set(SHAPES["QueueAttributeName"]["enum"]) - {"All"}),
    "members of a message": (MESSAGE, set(SHAPES["Message"]["members"])),
    "attributes of a message": (SYSTEM_ATTRIBUTES, set(SHAPES["MessageSystemAttributeName"]["enum"]) - {"All"}),
}
ROWS = [row for rows, _ in TABLES.values() for row in rows]
Function = ast.FunctionDef | ast.AsyncFunctionDef


@pytest.mark.parametrize("kind", TABLES)
def test_every_name_of_the_model_has_a_row_of_its_own(kind: str) -> None:
    rows, modelled = TABLES[kind]
    told = [name for row in rows for name in row.names]
    assert sorted(told) == sorted(modelled)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.names[0])
def test_every_claim_is_shown_by_a_test_that_is_there_and_runs(row: Row) -> None:
    for name in _tests(row):
        found = [each for each in functions() if each.name == name]
        assert len(found) == 1, f"there is no {name}, or more than one"
        left_out = [each for each in map(ast.unparse, found[0].decorator_list) if re.search(r"skip|xfail", each)]
        assert not left_out, f"{name} may be left out"


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.names[0])
def test_what_a_row_is_about_is_mentioned_by_its_tests(row: Row) -> None:
    for name in row.names:
        assert any(spelled(name) & mentioned(test) for test in row.tests), f"no test of the row mentions {name}"
    for test in _tests(row):
        assert any(spelled(name) & mentioned(test) for name in row.names), f"{test} mentions nothing of the row"


def test_a_test_of_something_else_shows_nothing() -> None:
    assert spelled("TagQueue") & mentioned("test_tags_are_kept_changed_and_removed")
    assert not spelled("PurgeQueue") & mentioned("test_tags_are_kept_changed_and_removed")


def _tests(row: Row) -> set[str]:
    return {*row.tests, *(difference.test for difference in row.differences)}


@cache
def functions() -> tuple[Function, ...]:
    """Return every function of these tests."""
    return tuple(_functions())


def _functions() -> Iterator[Function]:
    for path in sorted(HERE.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, Function):
                yield node


def spelled(name: str) -> set[str]:
    """Return how a name is written: as AWS does, and as the method of boto3.

    >>> sorted(spelled("SendMessageBatch"))
    ['SendMessageBatch', 'send_message_batch']
    """
    return {name, re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()}


def mentioned(test: str) -> set[str]:
    """Return the words of a test, and those of the functions it calls; not those of what it is called."""
    own = {word for node in functions() if node.name == test for word in _words(node)}
    called = {
        word for node in functions() if node.name in own and not node.name.startswith("test_") for word in _words(node)
    }
    return own | called


def _words(node: Function) -> set[str]:
    text = "\n".join(ast.unparse(part) for part in (*node.decorator_list, node.args, *node.body))
    return set(re.findall(r"\w+", text))
