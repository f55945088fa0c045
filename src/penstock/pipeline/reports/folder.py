"""A folder of results that is there as a whole or not at all, and its CSV files.

    .<out>.partial-<pid>    being written; removed when writing fails, and by the next run if this one was killed
    .<out>.before           the results of the run before, while the new ones take their place
    <out>                   the results

A folder cannot be exchanged for another in one step. Between the two renames there is no `<out>`. A run that is
killed there leaves `.<out>.before`, and the next run puts it back before it begins. Both names are hidden, because a
user may call a copy of his own `<out>.before`. A folder that this project has not written is never replaced: the
results carry a mark.

In a CSV file no text is a formula. A queue, a tenant or an error may be called anything. A spreadsheet takes a cell
that begins with one of a few characters for a formula, and does what it says. With an apostrophe before it the cell
is text. Every CSV file of the pipeline is written here.
"""

import csv
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow  # type: ignore[import-untyped]
import pyarrow.compute  # type: ignore[import-untyped]
import pyarrow.csv  # type: ignore[import-untyped]

from penstock.pipeline.job import JobFailed

_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")


def write_rows(path: Path, columns: Iterable[str], rows: Iterable[Mapping[str, Any]]) -> None:
    """Write rows by the names of their columns."""
    names = list(columns)
    with path.open("w", newline="", encoding="utf-8") as file:
        lines = csv.writer(file)
        lines.writerow(map(cell, names))
        lines.writerows([cell(row[name]) for name in names] for row in rows)


def write_table(path: Path, table: pyarrow.Table) -> None:
    """Write a table of Arrow."""
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


def _plain(column: pyarrow.ChunkedArray) -> Any:
    if pyarrow.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if not (pyarrow.types.is_string(column.type) or pyarrow.types.is_large_string(column.type)):
        return column
    compute = pyarrow.compute
    escaped = "".join(f"\\x{ord(character):02x}" for character in _FORMULA)
    is_formula = compute.match_substring_regex(column, f"^[{escaped}]")
    return compute.if_else(is_formula, compute.binary_join_element_wise("'", column, ""), column)


MARK = ".penstock-results"


@contextmanager
def results(out: str) -> Iterator[Path]:
    """Give a folder to write into; at the end of the block it is ``out``, unless the block failed."""
    target = Path(out).absolute()
    settle_folder(out)
    partial = _partial(target)
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    try:
        yield partial
        (partial / MARK).write_text("Written by penstock pipeline; the next run replaces this folder.\n")
        _exchange(target, partial)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def settle_folder(out: str) -> None:
    """Finish what a run that was killed has left, and refuse a folder that no job has written.

    A job calls it before its work too, so that a user need not wait an hour to hear that there is no place for results.
    """
    target = Path(out).absolute()
    before = _before(target)
    if before.is_dir():
        if target.exists():
            shutil.rmtree(before)
        else:
            before.rename(target)
    _remove_left(target)
    if target.exists() and not target.is_dir():
        raise JobFailed(f"{target} is a file: name a folder for the results")
    if target.is_dir() and any(target.iterdir()) and not (target / MARK).exists():
        raise JobFailed(
            f"{target} has files that no job has written: name an empty folder, or one that is not there yet"
        )
    _check_writable(target)


def _exchange(target: Path, partial: Path) -> None:
    before = _before(target)
    if target.exists():
        target.rename(before)
    partial.rename(target)
    shutil.rmtree(before, ignore_errors=True)


def _check_writable(target: Path) -> None:
    """A folder beside it can be made: there is no other way to know, for root may do what cannot be done."""
    partial = _partial(target)
    try:
        partial.mkdir(parents=True, exist_ok=True)
        partial.rmdir()
    except OSError as error:
        raise JobFailed(f"{target} cannot be written: {error.strerror}. Name another folder for the results") from None


def _remove_left(target: Path) -> None:
    """Remove what runs were writing that were killed."""
    front = f".{target.name}.partial-"
    for each in target.parent.iterdir() if target.parent.is_dir() else ():
        pid = each.name.removeprefix(front)
        if pid != each.name and pid.isdecimal() and not _is_running(int(pid)):
            shutil.rmtree(each, ignore_errors=True)


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        # It belongs to another user.
        return True
    return True


def _partial(target: Path) -> Path:
    return target.with_name(f".{target.name}.partial-{os.getpid()}")


def _before(target: Path) -> Path:
    return target.with_name(f".{target.name}.before")
