"""CSV for spreadsheets: no text in it is a formula.

A queue, a tenant or an error may be called anything. A spreadsheet takes a cell that begins
with one of a few characters for a formula, and does what it says; with an apostrophe before
it the cell is text. Every CSV file of the pipeline is written here.
"""

import csv
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow  # type: ignore[import-untyped]

_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")


def write_rows(path: Path, columns: Iterable[str], rows: Iterable[Mapping[str, Any]]) -> None:
    """Write rows by the names of their columns."""
    names = list(columns)
    with path.open("w", newline="", encoding="utf-8") as file:
        lines = csv.writer(file)
        lines.writerow(map(cell, names))
        lines.writerows([cell(row[name]) for name in names] for row in rows)


def write_table(path: Path, table: "pyarrow.Table") -> None:
    """Write a table of Arrow."""
    import pyarrow.csv  # type: ignore[import-untyped] # noqa: PLC0415 - it comes with Spark.

    plain = pyarrow.table(
        [_plain(column) for column in table.columns], names=[cell(name) for name in table.column_names]
    )
    pyarrow.csv.write_csv(plain, path)


def cell(value: Any) -> Any:
    """Return what stands in a cell: a list as words, and a text that would be a formula marked as text.

    >>> [cell(value) for value in ("=cmd|' /C calc'!A0", "orders", ["-1", ("@a", 2)], -1, None)]
    ["'=cmd|' /C calc'!A0", 'orders', "'-1 @a:2", -1, None]
    """
    if isinstance(value, list | tuple):
        value = " ".join(":".join(map(str, part)) if isinstance(part, tuple) else str(part) for part in value)
    if isinstance(value, str):
        return f"'{value}" if value.startswith(_FORMULA) else value
    return value.isoformat() if hasattr(value, "isoformat") else value


def _plain(column: "pyarrow.ChunkedArray") -> Any:
    import pyarrow  # noqa: PLC0415
    import pyarrow.compute  # type: ignore[import-untyped] # noqa: PLC0415

    if pyarrow.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if not (pyarrow.types.is_string(column.type) or pyarrow.types.is_large_string(column.type)):
        return column
    compute = pyarrow.compute
    is_formula = compute.match_substring_regex(column, f"^[{''.join(map(_escaped, _FORMULA))}]")
    return compute.if_else(is_formula, compute.binary_join_element_wise("'", column, ""), column)


def _escaped(character: str) -> str:
    return f"\\x{ord(character):02x}"
