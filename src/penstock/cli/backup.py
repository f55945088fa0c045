"""`penstock backup`: copies a store or a log while somebody uses it."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.exits import refuse
from penstock.cli.printing import counted, errors, print_json, say

if TYPE_CHECKING:
    from penstock.log.backup import Copied


def backup_command(
    folder: Annotated[Path, typer.Argument(exists=True, file_okay=False, help="The store or log to copy.")],
    target: Annotated[Path, typer.Argument(file_okay=False, help="An empty folder, or one that is not there yet.")],
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was copied as JSON.")] = False,
) -> None:
    """Copy a store or a log, while it may be in use.

    The copy is the store as it was at some moment during the copying; to restore
    it, put it in the place of the original. A store of several shards is copied only
    while nobody uses it. The keys of a server are not part of its store.

    [bold]Examples:[/]

    penstock backup ./penstock-data ./copies/monday
    penstock backup ./penstock-data/history ./copies/history
    """
    from penstock.log.backup import LogMovesTooFast, TargetNotEmpty
    from penstock.log.manifest import UnknownFormat
    from penstock.log.survey import NothingToRead
    from penstock.runtime.interface import FolderTaken

    try:
        done = _copy_with_progress(folder.resolve(), target.resolve())
    except (NothingToRead, TargetNotEmpty, LogMovesTooFast, UnknownFormat, FolderTaken, OSError) as error:
        refuse(str(error))
    if as_json:
        print_json({"target": str(target), "segments": done.segments, "size_bytes": done.size_bytes})
    else:
        say(f"Copied {counted(done.segments, 'segment')}, {done.size_bytes:,} bytes, to {target}")


def _copy_with_progress(source: Path, copy: Path) -> "Copied":
    from rich.progress import Progress

    from penstock.log.backup import Folder, backup
    from penstock.runtime.disk import SystemDisk
    from penstock.store.embedded.backup import backup_store, is_store

    old, new = Folder(SystemDisk(source.parent), source.name), Folder(SystemDisk(copy.parent), copy.name)
    with Progress(console=errors, transient=True, disable=not errors.is_terminal) as bar:
        task = bar.add_task(f"Copying {source.name}", total=None)

        def show(what: str, done: int, total: int) -> None:
            bar.update(task, description=f"Copying {what}", completed=done, total=total)

        if is_store(old):
            return backup_store(old, new, show)
        return backup(old, new, lambda done, total: show(source.name, done, total))
