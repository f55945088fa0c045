"""Marks of deploys: when something was changed, so that a cause that began right after it can be told.

A file of marks is CSV with the columns `at` and `name`, or JSON lines with the same names:

    at,name                                {"at": "2026-03-01T12:00:00Z", "name": "shop 4.2"}
    2026-03-01T12:00:00Z,shop 4.2          {"at": 1772366400000, "name": "shop 4.2"}

A time is RFC 3339, or milliseconds since 1970.
"""

import csv
import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from penstock.pipeline.job import JobFailed


class Mark(NamedTuple):
    at: datetime
    name: str


def read_marks(path: str) -> list[Mark]:
    """Return the marks of a file, the earliest first. Raises `JobFailed` that names the line it cannot read."""
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise JobFailed(f"the marks of deploys cannot be read: {error}") from None
    found = []
    for line, row in _rows(text):
        try:
            found.append(Mark(read_time(row["at"]), str(row["name"])))
        except (KeyError, TypeError, ValueError):
            raise JobFailed(
                f"{path}, line {line}: a mark has `at`, as 2026-03-01T12:00:00Z or in milliseconds, and `name`"
            ) from None
    return sorted(found)


def read_time(said: object) -> datetime:
    """
    >>> read_time("2026-03-01T12:00:00Z") == read_time(1772366400000) == read_time("1772366400000")
    True
    """
    text = str(said).strip()
    if text.isdecimal():
        return datetime.fromtimestamp(int(text) / 1_000, UTC)
    at = datetime.fromisoformat(text)
    return at if at.tzinfo else at.replace(tzinfo=UTC)


def began_with(first_seen: datetime, marks: Sequence[Mark], *, within: timedelta, known_from: datetime) -> str | None:
    """Return the latest deploy that a cause first seen then may have begun with, or None.

    A mark at which nothing is known of the time before does not count: the cause may be older than the history.
    """
    fitting = [mark for mark in marks if known_from < mark.at <= first_seen < mark.at + within]
    return fitting[-1].name if fitting else None


def _rows(text: str) -> Iterator[tuple[int, Any]]:
    if text.lstrip().startswith("{"):
        for number, line in enumerate(text.splitlines(), 1):
            if line.strip():
                yield number, _object(line)
        return
    rows = csv.DictReader(text.splitlines(), skipinitialspace=True)
    if text.strip() and not {"at", "name"}.issubset(rows.fieldnames or ()):
        # A file without this header has no marks, and nobody would notice.
        yield 1, None
    for row in rows:
        yield rows.line_num, row


def _object(line: str) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        return None
