"""What a class declares, with the comments above it: the source of the reference pages.

A setting is a field of a dataclass, a choice a member of an enum; the comment
above it is its meaning. Bounds are read from the checks of the dataclass, as they
stand in the source, so that a page names the limit and not its value.
"""

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator
from dataclasses import fields
from enum import Enum
from typing import Any, NamedTuple

_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*(?=\s*[:=])")


class Declared(NamedTuple):
    name: str
    default: Any
    meaning: str


def settings_of(declared: type) -> list[Declared]:
    """Return the fields of a dataclass in their order. A field without a comment is an error."""
    meanings = dict(_commented(declared))
    return [Declared(field.name, field.default, meanings[field.name]) for field in fields(declared)]


def choices_of(declared: type[Enum]) -> list[Declared]:
    """Return the values of an enum and what each means."""
    meanings = dict(_commented(declared))
    return [Declared(choice.name, choice.value, meanings[choice.name]) for choice in declared]


def bounds_of(declared: type) -> dict[str, str]:
    """Return between what each number of a dataclass must be, by the checks in its `__post_init__`."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(declared.__post_init__)))  # type: ignore[attr-defined]
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "_between":
            name, _, least, most = node.args
            found[ast.literal_eval(name)] = f"{_bound(least)} to {_bound(most)}"
    return found


def _bound(expression: ast.expr) -> str:
    text = ast.unparse(expression)
    return f"`{text}`" if isinstance(expression, ast.Name) else text.replace(" ** ", "**")


def _commented(declared: type) -> Iterator[tuple[str, str]]:
    """Yield every name in the body of a class that has a comment right above it."""
    comment: list[str] = []
    for line in map(str.strip, inspect.getsource(declared).splitlines()):
        if line.startswith("# "):
            comment.append(line[2:])
            continue
        name = _NAME.match(line)
        if name and comment:
            yield name[0], " ".join(comment)
        comment = []
