"""`penstock config`, how each command gets its settings, and how commands reach a server.

A command is a function whose first argument is what it works with. `with_options` makes that, and adds the options that
it is made from: those of a server (`asks_server`), of a database or of Spark are declared once.
"""

import functools
import inspect
import logging
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from enum import Enum
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Concatenate, ParamSpec, TypeVar

import typer
from rich.table import Table

from penstock.cli.output import ExitCode, print_json, refuse, remark, show, table
from penstock.client import SyncClient
from penstock.client.errors import ConnectionFailed, DatabaseUnusable, PenstockError, QueueFull, ServerBusy
from penstock.connect import connect
from penstock.runtime.interface import FolderTaken
from penstock.settings import (
    SECRETS,
    SECTIONS,
    BadSetting,
    ClientSettings,
    Kind,
    Loaded,
    ServerSettings,
    find_file,
    is_postgres,
    load,
    without_password,
)

Config = Annotated[
    Path | None,
    typer.Option("--config", help="The file with settings; by default penstock.toml here.", rich_help_panel="Settings"),
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON, for programs.")]
Prefix = Annotated[str, typer.Option(help="Only names that begin so.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]


def loaded(kind: type[Kind], options: Mapping[str, Any], config: Path | None) -> Loaded[Kind]:
    """Return settings from options, environment and file; end the command if one is wrong."""
    try:
        file = find_file(config, os.environ, Path())
        return load(kind, options=options, environment=os.environ, file=file)
    except BadSetting as error:
        refuse(str(error), ExitCode.BAD_SETTINGS)


def config_command(*, config: Config = None, as_json: Json = False) -> None:
    """Show every setting, its value, and where that came from.

    The first of these that says something counts: an option of the command, a
    variable of the environment (PENSTOCK_ and the name of the setting), the file,
    the default. Keys are not shown in full.

    [bold]Examples:[/]

    penstock config
    PENSTOCK_PORT=9000 penstock config
    penstock config --config /etc/penstock.toml --json
    """
    shown: dict[str, dict[str, Any]] = {}
    rows = []
    for section, kind in SECTIONS.items():
        read: Loaded[Any] = loaded(kind, {}, config)
        shown[section] = {}
        for name, origin in read.origins.items():
            value = _presentable(name, getattr(read.settings, name))
            shown[section][name] = {"value": value, "from": origin}
            # As it is written in a file.
            rows.append((section, name, str(value).lower() if isinstance(value, bool) else str(value), origin))
    show(shown, table("section", "setting", "value", "from", rows=rows), as_json=as_json)
    if not as_json and find_file(config, os.environ, Path()) is None:
        remark("There is no penstock.toml here. With one, its sections are [server] and [client].")


def _presentable(name: str, value: object) -> str | int | float | bool:
    if name in SECRETS:
        # Of a secret that is no key of ours, no part is public.
        return masked(str(value)) if name == "key" else "…" if value else ""
    if name == "store":
        return without_password(str(value))
    if isinstance(value, Enum):
        return str(value.value)
    return value if isinstance(value, int | float) else str(value)


def masked(key: str) -> str:
    """Return enough of a key to tell it from others, and too little to use it.

    >>> masked("pk_1f2e3d4c5b6a_" + "x" * 39 + "abcd"), masked("short"), masked("")
    ('pk_1f2e3d4c5b6a_…abcd', '…', '')
    """
    if len(key) < 32:
        return "…" if key else ""
    return f"{key[: key.rfind('_', 0, 20) + 1]}…{key[-4:]}"


P = ParamSpec("P")
First = TypeVar("First")

# A person wants to know soon that there is no server; a program says --timeout.
TIMEOUT_S = 2.0
COMPLETIONS_MAX = 50

Url = Annotated[str | None, typer.Option("--url", help="Where the server is.", rich_help_panel="Server")]
KeyText = Annotated[
    str | None,
    typer.Option(
        "--key", help="The API key. Others on this machine can see it; PENSTOCK_KEY hides it.", rich_help_panel="Server"
    ),
]
Timeout = Annotated[
    float, typer.Option("--timeout", help="For how many seconds it is tried again.", min=0, rich_help_panel="Server")
]

_ENDINGS = {
    **dict.fromkeys((400, 405, 406, 411, 413, 415), ExitCode.BAD_DATA),
    **dict.fromkeys((401, 403), ExitCode.NOT_ALLOWED),
    404: ExitCode.NOT_FOUND,
    409: ExitCode.CONFLICT,
    **dict.fromkeys((408, 429, 503, 507), ExitCode.TRY_AGAIN),
    **dict.fromkeys((502, 504), ExitCode.UNREACHABLE),
}

# What to do next, in the words of this command; where nothing stands here the server's sentence says enough.
_ADVICE = {
    "forbidden": "Use a key whose role and queues allow it.",
    "queue_exists": "Change it with `penstock queue update`, or choose another name.",
    "topic_exists": "Change it with `penstock topic update`, or choose another name.",
    "message_not_found": "It was settled, or is in another queue.",
    "topic_not_found": "`penstock topic list` shows what is there, `penstock topic create NAME` makes one.",
    "group_not_found": "`penstock group list` shows what is there; the first member or commit of a group makes it.",
    "group_not_empty": "Stop its consumers first.",
    "origin_not_found": "Name another queue with --target-queue.",
    "topics_disabled": "Start the server with --kafka.",
    "dead_letters_shared": "Delete it without --with-dead-letters.",
    "message_too_large": "Store large data elsewhere, and send where it is.",
    "internal": "Please report it, with the log of the server.",
}


@dataclass(frozen=True, slots=True)
class Session:
    client: SyncClient
    is_json: bool
    settings: ClientSettings

    def show(self, value: Any, *shown: str | Table, empty: str = "") -> None:
        """Print a result, in the form that was asked for."""
        show(value, *shown, as_json=self.is_json, empty=empty)


@dataclass(frozen=True, slots=True)
class LocalSession:
    """What a command works with that asks no server: the settings of one, and how it prints."""

    settings: ServerSettings
    is_json: bool

    def show(self, value: Any, *shown: str | Table, empty: str = "") -> None:
        """Print a result, in the form that was asked for."""
        show(value, *shown, as_json=self.is_json, empty=empty)


def with_options(
    context: Callable[..., AbstractContextManager[First]],
) -> Callable[[Callable[Concatenate[First, P], None]], Callable[..., None]]:
    """Make a command of a function: its own parameters, and those of ``context``, which yields its first argument."""
    shared = inspect.signature(context, eval_str=True).parameters

    def made(command: Callable[Concatenate[First, P], None]) -> Callable[..., None]:
        def run(**said: Any) -> None:
            with context(**{name: said.pop(name) for name in shared}) as first:
                run_command(first, **said)

        run_command: Callable[..., None] = command
        own = list(inspect.signature(command, eval_str=True).parameters.values())[1:]
        arguments = [each for each in shared.values() if each.kind is not each.KEYWORD_ONLY]
        parameters = [*arguments, *own, *(each for each in shared.values() if each.kind is each.KEYWORD_ONLY)]
        functools.update_wrapper(run, command)
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return run

    return made


@contextmanager
def asking(
    *, url: Url = None, key: KeyText = None, timeout: Timeout = TIMEOUT_S, config: Config = None, as_json: Json = False
) -> Iterator[Session]:
    """Open a client of the server. Its errors become a sentence, advice and an exit code."""
    settings = loaded(ClientSettings, {"url": url, "key": key}, config).settings
    # The command says itself what it cannot reach.
    logging.getLogger("penstock").addHandler(logging.NullHandler())
    try:
        made = connect(settings.url, key=settings.key, timeout_s=timeout)
    except ValueError as error:
        refuse(str(error), ExitCode.BAD_SETTINGS)
    try:
        with made as client:
            yield Session(client, as_json, settings)
    except PenstockError as error:
        complain(error, settings.url, is_json=as_json)
        raise typer.Exit(exit_code_of(error)) from None
    except FolderTaken as error:
        # `file:` opens the folder itself, and a server may have it.
        refuse(f"{error}\nOr ask the server that has it: --url http://…", ExitCode.CONFLICT)
    except KeyboardInterrupt:
        raise typer.Exit(ExitCode.INTERRUPTED) from None


asks_server = with_options(asking)


def complete_queue(incomplete: str) -> list[str]:
    """Return names of queues for a shell; none if the server does not tell at once."""
    try:
        settings = load(ClientSettings, options={}, environment=os.environ, file=find_file(None, os.environ, Path()))
        with connect(settings.settings.url, key=settings.settings.key, timeout_s=0) as client:
            return [row.queue_name for row in islice(client.queues(incomplete), COMPLETIONS_MAX)]
    except (PenstockError, ValueError, FolderTaken):
        return []


def exit_code_of(error: PenstockError) -> ExitCode:
    """Return the exit code for an error of the SDK."""
    if isinstance(error, ConnectionFailed):
        return ExitCode.UNREACHABLE
    if isinstance(error, DatabaseUnusable):
        return ExitCode.BAD_SETTINGS
    return _ENDINGS.get(error.status, ExitCode.INTERNAL_ERROR)


def complain(error: PenstockError, url: str, *, is_json: bool) -> None:
    """Say on standard error what went wrong, and what to do next."""
    if is_json:
        said = {"code": error.code, "status": error.status, "detail": error.detail, "field": error.field}
        print_json({"error": said}, is_error=True)
        return
    remark(error.detail)
    if advice := _advice(error, url):
        remark(advice)


def _advice(error: PenstockError, url: str) -> str:
    if isinstance(error, ConnectionFailed) and is_postgres(url):
        return f"Look whether the database runs, and whether {without_password(url)} is where it is."
    if isinstance(error, ConnectionFailed):
        return f"No server answers at {url}. Start one with `penstock serve`, or say where it is with --url."
    if error.code == "unauthorized":
        return "Say a key with PENSTOCK_KEY or --key. `penstock key create`, at the server, makes one."
    if error.code == "queue_not_found":
        return "`penstock queue list` shows what is there, `penstock queue create NAME` makes one."
    if isinstance(error, QueueFull | ServerBusy):
        soon = "soon" if error.retry_after_s is None else f"in {error.retry_after_s:g} s"
        return f"Try again {soon}, or let the command try for longer with --timeout."
    return _ADVICE.get(error.code, "")
