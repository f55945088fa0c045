"""The `penstock` command: what people type, and what they see.

One module for each command or group of commands, joined here. A command reads its
settings, does its work through the SDK or on a folder, prints, and ends with a code
of `output.ExitCode`. What only one command needs it imports when it runs: `penstock send` in
a loop does not load a server each time.
"""

from typing import Annotated

import typer

from penstock import __version__
from penstock.cli import (
    backup,
    cluster,
    config,
    demo,
    dlq,
    history,
    key,
    migrate,
    pipeline,
    probe,
    queue,
    receive,
    repair,
    send,
    serve,
    top,
    topic,
    watch,
)
from penstock.cli.output import fit, say

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
    version: Annotated[  # noqa: ARG001 - the callback has answered by now.
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Penstock, a durable message queue for Python teams.

    [bold]Try:[/]

    penstock serve                               run a server, on this machine only
    penstock queue create orders                 make a queue
    penstock send orders "two teapots"           send a message
    penstock receive orders                      receive it, print it, ack it
    penstock top                                 see what is going on
    """
    fit()


SERVER, MESSAGES, STREAMS, FOLDERS, SPARK = "Run", "Queues and messages", "Streams", "Folders", "Data"

app.command("serve", rich_help_panel=SERVER)(serve.serve)
app.command("demo", rich_help_panel=SERVER)(demo.demo)
app.command("work", rich_help_panel=SERVER)(serve.work)
app.command("config", rich_help_panel=SERVER)(config.config_command)
app.add_typer(key.app, name="key", rich_help_panel=SERVER)
app.command("activity", rich_help_panel=SERVER)(key.activity)
app.command("migrate", rich_help_panel=SERVER)(migrate.migrate_command)
app.add_typer(cluster.app, name="cluster", rich_help_panel=SERVER)
app.add_typer(history.app, name="history", rich_help_panel=SERVER)
app.add_typer(queue.app, name="queue", rich_help_panel=MESSAGES)
app.command("send", rich_help_panel=MESSAGES)(send.send)
app.command("cancel", rich_help_panel=MESSAGES)(send.cancel)
app.command("receive", rich_help_panel=MESSAGES)(receive.receive)
app.command("peek", rich_help_panel=MESSAGES)(receive.peek)
app.add_typer(probe.app, name="probe", rich_help_panel=SERVER)
app.command("watch", rich_help_panel=SERVER)(watch.watch)
app.command("top", rich_help_panel=MESSAGES)(top.top)
app.command("explain", rich_help_panel=MESSAGES)(receive.explain)
app.command("escalate", rich_help_panel=MESSAGES)(receive.escalate)
app.command("escalations", rich_help_panel=MESSAGES)(receive.escalations)
app.add_typer(dlq.app, name="dlq", rich_help_panel=MESSAGES)
app.add_typer(topic.app, name="topic", rich_help_panel=STREAMS)
app.add_typer(topic.group_app, name="group", rich_help_panel=STREAMS)
app.command("backup", rich_help_panel=FOLDERS)(backup.backup_command)
app.command("repair", rich_help_panel=FOLDERS)(repair.repair_command)
app.add_typer(pipeline.app, name="pipeline", rich_help_panel=SPARK)


def main() -> None:
    """Run the command line. It ends the process."""
    app(prog_name="penstock")
