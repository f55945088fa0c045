"""What a task of the archive does: read a slice, and write it as Parquet where it stays. Nothing is in the JVM.

    slice ──▶ record batches ──▶ id, day ──▶ sorted by day, queue and time ──▶ one file for each day, durable

A file has a name that no other file has, so a task that is tried again writes another one, which a commit names
instead of the first. Rows are held until there are so many bytes of them; then they become files.

Executors import this module: it needs pyarrow, numpy and what reads the slice.
"""

import secrets
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
from pyarrow import compute, fs

from penstock.contract.history_columns import HISTORY, LIVE
from penstock.contract.limits import MIB
from penstock.history_arrow import schema_of
from penstock.pipeline.options import ReadOptions
from penstock.pipeline.source.ranges import Slice
from penstock.pipeline.source.reader import read_slices
from penstock.pipeline.source.server import read_live
from penstock.pipeline.tables import DAY, TOLD, DataFile, file_system, sync

ID = pa.field("id", pa.string())
ARCHIVED = schema_of(HISTORY).append(ID).append(pa.field(DAY, pa.string()))
DEAD_LETTERS_SCHEMA = schema_of(LIVE).append(ID)

HELD_BYTES_MAX = 128 * MIB
ROWS_PER_GROUP = 131_072
_DAY_US = 86_400_000_000


class RowsOutside(Exception):
    """A source gave rows that it was not asked for; the message says which."""


class QueueRows(NamedTuple):
    """How many rows of a queue were written, and from when to when they were settled."""

    queue: str
    rows: int
    from_ms: int
    to_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Wrote:
    """What a task has written."""

    files: list[DataFile]
    queues: list[QueueRows]


def write_slice(part: Slice, options: ReadOptions, where: str) -> Wrote:
    """Write the rows of a slice below a table."""
    wrote = Wrote(files=[], queues=[])
    for read in _held(read_slices(options, part)):
        _check_within(read, part)
        wrote.queues.extend(_counted(read))
        wrote.files.extend(write_rows(read, where))
    return wrote


def write_rows(rows: Any, where: str) -> list[DataFile]:
    """Write rows of a history below a table: a file for each day."""
    return list(_write_days(_in_order(rows), where))


def write_live(queue: str, options: ReadOptions, where: str) -> list[DataFile]:
    """Write what is in a queue now below a table."""
    return [
        write_file(rows.append_column(ID, message_ids(rows)).sort_by("key"), where)
        for rows in _held(read_live(options, queue))
    ]


def _held(batches: Iterable[Any]) -> Iterator[Any]:
    """Yield tables of many batches, of so many bytes at most, but for one batch."""
    held: list[Any] = []
    size = 0
    for batch in batches:
        held.append(batch)
        size += batch.nbytes
        if size >= HELD_BYTES_MAX:
            yield pa.Table.from_batches(held)
            held, size = [], 0
    if held:
        yield pa.Table.from_batches(held)


def _check_within(rows: Any, part: Slice) -> None:
    first, last = (compute.min_max(rows["offset"])[name].as_py() for name in ("min", "max"))
    if not part.rows.start <= first <= last < part.rows.end:
        raise RowsOutside(
            f"shard {part.rows.shard} gave rows at offsets {first} to {last}, but was asked for those from "
            f"{part.rows.start} on and before {part.rows.end}; nothing of this batch is archived"
        )


def message_ids(rows: Any) -> Any:
    """Return the texts that name messages: `<first queue>-<number · 8 + tier it was sent at>`, in hexadecimal."""
    key = rows["number"].to_numpy() * 8 + rows["sent_tier"].to_numpy()
    return compute.binary_join_element_wise(_hexadecimal(rows["first_queue"].to_numpy()), _hexadecimal(key), "-")


_DIGITS = np.frombuffer(b"0123456789abcdef", np.uint8)


def _hexadecimal(numbers: Any) -> Any:
    """Return numbers as texts: all digits of all numbers at once, and then those that lead are taken away."""
    count = len(numbers)
    big = numbers.astype(">u8").view(np.uint8).reshape(count, 8)
    digits = np.empty((count, 16), np.uint8)
    digits[:, 0::2] = _DIGITS[big >> 4]
    digits[:, 1::2] = _DIGITS[big & 15]
    fixed = pa.Array.from_buffers(pa.binary(16), count, [None, pa.py_buffer(digits.tobytes())])
    texts = compute.utf8_ltrim(fixed.cast(pa.binary()).cast(pa.string()), "0")
    return compute.if_else(compute.equal(texts, ""), "0", texts)


def _in_order(rows: Any) -> Any:
    """Return rows by day, queue and time: a reader that wants one queue opens the groups that have it."""
    settled = rows["settled_at"].combine_chunks().view(pa.int64()).to_numpy()
    queues = rows["queue"].combine_chunks().dictionary_encode()
    order = compute.sort_indices(queues.dictionary).to_numpy()
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    places = np.lexsort((settled, rank[queues.indices.to_numpy()], settled // _DAY_US))
    return rows.append_column(ID, message_ids(rows)).take(pa.array(places))


def _write_days(rows: Any, where: str) -> Iterator[DataFile]:
    """Write rows that are in order into a file for each day."""
    days = rows["settled_at"].combine_chunks().view(pa.int64()).to_numpy() // _DAY_US
    ends = [*np.flatnonzero(np.diff(days)) + 1, len(days)]
    start = 0
    for end in ends:
        day = datetime.fromtimestamp(int(days[start]) * 86_400, UTC).strftime("%Y-%m-%d")
        yield write_file(rows.slice(start, end - start), where, folder=f"{DAY}={day}/", day=day)
        start = int(end)


def write_file(rows: Any, where: str, *, folder: str = "", day: str | None = None) -> DataFile:
    """Write a file below a table, durable and with a name that no other file has."""
    system, root = file_system(where)
    path = f"{folder}{secrets.token_hex(16)}.parquet"
    full = f"{root}/{path}"
    is_local = isinstance(system, fs.LocalFileSystem)
    if is_local:
        Path(full).parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(
        rows, full, filesystem=system, compression="zstd", compression_level=1, row_group_size=ROWS_PER_GROUP
    )
    if is_local:
        sync([Path(full), Path(full).parent, Path(root)])
    size = Path(full).stat().st_size if is_local else system.get_file_info(full).size
    least, most = _least_and_most(rows)
    return DataFile(path=path, bytes=size, rows=rows.num_rows, day=day, least=least, most=most)


def remove_files(where: str, paths: Iterable[str]) -> None:
    """Remove files that no commit names; what is not removed is never read, and goes with the next vacuum."""
    system, root = file_system(where)
    for path in paths:
        try:
            system.delete_file(f"{root}/{path}")
        except OSError:
            return


def _least_and_most(rows: Any) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    found = {name: compute.min_max(rows[name]).as_py() for name in TOLD if name in rows.column_names}
    return (
        {name: _said(both["min"]) for name, both in found.items()},
        {name: _said(both["max"]) for name, both in found.items()},
    )


def _said(value: Any) -> Any:
    """Return a value as a log says it. Times of ours are whole milliseconds, so none is cut off."""
    if isinstance(value, datetime):
        return value.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return value


def _counted(rows: Any) -> Iterator[QueueRows]:
    settled = rows.select(["queue"]).append_column("ms", rows["settled_at"].cast(pa.int64()))
    found = settled.group_by("queue").aggregate([("ms", "count"), ("ms", "min"), ("ms", "max")])
    for each in found.to_pylist():
        yield QueueRows(each["queue"], each["ms_count"], each["ms_min"] // 1_000, each["ms_max"] // 1_000)


def queues_together(found: Iterable[QueueRows]) -> list[QueueRows]:
    """Add up what tasks have written, by queue."""
    known: dict[str, QueueRows] = {}
    for queue, rows, from_ms, to_ms in found:
        there = known.get(queue, QueueRows(queue, 0, from_ms, to_ms))
        known[queue] = QueueRows(queue, there.rows + rows, min(there.from_ms, from_ms), max(there.to_ms, to_ms))
    return [known[queue] for queue in sorted(known)]
