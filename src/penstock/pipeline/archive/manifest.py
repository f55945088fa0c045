"""The manifest of an archive: one entry for each committed batch, each beginning where the one before it ended.

    messages/queue=<name>/day=<YYYY-MM-DD>/<batch>-<number>.parquet    rows: committed ones, nothing else
    manifest/<batch>.json                                              one for each committed batch
    queues.json                                                        the settings of each queue, as last seen
    dead_letters/dead_letters.parquet                                  the dead letters, as last seen
    staging/<batch>-<run>/                                             a batch on its way
    checkpoint/<run>/                                                  Spark's notes of a run; of no use after it
    lock.json                                                          the archiver that is at work

Paths are relative to the root of the archive. A batch has twenty digits, so that names sort as numbers do. The name
of a queue has no character that a folder would have to escape.

An entry exists or it does not: it is created whole, never changed, and its number is taken once. So the entries, in
order, are the one history of an archive, and the end of the last one is where the next batch begins. Nothing else
says so.

An entry without rows is a fence: what was written before it without being named does not count any more (see
`commit`).
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime

from penstock.pipeline.job import JobFailed
from penstock.pipeline.locations import MANIFEST, MESSAGES
from penstock.pipeline.storage import Files

STAGING = "staging"
CHECKPOINT = "checkpoint"
LOCK = "lock.json"

_DIGITS = 20


def entry_path(batch: int) -> str:
    return f"{MANIFEST}/{batch:0{_DIGITS}}.json"


def batch_of(name: str) -> int | None:
    """Return the batch of an entry of the manifest; none for other files, such as one that is being written.

    >>> batch_of("00000000000000000012.json"), batch_of(".00000000000000000012.json.tmp")
    (12, None)
    """
    digits, _, ending = name.partition(".")
    return int(digits) if ending == "json" and len(digits) == _DIGITS and digits.isdecimal() else None


def staging_path(batch: int, run: str) -> str:
    return f"{STAGING}/{batch:0{_DIGITS}}-{run}"


def message_path(staged: str, *, batch: int, number: int) -> str:
    """Return where a staged file of a batch comes to stand: in the same folders, under a name of its own.

    >>> message_path("queue=orders/day=2026-03-01/part-00000.c000.zstd.parquet", batch=7, number=2)
    'messages/queue=orders/day=2026-03-01/00000000000000000007-00002.parquet'
    """
    folders = staged.rpartition("/")[0]
    return f"{MESSAGES}/{folders}/{batch:0{_DIGITS}}-{number:05}.parquet"


def queue_of(path: str) -> str:
    """Return the queue whose rows are in a file.

    >>> queue_of("messages/queue=orders.dead/day=2026-03-01/00000000000000000007-00002.parquet")
    'orders.dead'
    """
    return next(part.removeprefix("queue=") for part in path.split("/") if part.startswith("queue="))


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
    # Whether rows before this batch were lost to the archive, and its user said that it may go on.
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
    """A batch begins where the one before it ended; a shard that was not known before begins anywhere."""
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
