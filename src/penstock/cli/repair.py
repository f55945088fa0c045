"""`penstock repair`: looks for damage in a log, or in all logs of topics, and mends one if told how."""

from dataclasses import asdict
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from penstock.cli.output import ExitCode, console, counted, errors, print_json, refuse, remark, say, table
from penstock.log.manifest import UnknownFormat
from penstock.log.repair import DAMAGED, Way, repair
from penstock.log.survey import Damage, NothingToRead, Survey, check_is_log, survey
from penstock.runtime.disk import SystemDisk
from penstock.runtime.interface import FolderLock, FolderTaken


class WayOut(Enum):
    skip = "skip"
    cut = "cut"


def repair_command(
    folder: Annotated[
        Path, typer.Argument(exists=True, file_okay=False, help="The folder of one log, or `streams` with all of its.")
    ],
    *,
    apply: Annotated[WayOut | None, typer.Option(help="Mend the log by this way; see above.")] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask before changing anything.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was found as JSON, for programs.")] = False,
) -> None:
    """Look for damage in the log in a folder, and mend it if told how.

    Without --apply every byte is read and nothing is changed. The server, or
    whatever else uses the log, must be stopped.

    skip   what is damaged becomes a hole: its records are gone, everything
           before and after it stays
    cut    the log ends before the first damage: everything after it goes

    A whole data folder, or a backup of one, is looked at log by log.

    The folder `streams` of a server is looked at as a whole: its catalog, the offsets
    of its groups and every partition. Mend its logs one by one. The catalog can only
    be cut: a hole in it would lose topics.

    Files that are replaced are kept beside the log, with the ending `.damaged`.
    The exit code is 0 if the log is sound (or has been mended), 1 if it is not,
    and 2 if it could not be read.

    [bold]Examples:[/]

    penstock repair ./penstock-data/journal
    penstock repair ./penstock-data/journal --apply cut
    penstock repair ./penstock-data/streams
    penstock repair ./copies/monday
    """
    if _has_topics(folder.resolve()):
        if apply is not None:
            refuse(f"{folder} has many logs; give the folder of the one to mend")
        _look_at_streams(folder, as_json=as_json)
        return
    if apply is WayOut.skip and _has_topics(folder.resolve().parent):
        _refuse_hole_in_catalog(folder)
    inside = _logs_inside(folder)
    if inside:
        _look_at_all(folder, inside, apply, as_json=as_json)
        return
    _look_at_log(folder, apply, yes=yes, as_json=as_json)


def _logs_inside(folder: Path) -> list[Path]:
    """Return the logs of a store, and the folders with those of its topics, in a folder that is none itself."""
    if _is_log(folder):
        return []
    children = [child for child in sorted(folder.iterdir()) if child.is_dir() and not child.is_symlink()]
    found: list[Path] = []
    for child in children:
        is_one = _is_log(child) or _has_topics(child.resolve())
        found += [child] if is_one else [each for each in sorted(child.iterdir()) if each.is_dir() and _is_log(each)]
    return found


def _has_topics(folder: Path) -> bool:
    # Imported here, since no other command needs topics.
    from penstock.streams.embedded.backup import is_streams

    return is_streams(SystemDisk(folder.parent), folder.name)


def _is_log(folder: Path) -> bool:
    try:
        check_is_log(SystemDisk(folder.resolve().parent), folder.resolve().name)
    except (NothingToRead, OSError):
        return False
    return True


def _look_at_all(folder: Path, inside: list[Path], apply: WayOut | None, *, as_json: bool) -> None:
    if apply is not None:
        refuse(f"{folder} has several logs; give the folder of the one to mend: {', '.join(map(str, inside))}")
    is_sound = True
    for each in inside:
        if not as_json:
            say(f"{each}:")
        try:
            repair_command(each, as_json=as_json)
        except typer.Exit as ended:
            if ended.exit_code != ExitCode.NOTHING:
                raise
            is_sound = False
    if not is_sound:
        raise typer.Exit(ExitCode.NOTHING)


def _look_at_log(folder: Path, apply: WayOut | None, *, yes: bool, as_json: bool) -> None:
    root, name = folder.resolve().parent, folder.resolve().name
    disk = SystemDisk(root)
    try:
        # Before the lock, which would leave a file behind in a folder that is none of ours.
        check_is_log(disk, name)
        lock = _lock(folder.resolve())
    except (NothingToRead, FolderTaken, OSError) as error:
        refuse(str(error))
    try:
        found = _survey(disk, name, is_quiet=as_json)
        print_json(_as_json(found)) if as_json else _print_survey(found, folder, is_asking=apply is None)
        if not found.is_sound:
            _mend_if_asked(disk, found, None if apply is None else apply.value, yes=yes)
    finally:
        lock.release()


def _lock(folder: Path) -> FolderLock:
    """Take the folder of a log; that of a partition is taken with the one of all topics."""
    above = folder.parent.parent
    taken = above if _has_topics(above) else folder
    return SystemDisk(taken.parent).lock(taken.name)


def _refuse_hole_in_catalog(folder: Path) -> None:
    from penstock.streams.embedded.backup import CATALOG

    if folder.resolve().name == CATALOG:
        refuse("a catalog of topics with a hole is of no use: restore it from a backup, or use --apply cut")


def _look_at_streams(folder: Path, *, as_json: bool) -> None:
    """Look at every log of the topics in a folder, and say which ones are damaged."""
    from penstock.streams.embedded.backup import logs_of

    disk, name = SystemDisk(folder.resolve().parent), folder.resolve().name
    try:
        lock = disk.lock(name)
    except (FolderTaken, OSError) as error:
        refuse(str(error))
    try:
        found = {log: _survey(disk, f"{name}/{log}", is_quiet=as_json) for log in logs_of(disk, name)}
    finally:
        lock.release()
    damaged = [log for log, each in found.items() if not each.is_sound]
    if as_json:
        print_json({"folder": name, "is_sound": not damaged, "logs": list(map(_as_json, found.values()))})
    else:
        _print_logs(folder, found, damaged)
    if damaged:
        raise typer.Exit(ExitCode.NOTHING)


def _print_logs(folder: Path, found: dict[str, Survey], damaged: list[str]) -> None:
    total = sum(segment.size_bytes for each in found.values() for segment in each.segments)
    say(f"{folder}: {counted(len(found), 'log')}, {total:,} bytes")
    if not damaged:
        console.print("[green]Sound.[/] Every batch is whole and where it belongs.")
        return
    say(f"{counted(len(damaged), 'log')} damaged. To see what can be saved, run:")
    for log in damaged:
        say(f"  penstock repair {folder}/{log}")


def _survey(disk: SystemDisk, name: str, *, is_quiet: bool) -> Survey:
    try:
        if is_quiet:
            return survey(disk, name)
        with errors.status(f"Reading every byte of {name} …"):
            return survey(disk, name)
    except (NothingToRead, UnknownFormat, OSError) as error:
        refuse(str(error))


def _mend_if_asked(disk: SystemDisk, found: Survey, way: Way | None, *, yes: bool) -> None:
    if way is None:
        raise typer.Exit(ExitCode.NOTHING)
    if not yes and not typer.confirm(f"Mend {found.folder} by way of '{way}'?", err=True):
        raise typer.Exit(ExitCode.NOTHING)
    repair(disk, found, way)
    remark(f"Mended. What was replaced is kept as *{DAMAGED} beside the log.")


def _print_survey(found: Survey, folder: Path, *, is_asking: bool) -> None:
    total = sum(segment.size_bytes for segment in found.segments)
    start = found.manifest.start_offset
    end = found.segments[-1].next_offset if found.segments else start
    offsets = "no records" if end == start else f"offset {start:,}"
    if end > start + 1:
        offsets = f"offsets {start:,} to {end - 1:,}"
    say(f"{folder}: {counted(len(found.segments), 'segment')}, {total:,} bytes, {offsets}")
    if not found.damages:
        console.print("[green]Sound.[/] Every batch is whole and where it belongs.")
        return
    console.print(_damage_table(found.damages))
    if found.is_sound:
        console.print("[green]Sound.[/] A torn tail was never acknowledged; opening the log cuts it off by itself.")
    elif is_asking:
        say("To mend it, choose what to lose, and run this again with one of:")
        say(f"  --apply skip   {_cost_of_skipping(found)}")
        say(f"  --apply cut    {_cost_of_cutting(found, end)}")


def _damage_table(damages: list[Damage]) -> Table:
    rows = []
    for damage in damages:
        until = "end" if damage.next_offset is None else f"{damage.next_offset - 1:,}"
        offsets = "none" if damage.lost_offsets == 0 else f"{damage.first_offset:,} to {until}"
        reason = f"{damage.reason} (torn tail)" if damage.is_torn else damage.reason
        rows.append((Path(damage.file).name, damage.position, damage.size_bytes, offsets, reason))
    return table("file", "byte", "size", "offsets", "what is wrong", rows=rows)


def _cost_of_skipping(found: Survey) -> str:
    known = sum(damage.lost_offsets or 0 for damage in found.damages)
    unknown = any(damage.lost_offsets is None for damage in found.damages)
    return f"{_records(known)} lost" + (", and those after the last whole one" if unknown else "")


def _cost_of_cutting(found: Survey, end: int) -> str:
    first = next((damage.first_offset for damage in found.damages if damage.lost_offsets != 0), end)
    return f"the log ends at offset {first - 1:,}: {_records(end - first)} lost, and whatever is damaged"


def _records(count: int) -> str:
    return "1 record is" if count == 1 else f"{count:,} records are"


def _as_json(found: Survey) -> dict[str, object]:
    damages = [{**asdict(damage), "lost_offsets": damage.lost_offsets} for damage in found.damages]
    return {"folder": found.folder, "is_sound": found.is_sound, "damages": damages}
