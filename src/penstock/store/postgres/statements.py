"""The statements of the store: one file for each, as it is sent, with the name of the schema put in.

A file of `sql/` either makes a function, which a verb calls, or is a statement that
asks. The arguments of a function are read from its head, so that each is sent as what
it is declared as, and nobody writes the list twice.
"""

import re
from collections.abc import Callable, Sequence
from functools import cache
from importlib import resources
from typing import Any

from psycopg import sql

from penstock.store.postgres.columns import SENT_AS

_FOLDER = resources.files("penstock.store.postgres")
_SCHEMA = "penstock."
_NAME = re.compile(r"[a-z_][a-z0-9_]{0,40}")
_ARGUMENTS = re.compile(r"CREATE OR REPLACE FUNCTION penstock\.(\w+)\s*\((.*?)\)\s*(?:RETURNS|LANGUAGE)", re.DOTALL)
_ARGUMENT = re.compile(r"p_\w+ (\w+(?:\[\])?)")


class BadSchema(ValueError):
    """This is not what a schema of ours may be called."""


def check_schema(schema: str) -> None:
    if not _NAME.fullmatch(schema):
        raise BadSchema(f"schema is {schema!r}; it has a-z 0-9 _ and at most 41 of them, and no digit first")


class Function:
    """A call of one of our functions, in one schema."""

    __slots__ = ("text", "_sent_as")

    def __init__(self, text: str, sent_as: Sequence[Callable[[Any], object]]) -> None:
        self.text = text.encode()
        self._sent_as = sent_as

    def arguments(self, values: Sequence[Any]) -> list[object]:
        return [send(value) for send, value in zip(self._sent_as, values, strict=True)]


def read(path: str, schema: str) -> str:
    return (_FOLDER / path).read_text(encoding="utf-8").replace(_SCHEMA, f"{schema}.")


@cache
def statement(name: str, schema: str) -> bytes:
    return read(f"sql/{name}.sql", schema).encode()


@cache
def function(name: str, schema: str) -> Function:
    found = _ARGUMENTS.search((_FOLDER / f"sql/{name}.sql").read_text(encoding="utf-8"))
    assert found is not None, name
    kinds = _ARGUMENT.findall(found[2].partition("OUT ")[0])
    places = ", ".join(["%s"] * len(kinds))
    return Function(f"SELECT * FROM {schema}.{name}({places})", [SENT_AS[kind] for kind in kinds])


@cache
def definitions() -> tuple[str, ...]:
    """The names of the files that make functions, in an order in which each finds what it declares."""
    names = sorted(path.name for path in (_FOLDER / "sql").iterdir() if path.name.endswith(".sql"))
    return tuple(name for name in names if "CREATE OR REPLACE FUNCTION" in read(f"sql/{name}", "penstock"))


@cache
def migrations() -> tuple[tuple[int, str], ...]:
    """Number and path of each migration, in order."""
    names = sorted(path.name for path in (_FOLDER / "migrations").iterdir() if path.name.endswith(".sql"))
    return tuple((int(name[:4]), f"migrations/{name}") for name in names)


def identifier(name: str) -> sql.Identifier:
    return sql.Identifier(name)
