"""Run the blocks of a page as its reader would: in order, in one folder, from nothing.

`python` blocks share one namespace. One that names a file, as in
```` ```python hello.py ````, is saved under that name instead, and a command
further down must run it. In a `console` block each line that begins with `$ ` is
a command for bash, and the lines up to the next one are what it prints. Such a
command must succeed, unless the next one asks `echo $?`. A block that opens with
```` ```console root ```` runs at the root of the checkout, the others in the
page's own folder. `...` stands for any text.
"""

import contextlib
import doctest
import io
import os
import subprocess
import sys
from pathlib import Path

from tests.docs.pages import KINDS, ROOT, Block, Page

COMMAND_SECONDS_MAX = 120
_END = "--end-of-command--"


class PageWrong(AssertionError):
    """A block of a page did not do what the page says."""


def run(page: Page, folder: Path) -> int:
    """Run all blocks of ``page`` with ``folder`` as the working folder; return how many ran."""
    namespace: dict[str, object] = {"__name__": "__main__"}
    printed, count = "", 0
    with contextlib.chdir(folder):
        for block in page.blocks:
            _expect(page, block, block.kind in KINDS, f"a block of kind {block.kind!r}; known are {', '.join(KINDS)}")
            if block.kind == "python" and block.options:
                _save(page, block)
            elif block.kind == "python":
                printed = _run_python(page, block, namespace)
            elif block.kind == "output":
                _expect_print(page, block, block.text, printed)
            elif block.kind == "console":
                _run_console(page, block)
            count += block.kind in {"python", "console"}
    return count


def _save(page: Page, block: Block) -> None:
    (name,) = block.options
    later = [other.text for other in page.blocks if other.kind == "console" and other.line > block.line]
    _expect(page, block, any(name in text for text in later), f"{name} is never run")
    Path(name).write_text(block.text)


def _run_python(page: Page, block: Block, namespace: dict[str, object]) -> str:
    # Blank lines before it make the line numbers of a traceback those of the page.
    source = "\n" * (block.line - 1) + block.text
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(source, str(page.path), "exec"), namespace)
    return out.getvalue()


def _run_console(page: Page, block: Block) -> None:
    commands = _commands(page, block)
    cwd = ROOT if "root" in block.options else Path.cwd()
    results = _bash([command for command, _ in commands], cwd)
    for place, (command, wanted) in enumerate(commands):
        printed, code = results[place]
        asks_next = place + 1 < len(commands) and commands[place + 1][0] == "echo $?"
        _expect(page, block, code == 0 or asks_next, f"`{command}` ended with {code}:\n{printed}")
        if wanted:
            _expect_print(page, block, wanted, printed)


def _commands(page: Page, block: Block) -> list[tuple[str, str]]:
    """Split a block into commands and what each is to print."""
    found: list[tuple[str, str]] = []
    for line in block.text.splitlines():
        if line.startswith("$ "):
            found.append((line[2:], ""))
        else:
            _expect(page, block, bool(found), "output before the first `$ `")
            command, wanted = found[-1]
            found[-1] = command, f"{wanted}{line}\n"
    _expect(page, block, bool(found), "a console block without a `$ `")
    return found


def _bash(commands: list[str], cwd: Path) -> list[tuple[str, int]]:
    """Run commands in one shell; return what each printed and its exit code."""
    # The subshell hands the exit code on, so that the next command may ask for `$?`.
    script = "".join(f"{command}\n__c=$?; echo; echo '{_END}' $__c; (exit $__c)\n" for command in commands)
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=cwd,
        env=_environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=COMMAND_SECONDS_MAX,
        check=False,
    )
    results: list[tuple[str, int]] = []
    rest = done.stdout
    for command in commands:
        printed, mark, rest = rest.partition(f"\n{_END} ")
        assert mark, f"`{command}` ended the shell:\n{printed}"
        code, _, rest = rest.partition("\n")
        results.append((printed, int(code)))
    return results


def _environment() -> dict[str, str]:
    venv = Path(sys.executable).parent
    plain = {"NO_COLOR": "1", "TERM": "dumb", "COLUMNS": "100", "PYTHONHASHSEED": "0"}
    return {**os.environ, **plain, "PATH": f"{venv}{os.pathsep}{os.environ.get('PATH', '')}"}


def _expect_print(page: Page, block: Block, wanted: str, printed: str) -> None:
    same = doctest.OutputChecker().check_output(_trimmed(wanted), _trimmed(printed), doctest.ELLIPSIS)
    _expect(page, block, same, f"the page shows\n{wanted}\nbut this was printed\n{printed}")


def _trimmed(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.strip("\n").splitlines()) + "\n"


def _expect(page: Page, block: Block, holds: bool, otherwise: str) -> None:
    if not holds:
        raise PageWrong(f"{page.path}:{block.line}: {otherwise}")
