"""What a job tells: how far it is while it runs, what came of it at the end, and why it failed.

A job prints nothing. Its caller gives it a `Progress` and shows the `Outcome`: the command line as bars and tables, a
test as values.

`explained` turns an error of Spark, Hadoop or this machine into one sentence. A folder that is not there, a full
disk, an unknown file system and a condition that cannot be computed are no bugs of ours. They come out of Spark with
a hundred lines around them, of which one says what is wrong. An error that is not known here is a bug, and keeps its
traceback.

The module imports neither Spark nor Py4J: a command line without them imports it too.
"""

import errno
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol


class JobFailed(Exception):
    """The job cannot go on; the message says why, and what to do next."""


class NoRows(JobFailed):
    """There is nothing to report on: no message of these queues was settled yet."""


class Progress(Protocol):
    def step(self, text: str) -> None:
        """Say what the job is at now."""
        ...

    def rows(self, count: int, *, total: int | None = None, lag_s: float | None = None) -> None:
        """Say how many rows are done in all, of how many, and how old the newest of them is."""
        ...


class Silent:
    """A progress that is not shown."""

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


# One of our own exceptions, as the last line of a traceback that Spark has put into its own.
_OURS = re.compile(r"^penstock\.[\w.]+: (.+)$", re.MULTILINE)
# A value that an expression cannot be computed for, or a file that is not what its name says: the classes of SQLSTATE
# for data, and for where data is from; a path that is not there, and files of no known columns.
_DATA = re.compile(r"(\[[A-Z_.]+\] .{1,1000}?)\s*SQLSTATE: (?:22\w{3}|KD\w{3}|42K03|42KD9)", re.DOTALL)
# What Java says of files and machines.
_JAVA = re.compile(
    r"^(?:: |Caused by: )?[\w.$]+\.(?:UnsupportedFileSystemException|UnknownHostException|AccessControlException|"
    r"AccessDeniedException|FileNotFoundException|NoSuchFileException|FileAlreadyExistsException|ConnectException|"
    r"NoRouteToHostException|ParentNotDirectoryException|IOException(?=: Mkdirs failed)): (.+)$",
    re.MULTILINE,
)
_NO_ROOM = "No space left on device"
_MAKE_ROOM = "there is no room left on the disk: make some, and run the job again. Nothing that was finished is lost"
_SENTENCE_CHARACTERS_MAX = 500


def explained(error: Exception) -> str | None:
    """Return a sentence that says what to do about it; None if this is a bug of ours."""
    if isinstance(error, OSError):
        return _of_this_machine(error)
    if not type(error).__module__.startswith(("pyspark.", "py4j.")):
        return None
    text = str(error)
    if _NO_ROOM in text:
        return _MAKE_ROOM
    if ours := _OURS.findall(text):
        return str(ours[-1])
    if data := _DATA.search(text):
        return " ".join(data[1].split())[:_SENTENCE_CHARACTERS_MAX]
    java = _JAVA.search(text)
    return f"Spark cannot reach a file or a machine: {java[1]}" if java else None


def reason_of(text: str) -> str:
    """Return what one of our own exceptions said, out of the tracebacks that Spark wraps it in.

    >>> reason_of("[STREAM_FAILED] …\\nTraceback …\\npenstock.pipeline.source.ranges.HistoryDropped: it is gone\\n…")
    'it is gone'
    >>> reason_of("[STREAM_FAILED] Query terminated with exception: no space left\\n\\tat org…")
    '[STREAM_FAILED] Query terminated with exception: no space left'
    """
    ours = _OURS.findall(text)
    return str(ours[-1]) if ours else first_line(text)


def first_line(text: str) -> str:
    """Return the first line that says anything: what Spark says of bad SQL begins with an empty one.

    >>> first_line("\\n[PARSE_SYNTAX_ERROR] Syntax error at or near ';'.\\n\\n== SQL ==")
    "[PARSE_SYNTAX_ERROR] Syntax error at or near ';'."
    """
    return text.strip().partition("\n")[0][:_SENTENCE_CHARACTERS_MAX]


def _of_this_machine(error: OSError) -> str | None:
    if error.errno == errno.ENOSPC:
        return _MAKE_ROOM
    if error.filename is None:
        return None
    return f"{error.filename} cannot be read or written: {error.strerror}. Name another place, or mend this one"
