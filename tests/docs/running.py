r"""Run the blocks of a page as its reader would: in order, in one folder, from nothing.

`python` blocks share one namespace. One that names a file, as in
```` ```python hello.py ````, is saved under that name instead, and a command
further down must run it. In a `console` block each line that begins with `$ ` is
a command for bash, and the lines up to the next one are what it prints. Such a
command must succeed, unless the next one asks `echo $?`. A block that opens with
```` ```console root ```` runs at the root of the checkout, the others in the
page's own folder. A command that ends in `\` goes on in the next line. `...` and `…`
stand for any text.

A page that speaks to `127.0.0.1:8080`, or to Kafka at `127.0.0.1:9092`, or calls `penstock.connect()`, has a server of
its own: one is started for it, with an empty folder, and its address is put in the
place of the other, in what is run and in what is to be printed. One that speaks to
`postgresql://localhost/shop`, or `…/mail`, has an empty database of its own in the same way. One that reads
`cluster.env` has the three servers of `make cluster`.
"""

import contextlib
import doctest
import io
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from tests.cluster.pair import Pair
from tests.cluster.site import Site
from tests.docs.pages import KINDS, ROOT, Block, Page
from tests.docs.serving import KAFKA_SAID, SAID, kafka_server, server
from tests.postgres.servers import shared_server

DATABASES = ("postgresql://localhost/shop", "postgresql://localhost/mail")
COMMAND_SECONDS_MAX = 900
# What `make cluster` writes.
_CLUSTER = "cluster.env"
_END = "--end-of-command--"
_ASKS_FOR_A_SERVER = re.compile(
    rf"{re.escape(SAID)}|{re.escape(KAFKA_SAID)}|\bconnect\(\)"
    r"|^\$ penstock (queue|send|receive|peek|top|dlq|escalate|explain)\b",
    re.MULTILINE,
)
_RUNNABLE = {"python", "console"}


class PageWrong(AssertionError):
    """A block of a page did not do what the page says."""


def run(page: Page, folder: Path) -> int:
    """Run all blocks of ``page`` with ``folder`` as the working folder; return how many ran."""
    with contextlib.chdir(folder), _server_for(page) as addresses:
        return _Run(page, {**addresses, **_database_for(page)}).all()


def _database_for(page: Page) -> dict[str, str]:
    """Give what to put in the place of each database that a page names; of none, if it names none."""
    text = "\n".join(block.text for block in page.blocks if block.kind in _RUNNABLE)
    return {named: shared_server().new_database() for named in DATABASES if named in text}


@contextlib.contextmanager
def _server_for(page: Page) -> Iterator[dict[str, str]]:
    """Give the addresses of the page's own server, by what stands for them in the page; none, if it needs none."""
    text = "\n".join(block.text for block in page.blocks if block.kind in _RUNNABLE)
    if _CLUSTER in text:
        with Pair() as pair, Site(pair, kafka=True) as site:
            Path(_CLUSTER).write_text(site.environment())
            yield {}
        return
    if not _ASKS_FOR_A_SERVER.search(text):
        yield {}
        return
    with tempfile.TemporaryDirectory(prefix="page-") as data, contextlib.ExitStack() as stack:
        addresses = {}
        if KAFKA_SAID in text:
            addresses[SAID], addresses[KAFKA_SAID] = stack.enter_context(kafka_server(Path(data)))
        else:
            addresses[SAID] = stack.enter_context(server(Path(data)))
        before = os.environ.get("PENSTOCK_URL")
        os.environ["PENSTOCK_URL"] = f"http://{addresses[SAID]}"
        try:
            yield addresses
        finally:
            os.environ.pop("PENSTOCK_URL")
            if before is not None:
                os.environ["PENSTOCK_URL"] = before


class _Run:
    """One page, from its first block to its last."""

    def __init__(self, page: Page, places: dict[str, str]) -> None:
        self._page = page
        self._places = places
        self._namespace: dict[str, object] = {"__name__": "__main__"}
        self._printed = ""

    def all(self) -> int:
        count = 0
        for block in self._page.blocks:
            _expect(
                self._page, block, block.kind in KINDS, f"a block of kind {block.kind!r}; known are {', '.join(KINDS)}"
            )
            self._block(block)
            count += block.kind in _RUNNABLE
        return count

    def _block(self, block: Block) -> None:
        page = self._page
        for said, meant in self._places.items():
            block = replace(block, text=block.text.replace(said, meant))
        if block.kind == "python" and block.options:
            _save(page, block)
        elif block.kind == "python":
            self._printed = _run_python(page, block, self._namespace)
        elif block.kind == "output":
            _expect_print(page, block, block.text, self._printed)
        elif block.kind == "console":
            _run_console(page, block)


def _save(page: Page, block: Block) -> None:
    (name,) = block.options
    later = [other for other in page.blocks if other.line > block.line]
    imported = re.compile(rf"^(?:from|import) {name.removesuffix('.py')}\b", re.MULTILINE)
    is_used = any(name in other.text if other.kind == "console" else imported.search(other.text) for other in later)
    _expect(page, block, is_used, f"{name} is never run")
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
    goes_on = False
    for line in block.text.splitlines():
        if goes_on:
            found[-1] = f"{found[-1][0]}\n{line}", ""
        elif line.startswith("$ "):
            found.append((line[2:], ""))
        else:
            _expect(page, block, bool(found), "output before the first `$ `")
            command, wanted = found[-1]
            found[-1] = command, f"{wanted}{line}\n"
        goes_on = (goes_on or line.startswith("$ ")) and line.endswith("\\")
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
    plain = text.replace("…", "...").strip("\n")
    return "\n".join(line.rstrip() for line in plain.splitlines()) + "\n"


def _expect(page: Page, block: Block, holds: bool, otherwise: str) -> None:
    if not holds:
        raise PageWrong(f"{page.path}:{block.line}: {otherwise}")
