"""The manifest: one entry for each committed batch, each beginning where the one before it ended.

An entry exists or it does not: it is created whole, never changed, and its number is
taken once. So the entries, in order, are the one history of an archive, whoever wrote
them, and the end of the last one is where the next batch begins. Nothing else says so.

An entry without rows may still say something: that what was written before it without
being named does not count any more (see `committing`).
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime

from penstock.pipeline.archive.layout import batch_of, entry_path
from penstock.pipeline.job import JobFailed
from penstock.pipeline.locations import MANIFEST
from penstock.pipeline.storage import Files

VERSION = 1
# A start reads so many entries, the newest; each was checked against the one before it when it was written.
CHECKED_MAX = 1_000

# By shard, which JSON has as a text: the offset at which the next row may stand.
Offsets = Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """A file that counts. Times are RFC 3339, as everywhere in the manifest."""

    path: str
    # Where it was in the staging folder of its batch, from which it is moved.
    staged: str
    bytes: int
    rows: int
    settled_from: str
    settled_to: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    batch: int
    source: str
    # The queues that are archived; empty for all. It is the same in every entry of an archive.
    queues: Sequence[str]
    offsets_from: Offsets
    offsets_to: Offsets
    rows: int
    files: Sequence[Named]
    staging: str
    settled_from: str | None
    settled_to: str | None
    written_at: str
    # Whether rows before this batch were lost to the archive, and whoever ran it said that it may go on.
    has_gap: bool = False
    version: int = VERSION


class BrokenArchive(JobFailed):
    """What the manifest says does not fit together; the message says where."""


def batches(files: Files) -> range:
    """Return the numbers of all entries; one that is missing among them is an error."""
    found = [batch for name in files.names(MANIFEST) if (batch := batch_of(name)) is not None]
    numbers = range(found[0], found[-1] + 1) if found else range(0)
    if len(found) != len(numbers):
        missing = min(set(numbers) - set(found))
        raise BrokenArchive(f"{files.where(entry_path(missing))} is missing: the manifest goes on after it")
    return numbers


def read_entry(files: Files, batch: int) -> Entry:
    try:
        said = json.loads(files.read(entry_path(batch)))
        if said["version"] != VERSION:
            raise BrokenArchive(f"{files.where(entry_path(batch))} is of version {said['version']}, unknown here")
        return Entry(**{**said, "files": tuple(Named(**each) for each in said["files"])})
    except (ValueError, TypeError, KeyError) as error:
        raise BrokenArchive(f"{files.where(entry_path(batch))} cannot be read: {error}") from error


def newest_entries(files: Files) -> list[Entry]:
    """Return the newest entries, the oldest of them first, checked to follow each other."""
    entries = [read_entry(files, batch) for batch in batches(files)[-CHECKED_MAX:]]
    check_chain(entries)
    return entries


def create_entry(files: Files, entry: Entry) -> bool:
    """Write an entry; false if its number is taken, which is how a second archiver learns that it is one."""
    return files.create(entry_path(entry.batch), json.dumps(asdict(entry), indent=1).encode() + b"\n")


def check_chain(entries: Iterable[Entry]) -> None:
    before: Entry | None = None
    for entry in entries:
        if before is not None:
            check_follows(before, entry)
        before = entry


def check_follows(before: Entry, entry: Entry) -> None:
    """A batch begins where the one before it ended; a shard that nobody knew before begins anywhere."""
    for shard, to in before.offsets_to.items():
        start = entry.offsets_from.get(shard)
        if start == to or (entry.has_gap and start is not None and start > to):
            continue
        raise BrokenArchive(
            f"batch {entry.batch} begins at offset {start} of shard {shard}, but batch {before.batch} ended at {to}: "
            + ("rows would be there twice" if start is not None and start < to else "the rows between are missing")
        )


def text_of(at_ms: int) -> str:
    """Return an instant as the manifest says it.

    >>> text_of(1_500)
    '1970-01-01T00:00:01.500Z'
    """
    return datetime.fromtimestamp(at_ms / 1_000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def ms_of(text: str) -> int:
    """Return the instant that the manifest says.

    >>> ms_of("1970-01-01T00:00:01.500Z")
    1500
    """
    return round(datetime.fromisoformat(text).timestamp() * 1_000)
