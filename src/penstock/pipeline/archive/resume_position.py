"""Where a run of the archive job begins: where the manifest ends, if the source still has what comes next."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from penstock.pipeline.archive.manifest import Entry
from penstock.pipeline.job import JobFailed


class Kept(Protocol):
    """What a source keeps of one shard: rows from an offset on, and below another."""

    @property
    def start(self) -> int: ...

    @property
    def end(self) -> int: ...


class Histories(Protocol):
    def has_reached(self, shard: int, offset: int) -> bool:
        """Whether there has been such an offset."""
        ...


class RowsAreGone(JobFailed):
    """The source has dropped rows that the archive does not have."""


class AnotherHistory(JobFailed):
    """The source is not the one that the archive was made from."""


@dataclass(frozen=True, slots=True)
class Beginning:
    # By shard.
    offsets: dict[str, int]
    # Whether rows before it are lost to the archive.
    has_gap: bool
    # Whether the source has anything to read from there on.
    has_rows: bool


def beginning(last: Entry | None, kept: Mapping[int, Kept], histories: Histories, *, may_have_gaps: bool) -> Beginning:
    """Return where to begin: for each shard where the last batch ended, or with the first row that is kept."""
    ended = {} if last is None else last.offsets_to
    for known in ended:
        if int(known) not in kept:
            raise AnotherHistory(f"the archive has rows of shard {known}, and the source has no such shard")
    offsets: dict[str, int] = {}
    has_gap = False
    for shard, there in kept.items():
        start = ended.get(str(shard), there.start)
        if start < there.start:
            if not may_have_gaps:
                raise RowsAreGone(_gone(shard, start, there.start))
            start, has_gap = there.start, True
        if start > there.end and not histories.has_reached(shard, start):
            raise AnotherHistory(
                f"the archive ends at offset {start} of shard {shard}, and the history of the source at {there.end}: "
                "it is another one, or it was put back to an older copy. Begin another archive"
            )
        offsets[str(shard)] = start
    return Beginning(offsets, has_gap, any(offsets[str(shard)] < there.end for shard, there in kept.items()))


def _gone(shard: int, start: int, first_kept: int) -> str:
    return (
        f"the archive ends at offset {start} of shard {shard}, and the source keeps its history from {first_kept} on: "
        "the rows between are gone before they were archived. To go on without them say --allow-gaps; "
        "so that it does not happen again, archive more often or let the server keep its history for longer"
    )
