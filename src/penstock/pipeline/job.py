"""What a job tells: how far it is while it runs, and what came of it at the end.

A job prints nothing. Whoever runs it gives it a `Progress` and shows the `Outcome`:
the command line as bars and tables, a test as values.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol


class JobFailed(Exception):
    """The job cannot go on; the message says why, and what to do next."""


class Progress(Protocol):
    def step(self, text: str) -> None:
        """Say what the job is at now."""
        ...

    def rows(self, count: int, *, total: int | None = None, lag_s: float | None = None) -> None:
        """Say how many rows are done in all, of how many, and how old the newest of them is."""
        ...


class Silent:
    """A progress that nobody looks at."""

    def step(self, text: str) -> None:
        pass

    def rows(self, count: int, *, total: int | None = None, lag_s: float | None = None) -> None:
        pass


def counted(count: int, one: str, many: str = "") -> str:
    """Say how many there are, with what follows from it.

    >>> counted(1, "row"), counted(2_000, "row"), counted(2, "file was read", "files were read")
    ('1 row', '2,000 rows', '2 files were read')
    """
    return f"{count:,} {one if count == 1 else many or f'{one}s'}"


@dataclass(frozen=True, slots=True)
class Table:
    """A small table for people; a cell is a number, a text, or None for nothing."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str | int | float | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a job came to."""

    # The result in one sentence.
    sentence: str
    tables: Sequence[Table] = ()
    # Files and folders for people, as they were named by the caller.
    written: Sequence[str] = ()
    # Whether what the job looked for is as it should be: an audit that finds a loss says no, and ends with code 1.
    is_good: bool = True
    # For programs: figures by name.
    figures: dict[str, int | float | str] = field(default_factory=dict)
