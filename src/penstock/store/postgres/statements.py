"""The statements of the store: one file for each, as it is sent, with the name of the schema put in.

A file of `sql/` either makes a function, which a verb calls, or is a statement that
asks. The arguments of a function are read from its head, so that each is sent as what
it is declared as, and nobody writes the list twice.
"""

import pkgutil
import re
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from penstock.store.postgres.columns import SENT_AS

# The files of `sql/` that make functions, and those of `migrations/` in their order.
FUNCTIONS = (
    "ack", "ack_lease", "advance", "age", "aged_tier", "arrive", "bury", "change_queue", "check_room",
    "create_queue", "delete_queue", "enter", "escalate", "expire", "extend", "find_sent", "hand_out",
    "hand_out_plain", "held", "lease", "lease_marked", "lease_plain", "live", "lock_leases",
    "lock_lines", "meet", "next_ms", "next_numbers", "next_turn", "noisy", "pick", "pick_in_line", "pick_quiet_first",
    "purge", "quiet_spans", "rearm", "redrive", "refresh_lines",
    "release", "remember_sent", "send", "send_plain", "settle_all", "settle_marked",
    "shrink_leases", "tidy", "trim_history", "turn_history", "unlease", "wakes_at_ms",
)  # fmt: skip
MIGRATIONS = ("0001_tables", "0002_tenants")

_PACKAGE = "penstock.store.postgres"
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
    data = pkgutil.get_data(_PACKAGE, path)
    assert data is not None, path
    return data.decode().replace(_SCHEMA, f"{schema}.")


@cache
def statement(name: str, schema: str) -> bytes:
    return read(f"sql/{name}.sql", schema).encode()


@cache
def function(name: str, schema: str) -> Function:
    found = _ARGUMENTS.search(read(f"sql/{name}.sql", "penstock"))
    assert found is not None, name
    kinds = _ARGUMENT.findall(found[2].partition("OUT ")[0])
    places = ", ".join(["%s"] * len(kinds))
    return Function(f"SELECT * FROM {schema}.{name}({places})", [SENT_AS[kind] for kind in kinds])


def definitions() -> tuple[str, ...]:
    """The paths of the files that make functions."""
    return tuple(f"sql/{name}.sql" for name in FUNCTIONS)


def migrations() -> tuple[tuple[int, str], ...]:
    """Number and path of each migration, in order."""
    return tuple((int(name[:4]), f"migrations/{name}.sql") for name in MIGRATIONS)
