"""`penstock backup`: copies a store, its topics or a single log while they are in use."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.output import counted, errors, refuse, show

if TYPE_CHECKING:
    from penstock.log.backup import Copied, Folder


def backup_command(
    folder: Annotated[Path, typer.Argument(exists=True, file_okay=False, help="The store or log to copy.")],
    target: Annotated[Path, typer.Argument(file_okay=False, help="An empty folder, or one that is not there yet.")],
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was copied as JSON.")] = False,
) -> None:
    """Copy a store with its topics, or a single log, while it may be in use.

    Everything acknowledged before the copying began is in the copy; to restore it, put
    it in the place of the original. Queues are copied first, then topics with the
    offsets of their groups. A store of several shards is copied only while no process
    uses it. The keys of a server are not part of its store.

    [bold]Examples:[/]

    penstock backup ./penstock-data ./copies/monday
    penstock backup ./penstock-data/streams ./copies/streams
    penstock backup ./penstock-data/history ./copies/history
    """
    from penstock.log.backup import LogMovesTooFast, TargetNotEmpty
    from penstock.log.manifest import UnknownFormat
    from penstock.log.recovery import LogCorrupted
    from penstock.log.survey import NothingToRead
    from penstock.runtime.interface import FolderTaken
    from penstock.streams.embedded.topic_catalog import UnknownFact
    from penstock.streams.group_records import UnknownOffsetRecord

    try:
        done = _copy_with_progress(folder.resolve(), target.resolve())
    except (NothingToRead, TargetNotEmpty, LogMovesTooFast, UnknownFormat, FolderTaken, OSError) as error:
        refuse(str(error))
    except (LogCorrupted, UnknownFact, UnknownOffsetRecord) as error:
        refuse(str(error))
    value = {"target": str(target), "segments": done.segments, "size_bytes": done.size_bytes}
    show(value, f"Copied {counted(done.segments, 'segment')}, {done.size_bytes:,} bytes, to {target}", as_json=as_json)


def _copy_with_progress(source: Path, copy: Path) -> "Copied":
    from rich.progress import Progress

    with Progress(console=errors, transient=True, disable=not errors.is_terminal) as bar:
        task = bar.add_task(f"Copying {source.name}", total=None)

        def show(what: str, done: int, total: int) -> None:
            bar.update(task, description=f"Copying {what}", completed=done, total=total)

        return _copy(source, copy, show)


def _copy(source: Path, copy: Path, show: Callable[[str, int, int], None]) -> "Copied":
    from penstock.log.backup import Copied, Folder, TargetNotEmpty, backup
    from penstock.runtime.disk import SystemDisk
    from penstock.store.embedded.backup import backup_store, is_store
    from penstock.streams.embedded.backup import is_streams

    disk = SystemDisk(source.parent)
    old, new = Folder(disk, source.name), Folder(SystemDisk(copy.parent), copy.name)
    topics = Folder(disk, f"{source.name}/streams")
    has_topics = is_streams(disk, topics.path)
    if is_streams(disk, old.path):
        return asyncio.run(_copy_topics(old, copy, show))
    if not has_topics and not is_store(old):
        return backup(old, new, lambda done, total: show(source.name, done, total))
    if new.disk.names(new.path):
        raise TargetNotEmpty(f"{new.path} is not empty; a backup goes into a folder of its own")
    # A server that keeps its queues in PostgreSQL has topics only.
    queues = backup_store(old, new, show) if is_store(old) else Copied(0, 0)
    if not has_topics:
        return queues
    done = asyncio.run(_copy_topics(topics, copy / "streams", show))
    return Copied(queues.segments + done.segments, queues.size_bytes + done.size_bytes)


async def _copy_topics(source: "Folder", copy: Path, show: Callable[[str, int, int], None]) -> "Copied":
    from penstock.runtime.system import ThreadWorkers, halt, system_runtime
    from penstock.streams.embedded.backup import backup_streams

    async with ThreadWorkers(1, halt) as workers:
        return await backup_streams(source, system_runtime(copy.parent, workers), copy.name, show)
