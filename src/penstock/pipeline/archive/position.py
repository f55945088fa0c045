"""Where an archive goes on: positions of the table against what the source keeps, and the next batch.

A batch goes in each shard from the position of the table to an offset. Offsets mean the same for as long as a history
is kept, so the batch that is planned again after a crash begins where the lost one did.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from penstock.contract.history_columns import FRAME_ROW_BITS, HISTORY, TRANSACTION_ROW_BITS
from penstock.pipeline.job import JobFailed
from penstock.pipeline.locations import text_of
from penstock.pipeline.source.ranges import Histories, Range, Slice, Wanted
from penstock.pipeline.tables import Table

# When the last row of all was settled, in milliseconds: it outlives the row.
SETTLED_UNTIL = "penstock/settled-until"


class RowsAreGone(JobFailed):
    """The source has dropped rows that the archive does not have."""


class AnotherHistory(JobFailed):
    """The source is not the one that the archive was made from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    parts: list[Slice]
    # By shard.
    ends: dict[int, int]
    # By shard: how many offsets before it are lost to the archive.
    gaps: dict[int, int]
    # Whether the source has more than this batch takes.
    has_more: bool


def position_name(shard: int) -> str:
    return f"penstock/shard-{shard}"


def positions_of(table: Table) -> dict[int, int]:
    """Return the offset behind the last archived row, by shard."""
    shards = table.described.get("shards", ())
    found = {int(shard): table.position(position_name(shard)) for shard in shards}
    return {shard: end for shard, end in found.items() if end is not None}


def next_batch(
    table: Table,
    histories: Histories,
    target: Mapping[int, int] | None,
    limits: tuple[int, int],
    *,
    may_have_gaps: bool,
) -> Batch:
    """Plan about so many rows, and so many for a task: ``limits``. With a ``target``, only what is before it."""
    kept = histories.kept()
    _know_shards(table, kept)
    # From here until the commit the handle stays as it is: that is the fence against a second archiver.
    ended = positions_of(table)
    starts = start_offsets(ended, kept, histories, may_have_gaps=may_have_gaps)
    wanted = {
        shard: max(there.end if target is None else target.get(shard, 0), starts[shard])
        for shard, there in kept.items()
    }
    behind = [shard for shard in kept if starts[shard] < wanted[shard]]
    ends, parts = dict(wanted), list[Slice]()
    for shard in behind:
        rows = Range(shard, starts[shard], wanted[shard])
        ends[shard] = histories.offset_after(rows, max(limits[0] // len(behind), 1))
        parts += histories.slices(Range(shard, rows.start, ends[shard]), limits[1], goes_on=may_have_gaps)
    gaps = {shard: starts[shard] - end for shard, end in ended.items() if starts[shard] > end}
    return Batch(parts=parts, ends=ends, gaps=gaps, has_more=ends != wanted)


def _know_shards(table: Table, kept: Mapping[int, Range]) -> None:
    """Write down which shards there are: a table cannot be asked for the names of its transactions."""
    known = table.described
    shards = sorted({*known.get("shards", ()), *kept})
    if shards != known.get("shards"):
        table.describe({**known, "shards": shards})


def start_offsets(
    ended: Mapping[int, int], kept: Mapping[int, Range], histories: Histories, *, may_have_gaps: bool
) -> dict[int, int]:
    """Return where to begin: in each shard where the archive ends, or with the first row that is kept."""
    for known in ended:
        if known not in kept:
            raise AnotherHistory(f"the archive has rows of shard {known}, and the source has no such shard")
    starts: dict[int, int] = {}
    for shard, there in kept.items():
        start = ended.get(shard, there.start)
        if start < there.start:
            if not may_have_gaps:
                raise RowsAreGone(_gone(shard, start, there.start))
            start = there.start
        if start > there.end and not histories.has_reached(shard, start):
            raise AnotherHistory(
                f"the archive ends at offset {start} of shard {shard}, and the history of the source at {there.end}: "
                "it is another one, or it was put back to an older copy. Begin another archive"
            )
        starts[shard] = start
    return starts


def _gone(shard: int, start: int, first_kept: int) -> str:
    return (
        f"the archive ends at offset {start} of shard {shard}, and the source keeps its history from {first_kept} on: "
        "the rows between are gone before they were archived. To go on without them say --allow-gaps; "
        "so that it does not happen again, archive more often or let the server keep its history for longer"
    )


def check_goes_on(table: Table, histories: Histories, queues: frozenset[str]) -> None:
    """Refuse a source that was begun again, or put back, and has come as far as the archive since.

    What it has right before the end of the archive is in the archive. So if any of that was settled later than
    everything in the archive, it is another history.
    """
    until_ms = table.position(SETTLED_UNTIL)
    if until_ms is None:
        return
    ended = positions_of(table)
    for shard, kept in histories.kept().items():
        end = min(ended.get(shard, 0), kept.end)
        found_ms = newest_before(histories, end, kept, queues)
        if found_ms is not None and found_ms > until_ms:
            raise AnotherHistory(
                f"the archive has all before offset {end} of shard {shard}, settled until {text_of(until_ms)}, and "
                f"the source has a row there that was settled at {text_of(found_ms)}: it is another one, or it "
                "was put back to an older copy. Begin another archive"
            )


def newest_before(histories: Histories, end: int, kept: Range, queues: frozenset[str]) -> int | None:
    """Return when the newest row of the last frame, or transaction, before an offset was settled; None if gone."""
    wanted = Wanted(tuple(column for column in HISTORY if column.name == "settled_at"), queues, None, None)
    for bits in (FRAME_ROW_BITS, TRANSACTION_ROW_BITS):
        rows = Range(kept.shard, max(end - (1 << bits), kept.start), end)
        batches = histories.read(Slice(rows, goes_on=True), wanted) if rows.start < end else ()
        times = [max(batch.column("settled_at").to_pylist()) for batch in batches if batch.num_rows]
        if times:
            # As the archive has it, whatever the source knows beyond.
            return int((max(times) - datetime.fromtimestamp(0, UTC)) // timedelta(milliseconds=1))
    return None


def now_ms() -> int:
    return time.time_ns() // 1_000_000
