"""The statements of the store: one file for each, as it is sent, with the name of the schema put in.

A file of `sql/` either makes a function, which a verb calls, or is a statement that
asks. The arguments of a function are read from its head, so that each is sent as what
it is declared as, and the list is written once.
"""

import pkgutil
import re
from collections.abc import Sequence
from functools import cache
from typing import Any

from penstock.store.postgres.array_codec import OIDS, PACKED_AS, SENT_AS

# The files of `sql/` that make functions, and those of `migrations/` in their order.
FUNCTIONS = (
    "ack", "ack_lease", "advance", "age", "age_partition", "announce", "append_frames", "arrive", "beat",
    "begin_purge", "bury", "cancel", "change_queue", "claim_group", "confirm_frames", "count_held", "create_queue",
    "delete_queue", "digits", "drop_frames", "drop_partition", "enter", "enter_alone", "escalate", "expire",
    "extend", "find_sent", "first_turn", "first_turns", "forget_producers", "forget_tenants", "give_room",
    "hand_out", "hand_out_plain", "held", "held_tier", "history_from", "hold_again", "in_lease", "is_connected",
    "is_gone", "is_purged", "lead", "lease", "lease_marked", "lease_more", "lease_plain", "leases_between",
    "leases_of", "let_go", "line_end", "live", "lock_leases", "lock_lines", "lock_room", "meet", "messages_in",
    "new_producers", "next_ms", "next_numbers", "next_turn", "noisy", "note_cleaning", "pick", "pick_in_line",
    "purge_leases", "purge_left", "purge_marked", "purge_plain", "purge_turn", "quiet_spans", "raise_floors",
    "rearm", "redrive", "refresh_lines", "release", "remember_sent", "rewrite_frames", "send", "send_plain",
    "settle_marked", "shrink_leases", "size_room", "span", "spread_room", "take_room", "taken_ms", "tidy",
    "trim_history", "trim_partition", "turn_after", "turn_floors", "turn_history", "unlease", "unpack",
    "wait_for_lapse", "wakes_at_ms", "write_group",
)  # fmt: skip
MIGRATIONS = (
    "0001_tables", "0002_tenants", "0003_numbering", "0004_tenant_time", "0005_packs", "0006_floors", "0007_fronts",
    "0008_lanes_by_name", "0009_redrives", "0010_gentle_vacuum", "0011_locks", "0012_lines_of_leased", "0013_keys",
    "0014_history_retention", "0015_room", "0016_orders", "0017_leased_by_key", "0018_audit_log",
    "0019_leased_in_order", "0020_plain_alone", "0021_spans", "0022_held_by_groups", "0023_purges",
    "0024_spans_of_tiers", "0025_nodes", "0026_tallies", "0027_topics", "0028_compacted_topics",
)  # fmt: skip

_PACKAGE = "penstock.store.postgres"
_SCHEMA = "penstock."
_ARGUMENTS = re.compile(
    r"CREATE OR REPLACE FUNCTION penstock\.(\w+)\s*\((.*?)\)\s*((?:RETURNS|LANGUAGE) \w+)", re.DOTALL
)
_VALUE = re.compile(r"RETURNS (?!TABLE|SETOF)")
_ARGUMENT = re.compile(r"p_\w+ (\w+(?:\[\])?)")


class SqlFunction:
    """A call of one of our functions, in one schema: for a cursor of psycopg, and for libpq."""

    __slots__ = ("text", "direct_text", "kinds", "formats", "_sent_as", "_packed_as")

    def __init__(self, name: str, kinds: Sequence[str], *, is_row: bool) -> None:
        places = range(1, len(kinds) + 1)
        # A function with a single value is selected directly: the row of a table function would be stored first.
        before = "SELECT * FROM" if is_row else "SELECT"
        self.text = f"{before} {name}({', '.join('%s' for _ in places)})".encode()
        self.direct_text = f"{before} {name}({', '.join(f'${place}' for place in places)})".encode()
        # The numbers of the kinds, and that all are sent in their binary form.
        self.kinds = [OIDS[kind] for kind in kinds]
        self.formats = [1] * len(kinds)
        self._sent_as = [SENT_AS[kind] for kind in kinds]
        self._packed_as = [PACKED_AS[kind] for kind in kinds]

    def arguments(self, values: Sequence[Any]) -> list[object]:
        return [send(value) for send, value in zip(self._sent_as, values, strict=True)]

    def packed(self, values: Sequence[Any]) -> list[bytes | None]:
        return [None if value is None else pack(value) for pack, value in zip(self._packed_as, values, strict=True)]


def read(path: str, schema: str) -> str:
    data = pkgutil.get_data(_PACKAGE, path)
    assert data is not None, path
    return data.decode().replace(_SCHEMA, f"{schema}.")


@cache
def statement(name: str, schema: str) -> bytes:
    return read(f"sql/{name}.sql", schema).encode()


@cache
def function(name: str, schema: str) -> SqlFunction:
    found = _ARGUMENTS.search(read(f"sql/{name}.sql", "penstock"))
    assert found is not None, name
    kinds = _ARGUMENT.findall(found[2].partition("OUT ")[0])
    return SqlFunction(f"{schema}.{name}", kinds, is_row=not _VALUE.match(found[3]))


def definitions() -> tuple[str, ...]:
    """The paths of the files that make functions."""
    return tuple(f"sql/{name}.sql" for name in FUNCTIONS)


def migrations() -> tuple[tuple[int, str], ...]:
    """Number and path of each migration, in order."""
    return tuple((int(name[:4]), f"migrations/{name}.sql") for name in MIGRATIONS)
