"""The `penstock` command: what people type, and what they see.

One module for each command or group of commands, joined here. A command reads its
settings, does its work through the SDK or on a folder, prints, and ends with a code
of `exits`. What only one command needs it imports when it runs: `penstock send` in
a loop does not load a server each time.
"""

from typing import Annotated

import typer

from penstock import __version__
from penstock.cli import backup, configuration, key, repair, serve
from penstock.cli.printing import say

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    # A traceback with local variables would show keys and messages.
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(is_asked: bool) -> None:
    if is_asked:
        say(f"penstock, version {__version__}")
        raise typer.Exit


@app.callback()
def about(
    *,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Penstock, a durable message queue for Python teams.

    [bold]Try:[/]

    penstock repair ./data/orders                look for damage, change nothing
    penstock backup ./data ./copy                copy a store while it is in use
    """


app.command("serve")(serve.serve)
app.add_typer(key.app, name="key")
app.command("config")(configuration.config_command)
app.command("repair")(repair.repair_command)
app.command("backup")(backup.backup_command)


def main() -> None:
    """Run the command line. It ends the process."""
    app(prog_name="penstock")
