"""`penstock work`: runs the worker of an application."""

import importlib
import logging
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from penstock.cli.output import ExitCode, refuse
from penstock.settings import LogLevel


def work(
    target: Annotated[str, typer.Argument(metavar="MODULE:NAME", help="Where the worker is, as in app:worker.")],
    *,
    folder: Annotated[Path, typer.Option(help="Where modules are looked for first.", exists=True)] = Path(),
    log_level: Annotated[LogLevel, typer.Option(help="The least important events that are logged.")] = LogLevel.INFO,
) -> None:
    """Run a worker until Ctrl-C or SIGTERM; it finishes what it has begun.

    The module is looked for in the working directory, then where Python looks. The
    name is that of a penstock.Worker in it; it names its server, or
    PENSTOCK_URL and PENSTOCK_KEY do. Stopped twice, it leaves what it has begun.

    [bold]Examples:[/]

    penstock work app:worker
    penstock work shop.orders:worker --folder ./src
    """
    worker = find_worker(target, folder)
    logging.basicConfig(level=log_level.value.upper(), format="%(asctime)s %(levelname)s %(message)s")
    worker.run_sync()


def find_worker(target: str, folder: Path) -> Any:
    """Import the module and return the worker in it; end the command with what is wrong if that cannot be."""
    module_name, colon, name = target.partition(":")
    if not (module_name and colon and name):
        refuse(f"{target!r} names no worker; say MODULE:NAME, as in app:worker")
    sys.path.insert(0, str(folder.resolve()))
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        # If the worker's own module misses a module, its traceback is worth seeing.
        if error.name is None or not (module_name == error.name or module_name.startswith(f"{error.name}.")):
            raise
        refuse(f"There is no module {module_name} in {folder.resolve()}; say --folder", ExitCode.NOT_FOUND)
    found: Any = module
    for part in name.split("."):
        found = getattr(found, part, None)
    if not callable(getattr(found, "run_sync", None)):
        refuse(f"{module_name} has no worker called {name}; make one: {name} = penstock.Worker(…)", ExitCode.NOT_FOUND)
    return found
