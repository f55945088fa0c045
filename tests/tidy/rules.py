"""What STYLE.md asks of a Python file and a machine can check.

A rule takes a module and yields what breaks it, one line each, for a reader who
has not seen the rule before: where, what, and what to do instead. What ruff,
mypy and import-linter see already is not here.
"""

import ast
import io
import re
import tokenize
from collections.abc import Callable, Iterator

from tests.tidy.outside import reaches_outside_only_through_the_runtime
from tests.tidy.source import Module

FILE_LINES_MAX = 700
FUNCTION_LINES_MAX = 60
TEST_NAME_WORDS_MIN = 4

Rule = Callable[[Module], Iterator[str]]
Function = ast.FunctionDef | ast.AsyncFunctionDef

_BANNED_IN_CLASS_NAMES = {"Manager", "Handler", "Helper", "Processor", "Util", "Utils", "Impl", "Abstract", "Base"}
_BANNED_MODULES = {"utils", "util", "helpers", "helper", "common", "misc", "base", "manager", "types"}
_WORD_OF_A_CLASS_NAME = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z0-9]+")
_SLEEP = re.compile(r"\b(?:asyncio|time)\.sleep\(")
_PROMISE = re.compile(r"\b(?:TODO|FIXME|XXX)\b(?!\(#\d+\))")


def opens_with_a_docstring(module: Module) -> Iterator[str]:
    if not (ast.get_docstring(module.tree) or "").strip():
        yield f"{module.path}: say in a module docstring what the file is for"


def is_one_idea_long(module: Module) -> Iterator[str]:
    count = len(module.text.splitlines())
    if count > FILE_LINES_MAX:
        yield f"{module.path}: {count} lines; a file has one subject, and {FILE_LINES_MAX} lines hold it"


def has_functions_of_one_thought(module: Module) -> Iterator[str]:
    if module.path.parts[0] != "src":
        return
    for function in _functions(module):
        count = (function.end_lineno or function.lineno) - function.lineno + 1
        if count > FUNCTION_LINES_MAX:
            yield f"{_at(module, function)}: `{function.name}` has {count} lines; {FUNCTION_LINES_MAX} are the limit"


def names_classes_for_the_domain(module: Module) -> Iterator[str]:
    for node in ast.walk(module.tree):
        if isinstance(node, ast.ClassDef):
            for word in _BANNED_IN_CLASS_NAMES.intersection(_WORD_OF_A_CLASS_NAME.findall(node.name)):
                yield f"{_at(module, node)}: `{node.name}` says `{word}`; name the thing, not its role in the code"


def names_modules_for_the_domain(module: Module) -> Iterator[str]:
    for part in module.path.with_suffix("").parts:
        if part.strip("_") in _BANNED_MODULES:
            yield f"{module.path}: `{part}` can hold anything; name it for what it holds"


def names_tests_in_sentences(module: Module) -> Iterator[str]:
    for function in _functions(module):
        words = [word for word in function.name.removeprefix("test_").split("_") if word]
        if function.name.startswith("test_") and len(words) < TEST_NAME_WORDS_MIN:
            yield f"{_at(module, function)}: `{function.name}` is no sentence; say what holds"


def promises_only_with_an_issue(module: Module) -> Iterator[str]:
    for token in tokenize.generate_tokens(io.StringIO(module.text).readline):
        if token.type == tokenize.COMMENT and (found := _PROMISE.search(token.string)):
            yield f"{module.path}:{token.start[0]}: `{found[0]}` needs an issue: `{found[0]}(#12)`"


def waits_for_the_thing_itself(module: Module) -> Iterator[str]:
    """A sleep in a test is a guess at how long something takes."""
    if module.path.parts[0] != "tests":
        return
    for number, line in enumerate(module.text.splitlines(), 1):
        if _SLEEP.search(line) and "# Real time:" not in line:
            yield f"{module.path}:{number}: wait by `tests/waiting.py`, or say `# Real time:` and why"


def lets_cancellation_through(module: Module) -> Iterator[str]:
    for node in ast.walk(module.tree):
        if isinstance(node, ast.ExceptHandler | ast.Call) and _swallows_cancellation(node):
            yield f"{_at(module, node)}: a caught `CancelledError` must be raised again"


RULES: tuple[Rule, ...] = (
    opens_with_a_docstring,
    is_one_idea_long,
    has_functions_of_one_thought,
    names_classes_for_the_domain,
    names_modules_for_the_domain,
    names_tests_in_sentences,
    promises_only_with_an_issue,
    waits_for_the_thing_itself,
    lets_cancellation_through,
    reaches_outside_only_through_the_runtime,
)


def _functions(module: Module) -> Iterator[Function]:
    return (node for node in ast.walk(module.tree) if isinstance(node, Function))


def _at(module: Module, node: ast.stmt | ast.expr | ast.ExceptHandler) -> str:
    return f"{module.path}:{node.lineno}"


def _swallows_cancellation(node: ast.ExceptHandler | ast.Call) -> bool:
    if isinstance(node, ast.Call):
        return _last_name(node.func) == "suppress" and any(_names_cancellation(argument) for argument in node.args)
    caught = node.type is not None and _names_cancellation(node.type)
    return caught and not any(_raises(statement) for statement in node.body)


def _names_cancellation(expression: ast.expr) -> bool:
    return any(_last_name(node) == "CancelledError" for node in ast.walk(expression))


def _last_name(node: ast.AST) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _raises(statement: ast.stmt) -> bool:
    """Whether a `raise` stands in this statement itself, not in a function defined by it."""
    if isinstance(statement, Function | ast.ClassDef):
        return False
    if isinstance(statement, ast.Raise):
        return True
    return any(_raises(child) for child in ast.iter_child_nodes(statement) if isinstance(child, ast.stmt))
