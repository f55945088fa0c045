"""How a command ends: every exit code, in one table.

Codes above 63 are those of `sysexits.h`, which mail programs and init systems know.
`docs/reference/cli.md` is made from this table.
"""

from enum import IntEnum
from typing import NoReturn

import typer

from penstock.cli.output import remark
from penstock.runtime.interface import EXIT_FILES_TAKEN, EXIT_STORAGE_FAILED


class Ending(IntEnum):
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
    # A mistake of Penstock's own, here or at the server. Please report it.
    MISTAKE = 70
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


def refuse(sentence: str, ending: Ending = Ending.USAGE) -> NoReturn:
    """Say to a person why it ends here, and end."""
    remark(sentence)
    raise typer.Exit(ending)
