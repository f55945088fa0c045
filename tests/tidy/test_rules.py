"""A rule that cannot fail checks nothing: each is shown code that breaks it and code that does not."""

from pathlib import Path

import pytest

from tests.tidy.outside import reaches_outside_only_through_the_runtime
from tests.tidy.rules import (
    FILE_LINES_MAX,
    FUNCTION_LINES_MAX,
    RULES,
    Rule,
    has_functions_of_one_thought,
    is_one_idea_long,
    lets_cancellation_through,
    names_classes_for_the_domain,
    names_modules_for_the_domain,
    names_tests_in_sentences,
    opens_with_a_docstring,
    promises_only_with_an_issue,
    waits_for_the_thing_itself,
)
from tests.tidy.source import Module

ANYWHERE = "src/penstock/log/segment.py"

BROKEN: dict[Rule, list[tuple[str, str]]] = {
    opens_with_a_docstring: [(ANYWHERE, ""), (ANYWHERE, "import ast\n'''Too late.'''\n"), (ANYWHERE, "'''  '''")],
    is_one_idea_long: [(ANYWHERE, "x = 1\n" * (FILE_LINES_MAX + 1))],
    has_functions_of_one_thought: [
        (ANYWHERE, "def roll() -> None:\n" + "    x = 1\n" * FUNCTION_LINES_MAX),
        (ANYWHERE, "class Log:\n    async def roll(self) -> None:\n" + "        x = 1\n" * FUNCTION_LINES_MAX),
    ],
    names_classes_for_the_domain: [
        (ANYWHERE, "class SegmentManager: ..."),
        (ANYWHERE, "class BaseLog: ..."),
        (ANYWHERE, "class HTTPHandler: ..."),
        ("tests/log/test_log.py", "def f() -> None:\n    class DiskUtils: ..."),
    ],
    names_modules_for_the_domain: [
        ("src/penstock/log/utils.py", ""),
        ("tests/helpers/disk.py", ""),
        ("src/penstock/core/_base.py", ""),
    ],
    names_tests_in_sentences: [
        ("tests/log/test_log.py", "def test_append() -> None: ..."),
        ("tests/log/test_log.py", "class TestLog:\n    async def test_it_works_() -> None: ..."),
    ],
    promises_only_with_an_issue: [(ANYWHERE, "x = 1  # TODO: faster"), (ANYWHERE, "# FIXME later, see #12\n")],
    waits_for_the_thing_itself: [
        ("tests/log/test_log.py", "await asyncio.sleep" + "(1)"),
        ("tests/log/log_life.py", "time.sleep" + "(1)  # A moment."),
    ],
    lets_cancellation_through: [
        (ANYWHERE, "try:\n    f()\nexcept asyncio.CancelledError:\n    pass"),
        (ANYWHERE, "try:\n    f()\nexcept (OSError, CancelledError) as error:\n    note(error)"),
        (ANYWHERE, "try:\n    f()\nexcept CancelledError:\n    def g() -> None:\n        raise"),
        (ANYWHERE, "with contextlib.suppress(asyncio.CancelledError):\n    f()"),
    ],
    reaches_outside_only_through_the_runtime: [
        (ANYWHERE, "import os.path"),
        (ANYWHERE, "from time import time"),
        (ANYWHERE, "def f() -> None:\n    import random"),
        (ANYWHERE, "with open('lock') as file: ..."),
        (ANYWHERE, "import asyncio\nasync def f() -> None:\n    await asyncio.to_thread(g)"),
        (ANYWHERE, "from asyncio import open_connection"),
        (ANYWHERE, "loop.run_in_executor(None, g)"),
        (ANYWHERE, "from penstock.runtime.disk import SystemDisk"),
        (ANYWHERE, "from penstock.runtime import system"),
        (ANYWHERE, "import penstock.runtime.system"),
        ("src/penstock/core/queue/queue.py", "import asyncio"),
        ("src/penstock/core/queue/queue.py", "print('leased')"),
        ("src/penstock/store/embedded/store.py", "import uuid"),
        ("src/penstock/log/reader.py", "import socket"),
    ],
}

KEPT: dict[Rule, list[tuple[str, str]]] = {
    opens_with_a_docstring: [(ANYWHERE, '"""One file of batches."""\n')],
    is_one_idea_long: [(ANYWHERE, "x = 1\n" * FILE_LINES_MAX)],
    has_functions_of_one_thought: [
        (ANYWHERE, "def roll() -> None:\n" + "    x = 1\n" * (FUNCTION_LINES_MAX - 1)),
        ("tests/log/test_log.py", "def roll() -> None:\n" + "    x = 1\n" * FUNCTION_LINES_MAX),
    ],
    names_classes_for_the_domain: [(ANYWHERE, "class Database: ..."), (ANYWHERE, "class Segment(abc.Baseless): ...")],
    names_modules_for_the_domain: [(ANYWHERE, ""), ("tests/conftest.py", ""), ("src/penstock/core/__init__.py", "")],
    names_tests_in_sentences: [
        ("tests/log/test_log.py", "def test_a_torn_tail_is_cut() -> None: ..."),
        ("tests/log/test_log.py", "def append() -> None: ..."),
    ],
    promises_only_with_an_issue: [(ANYWHERE, "# TODO(#12): faster\n"), (ANYWHERE, "x = 'TODO'\n")],
    waits_for_the_thing_itself: [
        ("tests/log/test_log.py", "await asyncio.sleep" + "(1)  # Real time: longer than the lease."),
        (ANYWHERE, "await asyncio.sleep" + "(1)"),
    ],
    lets_cancellation_through: [
        (ANYWHERE, "try:\n    f()\nexcept CancelledError:\n    close()\n    raise"),
        (ANYWHERE, "try:\n    f()\nexcept CancelledError:\n    if x:\n        raise LogClosed from None"),
        (ANYWHERE, "with contextlib.suppress(OSError):\n    f()"),
    ],
    reaches_outside_only_through_the_runtime: [
        (ANYWHERE, "import asyncio\nfrom penstock.runtime.interface import Disk, File\nfile = disk.open('lock')"),
        (ANYWHERE, "from penstock.telemetry import LOG_OPENED\nmachine.run()"),
        ("src/penstock/runtime/disk.py", "import os\nopen('x')"),
        ("src/penstock/cli.py", "import time\nprint('done')"),
        ("tests/log/test_log.py", "import threading"),
    ],
}


def samples(table: dict[Rule, list[tuple[str, str]]]) -> list[object]:
    return [
        pytest.param(rule, Module(Path(path), text), id=f"{rule.__name__}-{number}")
        for rule, cases in table.items()
        for number, (path, text) in enumerate(cases)
    ]


@pytest.mark.parametrize(("rule", "module"), samples(BROKEN))
def test_a_rule_names_what_breaks_it(rule: Rule, module: Module) -> None:
    found = list(rule(module))

    assert found
    assert all(line.startswith(str(module.path)) for line in found)


@pytest.mark.parametrize(("rule", "module"), samples(KEPT))
def test_a_rule_leaves_good_code_alone(rule: Rule, module: Module) -> None:
    assert list(rule(module)) == []


def test_every_rule_is_tried_both_ways() -> None:
    assert set(BROKEN) == set(KEPT) == set(RULES)
