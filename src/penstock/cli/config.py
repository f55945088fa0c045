"""`penstock config`, and how every command comes to its settings."""

import os
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer

from penstock.cli.exits import Ending, refuse
from penstock.cli.output import console, plain, print_json, remark, table
from penstock.settings import (
    SECRETS,
    SECTIONS,
    BadSetting,
    ClientSettings,
    Kind,
    Loaded,
    find_file,
    load,
    without_password,
)

Config = Annotated[
    Path | None,
    typer.Option("--config", help="The file with settings; by default penstock.toml here.", rich_help_panel="Settings"),
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON, for programs.")]


def loaded(kind: type[Kind], options: Mapping[str, Any], config: Path | None) -> Loaded[Kind]:
    """Return settings from options, environment and file; end the command if one is wrong."""
    try:
        file = find_file(config, os.environ, Path())
        return load(kind, options=options, environment=os.environ, file=file)
    except BadSetting as error:
        refuse(str(error), Ending.BAD_SETTINGS)


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
    shown = {section: _shown(loaded(kind, {}, config)) for section, kind in SECTIONS.items()}
    if as_json:
        print_json(shown)
        return
    rows = table("section", "setting", "value", "from")
    for section, settings in shown.items():
        for name, each in settings.items():
            value = str(each["value"])
            # As it is written in a file.
            value = value.lower() if isinstance(each["value"], bool) else value
            rows.add_row(section, name, plain(value), plain(each["from"]))
    console.print(rows)
    if find_file(config, os.environ, Path()) is None:
        remark("There is no penstock.toml here. With one, its sections are [server] and [client].")


def _shown(read: Loaded[Any]) -> dict[str, dict[str, Any]]:
    return {
        name: {"value": _presentable(name, getattr(read.settings, name)), "from": origin}
        for name, origin in read.origins.items()
    }


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


def client_settings(url: str | None, key: str | None, config: Path | None) -> ClientSettings:
    return loaded(ClientSettings, {"url": url, "key": key}, config).settings
