"""How a batch comes to count: exactly once, wherever it is cut off, and with other archivers at work.

    staging/<batch>-<run>/…   files are written here; no reader sees them, no entry counts them
            │
            ▼
    manifest/<batch>.json     created, durable: from here on the batch counts
            │
            ▼
    messages/…                files are moved, one by one
            │
            ▼
    staging/<batch>-<run>/    removed: the batch is finished

Laws
----
1. A file comes to messages/ only if an entry names it, and no other file does.
2. An entry is created, never written over: of two that would commit one number, one does.
   The other has moved nothing, so its rows are nowhere.
3. An entry begins where the one before it ended. So of each range of a history
   one entry has the rows, and by law 1 one set of files.
4. A batch that counts is finished by the next run: a file is in messages/ or still
   in staging/, and moving it again is moving it once.
5. What was staged and never named is removed only after the number it was meant for is
   taken, by an entry without rows: a fence. So an archiver that was thought dead and is not
   cannot name files that were taken away from it. What is staged after the fence is meant
   for a later number, and stays.

Nothing here knows Spark: staged files are names.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from penstock.pipeline.archive.manifest import (
    CHECKPOINT,
    STAGING,
    BrokenArchive,
    Entry,
    Named,
    Offsets,
    check_follows,
    create_entry,
    message_path,
    newest_entries,
)
from penstock.pipeline.job import JobFailed
from penstock.pipeline.locations import MANIFEST, MESSAGES
from penstock.pipeline.storage import Files


class AnotherArchiver(JobFailed):
    """Another archiver has committed the batch that this run was about to; nothing is doubled, and this run ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Staged:
    """A file in a staging folder, named as below it."""

    path: str
    bytes: int
    rows: int
    settled_from: str
    settled_to: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """What a batch is of: from where, and from which offset to which."""

    source: str
    queues: Sequence[str]
    offsets_from: Offsets
    offsets_to: Offsets
    has_gap: bool = False


def recover(files: Files, *, source: str, queues: Sequence[str], written_at: str) -> Entry | None:
    """Finish what counts, remove what does not, and return the last entry; it is the first thing that a run does."""
    for folder in (MESSAGES, MANIFEST, STAGING):
        files.make_folder(folder)
    last = _finished(files)
    # The list is older than the fence: law 5.
    while abandoned := files.names(STAGING):
        start = Reach(source=source, queues=queues, offsets_from={}, offsets_to={})
        fence = _fence_after(last, start, written_at=written_at)
        if create_entry(files, fence):
            for name in abandoned:
                files.remove(f"{STAGING}/{name}")
            last = fence
            break
        # An archiver that was thought dead has just committed.
        last = _finished(files)
    files.remove(CHECKPOINT)
    return last


def commit(files: Files, *, last: Entry | None, entry: Entry) -> Entry:
    """Make the files of a batch count, and move them to where they are read."""
    if last is not None:
        check_follows(last, entry)
    files.sync(f"{entry.staging}/{each.staged}" for each in entry.files)
    if not create_entry(files, entry):
        files.remove(entry.staging)
        raise AnotherArchiver(
            f"batch {entry.batch} of {files.where('')} has been committed by another archiver: "
            "two archivers are at work. Nothing is there twice; let one of them go on"
        )
    finish(files, entry)
    return entry


def finish(files: Files, entry: Entry) -> None:
    """Move what an entry names to where it says; what is there already stays."""
    for each in entry.files:
        if not files.exists(each.path):
            source = f"{entry.staging}/{each.staged}"
            try:
                files.move(source=source, target=each.path)
            except FileNotFoundError as error:
                raise BrokenArchive(
                    f"{each.path} is named by batch {entry.batch} of {files.where('')}, "
                    f"but it is neither there nor in {source}"
                ) from error
    files.sync(each.path for each in entry.files)
    files.remove(entry.staging)


def entry_of(batch: int, staging: str, reach: Reach, staged: Sequence[Staged], *, written_at: str) -> Entry:
    """Return the entry that names the files of a batch."""
    named = [
        Named(
            path=message_path(each.path, batch=batch, number=number),
            staged=each.path,
            bytes=each.bytes,
            rows=each.rows,
            settled_from=each.settled_from,
            settled_to=each.settled_to,
        )
        for number, each in enumerate(sorted(staged, key=lambda each: each.path))
    ]
    return Entry(
        batch=batch,
        source=reach.source,
        queues=list(reach.queues),
        offsets_from=dict(reach.offsets_from),
        offsets_to=dict(reach.offsets_to),
        rows=sum(each.rows for each in named),
        files=named,
        staging=staging,
        settled_from=min((each.settled_from for each in named), default=None),
        settled_to=max((each.settled_to for each in named), default=None),
        written_at=written_at,
        has_gap=reach.has_gap,
    )


def _finished(files: Files) -> Entry | None:
    """Return the last entry, with all its files where they are to be."""
    entries = newest_entries(files)
    if not entries:
        return None
    last = entries[-1]
    # The folder goes last: once it is gone, everything in it was moved.
    if last.staging and files.exists(last.staging):
        finish(files, last)
    return last


def _fence_after(last: Entry | None, start: Reach, *, written_at: str) -> Entry:
    """Return an entry without rows, which ends where the last one did; before the first one no offset is known."""
    if last is None:
        return entry_of(0, "", start, (), written_at=written_at)
    here = replace(start, source=last.source, queues=last.queues, offsets_from=last.offsets_to)
    return entry_of(last.batch + 1, "", replace(here, offsets_to=last.offsets_to), (), written_at=written_at)
