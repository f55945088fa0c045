"""What people see: tables and progress on a terminal, plain text in a pipe, JSON for programs; and every exit code.

Results go to standard output, everything else to standard error, so that a pipe gets only results.

Exit codes above 63 are those of `sysexits.h`, which mail programs and init systems know. `docs/reference/cli.md` is
made from the table of them.
"""

import os
import sys
from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import TYPE_CHECKING, Any, NoReturn

import msgspec
import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from penstock.runtime.interface import EXIT_FILES_TAKEN, EXIT_STORAGE_FAILED

if TYPE_CHECKING:
    from rich.progress import Progress

# In a pipe a row of a table is one line, however long.
PIPE_COLUMNS = 10_000


console = Console(highlight=False)
errors = Console(stderr=True, highlight=False)


def fit() -> None:
    """Fit lines to the terminal or the pipe; each command does so when it starts."""
    columns = os.environ.get("COLUMNS", "")
    for each, stream in ((console, sys.stdout), (errors, sys.stderr)):
        if columns.isdecimal():
            each.width = int(columns)
        elif not stream.isatty():
            each.width = PIPE_COLUMNS


def say(sentence: str) -> None:
    """Print a line: nothing in it is markup, nothing wraps it, and nothing in it moves the cursor."""
    console.print(harmless(sentence), soft_wrap=True, markup=False)


def remark(sentence: str) -> None:
    """Say something beside the result."""
    errors.print(harmless(sentence), soft_wrap=True, markup=False)


def print_json(value: Any, *, is_error: bool = False) -> None:
    """Print one line of JSON."""
    typer.echo(msgspec.json.encode(value).decode(), err=is_error)


def show(value: Any, *shown: str | Table, as_json: bool, empty: str = "") -> None:
    """Print a result: as one line of JSON, or as what people are shown. ``empty`` says that there is none."""
    if as_json:
        print_json(value)
        return
    for each in shown:
        say(each) if isinstance(each, str) else console.print(each)
    if not value:
        remark(empty)


def table(*columns: str, numbers: Iterable[str] = (), rows: Iterable[Iterable[object]] = ()) -> Table:
    """Return a table; ``numbers`` names the columns that stand to the right, and are never folded."""
    made = Table(box=None, pad_edge=False, header_style="bold")
    right = set(numbers)
    for column in columns:
        is_number = column in right
        made.add_column(
            column,
            justify="right" if is_number else "left",
            overflow="fold",
            no_wrap=is_number,
            min_width=len(column) if is_number else None,
        )
    for row in rows:
        made.add_row(*(plain(f"{cell:,}" if isinstance(cell, int) else _word(cell)) for cell in row))
    return made


def pairs(values: Mapping[str, object]) -> Table:
    """Return a table of names and values, for one thing with many sides. The names in a part begin with its own."""
    made = Table(box=None, pad_edge=False, show_header=False)
    made.add_column(style="bold", no_wrap=True)
    made.add_column(overflow="fold")
    parts: list[tuple[str, object]] = []
    for name, value in values.items():
        if isinstance(value, dict):
            parts += [(f"{name}.{each}", setting) for each, setting in value.items()]
        else:
            made.add_row(escape(name), plain(_word(value)))
    for name, value in parts:
        made.add_row(escape(name), plain(_word(value)))
    return made


def _word(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(f"{each:g}" for each in value)
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else "-" if value is None else str(value)


def plain(text: str) -> Text:
    """Return text without markup, and without control characters that would move the cursor."""
    return Text("".join(character if character.isprintable() else "�" for character in text))


def harmless(text: str) -> str:
    """Return text that a server or a message may have had a say in, as a terminal can be given it.

    Lines stay lines. Escape sequences, and marks that turn the direction of writing, are shown as what they are not.

    >>> harmless("broken\\x1b[2J\\nnext")
    'broken�[2J\\nnext'
    """
    return "".join(character if character.isprintable() or character in "\n\t" else "�" for character in text)


def progress() -> "Progress":
    """Return a bar that is on the terminal while there is one, and gone afterwards."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=errors,
        transient=True,
        disable=not errors.is_terminal,
    )


def duration(seconds: float | None) -> str:
    """Return a span of time as a person says it.

    >>> [duration(span) for span in (None, 0.4, 59, 61, 3_700, 200_000)]
    ['-', '0.4 s', '59 s', '1 min 1 s', '1 h 1 min', '2 d 7 h']
    """
    if seconds is None:
        return "-"
    if seconds < 10:
        return f"{seconds:.1f} s".replace(".0 s", " s")
    whole = int(seconds)
    for size, unit, small, small_unit in ((86_400, "d", 3_600, "h"), (3_600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= size:
            rest = whole % size // small
            return f"{whole // size} {unit}" + (f" {rest} {small_unit}" if rest else "")
    return f"{whole} s"


def counted(count: int, singular: str) -> str:
    """Return a number and its noun.

    >>> counted(1, "message"), counted(2_000, "queue")
    ('1 message', '2,000 queues')
    """
    return f"1 {singular}" if count == 1 else f"{count:,} {singular}s"


class ExitCode(IntEnum):
    # It did what was asked.
    DONE = 0
    # There was nothing, or not all of it was done; `repair`: there is damage.
    NOTHING = 1
    # The command was not understood, or cannot do this with the folder it was given. Nothing was changed.
    USAGE = 2
    # The server refuses what was sent: a field is wrong, or a message is too large.
    BAD_DATA = 65
    # There is no such queue, message, task or file.
    NOT_FOUND = 66
    # No server answers.
    UNREACHABLE = 69
    # A bug in Penstock, here or at the server. Please report it.
    INTERNAL_ERROR = 70
    # The files of the server were removed, renamed or replaced while it ran.
    FILES_TAKEN = EXIT_FILES_TAKEN
    # It stands in the way of what is there: a queue with other settings, a lease that has ended.
    CONFLICT = 73
    # The disk failed. The server ends with it too, because nothing can be promised any more.
    STORAGE_FAILED = EXIT_STORAGE_FAILED
    # Not now: the queue is full, or the server is busy or stopping. Try again.
    TRY_AGAIN = 75
    # A key is needed, or the key may not do this.
    NOT_ALLOWED = 77
    # A setting is wrong: in the file, in the environment or among the options.
    BAD_SETTINGS = 78
    # Interrupted with Ctrl-C.
    INTERRUPTED = 130


def confirm(question: str) -> None:
    """Ask on standard error, and end the command after a no."""
    if not typer.confirm(question, err=True):
        raise typer.Exit(ExitCode.NOTHING)


def refuse(sentence: str, ending: ExitCode = ExitCode.USAGE) -> NoReturn:
    """Say to a person why it ends here, and end."""
    remark(sentence)
    raise typer.Exit(ending)
