"""`penstock pipeline archive-…`: the upkeep of an archive. No Spark is started."""

import importlib.util
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.output import ExitCode, refuse
from penstock.cli.pipeline.options import Json, exit_code_of, show_outcome
from penstock.pipeline.job import JobFailed, explained

if TYPE_CHECKING:
    from penstock.pipeline.job import Outcome

Root = Annotated[
    str, typer.Argument(help="The archive: a folder, or a URI such as s3://bucket/archive.", metavar="ARCHIVE")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and change nothing.")]


def compact(root: Root, *, as_json: Json = False) -> None:
    """Put the small files of each day together.

    Rows stay as they are, and an archiver may be at work. The small files stay until archive-vacuum.

    [bold]Examples:[/]

    penstock pipeline archive-compact ./archive
    """
    _check_installed()
    from penstock.pipeline.archive import upkeep

    _done(lambda: upkeep.compact(root), as_json=as_json)


def vacuum(
    root: Root,
    *,
    older_than: Annotated[int, typer.Option(help="Only files that are older, in hours; 24 at least.", min=24)] = 168,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Remove files that no version of late names: of killed runs, of compactions and of deletions.

    [bold]Examples:[/]

    penstock pipeline archive-vacuum ./archive
    penstock pipeline archive-vacuum ./archive --older-than 48 --dry-run
    """
    _check_installed()
    from penstock.pipeline.archive import upkeep

    age = timedelta(hours=older_than)
    _done(lambda: upkeep.vacuum(root, age, is_dry_run=dry_run), as_json=as_json)


def expire(
    root: Root,
    *,
    days: Annotated[int, typer.Option(help="Keep the rows of so many days before today.", min=1)],
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Take away whole days that are older than is wanted. Their files go with archive-vacuum.

    [bold]Examples:[/]

    penstock pipeline archive-expire ./archive --days 400
    """
    _check_installed()
    from penstock.pipeline.archive import upkeep

    _done(lambda: upkeep.expire(root, days, now=datetime.now(UTC), is_dry_run=dry_run), as_json=as_json)


def delete(
    root: Root,
    *,
    message: Annotated[list[str] | None, typer.Option("--id", help="A message, by its id. May be repeated.")] = None,
    group: Annotated[list[str] | None, typer.Option(help="All messages of a group. May be repeated.")] = None,
    queue: Annotated[list[str] | None, typer.Option("--queue", "-q", help="All of a queue. May be repeated.")] = None,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Delete rows for good, from the dead letters too, and say what is gone.

    Files of older versions that have such rows are removed at once, so a query that reads one of those fails.

    [bold]Examples:[/]

    penstock pipeline archive-delete ./archive --group customer-4711 --dry-run
    penstock pipeline archive-delete ./archive --id 1-28a2 --id 1-28aa
    """
    _check_installed()
    from penstock.pipeline.archive import upkeep

    chosen = upkeep.Chosen(ids=message or (), groups=group or (), queues=queue or ())
    _done(lambda: upkeep.delete(root, chosen, is_dry_run=dry_run), as_json=as_json)


def _done(work: "Callable[[], Outcome]", *, as_json: bool) -> None:
    try:
        show_outcome(work(), as_json=as_json)
    except JobFailed as error:
        refuse(str(error), exit_code_of(error))
    except OSError as error:
        sentence = explained(error)
        if sentence is None:
            raise
        refuse(sentence, exit_code_of(error))


def _check_installed() -> None:
    if importlib.util.find_spec("deltalake") is None:
        refuse("deltalake is not installed. Install it with: pip install 'penstock[spark]'", ExitCode.UNREACHABLE)
