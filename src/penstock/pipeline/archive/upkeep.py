"""The upkeep of an archive, by what Delta has for it; no Spark is started.

    compact   small files of a day become large ones; rows and their days stay
    vacuum    files go that no version of late names: those of killed runs, of compactions and of deletions
    expire    whole days go that are older than is wanted
    delete    rows of a message, a group or a queue go, from the dead letters too, and from the disk at once

An archiver may be at work meanwhile. What rewrites rows is tried again if it has committed between. Vacuum keeps what
is younger than `RETENTION_MIN`, and an archiver refuses to commit a batch that it began half as long ago: so no file
is removed that is about to be named.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

import pyarrow.dataset as ds  # type: ignore[import-untyped]

from penstock.pipeline.job import JobFailed, Outcome, counted
from penstock.pipeline.job import Table as Shown
from penstock.pipeline.locations import DEAD_LETTERS, MESSAGES
from penstock.pipeline.tables import DAY, TRIES_MAX, AnotherWriter, Table, is_local, is_table, sync, sync_log

RETENTION = timedelta(days=7)
RETENTION_MIN = timedelta(days=1)

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """Rows to delete: those of any of these."""

    ids: Sequence[str] = ()
    groups: Sequence[str] = ()
    queues: Sequence[str] = ()

    @property
    def columns(self) -> dict[str, Sequence[str]]:
        said = {"id": self.ids, "group": self.groups, "queue": self.queues}
        return {name: values for name, values in said.items() if values}

    @property
    def sql(self) -> str:
        return " OR ".join(
            f'"{name}" IN ({", ".join(_quoted(value) for value in values)})' for name, values in self.columns.items()
        )

    @property
    def filter(self) -> Any:
        found = None
        for name, values in self.columns.items():
            one = ds.field(name).isin(list(values))
            found = one if found is None else found | one
        return found


def compact(root: str) -> Outcome:
    """Put small files of each day together."""
    table = _messages(root)
    before = set(table.files())
    done = _rewritten(table, table.delta.optimize.compact)
    _make_durable(table, before)
    gone, made = int(done["numFilesRemoved"]), int(done["numFilesAdded"])
    sentence = f"Put {counted(gone, 'file')} together into {made:,}." if gone else "Nothing to put together."
    if gone:
        sentence += " The small ones go with the next vacuum."
    return Outcome(sentence=sentence, figures={"files_before": gone, "files_after": made})


def vacuum(root: str, older_than: timedelta = RETENTION, *, is_dry_run: bool = False) -> Outcome:
    """Remove files that no version younger than this names."""
    if older_than < RETENTION_MIN:
        raise JobFailed(
            f"--older-than is {older_than / timedelta(hours=1):g} hours; it is 24 at least, as younger files may be "
            "those of an archiver at work"
        )
    gone = 0
    for table in _tables(root):
        hours = int(older_than / timedelta(hours=1))
        said = table.delta.vacuum(hours, dry_run=is_dry_run, enforce_retention_duration=False, full=True)
        gone += len(said)
    word = "would be removed" if is_dry_run else "was removed" if gone == 1 else "were removed"
    return Outcome(sentence=f"{counted(gone, 'file')} {word}.", figures={"files": gone})


def expire(root: str, days: int, *, now: datetime, is_dry_run: bool = False) -> Outcome:
    """Take away the rows of days that are older than so many days; their files go with the next vacuum."""
    table = _messages(root)
    first = (now.astimezone(UTC) - timedelta(days=days)).strftime("%Y-%m-%d")
    by_day = _counts(table, ds.field(DAY) < first, DAY)
    rows = sum(by_day.values())
    if rows and not is_dry_run:
        before = set(table.files())
        _rewritten(table, lambda: table.delta.delete(f"{DAY} < '{first}'"))
        _make_durable(table, before)
    word = "would be" if is_dry_run else "were"
    sentence = f"{counted(rows, 'row')} of {counted(len(by_day), 'day')} before {first} {word} taken away."
    if rows and not is_dry_run:
        sentence += " Their files go with the next vacuum."
    shown = Shown("Days", ("day", "rows"), sorted(by_day.items()))
    return Outcome(sentence=sentence, tables=[shown] if rows else [], figures={"rows": rows, "days": len(by_day)})


def delete(root: str, chosen: Chosen, *, is_dry_run: bool = False) -> Outcome:
    """Delete rows for good: from both tables, and the files of older versions that have them."""
    if not chosen.columns:
        raise JobFailed("say what to delete: --id, --group or --queue")
    lines: list[tuple[str, str, int]] = []
    removed = unnamed = 0
    for table in _tables(root):
        name = Path(table.location).name
        there = _counts(table, chosen.filter, "queue")
        lines += [(name, queue, rows) for queue, rows in sorted(there.items())]
        if is_dry_run:
            continue
        if there:
            before = set(table.files())
            _rewritten(table, lambda table=table: table.delta.delete(chosen.sql))  # type: ignore[misc]
            _make_durable(table, before)
            _check_gone(table, chosen)
        # Also without rows: an older version may have some. Only what the log has dropped; never a file on its way.
        removed += len(table.delta.vacuum(0, dry_run=False, enforce_retention_duration=False))
        unnamed += len(table.files_there() - set(Table.open(table.location).files()))
    return _told(lines, removed, unnamed, is_dry_run=is_dry_run)


def _told(lines: Sequence[tuple[str, str, int]], removed: int, unnamed: int, *, is_dry_run: bool) -> Outcome:
    rows = sum(line[2] for line in lines)
    sentence = f"{counted(rows, 'row')} {'would be' if is_dry_run else 'were'} deleted."
    if not is_dry_run:
        sentence += f" {counted(removed, 'file')} of older versions went from the disk."
    if unnamed:
        sentence += (
            f" {counted(unnamed, 'file')} of killed runs may have such rows still: no reader sees them, and "
            "penstock pipeline archive-vacuum removes them once they are a day old."
        )
    tables = [Shown("Deleted", ("table", "queue", "rows"), lines)] if lines else []
    figures: dict[str, int | float | str] = {"rows": rows, "files_removed": removed, "files_unnamed": unnamed}
    return Outcome(sentence=sentence, tables=tables, figures=figures)


def _messages(root: str) -> Table:
    where = f"{root}/{MESSAGES}"
    if not is_table(where):
        raise JobFailed(f"{root} is no archive: it has no table called {MESSAGES}")
    return Table.open(where)


def _tables(root: str) -> Iterator[Table]:
    yield _messages(root)
    if is_table(where := f"{root}/{DEAD_LETTERS}"):
        yield Table.open(where)


def _rewritten(table: Table, rewrite: Callable[[], Result]) -> Result:
    """Rewrite rows; again, from what is there then, if another process has committed meanwhile."""
    from deltalake.exceptions import CommitFailedError  # noqa: PLC0415

    for _ in range(TRIES_MAX):
        try:
            return rewrite()
        except CommitFailedError:
            table.delta.update_incremental()
    raise AnotherWriter(f"other processes write to {table.location} all the time: {TRIES_MAX} tries came too late")


def _make_durable(table: Table, before: set[str]) -> None:
    """Sync what deltalake has written, which it does not do itself; older files are not removed before."""
    if is_local(table.location):
        new = [Path(table.location) / path for path in table.files() if path not in before]
        sync([*new, *sorted({path.parent for path in new})])
    sync_log(table.location)


def _counts(table: Table, chosen: Any, column: str) -> Counter[str]:
    """Count rows by a column, a batch at a time."""
    found: Counter[str] = Counter()
    for batch in table.delta.to_pyarrow_dataset().scanner(columns=[column], filter=chosen).to_batches():
        for each in batch.column(0).value_counts().to_pylist():
            found[each["values"]] += each["counts"]
    return found


def _check_gone(table: Table, chosen: Chosen) -> None:
    left = sum(_counts(table, chosen.filter, "queue").values())
    if left:
        raise JobFailed(f"{counted(left, 'row')} came to {table.location} while others were deleted: run it once more")


def _quoted(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
