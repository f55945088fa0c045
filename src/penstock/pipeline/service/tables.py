"""Results as tables that anything reads: a folder of Parquet for each, below `<out>/tables`.

    tables/signals/<job>.parquet         as of the last run; replaced by the next one
    tables/audit/<job>-<time>.parquet    one file for each run; removed when they are old

Each row says which `job` wrote it and when (`run_at`). A file takes its place in one step, so a reader sees the old one
or the new one. What is being written is in `tables/.partial`.
"""

from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

_PARTIAL = ".partial"
_TIME = "%Y%m%dT%H%M%SZ"


class Published(NamedTuple):
    # A file in the folder of a job's results.
    file: str
    table: str
    meaning: str
    # Whether each run adds rows, and does not replace those of the last one.
    is_growing: bool = False


TABLES = {
    "signals": (
        Published("queue_windows.parquet", "signals", "Rates, waits, errors and depth by queue and window."),
        Published("tier_windows.parquet", "signals_by_tier", "The same by tier."),
    ),
    "triage": (Published("causes.parquet", "causes", "Buried messages by cause, with what is new."),),
    "skew": (Published("heaviest.parquet", "skew", "The values with the greatest part of anything."),),
    "audit": (Published("queues.parquet", "audit", "The books of each queue, run by run.", is_growing=True),),
    "quality": (
        Published("quality.parquet", "quality", "Rows, nulls and doubles by queue, run by run.", is_growing=True),
    ),
}


def publish(out: Path, *, kind: str, job: str, results: Path, run_at: float, keep_s: float) -> None:
    """Make tables of the results of a run."""
    for each in TABLES.get(kind, ()):
        folder, partial = out / "tables" / each.table, out / "tables" / _PARTIAL
        folder.mkdir(parents=True, exist_ok=True)
        partial.mkdir(exist_ok=True)
        at = datetime.fromtimestamp(run_at, UTC)
        name = f"{job}-{at.strftime(_TIME)}.parquet" if each.is_growing else f"{job}.parquet"
        rows = pq.read_table(results / each.file)
        stamp = pa.repeat(pa.scalar(at, pa.timestamp("us", "UTC")), rows.num_rows)
        rows = rows.append_column("job", pa.repeat(pa.scalar(job), rows.num_rows)).append_column("run_at", stamp)
        pq.write_table(rows, partial / name, compression="zstd")
        (partial / name).replace(folder / name)
        if each.is_growing:
            _remove_old(folder, job, run_at - keep_s)


def _remove_old(folder: Path, job: str, before: float) -> None:
    oldest = datetime.fromtimestamp(before, UTC).strftime(_TIME)
    for path in folder.glob(f"{job}-*.parquet"):
        stamp = path.stem.removeprefix(f"{job}-")
        # The files of a job whose name goes on behind this one's have another time there.
        if len(stamp) == len(oldest) and stamp < oldest:
            path.unlink(missing_ok=True)
