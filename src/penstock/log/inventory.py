"""Which logs a folder has, in a file beside them: one that is listed and not there was lost.

The list can be lost together with a log. So a log is not begun either where something is that is only made after it:
the history and the snapshots of a journal, the partitions of a catalog.

    <folder>/logs           {"format": 1, "logs": ["history", "journal", "streams/catalog"]}
    <folder>/streams/logs   {"format": 1, "logs": ["catalog", "groups"]}

Otherwise a log whose folder was removed could not be told from one that never was, and would be begun empty.
"""

import json
from collections.abc import Sequence

from penstock.log import manifest as manifests
from penstock.log.disk_log import DiskLog
from penstock.log.manifest import UnknownFormat
from penstock.log.recovery import REFUSALS, LogCorrupted
from penstock.log.settings import LogSettings
from penstock.log.writer_queue import off_loop
from penstock.runtime.interface import Disk, Runtime

FORMAT = 1
NAME = "logs"
UNFINISHED = ".tmp"
# A folder that is a file system of its own is made with this in it.
_OF_A_FILE_SYSTEM = {"lost+found"}


class LogMissing(LogCorrupted):
    """A log that was there is gone. Nothing was changed, and nothing was begun in its place."""

    def __init__(self, folder: str, name: str, later: Sequence[str] = ()) -> None:
        super().__init__(f"{folder}/{name}/{manifests.NAME}", "it is missing")
        found = " and ".join(f"{folder}/{each}" for each in later)
        witness = f"though {found} came after it" if later else f"and {folder}/{NAME} lists it"
        first = f"move {found} elsewhere and " if later else ""
        reason = (
            f"{folder}/{name} is missing or incomplete, {witness}. Nothing was changed. Put it back or restore a "
            f"backup. To begin without it, {first}take what is not there out of the list {folder}/{NAME}"
        )
        self.args = (reason,)


async def open_listed(
    runtime: Runtime, folder: str, name: str, settings: LogSettings, *, later: Sequence[str] = ()
) -> DiskLog:
    """Open a log, or make and list it. Raises `LogMissing`, and what `DiskLog.open` does.

    It is not made where one of the folders ``later``, which are only made after it, has anything in it.
    """
    is_known = await check_listed(runtime, folder, name, later=later)
    log = await DiskLog.open(runtime, f"{folder}/{name}", settings)
    if not is_known:
        try:
            await enlist(runtime, folder, name)
        except BaseException:
            await log.close()
            raise
    return log


async def check_listed(runtime: Runtime, folder: str, name: str, *, later: Sequence[str] = ()) -> bool:
    """Return whether a log is listed, which may be in a folder below. Raises as `open_listed` does."""
    disk = runtime.disk

    def check() -> bool:
        is_known = name in listed(disk, folder)
        if not disk.exists(f"{folder}/{name}/{manifests.NAME}"):
            found = [each for each in later if {*disk.names(f"{folder}/{each}")} - _OF_A_FILE_SYSTEM]
            if is_known or found:
                raise LogMissing(folder, name, found)
        return is_known

    return await off_loop(runtime.workers, check)


async def enlist(runtime: Runtime, folder: str, name: str) -> None:
    """List a log, durably."""
    try:
        await off_loop(runtime.workers, lambda: _add(runtime.disk, folder, name))
    except OSError as error:
        if error.errno not in REFUSALS:
            runtime.halt(f"{folder}/{NAME}: {error}")
        raise


def listed(disk: Disk, folder: str) -> set[str]:
    """Return the names of the logs that a folder must have."""
    if not disk.exists(f"{folder}/{NAME}"):
        return set()
    file = disk.open(f"{folder}/{NAME}", must_exist=True)
    try:
        content = file.read(0, file.size())
    finally:
        file.close()
    try:
        fields = json.loads(content)
        found, names = fields["format"], set(fields["logs"])
    except (ValueError, KeyError, TypeError):
        raise LogCorrupted(f"{folder}/{NAME}", "it is no list of logs") from None
    if found != FORMAT:
        raise UnknownFormat(f"{folder}/{NAME} has format {found}; this version of Penstock reads format {FORMAT}")
    return names


def _add(disk: Disk, folder: str, name: str) -> None:
    """The file is written aside first: it is whole at any moment."""
    names = sorted({*listed(disk, folder), name})
    path = f"{folder}/{NAME}"
    file = disk.open(path + UNFINISHED)
    try:
        file.truncate(0)
        file.write(json.dumps({"format": FORMAT, "logs": names}).encode(), 0)
        file.sync()
    finally:
        file.close()
    disk.rename(path + UNFINISHED, path)
    disk.sync_folder(folder)
