"""Commands that ask a server: how they reach it, and what they say when it refuses.

A command is a function whose first argument is a `Session`. `asks_server` gives it
the options that all of them have, opens the session, and turns errors into a
sentence, advice and an exit code, so that no command has to.
"""

import functools
import inspect
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Concatenate, ParamSpec

import typer

from penstock.cli.config import Config, Json, client_settings
from penstock.cli.exits import Ending, refuse
from penstock.cli.output import print_json, remark
from penstock.client import SyncClient
from penstock.client.errors import ConnectionFailed, DatabaseUnusable, PenstockError, QueueFull, ServerBusy
from penstock.connect import connect
from penstock.runtime.interface import FolderTaken
from penstock.settings import ClientSettings, find_file, is_postgres, load, without_password

P = ParamSpec("P")

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
    **dict.fromkeys((400, 405, 406, 411, 413, 415), Ending.BAD_DATA),
    **dict.fromkeys((401, 403), Ending.NOT_ALLOWED),
    404: Ending.NOT_FOUND,
    409: Ending.CONFLICT,
    **dict.fromkeys((408, 429, 503, 507), Ending.TRY_AGAIN),
    **dict.fromkeys((502, 504), Ending.UNREACHABLE),
}

# What to do next, in the words of this command; where nothing stands here the server's sentence says enough.
_ADVICE = {
    "forbidden": "Use a key whose role and queues allow it.",
    "queue_exists": "Change it with `penstock queue set`, or choose another name.",
    "topic_exists": "Change it with `penstock topic set`, or choose another name.",
    "message_not_found": "It was settled, or is in another queue.",
    "topic_not_found": "`penstock topic list` shows what is there, `penstock topic create NAME` makes one.",
    "group_not_found": "`penstock group list` shows what is there; the first member or commit of a group makes it.",
    "group_not_empty": "Stop its consumers first.",
    "origin_gone": "Say with --into where it is to go.",
    "no_topics": "Start the server with --kafka.",
    "dead_letters_shared": "Delete it without --with-dead-letters.",
    "message_too_large": "Store large data elsewhere, and send where it is.",
    "internal": "Please report it, with the notes of the server.",
}


@dataclass(frozen=True, slots=True)
class Session:
    client: SyncClient
    is_json: bool


def asks_server(command: Callable[Concatenate[Session, P], None]) -> Callable[..., None]:
    """Make a command of a function: its own parameters, then those that say which server is asked."""
    own = inspect.signature(command, eval_str=True)

    def run(
        *arguments: Any,
        url: Url = None,
        key: KeyText = None,
        timeout: Timeout = TIMEOUT_S,
        config: Config = None,
        as_json: Json = False,
        **options: Any,
    ) -> None:
        with asking(url=url, key=key, timeout_s=timeout, config=config, is_json=as_json) as session:
            command(session, *arguments, **options)

    shared = inspect.signature(run).parameters.values()
    added = [parameter for parameter in shared if parameter.kind is inspect.Parameter.KEYWORD_ONLY]
    parameters = [*list(own.parameters.values())[1:], *added]
    functools.update_wrapper(run, command)
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


@contextmanager
def asking(
    *, url: str | None, key: str | None, timeout_s: float, config: Path | None, is_json: bool
) -> Iterator[Session]:
    settings = client_settings(url, key, config)
    # The command says itself what it cannot reach.
    logging.getLogger("penstock").addHandler(logging.NullHandler())
    try:
        made = connect(settings.url, key=settings.key, timeout_s=timeout_s)
    except ValueError as error:
        refuse(str(error), Ending.BAD_SETTINGS)
    try:
        with made as client:
            yield Session(client, is_json)
    except PenstockError as error:
        complain(error, settings.url, is_json=is_json)
        raise typer.Exit(ending_of(error)) from None
    except FolderTaken as error:
        # `file:` opens the folder itself, and a server may have it.
        refuse(f"{error}\nOr ask the server that has it: --url http://…", Ending.CONFLICT)
    except KeyboardInterrupt:
        raise typer.Exit(Ending.INTERRUPTED) from None


def complete_queue(incomplete: str) -> list[str]:
    """Return names of queues for a shell; none if the server does not tell at once."""
    try:
        settings = load(ClientSettings, options={}, environment=os.environ, file=find_file(None, os.environ, Path()))
        with connect(settings.settings.url, key=settings.settings.key, timeout_s=0) as client:
            return [row.queue_name for row in islice(client.queues(incomplete), COMPLETIONS_MAX)]
    except (PenstockError, ValueError, FolderTaken):
        return []


def ending_of(error: PenstockError) -> Ending:
    """Return the exit code for an error of the SDK."""
    if isinstance(error, ConnectionFailed):
        return Ending.UNREACHABLE
    if isinstance(error, DatabaseUnusable):
        return Ending.BAD_SETTINGS
    return _ENDINGS.get(error.status, Ending.MISTAKE)


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
