"""The command line as it declares itself: every command with its help, arguments and options."""

import inspect
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import typer

from penstock.cli import app

_MARKUP = re.compile(r"(?<!\\)\[/?[a-z ]*\]")


class Parameter(NamedTuple):
    names: str
    meaning: str
    default: str


class Command(NamedTuple):
    """One command: what is typed, what its help says, and what it takes."""

    name: str
    help_text: str
    parameters: list[Parameter]


def commands() -> list[Command]:
    """Return every command, groups left out, in the order of `penstock --help`."""
    return list(_below(typer.main.get_command(app), "penstock"))


def _below(command: Any, name: str) -> Iterator[Command]:
    if children := getattr(command, "commands", None):
        for child_name, child in children.items():
            yield from _below(child, f"{name} {child_name}")
        return
    text = _MARKUP.sub("", inspect.cleandoc(command.help or "")).replace("\\[", "[")
    yield Command(name, text, [_parameter(each) for each in command.params])


def _parameter(declared: Any) -> Parameter:
    is_option = declared.param_type_name == "option"
    names = [*declared.opts, *declared.secondary_opts] if is_option else [declared.name.upper()]
    default = "" if declared.default in (None, False, ..., []) or callable(declared.default) else str(declared.default)
    if declared.required:
        default = "needed"
    return Parameter(", ".join(names), declared.help or "", default.removeprefix("WayOut."))
