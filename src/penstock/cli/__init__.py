"""The `penstock` command: what people type, and what they see."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import NoReturn

import click
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from penstock import __version__
from penstock.log.backup import Copied, Folder, LogMovesTooFast, TargetNotEmpty, backup
from penstock.log.manifest import UnknownFormat
from penstock.log.repair import DAMAGED, Way, repair
from penstock.log.survey import Damage, NothingToRead, Survey, check_is_log, survey
from penstock.runtime.disk import SystemDisk
from penstock.runtime.interface import FolderTaken
from penstock.store.embedded.backup import backup_store, is_store

EXIT_DAMAGED = 1
EXIT_NOT_POSSIBLE = 2
EXIT_UNAVAILABLE = 69  # EX_UNAVAILABLE of sysexits.h

_console = Console(highlight=False)
_errors = Console(stderr=True, highlight=False)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="penstock")
def main() -> None:
    """Penstock, a durable message queue for Python teams.

    This version holds queues to be used from Python, and the log they stand on. The server comes next.

    \b
    Try:
      penstock repair ./data/orders                look for damage, change nothing
      penstock backup ./data ./copy                copy a store while it is in use
    """


@main.command(short_help="Run the server (not in this version yet).")
def serve() -> None:
    """Run the server (not in this version yet)."""
    _refuse(
        "The server is not in this version yet: it holds the queues that the server will serve.\n"
        "What works today is in the README: queues from Python, penstock backup, penstock repair.",
        EXIT_UNAVAILABLE,
    )


@main.command("repair")
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--apply", "way", type=click.Choice(["skip", "cut"]), help="Mend the log by this way; see below.")
@click.option("--yes", is_flag=True, help="Do not ask before changing anything.")
@click.option("--json", "as_json", is_flag=True, help="Print what was found as JSON, for programs.")
def repair_command(folder: Path, way: Way | None, *, yes: bool, as_json: bool) -> None:
    """Look for damage in the log in FOLDER, and mend it if told how.

    Without --apply every byte is read and nothing is changed. The server, or
    whatever else uses the log, must be stopped.

    \b
    skip   what is damaged becomes a hole: its records are gone, everything
           before and after it stays
    cut    the log ends before the first damage: everything after it goes

    Files that are replaced are kept beside the log, with the ending `.damaged`.
    The exit code is 0 if the log is sound (or has been mended), 1 if it is not,
    and 2 if it could not be read.
    """
    root, name = folder.resolve().parent, folder.resolve().name
    disk = SystemDisk(root)
    try:
        # Before the lock, which would leave a file behind in a folder that is none of ours.
        check_is_log(disk, name)
        lock = disk.lock(name)
    except (NothingToRead, FolderTaken, OSError) as error:
        _refuse(str(error))
    try:
        found = _survey(disk, name, quiet=as_json)
        _print_json(found) if as_json else _print_survey(found, folder, is_asking=way is None)
        if not found.is_sound:
            _mend_if_asked(disk, found, way, yes=yes)
    finally:
        lock.release()


@main.command("backup")
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.argument("target", type=click.Path(file_okay=False, path_type=Path))
def backup_command(folder: Path, target: Path) -> None:
    """Copy the store or the log in FOLDER to TARGET, while it may be in use.

    TARGET must be empty or not there yet. The copy is the store as it was at some
    moment during the copying; to restore it, put it in the place of the original.
    """
    try:
        done = _copy_with_progress(folder.resolve(), target.resolve())
    except (NothingToRead, TargetNotEmpty, LogMovesTooFast, UnknownFormat, FolderTaken, OSError) as error:
        _refuse(str(error))
    _console.print(f"Copied {_segments(done.segments)}, {done.size_bytes:,} bytes, to {target}", soft_wrap=True)


def _copy_with_progress(source: Path, copy: Path) -> Copied:
    old, new = Folder(SystemDisk(source.parent), source.name), Folder(SystemDisk(copy.parent), copy.name)
    with Progress(console=_errors, transient=True, disable=not _errors.is_terminal) as bar:
        task = bar.add_task(f"Copying {source.name}", total=None)

        def show(what: str, done: int, total: int) -> None:
            bar.update(task, description=f"Copying {what}", completed=done, total=total)

        if is_store(old):
            return backup_store(old, new, show)
        return backup(old, new, lambda done, total: show(source.name, done, total))


def _survey(disk: SystemDisk, name: str, *, quiet: bool) -> Survey:
    try:
        if quiet:
            return survey(disk, name)
        with _errors.status(f"Reading every byte of {name} …"):
            return survey(disk, name)
    except (NothingToRead, UnknownFormat, OSError) as error:
        _refuse(str(error))


def _mend_if_asked(disk: SystemDisk, found: Survey, way: Way | None, *, yes: bool) -> None:
    if way is None:
        raise click.exceptions.Exit(EXIT_DAMAGED)
    if not yes and not click.confirm(f"Mend {found.folder} by way of '{way}'?", err=True):
        raise click.exceptions.Exit(EXIT_DAMAGED)
    repair(disk, found, way)
    _errors.print(f"Mended. What was replaced is kept as *{DAMAGED} beside the log.")


def _print_survey(found: Survey, folder: Path, *, is_asking: bool) -> None:
    total = sum(segment.size_bytes for segment in found.segments)
    start = found.manifest.start_offset
    end = found.segments[-1].next_offset if found.segments else start
    offsets = "no records" if end == start else f"offset {start:,}"
    if end > start + 1:
        offsets = f"offsets {start:,} to {end - 1:,}"
    files = _segments(len(found.segments))
    _console.print(f"[bold]{folder}[/]: {files}, {total:,} bytes, {offsets}", soft_wrap=True)
    if not found.damages:
        _console.print("[green]Sound.[/] Every batch is whole and where it belongs.")
        return
    _console.print(_damage_table(found.damages))
    if found.is_sound:
        _console.print("[green]Sound.[/] A torn tail was never acknowledged; opening the log cuts it off by itself.")
    elif is_asking:
        _console.print("To mend it, choose what to lose, and run this again with one of:")
        _console.print(f"  --apply skip   {_cost_of_skipping(found)}", soft_wrap=True)
        _console.print(f"  --apply cut    {_cost_of_cutting(found, end)}", soft_wrap=True)


def _damage_table(damages: list[Damage]) -> Table:
    table = Table("file", "byte", "size", "offsets", "what is wrong", box=None, pad_edge=False, header_style="bold")
    for damage in damages:
        until = "end" if damage.next_offset is None else f"{damage.next_offset - 1:,}"
        offsets = "none" if damage.lost_offsets == 0 else f"{damage.first_offset:,} to {until}"
        reason = f"{damage.reason} (torn tail)" if damage.is_torn else damage.reason
        table.add_row(Path(damage.file).name, f"{damage.position:,}", f"{damage.size_bytes:,}", offsets, reason)
    return table


def _cost_of_skipping(found: Survey) -> str:
    known = sum(damage.lost_offsets or 0 for damage in found.damages)
    unknown = any(damage.lost_offsets is None for damage in found.damages)
    return f"{_records(known)} lost" + (", and those after the last whole one" if unknown else "")


def _cost_of_cutting(found: Survey, end: int) -> str:
    first = next((damage.first_offset for damage in found.damages if damage.lost_offsets != 0), end)
    return f"the log ends at offset {first - 1:,}: {_records(end - first)} lost, and whatever is damaged"


def _segments(count: int) -> str:
    return "1 segment" if count == 1 else f"{count} segments"


def _records(count: int) -> str:
    return "1 record is" if count == 1 else f"{count:,} records are"


def _print_json(found: Survey) -> None:
    damages = [{**asdict(damage), "lost_offsets": damage.lost_offsets} for damage in found.damages]
    click.echo(json.dumps({"folder": found.folder, "is_sound": found.is_sound, "damages": damages}))


def _refuse(sentence: str, code: int = EXIT_NOT_POSSIBLE) -> NoReturn:
    _errors.print(sentence, soft_wrap=True)
    raise click.exceptions.Exit(code)
