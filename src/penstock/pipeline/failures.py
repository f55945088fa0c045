"""What a user is told of an error that Spark, Hadoop or this machine has raised: one sentence, or nothing.

A folder that is not there, a disk that is full, a file system that nobody has heard of and a
condition that cannot be computed are no mistakes of ours. They come out of Spark with a hundred lines around
them, of which one says what is wrong. What is not known here is a mistake, and keeps its traceback.

It imports neither Spark nor Py4J: a command line without them reads this file too.
"""

import errno
import re

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
    """Return a sentence for whoever can do something about it; None if this is nobody's fault but ours."""
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
